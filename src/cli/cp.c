/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice cp: options, and the copy of a file
 *
 * Parses the options, and copies a single file; tree.c copies several.
 *
 * Threads: the main thread; cli_cp_one() also on the threads of tree.c.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cp.h"

/* An interrupted copy of at least that many bytes mentions --continue. */
#define HINT_BYTES ((uint64_t)64 << 20)

struct cp_options {
	struct cli_cp_options cp;
	const char *device; /* --device, or NULL */
	char *uri;          /* URI of the target with the device in it, or NULL */
	struct cli_sync_options sync;
};

enum { KEY_THROUGH = 256, KEY_INCLUDE, KEY_EXCLUDE };

static const struct argp_option option_list[] = {
	{"checksum", CLI_FLAG(cp_options, cp.checksum), NULL, 0,
         "Print the XXH3-128 of what was moved, and DST's name"},
	{"continue", CLI_FLAG(cp_options, cp.continues), NULL, 0,
         "Keep what came when the copy does not come to its end, and take it up"},
	{"durable", CLI_FLAG(cp_options, cp.durable), NULL, 0,
         "Succeed only when the copy is on stable storage"},
	{"force", 'f', NULL, 0, "Overwrite DST if it exists"},
	{"recursive", 'r', NULL, 0,
         "Copy directories and all that is in them; links as links; from s3://BUCKET/PREFIX/ all "
         "objects below the prefix, and to it all files"},
	{NULL, 'R', NULL, OPTION_ALIAS, NULL},
	{"preserve", 'p', NULL, 0, "Keep owner, permissions and times"},
	{"quiet", 'q', NULL, 0, "No progress bar and no summary"},
	{"no-progress", CLI_FLAG(cp_options, cp.no_progress), NULL, 0, "No progress bar"},
	{"dry-run", CLI_FLAG(cp_options, cp.dry_run), NULL, 0, "Only print what would be copied"},
	{"skip-existing", CLI_FLAG(cp_options, sync.skips), NULL, 0,
         "With -r: pass over files that DST has"},
	{"update", CLI_FLAG(cp_options, sync.updates), NULL, 0,
         "With -r: pass over files that DST has, unless that of SRC is newer"},
	CLI_OPEN_OPTIONS,
	{"device", CLI_MEMBER(CLI_WORD, cp_options, device), "DEVICE", 0,
         "DST is a blob, store://NAME: make it in memory of a GPU, by its number or name, or of "
         "the 'host' (default)"},
	{"through", KEY_THROUGH, "DEVICE", 0,
         "Read into memory of a device and write from there, in stream order: 'device' or "
         "'device:N' is a GPU, 'emulated' one made of threads"},
	{0},
};

static const char description[] =
	"Copies SRC to DST, which gets its name when it is complete; several SRC into a "
	"directory.\v"
	"SRC and DST are paths, file:///PATH, http(s)://HOST/PATH, s3://BUCKET/KEY, or "
	"store://NAME, a blob of the store; '-' is standard input or output. If DST is a "
	"directory, s3://BUCKET or s3://BUCKET/PREFIX/, the copy is put into it. FIFOs and "
	"character devices are read or written as they are. A sparse source gives a sparse copy. "
	"SRC may be a dataset of an HDF5 file, FILE#/DATASET: then DST is a file of numpy, "
	".npy.";

/* Adds the device to the blob's URI. "0" is the first GPU. */
static void name_blob_device(struct argp_state *state, struct cp_options *o)
{
	char number[16];

	if (!o->device)
		return;
	bool digits = o->device[0] && !o->device[strspn(o->device, "0123456789")];
	CLI_OWNED char *name = cli_format("%s%s", digits ? "device:" : "", o->device);
	int device = cli_option_memory(state, "device", name);
	if (device < 0)
		return;
	snprintf(number, sizeof(number), "%d", device);
	o->cp.uri = o->uri = cli_blob_option(cli_format("%s", o->cp.target), "device", number);
}

