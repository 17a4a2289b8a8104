/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the process that has the listening socket and duplicates of all descriptors, and does nothing but
 * receive them, so that nothing can go wrong with it. The server is its child. Whoever of the two dies, the
 * other makes a new one, which inherits what there is.
 */
#ifndef SL_SLUICED_KEEPER_H
#define SL_SLUICED_KEEPER_H

#include "sluiced/server.h"

/*
 * Makes the first server and stays as the keeper until it is told to stop (SIGTERM, SIGINT), or the server has
 * stopped. 0, or a negative errno: servers die as soon as they begin.
 */
int sl_keeper_run(struct sl_vault *vault, const struct sl_server_settings *settings);
/* In the server, whose keeper is dead: makes another one. */
int sl_keeper_replace(struct sl_vault *vault, const struct sl_server_settings *settings);

#endif
