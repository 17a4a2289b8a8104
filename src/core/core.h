/* SPDX-License-Identifier: Apache-2.0 */
/* What every room stands on: errors, time, waiting, lists, queues, threads, settings, URIs. */
#ifndef SL_CORE_H
#define SL_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <sluice/sluice.h>
#include <sluice/type.h>

#define SL_MIN(a, b)                        ((a) < (b) ? (a) : (b))
#define SL_MAX(a, b)                        ((a) > (b) ? (a) : (b))
#define SL_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* ------------------------------------------------------------------------------------- error */

/* Sets the sentence that sluice_last_message() returns on this thread, and returns error. */
__attribute__((format(printf, 2, 3))) int sl_fail(int error, const char *format, ...);
/* The text of a negative errno, for sentences. */
const char *sl_error_text(int error);

/* ------------------------------------------------------------------------------------- types */

enum sl_number { SL_SIGNED, SL_UNSIGNED, SL_REAL, SL_BFLOAT, SL_COMPLEX, SL_BOOL };
struct sl_type {
	const char *name;
	enum sl_number number;
	size_t bytes; /* of an element */
};
/* What one of enum sluice_type is; NULL: it is none of them. */
const struct sl_type *sl_type_find(int type);

/* ------------------------------------------------------------------------------------- clock */

#define SL_FOREVER INT64_MAX

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t sl_now(void);
/* When a public timeout_ms that starts now ends; SL_FOREVER if negative. */
int64_t sl_deadline(int timeout_ms);

/* ------------------------------------------------------------------------------------- mutex */

/*
 * clang's thread-safety attributes, which scripts/check clang checks (-Wthread-safety). SL_GUARDED_BY(&mutex) stands behind a
 * field of the struct that contains the mutex, the other two behind the declaration of a function. Older compilers see nothing.
 */
#if defined(__clang_major__) && __clang_major__ >= 19
#define SL_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define SL_THREAD_SAFETY(attribute)
#endif
#define SL_GUARDED_BY(mutex) SL_THREAD_SAFETY(guarded_by(mutex))
#define SL_REQUIRES(...) \
	SL_THREAD_SAFETY(requires_capability(__VA_ARGS__))                 /* the caller holds it */
#define SL_ACQUIRES(...) SL_THREAD_SAFETY(acquire_capability(__VA_ARGS__)) /* returns with it */
#define SL_RELEASES(...)  \
	SL_THREAD_SAFETY( \
		release_capability(__VA_ARGS__)) /* the caller holds it, and not afterwards */
#define SL_UNCHECKED SL_THREAD_SAFETY(no_thread_safety_analysis) /* a comment says why */

struct SL_THREAD_SAFETY(capability("mutex")) sl_mutex {
	pthread_mutex_t pthread;
};
#define SL_MUTEX_INIT                     \
	{                                 \
		PTHREAD_MUTEX_INITIALIZER \
	}

static inline void sl_mutex_init(struct sl_mutex *mutex)
{
	pthread_mutex_init(&mutex->pthread, NULL);
}
static inline void sl_mutex_destroy(struct sl_mutex *mutex)
{
	pthread_mutex_destroy(&mutex->pthread);
}
static inline void sl_mutex_lock(struct sl_mutex *mutex) SL_ACQUIRES(mutex) SL_UNCHECKED
{
	pthread_mutex_lock(&mutex->pthread);
}
static inline void sl_mutex_unlock(struct sl_mutex *mutex) SL_RELEASES(mutex) SL_UNCHECKED
{
	pthread_mutex_unlock(&mutex->pthread);
}
/* Waits for the condition until the deadline, a time of sl_now(). Returns 0 or -ETIMEDOUT. */
int sl_cond_wait(pthread_cond_t *condition, struct sl_mutex *mutex, int64_t deadline)
	SL_REQUIRES(mutex);

/* -------------------------------------------------------------------------------------- wait */

/*
 * Sleeps while *word is expected, until a wake or the deadline. Returns early at will: the caller
 * looks at the word again. -ETIMEDOUT once the deadline has passed.
 */
int sl_word_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline);
void sl_word_wake(_Atomic uint32_t *word, int count);
/* Waits for the condition until the deadline, of sl_now(). 0 or -ETIMEDOUT. */
int sl_cond_wait(pthread_cond_t *condition, struct sl_mutex *mutex, int64_t deadline);
/*
 * Looks for something for a moment before the caller sleeps, because to fall asleep and be woken
 * takes longer than the next event of a running operation. Looks more rarely after it was in vain.
 */
struct sl_spin {
	uint32_t in_vain, left_out;
};
bool sl_spin(struct sl_spin *spin, bool (*found)(void *), void *argument);