static error_t cp_parse(int key, char *arg, struct argp_state *state)
{
	struct cp_options *o = state->input;

	switch (key) {
	case 'p':
		o->cp.preserve = true;
		return 0;
	case KEY_INCLUDE:
	case KEY_EXCLUDE:
		o->sync.patterns = cli_grow(o->sync.patterns, o->sync.pattern_count + 1,
		                            sizeof(*o->sync.patterns));
		o->sync.patterns[o->sync.pattern_count++] =
			(struct cli_pattern){arg, key == KEY_INCLUDE};
		return 0;
	case KEY_THROUGH:
		o->cp.through = cli_option_memory(state, "through", arg);
		return 0;
	case ARGP_KEY_ARGS:
		o->cp.sources = state->argv + state->next;
		o->cp.count = (size_t)(state->argc - state->next - 1);
		o->cp.target = state->argv[state->argc - 1];
		return 0;
	case ARGP_KEY_END:
		if (!o->cp.count)
			argp_error(state,
			           o->cp.target ? "DST is missing" : "SRC and DST are missing");
		if (o->device && !cli_is_blob(o->cp.target))
			argp_error(state, "--device: only for a DST that is a blob, store://NAME");
		if (o->cp.checksum && o->cp.continues)
			argp_error(state, "--checksum: not with --continue, since what came before "
			                  "is not read; xxhsum -H2 prints that of DST");
		if (o->cp.continues && cli_is_object(o->cp.target))
			argp_error(state, "--continue: not with a DST on S3, where an "
			                  "interrupted upload begins anew");
		if ((o->sync.skips || o->sync.updates) && !o->cp.open.recursive)
			argp_error(state, "--skip-existing and --update are for -r");
		if (o->sync.skips && o->sync.updates)
			argp_error(state, "--skip-existing and --update exclude each other");
		if (o->sync.whole && o->cp.count != 1)
			argp_error(state, "one SRC and one DST are needed");
		if (o->sync.whole || o->sync.skips || o->sync.updates)
			o->cp.sync = &o->sync;
		o->cp.open.force |= o->sync.updates;
		/* An object has its time alone to preserve, by which the next run knows it. */
		o->cp.preserve |= o->sync.whole && cli_is_object(o->cp.sources[0]) &&
		                  !cli_is_object(o->cp.target);
		bool remote = strstr(o->cp.target, "://");
		for (size_t i = 0; i < o->cp.count; i++)
			remote |= strstr(o->cp.sources[i], "://") != NULL;
		if (o->cp.open.remote && !remote)
			argp_error(state, "an option for remote files is given, and no URI of one");
		for (size_t i = 0; o->cp.open.recursive && i < o->cp.count; i++)
			if (!strncasecmp(o->cp.sources[i], "http://", 7) ||
			    !strncasecmp(o->cp.sources[i], "https://", 8))
				argp_error(state, "-r: a web server has no list of files: '%s'",
				           cli_uri_name(o->cp.sources[i]));
		name_blob_device(state, o);
		return 0;
	default:
		return cli_open_option(&o->cp.open, key, arg, state);
	}
}

/* Prints the line of a sum. */
static void print_checksum(const XXH3_state_t *hash, const char *name, FILE *to)
{
	XXH128_hash_t value = XXH3_128bits_digest(hash);
	char text[CLI_TEXT + sizeof "  "];

	sprintf(text, "%016" PRIx64 "%016" PRIx64 "  ", value.high64, value.low64);
	cli_print_escaped(to, text, name, "\n");
}

void cli_moved_print(const struct cli_moved *moved, uint64_t elapsed_ns)
{
	double seconds = (double)elapsed_ns / 1e9;
	char amount[CLI_TEXT], rate[CLI_TEXT];

	if (moved->files != 1)
		fprintf(stderr, "%" PRIu64 " files, ", moved->files);
	fprintf(stderr, "%s in %.2f s", cli_size_format(moved->bytes, amount), seconds);
	/* A rate needs a time above zero. */
	if (moved->bytes > 0 && seconds >= 0.005)
		fprintf(stderr, ", %s", cli_rate_format((double)moved->bytes / seconds, rate));
	if (moved->holes)
		fprintf(stderr, ", and %s of holes", cli_size_format(moved->holes, amount));
	if (moved->by_server)
		fprintf(stderr, "; copied by their server: %" PRIu64, moved->by_server);
	fputc('\n', stderr);
}

