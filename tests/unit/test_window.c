/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/window.c: which steps a window may take, held against a list of its own, that a key
 * is never chosen twice, and which binds are refused before anything is posted.
 */
#include "daemon/window.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/secure.h"
#include "tests/unit/abort.h"
#include "tests/unit/test.h"

#define DRIVER_KEY 0x00c0ff07u
#define KEYS	   255u /* low bytes beside the driver's */

struct step {
	enum window_state from;
	enum window_state to;
};

/* Everything that is not in this list is forbidden. */
static const struct step allowed[] = {
	{WINDOW_FREE, WINDOW_GUARDING},
	{WINDOW_FREE, WINDOW_BINDING},
	{WINDOW_FREE, WINDOW_GONE},
	/* The guard is registered, or could not be, or is not wanted any more. */
	{WINDOW_GUARDING, WINDOW_BINDING},
	{WINDOW_GUARDING, WINDOW_UNGUARDING},
	{WINDOW_GUARDING, WINDOW_FREE},
	{WINDOW_GUARDING, WINDOW_RETIRED},
	/* Taken out of the queue before it was posted, bound, or nobody knows. */
	{WINDOW_BINDING, WINDOW_BOUND},
	{WINDOW_BINDING, WINDOW_UNGUARDING},
	{WINDOW_BINDING, WINDOW_FREE},
	{WINDOW_BINDING, WINDOW_RETIRED},
	{WINDOW_BINDING, WINDOW_UNKNOWN},
	{WINDOW_BOUND, WINDOW_INVALIDATING},
	{WINDOW_BOUND, WINDOW_UNKNOWN},
	{WINDOW_INVALIDATING, WINDOW_UNGUARDING},
	{WINDOW_INVALIDATING, WINDOW_FREE},
	{WINDOW_INVALIDATING, WINDOW_RETIRED},
	{WINDOW_INVALIDATING, WINDOW_UNKNOWN},
	{WINDOW_UNGUARDING, WINDOW_FREE},
	{WINDOW_UNGUARDING, WINDOW_RETIRED},
	{WINDOW_UNGUARDING, WINDOW_UNKNOWN},
	{WINDOW_UNKNOWN, WINDOW_GONE},
	{WINDOW_RETIRED, WINDOW_GONE},
};

static bool is_allowed(enum window_state from, enum window_state to)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		if (allowed[i].from == from && allowed[i].to == to)
			return true;
	}
	return false;
}

TEST(window_can_go__all_pairs)
{
	CHECK_INT(WINDOW_STATES, 9);
	for (int from = 0; from < WINDOW_STATES; from++) {
		for (int to = 0; to < WINDOW_STATES; to++) {
			bool can_go = window_can_go((enum window_state)from, (enum window_state)to);
			bool expected = is_allowed((enum window_state)from, (enum window_state)to);

			if (can_go != expected)
				printf("# %s -> %s\n", window_state_name((enum window_state)from),
				       window_state_name((enum window_state)to));
			CHECK_INT(can_go, expected);
		}
	}
}

TEST(window_can_go__no_state)
{
	for (int state = 0; state <= WINDOW_STATES; state++) {
		CHECK(!window_can_go(WINDOW_STATES, (enum window_state)state));
		CHECK(!window_can_go((enum window_state)state, WINDOW_STATES));
	}
	CHECK(!window_can_go(WINDOW_FREE, (enum window_state)(WINDOW_GONE + 32)));
}

/* Only a bound window may be invalidated, and only a free one is bound anew. */
TEST(window_can_go__crash_rules)
{
	for (int from = 0; from < WINDOW_STATES; from++) {
		enum window_state state = (enum window_state)from;

		CHECK_INT(window_can_go(state, WINDOW_INVALIDATING), state == WINDOW_BOUND);
		CHECK_INT(window_can_go(state, WINDOW_BOUND), state == WINDOW_BINDING);
		CHECK_INT(window_can_go(state, WINDOW_GUARDING), state == WINDOW_FREE);
		CHECK_INT(window_can_go(WINDOW_UNKNOWN, state), state == WINDOW_GONE);
		CHECK(!window_can_go(WINDOW_GONE, state));
	}
}

