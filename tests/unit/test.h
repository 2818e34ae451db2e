/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_TEST_H
#define TESTS_UNIT_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef NDEBUG
#error "unit tests need assertions: build them without NDEBUG"
#endif

/*
 * A small runner: each program has the cases of one module and links test.c.
 *
 *	TEST(extent_alloc__no_room)
 *	{
 *		CHECK_INT(extent_alloc(...), -ENOSPC);
 *	}
 *
 * A check that fails says where and what, marks the running case as failed and
 * returns from the function that it stands in, which must return void.
 */

struct test_case {
	const char *name;
	void (*run)(void);
	struct test_case *next;
};

/* An integer of any type: its bits, sign extended if the type is signed. */
struct test_int {
	uint64_t bits;
	bool is_signed;
};

void test_register(struct test_case *test);
void test_fail(const char *file, int line, const char *what);
void test_skip(const char *why);

/* Has the running case failed? For what is cleaned up after it. */
bool test_has_failed(void);

bool test_check_int(struct test_int actual, struct test_int expected, const char *file, int line,
		    const char *what);
bool test_check_str(const char *actual, const char *expected, const char *file, int line,
		    const char *what);
bool test_check_mem(const void *actual, const void *expected, size_t len_bytes, const char *file,
		    int line, const char *what);

/* TEST() - define a case and register it; the name is function__condition. */
#define TEST(id)                                                           \
	static void test_run_##id(void);                                   \
	__attribute__((constructor)) static void test_register_##id(void)  \
	{                                                                  \
		static struct test_case test = {#id, test_run_##id, NULL}; \
		test_register(&test);                                      \
	}                                                                  \
	static void test_run_##id(void)

#define CHECK(cond)                                           \
	do {                                                  \
		if (!(cond)) {                                \
			test_fail(__FILE__, __LINE__, #cond); \
			return;                               \
		}                                             \
	} while (0)

#define TEST_INT(value)                                                            \
	((struct test_int){(uint64_t)(value), _Generic((value), unsigned char      \
						       : false, unsigned short     \
						       : false, unsigned int       \
						       : false, unsigned long      \
						       : false, unsigned long long \
						       : false, default            \
						       : true)})

/* CHECK_INT() - equal as numbers: -1 is not UINT64_MAX, whatever the types are. */
#define CHECK_INT(actual, expected)                                                           \
	do {                                                                                  \
		if (!test_check_int(TEST_INT(actual), TEST_INT(expected), __FILE__, __LINE__, \
				    #actual))                                                 \
			return;                                                               \
	} while (0)

/* CHECK_STR() - equal strings; NULL equals only NULL. */
#define CHECK_STR(actual, expected)                                                     \
	do {                                                                            \
		if (!test_check_str((actual), (expected), __FILE__, __LINE__, #actual)) \
			return;                                                         \
	} while (0)

#define CHECK_MEM(actual, expected, len_bytes)                                             \
	do {                                                                               \
		if (!test_check_mem((actual), (expected), (len_bytes), __FILE__, __LINE__, \
				    #actual))                                              \
			return;                                                            \
	} while (0)

/* SKIP() - this machine lacks what the case needs; returns from the case. */
#define SKIP(why)               \
	do {                    \
		test_skip(why); \
		return;         \
	} while (0)

#endif
