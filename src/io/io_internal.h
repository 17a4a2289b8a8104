/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts and files, as the files of this room share them. op.h has operations. */
#ifndef SL_IO_INTERNAL_H
#define SL_IO_INTERNAL_H

#include "io/io.h"

/* -------------------------------------------------------------------------------------- file */

#define SL_FILE_CLOSING (1u << 31)

struct sl_file_error {
	int error; /* the first */
	char *message;
};

struct sluice_file {
	struct sluice_context *ctx;
	struct sl_backend *backend;
	struct sl_object *object;
	struct sl_limits limits;
	unsigned flags;
	char *uri;

	_Atomic uint64_t bytes;     /* of operations that have started and are not over */
	_Atomic uint32_t in_flight; /* operations, and SL_FILE_CLOSING */
	_Atomic uint32_t drained;   /* 1: closing, and nothing in flight; ends close's wait */

	struct sl_mutex mutex;
	struct {
		struct sl_file_error untold; /* of operations without a handle; told once */
		/* Of all operations that change the file, told or not: the file lacks bytes. */
		struct sl_file_error failed;
		/* Operations that have not been prepared, and those that the task is preparing. It
		 * is submitted or running while `preparing`. */
		struct sl_list unprepared, batch;
		bool preparing;
	} locked SL_GUARDED_BY(&mutex);
	struct sl_task prepare;
};

/* Copies the caller's options, which may be of a shorter or longer struct, with zeros for the rest. */
int sl_file_copy_options(const struct sluice_open_options *from, struct sluice_open_options *to);
/* Parses a URI, to be cleared by the caller, and finds the scheme. Returns 0, or -errno with a sentence. */
int sl_file_find_scheme(const char *uri, struct sl_uri *parsed, const struct sl_scheme **out);
/*
 * Opens what the URI names by its backend. May wait, unless `opening` is given: then open_start() is called, -EAGAIN if there is
 * none. Returns 0, or -errno with a sentence.
 */
int sl_file_open_backend(struct sluice_context *ctx, const char *uri,
                         const struct sluice_open_options *options, struct sl_opening *opening,
                         struct sl_backend **out);
/* Keeps the error of an operation that has failed, for sluice_sync() and sluice_close(). */
void sl_file_keep_error(struct sluice_file *file, const struct sluice_op *op);
/* Gives back a hold on the file (in_flight), which sluice_close() waits for. The file may be gone
 * afterwards. */
void sl_file_release(struct sluice_file *file);

/* ---------------------------------------------------------------------------------- finished */

/* A queue of operations that are over: that of a context, or of sluice_queue_new(). */
struct sluice_queue {
	uint32_t process; /* see sl_process_is() */
	const struct sluice_context
		*context; /* of which it is a part; NULL: of sluice_queue_new() */
	/* Of sluice_queue_new(): the handle's and those of operations. */
	_Atomic uint32_t references;
	struct sl_mutex mutex;
	pthread_cond_t arrived;
	struct {
		struct sl_list list;
		unsigned waiters;
		int fd; /* eventfd, or -1 */
		unsigned kept_count;
		struct sluice_op *kept[64]; /* handles to use again: see sl_done_new() */
	} locked SL_GUARDED_BY(&mutex);
};

/* ----------------------------------------------------------------------------------- context */

#define SL_OBJECT_BUCKETS 64

struct sluice_context {
	struct sl_core core;
	uint32_t process;            /* see sl_process_is() */
	_Atomic uint32_t references; /* the handle's and those of operations */

	struct sl_gate operations; /* in flight */

	struct {
		struct sl_mutex mutex;
		struct sl_pool *
			pool SL_GUARDED_BY(&mutex); /* of opening.c, from its first task on */
	} opens;

	struct sluice_queue done; /* for sluice_context_queue() */

	/* Held while an operation in stream order enters the order of its object and its commands
	 * are enqueued. No worker, reactor, poller or copier takes it. */
	struct sl_mutex submission;
	/* Counts ends of operations that kept submissions in stream order waiting, while so many
	 * submissions wait. */
	_Atomic uint32_t unblocked, unblock_waiters;

	struct {
		struct sl_mutex mutex;
		/* By device; guarded by mutex, and never changed once set. */
		struct sl_staging *staging[SL_DEVICES_MOST];
		/* Of contexts that use devices; guarded by the mutex of that list. */
		struct sl_list link;
	} devices;

	struct {
		struct sl_mutex mutex;
		unsigned count SL_GUARDED_BY(&mutex);
		struct sl_list objects[SL_OBJECT_BUCKETS] SL_GUARDED_BY(&mutex);
	} files;

	char texts[SL_SETTINGS_MOST][256]; /* the values of the settings */
};

/* Returns the staging of a device in *out, and starts it at its first use. In a public call; may
 * call the driver. Returns 0, or a negative errno with a sentence. */
int sl_context_get_staging(struct sluice_context *ctx, struct sl_device *device,
                           struct sl_staging **out);
/* Libraries that our handler of exit() has to run before: it is registered after their start. */
enum sl_exit { SL_EXIT_DEVICE, SL_EXIT_BACKEND, SL_EXITS };
/* Says that the context uses it from now on. */
void sl_context_expect_exit(struct sluice_context *ctx, enum sl_exit what);
void sl_context_unref(struct sluice_context *ctx);

#endif
