/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts
 *
 * Makes and frees contexts: their settings, the threads of all rooms below, and the staging of each
 * device at its first use. Public calls only; freeing joins the threads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "http/http.h"
#include "io/io_internal.h"
#include "local/local.h"

struct sluice_context *sl_context_of(struct sl_core *core)
{
	return SL_CONTAINER(core, struct sluice_context, core);
}

const struct sl_settings *sl_context_settings(const struct sluice_context *ctx)
{
	return &ctx->core.settings;
}

void sl_context_enter(struct sluice_context *ctx)
{
	sl_mutex_lock(&ctx->files.mutex);
	ctx->files.count++;
	sl_mutex_unlock(&ctx->files.mutex);
}

void sl_context_leave(struct sluice_context *ctx)
{
	sl_mutex_lock(&ctx->files.mutex);
	ctx->files.count--;
	sl_mutex_unlock(&ctx->files.mutex);
}

static void context_destroy(struct sluice_context *ctx)
{
	sl_done_destroy(&ctx->done);
	sl_mutex_destroy(&ctx->files.mutex);
	sl_mutex_destroy(&ctx->devices.mutex);
	sl_mutex_destroy(&ctx->submission);
	sl_mutex_destroy(&ctx->opens.mutex);
	free(ctx);
}

void sl_context_unref(struct sluice_context *ctx)
{
	if (atomic_fetch_sub(&ctx->references, 1) == 1)
		context_destroy(ctx);
}

/* ----------------------------------------------------------------------------------- staging */

/* Checks that the budget gives every slot that an operation may need; or chooses the budget. */
static int context_check_staging(struct sl_settings *s, bool own)
{
	uint64_t slot = s->slot_bytes ? s->slot_bytes : s->piece_bytes;
	uint64_t power = SL_SLOT_LEAST, ring;

	while (power < slot)
		power *= 2;
	ring = power * (s->slots ? s->slots : 1);
	if (!s->staging_bytes)
		s->staging_bytes = SL_MAX(UINT64_C(256) << 20, SL_MAX(8 * power, 2 * ring));
	if (sl_staging_half(s->staging_bytes, own, SL_HALF_HOST) < power ||
	    sl_staging_half(s->staging_bytes, own, SL_HALF_STREAM) < ring)
		return sl_fail(-EINVAL,
		               "SLUICE_STAGING_BYTES: %" PRIu64
		               " is too little for a ring of %" PRIu64 " slots of %" PRIu64
		               " bytes, which half of it must hold, and "
		               "for one slot, which the rest must hold",
		               s->staging_bytes, ring / power, power);
	return 0;
}

/* At the end of the process a driver, or a library above it, shuts down in its handler of exit(),
 * which runs before ours if it was registered later. So ours is registered once more after each of
 * them has been started. It fails all that is in flight, and joins threads that call the driver. */
static struct {
	struct sl_mutex mutex;
	struct sl_list contexts SL_GUARDED_BY(&mutex);
	bool registered[SL_EXITS] SL_GUARDED_BY(&mutex);
} leaving = {.mutex = SL_MUTEX_INIT, .contexts = SL_LIST_INIT(leaving.contexts)};

static void context_at_exit(void)
{
	struct sluice_context *ctx;

	sl_mutex_lock(&leaving.mutex);
	/* The handler that was registered last runs first, and does it all. */
	while ((ctx = sl_list_take_first(&leaving.contexts, struct sluice_context, devices.link))) {
		if (!sl_process_is(ctx->process))
			continue;
		sl_cufile_abandon(ctx->core.cufile);
		for (unsigned i = 0; i < SL_DEVICES_MOST; i++)
			sl_staging_abandon(ctx->devices.staging[i]);
	}
	sl_mutex_unlock(&leaving.mutex);
}

void sl_context_expect_exit(struct sluice_context *ctx, enum sl_exit what)
{
	sl_mutex_lock(&leaving.mutex);
	if (!leaving.registered[what])
		leaving.registered[what] = !atexit(context_at_exit);
	if (!sl_list_linked(&ctx->devices.link))
		sl_list_append(&leaving.contexts, &ctx->devices.link);
	sl_mutex_unlock(&leaving.mutex);
}

int sl_context_get_staging(struct sluice_context *ctx, struct sl_device *device,
                           struct sl_staging **out)
{
	int rc = 0;

	*out = ctx->devices.staging[device->index];
	if (*out)
		return 0;
	/* The driver may be held up; nothing that lets it go on needs this lock. */
	sl_mutex_lock(&ctx->devices.mutex);
	*out = ctx->devices.staging[device->index];
	if (!*out)
		rc = sl_staging_start(device, &ctx->core.settings, NULL, ctx->core.pool, out);
	if (!rc) {
		sl_context_expect_exit(ctx, SL_EXIT_DEVICE);
		ctx->devices.staging[device->index] = *out;
	}
	sl_mutex_unlock(&ctx->devices.mutex);
	return rc;
}

