/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame writer: arrays go to an HDF5 file in the background.
 *
 * A writer is one file, a series one dataset of frames, a frame one array. A program acquires a frame,
 * fills it and submits it; the writer compresses it on all cores and stores it while the program
 * computes the next one. It holds no more frames than it was told to, all memory is taken when a
 * series is added, and an error of the background work is returned by the next call. What it writes
 * with "deflate" or "none" every program that knows HDF5 reads. docs/writer.md has a worked program.
 *
 * A dataset of frames has one dimension more than a frame: the first is the number of the frame.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>. The frames of one series come in the
 * order in which submit, push and submit_on were called; series of one writer are independent. Once the
 * background work has failed, every call of that writer returns that first error; what
 * sluice_writer_stats() calls visible stays in the file, which is valid.
 *
 * Death. At every moment, and whatever kills the process, the file opens with plain HDF5 and holds all
 * frames up to the last flush or checkpoint. A new file appears under its name with its first flush. A
 * program that ends by exit() with a writer open leaves it so too, and a child of fork() leaves it alone.
 *
 * HDF5. One thread of the writer calls the HDF5 library, which is locked as a whole. Where that library
 * was built without its lock (H5is_library_threadsafe), a writer opens only with
 * SLUICE_WRITER_ONLY_HDF5. If a writer is the first in the process to use HDF5, that library does not
 * clean up at exit() (H5dont_atexit): a program closes its own files of HDF5 itself.
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
 * An attribute of the file, or of a dataset: a text, or count numbers. Exactly one of the three pointers
 * is set. One number is stored as a scalar, more as an array.
 */
struct sluice_attribute {
	const char *name;
	const char *text; /* UTF-8 */
	const double *numbers;
	const int64_t *integers;
	size_t count;
};

enum sluice_writer_flags {
	SLUICE_WRITER_REPLACE =
		1 << 0, /* a file of that name is replaced, at once and whole, by the
	                                 * first flush */
	SLUICE_WRITER_APPEND =
		1 << 1, /* the file may exist: series continue its datasets, or are new */
	SLUICE_WRITER_DURABLE =
		1 << 2, /* what is flushed is on the disk, and survives the loss of power */
	SLUICE_WRITER_ONLY_HDF5 = 1 << 3, /* nothing else in the process uses HDF5 */
};

/* How to open a writer. Start from SLUICE_WRITER_OPTIONS_INIT. */
struct sluice_writer_options {
	size_t size;    /* sizeof(struct sluice_writer_options) */
	unsigned flags; /* of enum sluice_writer_flags; 0: a new file, -EEXIST if there is one */
	unsigned mode;  /* permissions of a file that is made, less the umask; 0: 0666, or
	                 * those of the file that is replaced */
	/* A hard limit on the memory of all series together, in bytes: frames, what compression needs,
	 * and what of the file is held back until a flush: a sixteenth, 1 MiB at least, and for each series
	 * 20 KiB, and 8 KiB for each of its scalars. A series that does not fit is refused.
	 * 0: no limit but what the series ask for. */
	uint64_t memory_bytes;
	/* Chunks that are compressed at a time; 0: one for each core that the process may use. */
	size_t threads;
	/* A flush happens by itself after so many frames (0: not by number) and so many milliseconds
	 * (0: 1000; negative: not by time) if there is anything to flush. */
	uint64_t checkpoint_frames;
	int checkpoint_ms;
	const struct sluice_attribute *attributes; /* of the file's root */
	size_t attribute_count;
	/* A full disk (-ENOSPC, -EDQUOT) is waited for so long before it is an error: the writer tries again each
	 * second, or ten times where that is sooner; negative: for ever; 0: not at all. Nothing is lost meanwhile. */
	int full_disk_ms;
};
#define SLUICE_FULL_DISK_MS 600000
#define SLUICE_WRITER_OPTIONS_INIT                                               \
	{                                                                        \
		sizeof(struct sluice_writer_options), 0, 0, 0, 0, 0, 0, NULL, 0, \
			SLUICE_FULL_DISK_MS                                      \
	}

