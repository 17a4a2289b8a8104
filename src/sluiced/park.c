/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for room, in the order in which they came. The first one takes what is there, and nobody takes new
 * memory before it. Ended by the movers, which
 * make room or cannot, by whoever lets go of memory, by the deadline, and by the end of the connection, or of the
 * region.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sluiced/spill.h"

#define PATIENCE_NS INT64_C(60000000000)
/* While everything is held or being made: the server itself holds what it has named for a second. */
#define VAIN_NS INT64_C(1000000000)
/* After a look in vain, because releases are not told. */
#define LOOK_NS INT64_C(10000000)
/* How much longer than a look took it is until the next: a look passes over everything there is, and whatever any
 * client does may be worth one. */
#define LOOK_REST 8

struct sl_park {
	struct sl_list link;      /* spill->parks */
	struct sl_list peer_link; /* peer->parks, of a request */
	struct sl_peer *peer;     /* NULL: it is the return of a region */
	int64_t since;
	struct sl_region *region;
	int64_t deadline;
	size_t bytes;
	unsigned char request[];
};

static struct sl_park *park_new(struct sl_server *server, size_t bytes)
{
	struct sl_park *park = malloc(sizeof(*park) + bytes);

	if (!park) {
		sl_fail(-ENOMEM, "no memory");
		return NULL;
	}
	*park = (struct sl_park){.since = sl_now(), .deadline = SL_FOREVER, .bytes = bytes};
	sl_list_append(&server->spill->parks, &park->link);
	server->spill->look = true;
	return park;
}

static void take_out(struct sl_park *park)
{
	sl_list_remove(&park->link);
	if (park->peer) {
		sl_list_remove(&park->peer_link);
		park->peer->park_count--;
	} else if (park->region) {
		park->region->copy->parked = false;
	}
}

static void park_free(struct sl_park *park)
{
	take_out(park);
	free(park);
}

/* It was the first one, and is again. */
static void put_back(struct sl_server *server, struct sl_park *park)
{
	sl_list_append(server->spill->parks.next, &park->link);
	if (park->peer) {
		sl_list_append(&park->peer->parks, &park->peer_link);
		park->peer->park_count++;
	} else {
		park->region->copy->parked = true;
	}
}

int sl_park_request(struct sl_server *server, struct sl_peer *peer)
{
	struct sl_park *park;

	if (peer->park_count >= SL_PARKS_MOST)
		return sl_fail(-EAGAIN, "a client may wait for memory %d times", SL_PARKS_MOST);
	park = park_new(server, server->in.head.bytes);
	if (!park)
		return -ENOMEM;
	park->peer = peer;
	park->deadline = park->since + PATIENCE_NS;
	memcpy(park->request, &server->in, park->bytes);
	sl_list_append(&peer->parks, &park->peer_link);
	peer->park_count++;
	return 0;
}

int sl_park_return(struct sl_server *server, struct sl_region *region)
{
	struct sl_park *park = park_new(server, 0);

	if (!park)
		return -ENOMEM;
	park->region = region;
	park->deadline = park->since + PATIENCE_NS;
	region->copy->parked = true;
	return 0;
}

void sl_park_drop(struct sl_server *server, struct sl_region *region)
{
	struct sl_list *parks = &server->spill->parks;

	if (server->spill->turn && server->spill->turn->region == region)
		server->spill->turn->region = NULL;
	for (struct sl_list *link = parks->next, *next; link != parks; link = next) {
		struct sl_park *park = SL_CONTAINER(link, struct sl_park, link);

		next = link->next;
		if (park->region == region)
			park_free(park);
	}
	server->spill->look = true;
}

void sl_park_end(struct sl_peer *peer)
{
	while (!sl_list_empty(&peer->parks))
		park_free(SL_CONTAINER(peer->parks.next, struct sl_park, peer_link));
}

bool sl_park_is_before(const struct sl_server *server)
{
	const struct sl_spill *spill = server->spill;

	return spill && !spill->turn && !sl_list_empty(&spill->parks);
}

bool sl_park_has_time(const struct sl_server *server)
{
	const struct sl_spill *spill = server->spill;

	/* Without a turn it has just come. */
	return !spill->turn || sl_now() < SL_MAX(spill->turn->since, spill->moved_at) + VAIN_NS;
}

/* -EINPROGRESS: it goes on waiting. */
static int try_one(struct sl_server *server, struct sl_park *park)
{
	int rc;

	if (!park->peer)
		return sl_spill_return(server, &park->region, sl_now() >= park->deadline);
	memcpy(&server->in, park->request, park->bytes);
	rc = sl_blob_try_create(server, park->peer);
	/* If it is a device that is short now the next one need not wait for this. */
	if (rc == -EINPROGRESS && server->device_waits.error) {
		rc = sl_blob_wait(server, park->peer);
		if (rc)
			sl_peer_refuse(server, park->peer, server->in.head.serial, rc);
		return 0;
	}
	if (rc != -EINPROGRESS || sl_now() < park->deadline)
		return rc;
	sl_peer_refuse(server, park->peer, server->in.head.serial,
	               sl_fail(-ENOSPC, "there was not room enough within a minute"));
	return 0;
}

/* What it is for may go during its turn. False: it has to go on waiting. */
static bool give_turn(struct sl_server *server, struct sl_park *park)
{
	struct sl_spill *spill = server->spill;
	int rc;

	take_out(park);
	spill->turn = park;
	rc = try_one(server, park);
	spill->turn = NULL;
	if (rc == -EINPROGRESS && (park->peer ? park->peer->fd >= 0 : park->region != NULL))
		put_back(server, park);
	else
		free(park);
	return rc != -EINPROGRESS;
}

void sl_park_run(struct sl_server *server)
{
	struct sl_spill *spill = server->spill;
	int64_t now = sl_now();

	if (now < spill->rest_look || (!spill->look && now < spill->look_at)) {
		if (spill->look || spill->look_at != SL_FOREVER)
			sl_server_at(server,
			             SL_MAX(spill->rest_look, spill->look ? now : spill->look_at));
		return;
	}
	spill->look = false;
	spill->look_at = SL_FOREVER;
	while (!sl_list_empty(&spill->parks) &&
	       give_turn(server, SL_CONTAINER(spill->parks.next, struct sl_park, link)))
		;
	if (sl_list_empty(&spill->parks))
		return;
	spill->rest_look = sl_now() + (sl_now() - now) * LOOK_REST;
	/* And for deadlines. */
	spill->look_at =
		now + LOOK_NS * (spill->writing || spill->reading || spill->full ? 100 : 1);
	sl_server_at(server, spill->look_at);
}
