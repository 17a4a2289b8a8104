/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/blobs.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/gpu.h"
#include "lib/support.h"
#include "sluice/device.h"
#include "sluice/store.h"

static char folder[64];
static pid_t daemon_pid;

/* A child of the tests that ends by exit() is not the one that started it. */
static void stop_daemon(void)
{
	char path[128];

	if (waitpid(daemon_pid, NULL, WNOHANG))
		return;
	kill(daemon_pid, SIGTERM);
	waitpid(daemon_pid, NULL, 0);
	snprintf(path, sizeof(path), "%s/socket.lock", folder);
	unlink(path);
	rmdir(folder);
}

void blobs_start(void)
{
	const char *program = getenv("SLUICED");
	pid_t parent = getpid();
	double until = seconds_now() + 20;
	sluice_store *store;
	char path[128];

	if (!program) {
		printf("skipped: row \"%s\" needs SLUICED, the path of the daemon\n", row->name);
		exit(77);
	}
	/* A path of a socket is short. */
	strcpy(folder, "/tmp/sluice-row-XXXXXX");
	if (!mkdtemp(folder))
		exit(1);
	snprintf(path, sizeof(path), "%s/socket", folder);
	setenv("SLUICE_STORE", path, 1);
	fflush(NULL);
	daemon_pid = fork();
	if (!daemon_pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() == parent)
			execl(program, program, "--memory", "512M", NULL);
		_exit(127);
	}
	atexit(stop_daemon);
	while (sluice_store_open(NULL, NULL, &store)) {
		if (seconds_now() > until) {
			printf("the daemon did not start: %s\n", sluice_last_message());
			exit(1);
		}
		sleep_ms(5);
	}
	sluice_store_close(store);
}

static void publish(const char *name, const char *path)
{
	struct sluice_blob_options o = SLUICE_BLOB_OPTIONS_INIT;
	int device = row->on_device ? gpu_device(0) : -1;
	size_t n = file_length(path);
	struct buffer b = buffer_new(n, 0);
	sluice_store *store;
	sluice_blob *blob;

	o.flags = SLUICE_BLOB_REPLACE | SLUICE_BLOB_CACHE;
	assert_ok(sluice_store_open(NULL, NULL, &store));
	assert_ok(sluice_blob_create(store, name, n, device, &o, &blob));
	file_read(path, b.data, n, 0);
	assert_ok(sluice_copy(sluice_blob_mutable_data(blob), b.data, n));
	assert_ok(sluice_blob_seal(blob));
	assert_ok(sluice_blob_release(blob));
	assert_ok(sluice_store_close(store));
	buffer_free(&b);
}

const char *blob_address(const char *path)
{
	static char uris[8][600];
	static unsigned next;
	char *uri = uris[next++ % COUNT_OF(uris)];
	/* The folder's name and the file's: a name of a blob is no longer than 255 bytes. */
	const char *name = strrchr(path, '/') - strlen("scratch-XXXXXX");

	if (access(path, F_OK) == 0)
		publish(name, path);
	snprintf(uri, sizeof(uris[0]), "store://%s", name);
	return uri;
}
