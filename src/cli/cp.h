/* SPDX-License-Identifier: Apache-2.0 */
/* sluice cp: the ends of a copy, the part of --continue, the copy of one file and of many. */
#ifndef SLUICE_CLI_CP_H
#define SLUICE_CLI_CP_H

#include <sys/stat.h>

#include "cli.h"

struct cli_cp_options;

/* An end of a copy: a file of the library, or a stream behind a descriptor. */
struct cli_end {
	char *name;        /* for users; owned */
	char *path;        /* of a local file, or NULL; owned */
	sluice_file *file; /* NULL for a stream */
	int fd;            /* descriptor of a stream, else -1 */
	bool fd_owned;
	bool length_known;
	bool whole_only;  /* source: must be read from front to back */
	uint64_t length;  /* when the copy began; of a stream an estimate for the bar */
	bool sparse;      /* source: has holes; target: may have holes */
	int holes;        /* source: descriptor for SEEK_HOLE, or -1; owned */
	bool replaces;    /* target: a new file that gets its name at the end */
	bool closed;      /* target: without permissions when complete */
	bool in_order;    /* target: is written front to back */
	bool parts;       /* target: a server may keep parts of it */
	char *memory;     /* bytes of an open blob, else NULL */
	int device;       /* device that holds memory, or -1 for the host */
	struct stat st;   /* of a local file or stream before the copy */
	const char *etag; /* source, with modified_ns: see struct sluice_file_info; owned by file */
	int64_t modified_ns;
	const char *crc32c;    /* source: see there; owned by file */
	bool queried;          /* source: the URI has a query, which name omits */
	char *head;            /* source: bytes before those of the file, or NULL; owned */
	size_t head_bytes;     /* which are a part of length */
	struct cli_part *part; /* target of --continue: the part, or NULL; owned */
};

/* Returns the length without the query, which a name of an object does not have. */
size_t cli_uri_length(const char *uri);
/* Open an end. Return 0 or a negative errno, printed on stderr. */
int cli_end_open_source(sluice_context *ctx, const char *uri, const struct cli_open *how,
                        struct cli_end *out);
int cli_end_open_target(sluice_context *ctx, const struct cli_cp_options *o, const char *uri,
                        const struct cli_end *source, struct cli_end *out);
/* Compares the CRC-32C of all bytes with the server's. 0, or -EIO with a sentence. */
int cli_end_check_sum(const struct cli_end *source, uint32_t crc);
/* Returns for how long the server of an end wants no requests. */
uint64_t cli_end_limited_ms(const struct cli_end *end);
/* Smaller holes are read, as are bytes from a larger hole to a multiple of CLI_PART_BLOCK. */
#define CLI_LEAST_HOLE (1 << 20)
/* Returns the start of the next data at or behind `at`, or the length. */
uint64_t cli_end_next_data(const struct cli_end *source, uint64_t at);
/*
 * Returns the start of the next large hole, or an offset behind `at` without a large hole before: a
 * multiple of CLI_PART_BLOCK, or the length.
 */
uint64_t cli_end_next_hole(const struct cli_end *source, uint64_t at);
/* Makes the written bytes take effect; prints errors. */
int cli_end_commit(struct cli_end *end, bool durable);
/* Releases the end; bytes not committed have no effect. */
void cli_end_discard(struct cli_end *end);

/*
 * The part that --continue keeps of a copy, beside target: see the part of SLUICE_OPEN_REPLACE.
 * begin() reads the state of the part that was opened as file; commit() closes the part; free(),
 * before the file is discarded, says how much is kept. Errors are negative errnos, printed on
 * stderr except those of commit().
 */
#define CLI_PART_BLOCK (256 << 10) /* the state has a character per block */
struct cli_part *cli_part_new(const char *target, const char **name);
int cli_part_begin(struct cli_part *part, sluice_context *ctx, const struct cli_end *source,
                   sluice_file *file);
int cli_part_commit(struct cli_part *part);
void cli_part_free(struct cli_part *part);
/* Moves *at to the next missing block or the end; returns the missing bytes there, about most. */
size_t cli_part_gap(struct cli_part *part, uint64_t *at, size_t most);
/* Records that a gap, or whole blocks at the start, were written. */
void cli_part_wrote(struct cli_part *part, uint64_t offset, size_t n);
uint64_t cli_part_there(const struct cli_part *part); /* bytes; 0 if part is NULL */
/* Saves the state from time to time. */
int cli_part_note(struct cli_part *part);

