/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of operations through a queue: every transition, every order, random ones, too.
 */
#include "client/operation.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define ROOM 4

static void make(struct operations *operations)
{
	(void)operations_init(operations, ROOM);
}

#define OPERATIONS(name)                                                    \
	__attribute__((cleanup(operations_deinit))) struct operations name; \
	make(&name)

static struct operation *take(struct operations *operations, uint64_t cookie, uint64_t len_bytes)
{
	struct mempool_op op = {.cookie = cookie, .len_bytes = len_bytes, .kind = MEMPOOL_OP_READ};

	return operations_take(operations, &op);
}

/* Is the next one reported this one? */
static bool reports(struct operations *operations, uint64_t cookie, int code)
{
	struct operation *operation = operations_report(operations);

	return operation != NULL && operation->op.cookie == cookie && operation->code == code;
}

TEST(operation__transitions)
{
	static const bool legal[OPERATION_STATES][OPERATION_STATES] = {
		{false, true, false, false},
		{false, false, true, true},
		{false, false, false, true},
		{true, false, false, false},
	};

	for (int from = 0; from < OPERATION_STATES; from++) {
		for (int to = 0; to < OPERATION_STATES; to++)
			CHECK_INT(operation_is_legal((enum operation_state)from,
						     (enum operation_state)to),
				  legal[from][to]);
	}
}

TEST(operations_take__as_many_as_there_is_room_for)
{
	OPERATIONS(o);

	for (uint64_t i = 0; i < ROOM; i++)
		CHECK(take(&o, i, 1) != NULL);
	CHECK(take(&o, ROOM, 1) == NULL);
	CHECK_INT(operations_outstanding(&o), ROOM);
	CHECK(operations_report(&o) == NULL);
	operations_fail(&o, operations_next(&o), -7);
	CHECK_INT(operations_outstanding(&o), ROOM - 1);
	/* Until it is reported its place is taken. */
	CHECK(take(&o, ROOM, 1) == NULL);
	CHECK(reports(&o, 0, -7));
	CHECK(take(&o, ROOM, 1) != NULL);
}

/* In pieces; those behind wait until the last one is posted. */
TEST(operations_posted__in_pieces)
{
	OPERATIONS(o);
	struct operation *a = take(&o, 1, 10);
	struct operation *b = take(&o, 2, 5);

	CHECK(operations_next(&o) == a);
	operations_posted(&o, a, 4);
	CHECK_INT(a->state, OPERATION_POSTED);
	CHECK(operations_next(&o) == a);
	operations_completed(&o, a, 0);
	CHECK_INT(a->state, OPERATION_POSTED);
	operations_posted(&o, a, 6);
	CHECK(operations_next(&o) == b);
	operations_posted(&o, b, 5);
	CHECK(operations_next(&o) == NULL);
	CHECK_INT(operations_outstanding(&o), 2);
	operations_completed(&o, a, 0);
	CHECK(reports(&o, 1, 0));
	operations_completed(&o, b, 0);
	CHECK(reports(&o, 2, 0));
	CHECK_INT(operations_outstanding(&o), 0);
}

/* Not before its last piece has come back, and with the code of the first that failed. */
TEST(operations_completed__failure_in_the_middle)
{
	OPERATIONS(o);
	struct operation *a = take(&o, 1, 10);
	struct operation *b = take(&o, 2, 1);

	operations_posted(&o, a, 4);
	operations_posted(&o, a, 4);
	operations_completed(&o, a, -3);
	CHECK_INT(a->state, OPERATION_POSTED);
	CHECK(operations_report(&o) == NULL);
	CHECK(operations_next(&o) == b);
	operations_completed(&o, a, -4);
	CHECK_INT(a->state, OPERATION_DONE);
	CHECK(reports(&o, 1, -3));
	CHECK(operations_report(&o) == NULL);
}

/* The lease of one that is half posted has ended, say. */
TEST(operations_fail__with_pieces_in_flight)
{
	OPERATIONS(o);
	struct operation *a = take(&o, 1, 10);

	operations_posted(&o, a, 4);
	operations_fail(&o, a, -9);
	CHECK_INT(a->state, OPERATION_POSTED);
	CHECK(operations_next(&o) == NULL);
	operations_completed(&o, a, 0);
	CHECK(reports(&o, 1, -9));
}

TEST(operations_fail__from_the_middle_of_the_waiting)
{
	OPERATIONS(o);
	struct operation *a = take(&o, 1, 1);
	struct operation *b = take(&o, 2, 1);
	struct operation *c = take(&o, 3, 1);

	operations_fail(&o, b, -1);
	CHECK(operations_next(&o) == a);
	operations_fail(&o, c, -2);
	CHECK(take(&o, 4, 1) != NULL);
	CHECK(reports(&o, 2, -1));
	CHECK(reports(&o, 3, -2));
	operations_posted(&o, a, 1);
	CHECK_INT(operations_next(&o)->op.cookie, 4);
}

