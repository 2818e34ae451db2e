/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each probe of the table has a fresh pair of queue pairs: bind a window, do what it
 * allows, then what it does not. A refusal breaks both queue pairs, and a fresh pair
 * also keeps one probe's trouble away from the next.
 *
 * The memory is an arena with a known pattern, in which the windows lie, and the
 * requester's buffer, filled with a byte that the pattern does not have: a forbidden
 * write cannot put back what was there, a forbidden read cannot bring what was there.
 *
 * Windows are allocated after their queue pair and deallocated before it is destroyed
 * (Soft-RoCE stalls for a minute otherwise), and their guard is deregistered in between.
 * A window is invalidated at most once per bind, and never when in doubt: a second time
 * panics the kernel on Soft-RoCE.
 *
 * Thread: any, one at a time. Every wait is bounded.
 */
#include "daemon/selftest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/secure.h"
#include "common/verbs.h"
#include "daemon/selftest_pair.h"
#include "daemon/selftest_probe.h"
#include "proto/limits.h"

#define ARENA_BYTES	  0x8000
#define LOCAL_BYTES	  0x8000
#define MEMORY_BYTES	  (ARENA_BYTES + LOCAL_BYTES)
#define WINDOW_AT	  0x2123 /* odd, so the window's end is too */
#define WINDOW_ALIGNED_AT 0x2128 /* for atomics */
#define LOCAL_FILL	  0xee
#define ATOMIC_BYTES	  8
#define ATOMIC_ADD	  0x0123456789abcdefu

_Static_assert(WINDOW_AT >= SELFTEST_REACH_BYTES, "no access leaves the arena below");
_Static_assert(WINDOW_ALIGNED_AT + SELFTEST_WINDOW_BYTES + SELFTEST_REACH_BYTES <= ARENA_BYTES,
	       "no access leaves the arena above");

/* One run. */
struct selftest {
	const struct selftest_params *params;
	struct selftest_route route;
	uint8_t *arena;
	uint8_t *local;
	uint8_t pattern[ARENA_BYTES]; /* what the arena is prepared with */
	char *error;
};

/* A pair with a window of its own, for the responder. */
struct side {
	struct selftest_pair pair;
	struct ibv_mr *guard; /* in guarded mode: over the window's range */
	struct ibv_mw *mw;
	uint8_t *window;
};

static int fail(struct selftest *test, const char *what, int r)
{
	snprintf(test->error, PROTO_TEXT_MAX, "%s: %s", what, strerror(-r));
	return r;
}

/* Without the top bit: never LOCAL_FILL. */
static void make_pattern(struct selftest *test)
{
	size_t i;

	for (i = 0; i < ARENA_BYTES; i++)
		test->pattern[i] = (uint8_t)((i * 31 + (i >> 8)) & 0x7f);
}

static void prepare_memory(struct selftest *test)
{
	memcpy(test->arena, test->pattern, ARENA_BYTES);
	memset(test->local, LOCAL_FILL, LOCAL_BYTES);
}

/* Each byte is the one before it, and the first is right. */
static bool is_filled(const uint8_t *bytes, size_t len_bytes)
{
	return len_bytes == 0 ||
	       (bytes[0] == LOCAL_FILL && memcmp(bytes, bytes + 1, len_bytes - 1) == 0);
}

/* Are these the bytes of the arena as prepared, from an offset on? */
static bool is_pattern(const struct selftest *test, const uint8_t *bytes, size_t at,
		       size_t len_bytes)
{
	return memcmp(bytes, test->pattern + at, len_bytes) == 0;
}

static bool is_memory_unchanged(const struct selftest *test)
{
	return is_pattern(test, test->arena, 0, ARENA_BYTES) && is_filled(test->local, LOCAL_BYTES);
}

static bool is_added(const struct selftest *test, size_t at)
{
	uint64_t before, after, got;

	memcpy(&before, test->pattern + at, sizeof(before));
	memcpy(&after, test->arena + at, sizeof(after));
	memcpy(&got, test->local, sizeof(got));
	return got == before && after == before + ATOMIC_ADD;
}

