/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of --continue
 *
 * An interrupted copy leaves the part, which the library renames to the target at the end, and
 * beside it a state file. The state identifies the source and lists the blocks that are on stable
 * storage.
 *
 * A copy to S3 leaves an upload instead. Its state lies in a folder of the user, and has the text by
 * which the library goes on with it.
 *
 * Threads: the thread of the copy.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "cp.h"

enum { BLOCK = CLI_PART_BLOCK, SUM = sizeof "0123456789abcdef\n" - 1 };
static const uint64_t INTERVAL_NS = 500000000;

struct cli_part {
	char *path, *state; /* path is NULL for an upload */
	sluice_context *ctx;
	sluice_file *file; /* the part, or the upload; owned by the end */
	bool begun;        /* path and state belong to this copy */
	bool strong;       /* SRC has a strong ETag */
	bool never;        /* no state is kept */
	bool failed;       /* the state could not be saved */
	char *uri;         /* of an upload, as the next */
	struct sluice_open_options options;
	uint64_t length;
	/* The state: head, body, checksum. */
	char *head;
	char *body; /* a character per block, '.' or '#'; of an upload its text, NULL: no part */
	const char *line; /* of an upload: the first part of the body that may lie ahead */
	bool unnoted;
	uint64_t due; /* time of the next save */
};

static char *path_beside(const char *target, const char *suffix)
{
	const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;

	return cli_format("%.*s.%s.sluice-%s", (int)(name - target), target, name, suffix);
}

struct cli_part *cli_part_new(const char *target, const char **name)
{
	struct cli_part *part = calloc(1, sizeof *part);

	if (!part)
		err(CLI_FAILED, "--continue");
	part->path = path_beside(target, "part");
	*name = basename(part->path);
	part->state = path_beside(target, "state");
	return part;
}

/* ------------------------------------------------------------------------------------- blocks */

/* Takes the range of a part from *line on, which it moves to the next. Returns false behind the last. */
static bool upload_range(const char **line, uint64_t *from, uint64_t *to)
{
	char *at;

	if (!*line || !**line)
		return false;
	*from = strtoull(*line, &at, 10);
	*to = *from + strtoull(at, &at, 10);
	*line = strchr(at, '\n') + 1;
	return true;
}

static size_t upload_gap(struct cli_part *part, uint64_t *at, size_t most)
{
	const char *next = part->line;
	uint64_t from, to;

	for (; upload_range(&next, &from, &to); part->line = next) {
		if (from > *at)
			return from - *at < most ? from - *at : most;
		*at = *at < to ? to : *at;
	}
	return most;
}

size_t cli_part_gap(struct cli_part *part, uint64_t *at, size_t most)
{
	size_t n = BLOCK;

	if (!part->path)
		return upload_gap(part, at, most);
	if (part->never)
		return most;
	const char *gap = strchr(part->body + (*at + BLOCK - 1) / BLOCK, '.');
	*at = gap ? (uint64_t)(gap - part->body) * BLOCK : part->length;
	while (gap && n < most && gap[n / BLOCK] == '.')
		n += BLOCK;
	return n;
}

void cli_part_wrote(struct cli_part *part, uint64_t offset, size_t n)
{
	/* Of an upload only the server's answer counts. */
	if (!part->path || part->never)
		return;
	memset(part->body + offset / BLOCK, '#', (n + BLOCK - 1) / BLOCK);
	part->unnoted = true;
}

uint64_t cli_part_there(const struct cli_part *part)
{
	uint64_t there = 0, from, to;

	if (!part || part->never || !part->body)
		return 0;
	if (!part->path) {
		for (const char *line = strchr(part->body, '\n') + 1;
		     upload_range(&line, &from, &to);)
			there += to - from;
		return there;
	}
	for (uint64_t i = 0, at = 0; at < part->length; i++, at += BLOCK)
		if (part->body[i] == '#')
			there += part->length - at < BLOCK ? part->length - at : BLOCK;
	return there;
}

/* -------------------------------------------------------------------------------------- state */

