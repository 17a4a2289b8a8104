/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame writer: stores arrays in an HDF5 file in the background.
 *
 * A writer is a file, a series is a dataset of frames in it, and a frame is an array. A program
 * acquires a frame, fills it and submits it; the writer compresses it on all cores and stores it
 * while the program computes the next frame. The writer holds no more frames than it was told to,
 * allocates all memory when a series is added, and returns an error of the background work from the
 * next call. Every program with HDF5 can read data that was written with "deflate" or "none".
 * docs/writer.md has a worked program.
 *
 * A dataset of frames has one dimension more than a frame: the first is the number of the frame.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>. The frames of a series are
 * stored in the order in which submit, push and submit_on were called; the series of a writer are
 * independent. Once the background work has failed, every call of that writer returns the first
 * error; frames that sluice_writer_stats() counts as visible stay in the file, which is valid.
 *
 * Death. At every moment, and whatever kills the process, the file opens with plain HDF5 and holds
 * all frames up to the last flush or checkpoint. A new file appears under its name with its first
 * flush, or when it is closed; no checkpoint comes before there is a frame. A program that ends by
 * exit() with a writer open leaves the file in the same state, and a child of fork() does not touch
 * it.
 *
 * HDF5. A single thread of the writer calls the HDF5 library, which is locked as a whole. If that
 * library was built without its lock (H5is_library_threadsafe), a writer opens only with
 * SLUICE_WRITER_ONLY_HDF5. If a writer is the first user of HDF5 in the process, HDF5 does not
 * clean up at exit() (H5dont_atexit), and the program must close its own HDF5 files itself.
 */
#ifndef SLUICE_WRITER_H
#define SLUICE_WRITER_H

#include <sluice/sluice.h>
#include <sluice/type.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_writer sluice_writer;
typedef struct sluice_series sluice_series;

/* ------------------------------------------------------------------------------------- writer */

/*
 * An attribute of the file or of a dataset: a text, or `count` texts or numbers. Exactly one of the
 * four pointers is set. A single number without columns is stored as a scalar; several, and texts,
 * as an array.
 */
struct sluice_attribute {
	const char *name;
	const char *text; /* UTF-8 */
	const double *numbers;
	const int64_t *integers;
	size_t count;
	const char *const *texts; /* UTF-8 */
	size_t columns; /* of numbers in two dimensions, row by row. Default (0): one dimension */
};

enum sluice_writer_flags {
	/* The first flush replaces a file of that name, atomically and completely. */
	SLUICE_WRITER_REPLACE = 1 << 0,
	/* The file may exist: series continue its datasets, or are new. */
	SLUICE_WRITER_APPEND = 1 << 1,
	/* A flush writes to the disk, so that its data survives the loss of power, if the disk
	 * writes pages of 4096 bytes as a whole. */
	SLUICE_WRITER_DURABLE = 1 << 2,
	/* The program promises that nothing else in the process uses HDF5. */
	SLUICE_WRITER_ONLY_HDF5 = 1 << 3,
	/* Of a writer that ranks share: a file for each node, see sluice/ranks.h. */
	SLUICE_WRITER_NODE_FILES = 1 << 4,
};

/* Options of sluice_writer_open(). Start from SLUICE_WRITER_OPTIONS_INIT. */
struct sluice_writer_options {
	/* Required: sizeof(struct sluice_writer_options). */
	size_t size;
	/* Of enum sluice_writer_flags. Default (0): a new file, -EEXIST if there is one. */
	unsigned flags;
	/* Permissions of a file that is created, less the umask. Default (0): 0666, or the
	 * permissions of the file that is replaced. */
	unsigned mode;
	/* A hard limit on the memory of all series together, in bytes: frames, memory for
	 * compression, and the part of the file that is held back until a flush (a sixteenth of the
	 * limit, at least 1 MiB, and for each series 20 KiB and 8 KiB for each of its scalars). A
	 * series that does not fit is refused. Default (0): no limit. */
	uint64_t memory_bytes;
	/* Number of chunks that are compressed at a time. Default (0): the number of cores that the
	 * process may use. */
	size_t threads;
	/* A checkpoint is a flush that the writer makes by itself, if a frame is complete since the
	 * last flush: after this many frames (0: regardless of the number), */
	uint64_t checkpoint_frames;
	/* and after this many milliseconds (0: 1000; negative: regardless of the time). */
	int checkpoint_ms;
	const struct sluice_attribute *attributes; /* of the file's root */
	size_t attribute_count;
	/* How long the writer waits for space on a full disk (-ENOSPC, -EDQUOT) before it reports
	 * an error, milliseconds. It retries every second, or every tenth of this time if that is
	 * shorter. Nothing is lost meanwhile. Negative: for ever; 0: not at all. */
	int full_disk_ms;
	/* Of a writer that ranks share (<sluice/ranks.h>): how long its opening waits for ranks
	 * that have not called it, milliseconds. Default (0): for ever, as collective calls of MPI
	 * wait. */
	int open_ms;
	/* Of a file on a server: the folder of the local file. Default (NULL): TMPDIR, or /tmp. */
	const char *upload_folder;
	/* The same: least time between uploads of the file as it is after a flush, milliseconds.
	 * Each takes a copy of the local file beside it. Default (0): it is uploaded when it is
	 * closed. */
	int upload_ms;
};
#define SLUICE_FULL_DISK_MS 600000
#define SLUICE_WRITER_OPTIONS_INIT                                               \
	{                                                                        \
		sizeof(struct sluice_writer_options), 0, 0, 0, 0, 0, 0, NULL, 0, \
			SLUICE_FULL_DISK_MS, 0, NULL, 0                          \
	}

