/* SPDX-License-Identifier: Apache-2.0 */
/* Every second sluice_open() of a program that is linked with this, and with --wrap=sluice_open, is a sluice_open_start(). */
#include <poll.h>
#include <stdatomic.h>

#include "lib/support.h"

int __real_sluice_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                       sluice_file **out);
int __wrap_sluice_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                       sluice_file **out);
/* Of a program that is linked with device_shim.c, too, which knows no such operations. */
__attribute__((weak)) void __real_sluice_op_free(sluice_op *op);

int __wrap_sluice_open(sluice_context *ctx, const char *uri, const struct sluice_open_options *o,
                       sluice_file **out)
{
	static _Atomic unsigned count;
	sluice_op *op;
	int rc;

	if (atomic_fetch_add(&count, 1) % 2 || !ctx || !uri || !out)
		return __real_sluice_open(ctx, uri, o, out);
	rc = sluice_open_start(ctx, uri, o, NULL, &count, &op);
	if (rc)
		return rc;
	poll(&(struct pollfd){sluice_op_fd(op), POLLIN, 0}, 1, -1);
	rc = sluice_op_file(op, out);
	(__real_sluice_op_free ? __real_sluice_op_free : sluice_op_free)(op);
	return rc;
}
