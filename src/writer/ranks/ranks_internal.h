/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A writer for several processes, called ranks.
 *
 *  - ranks_open.c has the calls of all ranks together, in steps.
 *  - ranks_client.c is the sink of a rank's writer: it writes the rank's chunks, and tells rank 0
 *    where.
 *  - ranks_server.c takes the messages in rank 0; steps.c answers steps, files.c calls HDF5, and
 *    server_tell.c tells the ranks.
 *  - link.c moves messages over a transport.
 *  - blocks.c divides chunks among ranks.
 *
 * The way of a chunk. A rank asks rank 0 for space for it and all chunks behind it (WANT, SPACE),
 * writes it there, and makes a record. When all chunks of a frame are written, the records go to
 * rank 0 (FRAME). With the records from all ranks the chunks are entered into the index, and the
 * frame counts. So the index never has a chunk without bytes, and a flush waits for nobody.
 *
 * Threads: see each file. Locks are taken in this order: client->adding; link->turns, or
 * server->using for HDF5; client->registry; the writer's mutex; client->mutex; the link's mutex, or
 * server->mutex for the inbox. Without memory for a message sl_link_tell() takes the writer's
 * mutex, so it is not called with it.
 */
#ifndef SL_RANKS_INTERNAL_H
#define SL_RANKS_INTERNAL_H

#include <sluice/ranks.h>

#include "core/core.h"
#include "frames/frames.h"
#include "h5file/h5file.h"

enum sl_message_kind {
	/* Steps, answered by RESULT. Then come the arguments; with an error the sentence. */
	SL_STEP_OPEN,
	SL_STEP_OPENED,
	SL_STEP_ADD,
	SL_STEP_ADDED,
	SL_STEPS,
	/* To rank 0. */
	SL_MESSAGE_END,   /* answered by OVER */
	SL_MESSAGE_WANT,  /* answered by SPACE */
	SL_MESSAGE_FRAME, /* then come scalars, and `count` of sl_rank_record */
	SL_MESSAGE_FLUSH, /* for all frames told so far; answered by FLUSHED */
	SL_MESSAGE_FAIL,  /* then comes the sentence */
	SL_MESSAGE_LATE,  /* the rank waits for a step no longer */
	/* From rank 0. */
	SL_MESSAGE_RESULT, /* then comes the answer; with an error the sentence */
	SL_MESSAGE_OVER,   /* all ranks have ended, or this rank need not wait for them */
	SL_MESSAGE_SPACE,
	SL_MESSAGE_STATE, /* then comes struct sl_rank_names: behind */
	SL_MESSAGE_LEFT,
	SL_MESSAGE_FLUSHED,
	SL_MESSAGE_FAILED, /* then comes the sentence */
	SL_MESSAGE_FULL,
	/* Between ranks. */
	SL_MESSAGE_FRAGMENT, /* then come the elements */
};

/* Space in a file for chunks. */
struct sl_rank_space {
	uint64_t start, bytes;
};

/* The head of a message, with a struct for each kind with fields. */
struct sl_rank_message {
	/* After arrival: it may be in a list, has a sender, and so many bytes after the head. */
	struct sl_list link;
	size_t n;
	int32_t from;
	/* Sent. */
	uint32_t kind;
	union {
		struct {
			int32_t rc;
			uint64_t chunks; /* SL_STEP_ADDED: stored by this rank */
		} step;
		bool discarded; /* END */
		struct {
			uint64_t bytes, least;     /* wanted, and needed at once */
			struct sl_rank_space rest; /* unused */
		} want;
		struct sl_rank_space space;
		struct {
			uint32_t series, count;
			uint64_t frame;
			double max_error;
		} frame;
		int32_t error; /* FAIL, FAILED and FULL (0: the disk has room again) */
		struct {
			uint32_t step;
			int32_t rc;
		} result; /* RESULT and LATE */
		struct {
			uint32_t series;
			uint64_t complete, visible; /* frames */
		} state;
		/* A rank has ended: frames from this number on never come from it. */
		struct {
			uint32_t series;
			uint64_t frame, rank;
		} left;
		struct {
			uint32_t series;
			uint64_t frame, chunk;
		} fragment;
	};
};