/*
 * Opens a file for frames. path is a local path or file:///path, or an object of a server
 * (s3://bucket/key, https://host/path): then frames come to a local file, whose name begins with
 * that of the object, and sluice_writer_close() uploads and removes it. After an error it stays,
 * and the sentence names it; SLUICE_LOG=info does so before. o may be NULL. The context must
 * outlive the writer. A file that is refused stays as it was.
 *
 * Returns 0, the errors of open(2), or
 *   -EEXIST        the file exists, and no flag says how to treat it
 *   -EINVAL        the flags contradict each other or are for ranks, or path is not a path
 *   -EWOULDBLOCK   another process has the file open
 *   -EBUSY         this process has the file open
 *   -EBADMSG       APPEND: the file is not an HDF5 file, or cannot be continued
 *   -ENOTSUP       this build has no HDF5, or HDF5 has no lock of its own; or APPEND, and the file
 *                  is on a server
 *   the errors of sluice_open() for the object, which is asked about where servers can tell
 */
SLUICE_API int sluice_writer_open(sluice_context *ctx, const char *path,
                                  const struct sluice_writer_options *o, sluice_writer **out);

/*
 * Waits until every submitted frame is in the file and the file is flushed, for ever if timeout_ms
 * is negative. The file then opens with any HDF5 program, whatever happens to this process; with
 * DURABLE also after the loss of power.
 *
 * Returns 0, or
 *   -EINPROGRESS   not in time; the flush continues
 *   the first error of the background work
 */
SLUICE_API int sluice_writer_flush(sluice_writer *w, int timeout_ms);

/*
 * Stores all submitted frames, closes the file, uploads it if it is on a server, and frees the
 * writer and its series. Frames that are acquired and not submitted are dropped. The handles are
 * gone after every result except
 * -EINPROGRESS.
 *
 * Returns 0, or
 *   -EINPROGRESS   not finished in time; call it again
 *   -EINVAL        the writer is closed already, where that can be detected
 *   the first error of the background work; sluice_last_message() has its sentence
 */
SLUICE_API int sluice_writer_close(sluice_writer *w, int timeout_ms);

/*
 * Drops all frames that are not in the file yet, and closes it. The file stays as its last flush
 * left it; a new file that has not been flushed does not appear. An object stays as the last upload
 * left it; the local file is removed unless the writer had failed. Waits for the call of storage or
 * the request that is in progress.
 */
SLUICE_API void sluice_writer_discard(sluice_writer *w);

/* ------------------------------------------------------------------------------------- series */

enum sluice_shuffle {
	SLUICE_SHUFFLE_DEFAULT, /* BYTE where it helps: a codec, and numbers of more than a byte */
	SLUICE_SHUFFLE_NONE,
	SLUICE_SHUFFLE_BYTE,
};

enum sluice_series_flags {
	/* A frame that finds no room in time is counted as dropped instead of refused: push and
	 * submit_on then return 0; acquire still returns -EAGAIN. */
	SLUICE_SERIES_DROP = 1 << 0,
	/* In a file opened with APPEND: the next frame has the number continue_at. */
	SLUICE_SERIES_CONTINUE_AT = 1 << 1,
	/* Chunks have a checksum, which every reader verifies: HDF5's filter fletcher32, behind the
	 * codec. A chunk of several frames has none until it is full. A series with a fixed number
	 * of frames then has chunks, too. */
	SLUICE_SERIES_FLETCHER32 = 1 << 2,
};