/*
 * Opens a file for frames. path is a local path, or file:///path. o may be NULL. The context must
 * outlive the writer. -EEXIST: there is such a file, and no flag says what to do with it. -EINVAL: the
 * flags contradict each other, or it is no path. -EWOULDBLOCK: another process has the file open.
 * -EBUSY: this process has. -EBADMSG: APPEND, and it is no HDF5 file, or none that can be continued.
 * -ENOTSUP: built without HDF5, or HDF5 has no lock of its own. Otherwise as open(2).
 */
SLUICE_API int sluice_writer_open(sluice_context *ctx, const char *path,
                                  const struct sluice_writer_options *o, sluice_writer **out);

/*
 * Waits until every frame that was submitted is in the file and the file is flushed: it then opens with
 * any HDF5 program, whatever happens to this one; with DURABLE also after the loss of power. A negative
 * timeout_ms is for ever. -EINPROGRESS: not yet; the flush goes on.
 */
SLUICE_API int sluice_writer_flush(sluice_writer *w, int timeout_ms);

/*
 * Stores what was submitted, closes the file, and frees the writer and its series; frames that are
 * acquired and not submitted are dropped. The handles are gone, whatever this returns, but for
 * -EINPROGRESS: not finished in time; call it again. Otherwise 0, or the first error of the background
 * work, with its sentence in sluice_last_message(). -EINVAL for a writer that is closed already, where
 * that can be told. NULL is allowed.
 */
SLUICE_API int sluice_writer_close(sluice_writer *w, int timeout_ms);

/*
 * Drops what is not in the file yet and closes: the file stays as its last flush left it; a new one
 * that has seen none does not appear. Waits for what storage is doing at the moment. NULL is allowed.
 */
SLUICE_API void sluice_writer_discard(sluice_writer *w);

/* ------------------------------------------------------------------------------------- series */

enum sluice_shuffle {
	SLUICE_SHUFFLE_DEFAULT, /* BYTE where it is of use: a codec, and elements of more than a byte */
	SLUICE_SHUFFLE_NONE,
	SLUICE_SHUFFLE_BYTE,
};

enum sluice_series_flags {
	/* A frame that finds no room in time is counted as dropped instead of refused: push and
	 * submit_on return 0 then, acquire still -EAGAIN. */
	SLUICE_SERIES_DROP = 1 << 0,
	/* In a file opened with APPEND: the next frame has the number continue_at. */
	SLUICE_SERIES_CONTINUE_AT = 1 << 1,
};

#define SLUICE_RANK_MOST 4

/* What a series is. Start from SLUICE_SERIES_OPTIONS_INIT; type, rank and shape must be set. */
struct sluice_series_options {
	size_t size; /* sizeof(struct sluice_series_options) */
	/* Of enum sluice_type, up to SLUICE_FLOAT64: what HDF5 has standard types for. */
	int type;
	unsigned rank; /* dimensions of a frame; 1 to SLUICE_RANK_MOST */
	uint64_t shape
		[SLUICE_RANK_MOST]; /* elements, the slowest dimension first; as C has arrays */
	/* Elements of a frame in a chunk, which is what is compressed as one; a larger one than the frame is cut to it.
	 * All 0: chosen so that every core has one of a frame, of 256 KiB to 1 MiB. */
	uint64_t chunk[SLUICE_RANK_MOST];
	/* Frames that the series will have at most. 0: it grows. With codec "none" the frames of a fixed
	 * number lie one behind the other (a contiguous dataset), whose space on the disk is taken when the
	 * series is added, and go to the disk directly; the dataset's attribute "sluice_frames" has the
	 * number of those that are stored. */
	uint64_t frames;
	/* Frames that the program and the writer hold together; 0: 2, the least that overlaps. Two more
	 * than the program holds at a time is never too little. A frame that is compressed counts no more:
	 * what it has become is bounded by itself. */
	unsigned depth;
	/* "deflate", "zstd" (HDF5's filter 32015), "lz4" (32004) or "none"; NULL: "deflate". Readers need a
	 * plugin for zstd and lz4: see docs/writer.md. */
	const char *codec;
	int level;   /* of the codec; 0: 1, the fastest */
	int shuffle; /* of enum sluice_shuffle */
	/* Bits of the mantissa that floating-point numbers keep; they are rounded to the nearest before
	 * compression. 0: all. The attribute "sluice_precision" has it, and "sluice_max_error" the
	 * largest error. */
	unsigned precision;
	unsigned flags; /* of enum sluice_series_flags */
	/* Names of numbers that come with each frame (time, step): each gets a dataset of doubles beside
	 * that of the frames, called as that, an underscore, and the name. */
	const char *const *scalars;
	size_t scalar_count;
	const struct sluice_attribute *attributes; /* of the dataset */
	size_t attribute_count;
	/* With SLUICE_SERIES_CONTINUE_AT: the dataset keeps this many frames, and the others, with their scalars,
	 * are given up when the series is added; -EINVAL if it has fewer. A reader, and a file after a death,
	 * have either all of them or those that are kept, and new ones after their flush. */
	uint64_t continue_at;
	/* Frames of a chunk. With more than one the frames of a fixed number are in chunks, too, and `depth` does not
	 * count those that are gathered for a chunk. 0: one; but where `chunk` is not set and a frame has less
	 * than 64 KiB, as many as have 64 KiB together, 1024 at most. */
	uint64_t chunk_frames;
};
#define SLUICE_SERIES_OPTIONS_INIT                                                            \
	{                                                                                     \
		sizeof(struct sluice_series_options), 0, 0, {0}, {0}, 0, 0, NULL, 0, 0, 0, 0, \
			NULL, 0, NULL, 0, 0, 0                                                \
	}

