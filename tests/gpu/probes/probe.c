/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

char *host;
CUdeviceptr memory;

static _Atomic uint32_t *word;
static _Atomic double closed_since; /* 0: it is open */

static void *open_in_time(void *unused)
{
	(void)unused;
	for (;;) {
		double since = atomic_load(&closed_since);

		if (since > 0 && driver_now() > since + 5) {
			say("the gate was closed for 5 s and opens by itself");
			gate_open();
		}
		sleep_ms(50);
	}
	return NULL;
}

void probe_start(void)
{
	const char *missing = driver_open(0);
	pthread_t thread;

	if (missing) {
		say("skipped: %s", missing);
		exit(77);
	}
	alarm(30);
	word = driver_pinned(PROBE_PAGE);
	atomic_store(word, 1);
	host = driver_pinned(1 << 20);
	memory = driver_memory(1 << 20);
	missing = driver_kernels();
	if (missing)
		say("%s", missing);
	pthread_create(&thread, NULL, open_in_time, NULL);
}

const char *probe_connections(void)
{
	const char *value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	return value ? value : "unset";
}

void gate_close(void)
{
	atomic_store(word, 0);
	atomic_store(&closed_since, driver_now());
}

void gate_open(void)
{
	atomic_store(word, 1);
	atomic_store(&closed_since, 0);
}

bool gate_is_open(void)
{
	return atomic_load(word);
}

CUdeviceptr gate_word(void)
{
	return (uintptr_t)word;
}

CUresult gate_wait(CUstream s)
{
	return cu.cuStreamWaitValue32_v2(s, gate_word(), 1, CU_STREAM_WAIT_VALUE_GEQ);
}

void gate_stand(void *unused)
{
	(void)unused;
	while (!gate_is_open())
		usleep(20);
}

bool stream_is_done(CUstream s, double seconds)
{
	double end = driver_now() + seconds;
	CUresult rc;

	do {
		rc = cu.cuStreamQuery(s);
		if (rc != CUDA_ERROR_NOT_READY) {
			driver_must(rc, "cuStreamQuery");
			return true;
		}
	} while (driver_now() < end);
	return false;
}

void stream_finish(CUstream s)
{
	MUST(cuStreamSynchronize(s));
	MUST(cuStreamDestroy_v2(s));
}

void sleep_ms(unsigned ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

void say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
	fflush(stdout);
}
