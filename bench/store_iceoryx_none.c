/* SPDX-License-Identifier: Apache-2.0 */
/* Built without iceoryx. */
#include "store_bench.h"

const struct way way_iceoryx, way_iceoryx_polled;
