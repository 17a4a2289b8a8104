/* SPDX-License-Identifier: Apache-2.0 */
/* cuFile: the part of a context, and the functions that its files share. */
#ifndef SL_CUFILE_H
#define SL_CUFILE_H

#include "local/local_internal.h"

/* Memory that the caller has registered: cuFile gets transfers in it as offsets from its start. */
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

/* Of local files. */
extern const struct sl_device_moves sl_cufile_moves;
/* Deregisters the file. To be called before its descriptors are closed. */
void sl_cufile_close(struct sl_local *local);

/* Returns the registered buffer's start, or memory itself, and the offset from there. */
char *sl_cufile_base(struct sl_cufile *cufile, char *memory, size_t length, off_t *offset);
void sl_cufile_unregister_all(struct sl_cufile *cufile);

#endif
