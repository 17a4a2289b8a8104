/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: their numbers and limits (device_budget.c), and the regions of their memory
 * (region_device.c), freeing without waiting (async_free.c).
 */
#ifndef SL_SLUICED_DEVICES_H
#define SL_SLUICED_DEVICES_H

#include "sluiced/memory/memory.h"

/* ------------------------------------------------------------------------------ numbers, limits */

/* Numbers the devices that the options name, before any other device. */
void sl_devices_begin(struct sl_server *server);
static inline bool sl_device_known(const struct sl_server *server, int32_t number)
{
	return number >= 0 &&
	       (uint32_t)number < atomic_load(&server->descriptors->ledger->device_count);
}
/* Returns the name of a device, the same in every process; "" for the host. */
const char *sl_server_place(const struct sl_server *server, int32_t number);
int sl_handle_device(struct sl_server *server, struct sl_peer *peer);
/* Writes ", N of them mapped, by process P" for the host (-1) or a device; "" if nobody maps it. */
void sl_holders_text(struct sl_server *server, int32_t device, char *text, size_t size);
/*
 * Makes room for so many bytes of a device; deletes caches if need be. Returns 0, -EINPROGRESS
 * (there will be room when clients have unmapped what is leaving), or -ENOSPC with a sentence.
 */
int sl_device_make_room(struct sl_server *server, int32_t device, uint64_t bytes);

/* ------------------------------------------------------------------------- regions of devices */

/* Notes in the ledger that the peer may map memory of devices: later servers wait for its end. */
void sl_device_may_map(struct sl_server *server, const struct sl_peer *peer);
/* Notes a region that the previous server has left, which that session may write to. */
void sl_device_region_found(struct sl_server *server, struct sl_region *region, uint64_t session);
/* Tells the clients that have a region mapped to unmap it. */
void sl_device_begin_leaving(struct sl_server *server, struct sl_region *region);
/* Frees a region that leaves, if nobody has it mapped. */
void sl_device_free_unmapped(struct sl_server *server, struct sl_region *region);
void sl_import_free(struct sl_import *import);
/* Returns 0 if a blob in the region may be sealed, or an error with a sentence. */
int sl_device_check_seal(const struct sl_region *region);
int sl_handle_offer(struct sl_server *server, struct sl_peer *peer);
int sl_handle_have(struct sl_server *server, struct sl_peer *peer);
/* Handles SL_MSG_DROP of a region. */
void sl_device_drop(struct sl_server *server, struct sl_peer *peer, struct sl_region *region);
/* Notes once that the peer may map the region. 0, -EDQUOT or -ENOMEM with a sentence. */
int sl_device_import(struct sl_server *server, struct sl_peer *peer, struct sl_region *region);
/* Notes that the peer has no memory of devices mapped any more. */
void sl_device_peer_gone(struct sl_server *server, struct sl_peer *peer);
/* Withdraws the memory of its own that a peer has published: it cannot be reached any more. */
void sl_device_unpublish(struct sl_server *server, struct sl_peer *peer);
/* Decides after recovery whether a region stays, leaves, or is withdrawn with its process. */
void sl_device_recover(struct sl_server *server, struct sl_region *region);
/* Moves published regions and imports to the new connection of the same process. */
void sl_device_inherit(struct sl_peer *before, struct sl_peer *peer);

/* --------------------------------------------------------------------- freeing without waiting */

/* Takes these ranges away from all processes that still map them, soon. Does not keep fd. */
void sl_async_free_memory(struct sl_server *server, int fd, uint64_t range_bytes, uint64_t ranges);
/* Closes a descriptor of a client on a thread, because a close may wait for somebody. */
void sl_async_close(struct sl_server *server, int fd);
/* Returns true if a client's descriptor can be memory of a device, which is harmless to keep. */
bool sl_fd_is_memory(int fd);

#endif