struct sl_staging *sl_context_staging_of(struct sluice_context *ctx, const struct sl_device *device)
{
	return ctx->devices.staging[device->index];
}

int sluice_context_staging(sluice_context *ctx, int device, void *memory, size_t n)
{
	struct sl_device *found;
	struct sl_settings settings;
	struct sl_staging *own;
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	found = device < 0 ? NULL : sl_device_find((unsigned)device);
	if (!found)
		return sl_fail(-ENODEV, "there is no device %d", device);
	rc = sl_device_check_process();
	if (rc)
		return rc;
	if (!memory && !n) {
		sl_cufile_prepare(ctx->core.cufile, found);
		rc = sl_context_get_staging(ctx, found, &own);
		return rc ? rc : sl_staging_pin(own, SL_HALF_STREAM, 0);
	}
	if (!memory || (uintptr_t)memory % SL_SLOT_LEAST)
		return sl_fail(-EINVAL, "sluice_context_staging: memory is not a multiple of 4096");
	settings = ctx->core.settings;
	settings.staging_bytes = n;
	rc = n ? context_check_staging(&settings, false)
	       : sl_fail(-EINVAL, "sluice_context_staging: n is 0");
	if (rc)
		return rc;
	sl_mutex_lock(&ctx->devices.mutex);
	if (ctx->devices.staging[device])
		rc = sl_fail(-EBUSY, "the context has used %s already", found->name);
	else
		rc = sl_staging_start(found, &settings, memory, ctx->core.pool, &own);
	if (!rc) {
		sl_context_expect_exit(ctx, SL_EXIT_DEVICE);
		ctx->devices.staging[device] = own;
	}
	sl_mutex_unlock(&ctx->devices.mutex);
	return rc;
}

int sluice_register_buffer(sluice_context *ctx, void *memory, size_t length)
{
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!memory || !length)
		return sl_fail(-EINVAL, "sluice_register_buffer: %s",
		               memory ? "length is 0" : "memory is NULL");
	struct sl_device *device = sl_device_of_memory(memory);
	if (!device || sl_device_of_memory((char *)memory + length - 1) != device)
		return sl_fail(-EINVAL,
		               "sluice_register_buffer: %zu bytes at %p are not memory of a device",
		               length, memory);
	rc = sl_cufile_register(ctx->core.cufile, device, memory, length);
	if (!rc)
		sl_context_expect_exit(ctx, SL_EXIT_BACKEND);
	return rc;
}

int sluice_unregister_buffer(sluice_context *ctx, void *memory)
{
	int rc = sl_context_check(ctx);

	return rc ? rc : sl_cufile_unregister(ctx->core.cufile, memory);
}

/* ----------------------------------------------------------------------------------- threads */

static int context_start_uring(struct sl_core *core)
{
	int rc = core->kernel.uring_error;

	if (core->settings.choice == SL_CHOICE_POSIX && !rc)
		rc = -ECANCELED;
	if (!rc)
		rc = sl_uring_start(core, &core->uring);
	/* Only then: a reactor may have met an error already. */
	if (rc)
		core->kernel.uring_error = rc;
	if (rc && core->settings.choice == SL_CHOICE_URING)
		return sl_fail(-ENOSYS, "SLUICE_BACKEND is uring, but io_uring cannot be used: %s",
		               sl_error_text(rc));
	return 0;
}

#define CALLS        16  /* blocking calls for a file at a time; without io_uring its depth */
#define WAITING_MOST 512 /* threads that make them */

static int context_start_threads(struct sl_core *core)
{
	struct sl_settings *settings = &core->settings;
	unsigned cores = sl_cores();

	if (!settings->reactors)
		settings->reactors = cores >= 4 ? 2 : 1;
	if (!settings->http_reactors)
		settings->http_reactors = SL_MIN(cores, 64);
	int rc = context_start_uring(core);
	if (!rc)
		rc = sl_bounce_new(settings, &core->bounce);
	if (!rc)
		rc = sl_http_new(core, &core->http);
	if (!rc)
		rc = sl_cufile_new(core, &core->cufile);
	if (rc)
		return rc;
	settings->calls = settings->workers ? settings->workers : SL_MAX(cores, CALLS);
	settings->shared = !settings->workers;
	if (settings->shared)
		settings->workers = SL_MIN(cores, 256);
	rc = sl_pool_start("sluice-work", settings->workers, settings->workers, &core->pool);
	return rc ? rc : sl_pool_start("sluice-wait", 1, WAITING_MOST, &core->waiting);
}

