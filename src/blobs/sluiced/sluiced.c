/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's main(): reads the options, listens, and becomes the supervisor.
 *
 * A process that was started by the other process of the daemon, or by an upgrade, has no options
 * to read: the environment names the ledger, which says everything.
 */
#include <argp.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device.h"
#include "sluiced/server.h"
#include "sluiced/supervisor/supervisor.h"

#define NVIDIA 0x10de /* PCI vendor */

enum { EXIT_USAGE = 2 };
enum {
	KEY_SOCKET = 256,
	KEY_MEMORY,
	KEY_KEEP,
	KEY_KEEP_TIME,
	KEY_BLOBS,
	KEY_CLIENTS,
	KEY_DEVICE_MEMORY,
	KEY_SPILL,
	KEY_SPILL_LIMIT,
	KEY_GROUP,
	KEY_LAYOUT
};

static const struct argp_option option_list[] = {
	{"socket", KEY_SOCKET, "PATH", 0,
         "Listen at PATH; without it at $SLUICE_STORE, else at $XDG_RUNTIME_DIR/sluice.sock"},
	{"memory", KEY_MEMORY, "SIZE", 0,
         "Host memory for blobs, in bytes or with K, M, G, T for powers of 1024, or as in '50%' of "
         "what the machine has, or its cgroup may use (default)"},
	{"keep", KEY_KEEP, "SIZE", 0,
         "How much memory is kept for the next blobs that no blob lies in any more (default: all; "
         "0: nothing)"},
	{"keep-time", KEY_KEEP_TIME, "SECONDS", 0,
         "How long it is kept; then it is given back to the machine (default: 60)"},
	{"spill", KEY_SPILL, "FOLDER", 0,
         "Where blobs that nobody holds go when memory is short; without it they do not go"},
	{"spill-limit", KEY_SPILL_LIMIT, "SIZE", 0, "There at most (default: as much as fits)"},
	{"blobs", KEY_BLOBS, "N", 0, "Blobs, rounded up to a power of two (default: 65536)"},
	{"clients", KEY_CLIENTS, "N", 0, "Connections (default: 1024)"},
	{"device-memory", KEY_DEVICE_MEMORY, "DEVICE=SIZE", 0,
         "Memory of a device for blobs; DEVICE is the number of an NVIDIA GPU in the order of PCI "
         "addresses, or such an address, or 'emulated:0'. Several times for several devices "
         "(default: no limit). The daemon believes what clients tell it of that memory"},
	{"group", KEY_GROUP, "GROUP", 0,
         "Let the members of this group, by name or number, connect too: all of them may read, "
         "make and delete everything. Without it only the daemon's user may, and root"},
	{"layout", KEY_LAYOUT, NULL, 0, "Print the number of what an upgrade hands over"},
	{0},
};

/* whole: the size that 100% stands for; 0: percentages are refused. */
static uint64_t option_size(struct argp_state *state, const char *option, const char *text,
                            uint64_t whole)
{
	uint64_t n = 0;
	char *end;

	if (sluice_size_parse(text, &n)) {
		n = strtoull(text, &end, 10);
		n = text[0] >= '0' && text[0] <= '9' && !strcmp(end, "%") && n <= 100
		            ? whole / 100 * n
		            : 0;
	}
	if (n < 4096 || n > INT64_MAX / 4)
		argp_error(state, "--%s: '%s' is no size of at least 4K", option, text);
	return n;
}

static uint32_t option_number(struct argp_state *state, const char *option, const char *text,
                              uint32_t least, uint32_t most)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || n < least || n > most)
		argp_error(state, "--%s: '%s' is not a number from %u to %u", option, text, least,
		           most);
	return (uint32_t)n;
}