TEST(operations_fail__with_0_ends_an_empty_one)
{
	OPERATIONS(o);

	operations_fail(&o, take(&o, 1, 0), 0);
	CHECK(reports(&o, 1, 0));
}

/* The largest queue: what ends many at a time looks for none of them. */

#define MANY	   65536
#define MANY_S	   1
#define MANY_EVERY 2

static double cpu_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Their order in the list is another one than that of their places. */
static void make_rotated(struct operations *o)
{
	CHECK_INT(operations_init(o, MANY), 0);
	for (uint64_t i = 0; i < MANY / 2; i++)
		CHECK(take(o, i, 1) != NULL);
	for (uint64_t i = 0; i < MANY / 2; i++)
		operations_fail(o, operations_next(o), -1);
	for (uint64_t i = 0; i < MANY / 2; i++)
		CHECK(operations_report(o) != NULL);
	for (uint64_t i = 0; i < MANY; i++)
		CHECK(take(o, i, 1) != NULL);
	CHECK(operations_next(o) == &o->slots[MANY / 2]);
}

static void check_many(struct operations *o, double begun_s, uint32_t ended)
{
	double took_s = cpu_s() - begun_s;
	uint32_t reported = 0;

	printf("# %u ended in %.3f s\n", ended, took_s);
	CHECK(took_s < MANY_S);
	while (operations_report(o) != NULL)
		reported++;
	CHECK_INT(reported, ended);
	CHECK_INT(operations_outstanding(o), MANY - ended);
	operations_deinit(o);
}

TEST(operations_fail__all_of_the_largest_queue)
{
	struct operations o;
	double begun_s;

	make_rotated(&o);
	begun_s = cpu_s();
	for (uint32_t i = 0; i < MANY; i++)
		operations_fail(&o, &o.slots[i], -1);
	check_many(&o, begun_s, MANY);
}

TEST(operations_fail__every_second_of_the_largest_queue)
{
	struct operations o;
	struct operation *at;
	double begun_s;

	make_rotated(&o);
	at = o.waiting.first;
	begun_s = cpu_s();
	while (at != NULL) {
		struct operation *next = at->next;

		if (at->op.cookie % MANY_EVERY == 0)
			operations_fail(&o, at, -1);
		at = next;
	}
	check_many(&o, begun_s, MANY / MANY_EVERY);
}

/* Each is reported once, with what befell it, whatever happens in whatever order. */

#define TURNS 200000

struct model {
	struct operation *flight[64];
	uint32_t in_flight;
	uint64_t taken;
	uint64_t reported;
	uint64_t failed;
	uint64_t expected_failed;
};

static void turn(struct random *random, struct operations *o, struct model *model)
{
	struct operation *next = operations_next(o);
	struct operation *operation;
	int code;

	switch (random_below(random, 4)) {
	case 0:
		if (take(o, model->taken, 1 + random_below(random, 5)) != NULL)
			model->taken++;
		break;
	case 1:
		if (next == NULL || model->in_flight == 64)
			break;
		model->flight[model->in_flight++] = next;
		operations_posted(o, next,
				  1 + random_below(random, next->op.len_bytes - next->at_bytes));
		break;
	case 2:
		if (model->in_flight == 0)
			break;
		operation = model->flight[0];
		for (uint32_t i = 1; i < model->in_flight; i++)
			model->flight[i - 1] = model->flight[i];
		model->in_flight--;
		code = random_below(random, 10) == 0 ? -5 : 0;
		model->expected_failed += code != 0 && operation->code == 0;
		operations_completed(o, operation, code);
		break;
	default:
		operation = operations_report(o);
		if (operation == NULL)
			break;
		CHECK_INT(operation->in_flight, 0);
		CHECK(operation->code != 0 || operation->at_bytes == operation->op.len_bytes);
		model->failed += operation->code != 0;
		model->reported++;
	}
}

TEST(operations__random)
{
	struct random random = random_start();
	struct model model = {0};
	OPERATIONS(o);

	for (int i = 0; i < TURNS && !test_has_failed(); i++) {
		turn(&random, &o, &model);
		CHECK_INT(o.free.count + o.waiting.count + o.done.count + o.posted, ROOM);
	}
	while (model.in_flight > 0) {
		model.in_flight--;
		operations_completed(&o, model.flight[model.in_flight], 0);
	}
	while (operations_next(&o) != NULL) {
		operations_fail(&o, operations_next(&o), -6);
		model.expected_failed++;
	}
	for (struct operation *at = operations_report(&o); at != NULL; at = operations_report(&o)) {
		model.failed += at->code != 0;
		model.reported++;
	}
	CHECK_INT(model.reported, model.taken);
	CHECK_INT(model.failed, model.expected_failed);
	CHECK_INT(o.free.count, ROOM);
	CHECK(model.reported > TURNS / 20);
}
