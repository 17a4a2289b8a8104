/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

int sl_context_check(const struct sluice_context *ctx)
{
	if (sl_forked())
		return sl_fail(-ECHILD, "this process was forked: sluice belongs to its parent");
	if (!ctx)
		return sl_fail(-EINVAL, "the context is NULL");
	return 0;
}

static void context_destroy(struct sluice_context *ctx)
{
	sl_done_destroy(&ctx->done);
	pthread_mutex_destroy(&ctx->files.mutex);
	free(ctx);
}

void sl_context_unref(struct sluice_context *ctx)
{
	if (atomic_fetch_sub(&ctx->references, 1) == 1)
		context_destroy(ctx);
}

static int start_uring(struct sl_core *core)
{
	int rc = core->kernel.uring_error;

	if (core->settings.choice == SL_CHOICE_POSIX && !rc)
		rc = -ECANCELED;
	if (!rc)
		rc = sl_uring_start(&core->settings, &core->uring);
	core->kernel.uring_error = rc;
	if (rc && core->settings.choice == SL_CHOICE_URING)
		return sl_fail(-ENOSYS, "SLUICE_BACKEND is uring, but io_uring cannot be used: %s",
		               sl_error_text(rc));
	return 0;
}

static int start_threads(struct sl_core *core)
{
	struct sl_settings *settings = &core->settings;
	unsigned cores = sl_cores();
	int rc;

	if (!settings->reactors)
		settings->reactors = cores >= 4 ? 2 : 1;
	if (!settings->http_reactors)
		settings->http_reactors = SL_MIN(cores, 4);
	rc = start_uring(core);
	if (!rc)
		rc = sl_bounce_new(settings, &core->bounce);
	if (!rc)
		rc = sl_http_new(core, &core->http);
	if (rc)
		return rc;
	/* Without io_uring the workers are also the depth at which the disk is asked. */
	if (!settings->workers)
		settings->workers = SL_MIN(core->uring ? cores : SL_MAX(cores, 16), 256);
	return sl_pool_start(settings->workers, &core->pool);
}

/* All are joined before any is freed: one may still be waking another. */
static void stop_threads(struct sl_core *core)
{
	sl_pool_stop(core->pool);
	sl_uring_stop(core->uring);
	sl_http_stop(core->http);
	sl_pool_free(core->pool);
	sl_uring_free(core->uring);
	sl_bounce_free(core->bounce);
	sl_http_free(core->http);
}

int sluice_context_new(const struct sluice_config *config, sluice_context **out)
{
	struct sluice_context *ctx;
	int rc;

	if (!out)
		return sl_fail(-EINVAL, "sluice_context_new: out is NULL");
	rc = sl_fork_enter();
	if (rc)
		return rc;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx) {
		sl_fork_leave();
		return sl_fail(-ENOMEM, "no memory");
	}
	atomic_init(&ctx->references, 1);
	pthread_mutex_init(&ctx->files.mutex, NULL);
	for (size_t i = 0; i < SL_OBJECT_BUCKETS; i++)
		sl_list_init(&ctx->files.objects[i]);
	sl_done_init(&ctx->done);
	rc = sl_settings_load(config, &ctx->core.settings);
	if (!rc) {
		sl_kernel_probe(ctx->core.settings.disable, &ctx->core.kernel);
		rc = start_threads(&ctx->core);
	}
	for (size_t i = 0; !rc && i < SL_SETTINGS_MOST; i++)
		sl_setting_print(i, &ctx->core.settings, ctx->texts[i], sizeof(ctx->texts[i]));
	if (rc) {
		stop_threads(&ctx->core);
		context_destroy(ctx);
		sl_fork_leave();
		return rc;
	}
	*out = ctx;
	return 0;
}

int sluice_context_free(sluice_context *ctx)
{
	unsigned files;

	if (!ctx)
		return 0;
	if (sl_forked())
		return sl_context_check(ctx);
	pthread_mutex_lock(&ctx->files.mutex);
	files = ctx->files.count;
	pthread_mutex_unlock(&ctx->files.mutex);
	if (files)
		return sl_fail(-EBUSY, "%u files are open", files);
	stop_threads(&ctx->core);
	sl_context_unref(ctx);
	sl_fork_leave();
	return 0;
}

int sluice_context_setting(const sluice_context *ctx, size_t index, struct sluice_setting *out)
{
	struct sluice_setting setting = {0};
	int rc;

	if (sl_forked())
		return sl_context_check(ctx);
	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_context_setting: out->size is not set");
	rc = sl_setting_describe(index, ctx ? &ctx->core.settings : NULL, &setting);
	if (rc)
		return sl_fail(rc, "there is no setting %zu", index);
	if (ctx)
		setting.value = ctx->texts[index];
	setting.size = out->size;
	memcpy(out, &setting, SL_MIN(out->size, sizeof(setting)));
	return 0;
}

int sluice_context_feature(const sluice_context *ctx, size_t index, struct sluice_feature *out)
{
	struct sluice_feature feature = {0};
	int rc = sl_context_check(ctx);

	if (rc)
		return rc;
	if (!out || out->size < sizeof(out->size))
		return sl_fail(-EINVAL, "sluice_context_feature: out->size is not set");
	rc = sl_kernel_feature(&ctx->core, index, &feature);
	if (rc)
		return sl_fail(rc, "there is no feature %zu", index);
	feature.size = out->size;
	memcpy(out, &feature, SL_MIN(out->size, sizeof(feature)));
	return 0;
}
