/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors that a test makes, and tables of them. */
#ifndef FORMAT_H
#define FORMAT_H

#include "lib/support.h"
#include "sluice/tensors.h"

#define TEXT 4096 /* bytes */

/* Makes a file of n bytes and returns its address in the row. */
const char *made(struct fixture *f, const char *name, const void *bytes, size_t n);
sluice_tensors *opened(struct fixture *f, const char *uri);
struct sluice_tensor got(const sluice_tensors *t, size_t index);
struct sluice_tensor found(const sluice_tensors *t, const char *name);
void assert_open_refused(struct fixture *f, const char *uri, int error, const char *says);

#endif
