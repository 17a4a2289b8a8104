/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `sluice`: functions for all its files. The files know the library's public headers
 * and core. All of it runs on the main thread, except where a comment says otherwise.
 */
#ifndef SLUICE_CLI_H
#define SLUICE_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/core.h"
#include "sluice/device.h"
#include "sluice/sluice.h"

enum cli_exit { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* The subcommands. argv[0] is "sluice NAME". They return an enum cli_exit. */
int cli_cp(int argc, char **argv);
int cli_ls(int argc, char **argv);
int cli_presign(int argc, char **argv);
int cli_rm(int argc, char **argv);
int cli_s3(int argc, char **argv);
int cli_stat(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_h5(int argc, char **argv);
int cli_store(int argc, char **argv);
int cli_sync(int argc, char **argv);
int cli_tensors(int argc, char **argv);
int cli_verify(int argc, char **argv);

/* -------------------------------------------------------------------------------------- words */

/*
 * Words of which one follows a command, as "cp" in "sluice cp": an array of `count` structs of
 * `bytes` bytes, each of which begins with the strings name, arguments and meaning.
 */
struct cli_words {
	const char *command;        /* "sluice" */
	const char *before, *after; /* of their list in the help; after may be NULL */
	int width;                  /* of the arguments in the list; 0: they are not shown */
	const void *of;
	size_t count, bytes;
};
/*
 * Finds the word in argv[1], names the program after both, and returns the struct: argc - 1 and
 * argv + 1 are for argp. Returns NULL, with *status for the end, if there is no such word, or after
 * a request for help.
 */
const void *cli_word_find(const struct cli_words *words, int argc, char **argv, int *status);

/* ------------------------------------------------------------------------------------ options */

/* Parse values of options. A wrong value ends the program with an error that names the option. */
uint64_t cli_option_size(struct argp_state *state, const char *option, const char *text);
uint64_t cli_option_number(struct argp_state *state, const char *option, const char *text,
                           uint64_t least, uint64_t most);
const char *cli_option_choice(struct argp_state *state, const char *option, const char *text,
                              const char *const *choices);

/*
 * The keys of options that set a member of the parser's input: a bool to true, an int to 1, a text
 * to the argument; see cli_arguments_option().
 */
enum { CLI_BOOL, CLI_INT, CLI_WORD, CLI_KINDS, CLI_FIRST_MEMBER = 4096, CLI_LAST_MEMBER = 8191 };
#define CLI_MEMBER(kind, type, member) \
	(CLI_FIRST_MEMBER + CLI_KINDS * (int)offsetof(struct type, member) + (kind))
#define CLI_FLAG(type, member) CLI_MEMBER(CLI_BOOL, type, member)

/* The arguments of a subcommand that are no options. */
struct cli_arguments {
	char **of;
	size_t count;
	size_t least, most;
	const char *noun; /* "FILE": it is missing where there are too few; NULL: none may be */
};
/* Parsers call it for keys that they do not know. Checks the number of arguments at the end. */
error_t cli_arguments_option(struct cli_arguments *a, int key, char *arg, struct argp_state *state);

/* How files are opened, and options of several subcommands. A parser's input begins with it. */
struct cli_open {
	struct cli_arguments arguments;
	const char *backend;          /* or NULL */
	unsigned flags;               /* enum sluice_open_flags, for reading */
	const char **headers;         /* of remote files, and NULL behind them; or NULL: none */
	struct sluice_s3_options s3;  /* size is 0 until one of them is set */
	uint64_t first_bytes;         /* of a remote file, which come with its opening */
	bool remote;                  /* an option was given that is for remote files alone */
	bool recursive, quiet, force; /* -r, -q, -f */
};
/* An option with the key CLI_OPEN_FLAG plus a flag sets the flag. */
enum { CLI_KEY_BACKEND = 1000, CLI_KEY_HEADER, CLI_OPEN_FLAG = 1 << 14 };
/* How a service of S3 is asked; the whole, how any file is opened. */
#define CLI_S3_OPTIONS                                                                           \
	{"header", CLI_KEY_HEADER, "LINE", 0,                                                    \
	 "A line 'Name: value' that requests for each remote file carry to its own server; may " \
	 "be repeated"},                                                                         \
		{"profile", CLI_MEMBER(CLI_WORD, cli_open, s3.profile), "NAME", 0,               \
	         "Of s3: the profile in ~/.aws"},                                                \
		{"region", CLI_MEMBER(CLI_WORD, cli_open, s3.region), "NAME", 0,                 \
	         "Of s3: the region of the bucket"},                                             \
		{"endpoint-url", CLI_MEMBER(CLI_WORD, cli_open, s3.endpoint), "URL", 0,          \
	         "Of s3: another server than AWS"},                                              \
		{"no-sign-request", CLI_MEMBER(CLI_INT, cli_open, s3.anonymous), NULL, 0,        \
	         "Of s3: requests without a signature, for public objects"},                     \
	{                                                                                        \
		"requester-pays", CLI_MEMBER(CLI_INT, cli_open, s3.requester_pays), NULL, 0,     \
			"Of s3: the user pays for the requests"                                  \
	}
#define CLI_VERSION_OPTION                                                         \
	{                                                                          \
		"version-id", CLI_MEMBER(CLI_WORD, cli_open, s3.version), "ID", 0, \
			"Of s3: a version of the object"                           \
	}
#define CLI_OPEN_OPTIONS                                                                           \
	{"backend", CLI_KEY_BACKEND, "NAME", 0,                                                    \
	 "Move local files by 'auto', 'posix', 'uring' or 'cufile', remote ones by 'multi' or "    \
	 "'easy'"},                                                                                \
		{"http2", CLI_OPEN_FLAG + SLUICE_OPEN_HTTP2, NULL, 0,                              \
	         "Of https: HTTP/2, if the server has it"},                                        \
		CLI_S3_OPTIONS, CLI_VERSION_OPTION,                                                \
		{"sign-payload", CLI_MEMBER(CLI_INT, cli_open, s3.sign_payload), NULL, 0,          \
	         "Of s3: the signature covers the bytes that are written, too"},                   \
		{"uncached", CLI_OPEN_FLAG + SLUICE_OPEN_UNCACHED, NULL, 0,                        \
	         "Of local files: leave no pages in the page cache that were not there"},          \
	{                                                                                          \
		"as-stored", CLI_OPEN_FLAG + SLUICE_OPEN_AS_STORED, NULL, 0,                       \
			"Of http and https: an object that is stored with a Content-Encoding, as " \
			"gzip, as it is"                                                           \
	}
error_t cli_open_option(struct cli_open *o, int key, char *arg, struct argp_state *state);
/* The parser of a subcommand without other options. */
error_t cli_open_parse(int key, char *arg, struct argp_state *state);
/* Returns the options that are for remote files; o stays in use. */
struct sluice_open_options cli_open_options(const struct cli_open *o);

/* Prints the library's sentence on stderr if rc is an error; returns rc. */
int cli_said(int rc);
/* Flushes standard output, and keeps the first error for the end. Returns 0 or an errno. */
int cli_flush(void);
/* Prints a sentence on stderr, a line that other threads do not break; returns rc. */
__attribute__((format(printf, 2, 3))) int cli_fail(int rc, const char *format, ...);
#define cli_warn(...) ((void)cli_fail(0, __VA_ARGS__))
/* Returns text, for the caller to free. NULL: memory is short, and the program ends. */
char *cli_checked(char *text);
/* Formats like asprintf(). The same. */
#define cli_format(...) cli_checked(sl_format(__VA_ARGS__))
/* A pointer to the heap, which is freed at the end of the block. */
#define CLI_OWNED __attribute__((cleanup(cli_owned_free)))
void cli_owned_free(void *pointer);
/* Returns an array with room for `count` elements. Ends the program if memory is short. */
void *cli_grow(void *array, size_t count, size_t bytes);
/* Makes a context; settings of 0 or NULL come from the environment. Prints errors on stderr. */
int cli_context_new(const char *backend, size_t piece_bytes, sluice_context **out);

/* --------------------------------------------------------------------------------- size, text */

#define CLI_TEXT 32

/* Format "4.0 GiB", "2.24 GB/s" and, in UTC, "2026-01-31 12:00:00"; they return text. */
const char *cli_size_format(uint64_t bytes, char text[CLI_TEXT]);
const char *cli_rate_format(double bytes_per_second, char text[CLI_TEXT]);
const char *cli_date_format(int64_t ns, char text[CLI_TEXT]);

/*
 * Returns text with invisible characters, such as direction marks, as \u202e, for the caller to
 * free. Ends the program if memory is short.
 */
char *cli_visible(const char *text);
/* Prints a line with a name between two texts, escaped as by sha256sum. Any thread. */
void cli_print_escaped(FILE *to, const char *before, const char *name, const char *after);
/* Writes text as a JSON string in quotes, or null. Bytes that are not UTF-8 become U+FFFD. */
void cli_json_text(FILE *to, const char *text);
/* Prints `before`, and then text as cli_json_text() does. */
void cli_json_string(const char *before, const char *text);

/* Prints the line of a tensor; file: NULL, or the file with it. */
void cli_print_tensor(const char *name, int type, unsigned rank, const uint64_t *lengths,
                      uint64_t bytes, const char *file);

/* Returns the local path that uri names, for the caller; NULL: the library interprets uri. */
char *cli_local_path(const char *uri);

/* ----------------------------------------------------------------------------------- datasets */

/*
 * Splits "FILE#/DATASET": returns the name of the file, for the caller to free, and sets *dataset,
 * which is a part of uri. NULL, and *dataset is NULL: uri names no dataset.
 */
char *cli_dataset_split(const char *uri, const char **dataset);
/* The same into options, with which a file is opened next, but for an object of S3 with the whole
 * name: the server is asked. */
char *cli_dataset_open_split(sluice_context *ctx, const char *uri,
                             struct sluice_open_options *options);
/* Lists a group in a local file, or in a remote file that is open. Returns 0 or a negative errno,
 * printed on stderr. */
int cli_array_ls(const char *path, sluice_file *remote, const char *group, bool recursive,
                 bool json);
/* Prints type, shape, chunk and filters. Returns 0 or a negative errno, printed on stderr. */
int cli_array_print(sluice_file *file, bool json);
/*
 * Returns the header of a .npy file (numpy.lib.format) of so many bytes, for the caller to free;
 * NULL with a sentence.
 */
char *cli_array_header(sluice_file *file, size_t *n);
/*
 * Has read() print to `out` what it finds in a local HDF5 file, again if a writer has changed that
 * meanwhile. Returns the result of read(), whose sentence is kept, with *text for the caller to
 * free; or -EAGAIN or another error, without a text.
 */
int cli_h5_read(const char *path, int (*read)(const char *path, FILE *out, void *user), void *user,
                char **text);

/* ------------------------------------------------------------------------------------- memory */

/* Streams per device memory, so that copies of different streams overlap. */
#define CLI_STREAMS 2

struct cli_memory {
	int device; /* -1: host */
	char *data; /* accessible to the processor if it is host memory */
	size_t size;
	char *mapping; /* host: start of the mapping; data may be moved on by less than a page */
	sluice_stream streams[CLI_STREAMS];
};
/* Returns -1 for "host", else the named device's number. Ends the program if there is none. */
int cli_option_memory(struct argp_state *state, const char *option, const char *text);
const char *cli_memory_name(int device);
/* Return 0 or a negative errno, printed on stderr. */
int cli_memory_new(struct cli_memory *m, int device, size_t size, bool huge);
/* Fills all of the memory with noise. */
int cli_memory_fill(struct cli_memory *m, uint64_t seed);
void cli_memory_free(struct cli_memory *m);

/* ---------------------------------------------------------------------------------- interrupt */

/*
 * Catches SIGINT, SIGTERM, SIGHUP and SIGPIPE from now on. Ignored signals stay ignored. Two
 * seconds after a signal the program ends by it, although a server has not answered yet that it
 * dropped an upload; a second signal ends it at once.
 */
void cli_interrupt_catch(void);
int cli_interrupted(void);
/*
 * Announces that there is something to clean up, until unhold(). Returns false if an interrupt came
 * before. While nothing is held the program may end at an interrupt. Any thread.
 */
bool cli_interrupt_hold(void);
void cli_interrupt_unhold(void);
bool cli_interrupt_held(void);
/* A local file is being written, which is removed however long that takes; or is not any more. */
void cli_interrupt_file(bool begins);
/*
 * Says that this thread begins, or ends, to commit an upload that it holds, which may take long;
 * commits() tells whether any thread does. After an interrupt the main thread calls
 * cli_interrupt_leave() then.
 */
void cli_interrupt_commit(bool begins);
bool cli_interrupt_commits(void);
/*
 * The main thread begins, or ends, to wait in the library for a server. Meanwhile an interrupt ends
 * the program once nothing is held.
 */
void cli_interrupt_wait(bool begins);
/* Restores the default: the signals end the program. */
void cli_interrupt_release(void);
/* Makes blocking system calls of this thread return EINTR ten times a second. */
void cli_interrupt_tick(void);
/*
 * Ends the program by exit(), in which the library drops uploads that another thread is completing,
 * and then by the caught signal. Any thread.
 */
_Noreturn void cli_interrupt_leave(void);
bool cli_interrupt_leaves(void);
/* Ends the program by the caught signal, as if it had not been caught. */
_Noreturn void cli_interrupt_obey(void);

/* ----------------------------------------------------------------------------------- progress */

/* A progress bar on stderr, if that is a terminal. */
struct cli_progress {
	const char *name;
	uint64_t total; /* 0: unknown */
	uint64_t files; /* that are done; shown where the total is unknown, if there are any */
	bool shown;     /* drawing is allowed */
	bool drawn;     /* the bar is on the screen */
	uint64_t start_ns, last_ns;
	uint64_t last_moved;
	double rate;           /* bytes per second over the last seconds */
	uint64_t limited_ms;   /* for which a server wants no requests; 0: it takes them */
	_Atomic uint64_t *sum; /* a copy among others adds its bytes there, and shows none */
};
void cli_progress_start(struct cli_progress *p, const char *name, uint64_t total, bool wanted);
void cli_progress_update(struct cli_progress *p, uint64_t moved);
void cli_progress_end(struct cli_progress *p);

/* Returns sluice_uri_name() in memory that the caller frees. Without memory the program ends. */
char *cli_uri_name(const char *uri);

/* --------------------------------------------------------------------------------------- blobs */

/* Returns true if uri names a blob of the store. */
bool cli_is_blob(const char *uri);
/* Returns true if uri is of S3. */
bool cli_is_object(const char *uri);
/* Appends "key" or "key=value", escaped, to a blob's URI. Frees uri; the result is the caller's. */
char *cli_blob_option(char *uri, const char *key, const char *value);
/* Returns the URI of a named blob; the caller frees the URI. */
char *cli_blob_uri(const char *name);

/* ------------------------------------------------------------------------------------ machine */

/* A finding about the machine; the strings of feature point into the finding or are constants. */
struct cli_finding {
	struct sluice_feature feature;
	char detail[256];
};
/* Returns the finding at index; false past the last. */
bool cli_machine_finding(size_t index, struct cli_finding *out);
/* Returns the cores of a NUMA node, -1: of all, that this process may use; -1: unknown. */
int cli_cores_of_node(int node);

#endif