#define SLUICE_FRAME_RANK_MOST 4

/*
 * Options of sluice_series_add(). Start from SLUICE_SERIES_OPTIONS_INIT; type, rank and shape are
 * required, but for frames of a single element.
 */
struct sluice_series_options {
	/* Required: sizeof(struct sluice_series_options). */
	size_t size;
	/* Required: element type, of enum sluice_type: integers, FLOAT16 to FLOAT64, COMPLEX64,
	 * COMPLEX128, BOOL or STRING, stored as h5py does. The bytes of a BOOL are 0 or 1, which is
	 * not checked. */
	int type;
	/* Number of dimensions of a frame, 0 to SLUICE_FRAME_RANK_MOST. With 0 a frame is a single
	 * element, and shape and chunk are not set. */
	unsigned rank;
	/* Required: elements in each dimension, the slowest dimension first, as in arrays of C. */
	uint64_t shape[SLUICE_FRAME_RANK_MOST];
	/* Elements of a frame in a chunk, the unit of compression; a chunk larger than the frame is
	 * cut to it. Default (all 0): chosen so that every core has a chunk of each frame, 256 KiB
	 * to 1 MiB. */
	uint64_t chunk[SLUICE_FRAME_RANK_MOST];
	/* The largest number of frames of the series. Default (0): the series grows. With codec
	 * "none" a series with a fixed number is a contiguous dataset, in which frames lie one
	 * behind the other. Its space on the disk is allocated when the series is added, and frames
	 * are written to the disk directly. The dataset's attribute "sluice_frames" has the number
	 * of frames stored. */
	uint64_t frames;
	/* Frames that the program and the writer hold together. Two more than the program holds at
	 * a time is always enough. A compressed frame no longer counts: compressed data has a bound
	 * of its own. Default (0): 2, the smallest number that overlaps computing and storing. */
	unsigned depth;
	/* "none", or the name of a codec: sluice_codec_describe() lists those of this build and
	 * what readers need, docs/writer.md compares them. Default (NULL): "deflate". */
	const char *codec;
	/* Level of the codec. Default (0): 1, the fastest. */
	int level;
	/* Of enum sluice_shuffle. */
	int shuffle;
	/* Bits of the mantissa that floating-point numbers keep, and both parts of complex numbers;
	 * they are rounded to the nearest before compression. The attribute "sluice_precision" has
	 * this value, "sluice_max_error" the largest error. Default (0): all bits. */
	unsigned precision;
	/* Of enum sluice_series_flags. */
	unsigned flags;
	/* Names of numbers that accompany each frame, such as time or step. Each gets a dataset of
	 * doubles beside that of the frames, named after it with an underscore and this name
	 * appended. */
	const char *const *scalars;
	size_t scalar_count;
	const struct sluice_attribute *attributes; /* of the dataset */
	size_t attribute_count;
	/* With SLUICE_SERIES_CONTINUE_AT: number of frames that the dataset keeps. The others, with
	 * their scalars, are given up when the series is added; -EINVAL if the dataset has fewer. A
	 * reader, and a file after the death of the process, have either all old frames, or the
	 * frames that are kept followed by new frames after their flush. */
	uint64_t continue_at;
	/* Names of the dimensions, rank + 1: that of the frames first, then those of shape. Each is
	 * an HDF5 dimension scale, a dataset in the group of this series: a coordinate that was
	 * added before (sluice_writer_add_coordinate), a scale of another series with the same
	 * length, or a new one without values. A scalar with the first name is the coordinate of
	 * the frames, and its dataset has this name and no other. Continued datasets must have the
	 * same names. Default (NULL): no names. */
	const char *const *dimensions;
	/* Frames of a chunk. With more than one, a series with a fixed number is not contiguous,
	 * and frames that wait for their chunk to be full are no part of `depth`. Default (0): 1;
	 * but if `chunk` is not set and a frame has at most 32 KiB, as many frames as have 64 KiB
	 * together, at most 1024. */
	uint64_t chunk_frames;
	/* Required for SLUICE_STRING: bytes of an element, 1 to SLUICE_STRING_MOST. */
	uint64_t string_bytes;
};
#define SLUICE_STRING_MOST 1024
#define SLUICE_SERIES_OPTIONS_INIT                                                            \
	{                                                                                     \
		sizeof(struct sluice_series_options), 0, 0, {0}, {0}, 0, 0, NULL, 0, 0, 0, 0, \
			NULL, 0, NULL, 0, 0, NULL, 0, 0                                       \
	}

