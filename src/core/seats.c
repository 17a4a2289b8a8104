/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seats
 *
 * The processes of a user on this machine that read into devices at the same time know of each
 * other: together they have one memory and one set of cores, and with more threads than cores each
 * of them is slower. Each ring that long reads fill has a seat, a lock (fcntl(2), F_OFD_SETLK) on
 * 64 bytes of a file of the user, which hold the address of the device. The kernel frees the seats
 * of a process that ends. Beside others, the workers of a pool are three quarters of its share of
 * the cores: its rings, among all seats that are taken. Without the file there is no limit.
 *
 * Any thread; no call waits for another process. One mutex guards all, and is held for a few system
 * calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/core.h"

#define SEATS    64
#define SEAT     64                /* bytes of the file */
#define LOOK_NS  INT64_C(10000000) /* between two looks at the others */
#define HOLD_NS  (10 * LOOK_NS)    /* a limit ends so long after the last look */
#define ALPHABET "0123456789abcdefghijklmnopqrstuvwxyz:." /* of devices */

static struct {
	struct sl_mutex mutex;
	int file SL_GUARDED_BY(&mutex); /* negative while this process has no seats */
	struct {
		bool taken;
		struct sl_pool *pool; /* or NULL, of a seat whose pool has no limit */
		unsigned cores;       /* of the pool, without a limit */
	} own[SEATS] SL_GUARDED_BY(&mutex);
	/* Seats of other processes: at the last look, and the most of that and the look before. */
	unsigned before SL_GUARDED_BY(&mutex), others SL_GUARDED_BY(&mutex);
	bool forks SL_GUARDED_BY(&mutex); /* a child is told */
	_Atomic int64_t next;             /* time of the next look */
} seats = {.mutex = SL_MUTEX_INIT, .file = -1};

/* So that a child knows the descriptor of the file, and no other by its number. */
static void seats_fork_begins(void) SL_UNCHECKED
{
	sl_mutex_lock(&seats.mutex);
}

static void seats_fork_ends(void) SL_UNCHECKED
{
	sl_mutex_unlock(&seats.mutex);
}

/* In a child of fork(), which shares the locks of its parent until it closes the file. */
static void seats_forget(void) SL_UNCHECKED
{
	if (seats.file >= 0)
		close(seats.file);
	memset(&seats, 0, sizeof(seats));
	sl_mutex_init(&seats.mutex);
	seats.file = -1;
	seats.forks = true;
}

/*
 * Opens the file; path: where it is, for the caller to free, or NULL. create: O_CREAT or 0. Returns
 * a descriptor, or a negative errno: a link, and a file that others can write, are none of ours.
 */
