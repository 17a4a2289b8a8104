/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `sluice`
 *
 * Chooses the subcommand, and prepares standard descriptors, signals and locale.
 *
 * Threads: the main thread.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"

static const struct subcommand {
	const char *name, *arguments, *meaning;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"cp", "", "copy a file", cli_cp},
	{"ls", "", "list objects of S3, or a folder", cli_ls},
	{"presign", "", "make URLs of objects of S3 for others", cli_presign},
	{"rm", "", "remove objects of S3", cli_rm},
	{"s3", "", "list uploads to S3 that were left behind, or remove them", cli_s3},
	{"stat", "", "show what is known about a file", cli_stat},
	{"bench", "", "measure reading or writing of a file", cli_bench},
	{"doctor", "", "show what this machine offers and what sluice makes of it", cli_doctor},
	{"h5", "", "check files of frames", cli_h5},
	{"verify", "", "print digests of files, or check them", cli_verify},
	{"store", "", "share named memory with other processes", cli_store},
	{"sync", "", "make a folder or prefix of S3 have the files of another", cli_sync},
	{"tensors", "", "list named arrays in files, such as the weights of models", cli_tensors},
};

static const struct cli_words words = {
	.command = "sluice",
	.before = "Moves bytes between storage and memory.",
	.after = "  sluice --version        the version of the library\n\n"
		 "Exit status: 0 done, 1 failed, 2 wrong usage. Settings are taken from SLUICE_*\n"
		 "variables, which sluice doctor lists.\n",
	.of = commands,
	.count = sizeof(commands) / sizeof(*commands),
	.bytes = sizeof(*commands),
};

static void print_version(FILE *to, struct argp_state *state)
{
	(void)state;
	fprintf(to, "sluice %s\n", sluice_version());
}

int cli_flush(void)
{
	static int failed;

	if (fflush(stdout) && !failed)
		failed = errno;
	return failed;
}

/* Fails if output could not be written, for example on a full disk. */
static void close_output(void)
{
	bool unsaid = __fpending(stdout) > 0;
	int before = cli_flush();
	bool failed = before || ferror(stdout);

	errno = 0;
	if (fclose(stdout) && (unsaid || errno != EBADF))
		failed = true;
	if (failed) {
		errno = errno ? errno : before;
		if (errno)
			warn("cannot write the output");
		else
			cli_warn("cannot write the output");
		_exit(CLI_FAILED);
	}
	if (cli_interrupt_leaves())
		cli_interrupt_obey();
}

/*
 * Opens a stand-in for each closed standard descriptor, which otherwise the next opened file would
 * get, together with output for the user. The stand-in fails as a closed descriptor does.
 */
static void occupy_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	int status;

	occupy_standard_descriptors();
	/* Only for the width of names on the terminal: numbers keep their machine-readable form. */
	setlocale(LC_CTYPE, "");
	atexit(close_output);
	/* Makes a write beyond the file size limit an error, so that clean-up is possible. */
	signal(SIGXFSZ, SIG_IGN);
	argp_err_exit_status = CLI_USAGE;
	argp_program_version_hook = print_version;
	program_invocation_name = program_invocation_short_name = "sluice";

	const struct subcommand *command = cli_word_find(&words, argc, argv, &status);

	return command ? command->run(argc - 1, argv + 1) : status;
}
