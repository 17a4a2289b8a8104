/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The servers of tests/engine/http/servers.py: a real nginx, which serves SLUICE_TEST_DIR, and the fault
 * server, whose objects do what their URI says. They end with the program, however it ends.
 */
#ifndef TESTS_SERVERS_H
#define TESTS_SERVERS_H

#include "lib/support.h"

/* Once, from main(). Ends the process with status 77 and a reason where they cannot run. */
void servers_start(void);
/* "nginx", "nginx_tls"; of the fault server "plain", "other", "ipv6" (0: no IPv6 here), and with
 * TLS "good", "wrong_host", "expired". */
int server_port(const char *name);
/* The certificate of the authority that signed all of them. */
const char *server_ca(void);

/* Where nginx has the file of that path, which lies below SLUICE_TEST_DIR. Static, as scratch(). */
const char *nginx_uri(const char *path, bool tls);

/* The object of the server of S3 that is the file of that path, below SLUICE_TEST_DIR, in that bucket, whose name says
 * how it behaves: see tests/engine/http/s3_server.py. Static, as scratch(). */
const char *s3_uri(const char *bucket, const char *path);
/* Sets the variables of AWS so that objects are found there, and requests are signed. */
void s3_environment(void);

/*
 * An object of the fault server, /ID/object?OPTIONS, under an ID that nobody has used. Static, as
 * scratch().
 */
__attribute__((format(printf, 1, 2))) const char *fault_uri(const char *options, ...);
/* The same through another port of its: "other", "good", ... */
__attribute__((format(printf, 2, 3))) const char *fault_uri_at(const char *port,
                                                               const char *options, ...);
/* Escaped, so that it may be the value of an option. Static, as scratch(). */
const char *as_option(const char *text);

/* What the fault server counted for the ID in that URI: "GET", "status_503", "connections",
 * "peak", ...; 0 for what it has never seen. */
long asked(const char *uri, const char *what);
/* The whole answer behind asked(), with a line for each request; static. */
const char *asked_for(const char *uri);
/* Ends what the fault "hold" began for the ID in that URI. */
void release_held(const char *uri);

/* The bytes of the fault server's objects. */
size_t served_match(const void *src, size_t n, uint64_t offset, uint64_t version);
#define assert_served(src, n, offset)                                                \
	do {                                                                         \
		size_t n_ = (n);                                                     \
		size_t at_ = served_match(src, n_, offset, 0);                       \
		if (at_ != n_)                                                       \
			fail_msg("byte %zu of %zu at offset %llu is wrong", at_, n_, \
			         (unsigned long long)(offset));                      \
	} while (0)

#endif