/* Did an access that was reported as successful do what it should? */
static bool is_done(const struct selftest *test, enum ibv_wr_opcode opcode, size_t at,
		    size_t len_bytes)
{
	if (opcode == IBV_WR_RDMA_READ)
		return is_pattern(test, test->local, at, len_bytes);
	if (opcode == IBV_WR_RDMA_WRITE)
		return is_filled(test->arena + at, len_bytes);
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && is_added(test, at);
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* What fails here says nothing about the device's enforcement, so it is no outcome. */
static int side_init(struct side *side, struct selftest *test, const struct selftest_probe *probe)
{
	const struct selftest_params *params = test->params;
	size_t at = is_atomic(probe->forbidden) ? WINDOW_ALIGNED_AT : WINDOW_AT;
	int r;

	*side = (struct side){.window = test->arena + at};
	r = selftest_pair_init(&side->pair, params->pd, &test->route);
	if (r < 0)
		return fail(test, "no queue pair can be connected to itself", r);
	if (params->guarded)
		r = verbs_reg_mr(params->pd, side->window, SELFTEST_WINDOW_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &side->guard);
	if (r < 0)
		return fail(test, "a memory region cannot be registered", r);
	r = verbs_alloc_mw(params->pd, &side->mw);
	return r < 0 ? fail(test, "a memory window cannot be allocated", r) : 0;
}

/* All zero is allowed. What cannot be destroyed stays, with all that it needs. */
static int side_deinit(struct side *side, struct selftest *test)
{
	int r;

	r = side->mw == NULL ? 0 : verbs_dealloc_mw(side->mw);
	if (r < 0)
		return fail(test, "a memory window cannot be deallocated", r);
	r = verbs_dereg_mr(side->guard);
	if (r < 0)
		return fail(test, "a memory region cannot be deregistered", r);
	r = selftest_pair_deinit(&side->pair);
	return r < 0 ? fail(test, "a queue pair cannot be destroyed", r) : 0;
}

/* The upper 24 bits are the device's; the low byte becomes any but the one it is. */
static uint32_t next_key(const struct ibv_mw *mw)
{
	return (mw->rkey & ~0xffu) | ((mw->rkey + 1 + secure_uniform(0xff)) & 0xff);
}

static struct ibv_send_wr bind_wr(const struct selftest *test, const struct side *side,
				  const struct selftest_probe *probe)
{
	return (struct ibv_send_wr){
		.opcode = IBV_WR_BIND_MW,
		.bind_mw =
			{
				.mw = side->mw,
				.rkey = next_key(side->mw),
				.bind_info =
					{
						.mr = side->guard != NULL ? side->guard
									  : test->params->mr,
						.addr = (uintptr_t)side->window,
						.length = SELFTEST_WINDOW_BYTES,
						.mw_access_flags = probe->rights,
					},
			},
	};
}

static bool execute(struct selftest_pair *pair, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	enum ibv_wc_status status;

	return selftest_pair_execute(pair, qp, wr, &status) == 0 && status == IBV_WC_SUCCESS;
}

static bool bind(struct selftest *test, struct side *side, const struct selftest_probe *probe)
{
	struct ibv_send_wr wr = bind_wr(test, side, probe);

	if (!execute(&side->pair, side->pair.responder, &wr))
		return false;
	/* The library leaves this to us, and names the window by it in the next bind. */
	side->mw->rkey = wr.bind_mw.rkey;
	return true;
}

/* Once per bound window: the caller gives up whatever fails. */
static bool invalidate(struct side *side)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = side->mw->rkey};

	return execute(&side->pair, side->pair.responder, &wr);
}

static bool rebind(struct selftest *test, struct side *side, const struct selftest_probe *probe)
{
	struct ibv_send_wr bind_again = bind_wr(test, side, probe);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_LOCAL_INV,
		.invalidate_rkey = side->mw->rkey,
		.next = &bind_again,
	};

	if (!execute(&side->pair, side->pair.responder, &wr))
		return false;
	side->mw->rkey = bind_again.bind_mw.rkey;
	return true;
}

/* Between the requester's buffer and an offset from the window's start. */
static int access_window(struct selftest *test, struct side *side,
			 const struct selftest_probe *probe, enum ibv_wr_opcode opcode, int32_t at,
			 uint32_t key, enum ibv_wc_status *ret_status)
{
	bool is_zero_based = (probe->rights & IBV_ACCESS_ZERO_BASED) != 0;
	uint64_t remote = (is_zero_based ? 0 : (uintptr_t)side->window) + (uint64_t)at;
	struct ibv_sge sge = {
		.addr = (uintptr_t)test->local,
		.length = probe->len_bytes,
		.lkey = test->params->mr->lkey,
	};
	struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1};

	if (is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = ATOMIC_ADD;
		if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
			memcpy(&wr.wr.atomic.compare_add, side->window + at, ATOMIC_BYTES);
		wr.wr.atomic.swap = ATOMIC_ADD;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = key;
	}
	return selftest_pair_execute(&side->pair, side->pair.requester, &wr, ret_status);
}

static bool is_allowed(struct selftest *test, struct side *side, const struct selftest_probe *probe)
{
	size_t at = (size_t)(side->window + probe->allowed_at - test->arena);
	enum ibv_wc_status status;
	int r;

	prepare_memory(test);
	r = access_window(test, side, probe, probe->allowed, probe->allowed_at, side->mw->rkey,
			  &status);
	return r == 0 && status == IBV_WC_SUCCESS &&
	       is_done(test, probe->allowed, at, probe->len_bytes);
}

