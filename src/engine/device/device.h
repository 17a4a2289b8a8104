/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between the engine and a device, and how a pointer or a stream leads to a device. */
#ifndef SL_DEVICE_H
#define SL_DEVICE_H

#include <sluice/device.h>

#include "core/core.h"

/* Limit on the devices of all kinds together. */
#define SL_DEVICES_MOST 32

/* A command that a device executes in stream order. */
enum sl_command_kind { SL_AWAIT_WORD, SL_WRITE_WORD, SL_COPY };
struct sl_command {
	enum sl_command_kind kind;
	union {
		/*
		 * The word lies in memory that is registered with the device. A wait ends when
		 * (int32_t)(*word - value) >= 0, so values may wrap. A write becomes visible after
		 * all earlier work of its stream.
		 */
		struct {
			_Atomic uint32_t *at;
			uint32_t value;
		} word;
		struct {
			void *to;
			const void *from;
			size_t length;
		} copy; /* host memory must be registered with a device of the kind */
	};
};

/* The most copies that are given to a device together. */
#define SL_COPIES_JOINED 64
/*
 * Returns how many of the commands, from the first on, are copies that may be made in any order.
 */
size_t sl_copies_joined(const struct sl_command *commands, size_t count);
/*
 * Returns how many of the commands, from the first on, are copies of the rows of a table: of the
 * same length, at the same distances, and without overlaps.
 */
size_t sl_copies_rows(const struct sl_command *commands, size_t count);
/* Returns how many commands a channel counts for so many copies that are given together. */
unsigned sl_copies_cost(size_t count);

struct sl_device;

/* Returns how many a channel counts for these commands of a stream. */
unsigned sl_commands_cost(struct sl_device *device, sluice_stream stream,
                          const struct sl_command *commands, size_t count);

/*
 * An allocation that a process lends to others. The kind of device defines the content of handle.
 */
struct sl_lent_memory {
	const void *start; /* in the process that has made it */
	uint64_t length;   /* bytes */
	uint8_t handle[64];
};

struct sl_allocation {
	uintptr_t start;
	size_t length; /* bytes */
};

/*
 * The functions of a kind of device.
 *
 * Every function makes driver calls, which may be held up by driver calls of other threads.
 * Therefore only two threads may call them: the application's thread inside a public function, and
 * the copier. Neither may hold a lock that a worker, a reactor or the poller takes.
 *
 * Unless a comment says otherwise, functions return 0 or a negative errno, set no sentence, and may
 * be called from any thread.
 */
struct sl_device_ops {
	/*
	 * Initialises the device; the functions below do so themselves if it is not. Sets a
	 * sentence on failure. NULL: no initialisation is needed.
	 */
	int (*open)(struct sl_device *device);
	/* Fills in everything but name and real. */
	int (*describe)(struct sl_device *device, struct sluice_device *out);

	int (*alloc)(struct sl_device *device, size_t length, void **out);
	int (*free)(struct sl_device *device, void *memory);
	/* Finds the allocation of the device that holds the byte. */
	int (*allocation)(struct sl_device *device, const void *memory, struct sl_allocation *out);
	/* register_memory() has the kernel make absent pages, on its own thread alone. */
	bool makes_pages;
	/* Registers whole pages of host memory; may wait until the device is idle. */
	int (*register_memory)(struct sl_device *device, void *memory, size_t length);
	/*
	 * Registers memory that is mapped read-only, for reading by the device. NULL:
	 * register_memory() accepts such memory too.
	 */
	int (*register_to_read)(struct sl_device *device, void *memory, size_t length);
	/* Undoes either registration. */
	int (*unregister_memory)(struct sl_device *device, void *memory);
	/*
	 * Returns true if all of the range is registered with the device or pinned by its driver.
	 */
	bool (*registered)(struct sl_device *device, const void *memory, size_t length);

	int (*stream_new)(struct sl_device *device, sluice_stream *out);
	int (*stream_free)(struct sl_device *device, sluice_stream stream);
	int (*stream_query)(struct sl_device *device,
	                    sluice_stream stream); /* 1: idle, 0: not yet */
	int (*stream_synchronize)(struct sl_device *device, sluice_stream stream);
	/*
	 * Returns 0 if the stream accepts commands, or -EINVAL with a sentence while it is
	 * captured.
	 */
	int (*stream_check)(struct sl_device *device, sluice_stream stream);

	/*
	 * Returns true if enqueue() gives the stream copies together, as sl_copies_joined() finds
	 * them. Makes no driver call.
	 */
	bool (*joins)(struct sl_device *device, sluice_stream stream);
	/* Enqueues commands in order. *taken: how many were enqueued, on failure too. */
	int (*enqueue)(struct sl_device *device, sluice_stream stream,
	               const struct sl_command *commands, size_t count, size_t *taken);

