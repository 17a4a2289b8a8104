/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SL_STORE_STEP_H
#define SL_STORE_STEP_H

/*
 * Names a step of the protocol, in a client or in the server. It does nothing; tests link a
 * function in its place that ends the process there.
 */
void sl_store_step(const char *step);

#endif