/* Writes the place of a device that is given by its number or its place. */
static void option_device(struct argp_state *state, const char *name, size_t length, char *place)
{
	char text[SLUICE_BLOB_PLACE_BYTES];
	unsigned domain, bus, slot, function;
	int end = 0;

	if (!length || length >= sizeof(text))
		argp_error(state, "--device-memory: '%.*s' is no device", (int)length, name);
	memcpy(text, name, length);
	text[length] = '\0';
	/* Other tools write such an address with capitals or more zeros. */
	if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) == 4 &&
	    (size_t)end == length) {
		snprintf(place, SLUICE_BLOB_PLACE_BYTES, "%04x:%02x:%02x.%x", domain, bus, slot,
		         function);
	} else if (strspn(text, "0123456789") < length) {
		end = 0;
		sscanf(text, "%*[a-z]:%*[0-9]%n", &end);
		if ((size_t)end != length)
			argp_error(state,
			           "--device-memory: '%s' is no device: neither a number, nor an "
			           "address as 0000:65:00.0, nor a name as emulated:0",
			           text);
		strcpy(place, text);
	} else if (!sl_pci_display(NVIDIA,
	                           option_number(state, "device-memory", text, 0, UINT32_MAX - 1),
	                           place)) {
		argp_error(state, "--device-memory: this machine has no NVIDIA GPU %s", text);
	}
}

static void option_budget(struct argp_state *state, struct sl_server_settings *settings,
                          const char *text)
{
	struct sl_budget *budget = &settings->budgets[settings->budget_count];
	const char *equals = strchr(text, '=');

	if (settings->budget_count == SL_BUDGETS_MOST)
		argp_error(state, "--device-memory: more than %d devices", SL_BUDGETS_MOST);
	if (!equals)
		argp_error(state, "--device-memory: '%s' is not DEVICE=SIZE", text);
	option_device(state, text, (size_t)(equals - text), budget->place);
	budget->bytes = option_size(state, "device-memory", equals + 1, 0);
	for (unsigned i = 0; i < settings->budget_count; i++)
		if (!strcmp(settings->budgets[i].place, budget->place))
			argp_error(state, "--device-memory: %s twice", budget->place);
	settings->budget_count++;
}

