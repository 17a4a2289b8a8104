/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Core: the base of every room. This header is the only one that other rooms include; it has errors
 * and the log, types of elements, names of files, temporary files and the passing of descriptors,
 * and brings the headers below.
 */
#ifndef SL_CORE_H
#define SL_CORE_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <sluice/sluice.h>
#include <sluice/type.h>

#include "core/dlpack.h"
#include "core/interval.h"
#include "core/list.h"
#include "core/mutex.h"
#include "core/settings.h"
#include "core/threads.h"

struct stat;

/* The less and the greater of two numbers, each of which is evaluated once. */
#define SL_MIN(a, b)                      SL_CHOOSE(a, <, b, __COUNTER__)
#define SL_MAX(a, b)                      SL_CHOOSE(a, >, b, __COUNTER__)
#define SL_CHOOSE(a, compares, b, number) SL_CHOOSE_AS(a, compares, b, number)
#define SL_CHOOSE_AS(a, compares, b, number)                                          \
	({                                                                            \
		__typeof__(1 ? (a) : (b)) sl_a_##number = (a), sl_b_##number = (b);   \
		sl_a_##number compares sl_b_##number ? sl_a_##number : sl_b_##number; \
	})

/* ----------------------------------------------------------------------------- error and log */

/* Sets the sentence that sluice_last_message() returns on this thread, and returns error. */
__attribute__((format(printf, 2, 3))) int sl_fail(int error, const char *format, ...);
/* The same with a whole sentence; NULL: the text of the error. Error 0: the message stays. */
int sl_fail_with(int error, const char *sentence);
/* Returns the text of a negative errno, for sentences. */
const char *sl_error_text(int error);

enum sl_log_level { SL_LOG_OFF, SL_LOG_WAITS, SL_LOG_ERROR, SL_LOG_INFO, SL_LOG_DEBUG };
/* Writes a line to standard error if SLUICE_LOG asks for that level. */
__attribute__((format(printf, 3, 4))) void sl_log(const struct sl_settings *settings,
                                                  enum sl_log_level level, const char *format, ...);

/*
 * Copies a struct to the caller's, which may be that of an older header, as far as it has fields.
 * Its first field is its size, and stays.
 */
void sl_struct_give(void *out, const void *from, size_t bytes);
/*
 * Copies the caller's struct, which may be that of another header, over *out of so many bytes with
 * the usual values; NULL: those stay. The size of *out is its own. Returns 0, or -EINVAL with a
 * sentence that begins with the name.
 */
int sl_struct_take(const char *name, const void *from, void *out, size_t bytes);

/* ------------------------------------------------------------------------------------- types */

/* HDF5 has types for those before SL_BFLOAT. */
enum sl_number {
	SL_SIGNED,
	SL_UNSIGNED,
	SL_REAL,
	SL_COMPLEX,
	SL_BOOL,
	SL_STRING,
	SL_BFLOAT,
	SL_SMALL
};
struct sl_type {
	const char *name;
	const char *word; /* of safetensors, or NULL */
	enum sl_number number;
	uint8_t bits;   /* of an element; 0: each series has its own number */
	uint8_t dlpack; /* of DLPack's enum DLDataTypeCode */
};
/* Returns the description of a value of enum sluice_type, or NULL if there is no such type. */
const struct sl_type *sl_type_find(int type);
/* Returns the bytes of an element of a type that has whole bytes. */
static inline size_t sl_type_bytes(const struct sl_type *type)
{
	return type->bits / 8;
}
/* Returns a tensor's bytes; -1: the shape is too large, or does not end at a byte. */
int64_t sl_tensor_bytes(const struct sl_type *type, unsigned rank, const uint64_t *shape);
/* Writes a tensor into the JSON of a .safetensors file; begin: offset in the data. */
void sl_tensor_put(FILE *to, const char *name, const struct sl_type *type, unsigned rank,
                   const uint64_t *shape, uint64_t begin, uint64_t bytes);

/* ----------------------------------------------------------------------------------- machine */

/*
 * Returns the bytes of memory that this process may use: those of the machine, or less if a cgroup
 * that it is in has a limit. Files of /proc and /sys are looked for below root: "" but in tests.
 */
uint64_t sl_machine_memory(const char *root);
/* Returns the cores that the quota of a cgroup pays for, rounded up; UINT_MAX: it has none. */
unsigned sl_machine_quota(const char *root);
/* Returns the number of NUMA nodes; 0: unknown. */
unsigned sl_machine_nodes(const char *root);
/*
 * Returns the cores of a NUMA node, or of all (-1), that the calling thread may use, for the caller
 * to free by CPU_FREE(), and the size of the set in bytes. NULL: unknown.
 */
cpu_set_t *sl_machine_cores(const char *root, int node, size_t *bytes);

#define SL_HUGE_PAGE ((size_t)2 << 20)
/*
 * Maps private memory, whole pages of it, for munmap(). Memory of a huge page or more begins at
 * one, and has such pages where there are any. NULL: no memory.
 */
void *sl_private_map(size_t bytes);
/* Makes memory present that may be written, whole pages. False: there is no memory for them. */
bool sl_private_touch(void *memory, size_t bytes);

/* -------------------------------------------------------------------------------------- text */

/* Formats like asprintf(). The caller frees the result; NULL: no memory. */
__attribute__((format(printf, 1, 2))) char *sl_format(const char *format, ...);
/* Returns the length of the UTF-8 sequence at text, at most n, and its character; 0: none. */
size_t sl_utf8_sequence(const char *text, size_t n, uint32_t *character);
/* Returns true if all n bytes are UTF-8. */
bool sl_utf8_valid(const char *text, size_t n);
/* Returns whether the text is a strong ETag (RFC 9110, section 8.8.3), and no list. */
bool sl_strong_etag(const char *text);
/*
 * Parses n bytes of JSON and calls event() for each part: '{', '}', '[', ']', 'k' (a key), 's' (a
 * text), 'n' (a number, as it is written) or 'x' (true, false or null, as it is written). Returns
 * 0, the first error of event(), or -EBADMSG with a sentence that begins with the name.
 */
