/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes for credentials
 *
 * Runs the command in credential_process, and parses the JSON from it and from services.
 *
 * Threads: any that may wait: the process ends the wait, or SLUICE_HTTP_RETRY_MS.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "s3/credentials.h"

#define MOST_OUTPUT 65536

/* -------------------------------------------------------------------------------------- JSON */

struct process_search {
	const char *name;
	char *out;
	size_t size;
	unsigned depth; /* open objects and arrays */
	bool next;      /* the value is next */
	bool found;
};

static int process_part(void *context, char part, const char *text, size_t n)
{
	struct process_search *s = context;

	if (s->next && strchr("sn", part) && n < s->size && !memchr(text, '\0', n)) {
		memcpy(s->out, text, n);
		s->out[n] = '\0';
		s->found = true;
	}
	s->depth += part == '{' || part == '[';
	s->depth -= part == '}' || part == ']';
	s->next = part == 'k' && s->depth == 1 && n == strlen(s->name) && !memcmp(text, s->name, n);
	return 0;
}

bool sl_s3_json_get(const char *text, const char *name, char *out, size_t size)
{
	struct process_search search = {.name = name, .out = out, .size = size};

	return !sl_json_parse("keys", text, strlen(text), process_part, &search) && search.found;
}

/* ------------------------------------------------------------------------------------ output */

int64_t sl_s3_time(const char *text)
{
	struct tm utc = {0};
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
	int hours = 0, minutes = 0;

	if (!rest)
		return -1;
	if (*rest == '.')
		rest += 1 + strspn(rest + 1, "0123456789");
	if (strcmp(rest, "Z") && sscanf(rest, "%*1[+-]%2d:%2d", &hours, &minutes) != 2)
		return -1;
	int64_t offset = hours * 3600 + minutes * 60;
	return timegm(&utc) - (*rest == '-' ? -offset : offset);
}

bool sl_s3_keys_parse(sl_s3_getter *get, const char *text, const char *token,
                      struct sl_s3_keys *out)
{
	const char *const names[] = {"AccessKeyId", "SecretAccessKey", token};
	char value[SL_SECRET_TEXT], *texts[3] = {NULL};
	int64_t expires = 0;
	bool fits = true;

	if (get(text, "Expiration", value, sizeof(value)))
		fits = (expires = sl_s3_time(value)) >= 0;
	for (int i = 0; fits && i < 3; i++)
		if (get(text, names[i], value, sizeof(value)) && *value)
			texts[i] = strdup(value);
	explicit_bzero(value, sizeof(value));
	struct sl_s3_keys keys = {texts[0], texts[1], texts[2], expires};
	if (!keys.id || !keys.secret) {
		sl_s3_keys_clear(&keys);
		return false;
	}
	*out = keys;
	return true;
}

/* ----------------------------------------------------------------------------------- process */

/* Starts a command, and returns its output; -1: it cannot be started. At a terminal it may ask the
 * user, as a process in our group. Without a terminal it has a group, so all processes can be
 * ended: *out is negative. */
static int process_start(const char *command, pid_t *out)
{
	char *const arguments[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
	int ends[2], rc, terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t how;
	pid_t pid = 0;

	if (terminal >= 0)
		close(terminal);
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, terminal < 0 ? POSIX_SPAWN_SETPGROUP : 0);
	posix_spawn_file_actions_init(&actions);
	rc = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) ||
	     posix_spawn(&pid, "/bin/sh", &actions, &how, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&how);
	close(ends[1]);
	if (rc)
		close(ends[0]);
	*out = terminal < 0 ? -pid : pid;
	return rc ? -1 : ends[0];
}

/* Reads a process's output to the end, also beyond the memory; at the time kills it, with false. */
static bool process_await(int from, pid_t pid, int64_t until, char text[MOST_OUTPUT], int *status)
{
	struct pollfd output = {.fd = from, .events = POLLIN};
	size_t length = 0;
	ssize_t bytes;
	pid_t ended = 0;
	int ready;

	do {
		/* Its output is there when it has ended, though others may still have the pipe. */
		ended = ended ? ended : waitpid(abs(pid), status, WNOHANG);
		ready = poll(&output, 1, ended || output.fd < 0 ? 1 : 50);
		if (ready > 0 && (bytes = read(from, text + length, MOST_OUTPUT - 1 - length)) > 0)
			length = (length + (size_t)bytes) % (MOST_OUTPUT - 1);
		else if (ready > 0)
			output.fd = -1;
	} while ((!ended || ready > 0) && sl_now() < until);
	if (ended)
		return true;
	kill(pid, SIGKILL);
	waitpid(abs(pid), status, 0);
	return false;
}

int sl_s3_process_ask(const struct sl_s3_source *source, const struct sl_settings *settings,
                      struct sl_s3_keys *out)
{
	char *text = calloc(1, MOST_OUTPUT);
	int64_t until = sl_now() + (int64_t)settings->http_retry_ms * 1000000;
	int status = 0, rc = 0, from;
	char version[8]; /* the output's format */
	pid_t pid;

	from = text ? process_start(source->texts[0], &pid) : -1;
	if (from < 0)
		rc = sl_fail(-ENOMEM, "credential_process cannot be started");
	else if (!process_await(from, pid, until, text, &status))
		rc = sl_fail(-EACCES,
		             "credential_process was ended after %.1f s (SLUICE_HTTP_RETRY_MS)",
		             (double)settings->http_retry_ms / 1000);
	if (from >= 0)
		close(from);
	/* Without its status, if the program ignores SIGCHLD, the output tells. */
	if (!rc && status > 0 && WIFSIGNALED(status))
		rc = sl_fail(-EACCES, "credential_process was ended by signal %d",
		             WTERMSIG(status));
	else if (!rc && status > 0)
		rc = sl_fail(-EACCES, "credential_process failed with status %d",
		             WEXITSTATUS(status));
	if (!rc &&
	    (!sl_s3_json_get(text, "Version", version, sizeof(version)) || strcmp(version, "1") ||
	     !sl_s3_keys_parse(sl_s3_json_get, text, "SessionToken", out)))
		rc = sl_fail(-EACCES, "credential_process printed no credentials (JSON with "
		                      "Version 1, AccessKeyId and SecretAccessKey)");
	if (text)
		explicit_bzero(text, MOST_OUTPUT);
	free(text);
	return rc;
}
