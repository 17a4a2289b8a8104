/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice h5
 *
 * Checks files of frames. HDF5 reads them in a child with bounded memory, since it may crash over a
 * damaged file.
 *
 * Threads: the main thread, of each process.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "sluice/frames.h"

enum {
	ATTEMPTS = 8,
	FLUSH_MS = 10000,
	WORD = 128, /* <sluice/frames.h> */
	GIB = 8,    /* twice the longest chunk, packed and plain, and HDF5 */
};

struct h5_options {
	struct cli_open open;
	bool json;
	FILE *out; /* lines, which count once the file has not changed */
};

static const struct argp_option check_options[] = {
	{"json", CLI_FLAG(h5_options, json), NULL, 0, "JSON objects, one in each line"},
	{0},
};

/* Returns in words whether a writer of sluice has the file, or had. */
static const char *state_of(const char *path)
{
	struct flock its = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = WORD, .l_len = 16};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	unsigned char head[9] = "";
	bool ours, taken;

	ours = fd >= 0 && pread(fd, head, sizeof(head), WORD) == sizeof(head) &&
	       !memcmp(head, "\x89sluice\n", 8);
	taken = ours && !fcntl(fd, F_OFD_GETLK, &its) && its.l_type != F_UNLCK;
	if (fd >= 0)
		close(fd);
	if (fd < 0)
		return "not readable";
	if (!ours)
		return "of another program or version";
	return taken ? "being written" : head[8] % 2 ? "left in a flush" : "at rest";
}

static void dataset_print(void *user, const struct sluice_frames_dataset *d)
{
	struct h5_options *o = user;
	CLI_OWNED char *name = cli_visible(d->name);
	CLI_OWNED char *filters = cli_visible(d->filters); /* the file may give them any name */
	char size[CLI_TEXT];

	if (o->json) {
		fputs("{\"dataset\": ", o->out);
		cli_json_text(o->out, d->name);
		fprintf(o->out,
		        ", \"frames\": %" PRIu64 ", \"chunks\": %" PRIu64 ", \"masked\": %" PRIu64
		        ", \"bytes\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"filters\": ",
		        d->frames, d->chunks, d->masked, d->bytes, d->wrong);
		cli_json_text(o->out, d->filters);
		fputs(", \"message\": ", o->out);
		cli_json_text(o->out, d->message);
		fputs("}\n", o->out);
	} else {
		fprintf(o->out, "%-24s %" PRIu64 " frames, %" PRIu64 " chunks, %s%s%s\n", name,
		        d->frames, d->chunks, cli_size_format(d->bytes, size),
		        filters[0] ? ", " : "", filters);
		if (d->masked)
			fprintf(o->out,
			        "%-24s %" PRIu64 " chunks lack a filter: programs that map "
			        "chunks misread them\n",
			        "", d->masked);
		if (d->message) {
			CLI_OWNED char *message = cli_visible(d->message);

			fprintf(o->out, "%-24s WRONG, %" PRIu64 " times: %s\n", "", d->wrong,
			        message);
		}
	}
}

int cli_h5_read(const char *path, int (*read)(const char *path, FILE *out, void *user), void *user,
                char **text)
{
	sluice_frames *frames = NULL;
	struct stat status;
	size_t n;
	int rc, changed = -EAGAIN;

	if (!stat(path, &status) && !S_ISREG(status.st_mode))
		return sl_fail(-EINVAL, "'%s' is no regular file", path);
	rc = sluice_frames_open(path, &frames);
	for (int i = 0; !rc && i < ATTEMPTS && changed == -EAGAIN; i++) {
		int wrong = 0;

		free(*text);
		*text = NULL;
		FILE *out = open_memstream(text, &n);
		if (!out) {
			sluice_frames_free(frames);
			return sl_fail(-ENOMEM, "no memory");
		}
		changed = sluice_frames_begin(frames, FLUSH_MS);
		if (!changed)
			wrong = read(path, out, user);
		fclose(out);
		CLI_OWNED char *sentence = cli_format("%s", sluice_last_message());
		if (!changed)
			changed = sluice_frames_check(frames);
		if (!changed)
			rc = sl_fail_with(wrong, sentence);
	}
	sluice_frames_free(frames);
	if (changed) {
		free(*text);
		*text = NULL;
	}
	return rc || !frames ? rc : changed;
}

static int check_read(const char *path, FILE *out, void *user)
{
	struct h5_options *o = user;

	o->out = out;
	return sluice_frames_inspect(path, dataset_print, o);
}

/* In the child. */
static int check_file(struct h5_options *o, const char *path)
{
	const struct rlimit most = {(rlim_t)GIB << 30, (rlim_t)GIB << 30};
	CLI_OWNED char *text = NULL;

	setrlimit(RLIMIT_AS, &most);
	int rc = cli_said(cli_h5_read(path, check_read, o, &text));
	if (o->json) {
		cli_json_string("{\"file\": ", path);
		cli_json_string(", \"state\": ", state_of(path));
		printf(", \"right\": %s}\n", rc == -EAGAIN ? "null" : rc ? "false" : "true");
	} else {
		cli_print_escaped(stdout, "", path,
		                  rc == -EAGAIN ? ": changes faster than it is read, "
		                  : rc          ? ": WRONG, "
		                                : ": right, ");
		printf("%s\n", state_of(path));
	}
	fputs(text ? text : "", stdout);
	return rc ? CLI_FAILED : CLI_OK;
}

static int h5_check(struct h5_options *o)
{
	CLI_OWNED char *path = cli_local_path(o->open.arguments.of[0]);
	pid_t parent = getpid(), child;
	int status = 0;

	if (!path)
		return cli_fail(CLI_FAILED, "'%s' is no local file: copy it here with sluice cp",
		                o->open.arguments.of[0]);
	child = fork();
	if (!child) {
		/* A signal that ends the command ends a reading that HDF5 does not leave, too. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(getppid() == parent ? check_file(o, path) : CLI_FAILED);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		cli_fail(0, "there is no process for HDF5: %s", sl_error_text(-errno));
	else if (WIFSIGNALED(status))
		cli_fail(0, "'%s' is wrong: HDF5 does not survive it (%s)", path,
		         strsignal(WTERMSIG(status)));
	return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : CLI_FAILED;
}

static const struct h5_command {
	const char *name, *arguments, *meaning;
	int (*run)(struct h5_options *o);
} commands[] = {
	{"check", "FILE",
         "Reads and decodes all chunks of FILE, frames in HDF5, and says what readers may rely on.",
         h5_check},
};

static const struct cli_words words = {
	.command = "sluice h5",
	.before = "Frames in HDF5 files.",
	.of = commands,
	.count = sizeof(commands) / sizeof(*commands),
	.bytes = sizeof(*commands),
	.width = 6,
};

int cli_h5(int argc, char **argv)
{
	int status;
	const struct h5_command *command = cli_word_find(&words, argc, argv, &status);
	struct h5_options o = {.open.arguments = {.least = 1, .most = 1, .noun = "FILE"}};

	if (!command)
		return status;
	const struct argp argp = {check_options, cli_open_parse, command->arguments,
	                          command->meaning};
	argp_parse(&argp, argc - 1, argv + 1, 0, NULL, &o);
	return command->run(&o);
}