/* All are joined before any is freed: a thread may still be waking another. */
static void context_stop_threads(struct sluice_context *ctx) SL_UNCHECKED
{
	struct sl_core *core = &ctx->core;

	for (unsigned i = 0; i < SL_DEVICES_MOST; i++)
		sl_staging_stop(ctx->devices.staging[i]);
	sl_pool_stop(ctx->opens.pool);
	sl_pool_stop(ctx->opens.looks);
	sl_pool_stop(core->waiting);
	sl_pool_stop(core->pool);
	sl_uring_stop(core->uring);
	sl_http_stop(core->http);
	sl_cufile_stop(core->cufile);
	for (unsigned i = 0; i < SL_DEVICES_MOST; i++)
		sl_staging_free(ctx->devices.staging[i]);
	sl_pool_free(ctx->opens.pool);
	sl_pool_free(ctx->opens.looks);
	sl_pool_free(core->waiting);
	sl_pool_free(core->pool);
	sl_uring_free(core->uring);
	sl_bounce_free(core->bounce);
	sl_http_free(core->http);
	sl_cufile_free(core->cufile);
}

/* No other thread knows the context yet. */
int sluice_context_new(const struct sluice_config *config, sluice_context **out) SL_UNCHECKED
{
	uint32_t process;

	if (!out)
		return sl_fail(-EINVAL, "sluice_context_new: out is NULL");
	int rc = sl_process_enter(&process);
	if (rc)
		return rc;
	sl_fork_hold(&leaving.mutex);
	struct sluice_context *ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return sl_fail(-ENOMEM, "no memory");
	ctx->process = process;
	atomic_init(&ctx->references, 1);
	sl_mutex_init(&ctx->files.mutex);
	sl_mutex_init(&ctx->devices.mutex);
	sl_mutex_init(&ctx->submission);
	sl_mutex_init(&ctx->opens.mutex);
	for (size_t i = 0; i < SL_OBJECT_BUCKETS; i++)
		sl_list_init(&ctx->files.objects[i]);
	sl_done_init(&ctx->done);
	ctx->done.process = process;
	ctx->done.context = ctx;
	rc = sl_settings_load(config, &ctx->core.settings);
	atomic_init(&ctx->operations.most, ctx->core.settings.max_operations);
	if (!rc)
		rc = context_check_staging(&ctx->core.settings, true);
	if (!rc) {
		sl_kernel_probe(ctx->core.settings.disable, &ctx->core.kernel);
		rc = context_start_threads(&ctx->core);
	}
	for (size_t i = 0; !rc && i < SL_SETTINGS_MOST; i++)
		sl_setting_print(i, &ctx->core.settings, ctx->texts[i], sizeof(ctx->texts[i]));
	if (rc) {
		context_stop_threads(ctx);
		context_destroy(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

int sluice_context_close(sluice_context *ctx)
{
	int rc = ctx ? sl_context_check(ctx) : 0;

	if (!ctx || rc)
		return rc;
	sl_mutex_lock(&ctx->files.mutex);
	unsigned files = ctx->files.count;
	sl_mutex_unlock(&ctx->files.mutex);
	if (files)
		return sl_fail(-EBUSY, "%u files are open", files);
	sl_mutex_lock(&leaving.mutex);
	if (sl_list_linked(&ctx->devices.link))
		sl_list_remove(&ctx->devices.link);
	sl_mutex_unlock(&leaving.mutex);
	context_stop_threads(ctx);
	sl_context_unref(ctx);
	return 0;
}

int sluice_context_setting(const sluice_context *ctx, size_t index, struct sluice_setting *out)
{
	struct sluice_setting setting = {0};
	int rc = ctx ? sl_context_check(ctx) : 0;

	if (rc)
		return rc;
	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_context_setting: out->size is not set");
	rc = sl_setting_describe(index, ctx ? &ctx->core.settings : NULL, &setting);
	if (rc)
		return sl_fail(rc, "there is no setting %zu", index);
	if (ctx)
		setting.value = ctx->texts[index];
	sl_struct_give(out, &setting, sizeof(setting));
	return 0;
}

int sl_context_check_keys(const struct sluice_context *ctx, const char *scheme, const void *options)
{
	int rc = sl_context_check(ctx);

	return rc ? rc : sl_http_check(&ctx->core, scheme, options);
}

int sluice_context_feature(const sluice_context *ctx, size_t index, struct sluice_feature *out)
{
	struct sluice_feature feature = {0};
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_context_feature: out->size is not set");
	if (index < SL_LOCAL_FEATURES)
		sl_local_feature(&ctx->core, index, &feature);
	else
		rc = sl_http_feature(&ctx->core, index - SL_LOCAL_FEATURES, &feature);
	if (rc)
		return sl_fail(rc, "there is no feature %zu", index);
	sl_struct_give(out, &feature, sizeof(feature));
	return 0;
}
