/* SPDX-License-Identifier: Apache-2.0 */
/* In a child of fork() each public function refuses a handle of the parent, and destructors do nothing. sluice_frames has
 * no thread and works in a child. */
#include <sys/wait.h>
#include <unistd.h>

#include "system/doors.h"

/* Results; structs have a size. */
static union {
	size_t size;
	char bytes[8192];
} result = {sizeof(size_t)};
#define RESULT ((void *)&result)
static void *out;
static size_t length;
static uint64_t count;
static int number;

static void inherited_files(void)
{
	struct sluice_extent extent = {h.bytes, 1, 0};
	struct sluice_request r = SLUICE_REQUEST_INIT;
	const char *uri = "/none";

	r.kind = SLUICE_READ;
	r.extents = &extent;
	r.count = 1;
	INHERITED(sluice_context_close(h.ctx));
	INHERITED(sluice_context_staging(h.ctx, 0, NULL, 0));
	INHERITED(sluice_register_buffer(h.ctx, h.device, 1));
	INHERITED(sluice_unregister_buffer(h.ctx, h.device));
	INHERITED(sluice_context_setting(h.ctx, 0, RESULT));
	INHERITED(sluice_context_feature(h.ctx, 0, RESULT));
	INHERITED(sluice_s3_check(h.ctx, NULL));
	INHERITED(sluice_open(h.ctx, uri, NULL, (sluice_file **)&out));
	INHERITED(sluice_list_open(h.ctx, uri, NULL, 0, (sluice_list **)&out));
	INHERITED(sluice_list_next(h.list, RESULT));
	QUIET(sluice_list_free(h.list));
	INHERITED(sluice_remove(h.ctx, uri, NULL, NULL));
	INHERITED(sluice_remove_many(h.ctx, &uri, 1, NULL, NULL, NULL));
	INHERITED(sluice_copy_object(h.ctx, "s3://a/b", "s3://a/c", NULL));
	INHERITED(sluice_presign(h.ctx, "GET", "s3://a/b", NULL, 1, (char **)&out, NULL));
	INHERITED(sluice_stat(h.file, RESULT));
	INHERITED(sluice_array_stat(h.file, RESULT));
	INHERITED(sluice_array_refresh(h.file));
	INHERITED(sluice_sync(h.file));
	INHERITED(sluice_truncate(h.file, 0));
	INHERITED(sluice_read(h.file, h.bytes, 1, 0, NULL));
	INHERITED(sluice_write(h.file, h.bytes, 1, 0, NULL));
	INHERITED(sluice_read_on(h.file, h.bytes, 1, 0, h.stream, NULL));
	INHERITED(sluice_write_on(h.file, h.bytes, 1, 0, h.stream, NULL));
	INHERITED(sluice_submit(h.file, &r, NULL));
	INHERITED(sluice_wait(h.op, 0));
	INHERITED(sluice_poll(h.op));
	QUIET(sluice_op_moved(h.op));
	INHERITED(sluice_cancel(h.op));
	INHERITED(sluice_op_fd(h.op));
	QUIET(sluice_op_message(h.op));
	QUIET(sluice_op_free(h.op));
	INHERITED(sluice_open_start(h.ctx, uri, NULL, NULL, NULL, (sluice_op **)&out));
	INHERITED(sluice_op_file(h.opening, (sluice_file **)&out));
	INHERITED(sluice_queue_next(sluice_context_queue(h.ctx), 0, (sluice_op **)&out));
	INHERITED(sluice_queue_next(h.queue, 0, (sluice_op **)&out));
	INHERITED(sluice_queue_fd(h.queue));
	QUIET(sluice_queue_free(h.queue));
	QUIET(sluice_discard(h.file));
	INHERITED(sluice_close(h.file));
}

static void inherited_devices(void)
{
	INHERITED(sluice_device_describe(0, RESULT));
	INHERITED(sluice_device_alloc(0, 1, &out));
	INHERITED(sluice_device_free(h.device));
	INHERITED(sluice_pinned_alloc(0, 1, &out));
	INHERITED(sluice_pinned_free(h.pinned));
	INHERITED(sluice_stream_new(0, (sluice_stream *)&out));
	INHERITED(sluice_stream_free(h.stream));
	INHERITED(sluice_stream_query(0, h.stream));
	INHERITED(sluice_stream_synchronize(0, h.stream));
	INHERITED(sluice_copy_on(h.device, h.bytes, 1, h.stream));
	INHERITED(sluice_copy(h.device, h.bytes, 1));
	INHERITED(sluice_event_new(0, (sluice_event *)&out));
	INHERITED(sluice_event_free(h.event));
	INHERITED(sluice_event_record(h.event, h.stream));
	INHERITED(sluice_event_await(h.event, h.stream));
	INHERITED(sluice_event_query(h.event));
	INHERITED(sluice_event_synchronize(h.event));
}

