/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings
 *
 * A table describes each setting: its variable, its field in struct sluice_config, default, range
 * and meaning. The rest reads, checks and prints settings by that table. Any thread; the
 * environment must not change meanwhile.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

#define TUNE 0 /* in place of a field: the setting is a name in `tune` */

/* The form of a setting's text. */
enum setting_kind { COUNT, BYTES, DISABLE, NAME, TEXT, SECRET };

static const char *const choices[] = {"auto", "posix", "uring", "cufile", NULL};
static const char *const remotes[] = {"multi", "easy", NULL};
static const char *const switches[] = {"0", "1", NULL};
static const char *const levels[] = {"off", "error", "info", "debug", NULL};

static const struct setting {
	const char *variable;
	enum setting_kind kind;
	size_t in;  /* offset of its field in struct sluice_config, or TUNE */
	size_t out; /* and in struct sl_settings */
	uint64_t fallback;
	uint64_t least, most;
	const char *fallback_text;
	const char *range;
	const char *meaning;
	const char *const *names; /* of a NAME, in the order of the enumeration, then NULL */
} table[] = {
#define IN(field)  offsetof(struct sluice_config, field)
#define OUT(field) offsetof(struct sl_settings, field)
	{"SLUICE_BACKEND", NAME, IN(backend), OUT(choice), SL_CHOICE_AUTO, 0, 0, "auto",
         "auto, posix, uring, cufile", "what moves the bytes of local files", choices},
	{"SLUICE_DISABLE", DISABLE, IN(disable), OUT(disable), 0, 0, 0, "none",
         "any of uring, cachestat, nowait, dontcache, dioalign, comma-separated",
         "kernel features that are not used although they may be there"},
	{"SLUICE_WORKERS", COUNT, IN(workers), OUT(workers), 0, 1, 256,
         "one for each core, and 16 calls", "1 to 256",
         "threads that copy what is in memory, and blocking calls that one file has at a time"},
	{"SLUICE_REACTORS", COUNT, TUNE, OUT(reactors), 0, 1, 64, "2, with less than 4 cores 1",
         "1 to 64", "threads that drive io_uring"},
	{"SLUICE_REACTOR_DEPTH", COUNT, TUNE, OUT(reactor_depth), 128, 1, 4096, "128", "1 to 4096",
         "requests that one file has in flight, for each reactor"},
	{"SLUICE_PIECE_BYTES", BYTES, TUNE, OUT(piece_bytes), 1 << 20, 4096, 1 << 30, "1 MiB",
         "4 KiB to 1 GiB, a multiple of 4 KiB", "what one request moves at most"},
	{"SLUICE_OPERATION_DEPTH", COUNT, TUNE, OUT(operation_depth), 128, 1, 4096, "128",
         "1 to 4096", "pieces that one operation has in flight"},
	{"SLUICE_DIRECT_BYTES", BYTES, IN(direct_bytes), OUT(direct_bytes), 256 << 10, 4096,
         UINT64_C(1) << 40, "256 KiB", "4 KiB to 1 TiB",
         "extents of at least this length bypass the page cache where they can"},
	{"SLUICE_INLINE_BYTES", BYTES, TUNE, OUT(inline_bytes), 0, 1, 16 << 20,
         "64 KiB, or SLUICE_PIECE_BYTES if that is less", "1 to 16 MiB, at most SLUICE_PIECE_BYTES",
         "resident reads of at most this length are done by the submitting call"},
	{"SLUICE_BOUNCE_BYTES", BYTES, TUNE, OUT(bounce_bytes), 0, 4096, UINT64_C(1) << 40,
         "64 MiB, or SLUICE_PIECE_BYTES if that is more",
         "4 KiB to 1 TiB, at least SLUICE_PIECE_BYTES",
         "memory for direct I/O of data that is not aligned, taken when it is needed"},
	{"SLUICE_MAX_OPERATIONS", COUNT, IN(max_operations), OUT(max_operations), 1 << 18, 1,
         1 << 24, "262144", "1 to 16777216", "operations in flight, after which submission waits"},
	{"SLUICE_STAGING_BYTES", BYTES, IN(staging_bytes), OUT(staging_bytes), 0, 64 << 10,
         UINT64_C(1) << 40, "256 MiB, or more if a ring of slots needs it", "64 KiB to 1 TiB",
         "pinned memory for each device that is used, half of it for operations that are awaited "
         "on the host"},
	{"SLUICE_SLOT_BYTES", BYTES, TUNE, OUT(slot_bytes), 0, 0, 1 << 30, "by operation",
         "0 (by operation), or up to 1 GiB, a multiple of 4 KiB, at least SLUICE_PIECE_BYTES",
         "what one slot of pinned memory holds"},
	{"SLUICE_SLOTS", COUNT, TUNE, OUT(slots), 0, 0, 64, "by operation",
         "0 (by operation) to 64", "slots that one operation cycles through"},
	{"SLUICE_CUFILE_THREADS", COUNT, TUNE, OUT(cufile_threads), 8, 1, 64, "8", "1 to 64",
         "threads that call cuFile for what is awaited on the host"},
	{"SLUICE_CUFILE_STREAMS", NAME, TUNE, OUT(cufile_streams), 0, 0, 0, "0", "0, 1",
         "whether cuFile does what comes in stream order, too", switches},
	{"SLUICE_REMOTE_BACKEND", NAME, IN(remote_backend), OUT(remote), SL_REMOTE_MULTI, 0, 0,
         "multi", "multi, easy", "what moves the bytes of remote files", remotes},
	{"SLUICE_MAX_CONNECTIONS", COUNT, IN(max_connections), OUT(max_connections), 256, 1, 4096,
         "256", "1 to 4096, and at most a quarter of the limit of descriptors",
         "connections to servers at a time; each origin may have a quarter of them in any case"},
	{"SLUICE_HTTP_REACTORS", COUNT, TUNE, OUT(http_reactors), 0, 1, 64,
         "one for each core, at most 64", "1 to 64",
         "threads of the remote backend multi that may work at once"},
	{"SLUICE_HTTP_HEDGE", NAME, IN(http_hedge), OUT(http_hedge), 1, 0, 0, "1", "0, 1",
         "whether a part that is much slower than others is asked for once more", switches},
	{"SLUICE_HTTP_ETAG", NAME, IN(http_etag), OUT(http_etag), 1, 0, 0, "1", "0, 1",
         "whether ETags tell objects apart, and not length and Last-Modified alone", switches},
	{"SLUICE_HTTP_GAP_BYTES", BYTES, TUNE, OUT(http_gap_bytes), 256 << 10, 1, 1 << 30,
         "256 KiB", "1 to 1 GiB",
         "the longest gap between extents of an operation that is read and dropped"},
	{"SLUICE_HTTP_ATTEMPTS", COUNT, IN(http_attempts), OUT(http_attempts), 6, 1, 1000, "6",
         "1 to 1000",
         "requests in a row that fail before a file's first byte has come, after which it fails"},
	{"SLUICE_HTTP_RETRY_MS", COUNT, IN(http_retry_ms), OUT(http_retry_ms), 60000, 1, 86400000,
         "60000", "1 to 86400000",
         "milliseconds without a byte more, after which a transfer that had begun fails"},
	{"SLUICE_HTTP_BACKOFF_MS", COUNT, IN(http_backoff_ms), OUT(http_backoff_ms), 0, 1, 3600000,
         "200, or SLUICE_HTTP_BACKOFF_MAX_MS if that is less", "1 to 3600000",
         "milliseconds within which the first new attempt is made"},
	{"SLUICE_HTTP_BACKOFF_MAX_MS", COUNT, TUNE, OUT(http_backoff_max_ms), 0, 1, 3600000,
         "20000, or SLUICE_HTTP_BACKOFF_MS if that is more", "1 to 3600000",
         "milliseconds within which a later attempt is made, however many there were"},
	{"SLUICE_HTTP_CONNECT_MS", COUNT, IN(http_connect_ms), OUT(http_connect_ms), 10000, 1,
         3600000, "10000", "1 to 3600000", "milliseconds that connecting may take"},
	{"SLUICE_HTTP_STALL_MS", COUNT, IN(http_stall_ms), OUT(http_stall_ms), 30000, 1, 3600000,
         "30000", "1 to 3600000", "milliseconds without a byte, after which a request is given up"},
	{"SLUICE_HTTP_RATELIMIT_MS", COUNT, IN(http_ratelimit_ms), OUT(http_ratelimit_ms), 600000,
         1, 86400000, "600000", "1 to 86400000",
         "milliseconds for which a server that limits requests (429) is waited for"},
	{"SLUICE_S3_PART_BYTES", BYTES, IN(s3_part_bytes), OUT(part_bytes), 8 << 20, 64 << 10,
         UINT64_C(5) << 30, "8 MiB", "64 KiB to 5 GiB",
         "the length of the parts in which a longer object of S3 is written"},
	{"SLUICE_S3_UPLOAD_BYTES", BYTES, IN(s3_upload_bytes), OUT(upload_bytes), 256 << 20,
         64 << 10, UINT64_C(1) << 40, "256 MiB", "64 KiB to 1 TiB",
         "memory for the parts of all files that are written to S3, beyond a part for each"},
	{"SLUICE_S3_COPY_BYTES", BYTES, TUNE, OUT(copy_bytes), UINT64_C(5) << 30, 64 << 10,
         UINT64_C(5) << 30, "5 GiB", "64 KiB to 5 GiB",
         "a longer object of S3 is copied by its server in parts"},
	{"SLUICE_HTTP_HEADERS_FILE", TEXT, IN(http_headers_file), OUT(http_headers_file), 0, 0, 0,
         "none", "a file", "lines 'Name: value' that requests to a file's own server carry"},
	{"SLUICE_HTTP_BEARER", SECRET, IN(http_bearer), OUT(http_bearer), 0, 0, 0, "none",
         "a token", "a token by which a file's own server knows the user"},
	{"SLUICE_HTTP_BEARER_FILE", TEXT, IN(http_bearer_file), OUT(http_bearer_file), 0, 0, 0,
         "none", "a file", "that token, read again when the file changes"},
	{"SLUICE_HTTP_NETRC", TEXT, IN(http_netrc), OUT(http_netrc), 0, 0, 0, "none",
         "1 (the user's .netrc), 0, or a file", "users and passwords of servers"},
	{"SLUICE_HTTP_CLIENT_CERT", TEXT, IN(http_client_cert), OUT(http_client_cert), 0, 0, 0,
         "none", "a file", "the certificate (PEM) that a file's own server is shown"},
	{"SLUICE_HTTP_CLIENT_KEY", TEXT, IN(http_client_key), OUT(http_client_key), 0, 0, 0,
         "that in the certificate's file", "a file", "the key (PEM) of the certificate"},
	{"SLUICE_CA_BUNDLE", TEXT, IN(ca_bundle), OUT(ca_bundle), 0, 0, 0, "the system's", "a file",
         "the certificates that servers are trusted by"},
	{"SLUICE_TLS_INSECURE", NAME, IN(tls_insecure), OUT(tls_insecure), 0, 0, 0, "0", "0, 1",
         "whether every server is trusted, certificate or not", switches},
	{"SLUICE_LOG", NAME, IN(log), OUT(log), SL_LOG_OFF, 0, 0, "off", "off, error, info, debug",
         "what is written to standard error", levels},
#undef IN
#undef OUT
};