TEST(window_state_name__unique)
{
	for (int i = 0; i < WINDOW_STATES; i++) {
		const char *name = window_state_name((enum window_state)i);

		CHECK(name != NULL && strcmp(name, "invalid") != 0);
		for (int k = 0; k < i; k++)
			CHECK(strcmp(name, window_state_name((enum window_state)k)) != 0);
	}
	CHECK_STR(window_state_name(WINDOW_FREE), "free");
	CHECK_STR(window_state_name(WINDOW_UNKNOWN), "unknown");
	CHECK_STR(window_state_name(WINDOW_GONE), "gone");
	CHECK_STR(window_state_name(WINDOW_STATES), "invalid");
}

TEST(window_is_busy__states)
{
	CHECK(!window_is_busy(WINDOW_FREE));
	CHECK(window_is_busy(WINDOW_GUARDING));
	CHECK(window_is_busy(WINDOW_BINDING));
	CHECK(!window_is_busy(WINDOW_BOUND));
	CHECK(window_is_busy(WINDOW_INVALIDATING));
	CHECK(window_is_busy(WINDOW_UNGUARDING));
	CHECK(!window_is_busy(WINDOW_UNKNOWN));
	CHECK(!window_is_busy(WINDOW_RETIRED));
	CHECK(!window_is_busy(WINDOW_GONE));
}

static void start(struct window *window, struct ibv_mw *mw, uint32_t rkey)
{
	*mw = (struct ibv_mw){.rkey = rkey, .type = IBV_MW_TYPE_2};
	memset(window, 0xa5, sizeof(*window));
	window_init(window, NULL, mw);
}

static void set_state(void *arg)
{
	struct window *window = arg;

	window_set_state(window, WINDOW_INVALIDATING);
}

TEST(window_set_state__illegal)
{
	struct window window;
	struct ibv_mw mw;

	start(&window, &mw, DRIVER_KEY);
	CHECK(test_aborts(set_state, &window));
	CHECK_INT(window.state, WINDOW_FREE);
	window_set_state(&window, WINDOW_BINDING);
	CHECK(test_aborts(set_state, &window));
	window_set_state(&window, WINDOW_BOUND);
	CHECK(!test_aborts(set_state, &window));
	window_set_state(&window, WINDOW_INVALIDATING);
	CHECK_INT(window.state, WINDOW_INVALIDATING);
	CHECK(test_aborts(set_state, &window));
}

TEST(window_init__fresh)
{
	struct window window;
	struct ibv_mw mw;

	start(&window, &mw, DRIVER_KEY);
	CHECK_INT(window.state, WINDOW_FREE);
	CHECK(window.mw == &mw);
	CHECK(window.set == NULL && window.attachment == NULL);
	CHECK(window.guard == NULL && window.mr == NULL);
	CHECK(!window.queued && !window.posted && !window.job.submitted);
	CHECK_INT(window.key_index, DRIVER_KEY >> 8);
	CHECK_INT(window.keys_left, KEYS);
	CHECK_INT(window.rkey, DRIVER_KEY);
	CHECK(!window_exhausted(&window));
}

static void new_key(void *arg)
{
	window_new_key(arg);
}

static void check_all_keys(uint32_t driver_key)
{
	bool seen[256] = {false};
	struct window window;
	struct ibv_mw mw;

	start(&window, &mw, driver_key);
	for (uint32_t i = 0; i < KEYS; i++) {
		uint32_t byte;

		CHECK(!window_exhausted(&window));
		CHECK_INT(window.keys_left, KEYS - i);
		window_new_key(&window);
		byte = window.rkey & 0xff;
		CHECK_INT(window.rkey >> 8, driver_key >> 8);
		CHECK(byte != (driver_key & 0xff));
		CHECK(!seen[byte]);
		seen[byte] = true;
	}
	CHECK(window_exhausted(&window));
	CHECK_INT(mw.rkey, driver_key);
	CHECK(test_aborts(new_key, &window));
}

