/* SPDX-License-Identifier: Apache-2.0 */
/* Owners with parts, whose bytes follow from a value: so parts of two owners are not taken for each other. */
#ifndef TESTS_PARTS_H
#define TESTS_PARTS_H

#include "lib/daemon.h"

enum { PARTS_MOST = 4 };
/* How many parts the value gives, and the bytes of one. */
unsigned parts_of(uint64_t value);
size_t part_bytes(uint64_t value, unsigned part);
/* Makes one that is not sealed; its first part is at place(). */
int parts_make(sluice_store *store, const char *name, uint64_t value, unsigned flags,
               sluice_blob **out);
/* The same of one that is to replace the blob with that id. */
int parts_make_over(sluice_store *store, const char *name, uint64_t value, uint64_t replaces,
                    sluice_blob **out);
/* Makes and seals one. */
int parts_put(sluice_store *store, const char *name, uint64_t value, unsigned flags,
              sluice_blob **out);
/* The same, as often as servers die. */
sluice_blob *parts_put_at_last(sluice_store *store, const char *name, uint64_t value,
                               unsigned flags);
/* Its value, if the owner and all its parts are whole and of the same; 0: they are not. Any thread. */
uint64_t parts_value(sluice_blob *owner);
/* Gets it, and asserts that. */
void assert_parts(sluice_store *store, const char *name, uint64_t value);

#endif
