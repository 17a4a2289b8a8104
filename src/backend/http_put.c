/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/http_put.h"
#include <errno.h>
int sl_http_put_new(struct sl_http *http, const struct sluice_open_options *options,
                    struct sl_http_put **out)
{
	(void)options;
	(void)out;
	return sl_fail(-ENOTSUP, "'%s': cannot be written yet", http->name);
}
void sl_http_put_submit(struct sl_http_put *put, struct sl_piece *piece)
{
	(void)put;
	(void)piece;
}
void sl_http_put_wake(struct sl_http_put *put)
{
	(void)put;
}
int sl_http_put_commit(struct sl_http_put *put)
{
	(void)put;
	return 0;
}
void sl_http_put_free(struct sl_http_put *put)
{
	(void)put;
}
