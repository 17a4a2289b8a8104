/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ends of a copy
 *
 * Interprets the names of source and target, opens them, and protects existing files.
 *
 * Threads: any, each with its own ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cp.h"

#define SMALL      (1 << 20)
#define LOOK_AHEAD (4 << 20) /* for a large hole */

/*
 * Returns the descriptor of this process that name stands for, or -1. Opening such a name would
 * create a second file description at offset 0, or open a path that is not the file's any more.
 */
static int named_descriptor(const char *name, int standard)
{
	static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
	static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};

	if (!strcmp(name, "-"))
		return standard;
	for (int i = 0; i < 3; i++)
		if (!strcmp(name, names[i]))
			return i;
	for (size_t i = 0; i < 2; i++) {
		size_t n = strlen(folders[i]);
		if (strncmp(name, folders[i], n) || !name[n] || strlen(name + n) > 6)
			continue;
		if (strspn(name + n, "0123456789") == strlen(name + n))
			return atoi(name + n);
	}
	return -1;
}

static bool is_stream(mode_t mode)
{
	return S_ISFIFO(mode) || S_ISCHR(mode);
}

/* If the path has become another file's, there is no information about holes. */
static void find_holes(struct cli_end *end)
{
	struct stat st;

	if (!end->sparse || !end->path)
		return;
	end->holes = open(end->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (end->holes >= 0 && (fstat(end->holes, &st) || st.st_dev != end->st.st_dev ||
	                        st.st_ino != end->st.st_ino)) {
		close(end->holes);
		end->holes = -1;
	}
}

/* open() of a FIFO waits for the other side; an interrupt ends the wait. */
static int end_open_stream(struct cli_end *end, const char *path, int flags)
{
	cli_interrupt_tick();
	do {
		end->fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
		if (end->fd < 0 && cli_interrupted())
			return cli_fail(-ECANCELED, "interrupted");
	} while (end->fd < 0 && errno == EINTR);
	if (end->fd < 0)
		return cli_fail(-errno, "cannot open '%s': %s", end->name, strerror(errno));
	end->fd_owned = true;
	return 0;
}

static int adopt_descriptor(struct cli_end *end, int fd)
{
	struct stat st;

	cli_interrupt_tick();
	if (fstat(fd, &st))
		return cli_fail(-errno, "'%s': %s", end->name, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return cli_fail(-EISDIR, "'%s' is a directory", end->name);
	end->fd = fd;
	end->st = st;
	if (S_ISREG(st.st_mode)) {
		off_t at = lseek(fd, 0, SEEK_CUR);
		if (at >= 0 && at < st.st_size)
			end->length = (uint64_t)(st.st_size - at);
		/* Files of /proc and /sys have no blocks, and meaningless sizes. */
		end->length_known = end->length && st.st_blocks;
	}
	return 0;
}

/* Makes the end that of a dataset of the file: that of a .npy file of it. */
static int end_show_dataset(struct cli_end *end, const char *file)
{
	CLI_OWNED char *path = cli_local_path(file);

	free(end->path);
	end->path = NULL;
	if (path && stat(path, &end->st))
		end->st = (struct stat){0};
	end->head = cli_array_header(end->file, &end->head_bytes);
	end->length += end->head_bytes;
	return cli_said(end->head ? 0 : -EINVAL);
}

static int end_open_source_file(sluice_context *ctx, const char *uri, const struct cli_open *how,
                                struct cli_end *end)
{
	struct sluice_open_options options = cli_open_options(how);
	struct sluice_file_info st = {.size = sizeof(st)};

	options.flags = SLUICE_OPEN_READ | how->flags;
	options.first_bytes = options.expected_size = how->first_bytes;
	CLI_OWNED char *file = cli_dataset_open_split(ctx, uri, &options);
	int rc = cli_said(sluice_open(ctx, file ? file : uri, &options, &end->file));

	rc = rc ? rc : cli_said(sluice_stat(end->file, &st));
	end->length = st.length;
	if (rc == 0 && file) {
		end->length_known = true;
		rc = end_show_dataset(end, file);
	}
	if (rc || end->head)
		return rc;
	end->length_known = !(st.flags & SLUICE_STAT_SIZE_UNKNOWN);
	end->whole_only = st.flags & SLUICE_STAT_WHOLE_ONLY;
	/* The path may be another file by now, whose permissions count. */
	end->st.st_mode = st.mode;
	end->sparse = end->length_known && S_ISREG(st.mode) && st.allocated < st.length;
	find_holes(end);
	end->memory = st.memory;
	end->device = st.device;
	end->etag = st.full_etag;
	end->modified_ns = st.modified_ns;
	end->crc32c = st.crc32c;
	end->queried = !end->path && strchr(uri, '?');
	if (!end->path) {
		end->st.st_mtim.tv_sec = st.modified_ns / 1000000000;
		end->st.st_mtim.tv_nsec = st.modified_ns % 1000000000;
		end->st.st_atim = end->st.st_mtim;
	}
	return 0;
}

int cli_end_open_source(sluice_context *ctx, const char *uri, const struct cli_open *how,
                        struct cli_end *out)
{
	struct stat st;
	int rc;

	*out = (struct cli_end){.fd = -1,
	                        .holes = -1,
	                        .name = cli_uri_name(strcmp(uri, "-") ? uri : "standard input")};
	int fd = named_descriptor(uri, STDIN_FILENO);
	if (fd < 0)
		out->path = cli_local_path(uri);
	if (fd >= 0) {
		rc = adopt_descriptor(out, fd);
	} else if (out->path && stat(out->path, &st) == 0) {
		out->st = st;
		rc = is_stream(st.st_mode) ? end_open_stream(out, out->path, O_RDONLY)
		                           : end_open_source_file(ctx, uri, how, out);
	} else {
		rc = end_open_source_file(ctx, uri, how, out);
	}
	if (rc)
		cli_end_discard(out);
	return rc;
}

uint64_t cli_end_next_data(const struct cli_end *source, uint64_t at)
{
	off_t data = lseek(source->holes, (off_t)at, SEEK_DATA);
	struct stat st;

	/* ENXIO also means that the file became shorter. */
	if (data < 0 && errno == ENXIO && !fstat(source->holes, &st) &&
	    (uint64_t)st.st_size >= source->length)
		return source->length;
	if (data < 0)
		return at;
	return (uint64_t)data < source->length ? (uint64_t)data : source->length;
}

uint64_t cli_end_next_hole(const struct cli_end *source, uint64_t at)
{
	for (uint64_t most = at + LOOK_AHEAD; at < most;) {
		off_t hole = lseek(source->holes, (off_t)at, SEEK_HOLE);

		if (hole < 0)
			return source->length;
		uint64_t data = cli_end_next_data(source, (uint64_t)hole);
		if (data == (uint64_t)hole)
			return source->length;
		if (data - (uint64_t)hole >= CLI_LEAST_HOLE || data == source->length)
			return ((uint64_t)hole + CLI_PART_BLOCK - 1) / CLI_PART_BLOCK *
			       CLI_PART_BLOCK;
		at = data;
	}
	/* A chunk that ends in a block of --continue would mark all of it as present. */
	return at / CLI_PART_BLOCK * CLI_PART_BLOCK;
}

uint64_t cli_end_limited_ms(const struct cli_end *end)
{
	struct sluice_file_info info = {.size = sizeof(info)};

	if (!end->file || end->path || end->memory || sluice_stat(end->file, &info))
		return 0;
	return info.limited_ms;
}

int cli_end_check_sum(const struct cli_end *source, uint32_t crc)
{
	char text[SL_CRC32C_TEXT];

	sl_crc32c_text(crc, text);
	if (!strcmp(text, source->crc32c))
		return 0;
	return sl_fail(-EIO,
	               "'%s': the CRC-32C of the bytes that came is %s, and the server says %s",
	               source->name, text, source->crc32c);
}

static bool same_file(const struct cli_end *source, const struct stat *st)
{
	return source->st.st_ino == st->st_ino && source->st.st_dev == st->st_dev &&
	       !is_stream(st->st_mode);
}

bool cli_is_object(const char *uri)
{
	return !strncasecmp(uri, "s3://", 5);
}

size_t cli_uri_length(const char *uri)
{
	return cli_is_object(uri) ? strlen(uri) : strcspn(uri, "?");
}

/*
 * Returns a local name for a remote source: the last part of its path, still escaped, so that an
 * escaped slash leads nowhere. NULL: there is none.
 */
static char *last_uri_part(const struct cli_end *source)
{
	size_t n = cli_uri_length(source->name);
	const char *slash = source->file ? memrchr(source->name, '/', n) : NULL;

	/* After http:// comes a server, not a file; a blob may have that name. */
	if (!slash || slash == source->name || slash + 1 == source->name + n ||
	    (slash[-1] == '/' && !cli_is_blob(source->name)))
		return NULL;
	return strndup(slash + 1, (size_t)(source->name + n - slash - 1));
}

/* Turns path into path/NAME, where NAME is the last part of the source's name. */
static int enter_directory(const struct cli_end *source, char **path)
{
	CLI_OWNED char *from = source->path ? strdup(source->path) : last_uri_part(source);

	if (!from)
		return cli_fail(-EISDIR, "'%s' is a directory; name the file in it", *path);
	bool slashed = (*path)[strlen(*path) - 1] == '/';
	char *joined = cli_format("%s%s%s%s", *path, slashed ? "" : "/", basename(from),
	                          source->head ? ".npy" : "");
	free(*path);
	*path = joined;
	return 0;
}

static int end_open_block_device(sluice_context *ctx, const char *path,
                                 const struct cli_end *source, struct sluice_open_options *options,
                                 struct cli_end *out)
{
	struct sluice_file_info st = {.size = sizeof(st)};

	options->flags &= ~(unsigned)(SLUICE_OPEN_REPLACE | SLUICE_OPEN_EXCLUSIVE);
	options->expected_size = 0;
	out->sparse = out->replaces = false;
	int rc = cli_said(sluice_open(ctx, path, options, &out->file));
	if (rc)
		return rc;
	rc = cli_said(sluice_stat(out->file, &st));
	if (rc == 0 && source->length_known && source->length > st.length)
		rc = cli_fail(-ENOSPC, "'%s' has %" PRIu64 " bytes, '%s' has %" PRIu64, out->name,
		              st.length, source->name, source->length);
	return rc;
}

/* Opens a new file at path. A file there is replaced through links, and its permissions stay. */
static int end_open_new_file(sluice_context *ctx, const char *path, const struct stat *there,
                             const struct cli_end *source, const struct cli_cp_options *o,
                             struct sluice_open_options *options, struct cli_end *out)
{
	CLI_OWNED char *target = there ? realpath(path, NULL) : strdup(path);

	if (!target)
		return cli_fail(-errno, "'%s': %s", path, strerror(errno));
	/* As with cp, set-user-ID bits are not copied. */
	mode_t mode = 0666 & ~o->mask;
	if (there)
		mode = there->st_mode & 07777;
	else if (source->file && S_ISREG(source->st.st_mode))
		mode = source->st.st_mode & 0777 & ~o->mask;
	/* With -p the file gets its permissions when complete, and only the user's until then. */
	options->mode = o->preserve && source->path ? S_IRUSR | S_IWUSR : mode;
	/* Mode 0 means the default to the library, and is impossible for a copy to be continued. */
	if (options->mode == 0) {
		options->mode = S_IRUSR;
		out->closed = !o->continues;
	}
	out->replaces = true;
	if (o->continues)
		out->part = cli_part_new(target, &options->part);
	int rc = cli_said(sluice_open(ctx, target, options, &out->file));
	if (rc == 0 && out->part)
		rc = cli_part_begin(out->part, ctx, source, out->file);
	return rc;
}

/* Checks an existing target: 0 if writing is allowed. */
static int check_existing(const char *path, const struct stat *st, const struct cli_end *source,
                          const struct cli_cp_options *o)
{
	if (same_file(source, st))
		return cli_fail(-EINVAL, "'%s' and '%s' are the same file", source->name, path);
	if (S_ISDIR(st->st_mode))
		return cli_fail(-EISDIR, "'%s' is a directory", path);
	if (S_ISSOCK(st->st_mode))
		return cli_fail(-ENXIO, "'%s' is a socket", path);
	if (o->continues && !S_ISREG(st->st_mode))
		return cli_fail(-EINVAL, "--continue: '%s' is no regular file", path);
	if (!is_stream(st->st_mode) && !o->open.force)
		return cli_fail(-EEXIST, "'%s' exists; use -f to overwrite", path);
	return 0;
}

static int end_open_target_path(sluice_context *ctx, const struct cli_end *source,
                                const struct cli_cp_options *o, struct sluice_open_options *options,
                                struct cli_end *out)
{
	const char *path = out->path;
	struct stat st, link;

	out->sparse = source->sparse;
	if (stat(path, &st) == 0) {
		int rc = check_existing(path, &st, source, o);
		if (rc)
			return rc;
		if (is_stream(st.st_mode)) {
			out->sparse = false;
			out->st.st_mode = st.st_mode;
			return end_open_stream(out, path, O_WRONLY);
		}
		if (S_ISBLK(st.st_mode))
			return end_open_block_device(ctx, path, source, options, out);
		return end_open_new_file(ctx, path, &st, source, o, options, out);
	}
	int why = errno;
	if (lstat(path, &link) == 0) {
		if (why != ENOENT)
			return cli_fail(-why, "'%s': %s", path, strerror(why));
		return cli_fail(-why,
		                "'%s' is a symbolic link to nothing; it is not written through",
		                path);
	}
	if (path[0] && path[strlen(path) - 1] == '/')
		return cli_fail(-ENOENT, "'%s': there is no such directory", path);
	return end_open_new_file(ctx, path, NULL, source, o, options, out);
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int end_open_target_stream(int fd, const struct cli_end *source, struct cli_end *out)
{
	struct stat st;
	int rc = adopt_descriptor(out, fd);

	if (rc)
		return rc;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && same_file(source, &st))
		return cli_fail(-EINVAL, "'%s' and '%s' are the same file", source->name,
		                out->name);
	return 0;
}

/* Prints an error, which may say that the target exists; returns rc. */
static int said_of_target(int rc)
{
	return rc == -EEXIST ? cli_fail(rc, "%s; use -f to overwrite it", sluice_last_message())
	                     : cli_said(rc);
}

static int end_open_remote(sluice_context *ctx, const char *uri,
                           struct sluice_open_options *options, struct cli_end *out)
{
	int rc = sluice_open(ctx, uri, options, &out->file);

	cli_interrupt_catch();
	out->replaces = true;
	out->in_order = !cli_is_blob(uri);
	out->parts = cli_is_object(uri);
	return said_of_target(rc);
}

/* Checks that the source has a length, with which a blob and a PUT begin. */
static int check_length(const struct cli_end *source, const char *uri)
{
	bool blob = cli_is_blob(uri);

	if (source->length_known || cli_is_object(uri))
		return 0;
	return cli_fail(-ENOTSUP,
	                "'%s' has no length that is known before it is read, as %s needs it; copy "
	                "it to a file first",
	                source->name, blob ? "a blob" : "a web server");
}

static int end_open_blob(sluice_context *ctx, const char *uri, struct sluice_open_options *options,
                         struct cli_end *out)
{
	struct sluice_file_info st = {.size = sizeof(st)};
	/* Without the rest of common memory: this process makes no other blob. */
	CLI_OWNED char *alone = cli_blob_option(cli_format("%s", uri), "alone", NULL);
	int rc = end_open_remote(ctx, alone, options, out);

	if (rc == 0 && sluice_stat(out->file, &st) == 0) {
		out->memory = st.memory;
		out->device = st.device;
	}
	return rc;
}

int cli_end_open_target(sluice_context *ctx, const struct cli_cp_options *o, const char *uri,
                        const struct cli_end *source, struct cli_end *out)
{
	struct sluice_open_options options = cli_open_options(&o->open);
	int fd = named_descriptor(uri, STDOUT_FILENO);
	char *path = fd < 0 ? cli_local_path(uri) : NULL;
	int rc = 0;

	*out = (struct cli_end){.fd = -1, .holes = -1};
	options.flags = SLUICE_OPEN_WRITE | SLUICE_OPEN_REPLACE;
	if (!o->open.force)
		options.flags |= SLUICE_OPEN_EXCLUSIVE | (o->sum ? SLUICE_OPEN_MANY : 0);
	if (o->durable)
		options.flags |= SLUICE_OPEN_DURABLE;
	/* Sources with holes need less, and for a small file it is not worth a call. */
	if (source->length_known && !(path && (source->sparse || source->length < SMALL)))
		options.expected_size = source->length;

	if (path && !o->exact && is_directory(path))
		rc = enter_directory(source, &path);
	out->name = cli_uri_name(path ? path : strcmp(uri, "-") ? uri : "standard output");
	out->path = path;
	if (rc == 0 && !path && o->preserve)
		rc = cli_fail(-EINVAL, "-p: '%s' is no local file", out->name);
	if (rc == 0 && source->head && o->continues)
		rc = cli_fail(-EINVAL, "--continue: '%s' is a dataset, which is read anew",
		              source->name);
	if (rc == 0 && !path && o->continues)
		rc = cli_fail(-EINVAL, "--continue: '%s' is no local file", out->name);
	if (rc == 0 && !path && fd < 0) {
		rc = check_length(source, uri);
		if (rc == 0)
			rc = cli_is_blob(uri) ? end_open_blob(ctx, uri, &options, out)
			                      : end_open_remote(ctx, uri, &options, out);
	} else if (rc == 0) {
		cli_interrupt_catch();
		rc = path ? end_open_target_path(ctx, source, o, &options, out)
		          : end_open_target_stream(fd, source, out);
	}
	/* Not after all bytes were written. */
	if (rc == 0 && o->durable && !out->file && fsync(out->fd) &&
	    (errno == EINVAL || errno == EROFS || errno == ENOTSUP))
		rc = cli_fail(-EINVAL, "--durable: '%s' is no storage, and nothing lasts there",
		              out->name);
	if (rc)
		cli_end_discard(out);
	return rc;
}

int cli_end_commit(struct cli_end *end, bool durable)
{
	sluice_file *file = end->file;
	int rc = 0;

	if (file) {
		end->file = NULL;
		rc = said_of_target(end->part ? cli_part_commit(end->part) : sluice_close(file));
		if (rc == 0 && end->closed && chmod(end->path, 0))
			rc = cli_fail(-errno, "'%s': %s", end->path, strerror(errno));
		return rc;
	}
	if (durable && fsync(end->fd))
		rc = -errno;
	/* A network file system may report a full disk only now. */
	if (end->fd_owned && close(end->fd) && rc == 0)
		rc = -errno;
	end->fd_owned = false;
	return rc ? cli_fail(rc, "'%s': %s", end->name, strerror(-rc)) : 0;
}

void cli_end_discard(struct cli_end *end)
{
	cli_part_free(end->part);
	sluice_discard(end->file);
	if (end->fd_owned)
		close(end->fd);
	if (end->holes >= 0)
		close(end->holes);
	free(end->head);
	free(end->name);
	free(end->path);
	*end = (struct cli_end){.fd = -1, .holes = -1};
}
