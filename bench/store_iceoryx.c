/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By iceoryx: a publisher and a subscriber for each pair. The consumer sleeps in a wait set, or asks again and again
 * (iceoryx-polled). Both sides are bounded by the way back, so that a queue of a few is enough.
 */
#include "store_bench.h"

#include <err.h>
#include <stdio.h>
#include <unistd.h>

#include "iceoryx_binding_c/publisher.h"
#include "iceoryx_binding_c/runtime.h"
#include "iceoryx_binding_c/subscriber.h"
#include "iceoryx_binding_c/wait_set.h"

enum { QUEUE = 2 };

static struct {
	iox_pub_storage_t publisher_memory;
	iox_sub_storage_t subscriber_memory;
	iox_ws_storage_t wait_memory;
	iox_pub_t publisher;
	iox_sub_t subscriber;
	iox_ws_t wait;
	void *chunk;
	const void *taken;
} ice;

static void start(const char *side, unsigned pair)
{
	char name[64];

	snprintf(name, sizeof(name), "bench-%s-%u-%d", side, pair, (int)getpid());
	iox_runtime_init(name);
}

static const char *instance_of(unsigned pair)
{
	static char name[32];

	snprintf(name, sizeof(name), "pair %u", pair);
	return name;
}

static void produce_open(unsigned pair)
{
	iox_pub_options_t o;

	start("producer", pair);
	iox_pub_options_init(&o);
	ice.publisher = iox_pub_init(&ice.publisher_memory, "bench", instance_of(pair), "blob", &o);
}

static bool there(void)
{
	return iox_pub_has_subscribers(ice.publisher);
}

static void *begin(unsigned number)
{
	enum iox_AllocationResult rc =
		iox_pub_loan_chunk(ice.publisher, &ice.chunk, (uint32_t)options.bytes);

	if (rc != AllocationResult_SUCCESS)
		errx(1, "iceoryx lends no chunk of %zu bytes (%u): %d", options.bytes, number,
		     (int)rc);
	return ice.chunk;
}

static void publish(unsigned number)
{
	(void)number;
	iox_pub_publish_chunk(ice.publisher, ice.chunk);
}

static void nothing(unsigned number)
{
	(void)number;
}

static void produce_close(void)
{
	iox_pub_deinit(ice.publisher);
	iox_runtime_shutdown();
}

static void consume_open(unsigned pair)
{
	iox_sub_options_t o;

	start("consumer", pair);
	iox_sub_options_init(&o);
	o.queueCapacity = QUEUE;
	ice.subscriber =
		iox_sub_init(&ice.subscriber_memory, "bench", instance_of(pair), "blob", &o);
	ice.wait = iox_ws_init(&ice.wait_memory);
	if (iox_ws_attach_subscriber_event(ice.wait, ice.subscriber, SubscriberEvent_DATA_RECEIVED,
	                                   0, NULL) != WaitSetResult_SUCCESS)
		errx(1, "iceoryx does not attach a subscriber");
}

static bool take_one(void)
{
	return iox_sub_take_chunk(ice.subscriber, &ice.taken) == ChunkReceiveResult_SUCCESS;
}

static const void *take(unsigned number)
{
	iox_notification_info_t info[1];
	uint64_t missed;

	(void)number;
	while (!take_one())
		iox_ws_wait(ice.wait, info, 1, &missed);
	return ice.taken;
}

static const void *take_polled(unsigned number)
{
	(void)number;
	while (!take_one())
		;
	return ice.taken;
}

static void release(unsigned number)
{
	(void)number;
	iox_sub_release_chunk(ice.subscriber, ice.taken);
}

static void consume_close(void)
{
	iox_ws_detach_subscriber_event(ice.wait, ice.subscriber, SubscriberEvent_DATA_RECEIVED);
	iox_ws_deinit(ice.wait);
	iox_sub_deinit(ice.subscriber);
	iox_runtime_shutdown();
}

#define ICEORYX(name_, take_)                                                                     \
	{                                                                                         \
		.name = name_, .produce_open = produce_open, .begin = begin, .publish = publish,  \
		.end = nothing, .produce_close = produce_close, .consume_open = consume_open,     \
		.take = take_, .release = release, .consume_close = consume_close, .there = there \
	}

const struct way way_iceoryx = ICEORYX("iceoryx", take);
const struct way way_iceoryx_polled = ICEORYX("iceoryx-polled", take_polled);