TEST(window_new_key__all_once)
{
	CHECK_INT(secure_init(), 0);
	check_all_keys(DRIVER_KEY);
	check_all_keys(0);
	check_all_keys(UINT32_MAX);
	check_all_keys(0xffffff00);
	check_all_keys(0x000000ff);
}

/* The state is no part of it: a key is chosen before the step to BINDING or GUARDING. */
TEST(window_new_key__keeps_the_rest)
{
	struct window window;
	struct ibv_mw mw;

	CHECK_INT(secure_init(), 0);
	start(&window, &mw, DRIVER_KEY);
	window.addr = 0x1000;
	window.len_bytes = 42;
	window_new_key(&window);
	CHECK_INT(window.state, WINDOW_FREE);
	CHECK_INT(window.addr, 0x1000);
	CHECK_INT(window.len_bytes, 42);
	CHECK(window.mw == &mw);
}

/*
 * Each of the 255 bytes is expected 100 times as the first key. With a uniform choice the
 * bounds fail once in more than 10^10 runs.
 */
TEST(window_new_key__uniform)
{
	uint32_t counts[256] = {0};
	struct window window;
	struct ibv_mw mw;

	CHECK_INT(secure_init(), 0);
	for (uint32_t i = 0; i < KEYS * 100; i++) {
		start(&window, &mw, DRIVER_KEY);
		window_new_key(&window);
		counts[window.rkey & 0xff]++;
	}
	for (uint32_t byte = 0; byte < 256; byte++) {
		if (byte == (DRIVER_KEY & 0xff)) {
			CHECK_INT(counts[byte], 0);
			continue;
		}
		CHECK(counts[byte] > 30);
		CHECK(counts[byte] < 200);
	}
}

/* The order of the keys of one window differs from that of another. */
TEST(window_new_key__order_differs)
{
	struct window a, b;
	struct ibv_mw mw_a, mw_b;
	uint32_t same = 0;

	CHECK_INT(secure_init(), 0);
	start(&a, &mw_a, DRIVER_KEY);
	start(&b, &mw_b, DRIVER_KEY);
	for (uint32_t i = 0; i < KEYS - 1; i++) {
		window_new_key(&a);
		window_new_key(&b);
		same += a.rkey == b.rkey;
	}
	CHECK(same < 30);
}

/* A wrong bind is refused by us, whatever the device would do. */

#define POOL_AT	   UINT64_C(0x7f0000001000)
#define POOL_BYTES UINT64_C(0x10000)
#define MR_ACCESS  ((unsigned int)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND))

struct bind {
	const char *name;
	uint64_t addr;
	uint64_t len_bytes;
	unsigned int access;
	unsigned int mr_access;
	bool foreign; /* window and registration are of different PDs */
	int result;
};

#define READ   IBV_ACCESS_REMOTE_READ
#define WRITE  IBV_ACCESS_REMOTE_WRITE
#define ATOMIC IBV_ACCESS_REMOTE_ATOMIC
#define END    (POOL_AT + POOL_BYTES)

