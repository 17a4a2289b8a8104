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
 * Headers of files are not trusted: each length, offset, shape, type and name is checked when the
 * file is opened, and memory is allocated only for bytes that are in the file.
 *
 * Conventions, results and threads are those of <sluice/sluice.h>.
 */
#ifndef SLUICE_TENSORS_H
#define SLUICE_TENSORS_H

#include <sluice/sluice.h>
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
 * URI is that of the index up to the last '/'; names in the index with '/' are refused. An .npy
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
 * DLManagedTensorVersioned (1.1). The struct's deleter frees it; it may run on any thread.
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
 * digests are checked, an .npz file is read, or the same slice goes to several devices, which is
 * then read once and copied between them. From 32,768 runs on, narrow columns are read as whole
 * rows by up to 4 threads, through up to 64 MiB of memory of the load's own, pinned for a device,
 * unless in stream order or with digests. memory may be NULL if all tensors have destinations.
 * Until the load is over all destinations belong to sluice; the plan and the memory must outlive
 * it. In stream order it waits as sluice_read_on() does; all destinations are of one device then. A
 * whole member of an .npz file that comes into memory of the host has to have the CRC-32 of the
 * archive, else the load fails with -EBADMSG; not in stream order or with digests.
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

#ifdef __cplusplus
}
#endif
#endif
