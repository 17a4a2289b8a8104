/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `sluice`: what its files offer each other. Of the library they know the public
 * header only. All of it runs on the main thread.
 */
#ifndef SLUICE_CLI_H
#define SLUICE_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "sluice/device.h"
#include "sluice/sluice.h"

enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* The subcommands. argv[0] is "sluice NAME". They return an enum cli_exit. */
int cli_cp(int argc, char **argv);
int cli_stat(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_store(int argc, char **argv);

/* ------------------------------------------------------------------------------------ options */

/* The values of options. A wrong one ends the program with a usage error that names the option. */
uint64_t cli_option_size(struct argp_state *state, const char *option, const char *text);
uint64_t cli_option_number(struct argp_state *state, const char *option, const char *text,
                           uint64_t least, uint64_t most);
const char *cli_option_choice(struct argp_state *state, const char *option, const char *text,
                              const char *const *choices);

/* How files are opened, which several subcommands have options for. */
struct cli_open {
	const char *backend; /* or NULL */
	unsigned flags;      /* of enum sluice_open_flags, for what is read */
};
enum { CLI_KEY_BACKEND = 1000, CLI_KEY_HTTP2, CLI_KEY_AS_STORED };
#define CLI_OPEN_OPTIONS                                                                           \
	{"backend",                                                                                \
	 CLI_KEY_BACKEND,                                                                          \
	 "NAME",                                                                                   \
	 0,                                                                                        \
	 "Move local files by 'auto', 'posix', 'uring' or 'cufile', remote ones by 'multi' or "    \
	 "'easy'",                                                                                 \
	 0},                                                                                       \
		{"http2", CLI_KEY_HTTP2, NULL, 0, "Of https: HTTP/2, if the server has it", 0},    \
	{                                                                                          \
		"as-stored", CLI_KEY_AS_STORED, NULL, 0,                                           \
			"Of http and https: an object that is stored with a Content-Encoding, as " \
			"gzip, as it is",                                                          \
			0                                                                          \
	}
error_t cli_open_option(struct cli_open *o, int key, char *arg, struct argp_state *state);

/* Says on stderr why the library's call failed, if it did; returns rc, which is what it returned. */
int cli_said(int rc);
/* Says the sentence on stderr; returns rc. */
__attribute__((format(printf, 2, 3))) int cli_fail(int rc, const char *format, ...);
/* As asprintf(), to be freed; without memory it ends the program. */
__attribute__((format(printf, 1, 2))) char *cli_format(const char *format, ...);
/* Makes a context; 0 in a setting leaves it to the environment. Says on stderr why it could not. */
int cli_context_new(const char *backend, size_t piece_bytes, sluice_context **out);

/* --------------------------------------------------------------------------------- size, text */

#define CLI_TEXT 32

/* "4.0 GiB", "2.24 GB/s"; both return text. */
const char *cli_size_format(uint64_t bytes, char text[CLI_TEXT]);
const char *cli_rate_format(double bytes_per_second, char text[CLI_TEXT]);

/* The name of a blob with characters that are not seen, as those of direction, as \u202e; returns text. */
#define CLI_NAME (3 * 255 + 1)
const char *cli_blob_name(const char *name, char text[CLI_NAME]);
/* A JSON string in quotes, or null. Bytes that are not UTF-8 become U+FFFD. */
void cli_json_string(const char *text);

uint64_t cli_now_ns(void); /* monotonic */

/* The local path that uri names, to be freed, or NULL where the library has to say what it is. */
char *cli_local_path(const char *uri);

/* ------------------------------------------------------------------------------------- memory */

/* Streams over which operations on a device are spread, so that one is filled while one is copied. */
#define CLI_STREAMS 2

struct cli_memory {
	int device; /* -1: the host's */
	char *data; /* what the processor may touch if it is the host's */
	size_t size;
	char *mapping; /* host: where it begins; data may be moved on by less than a page */
	sluice_stream streams[CLI_STREAMS];
};
/* "host": -1; else the number of the device of that name. Ends the program if there is none. */
int cli_option_memory(struct argp_state *state, const char *option, const char *text);
const char *cli_memory_name(int device);
/* These say on stderr why they could not, and return 0 or a negative errno. */
int cli_memory_new(struct cli_memory *m, int device, size_t size, bool huge);
/* Touches all of it, with noise. */
int cli_memory_fill(struct cli_memory *m, uint64_t seed);
void cli_memory_free(struct cli_memory *m);
uint64_t cli_random(uint64_t *state);

/* ---------------------------------------------------------------------------------- interrupt */

/* From here on SIGINT, SIGTERM, SIGHUP and SIGPIPE do not end the program but are seen by
 * cli_interrupted(), which is 0 or the signal. Those that were ignored stay so. */
void cli_interrupt_catch(void);
int cli_interrupted(void);
/* Any thread: there is something to clean up until unhold, or false: an interrupt came before. While nothing is held,
 * the program may end at an interrupt. */
bool cli_interrupt_hold(void);
void cli_interrupt_unhold(void);
bool cli_interrupt_held(void);
/* From here on they end the program again. */
void cli_interrupt_release(void);
/* Has blocking system calls of this thread return with EINTR ten times a second. */
void cli_interrupt_tick(void);
/* Ends the program by the signal that came, as if it had not been caught. */
_Noreturn void cli_interrupt_obey(void);

/* ----------------------------------------------------------------------------------- progress */

/* A bar on stderr, if that is a terminal. */
struct cli_progress {
	const char *name;
	uint64_t total; /* 0: unknown */
	bool shown;     /* may be drawn at all */
	bool drawn;     /* is on the screen */
	uint64_t start_ns, last_ns;
	uint64_t last_moved;
	double rate; /* bytes per second, of the last seconds */
};
void cli_progress_start(struct cli_progress *p, const char *name, uint64_t total, bool wanted);
void cli_progress_update(struct cli_progress *p, uint64_t moved);
void cli_progress_end(struct cli_progress *p);

/* sluice_uri_name() in memory that the caller frees. Without memory this and the next end the program. */
char *cli_uri_name(const char *uri);

/* ----------------------------------------------------------------------------------------- cp */

struct cli_cp;

/* One end of a copy: a file of the library, or a stream behind a descriptor. */
struct cli_end {
	char *name;        /* for people; owned */
	char *path;        /* if it is local and has one; owned */
	sluice_file *file; /* NULL for a stream */
	int fd;            /* of a stream, else -1 */
	bool fd_owned;
	bool length_known;
	bool whole_only;  /* source: is read from front to back */
	uint64_t length;  /* as it was when the copy began; of a stream a guess for the bar */
	bool sparse;      /* source: has holes; target: may get them */
	int holes;        /* source: a descriptor that tells where they are; -1: none does; owned */
	bool replaces;    /* target: a new file that takes its name at the end */
	bool closed;      /* target: and then nobody may read it */
	char *memory;     /* of a blob: its bytes, while it is open */
	int place;        /* whose memory that is: the number of a device, or -1: the host's */
	struct stat st;   /* of a local file or stream, before the copy */
	const char *etag; /* source, as is the next: as in struct sluice_file_info; the file's */
	int64_t modified_ns;
	bool queried; /* source: its URI has a query, which name does not show */
	struct cli_part
		*part; /* target, of --continue: what is written and stays; or NULL; owned */
};
enum cli_end_flags { CLI_END_FORCE = 1 << 0, CLI_END_DURABLE = 1 << 1, CLI_END_CONTINUE = 1 << 2 };

/* Both say on stderr why they could not, and return 0 or a negative errno. open_flags: of enum
 * sluice_open_flags, beside READ. */
int cli_end_open_source(sluice_context *ctx, const char *uri, unsigned open_flags,
                        struct cli_end *out);
int cli_end_open_target(sluice_context *ctx, const struct cli_cp *o, const char *uri,
                        const struct cli_end *source, struct cli_end *out);
/* Makes what was written take effect; says why it could not. */
int cli_end_commit(struct cli_end *end, unsigned flags);
/* Releases the end; what was written and not committed has no effect. */
void cli_end_discard(struct cli_end *end);

/*
 * What --continue keeps of a copy, beside target: see SLUICE_OPEN_REPLACE's part. begin finds out what is
 * there, of the part that was opened as file; commit closes it; free, before the file is
 * discarded, says what is kept. Errors are negative errnos, said on stderr but for commit's.
 */
#define CLI_PART_BLOCK (256 << 10) /* the state says of each whether it is there */
struct cli_part *cli_part_new(const char *target, const char **name);
int cli_part_begin(struct cli_part *part, sluice_context *ctx, const struct cli_end *source,
                   sluice_file *file);
int cli_part_commit(struct cli_part *part);
void cli_part_free(struct cli_part *part);
/* Moves *at to the next block that is missing, or the end; how many bytes are from there on, about most. */
size_t cli_part_gap(const struct cli_part *part, uint64_t *at, size_t most);
/* A gap, or the beginning of one in whole blocks, was written. */
void cli_part_wrote(struct cli_part *part, uint64_t offset, size_t n);
uint64_t cli_part_there(const struct cli_part *part); /* bytes; of NULL none */
/* Notes what was written now and then. */
int cli_part_note(struct cli_part *part);

struct cli_copy {
	sluice_context *ctx;
	int device; /* whose memory the bytes go through, or -1 */
	struct cli_end *source, *target;
	struct cli_progress *progress;
	void *hash;     /* XXH3_state_t to be fed in file order, or NULL */
	uint64_t there; /* bytes that the target had before */
	uint64_t moved; /* out: bytes that reached the target, those of holes included, */
	uint64_t holes; /* and of these, bytes of holes that were left out */
	char error[512];
};
/* 0, -ECANCELED after an interrupt, or a negative errno with the sentence in error. */
int cli_copy_run(struct cli_copy *copy);

struct cli_moved {
	uint64_t files, bytes, holes;
};
/* What is to be copied, and how. */
struct cli_cp {
	char **sources;
	size_t count; /* of them */
	const char *target;
	const char *uri; /* of the target, if it is not what was typed; or NULL */
	int through;     /* the device whose memory the bytes go through, or -1 */
	bool checksum, quiet, no_progress;
	bool recursive, preserve; /* -r, -p */
	bool exact;               /* target is no directory that the copy is put into */
	mode_t mask;              /* the umask that was; this process has none */
	unsigned flags;           /* of enum cli_end_flags */
	struct cli_open open;
};
/* All of it; an enum cli_exit. After an interrupt it does not return. */
int cli_cp_run(struct cli_cp *o);
/* Copies one file; adds to the bytes that were moved and those of holes. 0 or a negative errno, which was said. Any
 * thread, each with its own context. */
int cli_cp_one(sluice_context *ctx, const struct cli_cp *o, const char *source, const char *target,
               struct cli_moved *moved);
/* Copies several files, or a directory, by several threads, into the directory that o->target is or becomes. The
 * same. */
int cli_cp_tree(const struct cli_cp *o, struct cli_moved *moved);
/* Gives what is at path owner, permissions, times and extended attributes of a local file. The same. */
int cli_preserve(const char *source, const struct stat *st, const char *path);

/* Whether uri names a blob of the store. */
bool cli_is_blob(const char *uri);
/* One more "key" or "key=value" behind a URI of a blob, escaped; to be freed. It frees uri. */
char *cli_blob_option(char *uri, const char *key, const char *value);
/* The URI of the blob of that name; to be freed. */
char *cli_blob_uri(const char *name);

/* ------------------------------------------------------------------------------------- doctor */

/* A finding about the machine; the feature's strings point into it or are constants. */
struct cli_finding {
	struct sluice_feature feature;
	char detail[256];
};
/* The findings one by one, index from 0; false past the last one. */
bool cli_machine_finding(size_t index, struct cli_finding *out);
int cli_nodes(void); /* of NUMA; 0: not known */
/* How many cores of a NUMA node this process may run on; -1: not known. */
int cli_cores_of_node(int node);

/* A list of findings: for people a line or two each, or an array of objects. */
void cli_heading_print(bool json, const char *title, const char *key);
void cli_feature_print(bool json, const struct sluice_feature *f, bool first);
/* The same, and more can be said: in JSON the object is still open. */
void cli_feature_begin(bool json, const struct sluice_feature *f, bool first);
void cli_list_end(bool json);
void cli_devices_print(bool json);

/* -------------------------------------------------------------------------------------- bench */

struct cli_bench {
	const char *uri;
	char *name; /* the URI for people */
	const char *memory;
	int device;     /* of that memory, or -1 */
	bool on_stream; /* in stream order */
	struct cli_open open;
	bool write, cold, json, full, random, sync, force, huge, unaligned;
	uint64_t chunk, size, op_size, seed;
	unsigned depth, repeat;
};
struct cli_bench_round {
	double seconds;
	double cpu_seconds;
	double resident; /* part of the file that was still cached when a cold round began */
};
/* What stays the same over the rounds. */
struct cli_bench_run {
	const struct cli_bench *options;
	sluice_context *ctx;
	sluice_file *file;
	char *path;     /* of a local file, for --cold; or NULL */
	uint64_t range; /* random offsets lie below it */
	uint64_t bytes; /* moved in each round */
	uint64_t operations;
	unsigned in_flight; /* slots */
	struct cli_bench_slot *slots;
	struct cli_memory memory; /* the buffers */
	uint64_t random;
};
/* These say on stderr why they could not, and return 0 or a negative errno. */
int cli_bench_prepare(struct cli_bench_run *run);
int cli_bench_round(struct cli_bench_run *run, struct cli_bench_round *out);
void cli_bench_release(struct cli_bench_run *run);

#endif
