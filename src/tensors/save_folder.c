/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of saves
 *
 * Replaces the index of a folder, or of a prefix on S3, and removes files that are in no index.
 *
 * In a local folder each save holds a lock (flock) on a file, .sluice-<id>.lock, from before the
 * first file is made until the index is there or the files are removed. A save that finds files of
 * another takes that lock first, and reads the index after that: so it removes no file of a living
 * save, and none in an index. S3 has no locks, and the age decides.
 *
 * Threads: the thread of the save; a crew removes files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tensors/crew.h"
#include "tensors/save.h"

#define OWN_NAME   ".sluice-" /* then the id, and ".lock" or ".index" */
#define INDEX_NAME "model.safetensors.index.json"
#define DEAD_NS    ((int64_t)86400 * 1000000000) /* by this age the save of a file on S3 is over */

/* In a form '#' is a digit in hex, and '0' a decimal one. */
static bool is_of_form(const char *name, const char *form)
{
	for (; *form && *name; form++, name++) {
		const char *set = *form == '#' ? "0123456789abcdef" : "0123456789";

		if (*form == '#' || *form == '0' ? !strchr(set, *name) : *name != *form)
			return false;
	}
	return !*form && !*name;
}

/* Returns the digits of the id in a name that a save gives to a file of any kind, or NULL. */
static const char *folder_id(const char *name)
{
	if (is_of_form(name, "model-################-00000-of-00000.safetensors"))
		return name + strlen("model-");
	if (is_of_form(name, OWN_NAME "################.lock") ||
	    is_of_form(name, OWN_NAME "################.index"))
		return name + strlen(OWN_NAME);
	return NULL;
}

static bool index_has(const struct sl_tensor_index *index, const char *name)
{
	for (size_t i = 0; i < index->file_count; i++)
		if (!strcmp(index->files[i], name))
			return true;
	return false;
}

/* Reads the index as it is now; without files if there is none, or another file by that name. */
static int folder_read_index(const struct sl_save_folder *folder, const _Atomic bool *stop,
                             struct sl_tensor_index *out)
{
	char *uri = sl_format("%s" INDEX_NAME, folder->plan->uri);
	int rc = uri ? sl_tensor_index_open(folder->ctx, uri, folder->options, stop, out)
	             : sl_fail(-ENOMEM, "no memory");

	free(uri);
	return rc == -ENOENT || rc == -EBADMSG || rc == -EPROTO || rc == -EFBIG ? 0 : rc;
}

/* -------------------------------------------------------------------------------------- locks */

/* Returns the path of a save's lock in the local folder; NULL: no memory. */
static char *lock_path(const struct sl_save_folder *folder, const char *id)
{
	return sl_format("%s" OWN_NAME "%.*s.lock", folder->plan->path, SL_SAVE_ID, id);
}

static int folder_make(struct sl_save_folder *folder, bool durable)
{
	const char *path = folder->plan->path;

	if (!mkdir(path, 0777)) {
		folder->made = true;
		return durable ? sl_sync_folder_of(path) : 0;
	}
	return errno == EEXIST ? 0
	                       : sl_fail(-errno, "cannot make the folder '%s': %s", path,
	                                 sl_error_text(-errno));
}

/*
 * Opens a lock, and takes it. Returns its descriptor, or -errno: -ESTALE if another save has
 * removed the file meanwhile.
 */
static int lock_take(const char *path, int create, int wait)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | create, 0666), err = 0;
	struct stat stat;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | wait) || fstat(fd, &stat))
		err = -errno;
	else if (!stat.st_nlink)
		err = -ESTALE;
	if (err)
		close(fd);
	return err ? err : fd;
}

static int folder_lock(struct sl_save_folder *folder, bool durable)
{
	int rc = 0;

	folder->lock_name = lock_path(folder, folder->plan->id);
	if (!folder->lock_name)
		return sl_fail(-ENOMEM, "no memory");
	/* A save that saw the file before it was locked holds the lock until it has removed it; one
	 * that fails removes the folder if it made it and nothing is there. */
	for (int i = 0; i < SL_TEMPORARY_ATTEMPTS; i++) {
		rc = folder_make(folder, durable);
		folder->lock = rc ? -1 : lock_take(folder->lock_name, O_CREAT, 0);
		if (folder->lock != -ESTALE && folder->lock != -ENOENT)
			break;
	}
	if (rc || folder->lock >= 0)
		return rc;
	unlink(folder->lock_name);
	return sl_fail(folder->lock, "cannot lock '%s': %s", folder->lock_name,
	               sl_error_text(folder->lock));
}

/* Returns whether a save of that id is alive, or may be. The lock of a dead one is removed. */
static bool folder_save_lives(const struct sl_save_folder *folder, const char *id)
{
	char *path = lock_path(folder, id);
	int fd = path ? lock_take(path, 0, LOCK_NB) : -1;
	bool lives = !path || (fd < 0 && fd != -ENOENT);

	if (fd >= 0) {
		unlink(path);
		close(fd);
	}
	free(path);
	return lives;
}

/* -------------------------------------------------------------------------------------- sweep */

/* Names of files that may belong to dead saves. */
struct folder_names {
	struct sl_arena arena;
	const char **names;
	size_t count;
	const struct sl_save_folder *folder;
	_Atomic size_t next; /* that no thread has removed */
};