static void inherited_store(void)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	struct sluice_blob_request request = {"x", 1, -1, NULL};
	sluice_blob **blob = (sluice_blob **)&out;
	const char *name = "sealed";
	struct sluice_origin origin = {sizeof(origin), h.ctx, "s3://b/p", NULL, -1};

	INHERITED(sluice_blob_create(h.store, "x", 1, -1, NULL, blob));
	INHERITED(sluice_blob_create_many(h.store, &request, 1, blob));
	INHERITED(sluice_blob_warm(h.made, 0, 1));
	INHERITED(sluice_blob_set_metadata(h.made, &m));
	INHERITED(sluice_blob_seal(h.made));
	INHERITED(sluice_blob_seal_many(&h.made, 1));
	INHERITED(sluice_blob_seal_on(h.made, h.stream));
	INHERITED(sluice_blob_seal_many_on(&h.made, 1, h.stream));
	INHERITED(sluice_blob_wait_sealed(h.made, 0));
	INHERITED(sluice_blob_publish(h.store, "x", h.device, 1, NULL, blob));
	INHERITED(sluice_blob_adopt(h.made, &h.sealed, 1));
	INHERITED(sluice_blob_part(h.sealed, 0, blob));
	INHERITED(sluice_blob_get(h.store, name, 0, blob));
	INHERITED(sluice_blob_fetch(h.store, &origin, name, 1, blob));
	INHERITED(sluice_blob_refresh(h.store, &origin, name, &count));
	INHERITED(sluice_blob_push(h.store, &origin, name, 0));
	INHERITED(sluice_blob_delete_from(h.store, &origin, name));
	INHERITED(sluice_blob_get_id(h.store, 1, 0, blob));
	INHERITED(sluice_blob_get_on(h.store, name, 0, 0, blob));
	INHERITED(sluice_blob_get_many(h.store, &name, 1, 0, blob));
	INHERITED(sluice_blob_descriptor(h.sealed, &count, &number));
	INHERITED(sluice_blob_kind(h.sealed));
	INHERITED(sluice_blob_get_metadata(h.sealed, RESULT));
	INHERITED(sluice_blob_release(h.sealed));
	INHERITED(sluice_blob_release_many(&h.sealed, 1));
	INHERITED(sluice_blob_release_on(h.sealed, h.stream));
	INHERITED(sluice_blob_to_dlpack(h.sealed, 1, &out));
	INHERITED(sluice_blob_delete(h.store, name));
	INHERITED(sluice_blob_delete_id(h.store, 1));
	INHERITED(sluice_blob_exists(h.store, name));
	INHERITED(sluice_blob_pin(h.store, name, 1));
	INHERITED(sluice_blob_stat(h.store, name, RESULT));
	INHERITED(sluice_blob_list(h.store, NULL, &count, RESULT, 1));
	INHERITED(sluice_store_stats(h.store, RESULT));
	INHERITED(sluice_store_trim(h.store, &count));
	INHERITED(sluice_store_upgrade(h.store));
	INHERITED(sluice_store_stop(h.store));
	INHERITED(sluice_store_device(h.store, 0, RESULT));
	INHERITED(sluice_watch_open(h.store, NULL, (sluice_watch **)&out));
	INHERITED(sluice_watch_fd(h.watch));
	INHERITED(sluice_watch_next(h.watch, 0, RESULT));
	QUIET(sluice_watch_free(h.watch));
	INHERITED(sluice_store_close(h.store));
}

