/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues whose leases, lanes or sessions end while operations are under way: each operation is
 * reported once all the same, and with what has become of it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/verbs.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/queues.h"
#include "tests/unit/random.h"

#define PAGE	4096
#define TTL_MS	600000
#define ALL	(MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define NO_WAIT "\"lane_wait_min\": \"0\""
#define CHUNK	(64 * 1024)

#define BATCH 64

static void fill_batch(struct mempool_op *ops, mempool_lease *const *leases, size_t lease_count,
		       mempool_buf *buf, uint32_t kind)
{
	for (size_t i = 0; i < BATCH; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = leases[i % lease_count],
			.offset_bytes = i * CHUNK,
			.len_bytes = CHUNK,
			.bytes = (uint8_t *)mempool_buf_bytes(buf) + i * CHUNK,
			.buf = buf,
			.kind = kind,
		};
}

struct outcomes {
	uint32_t done;
	uint32_t expired;
	uint32_t lost;
	uint32_t others;
};

static void count_outcome(struct outcomes *outcomes, int code)
{
	switch (code) {
	case 0:
		outcomes->done++;
		break;
	case MEMPOOL_E_EXPIRED:
		outcomes->expired++;
		break;
	case MEMPOOL_E_LANE:
		outcomes->lost++;
		break;
	default:
		printf("# code %d: %s\n", code, mempool_error_text(code));
		outcomes->others++;
	}
}

/*
 * Of two leases one expires while batches of both are under way. Its operations succeed or have
 * expired; the other's succeed, or were cut off with the lane that they shared.
 */
TEST(queue__expiry_in_a_batch_of_64)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	struct outcomes one = {0}, other = {0};
	mempool_lease *leases[2];
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];
	uint64_t lost;
	int mixed = 0;

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &leases[1]), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	for (int round = 0; round < 8; round++) {
		/* All at once to the device, or most of it waiting for its turn. */
		CHECK_INT(queues_make_sized(alpha, round % 2 == 0 ? BATCH : 4, BATCH, &queue), 0);
		CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, 400, &leases[0]), 0);
		CHECK_INT(mempool_queue_attach(queue, leases[0]), 0);
		CHECK_INT(mempool_queue_attach(queue, leases[1]), 0);
		one = (struct outcomes){0};
		while (one.expired == 0 && one.others == 0 && one.lost == 0) {
			fill_batch(ops, leases, 2, buf,
				   round / 2 % 2 == 0 ? MEMPOOL_OP_READ : MEMPOOL_OP_WRITE);
			for (size_t i = 0; i < BATCH; i++)
				codes[i] = QUEUES_NOT_YET;
			CHECK_INT(queues_submit(queue, ops, BATCH), 0);
			CHECK_INT(queues_drain(queue, codes, BATCH, BATCH), 0);
			one = (struct outcomes){0};
			other = (struct outcomes){0};
			for (size_t i = 0; i < BATCH; i++)
				count_outcome(i % 2 == 0 ? &one : &other, codes[i]);
		}
		printf("# round %d: of the one %u done, %u expired; of the other %u done, %u "
		       "cut off\n",
		       round, one.done, one.expired, other.done, other.lost);
		CHECK_INT(one.done + one.expired, BATCH / 2);
		CHECK_INT(other.done + other.lost, BATCH / 2);
		mixed += one.done > 0;
		/* Now that it has expired nothing of it is posted any more. */
		CHECK_INT(mempool_queue_restore(queue), 0);
		lost = (uint64_t)harness_number(&h, "counters.lanes_lost");
		for (size_t i = 0; i < BATCH; i++)
			codes[i] = QUEUES_NOT_YET;
		CHECK_INT(queues_submit(queue, ops, BATCH), 0);
		CHECK_INT(queues_drain(queue, codes, BATCH, BATCH), 0);
		for (size_t i = 0; i < BATCH; i++)
			CHECK_INT(codes[i], i % 2 == 0 ? MEMPOOL_E_EXPIRED : 0);
		CHECK_INT(harness_number(&h, "counters.lanes_lost"), lost);
		(void)mempool_release(leases[0]);
		mempool_queue_destroy(queue);
	}
	printf("# expired in the middle of a batch %d times\n", mixed);
	CHECK(mixed > 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* An operator takes the lease back: operations under way end, then none begins. */
TEST(queue__revoked)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	struct outcomes outcomes = {0};
	uint32_t revoked = 0;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, 8, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_READ);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = QUEUES_NOT_YET;
	CHECK_INT(queues_submit(queue, ops, BATCH), 0);
	CHECK_INT(harness_revoke(&h, harness_lease_id(lease)), 0);
	CHECK_INT(queues_drain(queue, codes, BATCH, BATCH), 0);
	for (size_t i = 0; i < BATCH; i++) {
		if (codes[i] == MEMPOOL_E_REVOKED)
			revoked++;
		else
			count_outcome(&outcomes, codes[i]);
	}
	printf("# %u done, %u revoked\n", outcomes.done, revoked);
	CHECK_INT(outcomes.done + revoked, BATCH);
	CHECK(harness_wait_lease_gone(&h, harness_lease_id(lease), 5000));
	CHECK_INT(queues_run_op(queue, &ops[0]), MEMPOOL_E_REVOKED);
}

