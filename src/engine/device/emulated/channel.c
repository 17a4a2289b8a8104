/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels of an emulated device
 *
 * The streams of a device share a few queues. A command that waits at the head of a channel keeps
 * the commands behind it from starting, even those of other streams.
 *
 * Threads: any; all functions require the device's mutex.
 */
#include "device/emulated/emulated.h"

struct channel_set {
	struct channel *channels;
	unsigned count;
};

static struct channel_set channels_of(struct emulated *device, enum channel_type type)
{
	if (type == CHANNEL_COPY)
		return (struct channel_set){device->copy_channels, COPY_CHANNELS};
	return (struct channel_set){device->kernel_channels, KERNEL_CHANNELS};
}

void sl_emulated_channels_init(struct emulated *device)
{
	for (enum channel_type type = 0; type < CHANNEL_TYPES; type++) {
		struct channel_set set = channels_of(device, type);

		for (unsigned i = 0; i < set.count; i++)
			sl_list_init(&set.channels[i].commands);
	}
}

/* Chooses by the seed a channel with at most that many commands; NULL if there is none. */
static struct channel *pick_channel(struct emulated *device, struct channel_set set, unsigned most)
	SL_REQUIRES(&device->mutex)
{
	struct channel *picked = NULL;
	unsigned seen = 0;

	for (unsigned i = 0; i < set.count; i++) {
		if (set.channels[i].count > most)
			continue;
		seen++;
		if (seen == 1 || (device->options.seed && !sl_emulated_random(device, seen)))
			picked = &set.channels[i];
	}
	return picked;
}

static unsigned least_count(struct channel_set set)
{
	unsigned least = set.channels[0].count;

	for (unsigned i = 1; i < set.count; i++)
		least = SL_MIN(least, set.channels[i].count);
	return least;
}

bool sl_emulated_channel(struct emulated *device, struct stream *stream, enum channel_type type,
                         struct channel **out)
{
	struct channel *channel;

	*out = NULL;
	if (type == CHANNEL_NONE)
		return true;
	struct channel_set set = channels_of(device, type);
	channel = stream->in_channel[type] ? stream->channels[type] : pick_channel(device, set, 0);
	if (!channel)
		channel = pick_channel(device, set,
		                       device->options.seed ? CHANNEL_COMMANDS - 1
		                                            : least_count(set));
	if (!channel || channel->count >= CHANNEL_COMMANDS)
		return false;
	*out = channel;
	return true;
}

void sl_emulated_channel_enter(struct command *command, enum channel_type type,
                               struct channel *channel)
{
	command->channel = channel;
	command->type = type;
	if (!channel)
		return;
	command->stream->channels[type] = channel;
	command->stream->in_channel[type]++;
	channel->count += command->cost;
	sl_list_append(&channel->commands, &command->in_channel);
}

void sl_emulated_channel_leave(struct command *command)
{
	if (!command->channel)
		return;
	command->stream->in_channel[command->type]--;
	command->channel->count -= command->cost;
	command->channel = NULL;
	sl_list_remove(&command->in_channel);
}