static enum selftest_outcome try_forbidden(struct selftest *test, struct side *side,
					   const struct selftest_probe *probe, uint32_t key)
{
	enum ibv_wc_status status;
	int r;

	prepare_memory(test);
	r = access_window(test, side, probe, probe->forbidden, probe->forbidden_at, key, &status);
	if (r < 0)
		return SELFTEST_UNKNOWN;
	if (status == IBV_WC_SUCCESS)
		return SELFTEST_NOT_ENFORCED;
	if (status != IBV_WC_REM_ACCESS_ERR || !is_memory_unchanged(test))
		return SELFTEST_UNKNOWN;
	return SELFTEST_ENFORCED;
}

static bool take_step(struct selftest *test, struct side *own, struct side *foreign,
		      const struct selftest_probe *probe)
{
	switch (probe->step) {
	case SELFTEST_STEP_NONE:
		return true;
	case SELFTEST_STEP_INVALIDATE:
		return invalidate(own);
	case SELFTEST_STEP_REBIND:
		return rebind(test, own, probe) && is_allowed(test, own, probe);
	case SELFTEST_STEP_FOREIGN:
		return bind(test, foreign, probe) && is_allowed(test, foreign, probe);
	}
	return false;
}

static uint32_t forbidden_key(const struct selftest *test, const struct side *side,
			      const struct selftest_probe *probe)
{
	switch (probe->key) {
	case SELFTEST_KEY_MR_RKEY:
		return test->params->mr->rkey;
	case SELFTEST_KEY_MR_LKEY:
		return test->params->mr->lkey;
	case SELFTEST_KEY_GUARD_RKEY:
		return side->guard->rkey;
	case SELFTEST_KEY_GUARD_LKEY:
		return side->guard->lkey;
	case SELFTEST_KEY_WINDOW:
		break;
	}
	return side->mw->rkey;
}

static enum selftest_outcome try_probe(struct selftest *test, struct side *own,
				       struct side *foreign, const struct selftest_probe *probe)
{
	const unsigned int optional = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
	struct side *other = probe->step == SELFTEST_STEP_FOREIGN ? foreign : own;
	uint32_t key;

	if (!bind(test, own, probe) || !is_allowed(test, own, probe))
		return (probe->rights & optional) != 0 ? SELFTEST_NOT_SUPPORTED : SELFTEST_UNKNOWN;
	/* Before the step, which may give the window another. */
	key = forbidden_key(test, own, probe);
	if (!take_step(test, own, foreign, probe))
		return SELFTEST_UNKNOWN;
	return try_forbidden(test, other, probe, key);
}

static int run_probe(struct selftest *test, const struct selftest_probe *probe,
		     enum selftest_outcome *ret_outcome)
{
	enum selftest_outcome outcome = SELFTEST_UNKNOWN;
	struct side foreign = {0};
	struct side own = {0};
	int r, r_deinit;

	r = side_init(&own, test, probe);
	if (r == 0 && probe->step == SELFTEST_STEP_FOREIGN)
		r = side_init(&foreign, test, probe);
	if (r == 0)
		outcome = try_probe(test, &own, &foreign, probe);
	r_deinit = side_deinit(&foreign, test);
	if (r == 0)
		r = r_deinit;
	r_deinit = side_deinit(&own, test);
	if (r == 0)
		r = r_deinit;
	if (r == 0)
		*ret_outcome = outcome;
	return r;
}

/*
 * The outcome so far is "enforced" or "not supported". The latter stays whatever else is
 * tried, unless something goes through.
 */
static enum selftest_outcome combine(enum selftest_outcome so_far, enum selftest_outcome next)
{
	if (next == SELFTEST_NOT_ENFORCED)
		return SELFTEST_NOT_ENFORCED;
	if (so_far == SELFTEST_NOT_SUPPORTED)
		return SELFTEST_NOT_SUPPORTED;
	return next == SELFTEST_ENFORCED ? SELFTEST_ENFORCED : SELFTEST_UNKNOWN;
}

static bool is_guard_key(enum selftest_key key)
{
	return key == SELFTEST_KEY_GUARD_RKEY || key == SELFTEST_KEY_GUARD_LKEY;
}

static int run_property(struct selftest *test, enum selftest_property property,
			enum selftest_outcome *ret_outcome)
{
	enum selftest_outcome outcome = SELFTEST_UNKNOWN;
	enum selftest_outcome next = SELFTEST_UNKNOWN;
	const struct selftest_probe *probe;
	bool is_first = true;
	size_t i;
	int r;