/* Checks that files can be made in a folder. A full disk is accepted: it may have space later. */
static void option_folder(struct argp_state *state, const char *text, char folder[PATH_MAX])
{
	char path[PATH_MAX + 32];
	struct stat st;
	int fd;

	if (!realpath(text, folder) || stat(folder, &st))
		argp_error(state, "--spill: '%s': %s", text, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		argp_error(state, "--spill: '%s' is no folder", text);
	snprintf(path, sizeof(path), "%s/.sluice-spill-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0) {
		unlink(path);
		close(fd);
	} else if (errno != ENOSPC) {
		argp_error(state, "--spill: cannot make a file in '%s': %s", text, strerror(errno));
	}
}

static gid_t option_group(struct argp_state *state, const char *text)
{
	const struct group *found = getgrnam(text);

	if (!found && (text[0] < '0' || text[0] > '9'))
		argp_error(state, "--group: there is no group '%s'", text);
	return found ? found->gr_gid : option_number(state, "group", text, 0, UINT32_MAX - 1);
}

static error_t option_parse(int key, char *arg, struct argp_state *state)
{
	struct sl_server_settings *settings = state->input;
	uint32_t n;

	if (key == KEY_LAYOUT) {
		printf("%d\n", SL_LAYOUT);
		exit(EXIT_SUCCESS);
	}
	if (!arg)
		return ARGP_ERR_UNKNOWN;
	switch (key) {
	case KEY_SOCKET:
		if (!*arg || strlen(arg) >= sizeof(settings->path))
			argp_error(state, "--socket: '%s' is no path of at most %zu bytes", arg,
			           sizeof(settings->path) - 1);
		strcpy(settings->path, arg);
		return 0;
	case KEY_MEMORY:
		settings->memory_bytes = option_size(state, "memory", arg, sl_machine_memory(""));
		return 0;
	case KEY_KEEP:
		settings->keep_bytes = strcmp(arg, "0") ? option_size(state, "keep", arg, 0) : 0;
		return 0;
	case KEY_KEEP_TIME:
		settings->keep_ns = option_number(state, "keep-time", arg, 0, 86400) * 1000000000LL;
		return 0;
	case KEY_SPILL:
		option_folder(state, arg, settings->spill);
		return 0;
	case KEY_SPILL_LIMIT:
		settings->spill_bytes = option_size(state, "spill-limit", arg, 0);
		return 0;
	case KEY_BLOBS:
		n = option_number(state, "blobs", arg, 1, SL_SLOTS_MOST);
		for (settings->blobs = SL_SLOTS_LEAST; settings->blobs < n;)
			settings->blobs *= 2;
		return 0;
	case KEY_CLIENTS:
		settings->clients = option_number(state, "clients", arg, 1, 65536);
		return 0;
	case KEY_DEVICE_MEMORY:
		option_budget(state, settings, arg);
		return 0;
	case KEY_GROUP:
		settings->group = option_group(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "too many arguments: '%s'", arg);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void option_default_path(struct sl_server_settings *settings)
{
	const char *path = getenv("SLUICE_STORE"), *folder = getenv("XDG_RUNTIME_DIR");
	int n;

	if (settings->path[0])
		return;
	if (path && *path)
		n = snprintf(settings->path, sizeof(settings->path), "%s", path);
	else if (folder && *folder)
		n = snprintf(settings->path, sizeof(settings->path), "%s/sluice.sock", folder);
	else
		errx(EXIT_USAGE, "where to listen nobody says: neither --socket, nor SLUICE_STORE, "
		                 "nor XDG_RUNTIME_DIR");
	if (n >= (int)sizeof(settings->path))
		errx(EXIT_USAGE, "'%s...' is too long for the path of a socket", settings->path);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		option_list, option_parse, NULL,
		"Keeps named blobs of memory that processes of this machine share.\v"
		"Runs in the foreground until SIGTERM. Blobs live as long as it does."};
	static struct sl_server_settings settings = {.blobs = 65536,
	                                             .clients = 1024,
	                                             .group = SL_NO_GROUP,
	                                             .keep_bytes = UINT64_MAX,
	                                             .keep_ns = INT64_C(60000000000),
	                                             .spill_bytes = UINT64_MAX};
	static struct sl_descriptors descriptors;
	bool own;
	int listener, lock = -1, rc = 0, null;

	/* Takes closed standard streams, so that no descriptor of ours gets their numbers. */
	while ((null = open("/dev/null", O_RDWR)) >= 0 && null <= STDERR_FILENO)
		;
	close(null);
	if (sl_descriptors_are_given())
		return sl_supervisor_resume(argv, sl_server_run);
	argp_err_exit_status = EXIT_USAGE;
	argp_program_version = "sluiced " SLUICE_VERSION;
	argp_parse(&argp, argc, argv, 0, NULL, &settings);
	if (settings.spill_bytes < UINT64_MAX && !settings.spill[0])
		errx(EXIT_USAGE, "--spill-limit: without --spill nothing is spilled");
	if (!settings.memory_bytes)
		settings.memory_bytes = sl_machine_memory("") / 2;
	listener = sl_listen_inherited();
	own = listener < 0;
	if (!own && settings.group != SL_NO_GROUP)
		errx(EXIT_USAGE,
		     "--group: who may connect to a socket that systemd has made its unit "
		     "says, with SocketGroup= and SocketMode=");
	if (own) {
		option_default_path(&settings);
		rc = sl_listen_at(settings.path, settings.group, &listener, &lock);
	}
	if (!own)
		settings.path[0] = '\0';
	if (readlink("/proc/self/exe", settings.program, sizeof(settings.program) - 1) < 0)
		err(EXIT_FAILURE, "cannot read /proc/self/exe");
	if (!rc)
		rc = sl_descriptors_new(listener, lock, &settings, &descriptors);
	if (rc)
		errx(EXIT_FAILURE, "%s", sluice_last_message());
	sl_listen_notify("READY=1");
	return sl_supervisor_run(&descriptors, argv);
}