static void print_failure(const struct cli_copy *copy, int rc)
{
	const struct cli_end *target = copy->target;

	/* If the reader of a pipe is gone, nothing is printed. */
	if (cli_interrupted() == SIGPIPE)
		return;
	if (rc != -ECANCELED || !cli_interrupted())
		cli_warn("%s", copy->error);
	else if (target->file)
		cli_warn("interrupted; '%s' was %s", target->name,
		         target->replaces ? "not written" : "written in part");
	else
		cli_warn("interrupted");
	if (target->path && !copy->source->path && copy->source->file &&
	    copy->source->length >= HINT_BYTES && copy->moved && !target->part)
		cli_warn("with --continue, what comes of '%s' stays, and is taken up later",
		         target->name);
}

/* The commit of an upload, or the copy of an object by its server, if there is no target. */
struct commit {
	struct cli_end *target;
	bool durable;
	sluice_context *ctx;
	const char *from, *to;
	const struct sluice_open_options *options;
	int rc;
	char error[512];
	atomic_bool over;
};

static void *commit_run(void *argument)
{
	struct commit *commit = argument;

	if (commit->target) {
		commit->rc = cli_end_commit(commit->target, commit->durable);
	} else {
		commit->rc =
			sluice_copy_object(commit->ctx, commit->from, commit->to, commit->options);
		snprintf(commit->error, sizeof(commit->error), "%s", sluice_last_message());
	}
	atomic_store(&commit->over, true);
	return NULL;
}

/*
 * Commits an upload, most of which may still be on its way, or waits for a server's copy. Another
 * thread does it, since the library waits as long as it takes, and this one looks for interrupts. A
 * copy among others commits by itself: the main thread looks.
 */
static int commit_await(struct commit *commit, const char *name, bool among)
{
	struct timespec moment = {0, 1000000};
	pthread_t thread;

	if (among) {
		cli_interrupt_commit(true);
		commit_run(commit);
		cli_interrupt_commit(false);
		return commit->rc;
	}
	if (pthread_create(&thread, NULL, commit_run, commit)) {
		commit_run(commit);
		return commit->rc;
	}
	while (!atomic_load(&commit->over)) {
		if (cli_interrupted()) {
			cli_warn("interrupted; '%s' was not written", name);
			cli_interrupt_leave();
		}
		nanosleep(&moment, NULL);
		moment.tv_nsec = moment.tv_nsec < 50000000 ? 2 * moment.tv_nsec : 50000000;
	}
	pthread_join(thread, NULL);
	return commit->rc;
}

/*
 * Copies an object by its server. Returns 0, a negative errno, printed, or -ENOTSUP, not printed:
 * the bytes have to pass this machine, since the server cannot, or since they have to be seen.
 */
static int copy_by_server(sluice_context *ctx, const struct cli_cp_options *o, const char *from,
                          const char *to, struct cli_moved *moved)
{
	struct sluice_open_options options = cli_open_options(&o->open);
	struct commit commit = {.ctx = ctx, .from = from, .to = to, .options = &options};

	if (!cli_is_object(from) || !cli_is_object(to) || !strcmp(from, to) || o->checksum ||
	    o->through >= 0)
		return -ENOTSUP;
	options.flags = o->open.force ? 0 : SLUICE_OPEN_EXCLUSIVE;
	cli_interrupt_catch();
	int rc = cli_interrupt_hold() ? commit_await(&commit, to, o->sum) : -ECANCELED;
	cli_interrupt_unhold();
	/* Of a copy among others the main thread catches them. */
	if (rc == -ENOTSUP && !o->sum)
		cli_interrupt_release();
	if (rc == -EEXIST)
		cli_warn("%s; use -f to overwrite it", commit.error);
	else if (rc && rc != -ENOTSUP && rc != -ECANCELED)
		cli_warn("%s", commit.error);
	moved->files += !rc;
	moved->by_server += !rc;
	return rc;
}

