/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong: an operation that fails lets go of what its stream waits for only if it is a read. */
#include "system/torture/torture.h"

#include "staging/staging.h"

__typeof__(sl_ring_stop) __real_sl_ring_stop, __wrap_sl_ring_stop;

const char *const wrong = "a failure rule that forgets writes";

/* Host memory has no slot, and ends what it does in this way, too. */
void __wrap_sl_ring_stop(struct sl_ring *ring, unsigned slot)
{
	if (!ring->write || !ring->slots[slot].data)
		__real_sl_ring_stop(ring, slot);
}

void wrong_start(void)
{
}
