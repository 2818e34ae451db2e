/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_MISUSE_MISUSE_H
#define TESTS_MISUSE_MISUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "tests/integration/harness.h"

/*
 * Tables of wrong calls. A program is about one misuse, and has for every public function the
 * calls with that misuse, or says why there is none; misuse_check_complete() compares with the
 * list of symbols, so that no function is forgotten. Each call must return its code, leave a
 * sentence about it, leave all outputs alone, and leave the session at work.
 */

#define MISUSE_BYTES  4096u /* of each lease and buffer */
#define MISUSE_TTL_MS 600000

/* What calls write to. */
struct misuse_out {
	mempool *pool;
	mempool_lease *lease;
	mempool_lease *leases[2];
	mempool_buf *buf;
	mempool_queue *queue;
	size_t count;
	uint64_t old;
	struct mempool_lease_info info;
	struct mempool_lease_token token;
	struct mempool_cache_stats stats;
	struct mempool_queue_info queue_info;
	struct mempool_event event;
	struct mempool_completion completions[2];
	uint8_t bytes[MISUSE_BYTES];
};

/*
 * A daemon, a session, and one of all that calls take. The leases of another tenant's session lie
 * directly before and behind ours.
 */
struct misuse {
	struct harness h;
	struct harness_keys keys;
	struct mempool_connect_opts connect_opts; /* as they should be, and so are these */
	struct mempool_acquire_opts acquire_opts;
	mempool *pool;
	mempool_lease *lease; /* with the rights below */
	uint32_t rights;      /* all that the device grants */
	mempool_buf *buf;
	uint8_t *bytes;	      /* of the buffer */
	mempool_queue *queue; /* with the lease */
	mempool *neighbour;
	mempool_lease *before;
	mempool_lease *behind;
	uint8_t content[MISUSE_BYTES]; /* of the lease */
	uint32_t seed;
	/* Of the running call: */
	struct misuse_out out;
	bool in_completion; /* its code came by a completion, which has no sentence */
	/* What a program needs moreover: */
	mempool_lease *subject;
	uint32_t subject_rights;
	struct mempool_lease_token token;
	mempool *pool_2;
	mempool_buf *buf_2;
	mempool_queue *queue_2;
	uint64_t offset_bytes;
	uint64_t len_bytes;
};

struct misuse_call {
	struct misuse_call *next;
	const char *group;
	const char *functions; /* separated by spaces, if it is a reason */
	const char *what;      /* is wrong; or the reason why there is no call */
	const char *source;
	int (*run)(struct misuse *m); /* NULL: only a reason */
	int (*code)(const struct misuse *m);
};

void misuse_register(struct misuse_call *call);

#define MISUSE_REGISTER(id, ...)                                                    \
	__attribute__((constructor)) static void misuse_register_##id(void)         \
	{                                                                           \
		static struct misuse_call call = {NULL, MISUSE_GROUP, __VA_ARGS__}; \
		misuse_register(&call);                                             \
	}

/*
 * MISUSE() - a call, of the group that MISUSE_GROUP names
 * @expected: its code; 0 if what looks wrong is allowed; in both there is a struct misuse *m
 */
#define MISUSE(function, id, expected, ...)                              \
	static int misuse_run_##function##_##id(struct misuse *m)        \
	{                                                                \
		(void)m;                                                 \
		return (__VA_ARGS__);                                    \
	}                                                                \
	static int misuse_code_##function##_##id(const struct misuse *m) \
	{                                                                \
		(void)m;                                                 \
		return (expected);                                       \
	}                                                                \
	MISUSE_REGISTER(function##_##id, #function, #id, #__VA_ARGS__,   \
			misuse_run_##function##_##id, misuse_code_##function##_##id)

/* MISUSE_NONE() - why functions cannot be misused so */
#define MISUSE_NONE(id, why, functions) MISUSE_REGISTER(none_##id, functions, why, "", NULL, NULL)

/** misuse_begin() - start all that is in struct misuse; @extra: of the configuration, or NULL */
void misuse_begin(struct misuse *m, const char *extra);

/** misuse_end() - neighbours unharmed? everything accounted for? */
void misuse_end(struct misuse *m);

void misuse_cleanup(struct misuse *m);

/** misuse_run() - all calls of a group; Return: how many there were that had to fail */
unsigned int misuse_run(struct misuse *m, const char *group);

/** misuse_run_alone() - the same, where no session is at work in between */
unsigned int misuse_run_alone(struct misuse *m, const char *group);

/** misuse_check_complete() - is every symbol of the library in a table? */
void misuse_check_complete(void);

/** misuse_check_works() - read what is there, write something, read it; also by the queue */
void misuse_check_works(struct misuse *m);

/** misuse_check_neighbours() - are the bytes before and behind the lease what they were? */
void misuse_check_neighbours(struct misuse *m);

/** misuse_acquire() - Return: a lease, or NULL and the test has failed */
mempool_lease *misuse_acquire(mempool *pool, uint32_t rights, uint64_t ttl_ms);

/** misuse_op() - submit one to the queue, wait for it; Return: its code, or of a call */
int misuse_op(struct misuse *m, struct mempool_op op);

/**
 * misuse_undo() - end what a call has made that was to be refused or allowed alike
 * @r: what the call has returned; if it is 0 all outputs that were written are ended
 *
 * Return: @r
 */
int misuse_undo(struct misuse *m, int r);

/** misuse_told() - of a call that returns nothing; Return: is there a sentence of its own? */
bool misuse_told(void);

/** misuse_op_of() - an operation on all of a lease, from or to the buffer; atomic: on 8 bytes */
struct mempool_op misuse_op_of(const struct misuse *m, mempool_lease *lease, uint32_t kind);

/* All that calls take, in a variable of the test case. */
#define MISUSE_SCENE(name, extra)                                                  \
	__attribute__((cleanup(misuse_cleanup))) struct misuse name##_scene = {0}; \
	struct misuse *name = &name##_scene;                                       \
	misuse_begin(name, extra);                                                 \
	CHECK(!test_has_failed())

#endif