/* A lane that is lost by itself: everything ends, once, and can go on. */
TEST(queue__lane_lost_at_random)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct random random = random_start();
	struct mempool_op ops[BATCH];
	struct outcomes outcomes = {0};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, 16, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (uint32_t round = 0; round < 40; round++) {
		uint32_t kind = round % 2 == 0 ? MEMPOOL_OP_READ : MEMPOOL_OP_WRITE;

		fill_batch(ops, &lease, 1, buf, kind);
		for (size_t i = 0; i < BATCH; i++)
			codes[i] = QUEUES_NOT_YET;
		CHECK_INT(queues_submit(queue, ops, BATCH), 0);
		(void)usleep((useconds_t)random_below(&random, 20000));
		(void)pthread_mutex_lock(&alpha->lock);
		lane_lose(&queue->lane, MEMPOOL_E_LANE, "lost by the test");
		(void)pthread_mutex_unlock(&alpha->lock);
		CHECK_INT(queues_drain(queue, codes, BATCH, BATCH), 0);
		for (size_t i = 0; i < BATCH; i++)
			count_outcome(&outcomes, codes[i]);
		CHECK_INT(queues_run_op(queue, &ops[0]), MEMPOOL_E_LANE);
		CHECK_INT(mempool_queue_restore(queue), 0);
		CHECK_INT(queues_run_op(queue, &ops[0]), 0);
	}
	printf("# %u done, %u cut off\n", outcomes.done, outcomes.lost);
	CHECK_INT(outcomes.done + outcomes.lost, 40 * BATCH);
	CHECK(outcomes.lost > 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* A lease that is made longer and shorter has new keys on the queue's lane, too. */
TEST(queue__lease_is_modified)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op op = {.kind = MEMPOOL_OP_WRITE, .len_bytes = PAGE};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, 4, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	op.lease = lease;
	op.buf = buf;
	op.bytes = mempool_buf_bytes(buf);
	CHECK_INT(queues_run_op(queue, &op), 0);
	CHECK_INT(mempool_modify(lease, 3 * PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	op.offset_bytes = 2 * PAGE;
	CHECK_INT(queues_run_op(queue, &op), 0);
	CHECK_INT(mempool_modify(lease, 2 * PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	CHECK_INT(queues_run_op(queue, &op), MEMPOOL_E_RANGE);
	op.offset_bytes = PAGE;
	CHECK_INT(queues_run_op(queue, &op), 0);
	CHECK_INT(mempool_modify(lease, 2 * PAGE, MEMPOOL_READ), 0);
	CHECK_INT(queues_run_op(queue, &op), MEMPOOL_E_ACCESS);
	op.kind = MEMPOOL_OP_READ;
	CHECK_INT(queues_run_op(queue, &op), 0);
	CHECK_INT(mempool_read(lease, 0, op.bytes, PAGE), 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	/* Its end by release closes both lanes' keys; the handle is gone. */
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(queue__session_lost)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	uint32_t done = 0, lost = 0;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, 8, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_WRITE);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = QUEUES_NOT_YET;
	CHECK_INT(queues_submit(queue, ops, BATCH), 0);
	harness_kill(&h);
	CHECK_INT(queues_drain(queue, codes, BATCH, BATCH), 0);
	for (size_t i = 0; i < BATCH; i++) {
		done += codes[i] == 0;
		lost += codes[i] == MEMPOOL_E_LANE || codes[i] == MEMPOOL_E_SESSION_LOST;
	}
	printf("# %u done, %u lost with the session\n", done, lost);
	CHECK_INT(done + lost, BATCH);
	for (int i = 0; i < 100 && mempool_renew(lease, TTL_MS) != MEMPOOL_E_SESSION_LOST; i++)
		harness_sleep_ms(50);
	CHECK_INT(queues_run_op(queue, &ops[0]), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_queue_restore(queue), MEMPOOL_E_SESSION_LOST);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
}

/* A device that takes only a part of a chain, or whose completions cannot be had any more. */

static int post_only = -1;	 /* so many of the next chain; -1: all */
static struct ibv_cq *poll_from; /* fails, once */

int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __real_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);
int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	struct ibv_send_wr *last = wr;
	int count = post_only;
	int r = 0;

	/* Others post single ones. */
	if (count < 0 || wr->next == NULL)
		return __real_verbs_post_send(qp, wr, ret_bad);
	post_only = -1;
	for (int i = 1; i < count && last->next != NULL; i++)
		last = last->next;
	*ret_bad = count == 0 ? wr : last->next;
	last->next = NULL;
	if (count > 0)
		r = __real_verbs_post_send(qp, wr, &last);
	return r < 0 ? r : -ENOMEM;
}

int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc)
{
	if (cq != poll_from)
		return __real_verbs_poll_cq(cq, cap, ret_wc);
	poll_from = NULL;
	return -EIO;
}

static void post_part(mempool_queue *queue, struct mempool_op *ops, int count)
{
	uint32_t done = 0;
	int codes[BATCH];

	CHECK_INT(mempool_queue_restore(queue), 0);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = QUEUES_NOT_YET;
	post_only = count;
	CHECK_INT(queues_submit(queue, ops, BATCH), 0);
	CHECK_INT(post_only, -1);
	CHECK_INT(queues_drain(queue, codes, BATCH, BATCH), 0);
	for (size_t i = 0; i < BATCH; i++) {
		bool atomic = ops[i].kind == MEMPOOL_OP_FETCH_ADD;

		/* Of what was not posted it is known that it did not take place. */
		if (codes[i] == 0 || (atomic && codes[i] == MEMPOOL_E_UNKNOWN))
			CHECK((int)i < count);
		else
			CHECK_INT(codes[i], MEMPOOL_E_LANE);
		done += codes[i] == 0;
	}
	printf("# %d of 64 posted, %u done\n", count, done);
}

TEST(queue__posting_fails_in_the_middle)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	bool atomics;
	int r;

	r = queues_acquire(alpha, BATCH * CHUNK, ALL, TTL_MS, &lease);
	atomics = r == 0;
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		r = harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease);
	CHECK_INT(r, 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, BATCH, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_WRITE);
	for (size_t i = 0; atomics && i < BATCH; i += 2) {
		ops[i].kind = MEMPOOL_OP_FETCH_ADD;
		ops[i].len_bytes = 8;
	}
	post_part(queue, ops, 0);
	post_part(queue, ops, 1);
	post_part(queue, ops, 33);
	post_part(queue, ops, 63);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(queues_run_op(queue, &ops[1]), 0);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
}

TEST(queue__completions_cannot_be_had)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	mempool_lease *lease;
	uint32_t reported;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, 16, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_READ);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = QUEUES_NOT_YET;
	CHECK_INT(queues_submit(queue, ops, BATCH), 0);
	poll_from = queue->lane.cq.cq;
	while (poll_from != NULL) {
		struct mempool_completion completion = {0};
		size_t n = 0;

		CHECK_INT(mempool_poll(queue, &completion, 1, &n), 0);
		if (n > 0)
			codes[completion.cookie] = completion.code;
	}
	/* There is no QP any more: everything is over. */
	CHECK(lane_qp(&queue->lane) == NULL);
	CHECK_INT(operations_outstanding(&queue->operations), 0);
	reported = BATCH - queue->operations.done.count;
	CHECK_INT(queues_drain(queue, codes, BATCH, BATCH - reported), 0);
	for (size_t i = 0; i < BATCH; i++)
		CHECK(codes[i] == 0 || codes[i] == MEMPOOL_E_LANE);
	CHECK_INT(mempool_queue_restore(queue), 0);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
}
