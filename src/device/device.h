/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between the engine and a device, and how a pointer leads to one. */
#ifndef SL_DEVICE_H
#define SL_DEVICE_H

#include <sluice/device.h>

#include "core/core.h"

/* Of all kinds together. */
#define SL_DEVICES_MOST 32

/* One thing that a device does in stream order. */
enum sl_command_kind { SL_AWAIT_WORD, SL_WRITE_WORD, SL_COPY };
struct sl_command {
	enum sl_command_kind kind;
	union {
		/* The word is in memory that the device has registered. The wait ends when the word is
		 * value or, cyclically, later: (int32_t)(*word - value) >= 0. The write is seen after
		 * all that came before it in its stream. */
		struct {
			_Atomic uint32_t *at;
			uint32_t value;
		} word;
		struct {
			void *to;
			const void *from;
			size_t length;
		} copy; /* host memory in it is registered */
	};
};

struct sl_device;

/* An allocation of one process, for others; what is in handle the kind of device says. */
struct sl_lent_memory {
	const void *start; /* in the process that has made it */
	uint64_t length;   /* bytes */
	uint8_t handle[64];
};

/*
 * What a kind of device offers. Every function is a driver call: it may be held up by what other
 * threads do with the driver, so only these call them: the caller's thread inside a public function,
 * and the copier. None is called with a lock held that a worker, a reactor or the doorbell takes.
 * Results are 0 or a negative errno without a sentence, if nothing else is said. Any thread.
 */
struct sl_device_ops {
	/* Makes ready what the functions below need; they do it themselves where nobody has. With a
	 * sentence. NULL: nothing has to be. */
	int (*open)(struct sl_device *device);
	int (*describe)(struct sl_device *device,
	                struct sluice_device *out); /* all but name, real */

	int (*alloc)(struct sl_device *device, size_t length, void **out);
	int (*free)(struct sl_device *device, void *memory);
	/* Host memory, whole pages; may wait for everything that the device has to do. */
	int (*register_memory)(struct sl_device *device, void *memory, size_t length);
	/* The same for memory that is mapped read-only, which the device then reads only. NULL: register_memory() takes
	 * that, too. */
	int (*register_to_read)(struct sl_device *device, void *memory, size_t length);
	/* Of either. */
	int (*unregister_memory)(struct sl_device *device, void *memory);
	/* Whether all of the range is registered with, or was pinned by, the device. */
	bool (*registered)(struct sl_device *device, const void *memory, size_t length);

	int (*stream_new)(struct sl_device *device, sluice_stream *out);
	int (*stream_free)(struct sl_device *device, sluice_stream stream);
	int (*stream_query)(struct sl_device *device, sluice_stream stream); /* 1, 0, or negative */
	int (*stream_synchronize)(struct sl_device *device, sluice_stream stream);
	/* Whether commands can be given to the stream: -EINVAL, with a sentence, while it is captured. */
	int (*stream_check)(struct sl_device *device, sluice_stream stream);

	/* Gives commands to a stream, in order; how many it took is in *taken, on failure too. */
	int (*enqueue)(struct sl_device *device, sluice_stream stream,
	               const struct sl_command *commands, size_t count, size_t *taken);

	/*
	 * A copy for the public functions, between any two memories of which one is the device's. Host
	 * memory that is not registered is read before the call returns; into such memory, and if wait is
	 * set, the call waits for the copy.
	 */
	int (*copy)(struct sl_device *device, sluice_stream stream, void *to, const void *from,
	            size_t length, bool wait);

	int (*event_new)(struct sl_device *device, sluice_event *out);
	int (*event_free)(struct sl_device *device, sluice_event event);
	int (*event_record)(struct sl_device *device, sluice_event event, sluice_stream stream);
	int (*event_await)(struct sl_device *device, sluice_event event, sluice_stream stream);
	int (*event_query)(struct sl_device *device, sluice_event event); /* 1, 0, or negative */
	int (*event_synchronize)(struct sl_device *device, sluice_event event);

	/* Whether the memory, which is the device's, moves between it and the host by itself: it is copied to
	 * and from as any other, but not for libraries that stand on the same driver. NULL: none does. */
	bool (*managed)(struct sl_device *device, const void *memory);

	/* 0, or why the device does nothing any more. */
	int (*status)(struct sl_device *device);
	/* Until leave() the calling thread works on the stream's context, or on the device's if the stream is
	 * NULL, for a library that stands on the same driver; captures do not mind. NULL: there is none. */
	int (*enter)(struct sl_device *device, sluice_stream stream);
	void (*leave)(void);
};

/*
 * Memory of a device that several processes have mapped. All are calls of a driver, as those above, and may be held up
 * by waits that are pending. Lengths are multiples of granularity. Results as above.
 */