/* A chunk in the file. */
struct sl_rank_record {
	uint64_t chunk, start; /* chunk: its number in the dataset's grid */
	uint32_t length, mask;
};

/* ---------------------------------------------------------------------------------------- link */

/* A message on the way out. */
struct sl_outgoing {
	struct sl_list link; /* of the link */
	int to;
	const void *bytes;
	size_t n;
	void *request;
	void (*done)(struct sl_outgoing *out); /* frees it; called by the link's thread */
	void *user;
	struct sl_rank_message head; /* if the bytes lie here */
};

struct sl_link {
	struct sluice_transport t;
	/* By the link's thread: takes a message; the transport fails (gone: a rank left, or -1). */
	void (*take)(void *argument, struct sl_rank_message *message);
	void (*broken)(void *argument, int gone, int error);
	void *argument;
	pthread_t thread;
	struct sl_mutex turns; /* held in calls of the transport; guards the next two */
	struct sl_list sending;
	bool failed;
	struct sl_mutex mutex;
	pthread_cond_t wake;
	struct {
		struct sl_list outbox;
		bool stopping;
	} locked SL_GUARDED_BY(&mutex);
};

/* Starts it; with a transport without a thread, sl_link_pump() is to be called. */
int sl_link_open(struct sl_link *link, const struct sluice_transport *t);
/* Makes a message with n bytes after the head, or NULL. It is sent, or freed by free(). */
struct sl_outgoing *sl_link_message(const struct sl_rank_message *head, size_t n);
/* Queues a message. Any thread; does not wait. */
void sl_link_send(struct sl_link *link, int to, struct sl_outgoing *out);
/* Both at once; without memory the message is lost, and the link broken. */
void sl_link_tell(struct sl_link *link, int to, const struct sl_rank_message *head,
                  const void *body, size_t n);
/* Sends and receives without waiting. Returns whether there was anything. */
bool sl_link_pump(struct sl_link *link);
/* Sends the last messages, for a while, and closes the transport. clean: the ranks owe each other
 * no message. Returns false if a message could not be sent: its bytes must stay. */
bool sl_link_close(struct sl_link *link, bool clean);

/* -------------------------------------------------------------------------------------- blocks */

static inline bool sl_block_has_any(unsigned rank, const struct sluice_block *block)
{
	bool any = true;

	for (unsigned i = 0; i < rank; i++)
		any &= block->count[i] > 0;
	return any;
}
/* Returns 0, or -EINVAL with a sentence if the blocks are not the array. */
int sl_blocks_check(unsigned rank, const uint64_t *shape, const struct sluice_block *blocks,
                    int ranks);
/* Chooses chunks which divide the blocks, if their size is good. */
void sl_blocks_chunk(struct sl_h5_layout *layout, const struct sluice_block *blocks, int ranks,
                     unsigned threads);
/* Makes a rank's share. files: by rank, for its chunks; ranks with different files have no chunk in
 * common, and each file has a chunk with its ranks' elements. head: bytes before each fragment. */
int sl_blocks_share(const struct sl_h5_layout *layout, const struct sluice_block *blocks,
                    const int *files, int ranks, int rank, size_t head, struct sl_share **out);
/* The offset of a chunk, in elements. */
void sl_blocks_offset(const struct sl_h5_layout *layout, uint64_t chunk, uint64_t *offset);

/* -------------------------------------------------------------------------------------- client */

/* A series of this rank. */
struct sl_rank_series {
	uint32_t index;
	struct sluice_series *series; /* NULL: no block */
	struct sl_share *share;
	size_t scalars;
	struct sl_outgoing *frame; /* the file thread's: the message with records so far */
};