/*
 * Adds a dataset of frames, creating the groups of its path ("fields/u"), and allocates all the
 * memory that it will need. In a file opened with APPEND a dataset of that name is continued: type
 * and shape must match, and the dataset keeps its own chunk, chunk_frames, codec, level and shuffle
 * (options that are set must agree); attributes that exist stay unchanged. The series lives until
 * its writer is closed. A series that is refused leaves the file byte for byte as it was.
 *
 * Waits: possibly for frames of other series to be stored.
 *
 * Returns 0, or
 *   -EINVAL    an option is wrong
 *   -EEXIST    this writer already has a series of that name, or the name belongs to an object that
 *              is not such a dataset
 *   -ENOTSUP   the codec is not built in, or the dataset has a filter that sluice does not have
 *   -EBADMSG   the dataset is in a format that cannot be continued
 *   -ENOBUFS   memory_bytes does not suffice; the sentence says how much would
 *   -ENOSPC    no room on the disk, for instance for the frames of a contiguous dataset; this is an
 *              error of the writer, which stays
 *   -ENAMETOOLONG, -ENOMEM
 */
SLUICE_API int sluice_series_add(sluice_writer *w, const char *dataset,
                                 const struct sluice_series_options *o, sluice_series **out);

/*
 * Acquires a frame to fill. It is recycled, so its contents are undefined; it is aligned to 4096
 * bytes. It belongs to the caller until submit or discard.
 *
 * Waits: while `depth` frames are acquired or on their way; for ever if timeout_ms is negative.
 *
 * Returns 0, or
 *   -EAGAIN            no frame became free in time
 *   -ENOSPC, -EDQUOT   the same, while the writer waits for room on a full disk
 *   -EDEADLK           timeout_ms is negative and the program itself holds all frames. A program in
 *                      which another thread is to submit a frame should pass a time-out
 */
SLUICE_API int sluice_series_acquire(sluice_series *s, int timeout_ms, void **frame);

/*
 * Hands a frame over; never waits. scalars has as many numbers as the series has scalars, or is
 * NULL if it has none. On success the frame belongs to the writer and must not be touched; after
 * any error it still belongs to the caller.
 *
 * Returns 0, or
 *   -EINVAL   the frame is not an acquired frame of this series
 *   -ENOSPC   the series has its fixed number of frames
 */
SLUICE_API int sluice_series_submit(sluice_series *s, void *frame, const double *scalars);
/* Gives back a frame that will not be stored. */
SLUICE_API int sluice_series_discard(sluice_series *s, void *frame);

/*
 * Copies a frame on the caller's thread, from memory that stays the caller's, and submits the copy.
 * Waits for a free frame as acquire does.
 */
SLUICE_API int sluice_series_push(sluice_series *s, const void *data, const double *scalars,
                                  int timeout_ms);

/*
 * Copies a frame from memory of a device in stream order, and submits the copy: all work that the
 * stream was given before has finished when data is copied, and later work of the stream may
 * overwrite data. Waits for a free frame as acquire does, and returns when the stream has its
 * commands.
 */
SLUICE_API int sluice_series_submit_on(sluice_series *s, const void *device_data,
                                       const double *scalars, sluice_stream stream, int timeout_ms);

/*
 * Adds a coordinate: count values in a dataset of one dimension, without frames, which is the
 * dimension of that name for series of the same group ("fields/x" for "fields/u" with a dimension
 * "x") that are added later. type is that of the values, of enum sluice_type, up to SLUICE_FLOAT64.
 * values and attributes are copied. In a file opened with APPEND the same coordinate may be there;
 * its attributes stay.
 *
 * Waits: until all partly stored frames are stored completely. Flushes a file that has its name.
 *
 * Returns 0, or
 *   -EEXIST   something else has that name: other values, a series, or a dimension without values
 *   -EINVAL   the name, the type, the values or an attribute is wrong
 *   -ENOSPC, -EDQUOT   the disk is full
 *   the first error of the background work
 */
SLUICE_API int sluice_writer_add_coordinate(sluice_writer *w, const char *name, int type,
                                            size_t count, const void *values,
                                            const struct sluice_attribute *attributes,
                                            size_t attribute_count);

/*
 * Add attributes to the file's root or to the dataset, all or none; they are copied. Numbers and
 * texts cannot be changed later.
 *
 * Waits: until all partly stored frames are stored completely. Flushes a file that has its name.
 *
 * Return 0, or
 *   -EEXIST   there is an attribute of that name
 *   -EINVAL   an attribute is wrong
 *   the first error of the background work
 */
SLUICE_API int sluice_writer_attributes(sluice_writer *w, const struct sluice_attribute *attributes,
                                        size_t count);
