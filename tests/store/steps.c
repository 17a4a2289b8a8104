/* SPDX-License-Identifier: Apache-2.0 */
/* In a daemon for tests: the server that comes by a step dies there, once. SLUICE_TEST_STEP is the step, after a
 * number and a blank, which is how often it comes by before; SLUICE_TEST_DIED the file that says that it has. At the step
 * SLUICE_TEST_PAUSE it rests for two milliseconds. */
#include "protocol/step.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void __wrap_sl_store_step(const char *step);
void __wrap_sl_store_step(const char *step)
{
	static int passes;
	const char *wanted = getenv("SLUICE_TEST_STEP"), *died = getenv("SLUICE_TEST_DIED");
	const char *pause_at = getenv("SLUICE_TEST_PAUSE");

	if (pause_at && !strcmp(pause_at, step))
		usleep(2000);
	if (!wanted || !died || strcmp(strchr(wanted, ' ') + 1, step) != 0 ||
	    passes++ < atoi(wanted))
		return;
	/* Not the servers after it. */
	if (open(died, O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0)
		kill(getpid(), SIGKILL);
}
