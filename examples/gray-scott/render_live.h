/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAY_SCOTT_RENDER_LIVE_H
#define GRAY_SCOTT_RENDER_LIVE_H

#include "render_options.h"

/* Makes a picture of each image that comes from the store. By one thread: the others' work is to compute them.
 * Ends the program with a sentence where something is wrong. */
void render_live(const struct render_options *options);

#endif
