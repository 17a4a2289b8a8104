/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: regions of the host and of devices, their accounts, limits and reuse.
 *
 *   region   memory behind a descriptor: a range, or a slab: up to 64 equal ranges for small blobs.
 *            The server makes those of the host, clients those of devices, which they send
 *   range    memory of a blob
 *   import   a client that may have the memory of a device mapped
 *   writer   the client that may have a region mapped for writing
 */
#ifndef SL_SLUICED_MEMORY_H
#define SL_SLUICED_MEMORY_H

#include "sluiced/server.h"

#define SL_CLASSES     5 /* sizes of small blobs of the host: 4, 8, 16, 32 and 64 KiB */
#define SL_SMALL_BYTES 65536
#define SL_PAGE_BYTES  UINT64_C(4096)
#define SL_RANGES_MOST 64
#define SL_KEPT_MOST   256 /* regions that are kept for the next blobs */

#define SL_DEVICE_CLASSES  6 /* sizes of small blobs of devices: 32 KiB to 1 MiB */
#define SL_DEVICE_SMALLEST UINT64_C(32768)
#define SL_DEVICE_SMALL    UINT64_C(1048576)
#define SL_DEVICE_UNIT     UINT64_C(2097152) /* memory of a device is made in multiples */
#define SL_IMPORTS_MOST    4096              /* of a peer */
#define SL_NO_LIMIT        UINT64_C(0x7fffffffffffffff) /* of bytes */

struct sl_region {
	struct sl_list bucket; /* in sl_memory.regions, by id */
	struct sl_list link;   /* in writer->slabs of its size, if it has free ranges */
	/* In sl_memory.kept while it is empty; of a device: in sl_memory.leaving. */
	struct sl_list empty_link;
	struct sl_list writer_link; /* in writer->regions or writer->published */
	struct sl_peer *writer;     /* NULL: nobody has it mapped for writing */
	int64_t empty_since;        /* while it is in sl_memory.kept */
	uint64_t id, bytes;
	/* The id that it had when its blobs were made: a return from a file changes id. */
	uint64_t origin;
	uint32_t row;         /* of the descriptor table */
	uint32_t range_bytes; /* 0: not divided */
	unsigned ranges;
	uint64_t used;   /* by range: leased, or a blob */
	uint64_t backed; /* by range: has memory, which counts */
	bool frozen;     /* only the previous server knew its writer: not used for new blobs */
	int32_t device;  /* -1: the host */
	uint32_t kind;   /* of enum sluice_blob_kinds */
	/* 1: `row` has its descriptor; 0: not offered yet; -errno: it could not be kept. */
	int offered;
	uint64_t wait_mark; /* the last scan of waiting gets that has found this region needed */

	/* Of regions of devices. */
	struct sl_list imports;
	/* Counted in sl_memory.memfd_bytes: its memory is a memfd, not a driver's. */
	uint64_t memfd_bytes;
	bool leaving;   /* nothing is made in it any more, and its users were told to unmap it */
	uint64_t maker; /* the lease that says that the region is to be made; 0 */

	/* Of regions that are spilled. */
	bool away;                  /* it has no memory and no row: its bytes are in its copy */
	struct sl_spill_copy *copy; /* whole or not; no new blob is made in the region then. NULL */
	uint64_t stamp;             /* grows with each seal or return */

	uint32_t slots[]; /* the entry in each range, or SL_NO_SLOT */
};

struct sl_import {
	struct sl_list link;      /* in region->imports */
	struct sl_list peer_link; /* in peer->imports */
	struct sl_region *region;
	struct sl_peer *peer;
};

/* Memory that a blob needs. */
struct sl_wanted {
	uint64_t bytes;
	uint32_t flags;
	int32_t device;
	uint32_t kind;
};

/* A process that maps much of some memory, for sentences; found again after a tenth of a second. */
struct sl_holder {
	int64_t until;
	bool leaving; /* of memory that is to be unmapped */
	pid_t pid;    /* 0: nobody */
	uint64_t bytes;
};

/* Memory of a device in regions, and in those of them that are deleted and still mapped. */
struct sl_device_use {
	uint64_t bytes, leaving;
};

/* A thread that gives memory back to the kernel and closes descriptors; ends with the process. */
struct sl_async_free {
	struct sl_pool *pool;
	_Atomic uint64_t bytes; /* queued for the thread, or being freed */
};