#define SETTINGS (sizeof(table) / sizeof(table[0]))
_Static_assert(SETTINGS <= SL_SETTINGS_MOST, "each setting has a source");

static const char *const features[] = {"uring", "cachestat", "nowait", "dontcache", "dioalign"};

static const char CONFIG[] = "config", ENVIRONMENT[] = "environment", DEFAULT[] = "default";

static int setting_parse_name(const char *what, const char *text, const char *const *names,
                              const char *range, unsigned *out)
{
	for (unsigned i = 0; names[i]; i++) {
		if (!strcmp(text, names[i])) {
			*out = i;
			return 0;
		}
	}
	return sl_fail(-EINVAL, "%s: '%s' is none of %s", what, text, range);
}

int sl_choice_parse(const char *what, const char *name, unsigned *out)
{
	return setting_parse_name(what, name, choices, "auto, posix, uring, cufile", out);
}

const char *sl_choice_name(unsigned choice)
{
	return choices[choice];
}

int sl_remote_parse(const char *what, const char *name, unsigned *out)
{
	return setting_parse_name(what, name, remotes, "multi, easy", out);
}

const char *sl_remote_name(unsigned remote)
{
	return remotes[remote];
}

static int setting_parse_text(const char *what, const char *text, size_t size, char *out)
{
	if (strlen(text) >= size)
		return sl_fail(-EINVAL, "%s: longer than %zu characters", what, size - 1);
	strcpy(out, text);
	return 0;
}