static int copy_ends(struct cli_copy *copy, const struct cli_cp_options *o, struct cli_moved *moved)
{
	struct cli_end *target = copy->target;
	struct cli_progress progress;
	char there[CLI_TEXT], all[CLI_TEXT];

	copy->progress = &progress;
	/* No bar goes to the terminal of the bytes or of their typing. */
	cli_progress_start(&progress, copy->source->name, copy->source->length,
	                   !o->open.quiet && !o->no_progress && !isatty(copy->source->fd) &&
	                           !isatty(target->fd));
	progress.sum = o->sum;
	copy->shares = o->sum && !atomic_load(o->alone);
	copy->there = progress.last_moved = cli_part_there(target->part);
	if (copy->there && !o->open.quiet)
		cli_warn("%s of %s are there", cli_size_format(copy->there, there),
		         cli_size_format(copy->source->length, all));
	int rc = cli_copy_run(copy);
	cli_progress_end(&progress);
	/* A stream may have ended because the same Ctrl-C ended its program. */
	if (rc == 0 && cli_interrupted())
		rc = -ECANCELED;
	if (rc) {
		print_failure(copy, rc);
		return rc;
	}
	/* A server may answer late, and there is nothing to clean up yet: unlike with S3, which
	 * keeps parts. */
	if (!target->path && !target->parts)
		cli_interrupt_release();
	struct commit commit = {.target = target, .durable = o->durable};
	rc = target->parts ? commit_await(&commit, target->name, o->sum)
	                   : cli_end_commit(target, o->durable);
	if (rc)
		return rc;
	if (copy->hash && target->fd == STDOUT_FILENO)
		print_checksum(copy->hash, copy->source->name, stderr);
	else if (copy->hash)
		print_checksum(copy->hash, target->name, stdout);
	moved->files++;
	moved->bytes += copy->moved - copy->there - copy->holes;
	moved->holes += copy->holes;
	if (o->preserve && target->replaces && copy->source->st.st_mtim.tv_sec)
		rc = cli_preserve(copy->source->path, &copy->source->st, target->path);
	return rc;
}

void cli_cp_show(const char *from, const char *to)
{
	CLI_OWNED char *source = cli_uri_name(from), *target = cli_uri_name(to);
	CLI_OWNED char *first = cli_visible(source), *second = cli_visible(target);

	printf("%s -> %s\n", first, second);
}

/*
 * A bucket, and a prefix with '/' at its end, are directories: the copy gets the last part of SRC's
 * name. Returns its URI, or NULL if `to` is neither.
 */
static char *name_below(const char *from, const char *to)
{
	size_t end = strlen(to);

	if (!cli_is_object(to) || (to[end - 1] != '/' && strchr(to + strlen("s3://"), '/')))
		return NULL;
	CLI_OWNED char *path = strcmp(from, "-") ? cli_local_path(from) : NULL;
	const char *name = path ? path : from;
	size_t n = path ? strlen(path) : cli_uri_length(from);
	const char *slash = memrchr(name, '/', n), *last = slash ? slash + 1 : name;
	char *uri = NULL;

	if (last < name + n && strcmp(from, "-"))
		uri = cli_format("%s%s%.*s", to, to[end - 1] == '/' ? "" : "/",
		                 (int)(name + n - last), last);
	return uri;
}

static int copy_one(sluice_context *ctx, const struct cli_cp_options *o, const char *from,
                    const char *uri, struct cli_moved *moved)
{
	struct cli_end source, target = {.fd = -1, .holes = -1};
	struct cli_copy copy = {.source = &source, .target = &target, .device = o->through};
	/* Until there is something to clean up a signal ends the program: a server may be slow. */
	int rc = copy_by_server(ctx, o, from, uri, moved);

	if (rc != -ENOTSUP)
		return rc;
	rc = cli_end_open_source(ctx, from, &o->open, &source);
	if (rc)
		return rc;
	/* Opening the target detects the same local file under any name. */
	if (source.file && !source.path && !strcmp(from, uri)) {
		cli_warn("'%s' is both SRC and DST", source.name);
		cli_end_discard(&source);
		return -EINVAL;
	}
	if (o->checksum) {
		copy.hash = XXH3_createState();
		if (!copy.hash)
			err(CLI_FAILED, "checksum");
		XXH3_128bits_reset(copy.hash);
	}
	if (!cli_interrupt_hold())
		rc = -ECANCELED;
	rc = rc ? rc : cli_end_open_target(ctx, o, uri, &source, &target);
	/* Show the target as typed. */
	if (rc == 0 && o->uri) {
		free(target.name);
		target.name = cli_uri_name(o->target);
	}
	bool file = target.path;
	if (file)
		cli_interrupt_file(true);
	if (rc == 0)
		rc = copy_ends(&copy, o, moved);
	cli_end_discard(&target);
	if (file)
		cli_interrupt_file(false);
	cli_interrupt_unhold();
	cli_end_discard(&source);
	XXH3_freeState(copy.hash);
	return rc;
}

