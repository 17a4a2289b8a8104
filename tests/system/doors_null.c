/* SPDX-License-Identifier: Apache-2.0 */
/* Each public function refuses NULL for each pointer that has to be there, and a struct whose size is not set. */
#include "system/doors.h"

/* Structs whose size is not set, and results. */
static union {
	size_t size;
	char bytes[8192];
} none;
#define NONE ((void *)&none)
static void *out, *other;
static int number;
static size_t length;
static uint64_t count;

static void null_in_files(void)
{
	struct sluice_request r = SLUICE_REQUEST_INIT;
	const char *uri = "/none";

	REFUSED(sluice_context_new(NULL, NULL));
	QUIET(sluice_context_close(NULL));
	REFUSED(sluice_context_staging(NULL, 0, NULL, 0));
	REFUSED(sluice_context_staging(h.ctx, 0, NULL, BYTES));
	REFUSED(sluice_register_buffer(NULL, h.device, 1));
	REFUSED(sluice_register_buffer(h.ctx, NULL, 1));
	REFUSED(sluice_unregister_buffer(NULL, h.device));
	REFUSED(sluice_unregister_buffer(h.ctx, NULL));
	REFUSED(sluice_context_setting(h.ctx, 0, NULL));
	REFUSED(sluice_context_setting(h.ctx, 0, NONE));
	REFUSED(sluice_context_feature(NULL, 0, NONE));
	REFUSED(sluice_context_feature(h.ctx, 0, NULL));
	REFUSED(sluice_context_feature(h.ctx, 0, NONE));
	REFUSED(sluice_uri_name(NULL, h.bytes, 1));
	REFUSED(sluice_uri_name(uri, NULL, 1));
	REFUSED(sluice_size_parse(NULL, &count));
	REFUSED(sluice_size_parse("1", NULL));
	REFUSED(sluice_s3_check(NULL, NULL));
	REFUSED(sluice_open(NULL, uri, NULL, (sluice_file **)&out));
	REFUSED(sluice_open(h.ctx, NULL, NULL, (sluice_file **)&out));
	REFUSED(sluice_open(h.ctx, uri, NONE, (sluice_file **)&out));
	REFUSED(sluice_open(h.ctx, uri, NULL, NULL));
	REFUSED(sluice_list_open(NULL, uri, NULL, 0, (sluice_list **)&out));
	REFUSED(sluice_list_open(h.ctx, NULL, NULL, 0, (sluice_list **)&out));
	REFUSED(sluice_list_open(h.ctx, uri, NULL, 0, NULL));
	REFUSED(sluice_list_next(NULL, NONE));
	REFUSED(sluice_list_next(h.list, NULL));
	REFUSED(sluice_list_next(h.list, NONE));
	QUIET(sluice_list_free(NULL));
	REFUSED(sluice_remove(NULL, uri, NULL, NULL));
	REFUSED(sluice_remove(h.ctx, NULL, NULL, NULL));
	REFUSED(sluice_remove_many(NULL, &uri, 1, NULL, NULL, NULL));
	REFUSED(sluice_remove_many(h.ctx, NULL, 1, NULL, NULL, NULL));
	REFUSED(sluice_remove_many(h.ctx, (const char *const *)&other, 1, NULL, NULL, NULL));
	REFUSED(sluice_copy_object(NULL, uri, uri, NULL));
	REFUSED(sluice_copy_object(h.ctx, NULL, uri, NULL));
	REFUSED(sluice_copy_object(h.ctx, uri, NULL, NULL));
	REFUSED(sluice_presign(NULL, "GET", uri, NULL, 1, (char **)&out, NULL));
	REFUSED(sluice_presign(h.ctx, NULL, uri, NULL, 1, (char **)&out, NULL));
	REFUSED(sluice_presign(h.ctx, "GET", NULL, NULL, 1, (char **)&out, NULL));
	REFUSED(sluice_presign(h.ctx, "GET", uri, NULL, 1, NULL, NULL));
	QUIET(sluice_close(NULL));
	QUIET(sluice_discard(NULL));
	REFUSED(sluice_stat(NULL, NONE));
	REFUSED(sluice_stat(h.file, NULL));
	REFUSED(sluice_stat(h.file, NONE));
	REFUSED(sluice_sync(NULL));
	REFUSED(sluice_truncate(NULL, 0));
	REFUSED(sluice_read(NULL, h.bytes, 1, 0, NULL));
	REFUSED(sluice_read(h.file, NULL, 1, 0, NULL));
	REFUSED(sluice_write(NULL, h.bytes, 1, 0, NULL));
	REFUSED(sluice_read_on(NULL, h.bytes, 1, 0, h.stream, NULL));
	REFUSED(sluice_read_on(h.file, NULL, 1, 0, h.stream, NULL));
	REFUSED(sluice_write_on(NULL, h.bytes, 1, 0, h.stream, NULL));
	REFUSED(sluice_submit(NULL, &r, NULL));
	REFUSED(sluice_submit(h.file, NULL, NULL));
	REFUSED(sluice_submit(h.file, NONE, NULL));
	r.kind = SLUICE_READ;
	r.count = 1;
	REFUSED(sluice_submit(h.file, &r, NULL));
	REFUSED(sluice_wait(NULL, 0));
	REFUSED(sluice_poll(NULL));
	QUIET(sluice_op_moved(NULL));
	REFUSED(sluice_cancel(NULL));
	REFUSED(sluice_op_fd(NULL));
	QUIET(sluice_op_user(NULL));
	QUIET(sluice_op_message(NULL));
	QUIET(sluice_op_free(NULL));
	REFUSED(sluice_open_start(NULL, uri, NULL, NULL, NULL, (sluice_op **)&out));
	REFUSED(sluice_open_start(h.ctx, NULL, NULL, NULL, NULL, (sluice_op **)&out));
	REFUSED(sluice_open_start(h.ctx, uri, NONE, NULL, NULL, (sluice_op **)&out));
	REFUSED(sluice_open_start(h.ctx, uri, NULL, NULL, NULL, NULL));
	REFUSED(sluice_op_file(NULL, (sluice_file **)&out));
	REFUSED(sluice_op_file(h.op, NULL));
	QUIET(sluice_context_queue(NULL));
	REFUSED(sluice_queue_new(NULL));
	REFUSED(sluice_queue_next(NULL, 0, (sluice_op **)&out));
	REFUSED(sluice_queue_next(h.queue, 0, NULL));
	REFUSED(sluice_queue_fd(NULL));
	QUIET(sluice_queue_free(NULL));
}