/* Answers for which a thread waits. */
enum sl_answer {
	SL_ANSWER_STEP,
	SL_ANSWER_SPACE,
	SL_ANSWERS,
};

struct sl_client {
	struct sl_sink sink;
	struct sl_link link;
	int rank, ranks;
	struct sl_rank_server *server; /* NULL: this is not rank 0 */
	struct sluice_writer *writer;
	unsigned threads;
	/* The file thread's: the file, and the space left for chunks. */
	int fd;
	char *path; /* its name, maybe in future */
	bool sync;
	struct sl_rank_space space;

	struct sl_mutex adding; /* held while a series is added */
	struct sl_mutex registry;
	struct {
		struct sl_rank_series **series;
		size_t series_count;
		bool *closed; /* by rank: has ended */
	} registered SL_GUARDED_BY(&registry);

	struct sl_mutex mutex;
	pthread_cond_t answer;
	struct {
		struct sl_rank_message *answers[SL_ANSWERS];
		uint32_t step; /* of all ranks, now */
		bool ended;    /* the writer has failed or is discarded */
		bool told;     /* rank 0 knows of the failure, or cannot be told */
		bool over;     /* nothing waits for the end of other ranks */
	} locked SL_GUARDED_BY(&mutex);
};

extern const struct sl_sink_ops sl_client_ops;

/* Messages for this rank. */
void sl_client_take(void *client, struct sl_rank_message *message);
/* No message comes or goes any more: this rank waits for no other. */
void sl_client_broken(void *client, int gone, int error);
/*
 * Takes a step with all other ranks. head: the kind; an error with the thread's sentence, or n
 * bytes follow. Returns the first error of any rank, -ETIMEDOUT with the ranks that rank 0 misses,
 * after some more time for it, or 0 and the answer, freed by the caller (out may be NULL).
 */
int sl_client_step(struct sl_client *client, struct sl_rank_message head, const void *body,
                   size_t n, int64_t deadline, struct sl_rank_message **out);
/* The end of this rank: waits for all others, unless it discards. pump: by the program's thread. */
void sl_client_end(struct sl_client *client, bool keep, bool pump);
void sl_client_free(struct sl_client *client, bool clean);

/* -------------------------------------------------------------------------------------- server */

/* The bodies of steps. */
struct sl_open_body {
	char version[32];
	uint64_t layout_bytes;
	struct sluice_writer_options o; /* with the sender's pointers */
	int node;                       /* the transport's. The path follows */
};
struct sl_add_body {
	struct sluice_series_options o; /* with the sender's pointers */
	char codec[32];                 /* empty: not set */
	struct sluice_block block;      /* names follow: dataset, scalars, dimensions */
};
struct sl_added_body {
	struct sl_h5_layout layout;
	char codec[32];
	uint64_t first;
	uint32_t index;
	size_t files;                 /* in rank 0 */
	struct sluice_block blocks[]; /* by rank; behind them ints, their files */
};

#define SL_SERVER_RESTS 64

struct sl_server_series {
	char *name;
	struct sl_h5_layout layout;
	struct sl_h5_dataset **datasets; /* by file */
	struct sluice_block *blocks;     /* by rank */
	int contributors;
	uint64_t chunks; /* in a frame */
	uint64_t complete, visible;
	bool changed; /* since the last STATE */
	/* By rank: frames told, UINT64_MAX: it has no block; and frames it has asked to flush. */
	uint64_t *frames, *asked;
	struct sl_rank_names behind;
	struct sl_server_slot {
		int count;
		struct sl_list messages;
	} slots[SLUICE_RANKS_AHEAD];
	double max_error;
};

struct sl_rank_server {
	struct sl_link *link;
	int ranks;
	pthread_t thread;
	struct sl_mutex mutex;
	pthread_cond_t work;
	struct {
		struct sl_list inbox;
		bool hurry; /* something has failed: a full disk is not waited for */
		bool lost;
	} locked SL_GUARDED_BY(&mutex);