/* -------------------------------------------------------------------------------------- list */

/* A ring of links with its head in it; an element that is in no list may be zero. */
struct sl_list {
	struct sl_list *next, *previous;
};

static inline void sl_list_init(struct sl_list *list)
{
	list->next = list->previous = list;
}
static inline bool sl_list_empty(const struct sl_list *list)
{
	return list->next == list;
}
static inline void sl_list_append(struct sl_list *list, struct sl_list *link)
{
	link->previous = list->previous;
	link->next = list;
	list->previous->next = link;
	list->previous = link;
}
static inline void sl_list_remove(struct sl_list *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
	link->next = link->previous = NULL;
}
static inline bool sl_list_linked(const struct sl_list *link)
{
	return link->next;
}
/* NULL if the list is empty. */
static inline struct sl_list *sl_list_take(struct sl_list *list)
{
	struct sl_list *link = list->next;

	if (link == list)
		return NULL;
	sl_list_remove(link);
	return link;
}
#define sl_list_each(link, list) \
	for (struct sl_list *link = (list)->next; link != (list); link = link->next)
/* Each element of the list, by its member `member`; the body may take the element out of the list. */
#define sl_list_each_of(item, list, type, member)                                               \
	for (type *item = sl_list_item((list)->next, list, type, member), *item##_next;         \
	     item && (item##_next = sl_list_item(item->member.next, list, type, member), true); \
	     item = item##_next)
#define sl_list_item(link, list, type, member) \
	((link) == (list) ? NULL : SL_CONTAINER(link, type, member))

/* ------------------------------------------------------------------------------------- queue */

/*
 * Work for several threads that each sleep in their own way (a word, an eventfd). One push wakes
 * one sleeper, the one that fell asleep last.
 */
struct sl_sleeper {
	struct sl_list link;               /* guarded by queue->mutex */
	void (*wake)(struct sl_sleeper *); /* any thread, no lock held */
};
struct sl_queue {
	struct sl_mutex mutex;
	struct {
		struct sl_list urgent; /* taken before what is ready, */
		struct sl_list ready;
		unsigned passed; /* but not more than some times in a row */
		struct sl_list sleepers;
		bool closed;
	} locked;               /* guarded by mutex */
	_Atomic uint32_t count; /* written under mutex; a hint without it */
};

void sl_queue_init(struct sl_queue *queue);
void sl_queue_destroy(struct sl_queue *queue);
void sl_queue_push(struct sl_queue *queue, struct sl_list *link, bool urgent);
/* The list that the next of them is to be taken from; NULL: there is none. With the mutex. */
struct sl_list *sl_queue_next(struct sl_queue *queue);
/* Moves up to max links to the end of out; how many. */
unsigned sl_queue_take(struct sl_queue *queue, struct sl_list *out, unsigned max);
/* False if there is work, or no more will come: then do not sleep. Else wake() will be called. */
bool sl_queue_sleep(struct sl_queue *queue, struct sl_sleeper *sleeper);
/* After sleeping, whatever ended it. */
void sl_queue_awake(struct sl_queue *queue, struct sl_sleeper *sleeper);
/* Wakes all; what is queued is still to be taken. */
void sl_queue_close(struct sl_queue *queue);
bool sl_queue_closed(struct sl_queue *queue);
/* Wakes all sleepers, so that they look around. */
void sl_queue_nudge(struct sl_queue *queue);

/* One that sleeps on a word. */
struct sl_word_sleeper {
	struct sl_sleeper sleeper;
	_Atomic uint32_t woken; /* 1 ends its sleep */
};
void sl_word_sleeper_init(struct sl_word_sleeper *sleeper);
/* Until a push, a nudge, or the close of the queue; not at all if there is work. */
void sl_word_sleep(struct sl_queue *queue, struct sl_word_sleeper *sleeper);
/* Whether the queue has work, perhaps; for sl_spin(). */
bool sl_queue_has_work(void *queue);

/* -------------------------------------------------------------------------------------- gate */

/*
 * Lets in who takes no more than is free of so many, and then keeps it until it is given back; with nothing taken,
 * anybody. Those who have to wait are let in in the order in which they came, and nobody passes them.
 */
struct sl_gate {
	_Atomic uint64_t taken, most;
	_Atomic uint32_t last, served; /* tickets of those who wait in line, from 0 on */
	_Atomic uint32_t changes;      /* counts what they wait for */
};
/* Any thread, as are the next; all of it but most begins as 0. False: it would have had to wait, and was not to. */
bool sl_gate_take(struct sl_gate *gate, uint64_t count, bool wait);
/* Takes whatever there is. */
static inline void sl_gate_pass(struct sl_gate *gate, uint64_t count)
{
	atomic_fetch_add(&gate->taken, count);
}
void sl_gate_give(struct sl_gate *gate, uint64_t count);
/* Nobody waits any more, now and later. */
void sl_gate_open(struct sl_gate *gate);

/* ------------------------------------------------------------------------------------ thread */

/* A joinable thread with a name of at most 15 characters that blocks all signals. 0 or -errno. */
int sl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *argument);
/* Processors that this process may use; at least 1. */
unsigned sl_cores(void);
/* What the kernel maps and caches at a time: 4 KiB, or 16 or 64. */
size_t sl_page_size(void);
/* Rounded up to pages; less than bytes if that is too much. */
static inline size_t sl_whole_pages(size_t bytes)
{
	size_t page = sl_page_size();

	return (bytes + page - 1) / page * page;
}

/* -------------------------------------------------------------------------------------- pool */

/* Threads that run tasks. No task waits for another one. */
struct sl_task {
	struct sl_list link;
	uintptr_t home; /* tasks of one home prefer one worker, whose caches know their memory */
	bool urgent;    /* before others */
	void (*run)(struct sl_task *);
};
struct sl_pool;

/* The threads are called name and a number. Up to `most` of them are started when all others are busy, and stay;
 * a pool whose tasks may wait for storage grows so that none waits for another's storage. */
int sl_pool_start(const char *name, unsigned workers, unsigned most, struct sl_pool **out);
/* Runs what is queued, then joins the workers. NULL is allowed, here and below. */
void sl_pool_stop(struct sl_pool *pool);
/* After the threads that submit have been joined: one may still be waking a worker. */
void sl_pool_free(struct sl_pool *pool);
/* The task that runs on this thread, if any, will not wait any more: the pool need not grow for its successor. */
void sl_pool_task_waits_no_more(void);
/* From any thread, any number of times; the task is the pool's until it runs. */
void sl_pool_submit(struct sl_pool *pool, struct sl_task *task);

/* ---------------------------------------------------------------------------------- interval */

/*
 * A set of half-open ranges that finds those that overlap a given one: a treap ordered by start,
 * each node knowing the largest end below it. Not thread-safe.
 */
struct sl_interval {
	struct sl_interval *left, *right;
	uint64_t start, end; /* start < end */
	uint64_t sequence;   /* for sl_intervals_latest(): from 1 on */
	uint64_t last;       /* largest end in this subtree, */
	uint64_t oldest;     /* smallest sequence, */
	uint64_t newest;     /* and largest */
	uint64_t weight;     /* heap order */
};
struct sl_intervals {
	struct sl_interval *root;
	uint64_t random;
	uint64_t looks; /* members that sl_intervals_latest() has looked at: what it costs */
};

void sl_intervals_insert(struct sl_intervals *set, struct sl_interval *interval);
void sl_intervals_remove(struct sl_intervals *set, struct sl_interval *interval);
/* Calls visit for each member that overlaps [start, end), which must not change the set. */
void sl_intervals_overlapping(const struct sl_intervals *set, uint64_t start, uint64_t end,
                              void (*visit)(struct sl_interval *, void *), void *argument);
/* Of the members that overlap at, the one with the largest sequence between after and before, or NULL. Once it
 * has looked at so many as are enough, it gives the best that it has found, if any: where many overlap, the
 * largest one may cost a look at each. */
struct sl_interval *sl_intervals_latest(struct sl_intervals *set, const struct sl_interval *at,
                                        uint64_t after, uint64_t before, uint64_t enough);

/* --------------------------------------------------------------------------------------- log */

enum sl_log_level { SL_LOG_OFF, SL_LOG_ERROR, SL_LOG_INFO, SL_LOG_DEBUG };
struct sl_settings;
/* Writes a line to standard error if SLUICE_LOG asks for that level. */
__attribute__((format(printf, 3, 4))) void sl_log(const struct sl_settings *settings,
                                                  enum sl_log_level level, const char *format, ...);

/* ------------------------------------------------------------------------------------ config */

/* The kernel features that SLUICE_DISABLE can mask. */
enum sl_disable {
	SL_DISABLE_URING = 1 << 0,
	SL_DISABLE_CACHESTAT = 1 << 1,
	SL_DISABLE_NOWAIT = 1 << 2,
	SL_DISABLE_DONTCACHE = 1 << 3,
	SL_DISABLE_DIOALIGN = 1 << 4,
};
/* Which executors a local file may use. */
enum sl_choice { SL_CHOICE_AUTO, SL_CHOICE_POSIX, SL_CHOICE_URING, SL_CHOICE_CUFILE };

/* What moves the bytes of remote files. */
enum sl_remote { SL_REMOTE_MULTI, SL_REMOTE_EASY };

#define SL_SETTINGS_MOST 40 /* a bound on their number */
#define SL_SETTING_TEXT  1024

struct sl_settings {
	unsigned choice;  /* enum sl_choice */
	unsigned disable; /* of enum sl_disable */
	uint64_t workers; /* 0 until the context has decided, as is the next */
	uint64_t calls;   /* blocking ones of a file at a time */
	uint64_t reactors;
	uint64_t reactor_depth;
	uint64_t piece_bytes;
	uint64_t operation_depth;
	uint64_t direct_bytes;
	uint64_t inline_bytes;
	uint64_t bounce_bytes;
	uint64_t max_operations;
	uint64_t staging_bytes;
	uint64_t slot_bytes; /* 0: by operation */
	uint64_t slots;      /* 0: by operation */
	uint64_t cufile_threads;
	unsigned cufile_streams;
	unsigned remote; /* enum sl_remote */
	uint64_t max_connections;
	uint64_t http_reactors;
	uint64_t http_attempts;
	uint64_t http_retry_ms;
	uint64_t http_backoff_ms;
	uint64_t http_backoff_max_ms;
	uint64_t http_connect_ms;
	uint64_t http_stall_ms;
	char ca_bundle[SL_SETTING_TEXT]; /* "" : the system's */
	unsigned tls_insecure;
	unsigned log;                          /* enum sl_log_level */
	const char *sources[SL_SETTINGS_MOST]; /* by index of the setting */
};

/* Reads config and the environment, and checks all of it; 0 or -EINVAL with a sentence. */
int sl_settings_load(const struct sluice_config *config, struct sl_settings *out);
/* The index of "auto", "posix", "uring", "cufile" in enum sl_choice, or -EINVAL with a sentence. */
int sl_choice_parse(const char *what, const char *name, unsigned *out);
const char *sl_choice_name(unsigned choice);
/* The same for "multi" and "easy" in enum sl_remote. */
int sl_remote_parse(const char *what, const char *name, unsigned *out);
const char *sl_remote_name(unsigned remote);
/* Describes a setting, all but its value; settings may be NULL. -ENOENT past the last. */
int sl_setting_describe(size_t index, const struct sl_settings *settings,
                        struct sluice_setting *out);
/* Its value, as its variable would say it; "" past the last. */
void sl_setting_print(size_t index, const struct sl_settings *settings, char *text, size_t size);

/* ----------------------------------------------------------------------------------- replace */

struct stat;

#define SL_TEMPORARY_ATTEMPTS 100

/* The absolute path that a name leads to, through symbolic links, freed by the caller: 1, the file is there; 0:
 * its folder is; or -errno with a sentence. */
int sl_path_resolve(const char *path, char **out);
/* Whether a file may be made at a resolved path: 0, or -errno with a sentence. st_mode of there stays 0 where
 * there is nothing. */
int sl_path_replaceable(const char *path, bool replace, struct stat *there);
/* ".name.0123456789abcdef.sluice" in the folder of a resolved path, freed by the caller; NULL: no memory. */
char *sl_temporary_name(const char *path);
/* A new file of such a name, which is the caller's to free: its descriptor, or -errno; -EEXIST: all names that
 * were tried are taken. */
int sl_temporary_open(const char *path, mode_t mode, char **name);
/* rename(2) that replaces nothing: 0 or -errno. */
int sl_rename_to_new(const char *from, const char *to);
/*
 * Owner, group and permissions of the file that is replaced, as far as this process may give them
 * away. A set-ID bit is worth something only with the owner that it was set for.
 */
void sl_take_over(int fd, const struct stat *old, bool keep_mode);

/* --------------------------------------------------------------------------------------- uri */

struct sl_uri {
	char scheme[16]; /* "file" for a plain path */
	char *path;      /* for "file": unescaped; for all others the whole URI */
};

/* 0; -EINVAL with a sentence if it is malformed. Freed by sl_uri_clear(). */
int sl_uri_parse(const char *text, struct sl_uri *out);
void sl_uri_clear(struct sl_uri *uri);
/* Decodes percent-escapes in place. -EINVAL with a sentence that begins with uri. */
int sl_uri_unescape(const char *uri, char *text);
/* The URI for people: without the user, the password and the query, which may be secrets; of a blob as it is.
 * Freed by the caller; NULL: no memory. */
char *sl_uri_name(const char *text);
/* -EPROTONOSUPPORT, with a sentence that shows that name. */
int sl_uri_unknown(const char *text);

#endif