/*
 * Saves the state. A file is synced first, so that the state never claims blocks that are not
 * stored.
 */
static int write_note(struct cli_part *part)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file;
	int rc = part->path ? sluice_sync(part->file) : 0;
	char *text = cli_format("%s%s\n%*s", part->head, part->body, SUM, "");
	size_t size = strlen(text);

	options.flags = SLUICE_OPEN_REPLACE | SLUICE_OPEN_DURABLE;
	options.mode = 0600;
	snprintf(text + size - SUM, SUM + 1, "%016" PRIx64 "\n",
	         (uint64_t)XXH3_64bits(text, size - SUM));
	if (rc == 0)
		rc = sluice_open(part->ctx, part->state, &options, &file);
	if (rc == 0) {
		sluice_write(file, text, size, 0, NULL);
		rc = sluice_close(file);
	}
	free(text);
	if (rc)
		warnx("what came cannot be noted: %s", sluice_last_message());
	part->unnoted = part->failed = rc;
	return rc;
}

int cli_part_look(struct cli_part *part)
{
	char *text;
	int rc = part->path ? -ENOTSUP : sluice_upload_state(part->file, &text);

	if (rc)
		return rc;
	part->unnoted |= !part->body || strcmp(part->body, text);
	free(part->body);
	part->body = text;
	part->line = strchr(text, '\n') + 1;
	return 0;
}

int cli_part_note(struct cli_part *part)
{
	uint64_t start = sl_now();

	if (start < part->due)
		return 0;
	/* A write says why the upload has failed. */
	cli_part_look(part);
	if (!part->unnoted)
		return 0;
	int rc = write_note(part);
	/* Saving takes at most a fiftieth of the time. */
	uint64_t now = sl_now(), rest = (now - start) * 50;
	part->due = now + (rest > INTERVAL_NS ? rest : INTERVAL_NS);
	return rc;
}

int cli_part_settle(struct cli_part *part)
{
	struct timespec moment = {0, 1000000};
	int rc;

	while ((rc = cli_part_look(part)) == -EAGAIN ||
	       (rc == 0 && cli_part_there(part) < part->length)) {
		if (cli_interrupted())
			return -ECANCELED;
		if (rc == 0 && cli_part_note(part))
			return -EIO;
		nanosleep(&moment, NULL);
		moment.tv_nsec = moment.tv_nsec < 50000000 ? 2 * moment.tv_nsec : 50000000;
	}
	/* A short object is sent when it is closed. */
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	return part->unnoted ? write_note(part) : 0;
}

/* RFC 9110, section 8.8.3. Two different ETags appear as a list, which is not strong. */
static bool is_strong_etag(const char *etag)
{
	size_t length = strlen(etag);

	if (length < 2 || etag[0] != '"' || etag[length - 1] != '"')
		return false;
	for (size_t i = 1; i < length - 1; i++)
		if ((unsigned char)etag[i] <= ' ' || etag[i] == '"' || etag[i] == 0x7f)
			return false;
	return true;
}

/*
 * Writes the head of the state, which identifies SRC later. The query of a URL is left out, because
 * it may hold a secret and differs in each presigned URL; an object with a query needs a strong
 * ETag. Frees what. Returns the reason why a copy cannot be continued, or NULL.
 */
static const char *describe_copy(struct cli_part *part, const struct cli_end *source,
                                 const char *name, char *what)
{
	const char *etag = source->etag ? source->etag : "";
	char time[96] = "";

	part->strong = is_strong_etag(etag);
	if (!part->strong)
		snprintf(time, sizeof time, " %" PRId64 " %ju:%ju", source->modified_ns,
		         (uintmax_t)source->st.st_dev, (uintmax_t)source->st.st_ino);
	part->length = source->length_known ? source->length : 0;
	part->head = cli_format("sluice %s\nsource %s\nlength %" PRIu64 "\nversion %s%s\n", what,
	                        name, part->length, etag, time);
	free(what);
	return !source->length_known ? "its length is not known before it is read"
	       : source->whole_only  ? "the server has no ranges"
	       : !part->strong && (source->queried || !source->modified_ns)
	               ? "it has no strong ETag, and a query or no time of its last change"
	               : NULL;
}