/*
 * Adds a dataset of frames, with the groups on its way ("fields/u"), and takes all the memory that it will
 * need. In a file opened with APPEND a dataset of that name is continued: type and shape must be those
 * that it has, and chunk, chunk_frames, codec, level and shuffle are its own (those that are set must agree); attributes
 * that are there stay as they are. The series lives until its writer is closed. May wait for frames of other series to be stored.
 *
 * -EINVAL: an option is wrong. -EEXIST: the name is taken in this writer, or by something else than such a
 * dataset. -ENOTSUP: the codec is not built in, or the dataset has a filter that is none of ours. -EBADMSG: a
 * dataset in a format that cannot be continued. -ENAMETOOLONG. -ENOSPC: no room on the
 * disk, as for the frames of a contiguous dataset: that is an error of the writer, which stays. -ENOBUFS: memory_bytes does not suffice; the sentence says what would. -ENOMEM.
 */
SLUICE_API int sluice_series_add(sluice_writer *w, const char *dataset,
                                 const struct sluice_series_options *o, sluice_series **out);

/*
 * A frame to fill, recycled: its contents are undefined. Aligned to 4096 bytes. Waits while depth of them
 * are acquired or on the way, for ever with a negative timeout_ms, not at all with 0: -EAGAIN, or while the
 * writer waits for room on a full disk, -ENOSPC or -EDQUOT. It stays the caller's until submit or discard. -EDEADLK: for ever, and the program holds all of them itself; where
 * another of its threads is to submit one, say how long to wait.
 */
SLUICE_API int sluice_series_acquire(sluice_series *s, int timeout_ms, void **frame);

/*
 * Hands a frame over; never waits. scalars: as many numbers as the series has scalars; NULL if it has none.
 * On success the frame is the writer's, and must not be touched. -EINVAL: it is no frame of this series that
 * is acquired. -ENOSPC: the series has its fixed number. After any error the frame is still the caller's.
 */
SLUICE_API int sluice_series_submit(sluice_series *s, void *frame, const double *scalars);
/* Gives a frame back that will not be stored. */
SLUICE_API int sluice_series_discard(sluice_series *s, void *frame);

/*
 * Copies a frame, on the caller's thread, from memory that stays the caller's, and submits the copy; waits for a
 * free frame as acquire does.
 */
SLUICE_API int sluice_series_push(sluice_series *s, const void *data, const double *scalars,
                                  int timeout_ms);

/*
 * The same from memory of a device, in the order of a stream: what the stream was given before has
 * happened to data when it is copied, and what it is given next may overwrite it. Returns when the
 * stream has its commands.
 */
SLUICE_API int sluice_series_submit_on(sluice_series *s, const void *device_data,
                                       const double *scalars, sluice_stream stream, int timeout_ms);

