/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test on a real device. On Soft-RoCE, whose gaps are known, each outcome is
 * checked, and two registrations that are wrong on purpose show that the self-test can
 * tell the difference. On another device it prints what it found.
 *
 * exit status: 77 without a device.
 */
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/secure.h"
#include "daemon/selftest.h"
#include "proto/limits.h"

#ifdef NDEBUG
#error "tests need assertions: build them without NDEBUG"
#endif

#define TEST_BYTES  (16 * (size_t)4096)
#define POOL_BYTES  (2 * TEST_BYTES) /* the self-test must leave the second half alone */
#define BEHIND	    0xa5
#define POOL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
#define EXIT_SKIP   77

#define CHECK(cond) check((cond), #cond, __LINE__)

struct bench {
	struct ibv_context *context;
	uint8_t *memory;
	bool is_rxe;
	int failures;
};

static struct bench bench;

/* What Soft-RoCE must give over the whole pool, and with guards. */
static const struct selftest_result rxe_windows = {
	.outcome =
		{
			[SELFTEST_BOUNDS_BELOW] = SELFTEST_NOT_ENFORCED,
			[SELFTEST_BOUNDS_ABOVE] = SELFTEST_NOT_ENFORCED,
			[SELFTEST_BOUNDS_STRADDLE] = SELFTEST_NOT_ENFORCED,
			[SELFTEST_RIGHTS_READ] = SELFTEST_ENFORCED,
			[SELFTEST_RIGHTS_WRITE] = SELFTEST_ENFORCED,
			[SELFTEST_FOREIGN_QP] = SELFTEST_ENFORCED,
			[SELFTEST_INVALIDATED] = SELFTEST_ENFORCED,
			[SELFTEST_REBOUND] = SELFTEST_ENFORCED,
			[SELFTEST_MR_KEYS] = SELFTEST_ENFORCED,
			[SELFTEST_ATOMICS] = SELFTEST_NOT_ENFORCED,
		},
};

static const struct selftest_result rxe_guarded = {
	.outcome =
		{
			[SELFTEST_BOUNDS_BELOW] = SELFTEST_ENFORCED,
			[SELFTEST_BOUNDS_ABOVE] = SELFTEST_ENFORCED,
			[SELFTEST_BOUNDS_STRADDLE] = SELFTEST_ENFORCED,
			[SELFTEST_RIGHTS_READ] = SELFTEST_ENFORCED,
			[SELFTEST_RIGHTS_WRITE] = SELFTEST_ENFORCED,
			[SELFTEST_FOREIGN_QP] = SELFTEST_ENFORCED,
			[SELFTEST_INVALIDATED] = SELFTEST_ENFORCED,
			[SELFTEST_REBOUND] = SELFTEST_ENFORCED,
			[SELFTEST_MR_KEYS] = SELFTEST_ENFORCED,
			[SELFTEST_ATOMICS] = SELFTEST_ENFORCED,
		},
};

static void check(bool ok, const char *what, int line)
{
	if (ok)
		return;
	bench.failures++;
	printf("%s:%d: failed: %s\n", __FILE__, line, what);
}

static void check_outcome(const struct selftest_result *result, enum selftest_property property,
			  enum selftest_outcome expected)
{
	if (result->outcome[property] == expected)
		return;
	bench.failures++;
	printf("%s: %s, expected %s\n", selftest_property_name(property),
	       selftest_outcome_name(result->outcome[property]), selftest_outcome_name(expected));
}

