/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/servers.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PERIOD = 1048573, SEED = 11, SHIFT = 7919 };

static char root[PATH_MAX], line[4096];

/* The value of NAME=VALUE in what servers.py said; static. */
static const char *value_of(const char *name)
{
	static char out[512];
	size_t n = strlen(name);
	const char *at = line;

	while (at && (strncmp(at, name, n) != 0 || at[n] != '=')) {
		at = strchr(at, ' ');
		at += at != NULL;
	}
	if (!at)
		fail_msg("the servers do not tell \"%s\": %s", name, line);
	at += n + 1;
	snprintf(out, sizeof(out), "%.*s", (int)strcspn(at, " \n"), at);
	return out;
}

int server_port(const char *name)
{
	return atoi(value_of(name));
}

const char *server_ca(void)
{
	static char out[512];

	snprintf(out, sizeof(out), "%s", value_of("ca"));
	return out;
}

static _Noreturn void cannot_start(int status, const char *why)
{
	bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 77;

	printf("%s: %s\n", missing ? "skipped" : "the servers did not start", why);
	exit(missing ? 77 : 1);
}

static pid_t spawn(const char *program, char *const argv[], int input, int output)
{
	posix_spawn_file_actions_t actions;
	pid_t pid = 0;
	int rc;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	rc = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc == ENOENT)
		cannot_start(77 << 8, "python3 is missing");
	if (rc)
		cannot_start(0, strerror(rc));
	return pid;
}

/* The write end of `life` stays open, and nowhere else, as long as this process lives. */
void servers_start(void)
{
	const char *base = getenv("SLUICE_TEST_DIR"), *script = getenv("SLUICE_TEST_SERVERS");
	char pattern[PATH_MAX + 40];
	char *argv[] = {"python3", (char *)script, root, "--pattern", pattern, NULL};
	int life[2], told[2], status = 0;
	ssize_t n = 0, step;
	pid_t pid;

	if (!script)
		cannot_start(0, "SLUICE_TEST_SERVERS does not say where servers.py is");
	if (!realpath(base ? base : ".", root))
		cannot_start(0, strerror(errno));
	snprintf(pattern, sizeof(pattern), "%s/pattern-%d", root, (int)getpid());
	file_make(pattern, PERIOD, SEED);
	if (pipe2(life, O_CLOEXEC) != 0 || pipe2(told, O_CLOEXEC) != 0)
		cannot_start(0, strerror(errno));
	pid = spawn(argv[0], argv, life[0], told[1]);
	close(life[0]);
	close(told[1]);
	while (n < (ssize_t)sizeof(line) - 1 && !memchr(line, '\n', (size_t)n) &&
	       (step = read(told[0], line + n, sizeof(line) - 1 - (size_t)n)) > 0)
		n += step;
	close(told[0]);
	unlink(pattern);
	if (!strstr(line, "nginx=")) {
		waitpid(pid, &status, 0);
		cannot_start(status, line);
	}
}

enum { NAME_BYTES = 4096 };

static char *next_name(void)
{
	static char names[8][NAME_BYTES];
	static unsigned next;

	return names[next++ % COUNT_OF(names)];
}

/* The folder of a path, without that of the servers: "" or "/folder". Static. */
static const char *folder_below_root(const char *path)
{
	static char real[PATH_MAX];
	const char *slash = strrchr(path, '/');
	char folder[512];

	/* The file may be missing, its folder is not. */
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 0, path);
	if (!realpath(*folder ? folder : ".", real))
		fail_msg("%s: %s", folder, strerror(errno));
	if (strncmp(real, root, strlen(root)) != 0)
		fail_msg("%s is not below %s, so nginx does not serve it", real, root);
	return real + strlen(root);
}