static void inherited_tensors(void)
{
	sluice_collection **collection = (sluice_collection **)&out;
	struct sluice_digest digest;
	const char *text, *uri = "/none";
	struct sluice_origin origin = {sizeof(origin), h.ctx, "s3://b/p", NULL, -1};

	INHERITED(sluice_tensors_open(h.ctx, &uri, 1, NULL, (sluice_tensors **)&out));
	INHERITED(sluice_tensors_get(h.tensors, 0, RESULT));
	INHERITED(sluice_tensors_find(h.tensors, "a", &length));
	INHERITED(sluice_tensors_file(h.tensors, 0, RESULT));
	INHERITED(sluice_tensors_metadata(h.tensors, 0, 0, &text, &text));
	INHERITED(
		sluice_tensors_slice(h.tensors, 0, 0, 0, 1, 0, (struct sluice_tensor_range *)&out));
	INHERITED(sluice_tensor_plan_new(h.tensors, NULL, 0, (sluice_tensor_plan **)&out));
	INHERITED(sluice_tensor_plan_item(h.plan, 0, RESULT));
	INHERITED(sluice_tensor_to_dlpack(h.plan, 0, h.memory, 1, &out));
	INHERITED(sluice_tensor_plan_read(h.plan, h.memory, NULL, (sluice_tensor_load **)&out));
	INHERITED(sluice_collection_new(h.store, "x", NULL, 0, NULL, collection));
	INHERITED(sluice_collection_publish(h.store, "x", NULL, 0, NULL, collection));
	INHERITED(sluice_collection_publish_files(h.store, "x", h.tensors, NULL, 0, -1, NULL, NULL,
	                                          collection));
	INHERITED(sluice_collection_attach(h.store, "collection", -1, 0, collection));
	INHERITED(sluice_collection_fetch(h.store, &origin, "collection", 1, collection));
	INHERITED(sluice_collection_attach_id(h.store, 1, 0, collection));
	INHERITED(sluice_collection_get(h.collection, 0, RESULT));
	INHERITED(sluice_collection_find(h.collection, "a", &length));
	INHERITED(sluice_collection_get_file(h.collection, 0, RESULT));
	INHERITED(sluice_collection_to_dlpack(h.collection, 0, 1, &out));
	INHERITED(sluice_collection_release(h.collection));
	INHERITED(sluice_tensor_load_wait(h.load, 0));
	QUIET(sluice_tensor_load_progress(h.load, &count, &count));
	QUIET(sluice_tensor_load_cancel(h.load));
	QUIET(sluice_tensor_load_message(h.load));
	QUIET(sluice_tensor_load_free(h.load));
	QUIET(sluice_tensor_memory_free(h.memory));
	QUIET(sluice_tensor_plan_free(h.plan));
	QUIET(sluice_tensors_free(h.tensors));
	INHERITED(sluice_file_digest(h.file, SLUICE_SHA256, &digest));
}

static void inherited_frames(void)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	sluice_series **s = (sluice_series **)&out;

	INHERITED(sluice_writer_open(h.ctx, "/none", NULL, (sluice_writer **)&out));
	INHERITED(sluice_writer_flush(h.writer, 0));
	INHERITED(sluice_series_add(h.writer, "b", &o, s));
	INHERITED(sluice_series_acquire(h.series, 0, &out));
	INHERITED(sluice_series_submit(h.series, h.frame, NULL));
	INHERITED(sluice_series_discard(h.series, h.frame));
	INHERITED(sluice_series_push(h.series, h.bytes, NULL, 0));
	INHERITED(sluice_series_submit_on(h.series, h.device, NULL, h.stream, 0));
	INHERITED(sluice_writer_add_coordinate(h.writer, "x", SLUICE_UINT8, 1, h.bytes, NULL, 0));
	INHERITED(sluice_writer_attributes(h.writer, NULL, 0));
	INHERITED(sluice_series_attributes(h.series, NULL, 0));
	INHERITED(sluice_series_keep_memory(h.series, &out, &length));
	INHERITED(sluice_writer_stats(h.writer, RESULT));
	INHERITED(sluice_series_stats(h.series, RESULT));
	INHERITED(sluice_writer_error(h.writer, RESULT));
	QUIET(sluice_writer_discard(h.writer));
	INHERITED(sluice_writer_close(h.writer, 0));
}

DOORS_TEST(a_child_is_refused_by_each_function)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(60);
		judge_begin();
		inherited_devices();
		inherited_store();
		inherited_tensors();
		inherited_frames();
		inherited_files();
		_exit(judge_end() != 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent goes on: teardown asserts that it can give up each handle. */
	assert_int_equal(sluice_tensor_load_wait(h.load, 0), 4);
	assert_ok(sluice_blob_seal(h.made));
	assert_ok(sluice_blob_delete(h.store, "made"));
}