	/*
	 * Copies between any two memories of which at least one belongs to the device. Host memory
	 * that is not registered is read before the call returns. The call waits for the copy if
	 * the destination is such memory, or if wait is set.
	 */
	int (*copy)(struct sl_device *device, sluice_stream stream, void *to, const void *from,
	            size_t length, bool wait);

	int (*event_new)(struct sl_device *device, sluice_event *out);
	int (*event_free)(struct sl_device *device, sluice_event event);
	int (*event_record)(struct sl_device *device, sluice_event event, sluice_stream stream);
	int (*event_await)(struct sl_device *device, sluice_event event, sluice_stream stream);
	int (*event_query)(struct sl_device *device, sluice_event event); /* 1: idle, 0: not yet */
	int (*event_synchronize)(struct sl_device *device, sluice_event event);

	/*
	 * Returns true for managed memory, which the driver migrates between host and device:
	 * copies work as usual, but other libraries on the same driver may refuse it. NULL: the
	 * kind has no managed memory.
	 */
	bool (*managed)(struct sl_device *device, const void *memory);

	/*
	 * Lets the device copy from another of its kind without a detour through host memory, and
	 * returns true if that is possible. Copies of enqueue() may then be from memory of the
	 * other. NULL: never.
	 */
	bool (*reach)(struct sl_device *device, struct sl_device *other);

	/* Returns 0, or the error after which the device executes nothing more. */
	int (*status)(struct sl_device *device);
	/*
	 * Makes the stream's context current on the calling thread until leave(), or the device's
	 * context if stream is NULL, for libraries on the same driver. Does not disturb stream
	 * captures. NULL: the kind has no contexts.
	 */
	int (*enter)(struct sl_device *device, sluice_stream stream);
	void (*leave)(void);
};

/*
 * Sharing of device memory between processes.
 *
 * All functions make driver calls, as those above, and may be held up by pending waits of streams.
 * Lengths are multiples of granularity. Results are as above.
 */
struct sl_device_sharing {
	size_t granularity; /* bytes */
	/*
	 * Allocates memory, maps it for writing and returns a descriptor that can be sent to other
	 * processes. The memory lives until the last descriptor and the last mapping in any process
	 * are gone. Returns -ENOMEM if there is none.
	 */
	int (*make)(struct sl_device *device, size_t length, void **out, int *fd);
	/*
	 * Maps memory of `device`, made by this or another process, read-only for `by`, which may
	 * be the same device. The caller keeps the descriptor, which may come from an untrusted
	 * process. at: NULL, or, for the device itself, addresses of vacate(), which stay vacant if
	 * the call fails, as it does if they are not vacant or have another length.
	 *
	 * Returns 0, or
	 *   -EBADMSG  the descriptor is not such memory, or has another length
	 *   -ENOTSUP  `by` cannot access the memory
	 */
	int (*map)(struct sl_device *device, int fd, size_t length, struct sl_device *by, void *at,
	           void **out);
	/*
	 * Unmaps memory of make() or map(). The caller ensures that nothing uses it any more: a
	 * driver may wait for the whole device, or unmap memory in use.
	 */
	int (*unmap)(struct sl_device *device, void *memory, size_t length);
	/*
	 * Unmaps memory that map() has mapped for its own device, as unmap() does, and keeps its
	 * addresses, where nothing is then. If it fails the memory stays mapped.
	 */
	int (*vacate)(struct sl_device *device, void *memory, size_t length);
	/* Gives vacant addresses back. */
	int (*abandon)(struct sl_device *device, void *at, size_t length);
	/*
	 * Describes the allocation that contains memory, which sluice need not have made, so that
	 * other processes can map it. Returns -ENOTSUP if it cannot be shared.
	 */
	int (*lend)(struct sl_device *device, const void *memory, struct sl_lent_memory *out);
	/*
	 * Maps lent memory in another process. Drivers map it writable. Each call needs its
	 * give_back(); a second borrow of the same memory may return the same mapping, counted. The
	 * mapping must not be used once the lender has freed the memory or has ended.
	 *
	 * Returns 0, or
	 *   -EINVAL   this process is the lender
	 *   -ENOENT   the memory or its process is gone
	 */
	int (*borrow)(struct sl_device *device, const struct sl_lent_memory *memory, void **out);
	int (*give_back)(struct sl_device *device, void *start);
};

struct sl_device {
	const struct sl_device_ops *ops;
	const struct sl_device_sharing *sharing; /* NULL if memory cannot be shared */
	const struct sl_device_kind *kind;       /* set together with index */
	int index;                               /* the public number */
	char name[24];                           /* "emulated:0" */
	const char *pci;                         /* PCI address as "0000:65:00.0", or NULL */
};

