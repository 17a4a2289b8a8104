/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of --continue
 *
 * An interrupted copy leaves the part, which the library renames to the target at the end, and
 * beside it a state file. The state identifies the source and lists the blocks that are on stable
 * storage.
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
	char *path, *state;
	sluice_context *ctx;
	sluice_file *file; /* the part; owned by the end */
	bool begun;        /* path and state belong to this copy */
	bool strong;       /* SRC has a strong ETag */
	bool never;        /* no state is kept */
	bool failed;       /* the state could not be saved */
	uint64_t length;
	/* The state: head, body, checksum. */
	char *head;
	char *body; /* a character per block, '.' or '#' */
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
	struct cli_part *part = calloc(1, sizeof(*part));

	if (!part)
		err(CLI_FAILED, "--continue");
	part->path = path_beside(target, "part");
	*name = basename(part->path);
	part->state = path_beside(target, "state");
	return part;
}

/* ------------------------------------------------------------------------------------- blocks */

size_t cli_part_gap(struct cli_part *part, uint64_t *at, size_t most)
{
	size_t n = BLOCK;

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
	if (part->never)
		return;
	memset(part->body + offset / BLOCK, '#', (n + BLOCK - 1) / BLOCK);
	part->unnoted = true;
}

uint64_t cli_part_there(const struct cli_part *part)
{
	uint64_t there = 0;

	if (!part || part->never || !part->body)
		return 0;
	for (uint64_t i = 0, at = 0; at < part->length; i++, at += BLOCK)
		if (part->body[i] == '#')
			there += part->length - at < BLOCK ? part->length - at : BLOCK;
	return there;
}

/* -------------------------------------------------------------------------------------- state */

/* Saves the state, after the part, so that the state never claims blocks that are not stored. */
static int write_note(struct cli_part *part)
{
	struct sluice_open_options options = SLUICE_OPEN_OPTIONS_INIT;
	sluice_file *file;
	int rc = sluice_sync(part->file);
	CLI_OWNED char *text = cli_format("%s%s\n%*s", part->head, part->body, SUM, "");
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
	if (rc)
		cli_warn("what came cannot be noted: %s", sluice_last_message());
	part->unnoted = part->failed = rc;
	return rc;
}

int cli_part_note(struct cli_part *part)
{
	uint64_t start = sl_now();

	if (start < part->due || !part->unnoted)
		return 0;
	int rc = write_note(part);
	/* Saving takes at most a fiftieth of the time. */
	uint64_t now = sl_now(), rest = (now - start) * 50;
	part->due = now + (rest > INTERVAL_NS ? rest : INTERVAL_NS);
	return rc;
}

/*
 * Writes the head of the state, which identifies SRC later. The query of a URL is left out, because
 * it may hold a secret and differs in each presigned URL; an object with a query needs a strong
 * ETag. Returns the reason why a copy cannot be continued, or NULL.
 */
static const char *describe_copy(struct cli_part *part, const struct cli_end *source, ino_t inode)
{
	const char *etag = source->etag ? source->etag : "";
	char time[96] = "";

	part->strong = sl_strong_etag(etag);
	if (!part->strong)
		snprintf(time, sizeof(time), " %" PRId64 " %ju:%ju", source->modified_ns,
		         (uintmax_t)source->st.st_dev, (uintmax_t)source->st.st_ino);
	part->length = source->length_known ? source->length : 0;
	part->head = cli_format("sluice part 1 %ju\nsource %s\nlength %" PRIu64 "\nversion %s%s\n",
	                        (uintmax_t)inode, source->name, part->length, etag, time);
	return !source->length_known ? "its length is not known before it is read"
	       : source->whole_only  ? "the server has no ranges"
	       : !part->strong && (source->queried || !source->modified_ns)
	               ? "it has no strong ETag, and a query or no time of its last change"
	               : NULL;
}

/* Takes the body of an earlier state. Returns why it is not continued; NULL: it is, or was none. */
static const char *take_up_part(struct cli_part *part, uint64_t length)
{
	/* A reason for each line of the head. */
	static const char *const reasons[] = {
		"the state beside what came is damaged, or of another file",
		"what came is of another SRC", "SRC has another length now", "SRC has changed"};
	size_t i = 0, line = 0, head = strlen(part->head), room = 0;
	CLI_OWNED char *old = NULL;
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
		old[n - SUM - 1] = '\0';
		if (i == head && length == part->length && strlen(old + i) == strlen(part->body)) {
			why = NULL;
			strcpy(part->body, old + i);
		}
	}
	return why;
}

/* Forgets blocks that lie in holes: the part may have been cut off, and grown again. */
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

int cli_part_begin(struct cli_part *part, sluice_context *ctx, const struct cli_end *source,
                   sluice_file *file)
{
	struct stat st, state;

	part->ctx = ctx;
	part->file = file;
	if (lstat(part->path, &st) || (lstat(part->state, &state) == 0 &&
	                               (!S_ISREG(state.st_mode) || state.st_uid != geteuid())))
		return cli_fail(-EPERM, "'%s' is no regular file of this user", part->state);
	const char *never = describe_copy(part, source, st.st_ino);
	size_t blocks = (part->length + BLOCK - 1) / BLOCK;
	part->body = cli_format("%*s", (int)blocks, "");
	memset(part->body, '.', blocks);
	const char *why = never ? never : take_up_part(part, (uint64_t)st.st_size);
	if (!why)
		forget_holes(part);
	if (why)
		cli_warn("'%s' is copied from the start%s: %s", source->name,
		         never ? ", and cannot be continued" : "", why);
	else if (cli_part_there(part) && !part->strong && !source->path)
		cli_warn("'%s' has no strong ETag: that it is the same is told by its length and "
		         "the "
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

int cli_part_commit(struct cli_part *part)
{
	int rc = sluice_close(part->file);

	part->begun = false;
	if (rc == 0)
		unlink(part->state);
	return rc;
}

void cli_part_free(struct cli_part *part)
{
	char there[CLI_TEXT], all[CLI_TEXT];

	if (!part)
		return;
	if (part->begun && !cli_part_there(part)) {
		unlink(part->state);
		sluice_truncate(part->file, 0);
	} else if (part->begun && (!part->unnoted || (!part->failed && write_note(part) == 0))) {
		cli_warn("%s of %s are kept, and taken up by the same command",
		         cli_size_format(cli_part_there(part), there),
		         cli_size_format(part->length, all));
	}
	free(part->path);
	free(part->state);
	free(part->head);
	free(part->body);
	free(part);
}