static void null_in_devices(void)
{
	REFUSED(sluice_device_describe(0, NULL));
	REFUSED(sluice_device_describe(0, NONE));
	REFUSED(sluice_device_feature(0, NULL));
	REFUSED(sluice_device_feature(0, NONE));
	REFUSED(sluice_device_find(NULL, &number));
	REFUSED(sluice_device_find("emulated", NULL));
	QUIET(sluice_device_of(NULL));
	REFUSED(sluice_device_alloc(0, 1, NULL));
	QUIET(sluice_device_free(NULL));
	REFUSED(sluice_pinned_alloc(0, 1, NULL));
	QUIET(sluice_pinned_free(NULL));
	REFUSED(sluice_stream_new(0, NULL));
	QUIET(sluice_stream_free(NULL));
	REFUSED(sluice_copy_on(NULL, h.device, 1, h.stream));
	REFUSED(sluice_copy_on(h.device, NULL, 1, h.stream));
	REFUSED(sluice_copy(NULL, h.device, 1));
	REFUSED(sluice_copy(h.device, NULL, 1));
	REFUSED(sluice_event_new(0, NULL));
	QUIET(sluice_event_free(NULL));
	REFUSED(sluice_event_record(NULL, h.stream));
	REFUSED(sluice_event_await(NULL, h.stream));
	REFUSED(sluice_event_query(NULL));
	REFUSED(sluice_event_synchronize(NULL));
}

