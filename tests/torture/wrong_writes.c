/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong: an operation that fails lets go of what its stream waits for only if it is a read. */
#include "torture/torture.h"

#include "staging/staging.h"

const char *const wrong = "a failure rule that forgets writes";

void __real_sl_ring_stop(struct sl_ring *ring, unsigned slot);
void __wrap_sl_ring_stop(struct sl_ring *ring, unsigned slot);

/* Host memory has no slot, and ends what it does in this way, too. */
void __wrap_sl_ring_stop(struct sl_ring *ring, unsigned slot)
{
	if (!ring->write || !ring->slots[0].data)
		__real_sl_ring_stop(ring, slot);
}

void wrong_start(void)
{
}
