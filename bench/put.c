/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of an upload without a library, for bench/s3: a server that forgets the bytes it takes, and a client that is
 * the limit. Each connection is a thread.
 *
 *   put serve                               prints the port that it listens on, ends with its input
 *   put send PORT BYTES PART COUNT [FILE]   puts BYTES in parts over COUNT connections; those of FILE
 *
 * The server knows PUT, and of S3 the requests of an upload in parts; it asks for checksums, as S3 does, and looks at none,
 * nor at a signature. It has no object (HEAD and GET: 404), except that GET of / tells the bytes of all bodies of PUT so far.
 */
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include "listen.h"

#define CONNECTIONS 256
#define CHUNK       ((size_t)1 << 20)

static _Atomic unsigned long long taken, next;
static unsigned long long total, part;
static int port, source = -1;

/* A head of a request or of an answer, and bytes behind it. */
struct head {
	char text[16384];
	size_t have, length; /* bytes in `text`, and of the head */
};

/* Moves the next head to the front and receives the rest of it. Returns 0 at the end of the connection. */
static int head_next(struct head *head, int fd)
{
	char *end;

	head->have -= head->length;
	memmove(head->text, head->text + head->length, head->have);
	for (;;) {
		ssize_t n;

		head->text[head->have] = '\0';
		end = strstr(head->text, "\r\n\r\n");
		if (end)
			break;
		n = recv(fd, head->text + head->have, sizeof(head->text) - 1 - head->have, 0);
		if (n <= 0)
			return 0;
		head->have += (size_t)n;
	}
	*end = '\0';
	head->length = (size_t)(end + 4 - head->text);
	return 1;
}

/* Drops the body behind a head. The kernel need not copy bytes that nobody looks at (MSG_TRUNC). */
static int body_drop(struct head *head, int fd, unsigned long long length, char *memory)
{
	size_t here = head->have - head->length;

	if (here > length)
		here = (size_t)length;
	head->length += here;
	for (length -= here; length;) {
		ssize_t n = recv(fd, memory, length < CHUNK ? (size_t)length : CHUNK, MSG_TRUNC);

		if (n <= 0)
			return -1;
		length -= (unsigned long long)n;
	}
	return 0;
}

/* ------------------------------------------------------------------------------------ server */

static int answer(int fd, const char *status, const char *fields, const char *body)
{
	char text[1024];
	int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s",
	                 status, fields, strlen(body), body);

	return send_all(fd, text, (size_t)n, 0);
}

static int answer_request(int fd, struct head *head, char *memory)
{
	const char *field = strcasestr(head->text, "\ncontent-length:");
	unsigned long long length = field ? strtoull(field + 16, NULL, 10) : 0;
	char method[16] = "", target[4096] = "", count[32];

	sscanf(head->text, "%15s %4095s", method, target);
	if (strcasestr(head->text, "\ntransfer-encoding:"))
		return answer(fd, "411 Length Required", "", "") - 1;
	if (strcasestr(head->text, "\nexpect: 100-continue") &&
	    send_all(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, 0))
		return -1;
	if (body_drop(head, fd, length, memory))
		return -1;
	if (!strcmp(method, "PUT")) {
		atomic_fetch_add(&taken, length);
		return answer(fd, "200 OK", "ETag: \"0123456789abcdef0123456789abcdef\"\r\n", "");
	}
	if (!strcmp(method, "POST"))
		return answer(fd, "200 OK",
		              "Content-Type: application/xml\r\n"
		              "x-amz-checksum-algorithm: CRC32C\r\n",
		              strstr(target, "uploadId=")
		                      ? "<CompleteMultipartUploadResult><ETag>1</ETag>"
		                        "</CompleteMultipartUploadResult>"
		                      : "<InitiateMultipartUploadResult><UploadId>1</UploadId>"
		                        "</InitiateMultipartUploadResult>");
	if (!strcmp(method, "DELETE"))
		return answer(fd, "204 No Content", "", "");
	snprintf(count, sizeof(count), "%llu", atomic_load(&taken));
	if (!strcmp(method, "GET") && !strcmp(target, "/"))
		return answer(fd, "200 OK", "", count);
	return answer(fd, "404 Not Found", "", "");
}

static void *serve(void *argument)
{
	int fd = (int)(long)argument, one = 1;
	struct head head = {.have = 0};
	char *memory = malloc(CHUNK);

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (memory && head_next(&head, fd) && !answer_request(fd, &head, memory))
		;
	free(memory);
	close(fd);
	return NULL;
}

/* ------------------------------------------------------------------------------------ client */

static void *put_parts(void *memory)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct head head = {.have = 0};
	unsigned long long at;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect");
	while ((at = atomic_fetch_add(&next, part)) < total) {
		unsigned long long length = total - at < part ? total - at : part;
		char request[256];
		int n = snprintf(request, sizeof(request),
		                 "PUT /bench/part%llu HTTP/1.1\r\nHost: 127.0.0.1\r\n"
		                 "Content-Length: %llu\r\n\r\n",
		                 at / part, length);

		if (source >= 0 && pread(source, memory, length, (off_t)at) != (ssize_t)length)
			err(1, "pread");
		if (send_all(fd, request, (size_t)n, MSG_MORE) ||
		    send_all(fd, memory, (size_t)length, 0) || !head_next(&head, fd))
			err(1, "connection");
		if (strncmp(head.text, "HTTP/1.1 200", 12))
			errx(1, "answer: %.40s", head.text);
	}
	close(fd);
	return NULL;
}

static void send_parts(int connections)
{
	pthread_t threads[CONNECTIONS];
	struct timespec start, end;
	struct rusage before, after;
	char *memory;

	if (connections < 1 || connections > CONNECTIONS || !part)
		errx(2, "1 to %d connections, and parts of a byte at least", CONNECTIONS);
	memory = malloc(part * (size_t)connections);
	if (!memory)
		err(1, "malloc");
	for (unsigned long long i = 0; i < part * (size_t)connections; i++)
		memory[i] = (char)(i * 2654435761u >> 13);
	getrusage(RUSAGE_SELF, &before);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int i = 0; i < connections; i++)
		if (pthread_create(&threads[i], NULL, put_parts, memory + part * (size_t)i))
			errx(1, "pthread_create");
	for (int i = 0; i < connections; i++)
		pthread_join(threads[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	getrusage(RUSAGE_SELF, &after);
	timersub(&after.ru_utime, &before.ru_utime, &after.ru_utime);
	timersub(&after.ru_stime, &before.ru_stime, &after.ru_stime);
	printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", total,
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9,
	       (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec) +
	               (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec) / 1e6);
	free(memory);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && !strcmp(argv[1], "serve"))
		listen_for_all(serve);
	if (argc < 6 || argc > 7 || strcmp(argv[1], "send") != 0)
		errx(2, "usage: put serve | put send PORT BYTES PART CONNECTIONS [FILE]");
	if (argc == 7 && (source = open(argv[6], O_RDONLY)) < 0)
		err(1, "%s", argv[6]);
	port = atoi(argv[2]);
	total = strtoull(argv[3], NULL, 10);
	part = strtoull(argv[4], NULL, 10);
	send_parts(atoi(argv[5]));
	return 0;
}