/* Zero-based is whatever it is. */
static void check_result(const struct selftest_result *result,
			 const struct selftest_result *expected)
{
	unsigned int i;

	for (i = 0; i < SELFTEST_PROPERTIES; i++)
		if (i != SELFTEST_ZERO_BASED)
			check_outcome(result, i, expected->outcome[i]);
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	if (dir == NULL)
		return -1;
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static bool is_all(const uint8_t *bytes, size_t len_bytes, uint8_t value)
{
	size_t i;

	for (i = 0; i < len_bytes; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

static void print_result(const struct selftest_result *result)
{
	unsigned int i;

	for (i = 0; i < SELFTEST_PROPERTIES; i++)
		printf("  %-18s %s\n", selftest_property_name(i),
		       selftest_outcome_name(result->outcome[i]));
}

/* One run in a PD of its own, which can be freed only if nothing is left in it. */
static void run(const char *name, int access, bool guarded, bool bounds_decide,
		struct selftest_result *ret_result)
{
	struct selftest_params params = {
		.memory = bench.memory,
		.len_bytes = TEST_BYTES,
		.guarded = guarded,
		.bounds_decide = bounds_decide,
	};
	char error[PROTO_TEXT_MAX] = "";
	uint64_t started_ns;
	int fds, r;

	*ret_result = (struct selftest_result){0};
	memset(bench.memory, 0, TEST_BYTES);
	memset(bench.memory + TEST_BYTES, BEHIND, POOL_BYTES - TEST_BYTES);
	params.pd = ibv_alloc_pd(bench.context);
	CHECK(params.pd != NULL);
	if (params.pd == NULL)
		return;
	params.mr = ibv_reg_mr(params.pd, bench.memory, POOL_BYTES, (unsigned int)access);
	CHECK(params.mr != NULL);
	if (params.mr == NULL)
		return;
	fds = count_fds();
	started_ns = clock_now_ns();
	r = selftest_run(&params, ret_result, error);
	printf("%s: %d %s, %.0f ms\n", name, r, error,
	       (double)(clock_now_ns() - started_ns) / (double)CLOCK_NS_PER_MS);
	print_result(ret_result);
	CHECK(r == 0);
	CHECK(is_all(bench.memory, TEST_BYTES, 0));
	CHECK(is_all(bench.memory + TEST_BYTES, POOL_BYTES - TEST_BYTES, BEHIND));
	CHECK(count_fds() == fds);
	CHECK(ibv_dereg_mr(params.mr) == 0);
	CHECK(ibv_dealloc_pd(params.pd) == 0);
}

static void test_windows(void)
{
	struct selftest_result result;

	run("windows", POOL_ACCESS, false, false, &result);
	if (!bench.is_rxe)
		return;
	check_result(&result, &rxe_windows);
	CHECK(!selftest_isolates(&result));
	CHECK(selftest_only_bounds_fail(&result));
}

/* The first property decides, and no other is tried. */
static void test_bounds_decide(void)
{
	struct selftest_result expected = {
		.outcome = {[SELFTEST_BOUNDS_BELOW] = SELFTEST_NOT_ENFORCED},
	};
	struct selftest_result result;

	for (unsigned int i = SELFTEST_BOUNDS_BELOW + 1; i < SELFTEST_PROPERTIES; i++)
		expected.outcome[i] = SELFTEST_NOT_TRIED;
	run("windows, until bounds decide", POOL_ACCESS, false, true, &result);
	if (!bench.is_rxe)
		return;
	check_result(&result, &expected);
	CHECK(!selftest_isolates(&result));
	CHECK(selftest_only_bounds_fail(&result));
	run("guarded, bounds would decide", POOL_ACCESS, true, true, &result);
	check_result(&result, &rxe_guarded);
}

static void test_guarded(void)
{
	struct selftest_result result;

	run("guarded", POOL_ACCESS, true, false, &result);
	if (!bench.is_rxe)
		return;
	check_result(&result, &rxe_guarded);
	CHECK(selftest_isolates(&result));
	CHECK(!selftest_only_bounds_fail(&result));
}

/* The pool's own key opens the pool: guards do not help against that. */
static void test_remote_rights_on_pool(void)
{
	const int remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct selftest_result expected = rxe_guarded;
	struct selftest_result result;

	run("guarded, pool with remote rights", POOL_ACCESS | remote, true, false, &result);
	expected.outcome[SELFTEST_MR_KEYS] = SELFTEST_NOT_ENFORCED;
	if (!bench.is_rxe)
		return;
	check_result(&result, &expected);
	CHECK(!selftest_isolates(&result));
	CHECK(!selftest_only_bounds_fail(&result));
}

/* No bind succeeds, so nothing is known. */
static void test_no_windows_on_pool(void)
{
	const struct selftest_result expected = {
		.outcome = {[SELFTEST_ATOMICS] = SELFTEST_NOT_SUPPORTED},
	};
	struct selftest_result result;

	run("windows, pool without MW_BIND", IBV_ACCESS_LOCAL_WRITE, false, false, &result);
	check_result(&result, &expected);
	check_outcome(&result, SELFTEST_ZERO_BASED, SELFTEST_NOT_SUPPORTED);
	CHECK(!selftest_isolates(&result));
	CHECK(!selftest_only_bounds_fail(&result));
}

static void test_verdict_on_atomics(void)
{
	struct selftest_result result = rxe_guarded;

	result.outcome[SELFTEST_ATOMICS] = SELFTEST_NOT_SUPPORTED;
	CHECK(selftest_isolates(&result));
	result.outcome[SELFTEST_ATOMICS] = SELFTEST_UNKNOWN;
	CHECK(!selftest_isolates(&result));
	result.outcome[SELFTEST_ATOMICS] = SELFTEST_NOT_ENFORCED;
	CHECK(!selftest_isolates(&result));
}

/* For each property and each outcome but "enforced": does it stop isolation, would guards help? */
static void test_verdict_on_each(void)
{
	struct selftest_result result;
	unsigned int property, outcome;
	bool is_bounds, is_optional;

	for (property = 0; property < SELFTEST_PROPERTIES; property++) {
		is_bounds = property <= SELFTEST_BOUNDS_STRADDLE;
		is_optional = property >= SELFTEST_ATOMICS;
		for (outcome = SELFTEST_UNKNOWN; outcome <= SELFTEST_NOT_SUPPORTED; outcome++) {
			if (outcome == SELFTEST_ENFORCED)
				continue;
			result = rxe_guarded;
			result.outcome[property] = outcome;
			if (property != SELFTEST_ATOMICS)
				CHECK(selftest_isolates(&result) ==
				      (property == SELFTEST_ZERO_BASED));
			CHECK(selftest_only_bounds_fail(&result) == is_bounds);
			/* Bounds failing as well does not make the other failure go away. */
			result.outcome[SELFTEST_BOUNDS_ABOVE] = SELFTEST_NOT_ENFORCED;
			CHECK(selftest_only_bounds_fail(&result) == (is_bounds || is_optional));
		}
	}
}

int main(void)
{
	struct ibv_context **contexts = rdma_get_devices(NULL);
	const char *name;

	if (contexts == NULL || contexts[0] == NULL) {
		printf("skipped: no RDMA device\n");
		return EXIT_SKIP;
	}
	if (secure_init() < 0)
		return EXIT_FAILURE;
	bench.context = contexts[0];
	name = ibv_get_device_name(bench.context->device);
	bench.is_rxe = strncmp(name, "rxe", 3) == 0;
	bench.memory =
		mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bench.memory == MAP_FAILED)
		return EXIT_FAILURE;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("device %s\n", name);
	test_verdict_on_atomics();
	test_verdict_on_each();
	test_windows();
	test_bounds_decide();
	test_guarded();
	test_remote_rights_on_pool();
	test_no_windows_on_pool();
	munmap(bench.memory, POOL_BYTES);
	rdma_free_devices(contexts);
	printf("%s - selftest\n", bench.failures == 0 ? "ok" : "not ok");
	printf("%d passed, %d failed, 0 skipped\n", bench.failures == 0, bench.failures != 0);
	return bench.failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