struct sl_device_sharing {
	size_t granularity; /* bytes */
	/*
	 * New memory, mapped for writing, and a descriptor for it that can be sent to other processes. It lives as long as
	 * descriptors or mappings of it do, in whatever process. -ENOMEM.
	 */
	int (*make)(struct sl_device *device, size_t length, void **out, int *fd);
	/*
	 * Maps what another process, or this one, has made: `device` is the one that it is on; `by` another one that uses
	 * it, or the same. Read-only: neither streams nor copies can write to it. The descriptor stays the caller's, who has
	 * it from somebody he does not trust: -EBADMSG, if it is something else, or of another length.
	 * -ENOTSUP: `by` cannot reach it.
	 */
	int (*map)(struct sl_device *device, int fd, size_t length, struct sl_device *by,
	           void **out);
	/* Of make or map, with its length. What uses it is done, the caller sees to that: a driver may wait for all that the
	 * device has to do, or take the memory from under what still runs. */
	int (*unmap)(struct sl_device *device, void *memory, size_t length);
	/*
	 * What others need to map the allocation that memory is in, which somebody else made: its start and length, and
	 * bytes that say the rest. -ENOTSUP: it cannot be shared.
	 */
	int (*lend)(struct sl_device *device, const void *memory, struct sl_lent_memory *out);
	/* Maps that in another process. It may be written to: drivers offer nothing else. Ended by give_back(). A second time
	 * in one process it may be the same mapping, counted. -EINVAL: in the process that has lent it, which has it already.
	 * -ENOENT: it is gone, with its process or before. What is mapped must not be used after that. */
	int (*borrow)(struct sl_device *device, const struct sl_lent_memory *memory, void **out);
	int (*give_back)(struct sl_device *device, void *start);
};

struct sl_device {
	const struct sl_device_ops *ops;
	const struct sl_device_sharing *sharing; /* NULL: its memory cannot be shared */
	const struct sl_device_kind *kind;       /* set with the index */
	int index;                               /* the public number */
	char name[24];                           /* "emulated:0" */
	const char *pci; /* its address on that bus, "0000:65:00.0", or NULL */
};

/* A kind of devices. The table is in sluice.c, its last row is NULL. */
struct sl_device_kind {
	const char *name; /* "emulated" */
	/*
	 * Why find() finds none, or not all, for people; or "". NULL: the kind is not hardware, and "device"
	 * does not mean it.
	 */
	const char *(*missing)(void);
	/* What sluice_device_feature() tells of the kind, index from 0; -ENOENT past the last. May be NULL. */
	int (*feature)(unsigned index, struct sluice_feature *out);
	/* The devices of the kind one by one, index from 0; NULL past the last. It opens none. */
	struct sl_device *(*find)(unsigned index);
	/* The device that a pointer belongs to, or NULL. Not counted as a call where it costs nothing. */
	struct sl_device *(*of_memory)(const void *memory);
	/* The device of a stream; NULL: not one of this kind, or one that every device has. */
	struct sl_device *(*of_stream)(sluice_stream stream);
	/* The device of an event. Where events do not tell: wanted, if it is of this kind, or the first. */
	struct sl_device *(*of_event)(sluice_event event, struct sl_device *wanted);
	/* The device that the calling thread has chosen with the driver; NULL: none. May be NULL. */
	struct sl_device *(*current)(void);
};
extern const struct sl_device_kind *const sl_device_kinds[];
extern const struct sl_device_kind sl_cuda, sl_emulated;

/* Streams up to this number are of every device. */
#define SL_COMMON_STREAMS 2

/* NULL past the last. */
struct sl_device *sl_device_find(unsigned index);
/* What names it in every process. Unlike its description it opens nothing. */
static inline const char *sl_device_place(const struct sl_device *device)
{
	return device->pci ? device->pci : device->name;
}
/* The device that holds the byte at this address; NULL: host memory. */
struct sl_device *sl_device_of_memory(const void *memory);
/* Whether anybody has asked for a device of sluice: before that there is memory of devices only where the
 * program uses a driver by itself, which it takes longer to find out. */
bool sl_device_any_known(void);
/* The device that the calling thread works on, or else the first. */
struct sl_device *sl_device_current(void);
/* The device of a stream; if every device has such a stream, fallback. */
struct sl_device *sl_device_of_stream(sluice_stream stream, struct sl_device *fallback);

/* Of a device on the PCI bus, by its address as the kernel writes it, as in "0000:65:00.0". */
int sl_pci_node(const char *address);           /* of NUMA; -1: not known, or there is only one */
bool sl_pci_shares_memory(const char *address); /* with other devices there, by P2PDMA */
/* The address of a GPU of that vendor, by its number in the order of their addresses. */
bool sl_pci_display(unsigned vendor, unsigned index, char address[32]);
/* Whether a GPU of that vendor is there, whatever its driver says. */
bool sl_pci_has_display(unsigned vendor);

#endif