static int names_add(struct folder_names *names, const char *name)
{
	char *copy = sl_arena_take(&names->arena, strlen(name) + 1);
	const char **grown = sl_array_grown(names->names, names->count, sizeof(*grown));

	if (grown)
		names->names = grown;
	if (!copy || !grown)
		return sl_fail(-ENOMEM, "no memory");
	grown[names->count++] = strcpy(copy, name);
	return 0;
}

/* Lists the files of dead saves. */
static int folder_list_dead(const struct sl_save_folder *folder, struct folder_names *names)
{
	struct sluice_entry entry = {.size = sizeof(entry)};
	struct timespec now;
	sluice_list *list;
	int more, rc = sluice_list_open(folder->ctx, folder->plan->uri, folder->options, 0, &list);

	if (rc)
		return rc;
	clock_gettime(CLOCK_REALTIME, &now);
	while (!rc && (more = sluice_list_next(list, &entry)) > 0) {
		const char *slash = strrchr(entry.name, '/');
		const char *name = slash ? slash + 1 : entry.name, *id = folder_id(name);
		int64_t age = now.tv_sec * INT64_C(1000000000) - entry.modified_ns;

		if (!id || entry.is_prefix || !memcmp(id, folder->plan->id, SL_SAVE_ID) ||
		    (folder->plan->path ? folder_save_lives(folder, id)
		                        : !entry.modified_ns || age <= DEAD_NS))
			continue;
		/* A lock is removed by a save that holds it. */
		if (strcmp(id + SL_SAVE_ID, ".lock"))
			rc = names_add(names, name);
	}
	sluice_list_free(list);
	return rc ? rc : more;
}

static void folder_remove(const struct sl_save_folder *folder, const char *name)
{
	char *uri = sl_format("%s%s", folder->plan->uri, name);

	if (uri)
		sluice_remove(folder->ctx, uri, folder->options, NULL);
	free(uri);
}

/* A thread of the crew: removes files that no other has taken. */
static int folder_remove_some(void *argument)
{
	struct folder_names *names = argument;
	size_t i;

	while ((i = atomic_fetch_add(&names->next, 1)) < names->count)
		folder_remove(names->folder, names->names[i]);
	return 0;
}

void sl_save_folder_sweep(struct sl_save_folder *folder)
{
	struct folder_names dead = {.folder = folder};
	struct sl_tensor_index index = {0};
	_Atomic bool stop = false;
	size_t count = 0;
	int rc = folder_list_dead(folder, &dead);

	for (size_t i = 0; !rc && i < folder->old.file_count; i++)
		if (folder_id(folder->old.files[i]))
			rc = names_add(&dead, folder->old.files[i]);
	/* The index is read after the locks: see above. */
	if (!rc)
		rc = folder_read_index(folder, NULL, &index);
	for (size_t i = 0; !rc && i < dead.count; i++)
		if (!index_has(&index, dead.names[i]))
			dead.names[count++] = dead.names[i];
	dead.count = count;
	/* Files in memory take a while. */
	sl_crew_run("sluice-save", SL_MIN(count, 8), folder_remove_some, &dead, &stop);
	sl_tensor_index_clear(&index);
	sl_arena_clear(&dead.arena);
	free(dead.names);
}

/* -------------------------------------------------------------------------- from open to close */

int sl_save_folder_open(struct sl_save_folder *folder, bool durable, const _Atomic bool *stop)
{
	int rc;

	folder->lock = -1;
	rc = folder->plan->path ? folder_lock(folder, durable) : 0;
	return rc ? rc : folder_read_index(folder, stop, &folder->old);
}

bool sl_save_folder_in_index(const struct sl_save_folder *folder)
{
	struct sl_tensor_index index = {0};
	bool found = !folder->plan->file_count || folder_read_index(folder, NULL, &index) ||
	             index_has(&index, folder->plan->files[0].name);

	sl_tensor_index_clear(&index);
	return found;
}

int sl_save_folder_commit(const struct sl_save_folder *folder, bool durable)
{
	struct sluice_open_options o = *folder->options;
	const struct sl_save_plan *plan = folder->plan;
	char *uri = sl_format("%s" INDEX_NAME, plan->uri), part[64];
	sluice_file *file;
	sluice_op *op;
	int64_t n;
	int rc;

	if (!uri)
		return sl_fail(-ENOMEM, "no memory");
	o.flags = SLUICE_OPEN_REPLACE | (durable ? SLUICE_OPEN_DURABLE : 0);
	o.expected_size = plan->index_bytes;
	snprintf(part, sizeof(part), OWN_NAME "%s.index", plan->id);
	o.part = plan->path ? part : NULL;
	rc = sluice_open(folder->ctx, uri, &o, &file);
	free(uri);
	if (rc)
		return rc;
	rc = sluice_write(file, plan->index, plan->index_bytes, 0, &op);
	if (!rc) {
		n = sluice_wait(op, -1);
		rc = n < 0 ? sl_fail((int)n, "%s", sluice_op_message(op)) : 0;
		sluice_op_free(op);
	}
	if (!rc)
		rc = sluice_close(file);
	else
		sluice_discard(file);
	if (rc && plan->path)
		folder_remove(folder, part);
	return rc;
}

void sl_save_folder_close(struct sl_save_folder *folder, bool stay)
{
	if (folder->lock >= 0) {
		unlink(folder->lock_name);
		close(folder->lock);
	}
	if (folder->made && !stay)
		rmdir(folder->plan->path);
	free(folder->lock_name);
	sl_tensor_index_clear(&folder->old);
}