/*
 * Takes the body of an earlier state; of an upload also if it is not continued. Returns the reason
 * why it is not; NULL: it is, or there is none.
 */
static const char *take_up_part(struct cli_part *part, uint64_t length)
{
	/* A reason for each line of the head. */
	static const char *const reasons[] = {
		"the state beside what came is damaged, or of another file",
		"what came is of another SRC", "SRC has another length now", "SRC has changed"};
	size_t i = 0, line = 0, head = strlen(part->head), room = 0;
	char *old = NULL, *body;
	FILE *from = fopen(part->state, "re");
	ssize_t n = from ? getdelim(&old, &room, '\0', from) : 0;

	if (from)
		fclose(from);
	for (; n > 0 && i < head && old[i] == part->head[i]; i++)
		line += old[i] == '\n' && line < 3;
	const char *why = from     ? reasons[i < head && (ssize_t)i < n ? line : 0]
	                  : length ? "there is no state beside what came"
	                           : NULL;
	if (n > SUM && strtoull(old + n - SUM, NULL, 16) == XXH3_64bits(old, n - SUM)) {
		body = part->path ? old + i : strstr(old, "\nsluice upload 1 ");
		old[n - SUM - 1] = '\0';
		if (i == head &&
		    (!part->path || (length == part->length && strlen(body) == strlen(part->body))))
			why = NULL;
		if (body && (!why || !part->path)) {
			free(part->body);
			part->body = cli_format("%s", body + !part->path);
		}
	}
	free(old);
	return why;
}

/* Forgets blocks that lie in holes: somebody may have cut the part off, and made it as long as before. */
static void forget_holes(struct cli_part *part)
{
	int fd = open(part->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	off_t at = 0, end, length = (off_t)part->length;

	for (; (at = lseek(fd, at, SEEK_HOLE)) >= 0 && at < length; at = end) {
		end = lseek(fd, at, SEEK_DATA);
		end = end < 0 ? length : end;
		memset(part->body + at / BLOCK, '.', (size_t)((end - 1) / BLOCK - at / BLOCK + 1));
	}
	close(fd);
}

static void print_anew(const struct cli_end *source, bool never, const char *why)
{
	warnx("'%s' is copied from the start%s: %s", source->name,
	      never ? ", and cannot be continued" : "", why);
}

int cli_part_begin(struct cli_part *part, sluice_context *ctx, const struct cli_end *source,
                   sluice_file *file)
{
	struct stat st, state;

	part->ctx = ctx;
	part->file = file;
	if (lstat(part->path, &st) || (lstat(part->state, &state) == 0 &&
	                               (!S_ISREG(state.st_mode) || state.st_uid != geteuid())))
		return cli_fail(-EPERM, "'%s' is no regular file of this user", part->state);
	const char *never = describe_copy(part, source, source->name,
	                                  cli_format("part 1 %ju", (uintmax_t)st.st_ino));
	size_t blocks = (part->length + BLOCK - 1) / BLOCK;
	part->body = cli_format("%*s", (int)blocks, "");
	memset(part->body, '.', blocks);
	const char *why = never ? never : take_up_part(part, (uint64_t)st.st_size);
	if (!why)
		forget_holes(part);
	if (why)
		print_anew(source, never, why);
	else if (cli_part_there(part) && !part->strong && !source->path)
		warnx("'%s' has no strong ETag: that it is the same is told by its length and the "
		      "second of its last change alone",
		      source->name);
	part->begun = true;
	if (cli_part_there(part))
		return 0;
	/* The old state must not describe new bytes. */
	int rc = write_note(part);
	if (rc == 0 && st.st_size)
		rc = cli_said(sluice_truncate(file, 0));
	if (rc == 0)
		rc = cli_said(sluice_truncate(file, part->length));
	part->never = never;
	return rc;
}

/* Returns the path of the state of an upload, in a folder of the user, which is made. */
static char *upload_state_path(const char *source, const char *uri)
{
	const char *base = getenv("XDG_STATE_HOME"), *below = "";
	char *names = cli_format("%s\n%s", source, uri), *path;
	XXH128_hash_t hash = XXH3_128bits(names, strlen(names));

	free(names);
	if (!base || base[0] != '/') {
		base = getenv("HOME");
		below = "/.local/state";
	}
	if (!base || base[0] != '/')
		errx(CLI_FAILED, "--continue: neither XDG_STATE_HOME nor HOME is a path");
	path = cli_format("%s%s/sluice/%016" PRIx64 "%016" PRIx64 ".upload", base, below,
	                  hash.high64, hash.low64);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0700) && errno != EEXIST)
			err(CLI_FAILED, "--continue: cannot make '%s'", path);
		*slash = '/';
	}
	return path;
}