static int setting_parse_disable(const char *what, const char *text, unsigned *out)
{
	unsigned mask = 0;

	while (*text) {
		size_t length = strcspn(text, ",");
		unsigned i = 0;

		while (i < sizeof(features) / sizeof(features[0]) &&
		       (strlen(features[i]) != length || strncmp(features[i], text, length)))
			i++;
		if (i == sizeof(features) / sizeof(features[0]))
			return sl_fail(-EINVAL,
			               "%s: '%.*s' is none of uring, cachestat, nowait, "
			               "dontcache, dioalign",
			               what, (int)length, text);
		mask |= 1u << i;
		text += length;
		text += *text == ',';
	}
	*out = mask;
	return 0;
}

int sluice_size_parse(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	char *end;
	uint64_t value, part = 0, of = 1;
	unsigned shift = 0;

	if (!text || !out)
		return sl_fail(-EINVAL, "sluice_size_parse: %s is NULL", text ? "out" : "text");
	errno = 0;
	value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	bool fraction = *end == '.' && isdigit((unsigned char)end[1]);
	for (end += fraction; fraction && isdigit((unsigned char)*end); end++)
		if (of < 1000000) {
			part = part * 10 + (uint64_t)(*end - '0');
			of *= 10;
		}
	end += *end == ' ' && end[1];
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit)
		shift = 10 * (unsigned)(unit - units + 1);
	end += unit ? 1 : 0;
	if ((*end && strcmp(end, "B") && (!unit || strcmp(end, "iB"))) || (fraction && !unit))
		return -EINVAL;
	if (errno || value > (UINT64_MAX - ((UINT64_C(1) << shift) - 1)) >> shift)
		return -ERANGE;
	*out = (value << shift) + (part << shift) / of;
	return 0;
}

