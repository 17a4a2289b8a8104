/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors: named arrays in files, read into the memory of a host or of devices.
 *
 * The files are safetensors (https://github.com/huggingface/safetensors, section "Format"), .npy
 * and .npz with members that are not compressed (NumPy's documentation, numpy.lib.format), or an
 * index of safetensors files (JSON with an object "weight_map" from names of tensors to names of
 * files). They lie wherever sluice_open() finds a file.
 *
 * A program opens files, which reads their headers only, chooses tensors or slices of them, makes a
 * plan, and reads the plan, by a single call and in large requests, into memory of its own or of a
 * sluice_tensor_memory:
 *
 *     sluice_tensors_open(ctx, &uri, 1, NULL, &tensors);
 *     sluice_tensor_plan_new(tensors, NULL, 0, &plan);
 *     sluice_tensor_memory_new(device, sluice_tensor_plan_bytes(plan), &memory);
 *     sluice_tensor_plan_read(plan, memory, NULL, &load);
 *     sluice_tensor_load_wait(load, -1);
 *
 * sluice_tensors_save() writes such files while the program goes on. The store can also keep
 * tensors by one name, as a collection: see the end of this header.
 *
 * Headers of files are not trusted: each length, offset, shape, type and name is checked when the
 * file is opened, and memory is allocated only for bytes that are in the file.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>.
 */
#ifndef SLUICE_TENSORS_H
#define SLUICE_TENSORS_H

#include <sluice/sluice.h>
#include <sluice/store.h>
#include <sluice/type.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_tensors sluice_tensors;
typedef struct sluice_tensor_plan sluice_tensor_plan;
typedef struct sluice_tensor_memory sluice_tensor_memory;
typedef struct sluice_tensor_load sluice_tensor_load;

/* The most dimensions of a tensor. */
#define SLUICE_TENSOR_RANK_MOST 16

/* -------------------------------------------------------------------------------------- files */

/*
 * Opens files of tensors for reading, or an index of files, and reads their headers, several at a
 * time. The name of a tensor is unique among all the files. open_options are those of
 * sluice_open(), for each file; NULL: the defaults. The files of an index lie in its folder, whose
 * URI is that of the index up to the last '/'; names in the index with '/' are refused. If
 * a file is missing the index is read again, up to twice: a save may have replaced it. An .npy
 * file is a tensor with the name of the file, without folder and ".npy"; members of an .npz file
 * have their names without ".npy". The context must outlive the result.
 *
 * Returns 0, the errors of sluice_open() and of reads, or
 *   -EBADMSG   a file is damaged or is not what its header says: a length beyond the end, tensors
 *              that overlap, bytes that belong to no tensor, a shape that does not give the length,
 *              the same name twice, no valid JSON, no valid UTF-8
 *   -EFBIG     a header of more than 100 MB, or of an array of more than 4 KiB
 *   -EINVAL    an index among other files
 *   -ENOTSUP   a type of elements or a compression that sluice does not know; an array in Fortran
 *              order
 *   -EPROTO    a format that sluice does not know
 * The sentence names the file and the tensor.
 */
SLUICE_API int sluice_tensors_open(sluice_context *ctx, const char *const *uris, size_t count,
                                   const struct sluice_open_options *open_options,
                                   sluice_tensors **out);
/* Closes the files. Plans must have been freed before. */
SLUICE_API void sluice_tensors_free(sluice_tensors *tensors);

/* A tensor in a file. Strings and shapes live as long as the sluice_tensors. */
struct sluice_tensor {
	size_t size;           /* in: sizeof(struct sluice_tensor) */
	const char *name;      /* UTF-8; may be "" */
	int type;              /* of enum sluice_type */
	unsigned rank;         /* dimensions; 0: a scalar */
	const uint64_t *shape; /* elements along each dimension, the last dimension contiguous */
	size_t file;           /* number of the file, counted from 0 */
	uint64_t offset;       /* of its first byte in the file */
	uint64_t bytes;        /* rows are not padded; types below a byte are packed */
};
/* Returns the name of a type, such as "bfloat16", or NULL if there is no such type. */
SLUICE_API const char *sluice_type_name(int type);
/* Returns the word of safetensors for a type, such as "BF16", or NULL if that has none. */
SLUICE_API const char *sluice_type_word(int type);
/* Returns the number of tensors in all the files. */
SLUICE_API size_t sluice_tensors_count(const sluice_tensors *tensors);
/* Describes the tensor with this index; the tensors of a file are in the order of their bytes.
 * Returns 0, or -ENOENT past the last. */
SLUICE_API int sluice_tensors_get(const sluice_tensors *tensors, size_t index,
                                  struct sluice_tensor *out);
/* Finds a tensor by its name. Returns 0, or -ENOENT with a sentence that has the name. */
SLUICE_API int sluice_tensors_find(const sluice_tensors *tensors, const char *name, size_t *index);

/* A file of tensors. Strings live as long as the sluice_tensors. */
struct sluice_tensor_file {
	size_t size;        /* in: sizeof(struct sluice_tensor_file) */
	const char *name;   /* the URI as sluice_uri_name() prints it */
	const char *format; /* "safetensors", "npy" or "npz"; a constant */
	uint64_t bytes;     /* length of the file */
	size_t metadata;    /* pairs of text in "__metadata__" */
	sluice_file *file;  /* open for reading, closed by sluice_tensors_free() */
};
/* Describes the file with this number. Returns 0, or -ENOENT past the last. */
SLUICE_API int sluice_tensors_file(const sluice_tensors *tensors, size_t file,
                                   struct sluice_tensor_file *out);
/* Sets a pair of "__metadata__" of a file. Returns 0, or -ENOENT past the last. */
SLUICE_API int sluice_tensors_metadata(const sluice_tensors *tensors, size_t file, size_t index,
                                       const char **key, const char **value);

/* --------------------------------------------------------------------------------------- plan */

/* The elements from `start` on, before `stop`, of a dimension. */
struct sluice_tensor_range {
	uint64_t start, stop;
};
/*
 * Sets the ranges of the slice of a rank of a tensor: of a dimension of n elements those from
 * floor(n * rank / ranks) to floor(n * (rank + 1) / ranks), of others all. ranges: an array with an
 * entry for each dimension. dimension: -1 is the last. Any thread.
 *
 * Returns 0, or -EINVAL: an index past the last, ranks is 0 or rank is not less, the tensor has no
 * such dimension, or with `even` the slices of the ranks have not the same length; the sentence
 * names the tensor.
 */
SLUICE_API int sluice_tensors_slice(const sluice_tensors *tensors, size_t index, int dimension,
                                    uint32_t rank, uint32_t ranks, int even,
                                    struct sluice_tensor_range *ranges);
/* A tensor to read. */
struct sluice_tensor_want {
	size_t tensor; /* index */
	/* For each dimension a range, or NULL: the whole tensor. The bytes of the slice are read
	 * without gaps, in the order of its elements. */
	const struct sluice_tensor_range *ranges;
	/* The address of the first byte, on the host or on a device; NULL: in the
	 * sluice_tensor_memory of the read. */
	void *to;
};
/*
 * Plans to read tensors, or all tensors if wants is NULL; the arrays are copied. A plan may be read
 * many times, also at once. It must be freed before sluice_tensors_free().
 *
 * Without destinations of its own each tensor is given an offset in a sluice_tensor_memory, at a
 * multiple of 256 bytes and in the order of the files, so that tensors that follow each other in a
 * file, with lengths that are multiples of 256, are read as one extent.
 *
 * Returns 0, or
 *   -EINVAL   an index past the last, a range that is not in the shape or, for types below a byte,
 *             does not begin and end at a byte
 *   -E2BIG    more than 16,000,000 runs of bytes that follow each other in a file: a slice of the
 *             inner dimensions has a run for each row. Each takes about 120 bytes while the plan is
 *             read. Narrow columns do not count: runs of less than 16 KiB, in rows of at most 16
 *             KiB or two runs
 *   -ENOMEM
 */
SLUICE_API int sluice_tensor_plan_new(sluice_tensors *tensors,
                                      const struct sluice_tensor_want *wants, size_t count,
                                      sluice_tensor_plan **out);
SLUICE_API void sluice_tensor_plan_free(sluice_tensor_plan *plan);

/* A tensor of a plan. The shape lives as long as the plan. */
struct sluice_tensor_item {
	size_t size;            /* in: sizeof(struct sluice_tensor_item) */
	size_t tensor;          /* index */
	int type;               /* of enum sluice_type */
	unsigned rank;          /* that of the tensor */
	const uint64_t *shape;  /* of the slice */
	uint64_t bytes;         /* of the slice */
	uint64_t memory_offset; /* in the sluice_tensor_memory; UINT64_MAX: it has a destination */
};
/* Describes a tensor of the plan, in the order of `wants`. Returns 0, or -ENOENT past the last. */
SLUICE_API int sluice_tensor_plan_item(const sluice_tensor_plan *plan, size_t index,
                                       struct sluice_tensor_item *out);
/* Returns the bytes of memory that the plan needs for tensors without destinations of their own. */
SLUICE_API uint64_t sluice_tensor_plan_bytes(const sluice_tensor_plan *plan);

/* ------------------------------------------------------------------------------------- memory */

/*
 * Allocates memory of a device, or of the host (-1), aligned to 256 bytes at least; n may be 0. The
 * handle counts its users: DLPack tensors keep the memory after sluice_tensor_memory_free().
 *
 * Returns 0, or
 *   -ENODEV   there is no such device
 *   -ENOMEM   the device or the host has not so much memory; the sentence says how much there is
 */
SLUICE_API int sluice_tensor_memory_new(int device, uint64_t n, sluice_tensor_memory **out);
/* Returns the address of the memory. */
SLUICE_API void *sluice_tensor_memory_data(const sluice_tensor_memory *memory);
SLUICE_API void sluice_tensor_memory_free(sluice_tensor_memory *memory);

/*
 * Exports a tensor of a plan that lies in the memory, as a struct of DLPack
 * (https://dmlc.github.io/dlpack) without a copy: version 0 gives DLManagedTensor, version 1
 * DLManagedTensorVersioned (1.1). The struct's deleter frees it; it may run on any thread. Elements
 * of 4 bits are in pairs (two lanes) if the last dimension is even, as torch has them.
 *
 * Returns 0, or
 *   -EINVAL    the tensor has a destination of its own, the memory is too small, or another version
 *   -ENOTSUP   DLPack has no code for the type
 *   -ENOENT, -ENOMEM
 */
SLUICE_API int sluice_tensor_to_dlpack(const sluice_tensor_plan *plan, size_t index,
                                       sluice_tensor_memory *memory, unsigned version, void **out);

/* --------------------------------------------------------------------------------------- read */

enum sluice_digest_kind {
	SLUICE_SHA256 = 1, /* FIPS 180-4; 32 bytes; a core for each file */
	/*
	 * XXH3 of 128 bits with seed 0 in its canonical form (16 bytes, big endian), as `xxhsum
	 * -H2` prints it (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md); a core for each
	 * file. It finds damage and is no protection from forgery.
	 */
	SLUICE_XXH3_128,
};
struct sluice_digest {
	int kind; /* of enum sluice_digest_kind; 0: none, the file is not checked */
	unsigned char bytes[32];
};

/* Options of a read. Start from SLUICE_TENSOR_READ_OPTIONS_INIT. */
struct sluice_tensor_read_options {
	size_t size; /* required: sizeof(struct sluice_tensor_read_options) */
	int on;      /* 1: in the order of the stream below; 0: awaited on the host */
	sluice_stream stream;
	/* NULL, or the digests of all files that the plan reads from, by the number of the file:
	 * the whole file is read and checked, and the load fails with -EBADMSG if it differs. Not
	 * in stream order (-ENOTSUP). The load then has up to 128 MiB of memory of its own, pinned
	 * as by sluice_pinned_alloc() for a device. */
	const struct sluice_digest *digests;
};
#define SLUICE_TENSOR_READ_OPTIONS_INIT                                  \
	{                                                                \
		sizeof(struct sluice_tensor_read_options), 0, NULL, NULL \
	}

/*
 * Starts to read a plan and returns at once: an operation for each file and device, and a thread if
 * digests are checked, an .npz file is read, or the same slice is wanted by the host and a device,
 * or twice by a device, which is then read once and copied. A slice for several devices is read
 * once, too, and fanned out (struct sluice_request, `also`). Slices of the same rows with runs of
 * less than 64 KiB, such as those of several ranks, and from 32,768 runs on all narrow columns, are
 * read as whole rows by up to 4 threads, through up to 64 MiB of memory of the load's own, pinned
 * for a device, unless in stream order or with digests. memory may be NULL if all tensors have
 * destinations. Until the load is over all destinations belong to sluice; the plan and the memory
 * must outlive it. In stream order it waits as sluice_read_on() does; all destinations are of one
 * device then. A whole member of an .npz file that comes into memory of the host has to have the
 * CRC-32 of the archive, else the load fails with -EBADMSG; not in stream order or with digests.
 *
 * Returns 0, the errors of sluice_submit(), or
 *   -EINVAL   the memory is NULL or too small
 *   -E2BIG    in stream order, or with digests: more than 16,000,000 runs of a file, narrow columns
 *             included
 */
SLUICE_API int sluice_tensor_plan_read(sluice_tensor_plan *plan, sluice_tensor_memory *memory,
                                       const struct sluice_tensor_read_options *options,
                                       sluice_tensor_load **out);
/*
 * Waits until the load is over, as sluice_wait() does.
 *
 * Returns the number of bytes of all tensors, -EINPROGRESS, or the first error of the load, when
 * nothing touches a destination any more.
 */
SLUICE_API int64_t sluice_tensor_load_wait(sluice_tensor_load *load, int timeout_ms);
/* Sets how many bytes have been read from files, and how many will be; either may be NULL. */
SLUICE_API void sluice_tensor_load_progress(sluice_tensor_load *load, uint64_t *read,
                                            uint64_t *all);
/* Requests that the load end early, as sluice_cancel() does. */
SLUICE_API void sluice_tensor_load_cancel(sluice_tensor_load *load);
/* Returns the sentence of the error that sluice_tensor_load_wait() returned, or "". */
SLUICE_API const char *sluice_tensor_load_message(const sluice_tensor_load *load);
/* Waits until the load is over, and frees it. */
SLUICE_API void sluice_tensor_load_free(sluice_tensor_load *load);

/* ------------------------------------------------------------------------------------- digest */

/*
 * Computes the digest of a whole file, in large reads ahead of the computation, with at most 64 MiB
 * of memory; waits for it.
 *
 * Returns 0, the error of a read, or
 *   -EINVAL   an unknown kind
 *   -EIO      the file has become shorter meanwhile
 *   -ENOMEM
 */
SLUICE_API int sluice_file_digest(sluice_file *file, int kind, struct sluice_digest *out);

/* --------------------------------------------------------------------------------------- save */

/* A save in flight. Any number of threads may use it, but none while another frees it. */
typedef struct sluice_tensor_save sluice_tensor_save;

/* A tensor to save, or in a collection: see below. */
struct sluice_collection_tensor {
	size_t size; /* sizeof(struct sluice_collection_tensor) */
	const char *name;
	int type; /* of enum sluice_type; safetensors has to have a word for it */
	unsigned rank;
	const uint64_t *shape;
	int device; /* that has the memory; -1: the host */
	/*
	 * The first byte. To save: in any memory, and device is ignored. To make a collection:
	 * sluice_collection_publish() copies from there, on any device. Tensors with the same
	 * address, bytes and device have their memory together.
	 */
	void *data;
	uint64_t bytes; /* set by sluice_collection_get() */
};
/* Options of a save. Start from SLUICE_TENSOR_SAVE_OPTIONS_INIT. */
struct sluice_tensor_save_options {
	size_t size;                 /* required: sizeof(struct sluice_tensor_save_options) */
	uint64_t file_bytes;         /* of tensors in a file of a folder, about; 0: 2 GiB */
	const char *const *metadata; /* pairs of text for "__metadata__" in each file; copied */
	size_t metadata_count;       /* of pairs */
	int refuse_shared; /* 1: two names with the same memory are -EINVAL, and not written once */
	int not_durable;   /* 1: without fsync() */
	/* 1: SHA-256 is computed on the way, see sluice_tensor_save_file(); each file then takes
	 * 32 MiB of memory, pinned for a device, and a core while it is written */
	int digests;
	int on;     /* 1: the memory is read behind all earlier work of the stream below */
	int device; /* of that stream */
	sluice_stream stream;
	/* NULL, or options of sluice_open() for each file; flags are ignored. The struct is copied;
	 * texts and structs behind its pointers must stay until the save is over. */
	const struct sluice_open_options *open_options;
};
#define SLUICE_TENSOR_SAVE_OPTIONS_INIT                                                          \
	{                                                                                        \
		sizeof(struct sluice_tensor_save_options), 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL \
	}

/*
 * Starts to save tensors as safetensors files and returns at once; a thread of the save does the
 * rest. Names, shapes and texts are copied. `data` of each tensor is memory of the host or a
 * device, without gaps, and must not change until sluice_tensor_save_fence() returns 0 or the error
 * of the save. Memory of devices goes through the pinned memory of the context, so the host needs
 * no room for the tensors. The context must stay open until the save is freed.
 *
 * A uri with the end ".safetensors" is a single file, which takes its name when it is complete. Any
 * other is a folder, which is made if the parent exists, or s3://BUCKET/PREFIX; the name of an
 * index is -EINVAL. Tensors go into files of about file_bytes, written up to 8 at a time. Their
 * names have a random id of the save: model-<16 hex digits>-00001-of-00008.safetensors. Then
 * model.safetensors.index.json is replaced, so sluice_tensors_open() of it finds the old tensors or
 * the new, all of them. At last old files with such names are removed: those in the old index, and
 * those in no index if their save has ended (S3: if they are older than a day). All others stay.
 *
 * The data begins at a multiple of 4,096 bytes in each file; tensors with larger elements come
 * first. If tensors have the same address, type and shape, only the first in the array is written,
 * and "__metadata__" there has a pair from each other name to this name.
 *
 * Order of fsyncs (but for not_durable): the name of a folder that the save makes, each file and
 * its name, then the index, its name, and only then are old files removed. So a loss of power
 * leaves the old index or the new, with its files.
 *
 * Returns 0, or
 *   -EINVAL    a name is there twice, is "__metadata__" or no UTF-8, no data, or a shape too large;
 *              a key of the metadata is there twice, or is a name with the memory of another
 *   -ENOTSUP   safetensors has no such type; a folder of another scheme
 *   -E2BIG     more than 99,999 files
 *   -ENOMEM, -EAGAIN
 */
SLUICE_API int sluice_tensors_save(sluice_context *ctx, const char *uri,
                                   const struct sluice_collection_tensor *tensors, size_t count,
                                   const struct sluice_tensor_save_options *o,
                                   sluice_tensor_save **out);
/*
 * The same for tensors in open files: all, or `count` of them with these indices if chosen is not
 * NULL. The bytes pass through 32 MiB of memory for each file that is written. The tensors must
 * outlive the save.
 */
SLUICE_API int sluice_tensors_save_files(const char *uri, const sluice_tensors *tensors,
                                         const size_t *chosen, size_t count,
                                         const struct sluice_tensor_save_options *o,
                                         sluice_tensor_save **out);
/*
 * Waits, as sluice_wait() does, until the save reads the tensors no more: the program may change or
 * free their memory. Returns 0, -EINPROGRESS, or the error of a save that is over.
 */
SLUICE_API int sluice_tensor_save_fence(sluice_tensor_save *save, int timeout_ms);
/*
 * Waits until the save is over, as sluice_wait() does.
 *
 * Returns the bytes of all files, -EINPROGRESS, or the first error: of sluice_open(), of a write or
 * of sluice_close(); -EFBIG: names and shapes of more than 100 MB in a file. Then nothing of the
 * save stays, and the old tensors are as they were, unless the error came after the index, or the
 * single file, had its name: the name cannot be synced, or an answer of a server is lost.
 */
SLUICE_API int64_t sluice_tensor_save_wait(sluice_tensor_save *save, int timeout_ms);
/* Sets how many bytes have been written, and how many will be; either may be NULL. The bytes of
 * headers are in neither until they are made, soon after the start. */
SLUICE_API void sluice_tensor_save_progress(sluice_tensor_save *save, uint64_t *written,
                                            uint64_t *all);
/* A file of a save. The URI lives as long as the save. */
struct sluice_tensor_saved {
	size_t size; /* in: sizeof(struct sluice_tensor_saved) */
	const char *uri;
	uint64_t bytes;
	struct sluice_digest digest; /* kind 0 without o->digests */
};
/* Describes a file by its number. Returns 0, -ENOENT past the last, or -EAGAIN: it is not saved. */
SLUICE_API int sluice_tensor_save_file(const sluice_tensor_save *save, size_t number,
                                       struct sluice_tensor_saved *out);
/* Requests that the save end early; sluice_tensor_save_wait() tells whether it did. */
SLUICE_API void sluice_tensor_save_cancel(sluice_tensor_save *save);
/* Returns the sentence of the error that sluice_tensor_save_wait() returned, or "". */
SLUICE_API const char *sluice_tensor_save_message(const sluice_tensor_save *save);
/* Waits until the save is over, and frees it. */
SLUICE_API void sluice_tensor_save_free(sluice_tensor_save *save);

/* -------------------------------------------------------------------------------- collections */

/*
 * A collection is a blob of the store (<sluice/store.h>) that has tensors. A process publishes all
 * of them by one name, and others attach to them: their memory is mapped, read-only, and nothing is
 * copied. The name is that of one blob, the owner, with parts for the bytes of the tensors: on the
 * host parts of 2 GiB, or more if a tensor is larger or there would be too many; and a part on each
 * device. Tensors lie at multiples of 256 bytes. All calls for blobs by name or id are for the
 * whole: a get, a delete, a pin, SLUICE_BLOB_REPLACE, spilling.
 *
 * As a file, store://NAME is a .safetensors file of the tensors, without gaps.
 *
 * Any number of threads may use a collection, but none while another releases it.
 */
typedef struct sluice_collection sluice_collection;

/* A small file that goes with the tensors, such as config.json. */
struct sluice_collection_file {
	const char *name;
	const void *data;
	size_t bytes;
};
/* Options for collections. Start from SLUICE_COLLECTION_OPTIONS_INIT. */
struct sluice_collection_options {
	size_t size;    /* required: sizeof(struct sluice_collection_options) */
	unsigned flags; /* of enum sluice_blob_flags, of the whole */
	const struct sluice_collection_file *files;
	size_t file_count;
	const char *const *metadata; /* pairs of text for "__metadata__" of the file */
	size_t metadata_count;       /* of pairs */
	int on;                      /* 1: in the order of the stream below */
	sluice_stream stream;
	uint64_t replaces; /* as in struct sluice_blob_options */
};
#define SLUICE_COLLECTION_OPTIONS_INIT                                                    \
	{                                                                                 \
		sizeof(struct sluice_collection_options), 0, NULL, 0, NULL, 0, 0, NULL, 0 \
	}

/*
 * Makes a collection that this process can write: sluice_collection_get() has the addresses. The
 * seal of its owner, such as sluice_blob_seal(sluice_collection_blob(c)), publishes it. Data of the
 * tensors is not copied, but tells which tensors have their memory together. name may be
 * NULL: then others attach by sluice_collection_attach_id(). o may be NULL.
 *
 * Returns 0, the errors of sluice_blob_create(), or
 *   -ENOSPC    as for create; the sentence says how many bytes all tensors need, and to replace a
 *              collection there has to be room for both
 *   -EINVAL    a name is there twice or is no UTF-8; a shape is too large
 *   -ENOTSUP   a type that safetensors does not have; a device that cannot share memory
 *   -EFBIG     names and shapes of more than 100 MB
 */
SLUICE_API int sluice_collection_new(sluice_store *s, const char *name,
                                     const struct sluice_collection_tensor *tensors, size_t count,
                                     const struct sluice_collection_options *o,
                                     sluice_collection **out);
/*
 * Makes a collection of tensors of the program: copies their data and seals it. With o->on the
 * copies are made by the stream, the seal comes after them, and the call does not wait for it:
 * sluice_blob_wait_sealed() of the owner does. Data on the host for memory of the host is copied at
 * once. If several devices copy, each by the default stream, the call waits for the copies.
 *
 * Returns 0, the errors of sluice_collection_new(), sluice_copy_on() and sluice_blob_seal(), or
 *   -EINVAL   data of a tensor with elements is NULL
 */
SLUICE_API int sluice_collection_publish(sluice_store *s, const char *name,
                                         const struct sluice_collection_tensor *tensors,
                                         size_t count, const struct sluice_collection_options *o,
                                         sluice_collection **out);
/*
 * Makes a collection of tensors in files, or of slices of them: reads them straight into memory of
 * the store on this device, or on the host (-1), and seals it. All tensors if wants is NULL; `to`
 * of wants is ignored. The memory is taken before a byte is read. Metadata of the first file is
 * taken over unless there is some in o. read: as for
 * sluice_tensor_plan_read(), or NULL. Waits for the read; o->on has no effect.
 *
 * Returns 0, or the errors of sluice_collection_new(), of sluice_tensor_plan_new(), of the read and
 * of sluice_blob_seal(). After an error nothing is left.
 */
SLUICE_API int sluice_collection_publish_files(sluice_store *s, const char *name,
                                               sluice_tensors *tensors,
                                               const struct sluice_tensor_want *wants, size_t count,
                                               int device,
                                               const struct sluice_collection_options *o,
                                               const struct sluice_tensor_read_options *read,
                                               sluice_collection **out);
/*
 * Attaches to a collection, as sluice_blob_get() gets a blob. device: -1, or a device that is to
 * read memory of the host, which is registered with it.
 *
 * Returns 0, the errors of sluice_blob_get(), or
 *   -EPROTO    the blob is no collection, or one of another version
 *   -EBADMSG   it is damaged
 *   -ENOTSUP   a tensor is on a device that this process does not have
 */
SLUICE_API int sluice_collection_attach(sluice_store *s, const char *name, int device,
                                        int timeout_ms, sluice_collection **out);
SLUICE_API int sluice_collection_attach_id(sluice_store *s, uint64_t id, int timeout_ms,
                                           sluice_collection **out);
/*
 * Attaches to a collection as sluice_collection_attach() does; if there is none, and timeout_ms is
 * not 0, fetches it from an origin, as sluice_blob_fetch() describes: the object is a .safetensors
 * file, or, with a name that ends in ".index.json", an index of such files beside it. A blob by
 * sluice_blob_fetch() from the same object gives way to it.
 *
 * Returns 0, or the errors of sluice_blob_fetch(), sluice_tensors_open() and
 * sluice_collection_attach(). After an error nothing is left.
 */
SLUICE_API int sluice_collection_fetch(sluice_store *s, const struct sluice_origin *origin,
                                       const char *name, int timeout_ms, sluice_collection **out);
/*
 * Releases a collection. Its tensors must not be used any more, but for those that were exported:
 * they keep the memory. One that is not sealed is aborted. The last of its users waits for copies
 * by sluice_collection_copy() that are under way.
 */
SLUICE_API int sluice_collection_release(sluice_collection *c);

/*
 * Unmaps a collection that is on devices, and keeps its addresses, as sluice_blob_part_vacate()
 * does: this process holds nothing of its memory any more, and the program may map another version
 * there by sluice_collection_attach_at(). Until then no other call may use the collection, but
 * sluice_collection_release(), which gives the addresses back; nothing may use its tensors, those
 * that were exported included, which stay valid objects. Streams, stores and other collections are
 * not concerned: the store may be closed, and its daemon end.
 *
 * Returns 0, or the errors of sluice_blob_part_vacate(), after which the collection is as before;
 * if what was unmapped cannot be mapped again, all of it is released, and calls that would give
 * addresses of it return -ESTALE. Or
 *   -ESTALE   it is kept already
 */
SLUICE_API int sluice_collection_keep(sluice_collection *c);
/*
 * Attaches a collection that is kept to what has this name now, at the addresses that it had: all
 * its tensors, and those that were exported, are the new ones. Names, types, shapes, devices and
 * places have to be the same, as they are if the same tensors were published in the same order.
 * Strings of sluice_collection_get() from before are gone.
 *
 * Returns 0, or an error after which the collection is kept as before: those of
 * sluice_collection_attach() and sluice_blob_part_at(), or
 *   -EINVAL   the tensors differ (the sentence names the first); the collection is not kept
 */
SLUICE_API int sluice_collection_attach_at(sluice_store *s, const char *name, int timeout_ms,
                                           sluice_collection *c);

/* A tensor of a collection that is to be copied, and memory for its bytes. */
struct sluice_collection_target {
	size_t index;
	void *to; /* of a device */
};
/*
 * Copies tensors to memory of the program on a device. That device reads memory of the host by
 * itself, at no cost of the processor: attach with it first, which registers the memory until the
 * release. A registration comes behind all waits of the device's streams and takes longer than a
 * copy: to read once, sluice_tensor_plan_read() of store://NAME is faster. With CUDA it is good for
 * all devices of the process.
 *
 * on: 0, the call waits; 1, the copies are made in the order of the stream, and the call waits for
 * room in the driver's queue only. The last release, and a keep, wait for the rest.
 *
 * Returns 0, or
 *   -ENOTSUP   the memory is on another device, or on the host and not registered with this one
 *   -ENOENT    there is no tensor with this index
 *   -EINVAL    a target is not on a device, or not on that of the others; the stream is captured
 *   -ESTALE    as for sluice_collection_get(), or the collection is kept
 *   -ENOMEM, or the error of the device
 */
SLUICE_API int sluice_collection_copy(sluice_collection *c,
                                      const struct sluice_collection_target *targets, size_t count,
                                      int on, sluice_stream stream);
/*
 * Tells how many bytes of tensors on the host a device can read by itself, and the nanoseconds that
 * the attach took to map and register them. Returns 0, -ENODEV, -ESTALE, or -ENOTSUP: it cannot.
 */
SLUICE_API int sluice_collection_registered(const sluice_collection *c, int device, uint64_t *bytes,
                                            int64_t *map_ns);

/* Returns the number of tensors. */
SLUICE_API size_t sluice_collection_count(const sluice_collection *c);
/*
 * Describes the tensor with this index, in the order of the .safetensors file. data may be written
 * until the seal; afterwards writing to it ends the program, or fails or stops the device. Strings
 * and shapes live as long as the collection.
 *
 * Returns 0, or
 *   -ENOENT  past the last
 *   -ESTALE  the collection was sealed here, and deleted or replaced before this process could hold
 *            it, or its seal returned -ENOBUFS
 */
SLUICE_API int sluice_collection_get(const sluice_collection *c, size_t index,
                                     struct sluice_collection_tensor *out);
/* Finds a tensor by its name. Returns 0, or -ENOENT with a sentence that has the name. */
SLUICE_API int sluice_collection_find(const sluice_collection *c, const char *name, size_t *index);
/* Describes the small file with this number, in the store. Returns as sluice_collection_get(). */
SLUICE_API int sluice_collection_get_file(const sluice_collection *c, size_t index,
                                          struct sluice_collection_file *out);
/* Returns the owner, which is released with the collection: for its seal, its id and its name. */
SLUICE_API sluice_blob *sluice_collection_blob(const sluice_collection *c);
/*
 * Exports a tensor as sluice_tensor_to_dlpack() does; read-only once the collection is sealed. The
 * tensor keeps the whole collection.
 */
SLUICE_API int sluice_collection_to_dlpack(sluice_collection *c, size_t index, unsigned version,
                                           void **out);

#ifdef __cplusplus
}
#endif
#endif
