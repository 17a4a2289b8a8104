/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of memory that are mapped in this process; see mapping.c for their states.
 */
#ifndef SL_STORE_MAPPING_H
#define SL_STORE_MAPPING_H

#include "store/conn.h"

enum sl_mapping_state { SL_MAPPING_READY, SL_MAPPING_EXPECTED, SL_MAPPING_IN_PROGRESS };
/* Guarded by store->mutex; base, bytes and kind do not change while the state is READY. */
struct sl_mapping {
	struct sl_list bucket; /* store->mappings */
	struct sl_list idle;   /* the list of idle mappings, if it has no users */
	uint64_t region;
	char *base;
	size_t bytes;
	unsigned users;
	bool fresh; /* for writing, and no page had been touched when it was mapped */
	bool writable;
	bool stale;     /* of another daemon: in no table, for its present users only */
	bool doomed;    /* gets no new users, and goes with the last user */
	bool by_driver; /* mapped by the driver of a device: see device/device_mapping.c */
	bool alone;     /* the region holds a single blob */
	bool published; /* memory of this process, which is neither mapped nor unmapped here */
	enum sl_mapping_state state;
	uint64_t reported_epoch;      /* of the last server that SL_MSG_HAVE was sent to */
	uint32_t kind;                /* enum sluice_blob_kinds */
	struct sl_store_device *sdev; /* as in struct sl_map_request; NULL while EXPECTED */
	const struct sl_device *for_device;
	const struct sluice_addresses *at; /* while IN_PROGRESS, as in struct sl_map_request */
};

/* A region to be mapped. */
struct sl_map_request {
	uint64_t region;
	uint32_t kind;  /* enum sluice_blob_kinds */
	bool writable;  /* on a device: made by us */
	uint64_t epoch; /* of the server that has named it */
	/* The device that has the memory, or with which it is registered; NULL: neither. */
	struct sl_store_device *sdev;
	const struct sl_device *for_device; /* another device that is to access the memory; NULL */
	/* Vacant addresses for a mapping of its own; NULL: any, or one that there is. */
	const struct sluice_addresses *at;
	bool part; /* the region holds a part of an owner alone */
};

static inline struct sl_list *sl_mapping_bucket(sluice_store *store, uint64_t region)
{
	return &store->mappings[region % SL_MAPPING_BUCKETS];
}
/* Returns the mapping that is not doomed, or NULL. */
struct sl_mapping *sl_mapping_find_locked(sluice_store *store, uint64_t region, bool writable,
                                          const struct sl_device *for_device)
	SL_REQUIRES(&store->mutex);
/* Adds a mapping to the table; NULL: no memory. */
struct sl_mapping *sl_mapping_add_locked(sluice_store *store, uint64_t region, bool by_driver,
                                         enum sl_mapping_state state) SL_REQUIRES(&store->mutex);
/* Moves an unused mapping to the unmap thread's list or, if no driver has mapped it, to gone. */
void sl_mapping_leave_locked(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
	SL_REQUIRES(&store->mutex);
/* Makes a mapping doomed; without users, it leaves at once. */
void sl_mapping_doom_locked(sluice_store *store, struct sl_mapping *mapping, struct sl_list *gone)
	SL_REQUIRES(&store->mutex);
/* Asks the server for the memory of a mapping and its size; the reply has its descriptor. */
int sl_mapping_ask(sluice_store *store, const struct sl_mapping *mapping, bool writable,
                   int64_t deadline, size_t *bytes, struct sl_reply *reply);
/* Maps host memory for the processor. Returns 0 or -errno with a message. */
int sl_mapping_map(struct sl_mapping *mapping, int fd);
/* Maps a region, or finds it mapped; may call the driver.
 * -ESTALE: neither the server nor the process that makes blobs there knows the region any more. */
int sl_mapping_acquire(sluice_store *store, const struct sl_map_request *r, int64_t deadline,
                       struct sl_mapping **out);
void sl_mapping_release(sluice_store *store, struct sl_mapping *mapping);
/*
 * Unmaps a device's memory on the calling thread, and keeps its addresses; ends the only use of the
 * mapping. -EBUSY: there are others, -ENOTSUP: it is no memory that the device has mapped.
 */
int sl_mapping_vacate(sluice_store *store, struct sl_mapping *mapping,
                      struct sluice_addresses *out);
/* Dooms the mappings that are of no use with a new server; all: every mapping, as for a close. */
void sl_mappings_forget_locked(sluice_store *store, bool all) SL_REQUIRES(&store->mutex);

#endif
