/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collections: tensors by one name in the store. This header has the format of an owner's bytes.
 *
 *   8 bytes    length of the header of a .safetensors file, little endian; a multiple of 8
 *   header     of the file that has all tensors, one behind the other
 *   table      struct sl_table_head, rows, order, shapes, files, text: as declared below
 *   files      the bytes of small files that go with the tensors
 *
 * Rows are in the order of that .safetensors file; the bytes of a tensor are in a part of the
 * owner, at a multiple of 256. Two rows may have the same bytes. Nothing here is believed: another
 * process may have written it.
 */
#ifndef SL_COLLECTION_H
#define SL_COLLECTION_H

#include <sluice/device.h>
#include <sluice/tensors.h>

#include "core/core.h"

#define SL_TABLE_MAGIC   "SLtensor"
#define SL_TABLE_VERSION 1
#define SL_TABLE_ALIGN   UINT64_C(256) /* of tensors in parts */

struct sl_table_head {
	char magic[8];
	uint32_t version, parts;
	uint64_t count;  /* of rows, and of numbers in `order` */
	uint64_t shapes; /* numbers of 8 bytes */
	uint64_t files;
	uint64_t text; /* bytes, a multiple of 8; each text ends with NUL */
};
struct sl_table_row {
	uint64_t begin; /* of the tensor in the data of the .safetensors file */
	uint64_t bytes;
	uint64_t offset; /* in the part */
	uint64_t shape;  /* index of the first length */
	uint64_t name;   /* offset in the text */
	uint32_t part;
	uint16_t type, rank;
};
/* The rows in the order of their names are order[0], order[1] ...; padded to 8 bytes. */
struct sl_table_file {
	uint64_t name;         /* offset in the text */
	uint64_t begin, bytes; /* in the owner */
};
_Static_assert(sizeof(struct sl_table_head) == 48 && sizeof(struct sl_table_row) == 48 &&
                       sizeof(struct sl_table_file) == 24,
               "increase SL_TABLE_VERSION");

/* A table in memory. */
struct sl_table {
	struct sl_table_head head;
	uint64_t header; /* bytes before the data of the .safetensors file */
	uint64_t data;   /* bytes of that */
	void *memory;    /* behind the pointers below */
	struct sl_table_row *rows;
	uint32_t *order;
	uint64_t *shapes;
	struct sl_table_file *files;
	char *text;
	uint64_t ends[SLUICE_BLOB_PARTS_MOST]; /* bytes that each part needs */
};

/*
 * Sets the pointers into table->memory, if there is memory, as the head says. Returns the bytes
 * there; 0: the head is wrong, or means more than `most` bytes.
 */
size_t sl_table_divide(struct sl_table *table, size_t most);
/*
 * Copies the table in the n bytes of an owner with so many parts, and checks it. The caller
 * compares `ends` with the parts. Returns 0, -EPROTO: it is no collection, -EBADMSG or -ENOMEM,
 * with a sentence.
 */
int sl_table_read(const void *owner, size_t n, unsigned parts, struct sl_table *out);
/* Returns the index of the row of that name, or SIZE_MAX. */
size_t sl_table_find(const struct sl_table *table, const char *name);
/* Returns the first row with a byte at `at` of the data or behind it; `count` if there is none. */
size_t sl_table_row_at(const struct sl_table *table, uint64_t at);

/* The source of a row. */
struct sl_table_entry {
	const struct sluice_collection_tensor *tensor;
	uint64_t bytes;
	const struct sl_table_entry *same; /* the first with the same data, or itself */
	uint32_t part;
	uint64_t offset; /* in the part */
};
/*
 * Makes the bytes of an owner. The caller frees *out.
 *
 * Returns 0, or
 *   -EINVAL   a name is there twice, is "__metadata__" or no UTF-8
 *   -ENOTSUP  safetensors has no word for a type
 *   -EFBIG    the header has more than 100 MB
 *   -ENOMEM
 */
int sl_table_make(const struct sl_table_entry *entries, size_t count, unsigned parts,
                  const struct sluice_collection_options *o, char **out, size_t *n);
/* As sluice_collection_publish_files(), but does not seal the collection; out is not NULL. */
int sl_collection_read(sluice_store *s, const char *name, sluice_tensors *tensors,
                       const struct sluice_tensor_want *wants, size_t count, int device,
                       const struct sluice_collection_options *o,
                       const struct sluice_tensor_read_options *read, sluice_collection **out);

struct sluice_collection {
	uint32_t process;       /* see sl_process_is() */
	_Atomic unsigned users; /* the handle, and exported tensors */
	sluice_blob *owner;     /* NULL: it is kept without memory */
	struct sl_table table;
	struct sluice_addresses *kept; /* of the parts, if there is no owner */
	int64_t map_ns;                /* that the parts took to be mapped, and registered */
	struct sl_mutex mutex;
	/* Events behind copies in stream order that may be under way. */
	sluice_event *copies SL_GUARDED_BY(&mutex);
	unsigned copy_count SL_GUARDED_BY(&mutex);
	/* Of the parts. */
	char *data[SLUICE_BLOB_PARTS_MOST];
	int device[SLUICE_BLOB_PARTS_MOST];
};
/*
 * Makes a handle of an owner, and reads its n bytes; takes the owner over unless it fails. Returns
 * 0 or an error with a sentence.
 */
int sl_collection_wrap(sluice_blob *owner, const void *bytes, size_t n, sluice_collection **out);
/*
 * Maps the parts, at addresses that are kept or anywhere (NULL). After an error no address is used
 * up. Sets data and device.
 */
int sl_collection_map(sluice_collection *c, sluice_blob *owner, const struct sl_table *table,
                      struct sluice_addresses *kept);
/* Refuses a collection without memory, and one of another process; `call` is for its sentence. */
int sl_collection_check(const sluice_collection *c, const char *call);
/* Waits for copies in stream order, and frees their events. */
void sl_collection_settle(sluice_collection *c);

#endif