SLUICE_API int sluice_series_attributes(sluice_series *s, const struct sluice_attribute *attributes,
                                        size_t count);

/* Returns the size of a frame in bytes. */
SLUICE_API size_t sluice_series_frame_bytes(const sluice_series *s);

/*
 * Gives the memory of all frames of the series to the caller: it stays where it is when the writer
 * ends, for pointers into it that may live longer, and the caller unmaps it afterwards (munmap(2)).
 * The writer goes on using it until then.
 *
 * Returns 0, or -EINVAL.
 */
SLUICE_API int sluice_series_keep_memory(sluice_series *s, void **memory, size_t *bytes);

/* --------------------------------------------------------------------------------- statistics */

/* Work of a stage: bytes that went in, and the time of all threads together. */
struct sluice_stage {
	uint64_t bytes;
	uint64_t busy_ns;
};

/* Counts of a series, or of all series of a writer. They only grow, except those marked "now". */
struct sluice_writer_counts {
	size_t size;           /* in: sizeof(struct sluice_writer_counts) */
	uint64_t submitted;    /* frames */
	uint64_t stored;       /* frames handed to HDF5 or to the file completely */
	uint64_t visible;      /* frames flushed: they survive the death of the process */
	uint64_t durable;      /* frames that survive the loss of power; only with DURABLE */
	uint64_t dropped;      /* frames dropped, with SLUICE_SERIES_DROP */
	uint64_t held;         /* now: frames acquired by the program */
	uint64_t queued;       /* now: frames submitted, not begun */
	uint64_t in_flight;    /* now: frames begun, not stored */
	uint64_t queued_most;  /* the largest value of queued */
	uint64_t raw_bytes;    /* bytes of the stored frames in memory */
	uint64_t stored_bytes; /* bytes of the stored frames in the file */
	uint64_t chunks;       /* chunks stored */
	uint64_t raw_chunks;   /* chunks of these that compression did not make smaller */
	uint64_t waited_ns;    /* time that the program waited for frames, nanoseconds */
	uint64_t waited_most_ns;
	struct sluice_stage copy, compress, store, flush;
	uint64_t flushes;
	double max_error; /* largest error of rounding to a precision */
	/* Memory in use, as memory_bytes of the options counts it. Without that limit the bytes
	 * held back until a flush count for a writer as they are now, and do not count for a
	 * series. */
	uint64_t memory_bytes;
	uint64_t frames_before; /* frames of the datasets when they were added, with APPEND */
	/* Of a writer: time spent waiting for space on a full disk, nanoseconds, and number of
	 * waits. */
	uint64_t full_ns, full_waits;
	int full_now; /* of a writer: the error of the disk that it is waiting for now, or 0 */
};
/*
 * Return the counts. out->size must be set. They cost next to nothing.
 *
 * Return 0, or -EINVAL.
 */
SLUICE_API int sluice_writer_stats(const sluice_writer *w, struct sluice_writer_counts *out);
SLUICE_API int sluice_series_stats(const sluice_series *s, struct sluice_writer_counts *out);

/* The first error of the background work. The strings live as long as the writer. */
struct sluice_writer_failure {
	size_t size;         /* in: sizeof(struct sluice_writer_failure) */
	int error;           /* negative errno */
	const char *dataset; /* dataset of the frame; NULL: the error concerns no frame */
	uint64_t frame;      /* number of the frame in the dataset */
	const char *stage;   /* "copy", "compress", "store", "flush" or "upload" */
	const char *message; /* the sentence, HDF5's own words included */
};
/* Returns 1 and the error, 0 if there is none so far, or -EINVAL. */
SLUICE_API int sluice_writer_error(const sluice_writer *w, struct sluice_writer_failure *out);

/* A codec of this build. */
struct sluice_codec {
	size_t size;         /* in: sizeof(struct sluice_codec) */
	const char *name;    /* "deflate"; several libraries may share a name */
	const char *encoder; /* the library: "ISA-L" */
	const char *missing; /* the reason why it is not built in; NULL: it is */
	int filter;          /* HDF5's number of the filter; 0: none */
	int least, most;     /* range of levels; 0 and 0: it has no levels */
	const char *plugin;  /* what a reader needs besides HDF5, in words; NULL: nothing */
};
/*
 * Describes the codec with this index, counted from 0. Strings are constants.
 *
 * Returns 0, or
 *   -ENOENT   the index is past the last codec
 */
SLUICE_API int sluice_codec_describe(size_t index, struct sluice_codec *out);

#ifdef __cplusplus
}
#endif
#endif