static int seats_open(char **path, int create)
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (folder && *folder == '/' && !access(folder, W_OK | X_OK))
		*path = sl_format("%s/sluice-seats", folder);
	else
		*path = sl_format("/dev/shm/sluice-seats-%u", (unsigned)geteuid());
	if (!*path)
		return -ENOMEM;
	int file = open(*path, O_RDWR | create | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (file < 0)
		return -errno;
	if (!fstat(file, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !(st.st_mode & 077) && st.st_nlink == 1 && st.st_size <= SEATS * SEAT)
		return file;
	close(file);
	return -EPERM;
}

static struct flock seats_lock(short type, unsigned first, unsigned count)
{
	return (struct flock){.l_type = type,
	                      .l_whence = SEEK_SET,
	                      .l_start = first * SEAT,
	                      .l_len = count * SEAT};
}

/*
 * Returns the seats from `first` to before `end` that others have, as bits. The kernel names any of
 * them.
 */
static uint64_t seats_taken(int file, unsigned first, unsigned end)
{
	struct flock lock = seats_lock(F_WRLCK, first, end - first);

	if (first >= end || fcntl(file, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK)
		return 0;
	/* Seats side by side of a process are one lock. */
	unsigned seat = (unsigned)SL_MAX(lock.l_start / SEAT, (off_t)first);
	return UINT64_C(1) << seat | seats_taken(file, first, seat) |
	       seats_taken(file, seat + 1, end);
}

/* Limits each pool that has seats to its share. */
static void seats_share_locked(void) SL_REQUIRES(&seats.mutex)
{
	int64_t until = sl_now() + HOLD_NS;
	unsigned all = seats.others;

	for (unsigned i = 0; i < SEATS; i++)
		all += seats.own[i].taken;
	for (unsigned i = 0; i < SEATS; i++) {
		unsigned rings = 0;

		for (unsigned j = 0; j < SEATS; j++)
			rings += seats.own[j].taken && seats.own[j].pool == seats.own[i].pool;
		/* Beside others a quarter is left to the threads that give commands and look. */
		if (seats.own[i].taken && seats.own[i].pool)
			sl_pool_limit(
				seats.own[i].pool,
				all == 1 ? seats.own[i].cores
					 : SL_MAX(seats.own[i].cores * rings * 3 / (4 * all), 1),
				until);
	}
}

/* A process that is between two reads at a look is seen by the next. */
static void seats_look_locked(void) SL_REQUIRES(&seats.mutex)
{
	if (seats.file < 0 || sl_now() < atomic_load(&seats.next))
		return;
	atomic_store(&seats.next, sl_now() + LOOK_NS);
	unsigned now = (unsigned)__builtin_popcountll(seats_taken(seats.file, 0, SEATS));
	seats.others = SL_MAX(now, seats.before);
	seats.before = now;
	seats_share_locked();
}

void sl_seats_look(void)
{
	if (sl_now() < atomic_load_explicit(&seats.next, memory_order_relaxed))
		return;
	sl_mutex_lock(&seats.mutex);
	seats_look_locked();
	sl_mutex_unlock(&seats.mutex);
}

/* Closes the file of a process that has no seats. */
static void seats_close_locked(void) SL_REQUIRES(&seats.mutex)
{
	for (unsigned i = 0; i < SEATS; i++)
		if (seats.own[i].taken)
			return;
	if (seats.file >= 0)
		close(seats.file);
	seats.file = -1;
}

int sl_seat_take(const char *device, struct sl_pool *pool, unsigned cores)
{
	char text[SEAT] = "", *path = NULL;
	int seat = -1;

	sl_mutex_lock(&seats.mutex);
	if (!seats.forks)
		seats.forks = !pthread_atfork(seats_fork_begins, seats_fork_ends, seats_forget);
	if (seats.file < 0)
		seats.file = seats_open(&path, O_CREAT);
	for (int i = 0; seats.file >= 0 && seat < 0 && i < SEATS; i++) {
		struct flock lock = seats_lock(F_WRLCK, (unsigned)i, 1);

		if (!seats.own[i].taken && !fcntl(seats.file, F_OFD_SETLK, &lock))
			seat = i;
	}
	if (seat >= 0) {
		seats.own[seat].taken = true;
		seats.own[seat].pool = pool;
		seats.own[seat].cores = cores;
		snprintf(text, sizeof(text), "%s", device);
		/* It is for people alone: a full disk does no harm. */
		if (pwrite(seats.file, text, sizeof(text), seat * SEAT) < 0)
			errno = 0;
		seats_look_locked();
	}
	seats_close_locked();
	sl_mutex_unlock(&seats.mutex);
	free(path);
	return seat;
}

void sl_seat_give(int seat)
{
	struct flock lock = seats_lock(F_UNLCK, (unsigned)seat, 1);

	sl_mutex_lock(&seats.mutex);
	seats.own[seat].taken = false;
	/* A child of fork() has none. */
	if (seats.file >= 0)
		fcntl(seats.file, F_OFD_SETLK, &lock);
	seats_close_locked();
	sl_mutex_unlock(&seats.mutex);
}

char *sl_seats_describe(bool *usable)
{
	char *path, *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	int file = seats_open(&path, 0);
	uint64_t taken = file < 0 ? 0 : seats_taken(file, 0, SEATS);

	/* The first process that reads makes it. */
	*usable = file >= 0 || file == -ENOENT;
	if (to && *usable)
		fprintf(to, "%d in %s", __builtin_popcountll(taken), path);
	else if (to)
		fprintf(to, "%s: %s", path ? path : "",
		        file == -EPERM ? "not a file of this user alone" : sl_error_text(file));
	free(path);
	for (int seat = 0; to && seat < SEATS; seat++) {
		char device[SEAT] = "";

		if (taken >> seat & 1 && pread(file, device, SEAT - 1, seat * SEAT) >= 0)
			fprintf(to, ", %.*s", (int)strspn(device, ALPHABET), device);
	}
	if (file >= 0)
		close(file);
	if (to)
		fclose(to);
	return text;
}