static const char *name_in_folder(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

const char *s3_uri(const char *bucket, const char *path)
{
	char *out = next_name();
	const char *folder = folder_below_root(path);

	snprintf(out, NAME_BYTES, "s3://%s%s/%s", bucket, folder, name_in_folder(path));
	return out;
}

void s3_environment(void)
{
	char endpoint[64];

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", server_port("s3"));
	setenv("AWS_ENDPOINT_URL", endpoint, 1);
	setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret/+of=the-test", 1);
	/* The user's own are not read. */
	setenv("AWS_CONFIG_FILE", "/dev/null", 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

const char *nginx_uri(const char *path, bool tls)
{
	char *out = next_name();
	const char *folder = folder_below_root(path);

	snprintf(out, NAME_BYTES, "%s://127.0.0.1:%d%s/%s", tls ? "https" : "http",
	         server_port(tls ? "nginx_tls" : "nginx"), folder, name_in_folder(path));
	return out;
}

static const char *object_uri(const char *port, const char *format, va_list arguments)
{
	static unsigned count;
	bool tls = strcmp(port, "good") == 0 || strcmp(port, "wrong_host") == 0 ||
	           strcmp(port, "expired") == 0 || strcmp(port, "client") == 0;
	char *out = next_name();
	int n;

	n = snprintf(out, NAME_BYTES, "%s://%s:%d/t%u/object?", tls ? "https" : "http",
	             strcmp(port, "ipv6") == 0 ? "[::1]" : "127.0.0.1", server_port(port), ++count);
	vsnprintf(out + n, (size_t)(NAME_BYTES - n), format, arguments);
	return out;
}

const char *fault_uri(const char *options, ...)
{
	va_list arguments;
	const char *out;

	va_start(arguments, options);
	out = object_uri("plain", options, arguments);
	va_end(arguments);
	return out;
}

const char *fault_uri_at(const char *port, const char *options, ...)
{
	va_list arguments;
	const char *out;

	va_start(arguments, options);
	out = object_uri(port, options, arguments);
	va_end(arguments);
	return out;
}

const char *as_option(const char *text)
{
	char *out = next_name(), *at = out;

	for (; *text; text++) {
		if (isalnum((unsigned char)*text))
			*at++ = *text;
		else
			at += sprintf(at, "%%%02X", (unsigned char)*text);
	}
	*at = '\0';
	return out;
}

static const char *ask_for(const char *uri, const char *query)
{
	static char answer[1 << 20];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port("plain"))};
	struct timeval patience = {20, 0};
	const char *id = strchr(strstr(uri, "://") + 3, '/') + 1;
	char request[200];
	size_t n = 0;
	ssize_t step;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	snprintf(request, sizeof(request), "GET /_/%.*s%s HTTP/1.0\r\n\r\n", (int)strcspn(id, "/"),
	         id, query);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
	    write(fd, request, strlen(request)) < 0 || shutdown(fd, SHUT_WR) != 0)
		fail_msg("the fault server: %s", strerror(errno));
	while (n < sizeof(answer) - 1 && (step = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0)
		n += (size_t)step;
	answer[n] = '\0';
	close(fd);
	if (!strstr(answer, "\nrequests "))
		fail_msg("the fault server says: %.200s", answer);
	return strstr(answer, "\nrequests ");
}

const char *asked_for(const char *uri)
{
	return ask_for(uri, "");
}

void release_held(const char *uri)
{
	ask_for(uri, "?release");
}

long asked(const char *uri, const char *what)
{
	const char *answer = asked_for(uri);
	char name[80];

	snprintf(name, sizeof(name), "\n%s ", what);
	answer = strstr(answer, name);
	return answer ? atol(answer + strlen(name)) : 0;
}

size_t served_match(const void *src, size_t n, uint64_t offset, uint64_t version)
{
	const unsigned char *in = src;
	size_t done = 0;

	while (done < n) {
		size_t at = (size_t)((offset + done + SHIFT * version) % PERIOD);
		size_t part = n - done < PERIOD - at ? n - done : PERIOD - at;
		size_t same = pattern_match(in + done, part, at, SEED);

		done += same;
		if (same < part)
			return done;
	}
	return n;
}