static int setting_parse_number(const struct setting *setting, const char *text, uint64_t *out)
{
	bool bytes = setting->kind == BYTES;
	char *end;
	int rc;

	if (bytes) {
		rc = sluice_size_parse(text, out);
	} else {
		errno = 0;
		*out = strtoull(text, &end, 10);
		rc = !isdigit((unsigned char)text[0]) || *end ? -EINVAL : -errno;
	}
	if (rc == -EINVAL)
		return sl_fail(rc, "%s: '%s' is not a %s (%s)", setting->variable, text,
		               bytes ? "size" : "number", setting->range);
	if (rc)
		*out = UINT64_MAX;
	return 0;
}

static int setting_check_range(const struct setting *setting, uint64_t value)
{
	if (value < setting->least || value > setting->most)
		return sl_fail(-EINVAL, "%s: %" PRIu64 " is out of range (%s)", setting->variable,
		               value, setting->range);
	return 0;
}

static int setting_load_text(const struct setting *setting, const char *text,
                             struct sl_settings *out)
{
	void *field = (char *)out + setting->out;
	int rc;

	switch (setting->kind) {
	case DISABLE:
		return setting_parse_disable(setting->variable, text, field);
	case NAME:
		return setting_parse_name(setting->variable, text, setting->names, setting->range,
		                          field);
	case TEXT:
		return setting_parse_text(setting->variable, text, SL_SETTING_TEXT, field);
	case SECRET:
		return setting_parse_text(setting->variable, text, SL_SECRET_TEXT, field);
	default:
		rc = setting_parse_number(setting, text, field);
		return rc ? rc : setting_check_range(setting, *(uint64_t *)field);
	}
}