struct cli_copy {
	int device; /* device whose memory buffers the bytes, or -1 */
	struct cli_end *source, *target;
	struct cli_progress *progress;
	void *hash;     /* XXH3_state_t, fed in file order, or NULL */
	bool shares;    /* memory with other copies */
	uint64_t there; /* bytes present in the target before */
	uint64_t moved; /* out: bytes that reached the target, including holes */
	uint64_t holes; /* out: bytes of holes that were not written */
	char error[512];
};
/* Copies. Returns 0, -ECANCELED after an interrupt, or -errno with the sentence in error. */
int cli_copy_run(struct cli_copy *copy);

struct cli_moved {
	uint64_t files, bytes, holes;
	uint64_t by_server; /* files that were copied without passing here */
};
/* Prints them and their rate on stderr. */
void cli_moved_print(const struct cli_moved *moved, uint64_t elapsed_ns);
/* Which files of a tree are copied: see sync.c. */
struct cli_pattern {
	const char *text;
	bool includes;
};
struct cli_sync_options {
	bool whole;   /* sluice sync: other lengths are copied, too */
	bool skips;   /* --skip-existing; otherwise what is newer than the target is copied */
	bool updates; /* --update */
	bool removes, etags;          /* --delete, --etag */
	struct cli_pattern *patterns; /* of which the last that matches counts */
	size_t pattern_count;
	char *folder; /* the target, without '/' at its end */
	struct cli_known *known;
	size_t known_count, sorted; /* sorted: of them, at the begin */
};
struct cli_source {
	uint64_t length;
	int64_t modified_ns;
	const char *etag; /* or "" */
	bool is_link;
};
/*
 * Begins a tree: lists a target on S3. folder: of the target, which is taken. Returns 0 or a
 * negative errno, printed; in any case finish() follows, with that error, or the first of the
 * copies, or 0. Then it removes, and returns the error.
 */
int cli_sync_begin(const struct cli_cp_options *o, sluice_context *ctx, char *folder);
int cli_sync_finish(const struct cli_cp_options *o, sluice_context *ctx, int rc);
struct cli_source cli_source_of(const struct stat *st);
/* Tells whether a source is to be copied to a target. inside: the target is below the folder. */
bool cli_sync_takes(struct cli_sync_options *sync, const char *target, bool inside,
                    const struct cli_source *source);
/* Tells whether an object is there to show a folder, as consoles make them. */
bool cli_is_marker(const struct sluice_entry *entry);

/* The options of a copy. */
struct cli_cp_options {
	struct cli_open open;
	char **sources;
	size_t count; /* number of sources */
	const char *target;
	const char *uri; /* of the target if other than as typed, else NULL */
	int through;     /* device whose memory buffers the bytes, or -1 */
	bool checksum, no_progress, preserve, dry_run, durable, continues;
	bool exact;                /* the copy is named target, even if that is a directory */
	mode_t mask;               /* the umask before this process cleared its own */
	_Atomic uint64_t *sum;     /* of copies among others: see struct cli_progress; or NULL */
	const _Atomic bool *alone; /* of these: there are no others after all */
	struct cli_sync_options *sync; /* or NULL: all is copied */
};
/* Runs the copies; returns an enum cli_exit. Does not return after an interrupt. */
int cli_cp_run(struct cli_cp_options *o);
/* Prints what would be copied. */
void cli_cp_show(const char *from, const char *to);
/*
 * Copies a file and adds to the bytes in *moved. Returns 0 or a negative errno, printed. Any
 * thread, each with a context of its own.
 */
int cli_cp_one(sluice_context *ctx, const struct cli_cp_options *o, const char *source,
               const char *target, struct cli_moved *moved);
/*
 * Copies files and directories by several threads into the directory that o->target is or becomes.
 * Returns 0 or a negative errno, printed.
 */
int cli_cp_tree(const struct cli_cp_options *o, struct cli_moved *moved);
/*
 * Copies owner, permissions and times of a local file to path. Returns 0 or a negative errno,
 * printed. Says once in a run that extended attributes are not copied.
 */
int cli_preserve(const char *source, const struct stat *st, const char *path);

/* Threads that copy the files of a tree. */
struct cli_jobs;
/*
 * Begins, with a progress bar. objects: the context for small objects, of all threads; or NULL. The
 * main thread calls this and the next two. Each thread is started when there is a job for it; the
 * program ends if none can be.
 */
struct cli_jobs *cli_jobs_start(const struct cli_cp_options *o, sluice_context *objects);
/*
 * Has a file copied; see cli_cp_options for exact. bytes: of an object that is read or written;
 * else UINT64_MAX. Waits while there is much to do.
 */
void cli_jobs_push(struct cli_jobs *jobs, const char *source, const char *target, uint64_t bytes,
                   bool exact);
/*
 * Waits for all copies, and frees the jobs; or returns earlier after an interrupt, with *left set,
 * while threads wait for servers. Returns 0, or the error of the first copy that failed, printed.
 */
int cli_jobs_finish(struct cli_jobs *jobs, struct cli_moved *moved, bool *left);

#endif