static void null_in_store(void)
{
	struct sluice_blob_metadata m = SLUICE_BLOB_METADATA_INIT;
	sluice_blob **blob = (sluice_blob **)&out;
	sluice_blob *const *nothing = (sluice_blob *const *)&other;
	struct sluice_origin origin = {.size = sizeof(origin), .uri = "s3://b/p", .device = -1};

	REFUSED(sluice_store_open(h.d->path, NONE, (sluice_store **)&out));
	REFUSED(sluice_store_open(h.d->path, NULL, NULL));
	QUIET(sluice_store_close(NULL));
	REFUSED(sluice_blob_create(NULL, "x", 1, -1, NULL, blob));
	REFUSED(sluice_blob_create(h.store, "x", 1, -1, NONE, blob));
	REFUSED(sluice_blob_create(h.store, "x", 1, -1, NULL, NULL));
	REFUSED(sluice_blob_create_many(NULL, NONE, 1, blob));
	REFUSED(sluice_blob_create_many(h.store, NULL, 1, blob));
	REFUSED(sluice_blob_create_many(h.store, NONE, 1, NULL));
	QUIET(sluice_blob_mutable_data(NULL));
	REFUSED(sluice_blob_warm(NULL, 0, 1));
	REFUSED(sluice_blob_set_metadata(NULL, &m));
	REFUSED(sluice_blob_set_metadata(h.made, NULL));
	REFUSED(sluice_blob_set_metadata(h.made, NONE));
	REFUSED(sluice_blob_seal(NULL));
	REFUSED(sluice_blob_seal_many(NULL, 1));
	REFUSED(sluice_blob_seal_many(nothing, 1));
	REFUSED(sluice_blob_seal_on(NULL, h.stream));
	REFUSED(sluice_blob_seal_many_on(NULL, 1, h.stream));
	REFUSED(sluice_blob_seal_many_on(nothing, 1, h.stream));
	REFUSED(sluice_blob_wait_sealed(NULL, 0));
	REFUSED(sluice_blob_publish(NULL, "x", h.device, 1, NULL, blob));
	REFUSED(sluice_blob_publish(h.store, "x", NULL, 1, NULL, blob));
	REFUSED(sluice_blob_publish(h.store, "x", h.device, 1, NULL, NULL));
	REFUSED(sluice_blob_adopt(NULL, nothing, 1));
	REFUSED(sluice_blob_adopt(h.made, NULL, 1));
	REFUSED(sluice_blob_adopt(h.made, nothing, 1));
	QUIET(sluice_blob_parts(NULL));
	REFUSED(sluice_blob_part(NULL, 0, blob));
	REFUSED(sluice_blob_part(h.sealed, 0, NULL));
	REFUSED(sluice_blob_get(NULL, "x", 0, blob));
	REFUSED(sluice_blob_get(h.store, NULL, 0, blob));
	REFUSED(sluice_blob_get(h.store, "x", 0, NULL));
	REFUSED(sluice_blob_fetch(NULL, &origin, "x", 0, blob));
	REFUSED(sluice_blob_fetch(h.store, NULL, "x", 0, blob));
	REFUSED(sluice_blob_fetch(h.store, NONE, "x", 0, blob));
	REFUSED(sluice_blob_fetch(h.store, &origin, NULL, 0, blob));
	REFUSED(sluice_blob_fetch(h.store, &origin, "x", 0, NULL));
	REFUSED(sluice_blob_fetch(h.store, &origin, "x", 1, blob));
	REFUSED(sluice_blob_refresh(NULL, &origin, "x", &count));
	REFUSED(sluice_blob_refresh(h.store, &origin, "x", &count));
	REFUSED(sluice_blob_refresh(h.store, NULL, "x", &count));
	REFUSED(sluice_blob_refresh(h.store, &origin, NULL, &count));
	REFUSED(sluice_blob_push(NULL, &origin, "x", 0));
	REFUSED(sluice_blob_push(h.store, &origin, "x", 0));
	REFUSED(sluice_blob_push(h.store, NULL, "x", 0));
	REFUSED(sluice_blob_push(h.store, &origin, NULL, 0));
	REFUSED(sluice_blob_delete_from(NULL, &origin, "x"));
	REFUSED(sluice_blob_delete_from(h.store, &origin, "x"));
	REFUSED(sluice_blob_delete_from(h.store, NULL, "x"));
	REFUSED(sluice_blob_delete_from(h.store, &origin, NULL));
	REFUSED(sluice_blob_origin(NULL, NONE));
	REFUSED(sluice_blob_origin(h.sealed, NULL));
	REFUSED(sluice_blob_origin(h.sealed, NONE));
	REFUSED(sluice_blob_get_id(NULL, 1, 0, blob));
	REFUSED(sluice_blob_get_id(h.store, 1, 0, NULL));
	REFUSED(sluice_blob_get_on(NULL, "x", 0, 0, blob));
	REFUSED(sluice_blob_get_on(h.store, NULL, 0, 0, blob));
	REFUSED(sluice_blob_get_on(h.store, "x", 0, 0, NULL));
	REFUSED(sluice_blob_get_many(NULL, (const char *const *)&other, 1, 0, blob));
	REFUSED(sluice_blob_get_many(h.store, NULL, 1, 0, blob));
	REFUSED(sluice_blob_get_many(h.store, (const char *const *)&other, 1, 0, blob));
	QUIET(sluice_blob_data(NULL));
	REFUSED(sluice_blob_descriptor(NULL, &count, &number));
	REFUSED(sluice_blob_descriptor(h.sealed, NULL, &number));
	REFUSED(sluice_blob_descriptor(h.sealed, &count, NULL));
	QUIET(sluice_blob_size(NULL));
	QUIET(sluice_blob_device(NULL));
	REFUSED(sluice_blob_kind(NULL));
	QUIET(sluice_blob_id(NULL));
	QUIET(sluice_blob_name(NULL));
	REFUSED(sluice_blob_get_metadata(NULL, NONE));
	REFUSED(sluice_blob_get_metadata(h.sealed, NULL));
	REFUSED(sluice_blob_get_metadata(h.sealed, NONE));
	QUIET(sluice_blob_release(NULL));
	REFUSED(sluice_blob_release_many(NULL, 1));
	QUIET(sluice_blob_release_many(nothing, 1));
	QUIET(sluice_blob_release_on(NULL, h.stream));
	REFUSED(sluice_blob_to_dlpack(NULL, 1, &out));
	REFUSED(sluice_blob_to_dlpack(h.sealed, 1, NULL));
	REFUSED(sluice_blob_delete(NULL, "x"));
	REFUSED(sluice_blob_delete(h.store, NULL));
	REFUSED(sluice_blob_delete_id(NULL, 1));
	REFUSED(sluice_blob_exists(NULL, "x"));
	REFUSED(sluice_blob_exists(h.store, NULL));
	REFUSED(sluice_blob_pin(NULL, "x", 1));
	REFUSED(sluice_blob_pin(h.store, NULL, 1));
	REFUSED(sluice_blob_stat(NULL, "x", NONE));
	REFUSED(sluice_blob_stat(h.store, NULL, NONE));
	REFUSED(sluice_blob_stat(h.store, "x", NULL));
	REFUSED(sluice_blob_stat(h.store, "x", NONE));
	REFUSED(sluice_blob_list(NULL, NULL, &count, NONE, 1));
	REFUSED(sluice_blob_list(h.store, NULL, NULL, NONE, 1));
	REFUSED(sluice_blob_list(h.store, NULL, &count, NULL, 1));
	REFUSED(sluice_blob_list(h.store, NULL, &count, NONE, 1));
	REFUSED(sluice_store_stats(NULL, NONE));
	REFUSED(sluice_store_stats(h.store, NULL));
	REFUSED(sluice_store_stats(h.store, NONE));
	REFUSED(sluice_store_trim(NULL, &count));
	QUIET(sluice_store_trim(h.store, NULL));
	REFUSED(sluice_store_upgrade(NULL));
	REFUSED(sluice_store_stop(NULL));
	REFUSED(sluice_store_device(NULL, 0, NONE));
	REFUSED(sluice_store_device(h.store, 0, NULL));
	REFUSED(sluice_store_device(h.store, 0, NONE));
	REFUSED(sluice_watch_open(NULL, NULL, (sluice_watch **)&out));
	REFUSED(sluice_watch_open(h.store, NULL, NULL));
	REFUSED(sluice_watch_fd(NULL));
	REFUSED(sluice_watch_next(NULL, 0, NONE));
	REFUSED(sluice_watch_next(h.watch, 0, NULL));
	REFUSED(sluice_watch_next(h.watch, 0, NONE));
	QUIET(sluice_watch_free(NULL));
}

