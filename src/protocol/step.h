/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SL_STORE_STEP_H
#define SL_STORE_STEP_H

/* Names a step of the protocol, in the client or the server. Does nothing; a test links another one in its
 * place, which ends the process there. */
void sl_store_step(const char *step);

#endif