/* Splits the text `tune`, of which values[] gets the value of each setting that it names. */
static int settings_tune(char *tune, const char *values[])
{
	char *rest, *value;

	for (char *name = strtok_r(tune, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		size_t i = 0;

		value = strchr(name, '=');
		if (!value)
			return sl_fail(-EINVAL, "tune: '%s' has no '='", name);
		*value++ = '\0';
		for (char *c = name; *c; c++) /* as toupper() in the C locale */
			*c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
		while (i < SETTINGS && strcmp(table[i].variable + strlen("SLUICE_"), name))
			i++;
		if (i == SETTINGS)
			return sl_fail(-EINVAL, "tune: there is no setting SLUICE_%s", name);
		if (table[i].in != TUNE)
			return sl_fail(-EINVAL, "tune: SLUICE_%s has a field of its own", name);
		values[i] = value;
	}
	return 0;
}

static int setting_load(const struct setting *setting, const struct sluice_config *config,
                        const char *text, struct sl_settings *out, const char **source)
{
	const void *in = (const char *)config + setting->in;
	bool numeric = setting->kind == COUNT || setting->kind == BYTES;
	bool given = setting->in != TUNE;
	const char *variable = getenv(setting->variable);

	if (given && numeric && *(const size_t *)in) {
		*source = CONFIG;
		*(uint64_t *)((char *)out + setting->out) = *(const size_t *)in;
		return setting_check_range(setting, *(const size_t *)in);
	}
	if (given && !numeric && *(const char *const *)in)
		text = *(const char *const *)in;
	if (text || (variable && *variable)) {
		*source = text ? CONFIG : ENVIRONMENT;
		return setting_load_text(setting, text ? text : variable, out);
	}
	*source = DEFAULT;
	if (numeric)
		*(uint64_t *)((char *)out + setting->out) = setting->fallback;
	else if (setting->kind != TEXT && setting->kind != SECRET)
		*(unsigned *)((char *)out + setting->out) = setting->fallback;
	return 0;
}

static int settings_check(const struct sl_settings *s)
{
	const struct {
		const char *name;
		uint64_t value;
		const char *of;
		uint64_t bound; /* 0: none */
	} pairs[] = {
		{"SLUICE_PIECE_BYTES", s->piece_bytes, "SLUICE_BOUNCE_BYTES", s->bounce_bytes},
		{"SLUICE_PIECE_BYTES", s->piece_bytes, "SLUICE_SLOT_BYTES", s->slot_bytes},
		{"SLUICE_INLINE_BYTES", s->inline_bytes, "SLUICE_PIECE_BYTES", s->piece_bytes},
		{"SLUICE_HTTP_BACKOFF_MS", s->http_backoff_ms, "SLUICE_HTTP_BACKOFF_MAX_MS",
	         s->http_backoff_max_ms},
	};

	if (s->piece_bytes % 4096)
		return sl_fail(-EINVAL, "SLUICE_PIECE_BYTES: %" PRIu64 " is no multiple of 4 KiB",
		               s->piece_bytes);
	if (s->choice == SL_CHOICE_URING && s->disable & SL_DISABLE_URING)
		return sl_fail(-EINVAL, "SLUICE_BACKEND asks for uring, which SLUICE_DISABLE "
		                        "switches off");
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (pairs[i].bound && pairs[i].value > pairs[i].bound)
			return sl_fail(-EINVAL, "%s: %" PRIu64 " is more than %s, %" PRIu64,
			               pairs[i].name, pairs[i].value, pairs[i].of, pairs[i].bound);
	if (s->http_bearer[0] && s->http_bearer_file[0])
		return sl_fail(-EINVAL, "SLUICE_HTTP_BEARER and SLUICE_HTTP_BEARER_FILE are both "
		                        "set, and a request has one token");
	if (s->http_client_key[0] && !s->http_client_cert[0])
		return sl_fail(-EINVAL, "SLUICE_HTTP_CLIENT_KEY needs SLUICE_HTTP_CLIENT_CERT");
	if (s->slot_bytes % 4096)
		return sl_fail(-EINVAL, "SLUICE_SLOT_BYTES: %" PRIu64 " is no multiple of 4 KiB",
		               s->slot_bytes);
	return 0;
}

int sl_settings_load(const struct sluice_config *config, struct sl_settings *out)
{
	struct sl_settings settings = {0};
	struct sluice_config whole = {0};
	const char *tuned[SETTINGS] = {NULL};
	char tune[SL_SETTING_TEXT] = "";
	int rc = sl_struct_take("config", config, &whole, sizeof(whole));

	if (!rc && whole.tune)
		rc = setting_parse_text("tune", whole.tune, sizeof(tune), tune);
	if (!rc)
		rc = settings_tune(tune, tuned);
	if (rc)
		return rc;
	for (size_t i = 0; i < SETTINGS; i++) {
		rc = setting_load(&table[i], &whole, tuned[i], &settings, &settings.sources[i]);
		if (rc)
			return rc;
	}
	rc = settings_check(&settings);
	if (rc)
		return rc;
	if (!settings.bounce_bytes)
		settings.bounce_bytes = SL_MAX(64 << 20, settings.piece_bytes);
	if (!settings.inline_bytes)
		settings.inline_bytes = SL_MIN(64 << 10, settings.piece_bytes);
	if (!settings.http_backoff_max_ms)
		settings.http_backoff_max_ms = SL_MAX(20000, settings.http_backoff_ms);
	if (!settings.http_backoff_ms)
		settings.http_backoff_ms = SL_MIN(200, settings.http_backoff_max_ms);
	*out = settings;
	return 0;
}

void sl_setting_print(size_t index, const struct sl_settings *settings, char *text, size_t size)
{
	uint64_t value;

	text[0] = '\0';
	if (index >= SETTINGS)
		return;
	const struct setting *setting = &table[index];
	const void *field = (const char *)settings + setting->out;
	switch (setting->kind) {
	case NAME:
		snprintf(text, size, "%s", setting->names[*(const unsigned *)field]);
		return;
	case TEXT:
		snprintf(text, size, "%s", *(const char *)field ? (const char *)field : "none");
		return;
	case SECRET:
		snprintf(text, size, "%s", *(const char *)field ? "set" : "none");
		return;
	case DISABLE:
		for (unsigned i = 0; i < sizeof(features) / sizeof(features[0]); i++)
			if (*(const unsigned *)field & 1u << i)
				snprintf(text + strlen(text), size - strlen(text), "%s%s",
				         text[0] ? "," : "", features[i]);
		if (!text[0])
			snprintf(text, size, "none");
		return;
	default:
		value = *(const uint64_t *)field;
		if (setting->kind == BYTES && value >= 1 << 20 && value % (1 << 20) == 0)
			snprintf(text, size, "%" PRIu64 " MiB", value >> 20);
		else if (setting->kind == BYTES && value >= 1 << 10 && value % (1 << 10) == 0)
			snprintf(text, size, "%" PRIu64 " KiB", value >> 10);
		else
			snprintf(text, size, "%" PRIu64, value);
	}
}

int sl_setting_describe(size_t index, const struct sl_settings *settings,
                        struct sluice_setting *out)
{
	if (index >= SETTINGS)
		return -ENOENT;
	const struct setting *setting = &table[index];
	out->variable = setting->variable;
	out->fallback = setting->fallback_text;
	out->range = setting->range;
	out->meaning = setting->meaning;
	out->source = settings ? settings->sources[index] : NULL;
	return 0;
}
