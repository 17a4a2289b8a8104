/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <unistd.h>

#include "lib/kill_matrix.h"
#include "protocol/protocol.h"

unsigned kill_matrix_lost;
static char died[220]; /* the file that a server makes at its death */

void kill_matrix_begin(const char *name)
{
	snprintf(died, sizeof(died), "%s/%s-died-%d", getenv("SLUICE_TEST_DIR"), name,
	         (int)getpid());
	setenv("SLUICE_TEST_DIED", died, 1);
}

void kill_matrix_end(void)
{
	unlink(died);
	unsetenv("SLUICE_TEST_STEP");
}

static bool dies_at(const struct kill_matrix *m, const char *step, unsigned pass)
{
	struct daemon *d;
	char point[64];
	bool has_died;

	snprintf(point, sizeof(point), "%u %s", m->sparse ? pass * (pass + 1) / 2 : pass, step);
	unlink(died);
	setenv("SLUICE_TEST_STEP", point, 1);
	daemon_setup((void **)&d);
	m->live(d);
	has_died = access(died, F_OK) == 0;
	daemon_teardown((void **)&d);
	return has_died;
}

unsigned kill_matrix_run(const struct kill_matrix *m)
{
	unsigned deaths = 0;

	for (const char *const *step = m->steps; *step; step++) {
		unsigned before = deaths;

		for (unsigned pass = 0; pass < m->passes; pass++)
			deaths += dies_at(m, *step, pass);
		if (m->each && deaths == before)
			fail_msg("no server has died at '%s'", *step);
	}
	kill_matrix_end();
	print_message("%u deaths, %u blobs lost before their seal\n", deaths, kill_matrix_lost);
	return deaths;
}

sluice_blob *put_at_last(sluice_store *store, const char *name, size_t n, unsigned flags)
{
	sluice_blob *blob = NULL;
	int rc;

	while ((rc = try_put(store, name, n, flags, &blob)) == -ECONNRESET) {
		/* It failed cleanly: there is nothing of it. */
		assert_int_equal(sluice_blob_exists(store, name), 0);
		kill_matrix_lost++;
	}
	if (rc)
		fail_msg("%s: %d: %s", name, rc, sluice_last_message());
	return blob;
}

/* ---------------------------------------------------------------------------------------- a client */

static const char *last_step;
static _Atomic int passes;
static _Atomic uint32_t *counted;

void __wrap_sl_store_step(const char *step);
void __wrap_sl_store_step(const char *step)
{
	if (!last_step || strcmp(step, last_step) != 0 || atomic_fetch_sub(&passes, 1))
		return;
	atomic_fetch_add(counted, 1);
	kill(getpid(), SIGKILL);
}

void die_at_step(const char *point, _Atomic uint32_t *deaths)
{
	atomic_store(&passes, atoi(point));
	counted = deaths;
	last_step = strchr(point, ' ') + 1;
}

void delete_mine(sluice_store *store)
{
	struct sluice_blob_info infos[8] = {{.size = sizeof(infos[0])}};
	uint64_t cursor = 0;
	int n, rc;

	while ((n = sluice_blob_list(store, "mine/", &cursor, infos, COUNT_OF(infos))) > 0)
		for (int i = 0; i < n; i++) {
			if (infos[i].state != SLUICE_BLOB_IS_SEALED)
				continue;
			rc = sluice_blob_delete(store, infos[i].name);
			if (rc && rc != -ENOENT)
				fail_msg("%s: %s", infos[i].name, sluice_last_message());
		}
	assert_int_equal(n, 0);
}
