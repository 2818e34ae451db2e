/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runner of the unit tests. Cases register before main() and run one after
 * the other in the order of their definition, in one thread and one process: a
 * crash ends the program, which counts as a failure.
 */
#include "tests/unit/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_TOLD_MS 1000 /* what took less is not worth a line */

enum outcome {
	OUTCOME_PASSED,
	OUTCOME_FAILED,
	OUTCOME_SKIPPED,
	OUTCOME_END,
};

static struct test_case *first_test;
static struct test_case **last_link = &first_test;
static enum outcome outcome;

void test_register(struct test_case *test)
{
	*last_link = test;
	last_link = &test->next;
}

void test_fail(const char *file, int line, const char *what)
{
	outcome = OUTCOME_FAILED;
	printf("# %s:%d: %s\n", file, line, what);
}

void test_skip(const char *why)
{
	if (outcome == OUTCOME_PASSED)
		outcome = OUTCOME_SKIPPED;
	printf("# skipped: %s\n", why);
}

bool test_has_failed(void)
{
	return outcome == OUTCOME_FAILED;
}

static bool is_negative(struct test_int value)
{
	return value.is_signed && (value.bits >> 63) != 0;
}

static void print_int(const char *label, struct test_int value)
{
	if (is_negative(value))
		printf("#   %s -%" PRIu64, label, UINT64_C(0) - value.bits);
	else
		printf("#   %s %" PRIu64, label, value.bits);
	printf(" (0x%" PRIx64 ")\n", value.bits);
}

bool test_check_int(struct test_int actual, struct test_int expected, const char *file, int line,
		    const char *what)
{
	if (actual.bits == expected.bits && is_negative(actual) == is_negative(expected))
		return true;
	test_fail(file, line, what);
	print_int("actual  ", actual);
	print_int("expected", expected);
	return false;
}

bool test_check_str(const char *actual, const char *expected, const char *file, int line,
		    const char *what)
{
	if (actual == expected)
		return true;
	if (actual != NULL && expected != NULL && strcmp(actual, expected) == 0)
		return true;
	test_fail(file, line, what);
	printf("#   actual   \"%s\"\n", actual == NULL ? "(null)" : actual);
	printf("#   expected \"%s\"\n", expected == NULL ? "(null)" : expected);
	return false;
}

bool test_check_mem(const void *actual, const void *expected, size_t len_bytes, const char *file,
		    int line, const char *what)
{
	const uint8_t *a = actual;
	const uint8_t *e = expected;

	for (size_t i = 0; i < len_bytes; i++) {
		if (a[i] == e[i])
			continue;
		test_fail(file, line, what);
		printf("#   byte %zu of %zu: actual 0x%02x, expected 0x%02x\n", i, len_bytes,
		       (unsigned int)a[i], (unsigned int)e[i]);
		return false;
	}
	return true;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void run_case(const struct test_case *test)
{
	uint64_t begun_ms = now_ms();
	uint64_t took_ms;

	outcome = OUTCOME_PASSED;
	test->run();
	took_ms = now_ms() - begun_ms;
	if (took_ms >= TEST_TOLD_MS)
		printf("# took %" PRIu64 " ms\n", took_ms);
}

int main(int argc, char **argv)
{
	static const char *const prefixes[OUTCOME_END] = {
		[OUTCOME_PASSED] = "ok",
		[OUTCOME_FAILED] = "not ok",
		[OUTCOME_SKIPPED] = "ok",
	};
	unsigned int counts[OUTCOME_END] = {0};

	/* What a case printed must be there even if the next one crashes. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (struct test_case *test = first_test; test != NULL; test = test->next) {
		if (argc > 1 && strstr(test->name, argv[1]) == NULL)
			continue;
		run_case(test);
		counts[outcome]++;
		printf("%s - %s%s\n", prefixes[outcome], test->name,
		       outcome == OUTCOME_SKIPPED ? " # SKIP" : "");
	}
	printf("%u passed, %u failed, %u skipped\n", counts[OUTCOME_PASSED], counts[OUTCOME_FAILED],
	       counts[OUTCOME_SKIPPED]);
	/* A program that ran nothing has shown nothing. */
	if (counts[OUTCOME_PASSED] + counts[OUTCOME_SKIPPED] == 0)
		return EXIT_FAILURE;
	return counts[OUTCOME_FAILED] == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