/*
 * Gives the file's root, or the dataset, further attributes, all or none; they are copied. Waits until the frames
 * that are stored in part are stored whole, and flushes a file that has its name. Numbers and texts are not
 * changed later: -EEXIST if there is one of a name. -EINVAL: one of them is wrong. Otherwise the first error of
 * the background work.
 */
SLUICE_API int sluice_writer_attributes(sluice_writer *w, const struct sluice_attribute *attributes,
                                        size_t count);
SLUICE_API int sluice_series_attributes(sluice_series *s, const struct sluice_attribute *attributes,
                                        size_t count);

/* Bytes of a frame. */
SLUICE_API size_t sluice_series_frame_bytes(const sluice_series *s);

/* ------------------------------------------------------------------------------------- telling */

/* What one stage did: bytes that went in, and the time of all threads together that it took. */
struct sluice_stage {
	uint64_t bytes;
	uint64_t busy_ns;
};

/* Counts of a series, or of all series of a writer. They only grow, but for those that say "now". */
struct sluice_writer_counts {
	size_t size;        /* in: sizeof(struct sluice_writer_counts) */
	uint64_t submitted; /* frames */
	uint64_t stored;    /* handed to HDF5 or to the file whole */
	uint64_t visible;   /* survive the death of the process: flushed */
	uint64_t durable;   /* survive the loss of power; only with SLUICE_WRITER_DURABLE */
	uint64_t dropped;   /* with SLUICE_SERIES_DROP */
	uint64_t held;      /* now: acquired by the program */
	uint64_t queued;    /* now: submitted, not begun */
	uint64_t in_flight; /* now: begun, not stored */
	uint64_t queued_most;
	uint64_t raw_bytes;    /* of the frames that are stored */
	uint64_t stored_bytes; /* that they take in the file */
	uint64_t chunks,
		raw_chunks; /* stored; of those, as they are, because compressing did not pay */
	uint64_t waited_ns; /* the time the program waited for frames */
	uint64_t waited_most_ns;
	struct sluice_stage copy, compress, store, flush;
	uint64_t flushes;
	double max_error; /* that rounding to a precision made */
	/* Taken, of memory_bytes in the options. Without that limit what is held back counts for a writer as it
	 * is now, and not for a series. */
	uint64_t memory_bytes;
	uint64_t frames_before; /* that the datasets had when they were added, with APPEND */
	/* Of a writer: the time that a full disk was waited for, and how often; and the error that it is waiting for
	 * now, or 0. */
	uint64_t full_ns, full_waits;
	int full_now;
};
/* -EINVAL. Any thread; costs next to nothing. */
SLUICE_API int sluice_writer_stats(const sluice_writer *w, struct sluice_writer_counts *out);
SLUICE_API int sluice_series_stats(const sluice_series *s, struct sluice_writer_counts *out);

/* The first error of the background work. The strings live as long as the writer. */
struct sluice_writer_failure {
	size_t size;         /* in: sizeof(struct sluice_writer_failure) */
	int error;           /* negative errno */
	const char *dataset; /* of the frame; NULL: it was no frame's */
	uint64_t frame;      /* its number in the dataset */
	const char *stage;   /* "copy", "compress", "store" or "flush" */
	const char *message; /* the sentence, HDF5's own words included */
};
/* 1 and the error, 0: none so far; or -EINVAL. */
SLUICE_API int sluice_writer_error(const sluice_writer *w, struct sluice_writer_failure *out);

/* What this build can compress with. */
struct sluice_codec {
	size_t size;         /* in: sizeof(struct sluice_codec) */
	const char *name;    /* "deflate"; several libraries may share it */
	const char *encoder; /* the library: "ISA-L" */
	const char *missing; /* why it is not built in; NULL: it is */
	int filter;          /* HDF5's number of the filter; 0: none */
	int least, most;     /* levels; 0 and 0: it has none */
};
/* One by one, index from 0; -ENOENT past the last one. Strings are constants. */
SLUICE_API int sluice_codec_describe(size_t index, struct sluice_codec *out);

#ifdef __cplusplus
}
#endif
#endif
