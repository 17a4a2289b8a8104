/* SPDX-License-Identifier: Apache-2.0 */
/* cuFile: the part of a context, and the functions that its files share. */
#ifndef SL_CUFILE_H
#define SL_CUFILE_H

#include "local/local_internal.h"

/* Memory that the caller has registered: transfers within it are passed to cuFile as offsets from its start. */
struct sl_cufile_buffer {
	char *memory;
	size_t length;
	struct sl_device *device;
};

struct sl_cufile {
	struct sl_core *core;
	bool module;                    /* the kernel has nvidia-fs */
	_Atomic bool abandoned;         /* the process ends */
	_Atomic unsigned running;       /* calls that transfer now */
	_Atomic(struct sl_pool *) pool; /* NULL until the first use */
	bool stopped;

	struct sl_mutex mutex;
	struct {
		struct sl_cufile_buffer *buffers;
		size_t count, room;
	} locked SL_GUARDED_BY(&mutex);
};

/* Functions of struct sl_backend_ops, for local files. */
int sl_cufile_takes(struct sl_backend *backend, struct sl_device *device,
                    const struct sluice_extent *extents, size_t count, bool write, bool in_stream);
int sl_cufile_enqueue(struct sl_backend *backend, struct sl_device *device, sluice_stream stream,
                      struct sl_transfer *transfer, bool write);
int sl_cufile_passed(struct sl_backend *backend, const struct sl_transfer *transfer, bool write,
                     char **message);
/* Deregisters the file. To be called before its descriptors are closed. */
void sl_cufile_close(struct sl_local *local);

/* Returns the start of the registered buffer that contains the memory, or memory itself, and the offset from there. */
char *sl_cufile_base(struct sl_cufile *cufile, char *memory, size_t length, off_t *offset);
void sl_cufile_unregister_all(struct sl_cufile *cufile);

#endif