/* A kind of devices. The table is in sluice.c and ends with NULL. */
struct sl_device_kind {
	const char *name; /* "emulated" */
	bool cufile;      /* NVIDIA's: cuFile takes memory of such a device, after enter() */
	/*
	 * Returns text for users that says why devices are missing, or "". NULL: the kind is not
	 * hardware, and the name "device" does not include it.
	 */
	const char *(*missing)(void);
	/*
	 * Returns the feature at index for sluice_device_feature(), or -ENOENT past the last; NULL:
	 * none.
	 */
	int (*feature)(unsigned index, struct sluice_feature *out);
	/* Returns the device at index of this kind, or NULL past the last. Opens no device. */
	struct sl_device *(*find)(unsigned index);
	/* Returns the device that owns the memory, or NULL. A driver call only if it makes one. */
	struct sl_device *(*of_memory)(const void *memory);
	/* Returns the device of a stream, or NULL: of another kind, or a default stream. */
	struct sl_device *(*of_stream)(sluice_stream stream);
	/*
	 * Returns the device of an event. If events do not reveal their device: `wanted` if it is
	 * of this kind, else the first device.
	 */
	struct sl_device *(*of_event)(sluice_event event, struct sl_device *wanted);
	/*
	 * Returns the device that is current in the driver for this thread, or NULL. May be NULL.
	 */
	struct sl_device *(*current)(void);
};
extern const struct sl_device_kind *const sl_device_kinds[];
extern const struct sl_device_kind sl_cuda, sl_emulated;

/* Streams up to this value are default streams, which every device has. */
#define SL_COMMON_STREAMS 2

/* Returns the device with that public number, or NULL past the last. */
struct sl_device *sl_device_find(unsigned index);
/* Returns a name that is valid in every process. Does not open the device. */
static inline const char *sl_device_place(const struct sl_device *device)
{
	return device->pci ? device->pci : device->name;
}
/* Returns the device that owns the byte at this address, or NULL for host memory. */
struct sl_device *sl_device_of_memory(const void *memory);
/* The same, with the allocation that holds the byte: no driver copies across its ends. Of host
 * memory, and where the driver does not say, the allocation is empty. */
struct sl_device *sl_device_of_allocation(const void *memory, struct sl_allocation *out);
/* Lets a device copy from another, or from itself, without a detour through host memory. Returns
 * true if that is possible. Makes driver calls. */
bool sl_device_reach(struct sl_device *device, struct sl_device *other);
/*
 * Copies rows from memory of the host to the device, in the order of the stream; to, from: the
 * first row. Memory that is not registered with the device is copied row by row. Makes driver
 * calls. Returns 0, or an error with a sentence.
 */
int sl_device_copy_rows(int device, void *to, const void *from, size_t length, size_t count,
                        size_t to_pitch, size_t from_pitch, sluice_stream stream);
/*
 * Returns true once devices have been numbered. Before that, device memory exists only if the
 * program uses a driver directly, which takes longer to find out.
 */
bool sl_device_any_known(void);
/* Returns -ECHILD with a sentence if a parent of this process has numbered the devices; else 0. */
int sl_device_check_process(void);
/* Returns the device that is current on the calling thread, else the first device. */
struct sl_device *sl_device_current(void);
/* Returns the device of a stream, or fallback for a default stream. */
struct sl_device *sl_device_of_stream(sluice_stream stream, struct sl_device *fallback);

/* Memory that is exported as a tensor. The arrays are copied. */
struct sl_dlpack_source {
	void *data;
	struct sl_device *device; /* NULL: the host */
	int type;                 /* of enum sluice_type */
	unsigned rank;
	const int64_t *shape, *strides; /* in elements; strides NULL: without gaps */
	uint64_t offset;                /* of the first element, bytes */
	bool read_only;
	void (*release)(void *owner); /* of the memory; on any thread, also in a child of fork() */
	void *owner;
};
/* Makes the struct of DLPack of that version, 0 or 1. Returns 0 or -ENOMEM with a sentence. */
int sl_dlpack_export(const struct sl_dlpack_source *source, unsigned version, void **out);

/* Properties of a PCI device by its address as the kernel writes it, "0000:65:00.0". */
int sl_pci_node(const char *address);           /* NUMA node, or -1 if unknown or the only one */
bool sl_pci_shares_memory(const char *address); /* true: by P2PDMA with other devices */
/*
 * Returns the address of a GPU of that vendor by its index in address order; false past the last.
 */
bool sl_pci_display(unsigned vendor, unsigned index, char address[32]);
/* Returns true if the machine has a GPU of that vendor, with or without a driver. */
bool sl_pci_has_display(unsigned vendor);

#endif
