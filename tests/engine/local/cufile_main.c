/* SPDX-License-Identifier: Apache-2.0 */
/* cufile cufile_device [TESTS]: in stream order, too, where nvidia-fs is there. */
#include "local/cufile_suite.h"

#include <dlfcn.h>
#include <unistd.h>

#include "local/cufile_api.h"

struct stat input;

/* ------------------------------------------------------------------------------------- the fakes */

static void *control(const char *library, const char *name)
{
	void *loaded = dlopen(library, RTLD_NOW);

	return loaded ? dlsym(loaded, name) : NULL;
}

bool has_fake(void)
{
	return control("libcufile.so.0", "cuFileFakeCalls");
}

unsigned fake_calls(const char *what)
{
	unsigned (*get)(const char *) = NULL;

	*(void **)&get = control("libcufile.so.0", "cuFileFakeCalls");
	return get ? get(what) : 0;
}

void cuda_fail(const char *function, uint64_t nth, int error)
{
	int (*set)(const char *, uint64_t, int) = NULL;

	*(void **)&set = control("libcuda.so.1", "cuFakeFail");
	assert_non_null(set);
	assert_int_equal(set(function, nth, error), 0);
}

uint64_t cuda_calls(const char *function, const char *prefix)
{
	int (*get)(const char *, const char *, uint64_t *) = NULL;
	uint64_t count = 0;

	*(void **)&get = control("libcuda.so.1", "cuFakeCalls");
	assert_non_null(get);
	get(function, prefix, &count);
	return count;
}

int no_faults(void **state)
{
	unsetenv("FAKE_CUFILE_OPEN");
	unsetenv("FAKE_CUFILE_HANDLE");
	unsetenv("FAKE_CUFILE_BUFFER");
	unsetenv("FAKE_CUFILE_TRANSFER");
	unsetenv("FAKE_CUFILE_ENQUEUE");
	unsetenv("FAKE_CUFILE_PASSED");
	unsetenv("FAKE_CUFILE_DELAY_US");
	unsetenv("FAKE_CUFILE_NO_NODE");
	if (fixture_setup(state))
		return -1;
	/* A hang of the real one is not to take minutes. */
	if (!under_sanitizer())
		alarm(100);
	return 0;
}

void use_auto(struct fixture *f)
{
	struct sluice_config c = SLUICE_CONFIG_INIT;

	c.tune = "cufile_streams=1";
	fixture_config(f, &c);
}

void assert_failed(sluice_op *op, int error, const char *says)
{
	int64_t result = sluice_wait(op, PATIENCE_MS);

	if (result != -error || !strstr(sluice_op_message(op), says))
		fail_msg("the operation gave %lld \"%s\", not -%d with \"%s\"", (long long)result,
		         sluice_op_message(op), error, says);
	sluice_op_free(op);
}

/* ------------------------------------------------------------------------------------ main */

int main(int argc, char **argv)
{
	void *memory = NULL;
	int emulated;

	row_start(argc, argv);
	/* Its threads are there before anybody counts. */
	assert_ok(sluice_device_find("emulated", &emulated));
	assert_ok(sluice_device_alloc(emulated, 1, &memory));
	assert_ok(sluice_device_free(memory));
	setenv("FAKE_CUFILE_CLOSES", "0", 1);
	if (!freopen("/", "r", stdin) || fstat(STDIN_FILENO, &input))
		return 1;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (!sl_cufile_has_module())
		return RUN_FILES("cufile_use");
	return RUN_FILES("cufile_use", "cufile_stream");
}
