/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a context, from struct sluice_config and the environment. */
#ifndef SL_SETTINGS_H
#define SL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/sluice.h>

/* The kernel features that SLUICE_DISABLE can mask. */
enum sl_disable {
	SL_DISABLE_URING = 1 << 0,
	SL_DISABLE_CACHESTAT = 1 << 1,
	SL_DISABLE_NOWAIT = 1 << 2,
	SL_DISABLE_DONTCACHE = 1 << 3,
	SL_DISABLE_DIOALIGN = 1 << 4,
};
/* The ways to move bytes of local files. */
enum sl_choice { SL_CHOICE_AUTO, SL_CHOICE_POSIX, SL_CHOICE_URING, SL_CHOICE_CUFILE };

/* The ways to move bytes of remote files. */
enum sl_remote { SL_REMOTE_MULTI, SL_REMOTE_EASY };

#define SL_SETTINGS_MOST 56 /* a bound on their number */
#define SL_SETTING_TEXT  1024
#define SL_SECRET_TEXT   8192

struct sl_settings {
	unsigned choice;  /* enum sl_choice */
	unsigned disable; /* of enum sl_disable */
	uint64_t workers; /* 0 until the context has decided, as `calls` */
	bool shared;      /* workers are one for each core, and limited beside other processes */
	uint64_t calls;   /* blocking calls of a file at a time */
	uint64_t reactors;
	uint64_t reactor_depth;
	uint64_t piece_bytes;
	uint64_t operation_depth;
	uint64_t direct_bytes;
	uint64_t inline_bytes;
	uint64_t bounce_bytes;
	uint64_t max_operations;
	uint64_t staging_bytes;
	uint64_t slot_bytes; /* 0: by operation */
	uint64_t slots;      /* 0: by operation */
	uint64_t cufile_threads;
	unsigned cufile_streams;
	unsigned remote; /* enum sl_remote */
	uint64_t max_connections;
	uint64_t http_reactors;
	unsigned http_hedge;
	unsigned http_etag;
	uint64_t http_gap_bytes;
	uint64_t http_attempts;
	uint64_t http_retry_ms;
	uint64_t http_backoff_ms;
	uint64_t http_backoff_max_ms;
	uint64_t http_connect_ms;
	uint64_t http_stall_ms;
	uint64_t http_ratelimit_ms;
	uint64_t part_bytes;
	uint64_t upload_bytes;
	uint64_t copy_bytes;
	char http_headers_file[SL_SETTING_TEXT]; /* "" : none, as the texts below */
	char http_bearer[SL_SECRET_TEXT];
	char http_bearer_file[SL_SETTING_TEXT];
	char http_netrc[SL_SETTING_TEXT]; /* or "0": none; "1": the file of the user */
	char http_client_cert[SL_SETTING_TEXT];
	char http_client_key[SL_SETTING_TEXT];
	char ca_bundle[SL_SETTING_TEXT]; /* "" : the system's */
	unsigned tls_insecure;
	unsigned log;                          /* enum sl_log_level */
	const char *sources[SL_SETTINGS_MOST]; /* by index of the setting */
};

/* Reads config and the environment, and checks all of it. Returns 0 or -EINVAL with a sentence. */
int sl_settings_load(const struct sluice_config *config, struct sl_settings *out);
/*
 * Parses "auto", "posix", "uring" or "cufile" to a value of enum sl_choice. Returns 0, or -EINVAL
 * with a sentence that begins with the parameter `what`.
 */
int sl_choice_parse(const char *what, const char *name, unsigned *out);
const char *sl_choice_name(unsigned choice);
/* Parses "multi" or "easy" to a value of enum sl_remote, as sl_choice_parse() does. */
int sl_remote_parse(const char *what, const char *name, unsigned *out);
const char *sl_remote_name(unsigned remote);
/* Describes a setting without its value; settings may be NULL. -ENOENT: index is past the last. */
int sl_setting_describe(size_t index, const struct sl_settings *settings,
                        struct sluice_setting *out);
/* Prints a setting's value as its variable has it, of a secret only "set"; past the last "". */
void sl_setting_print(size_t index, const struct sl_settings *settings, char *text, size_t size);

#endif