typedef int sl_json_event(void *context, char part, const char *text, size_t n);
int sl_json_parse(const char *name, const char *text, size_t n, sl_json_event *event,
                  void *context);
/* Write a text, or `before` and a pair of texts; those are UTF-8. No other thread uses the file. */
void sl_json_put(FILE *to, const char *text);
void sl_json_put_pair(FILE *to, const char *before, const char *key, const char *value);

/* --------------------------------------------------------------------------- sums and noise */

/* Adds bytes to a CRC-32C (RFC 3720, B.4), UINT32_MAX at first. False: a build without ISA-L. */
bool sl_crc32c_add(uint32_t *crc, const void *data, size_t n);
/* Returns a CRC-32C after n zero bytes; n negative: as it was before them. Those of parts, each
 * from 0 on and moved to the end of all, and UINT32_MAX moved by the length of all are together
 * (exclusive or) that of all. */
uint32_t sl_crc32c_move(uint32_t crc, int64_t n);
#define SL_CRC32C_TEXT 9
/* Writes the CRC-32C of all bytes so far in base64 (RFC 4648), as S3 has it; returns text. */
const char *sl_crc32c_text(uint32_t crc, char text[SL_CRC32C_TEXT]);
/* Returns the next number of SplitMix64 (Steele, Lea, Flood, 2014): for jitter and noise. */
static inline uint64_t sl_random(uint64_t *sequence)
{
	uint64_t x = *sequence += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* ----------------------------------------------------------------------------- names of files */

struct sl_uri {
	char scheme[16]; /* "file" for a plain path */
	char *path;      /* for "file": unescaped; for other schemes the whole URI */
};

/* Returns 0; or, with a sentence, -EINVAL if the text is malformed, -EPROTONOSUPPORT if the scheme
 * is longer than any. sl_uri_clear() frees the result. */
int sl_uri_parse(const char *text, struct sl_uri *out);
void sl_uri_clear(struct sl_uri *uri);
/* Decodes percent-escapes in place. Returns 0, or -EINVAL with a sentence that begins with uri. */
int sl_uri_unescape(const char *uri, char *text);
/* Percent-encodes all but letters, digits, "-._~" and kept '/', for the caller; NULL: no memory. */
char *sl_uri_escape(const char *text, bool keep_slash);
/*
 * Returns a URI that is safe to display: user, password and query are removed. store:// and s3://
 * URIs, and paths, are returned unchanged. The caller frees it; NULL: no memory.
 */
char *sl_uri_name(const char *text);

/* ---------------------------------------------------------------------------- temporary files */

#define SL_TEMPORARY_ATTEMPTS 100

/*
 * Resolves a path through symbolic links to an absolute path, which the caller frees.
 *
 * Returns 1 if the file exists, 0 if only its folder does, or -errno with a sentence.
 */
int sl_path_resolve(const char *path, char **out);
/*
 * Checks whether a file may be made at a resolved path. Returns 0, or -errno with a sentence.
 * *there is the file that exists; its st_mode stays 0 if there is no file.
 */
int sl_path_replaceable(const char *path, bool replace, struct stat *there);
/* Returns ".name.0123456789abcdef.sluice" in the path's folder, for the caller; NULL: no memory. */
char *sl_temporary_name(const char *path);
/*
 * Makes a new file with a temporary name beside `path`; the caller frees the name.
 *
 * Returns its descriptor, -EEXIST if all names that were tried are taken, or another -errno.
 */
int sl_temporary_open(const char *path, mode_t mode, char **name);
/* Renames a file unless the name is taken; it may be seen empty for a moment. 0 or -errno. */
int sl_rename_to_new(const char *from, const char *to);
/* Stores the names in the folder that has the path. Returns 0, or -errno with a sentence. */
int sl_sync_folder_of(const char *path);
/*
 * Gives the file `fd` the owner, group and permissions of the file that it replaces, as far as this
 * process may. A set-ID bit is kept only together with the owner or group that it was set for.
 */
void sl_copy_ownership(int fd, const struct stat *old, bool keep_mode);
/* Returns the time of the last change in nanoseconds, or the nearest that 64 bits hold. */
int64_t sl_modified_ns(const struct stat *st);

/* ------------------------------------------------------------------------ passing descriptors */

#define SL_FDS_MOST 2

/*
 * Sends bytes with `count` descriptors as a single message. flags are those of sendmsg();
 * MSG_NOSIGNAL is added. A call that a signal interrupts is repeated.
 *
 * Returns the number of bytes sent, or -errno.
 */
ssize_t sl_fds_send(int socket, const void *data, size_t bytes, const int *fds, unsigned count,
                    int flags);
/*
 * Receives a message of at most `bytes` bytes. flags are those of recvmsg(); MSG_CMSG_CLOEXEC is
 * added. A call that a signal interrupts is repeated.
 *
 * Returns the length of the message, 0 at the end of the connection (or for an empty message), or
 * -errno. In each case fds holds the descriptors that came, which belong to the caller, and -1 in
 * the rest. *cut is MSG_TRUNC or MSG_CTRUNC where bytes or descriptors did not fit, else 0.
 */
ssize_t sl_fds_receive(int socket, void *data, size_t bytes, int fds[SL_FDS_MOST], int flags,
                       int *cut);

#endif