	for (i = 0; i < selftest_probe_count; i++) {
		probe = &selftest_probes[i];
		if (probe->property != property ||
		    (is_guard_key(probe->key) && !test->params->guarded))
			continue;
		r = run_probe(test, probe, &next);
		if (r < 0)
			return r;
		outcome = is_first ? next : combine(outcome, next);
		is_first = false;
		/* Nothing can mend it, and on a device that does not answer each takes long. */
		if (outcome == SELFTEST_UNKNOWN || outcome == SELFTEST_NOT_ENFORCED)
			break;
	}
	*ret_outcome = outcome;
	return 0;
}

static bool is_bounds(enum selftest_property property)
{
	return property == SELFTEST_BOUNDS_BELOW || property == SELFTEST_BOUNDS_ABOVE ||
	       property == SELFTEST_BOUNDS_STRADDLE;
}

int selftest_run(const struct selftest_params *params, struct selftest_result *ret_result,
		 char *error)
{
	struct selftest test = {
		.params = params,
		.arena = params->memory,
		.local = params->memory + ARENA_BYTES,
		.error = error,
	};
	struct selftest_result result = {0};
	bool is_decided = false;
	unsigned int i;
	int r;

	assert(params->len_bytes >= MEMORY_BYTES);
	make_pattern(&test);
	r = selftest_route_find(params->pd->context, &test.route);
	if (r < 0)
		return fail(&test, "no port reaches itself", r);
	for (i = 0; i < SELFTEST_PROPERTIES && r == 0; i++) {
		if (is_decided)
			result.outcome[i] = SELFTEST_NOT_TRIED;
		else
			r = run_property(&test, i, &result.outcome[i]);
		is_decided = is_decided || (params->bounds_decide && is_bounds(i) &&
					    result.outcome[i] == SELFTEST_NOT_ENFORCED);
	}
	memset(params->memory, 0, MEMORY_BYTES);
	if (r == 0)
		*ret_result = result;
	return r;
}

/* Must be enforced on any device. Windows are zero-based only if we bind them so. */
static bool is_essential(enum selftest_property property)
{
	return property != SELFTEST_ATOMICS && property != SELFTEST_ZERO_BASED;
}

bool selftest_isolates(const struct selftest_result *result)
{
	enum selftest_outcome atomics = result->outcome[SELFTEST_ATOMICS];
	unsigned int i;

	for (i = 0; i < SELFTEST_PROPERTIES; i++)
		if (is_essential(i) && result->outcome[i] != SELFTEST_ENFORCED)
			return false;
	return atomics == SELFTEST_ENFORCED || atomics == SELFTEST_NOT_SUPPORTED;
}

bool selftest_only_bounds_fail(const struct selftest_result *result)
{
	bool is_any = false;
	unsigned int i;

	/* Atomics outside go through as well then: the guarded run judges them. */
	for (i = 0; i < SELFTEST_PROPERTIES; i++) {
		if (!is_essential(i) || result->outcome[i] == SELFTEST_ENFORCED ||
		    result->outcome[i] == SELFTEST_NOT_TRIED)
			continue;
		if (!is_bounds(i))
			return false;
		is_any = true;
	}
	return is_any;
}

const char *selftest_property_name(enum selftest_property property)
{
	static const char *const names[SELFTEST_PROPERTIES] = {
		[SELFTEST_BOUNDS_BELOW] = "bounds-below",
		[SELFTEST_BOUNDS_ABOVE] = "bounds-above",
		[SELFTEST_BOUNDS_STRADDLE] = "bounds-straddle",
		[SELFTEST_RIGHTS_READ] = "rights-read-only",
		[SELFTEST_RIGHTS_WRITE] = "rights-write-only",
		[SELFTEST_FOREIGN_QP] = "foreign-qp",
		[SELFTEST_INVALIDATED] = "invalidated",
		[SELFTEST_REBOUND] = "rebound",
		[SELFTEST_MR_KEYS] = "mr-keys",
		[SELFTEST_ATOMICS] = "atomics",
		[SELFTEST_ZERO_BASED] = "zero-based",
	};

	assert(property < SELFTEST_PROPERTIES);
	return names[property];
}

const char *selftest_outcome_name(enum selftest_outcome outcome)
{
	static const char *const names[] = {
		[SELFTEST_UNKNOWN] = "unknown",
		[SELFTEST_ENFORCED] = "enforced",
		[SELFTEST_NOT_ENFORCED] = "not enforced",
		[SELFTEST_NOT_SUPPORTED] = "not supported",
		[SELFTEST_NOT_TRIED] = "not tried",
	};

	assert(outcome <= SELFTEST_NOT_TRIED);
	return names[outcome];
}