/* Has the server drop an upload that is not taken up. */
static void drop_upload(const struct cli_part *part)
{
	char *line = cli_format("%.*s", (int)strcspn(part->body, "\n"), part->body);

	sluice_remove(part->ctx, part->uri, &part->options, strrchr(line, ' ') + 1);
	free(line);
}

int cli_part_open(sluice_context *ctx, const struct cli_end *source, const char *uri,
                  struct sluice_open_options *options, struct cli_end *target)
{
	struct cli_part *part = calloc(1, sizeof *part);
	char *name = source->path ? realpath(source->path, NULL) : cli_format("%s", source->name);

	if (!part || !name)
		err(CLI_FAILED, "--continue");
	part->ctx = ctx;
	const char *why = describe_copy(part, source, name, cli_format("upload 1 %s", uri));
	/* An empty object is no upload. */
	if (why || !part->length) {
		if (why)
			print_anew(source, true, why);
		free(name);
		cli_part_free(part, NULL);
		return sluice_open(ctx, uri, options, &target->file);
	}
	target->part = part;
	part->uri = cli_format("%s", uri);
	part->options = *options;
	part->state = upload_state_path(name, uri);
	free(name);
	why = take_up_part(part, 0);
	if (why)
		print_anew(source, false, why);
	if (why && part->body)
		drop_upload(part);
	if (!why)
		options->upload = part->body;
	int rc = sluice_open(ctx, uri, options, &target->file);
	if (options->upload && (rc == -ENOENT || rc == -EINVAL)) {
		print_anew(source, false, sluice_last_message());
		options->upload = NULL;
		rc = sluice_open(ctx, uri, options, &target->file);
	}
	if (!options->upload)
		unlink(part->state);
	options->upload = NULL;
	free(part->body);
	part->body = NULL;
	part->file = target->file;
	part->begun = rc == 0;
	if (rc == 0)
		cli_part_look(part);
	return rc;
}

int cli_part_commit(struct cli_part *part)
{
	int rc = sluice_close(part->file);

	/* The upload stays. */
	part->begun = rc && !part->path;
	part->file = NULL;
	if (rc == 0)
		unlink(part->state);
	return rc;
}

void cli_part_free(struct cli_part *part, sluice_file **file)
{
	char there[CLI_TEXT], all[CLI_TEXT];

	if (!part)
		return;
	if (part->begun && part->file)
		cli_part_look(part);
	if (part->begun && part->path && !cli_part_there(part)) {
		unlink(part->state);
		sluice_truncate(part->file, 0);
	} else if (part->begun && cli_part_there(part) &&
	           (!part->unnoted || (!part->failed && write_note(part) == 0))) {
		warnx("%s of %s are kept, and taken up by the same command",
		      cli_size_format(cli_part_there(part), there),
		      cli_size_format(part->length, all));
	} else if (part->begun && !part->path && part->failed && access(part->state, F_OK)) {
		/* Nothing would lead to the upload. No part is on its way to it any more. */
		sluice_discard(*file);
		*file = NULL;
		drop_upload(part);
	}
	free(part->uri);
	free(part->path);
	free(part->state);
	free(part->head);
	free(part->body);
	free(part);
}
