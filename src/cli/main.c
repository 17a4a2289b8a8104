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
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const struct subcommand {
	const char *name, *name_for_people, *meaning;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"cp", "sluice cp", "copy a file", cli_cp},
	{"ls", "sluice ls", "list objects of S3", cli_ls},
	{"presign", "sluice presign", "make URLs of objects of S3 for others", cli_presign},
	{"rm", "sluice rm", "remove objects of S3", cli_rm},
	{"s3", "sluice s3", "list uploads to S3 that were left behind, or remove them", cli_s3},
	{"stat", "sluice stat", "show what is known about a file", cli_stat},
	{"bench", "sluice bench", "measure reading or writing of a file", cli_bench},
	{"doctor", "sluice doctor", "show what this machine offers and what sluice makes of it",
         cli_doctor},
	{"verify", "sluice verify", "print digests of files, or check them", cli_verify},
	{"store", "sluice store", "share named memory with other processes", cli_store},
	{"sync", "sluice sync", "make a folder or prefix of S3 have the files of another",
         cli_sync},
	{"tensors", "sluice tensors", "list named arrays in files, such as the weights of models",
         cli_tensors},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_commands(FILE *to)
{
	fputs("Usage: sluice COMMAND [OPTION...] [ARGUMENT...]\n"
	      "Moves bytes between storage and memory.\n\n",
	      to);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].meaning);
	fputs("\n"
	      "  sluice COMMAND --help   what a command takes\n"
	      "  sluice --version        the version of the library\n\n"
	      "Exit status: 0 done, 1 failed, 2 wrong usage. Settings are taken from SLUICE_*\n"
	      "variables, which sluice doctor lists.\n",
	      to);
}

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
			warnx("cannot write the output");
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

static int usage_error(const char *format, const char *what)
{
	warnx(format, what);
	fputs("Try 'sluice --help'.\n", stderr);
	return CLI_USAGE;
}

int main(int argc, char **argv)
{
	occupy_standard_descriptors();
	/* Only for the width of names on the terminal: numbers keep their machine-readable form. */
	setlocale(LC_CTYPE, "");
	atexit(close_output);
	/* Makes a write beyond the file size limit an error, so that clean-up is possible. */
	signal(SIGXFSZ, SIG_IGN);
	argp_err_exit_status = CLI_USAGE;
	argp_program_version_hook = print_version;
	program_invocation_name = program_invocation_short_name = "sluice";

	if (argc < 2) {
		print_commands(stderr);
		return CLI_USAGE;
	}
	const char *word = argv[1];
	if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
		print_commands(stdout);
		return CLI_OK;
	}
	if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
		print_version(stdout, NULL);
		return CLI_OK;
	}
	/* argp calls it -?. */
	if (argc > 2 && !strcmp(argv[argc - 1], "-h"))
		argv[argc - 1] = "--help";
	if (word[0] == '-')
		return usage_error("unknown option '%s'", word);
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(word, commands[i].name))
			continue;
		/* argp and warn() print it before their messages. */
		argv[1] = program_invocation_name = program_invocation_short_name =
			(char *)commands[i].name_for_people;
		return commands[i].run(argc - 1, argv + 1);
	}
	return usage_error("unknown command '%s'", word);
}
