/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that enter themselves into the list of their file, so that each stands in the source once. */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct skipped;

struct test_case {
	struct CMUnitTest test;
	const struct skipped
		*skipped; /* where the test does not run, see support.h; NULL: it runs */
	const char *file;
	int line;
	struct test_case *next;
};
void test_enter(struct test_case *added);

/* Begins the definition of a test, void NAME(void **state), whose body follows. */
#define TEST_CASE(name, setup, teardown, state, skipped) \
	TEST_CASE_AT(name, setup, teardown, state, skipped, __LINE__)
#define TEST_CASE_AT(name_, setup_, teardown_, state_, skipped_, line_)                       \
	static void name_(void **state);                                                      \
	static struct test_case name_##_case = {                                              \
		{#name_, name_, setup_, teardown_, state_}, skipped_, __FILE__, line_, NULL}; \
	__attribute__((constructor)) static void name_##_enters(void)                         \
	{                                                                                     \
		test_enter(&name_##_case);                                                    \
	}                                                                                     \
	static void name_(__attribute__((unused)) void **state)
/* The same with *state as a parameter of the body, "struct fixture *f" for example. */
#define TEST_OF(parameter, name, setup, teardown, skipped) \
	static void name##_of(parameter);                  \
	TEST_CASE(name, setup, teardown, NULL, skipped)    \
	{                                                  \
		name##_of(*state);                         \
	}                                                  \
	static void name##_of(__attribute__((unused)) parameter)
#define TEST_WITH(name, setup, teardown) TEST_CASE(name, setup, teardown, NULL, NULL)
#define TEST(name)                       TEST_CASE(name, NULL, NULL, NULL, NULL)
/* Before all others of its file. */
#define FIRST_TEST(name) TEST_CASE_AT(name, NULL, NULL, NULL, NULL, 0)

/* Runs the tests of this file in their order; the result is for exit(). The fixtures of the group may be NULL. */
#define RUN_TESTS(setup, teardown) run_tests_of(__FILE__, setup, teardown)
int run_tests_of(const char *file, CMFixtureFunction setup, CMFixtureFunction teardown);
/* The same for files of the program, by their names without folder and ".c". */
#define RUN_FILES(...) run_files((const char *const[]){__VA_ARGS__, NULL})
int run_files(const char *const *names);

#endif