struct sl_memory_pool {
	struct sl_list regions[SL_BUCKETS];
	struct sl_list kept; /* regions of the host without a blob, the oldest first */
	unsigned kept_count;
	uint64_t kept_bytes;
	uint64_t memfd_bytes; /* of devices, and yet the host's memory */
	struct sl_device_use devices[SL_PLACES_MOST];
	struct sl_list leaving; /* regions of devices */
	/* Clients of the previous server that may have memory of devices mapped. */
	unsigned awaited;
	struct sl_holder holders[1 + SL_PLACES_MOST]; /* of the host, then of devices */
	struct sl_async_free freeing;
};

/* Returns true if the blob lies in a slab. */
bool sl_wanted_small(const struct sl_wanted *wanted);
/* Returns the bytes that a blob takes. */
uint64_t sl_wanted_range_bytes(const struct sl_wanted *wanted);

/* ------------------------------------------------------------------------------------- regions */

/*
 * Makes a region for the peer to write to; of a device the peer then makes the memory.
 * Returns 0, -EINPROGRESS (there will be room), or -ENOSPC, -ENFILE, -ENOMEM with a sentence.
 */
int sl_region_new(struct sl_server *server, struct sl_peer *peer, const struct sl_wanted *wanted,
                  struct sl_region **out);
/* Returns a region with a free range large enough, at no cost, or NULL. */
struct sl_region *sl_region_find_free(struct sl_server *server, struct sl_peer *peer,
                                      const struct sl_wanted *wanted);
struct sl_region *sl_region_find(struct sl_server *server, uint64_t id);
/* Adds a region without memory. 0, -EBADMSG (the row is wrong) or -ENOMEM with a sentence. */
int sl_region_add(struct sl_server *server, const struct sl_ledger_row *saved, uint64_t id,
                  struct sl_region **out);
/* Adds the region of a descriptor that is in the descriptor table. */
int sl_region_open(struct sl_server *server, uint32_t row, struct sl_region **out);
void sl_region_free(struct sl_server *server, struct sl_region *region);
void sl_region_set_writer(struct sl_region *region, struct sl_peer *peer);
/* Notes that the writer has unmapped it, or is dead. May free it. */
void sl_region_writer_gone(struct sl_server *server, struct sl_region *region);
/* Puts it into other lists after a change of its use. May free it. */
void sl_region_relist(struct sl_server *server, struct sl_region *region);
/* Frees a range. May free the region, or another empty slab of its writer. */
void sl_range_free(struct sl_server *server, struct sl_region *region, unsigned range);
/* Gives up the free ranges of a slab in which nothing is made any more. */
void sl_region_trim(struct sl_server *server, struct sl_region *region);
/* Gives up its memory: its copy is whole and all its blobs are AWAY. */
void sl_region_spilled(struct sl_server *server, struct sl_region *region);
/* Gives it new memory and a new id after its bytes were read back. No change on failure. */
int sl_region_restore(struct sl_server *server, struct sl_region *region, int fd);
/* Makes a memfd that keeps its size. */
int sl_region_memfd(uint64_t bytes, int *fd);
/* Opens the same memory again, read-only. Returns a descriptor or a negative errno. */
int sl_reopen_read_only(int fd);
/* Returns true for a memfd of so many bytes that cannot shrink or grow. */
bool sl_memfd_is(int fd, uint64_t least, uint64_t most);
/* Bytes of a range of it; the same for the host's account, 0 for a region of a device. */
uint64_t sl_region_range_bytes(const struct sl_region *region);
uint64_t sl_region_host_bytes(const struct sl_region *region);
/* Bytes of its ranges that are in use; and that count for the host or for its device. */
uint64_t sl_region_used_bytes(const struct sl_region *region);
uint64_t sl_region_counted(const struct sl_region *region);
/* Counts all its memory. */
void sl_region_count(struct sl_server *server, struct sl_region *region);

/* Makes room on the host. 0, -EINPROGRESS (there will be room), or -ENOSPC with a sentence. */
int sl_room_make(struct sl_server *server, uint64_t bytes);
/* Frees kept regions until that many bytes are free. Returns how many were. */
uint64_t sl_regions_reclaim(struct sl_server *server, uint64_t bytes);
/* Frees regions that were kept for longer than --keep-time. */
void sl_regions_expire(struct sl_server *server, int64_t now);

#endif