	/* Held while a file is used; guards the options from rank 0's program, too. */
	struct sl_mutex using;
	/* The first has all names and scalars; and the chunks, or there is a file for each node. */
	struct sl_server_file {
		char *path;
		struct sl_h5_file *h5;
	} * files;
	size_t file_count; /* the last is NULL if it could not be opened */
	bool flushed;      /* the first is there */
	int node_count;
	/* Rank 0's program: the first three from before any message until the file is open. */
	const struct sluice_writer_options *options;
	const char *path;
	unsigned threads;
	const struct sluice_series_options *adding; /* NULL: rank 0 has given up */

	/* The thread's. */
	int64_t checkpoint_ns, full_ns, full_since, dirty_since;
	uint64_t checkpoint_frames, frames_since;
	bool full, discarded, lost;
	struct sl_server_rank {
		struct sl_rank_message *step; /* taken, not answered */
		bool flush;                   /* asked for, not answered */
		bool ended, gone;             /* gone: it has the answer */
		int node, file;               /* file: for its chunks */
	} * rank;
	int step_count, end_count;
	enum sl_message_kind step;
	struct sl_server_series **series;
	size_t series_count;
	struct sl_server_series *fresh; /* between its two steps */
	struct sl_server_rest {
		struct sl_rank_space space;
		int node;
	} rests[SL_SERVER_RESTS];
	int error;
};

int sl_server_start(struct sl_link *link, int ranks, struct sl_rank_server **out);
void sl_server_take(struct sl_rank_server *server, struct sl_rank_message *message);
/* There are no more messages. */
void sl_server_lose(struct sl_rank_server *server);
/* After all ranks have ended, or messages are lost: waits for the thread; frees the rest. */
void sl_server_join(struct sl_rank_server *server);
void sl_server_free(struct sl_rank_server *server);
void sl_server_tell(struct sl_rank_server *server, int to, const struct sl_rank_message *head,
                    const void *body, size_t n);
void sl_server_tell_all(struct sl_rank_server *server, const struct sl_rank_message *head,
                        const void *body, size_t n);
/* The disk is full (0: no more). */
void sl_server_tell_full(struct sl_rank_server *server, int error);
/* Asks whether to try again on a full disk, see sl_h5_file_options. */
bool sl_server_full(void *server, int error);
void sl_server_drop_steps(struct sl_rank_server *server);
void sl_server_slot_clear(struct sl_server_slot *slot);
void sl_server_series_free(struct sl_server_series *ss);
/* Keeps the first error, with the thread's sentence, and tells all ranks. */
void sl_server_fail(struct sl_rank_server *server, int error);
/* Returns a rank's error, with its sentence behind the rank's number. */
int sl_server_rank_error(const struct sl_rank_server *server, const struct sl_rank_message *of,
                         int error);
/* All ranks have taken the step: answers. */
void sl_server_step(struct sl_rank_server *server);
/* A rank waits no longer for its step: fails it, with the names of missing ranks. */
void sl_server_late(struct sl_rank_server *server, int from, enum sl_message_kind kind);

/* --------------------------------------------------------------------------------------- files */

/* All are called with server->using; 0, or a negative errno with a sentence. */
int sl_files_open(struct sl_rank_server *server);
/* Makes or continues a series' datasets; check: whether it can. first: frames in all of them. */
int sl_files_add(struct sl_rank_server *server, struct sl_server_series *ss,
                 const struct sl_h5_set_options *set, bool check, uint64_t *first);
/* Answers WANT. */
int sl_files_space(struct sl_rank_server *server, const struct sl_rank_message *of,
                   struct sl_rank_space *out);
/* Enters the chunks of the next frame into the index; all datasets have it then. */
int sl_files_enter(struct sl_rank_server *server, struct sl_server_series *ss,
                   const struct sl_server_slot *slot);
int sl_files_flush(struct sl_rank_server *server);
int sl_files_close(struct sl_rank_server *server, bool keep);

#endif