int cli_cp_one(sluice_context *ctx, const struct cli_cp_options *o, const char *from,
               const char *to, struct cli_moved *moved)
{
	CLI_OWNED char *below = o->exact ? NULL : name_below(from, to);
	int rc = 0;

	if (o->dry_run)
		cli_cp_show(from, below ? below : to);
	else
		rc = copy_one(ctx, o, from, below ? below : o->uri ? o->uri : to, moved);
	return rc;
}

int cli_cp_run(struct cli_cp_options *o)
{
	struct cli_moved moved = {0};
	uint64_t start = sl_now();
	sluice_context *ctx;
	int rc;

	if (o->open.quiet)
		setenv("SLUICE_LOG", "off", 0);
	/* Several threads compute permissions; see end_open_new_file(). */
	o->mask = umask(0);
	if (o->count > 1 || o->open.recursive) {
		rc = cli_cp_tree(o, &moved);
	} else {
		rc = cli_context_new(o->open.backend, 0, &ctx);
		if (rc)
			return CLI_FAILED;
		rc = cli_cp_one(ctx, o, o->sources[0], o->target, &moved);
		sluice_context_close(ctx);
	}
	if (cli_interrupted())
		cli_interrupt_obey();
	if (!o->open.quiet && moved.files)
		cli_moved_print(&moved, sl_now() - start);
	return rc ? CLI_FAILED : CLI_OK;
}

static int cp_main(const struct argp *argp, int argc, char **argv, struct cp_options *o)
{
	argp_parse(argp, argc, argv, 0, NULL, o);
	int status = cli_cp_run(&o->cp);
	free(o->uri);
	free(o->sync.patterns);
	return status;
}

int cli_cp(int argc, char **argv)
{
	static const struct argp argp = {option_list, cp_parse, "SRC... DST", description};
	struct cp_options o = {.cp = {.through = -1}};

	return cp_main(&argp, argc, argv, &o);
}

static const struct argp_option sync_list[] = {
	{"delete", CLI_FLAG(cp_options, sync.removes), NULL, 0,
         "Then remove what only DST has, if all was listed and copied"},
	{"etag", CLI_FLAG(cp_options, sync.etags), NULL, 0,
         "Between objects of S3: compare their ETags, and times only where these cannot be "
         "compared"},
	{"exclude", KEY_EXCLUDE, "PATTERN", 0,
         "Leave out names that match: '*' is anything, also '/', '?' a character, '[a-c]' one of "
         "these"},
	{"include", KEY_INCLUDE, "PATTERN", 0,
         "Take them nevertheless: of all patterns the last that matches counts"},
	{"dry-run", CLI_FLAG(cp_options, cp.dry_run), NULL, 0,
         "Only print what would be copied and removed"},
	{"preserve", 'p', NULL, 0, "Between folders: as for cp"},
	{"quiet", 'q', NULL, 0, "No progress bar, no summary, and not what is removed"},
	{"no-progress", CLI_FLAG(cp_options, cp.no_progress), NULL, 0, "No progress bar"},
	CLI_S3_OPTIONS,
	{0},
};

int cli_sync(int argc, char **argv)
{
	static const struct argp argp = {
		sync_list, cp_parse, "SRC DST",
		"Makes DST have the files of SRC: copies those that are missing there, have "
		"another length, or are "
		"newer in SRC.\vSRC and DST are folders, or s3://BUCKET/PREFIX."};
	struct cp_options o = {.cp = {.through = -1, .open = {.recursive = true, .force = true}},
	                       .sync = {.whole = true}};

	return cp_main(&argp, argc, argv, &o);
}