static void null_in_collections(void)
{
	sluice_collection **c = (sluice_collection **)&out;
	struct sluice_collection_tensor unset = {0};
	struct sluice_origin origin = {.size = sizeof(origin), .uri = "s3://b/p", .device = -1};

	REFUSED(sluice_collection_new(NULL, "x", NULL, 0, NULL, c));
	REFUSED(sluice_collection_new(h.store, "x", NULL, 1, NULL, c));
	REFUSED(sluice_collection_new(h.store, "x", &unset, 1, NULL, c));
	REFUSED(sluice_collection_new(h.store, "x", NULL, 0, NONE, c));
	REFUSED(sluice_collection_new(h.store, "x", NULL, 0, NULL, NULL));
	REFUSED(sluice_collection_publish(NULL, "x", NULL, 0, NULL, c));
	REFUSED(sluice_collection_publish(h.store, "x", NULL, 1, NULL, c));
	REFUSED(sluice_collection_publish(h.store, "x", NULL, 0, NULL, NULL));
	REFUSED(sluice_collection_publish_files(NULL, "x", h.tensors, NULL, 0, -1, NULL, NULL, c));
	REFUSED(sluice_collection_publish_files(h.store, "x", NULL, NULL, 0, -1, NULL, NULL, c));
	REFUSED(sluice_collection_publish_files(h.store, "x", h.tensors, NULL, 0, -1, NULL, NULL,
	                                        NULL));
	REFUSED(sluice_collection_attach(NULL, "collection", -1, 0, c));
	REFUSED(sluice_collection_attach(h.store, NULL, -1, 0, c));
	REFUSED(sluice_collection_attach(h.store, "collection", -1, 0, NULL));
	REFUSED(sluice_collection_fetch(NULL, &origin, "x", 0, c));
	REFUSED(sluice_collection_fetch(h.store, NULL, "x", 0, c));
	REFUSED(sluice_collection_fetch(h.store, NONE, "x", 0, c));
	REFUSED(sluice_collection_fetch(h.store, &origin, NULL, 0, c));
	REFUSED(sluice_collection_fetch(h.store, &origin, "x", 0, NULL));
	REFUSED(sluice_collection_fetch(h.store, &origin, "x", 1, c));
	REFUSED(sluice_collection_attach_id(NULL, 1, 0, c));
	REFUSED(sluice_collection_attach_id(h.store, 1, 0, NULL));
	QUIET(sluice_collection_release(NULL));
	QUIET(sluice_collection_count(NULL));
	QUIET(sluice_collection_blob(NULL));
	REFUSED(sluice_collection_get(NULL, 0, NONE));
	REFUSED(sluice_collection_get(h.collection, 0, NULL));
	REFUSED(sluice_collection_get(h.collection, 0, NONE));
	REFUSED(sluice_collection_find(NULL, "a", &length));
	REFUSED(sluice_collection_find(h.collection, NULL, &length));
	REFUSED(sluice_collection_find(h.collection, "a", NULL));
	REFUSED(sluice_collection_get_file(NULL, 0, NONE));
	REFUSED(sluice_collection_get_file(h.collection, 0, NULL));
	REFUSED(sluice_collection_to_dlpack(NULL, 0, 1, &out));
	REFUSED(sluice_collection_to_dlpack(h.collection, 0, 1, NULL));
}

