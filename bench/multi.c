/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer of small reads in bench/http: a plain loop around curl_multi_poll() on a single thread that
 * keeps DEPTH requests of LENGTH bytes at random places of an object in flight, each with memory of its
 * own. Usage: multi URL SIZE LENGTH REQUESTS DEPTH
 */
#include <curl/curl.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct request {
	CURL *easy;
	char *memory;
	size_t have;
};

static unsigned long long size, length, left;

static size_t receive(char *data, size_t one, size_t n, void *argument)
{
	struct request *r = argument;

	if (n > length - r->have)
		return 0;
	memcpy(r->memory + r->have, data, n);
	r->have += n;
	return one * n;
}

static void begin(CURLM *multi, struct request *r)
{
	unsigned long long at = (unsigned long long)random() % (size / length) * length;
	char range[64];

	left--;
	r->have = 0;
	snprintf(range, sizeof(range), "%llu-%llu", at, at + length - 1);
	curl_easy_setopt(r->easy, CURLOPT_RANGE, range);
	curl_multi_add_handle(multi, r->easy);
}

static void check(const struct CURLMsg *message, const struct request *r)
{
	long status = 0;

	curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
	if (message->data.result || status != 206 || r->have != length)
		errx(1, "%s, status %ld, %zu bytes", curl_easy_strerror(message->data.result),
		     status, r->have);
}

static void run(CURLM *multi)
{
	struct CURLMsg *message;
	struct request *r;
	int running = 1, unused;

	while (running) {
		curl_multi_perform(multi, &running);
		while ((message = curl_multi_info_read(multi, &unused))) {
			curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&r);
			check(message, r);
			curl_multi_remove_handle(multi, r->easy);
			if (left) {
				begin(multi, r);
				running = 1;
			}
		}
		if (running)
			curl_multi_poll(multi, NULL, 0, 1000, NULL);
	}
}

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
	struct timespec start, end;
	struct rusage usage;
	unsigned long long requests, depth;
	CURLM *multi = curl_multi_init();

	if (argc != 6)
		errx(2, "usage: multi URL SIZE LENGTH REQUESTS DEPTH");
	size = strtoull(argv[2], NULL, 10);
	length = strtoull(argv[3], NULL, 10);
	left = requests = strtoull(argv[4], NULL, 10);
	depth = strtoull(argv[5], NULL, 10);
	if (!length || length > size || requests < depth || !multi)
		errx(2, "not so many requests, or not so long");
	curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)depth);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (unsigned long long i = 0; i < depth; i++) {
		struct request *r = calloc(1, sizeof(*r));

		r->easy = curl_easy_init();
		r->memory = malloc(length);
		curl_easy_setopt(r->easy, CURLOPT_URL, argv[1]);
		curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, receive);
		curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
		curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
		begin(multi, r);
	}
	run(multi);
	clock_gettime(CLOCK_MONOTONIC, &end);
	getrusage(RUSAGE_SELF, &usage);
	printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", requests * length,
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9,
	       seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime));
	return 0;
}