static const struct bind binds[] = {
	{"all of it", POOL_AT, POOL_BYTES, READ | WRITE | ATOMIC, MR_ACCESS, false, 0},
	{"its first byte", POOL_AT, 1, READ, MR_ACCESS, false, 0},
	{"its last byte", END - 1, 1, WRITE, MR_ACCESS, false, 0},
	{"no bytes", POOL_AT, 0, READ, MR_ACCESS, false, -EINVAL},
	{"no bytes at the end", END, 0, READ, MR_ACCESS, false, -EINVAL},
	{"a byte before", POOL_AT - 1, 2, READ, MR_ACCESS, false, -ERANGE},
	{"the byte before", POOL_AT - 1, 1, READ, MR_ACCESS, false, -ERANGE},
	{"a byte past", POOL_AT, POOL_BYTES + 1, READ, MR_ACCESS, false, -ERANGE},
	{"a byte past, short", END - 1, 2, READ, MR_ACCESS, false, -ERANGE},
	{"the byte past", END, 1, READ, MR_ACCESS, false, -ERANGE},
	{"end at 2^64", POOL_AT, UINT64_MAX - POOL_AT + 1, READ, MR_ACCESS, false, -ERANGE},
	{"end past 2^64", POOL_AT, UINT64_MAX - POOL_AT + 2, READ, MR_ACCESS, false, -ERANGE},
	{"end at its own start", POOL_AT + 1, UINT64_MAX, READ, MR_ACCESS, false, -ERANGE},
	{"end within, by overflow", END - 1, UINT64_MAX - 1, READ, MR_ACCESS, false, -ERANGE},
	{"the last byte there is", UINT64_MAX, 1, READ, MR_ACCESS, false, -ERANGE},
	{"the first byte there is", 0, 1, READ, MR_ACCESS, false, -ERANGE},
	{"another PD", POOL_AT, 1, READ, MR_ACCESS, true, -EXDEV},
	{"no binds", POOL_AT, 1, READ, IBV_ACCESS_LOCAL_WRITE, false, -EACCES},
	{"no rights at all", POOL_AT, 1, READ, 0, false, -EACCES},
	{"read, not writable", POOL_AT, 1, READ, IBV_ACCESS_MW_BIND, false, 0},
	{"write, not writable", POOL_AT, 1, WRITE, IBV_ACCESS_MW_BIND, false, -EACCES},
	{"both, not writable", POOL_AT, 1, READ | WRITE, IBV_ACCESS_MW_BIND, false, -EACCES},
	{"atomics, not writable", POOL_AT, 1, ATOMIC, IBV_ACCESS_MW_BIND, false, -EACCES},
	{"for nothing", POOL_AT, 1, 0, MR_ACCESS, false, -EINVAL},
	{"zero-based", POOL_AT, 1, READ | IBV_ACCESS_ZERO_BASED, MR_ACCESS, false, -EINVAL},
	{"local rights", POOL_AT, 1, IBV_ACCESS_LOCAL_WRITE, MR_ACCESS, false, -EINVAL},
	{"windows on windows", POOL_AT, 1, READ | IBV_ACCESS_MW_BIND, MR_ACCESS, false, -EINVAL},
};

TEST(field_09_bind__wrong_ones_are_refused)
{
	struct ibv_pd own = {0}, other = {0};
	struct ibv_mr mr = {.pd = &own, .addr = (void *)(uintptr_t)POOL_AT, .length = POOL_BYTES};
	struct window window;
	struct ibv_mw mw;

	start(&window, &mw, DRIVER_KEY);
	for (size_t i = 0; i < sizeof(binds) / sizeof(binds[0]); i++) {
		mw.pd = binds[i].foreign ? &other : &own;
		window.addr = binds[i].addr;
		window.len_bytes = binds[i].len_bytes;
		window.access = binds[i].access;
		if (window_check(&window, &mr, binds[i].mr_access) != binds[i].result)
			printf("# %s\n", binds[i].name);
		CHECK_INT(window_check(&window, &mr, binds[i].mr_access), binds[i].result);
	}
}

/* A registration that ends where the numbers do. */
TEST(field_09_bind__registration_at_the_end)
{
	struct ibv_pd pd = {0};
	struct ibv_mr mr = {
		.pd = &pd, .addr = (void *)(uintptr_t)(UINT64_MAX - 4095), .length = 4096};
	struct window window;
	struct ibv_mw mw;

	start(&window, &mw, DRIVER_KEY);
	mw.pd = &pd;
	window.access = READ;
	window.addr = UINT64_MAX - 4095;
	window.len_bytes = 4096;
	CHECK_INT(window_check(&window, &mr, MR_ACCESS), 0);
	window.len_bytes = 4097;
	CHECK_INT(window_check(&window, &mr, MR_ACCESS), -ERANGE);
	window.addr = UINT64_MAX;
	window.len_bytes = 1;
	CHECK_INT(window_check(&window, &mr, MR_ACCESS), 0);
	window.len_bytes = 2;
	CHECK_INT(window_check(&window, &mr, MR_ACCESS), -ERANGE);
}