static void null_in_tensors(void)
{
	struct sluice_digest digest;
	const char *text, *uri = "/none";

	REFUSED(sluice_tensors_open(NULL, &uri, 1, NULL, (sluice_tensors **)&out));
	REFUSED(sluice_tensors_open(h.ctx, NULL, 1, NULL, (sluice_tensors **)&out));
	REFUSED(sluice_tensors_open(h.ctx, &uri, 1, NONE, (sluice_tensors **)&out));
	REFUSED(sluice_tensors_open(h.ctx, &uri, 1, NULL, NULL));
	QUIET(sluice_tensors_free(NULL));
	QUIET(sluice_tensors_count(NULL));
	REFUSED(sluice_tensors_get(NULL, 0, NONE));
	REFUSED(sluice_tensors_get(h.tensors, 0, NULL));
	REFUSED(sluice_tensors_get(h.tensors, 0, NONE));
	REFUSED(sluice_tensors_find(NULL, "a", &length));
	REFUSED(sluice_tensors_find(h.tensors, NULL, &length));
	REFUSED(sluice_tensors_find(h.tensors, "a", NULL));
	REFUSED(sluice_tensors_file(NULL, 0, NONE));
	REFUSED(sluice_tensors_file(h.tensors, 0, NULL));
	REFUSED(sluice_tensors_file(h.tensors, 0, NONE));
	REFUSED(sluice_tensors_metadata(NULL, 0, 0, &text, &text));
	REFUSED(sluice_tensors_metadata(h.tensors, 0, 0, NULL, &text));
	REFUSED(sluice_tensors_metadata(h.tensors, 0, 0, &text, NULL));
	REFUSED(sluice_tensors_slice(NULL, 0, 0, 0, 1, 0, (struct sluice_tensor_range *)&out));
	REFUSED(sluice_tensors_slice(h.tensors, 0, 0, 0, 1, 0, NULL));
	REFUSED(sluice_tensor_plan_new(NULL, NULL, 0, (sluice_tensor_plan **)&out));
	REFUSED(sluice_tensor_plan_new(h.tensors, NULL, 0, NULL));
	QUIET(sluice_tensor_plan_free(NULL));
	REFUSED(sluice_tensor_plan_item(NULL, 0, NONE));
	REFUSED(sluice_tensor_plan_item(h.plan, 0, NULL));
	REFUSED(sluice_tensor_plan_item(h.plan, 0, NONE));
	QUIET(sluice_tensor_plan_bytes(NULL));
	null_in_collections();
	REFUSED(sluice_tensor_memory_new(-1, 1, NULL));
	QUIET(sluice_tensor_memory_data(NULL));
	QUIET(sluice_tensor_memory_free(NULL));
	REFUSED(sluice_tensor_to_dlpack(NULL, 0, h.memory, 1, &out));
	REFUSED(sluice_tensor_to_dlpack(h.plan, 0, NULL, 1, &out));
	REFUSED(sluice_tensor_to_dlpack(h.plan, 0, h.memory, 1, NULL));
	REFUSED(sluice_tensor_plan_read(NULL, h.memory, NULL, (sluice_tensor_load **)&out));
	REFUSED(sluice_tensor_plan_read(h.plan, NULL, NULL, (sluice_tensor_load **)&out));
	REFUSED(sluice_tensor_plan_read(h.plan, h.memory, NONE, (sluice_tensor_load **)&out));
	REFUSED(sluice_tensor_plan_read(h.plan, h.memory, NULL, NULL));
	REFUSED(sluice_tensor_load_wait(NULL, 0));
	QUIET(sluice_tensor_load_progress(NULL, &count, &count));
	QUIET(sluice_tensor_load_progress(h.load, NULL, NULL));
	QUIET(sluice_tensor_load_cancel(NULL));
	QUIET(sluice_tensor_load_message(NULL));
	QUIET(sluice_tensor_load_free(NULL));
	REFUSED(sluice_file_digest(NULL, SLUICE_SHA256, &digest));
	REFUSED(sluice_file_digest(h.file, SLUICE_SHA256, NULL));
}

