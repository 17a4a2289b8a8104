/* SPDX-License-Identifier: Apache-2.0 */
#include "system/doors.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

struct handles h;
static char folder[300];

/* ------------------------------------------------------------------------------------ handles */

int doors_setup(void **state)
{
	static const char header[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
	struct sluice_series_options series = SLUICE_SERIES_OPTIONS_INIT;
	struct sluice_tensor_want want = {0};
	char path[400];
	const char *uris[] = {path};
	uint64_t length = sizeof(header) - 1;

	assert_int_equal(daemon_setup(state), 0);
	memset(&h, 0, sizeof(h));
	h.d = *state;
	snprintf(folder, sizeof(folder), "%s.d", h.d->path);
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_ok(sluice_context_new(NULL, &h.ctx));
	snprintf(path, sizeof(path), "%s/a.safetensors", folder);
	file_write(path, &length, 8, 0);
	file_write(path, header, length, 8);
	file_write(path, "abcd", 4, 8 + length);
	h.file = open_read(h.ctx, path);
	h.op = start_read(h.file, h.bytes, 4, 0);
	assert_int_equal(sluice_wait(h.op, PATIENCE_MS), 4);
	assert_ok(sluice_open_start(h.ctx, "/dev/zero", NULL, NULL, NULL, &h.opening));
	sluice_wait(h.opening, PATIENCE_MS);
	assert_ok(sluice_queue_new(&h.queue));
	assert_ok(sluice_list_open(h.ctx, folder, NULL, 0, &h.list));
	assert_ok(sluice_tensors_open(h.ctx, uris, 1, NULL, &h.tensors));
	assert_ok(sluice_tensor_plan_new(h.tensors, &want, 1, &h.plan));
	assert_ok(sluice_tensor_memory_new(-1, BYTES, &h.memory));
	assert_ok(sluice_tensor_plan_read(h.plan, h.memory, NULL, &h.load));
	assert_int_equal(sluice_tensor_load_wait(h.load, PATIENCE_MS), 4);
	snprintf(path, sizeof(path), "%s/a.h5", folder);
	assert_ok(sluice_writer_open(h.ctx, path, NULL, &h.writer));
	series.type = SLUICE_UINT8;
	series.rank = 1;
	series.shape[0] = BYTES;
	series.depth = 2;
	assert_ok(sluice_series_add(h.writer, "a", &series, &h.series));
	assert_ok(sluice_series_acquire(h.series, 0, &h.frame));
	snprintf(path, sizeof(path), "%s/a.safetensors", folder);
	assert_ok(sluice_frames_open(path, &h.frames));
	h.store = h.d->store;
	begin_with(h.store, 0);
	assert_ok(sluice_blob_create(h.store, "made", BYTES, -1, NULL, &h.made));
	h.sealed = put_on(h.store, "sealed", BYTES, -1, 0);
	assert_ok(sluice_collection_publish_files(h.store, "collection", h.tensors, NULL, 0, -1,
	                                          NULL, NULL, &h.collection));
	assert_ok(sluice_watch_open(h.store, NULL, &h.watch));
	assert_ok(sluice_device_alloc(0, BYTES, &h.device));
	assert_ok(sluice_pinned_alloc(0, BYTES, &h.pinned));
	assert_ok(sluice_stream_new(0, &h.stream));
	assert_ok(sluice_event_new(0, &h.event));
	return 0;
}

int doors_teardown(void **state)
{
	char path[400];

	assert_ok(sluice_event_free(h.event));
	assert_ok(sluice_stream_free(h.stream));
	assert_ok(sluice_pinned_free(h.pinned));
	assert_ok(sluice_device_free(h.device));
	sluice_watch_free(h.watch);
	assert_ok(sluice_collection_release(h.collection));
	assert_ok(sluice_blob_delete(h.store, "collection"));
	assert_ok(sluice_blob_release(h.made));
	assert_ok(sluice_blob_release(h.sealed));
	assert_ok(sluice_blob_delete(h.store, "sealed"));
	sluice_frames_free(h.frames);
	assert_ok(sluice_writer_close(h.writer, PATIENCE_MS));
	sluice_tensor_load_free(h.load);
	sluice_tensor_memory_free(h.memory);
	sluice_tensor_plan_free(h.plan);
	sluice_tensors_free(h.tensors);
	sluice_list_free(h.list);
	sluice_queue_free(h.queue);
	sluice_op_free(h.opening);
	sluice_op_free(h.op);
	assert_ok(sluice_close(h.file));
	snprintf(path, sizeof(path), "%s/a.h5", folder);
	assert_ok(sluice_remove(h.ctx, path, NULL, NULL));
	snprintf(path, sizeof(path), "%s/a.safetensors", folder);
	assert_ok(sluice_remove(h.ctx, path, NULL, NULL));
	assert_int_equal(rmdir(folder), 0);
	assert_ok(sluice_context_close(h.ctx));
	return daemon_teardown(state);
}

/* ---------------------------------------------------------------------------------- judgement */

sigjmp_buf judge_fault;
static int wrong;

static void on_fault(int signal)
{
	siglongjmp(judge_fault, signal);
}

void judge(const char *call, int64_t rc, int64_t expected)
{
	if (rc == expected && (rc >= 0 || *sluice_last_message()))
		return;
	wrong++;
	fprintf(stderr, "%s: %lld, not %lld: \"%s\"\n", call, (long long)rc, (long long)expected,
	        sluice_last_message());
}

void judge_begin(void)
{
	wrong = 0;
	signal(SIGSEGV, on_fault);
	signal(SIGBUS, on_fault);
}

int judge_end(void)
{
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	return wrong;
}

int main(void)
{
	static const char *const options[] = {"--memory", "64M", NULL};

	daemon_options = options;
	return RUN_FILES("doors_null", "doors_fork", "doors_time_out");
}