static int no_array(void *user, const struct sluice_array_info *info)
{
	(void)user, (void)info;
	return 0;
}

static void null_in_frames(void)
{
	struct sluice_series_options o = SLUICE_SERIES_OPTIONS_INIT;
	struct sluice_transport t = {0};
	sluice_writer **w = (sluice_writer **)&out;
	sluice_series **s = (sluice_series **)&out;

	REFUSED(sluice_writer_open(NULL, "/none", NULL, w));
	REFUSED(sluice_writer_open(h.ctx, NULL, NULL, w));
	REFUSED(sluice_writer_open(h.ctx, "/none", NONE, w));
	REFUSED(sluice_writer_open(h.ctx, "/none", NULL, NULL));
	REFUSED(sluice_writer_flush(NULL, 0));
	QUIET(sluice_writer_close(NULL, 0));
	QUIET(sluice_writer_discard(NULL));
	REFUSED(sluice_series_add(NULL, "b", &o, s));
	REFUSED(sluice_series_add(h.writer, NULL, &o, s));
	REFUSED(sluice_series_add(h.writer, "b", NULL, s));
	REFUSED(sluice_series_add(h.writer, "b", NONE, s));
	REFUSED(sluice_series_add(h.writer, "b", &o, NULL));
	REFUSED(sluice_series_acquire(NULL, 0, &out));
	REFUSED(sluice_series_acquire(h.series, 0, NULL));
	REFUSED(sluice_series_submit(NULL, h.frame, NULL));
	REFUSED(sluice_series_submit(h.series, NULL, NULL));
	REFUSED(sluice_series_discard(NULL, h.frame));
	REFUSED(sluice_series_discard(h.series, NULL));
	REFUSED(sluice_series_push(NULL, h.bytes, NULL, 0));
	REFUSED(sluice_series_push(h.series, NULL, NULL, 0));
	REFUSED(sluice_series_submit_on(NULL, h.device, NULL, h.stream, 0));
	REFUSED(sluice_series_submit_on(h.series, NULL, NULL, h.stream, 0));
	REFUSED(sluice_writer_add_coordinate(NULL, "x", SLUICE_UINT8, 1, h.bytes, NULL, 0));
	REFUSED(sluice_writer_add_coordinate(h.writer, NULL, SLUICE_UINT8, 1, h.bytes, NULL, 0));
	REFUSED(sluice_writer_add_coordinate(h.writer, "x", SLUICE_UINT8, 1, NULL, NULL, 0));
	REFUSED(sluice_writer_add_coordinate(h.writer, "x", SLUICE_UINT8, 1, h.bytes, NULL, 1));
	REFUSED(sluice_writer_attributes(NULL, NULL, 0));
	REFUSED(sluice_writer_attributes(h.writer, NULL, 1));
	REFUSED(sluice_series_attributes(NULL, NULL, 0));
	REFUSED(sluice_series_attributes(h.series, NULL, 1));
	QUIET(sluice_series_frame_bytes(NULL));
	REFUSED(sluice_series_keep_memory(NULL, &out, &length));
	REFUSED(sluice_series_keep_memory(h.series, NULL, &length));
	REFUSED(sluice_series_keep_memory(h.series, &out, NULL));
	REFUSED(sluice_writer_stats(NULL, NONE));
	REFUSED(sluice_writer_stats(h.writer, NULL));
	REFUSED(sluice_writer_stats(h.writer, NONE));
	REFUSED(sluice_series_stats(NULL, NONE));
	REFUSED(sluice_series_stats(h.series, NULL));
	REFUSED(sluice_series_stats(h.series, NONE));
	REFUSED(sluice_writer_error(NULL, NONE));
	REFUSED(sluice_writer_error(h.writer, NULL));
	REFUSED(sluice_writer_error(h.writer, NONE));
	REFUSED(sluice_codec_describe(0, NULL));
	REFUSED(sluice_codec_describe(0, NONE));
	REFUSED(sluice_array_stat(NULL, NONE));
	REFUSED(sluice_array_stat(h.file, NULL));
	REFUSED(sluice_array_refresh(NULL));
	REFUSED(sluice_array_list(NULL, "/", no_array, NULL));
	REFUSED(sluice_array_list("/none", NULL, no_array, NULL));
	REFUSED(sluice_array_list("/none", "/", NULL, NULL));
	REFUSED(sluice_array_list_file(NULL, "/", no_array, NULL));
	GIVES(sluice_array_split(NULL), 0);
	REFUSED(sluice_frames_open(NULL, (sluice_frames **)&out));
	REFUSED(sluice_frames_open("/none", NULL));
	REFUSED(sluice_frames_begin(NULL, 0));
	REFUSED(sluice_frames_check(NULL));
	QUIET(sluice_frames_free(NULL));
	REFUSED(sluice_writer_open_ranks(h.ctx, NULL, "/none", NULL, w));
	REFUSED(sluice_writer_open_ranks(h.ctx, &t, "/none", NULL, w));
	REFUSED(sluice_writer_progress(NULL));
	REFUSED(sluice_writer_progress(h.writer));
	REFUSED(sluice_series_add_block(NULL, "b", &o, NULL, 0, s));
	REFUSED(sluice_series_add_block(h.writer, "b", &o, NULL, 0, s));
}

DOORS_TEST(null_is_refused_by_each_function)
{
	judge_begin();
	null_in_files();
	null_in_devices();
	null_in_store();
	null_in_tensors();
	null_in_frames();
	assert_int_equal(judge_end(), 0);
}
