/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue in an event loop of the program's own: 32 operations under way at a time, with one
 * thread that never waits for a single one of them. Writes blocks to a lease, then reads them
 * back; a timer of the loop's tells how far it has got.
 *
 * usage: example-10-queue ADDRESS KEY-FILE
 */
#include <errno.h>
#include <mempool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DEPTH	    32
#define BLOCKS	    1000
#define BLOCK_BYTES 4096

struct work {
	mempool *pool;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf; /* a slot for each operation that is under way */
	char *bytes;	  /* of the slots */
	int loop;	  /* the epoll */
	int timer;
	uint32_t kind;
	uint64_t begun;
	uint64_t ended;
	uint64_t block[DEPTH]; /* which block a slot has */
	uint32_t slots[DEPTH]; /* that are free */
	uint32_t free_count;
};

static int content(uint64_t block)
{
	return 'a' + (int)(block % 26);
}

/* Operations. */

static struct mempool_op next_op(struct work *work)
{
	uint32_t slot = work->slots[--work->free_count];
	struct mempool_op op = {
		.cookie = slot,
		.lease = work->lease,
		.offset_bytes = work->begun * BLOCK_BYTES,
		.len_bytes = BLOCK_BYTES,
		.bytes = work->bytes + (size_t)slot * BLOCK_BYTES,
		.buf = work->buf,
		.kind = work->kind,
	};

	work->block[slot] = work->begun++;
	memset(op.bytes, op.kind == MEMPOOL_OP_WRITE ? content(work->block[slot]) : 0, BLOCK_BYTES);
	return op;
}

/* As many as there are slots for, with one call, and so with one doorbell. */
static int submit(struct work *work)
{
	struct mempool_op ops[DEPTH];
	size_t count = 0;
	size_t taken;

	while (work->free_count > 0 && work->begun < BLOCKS)
		ops[count++] = next_op(work);
	/* The queue has room for DEPTH, so it takes them all. */
	return count == 0 ? 0 : mempool_submit(work->queue, ops, count, &taken);
}

/*
 * Return: 0, a code, or 1: other bytes than were written. After MEMPOOL_E_LANE a program that is
 * to go on calls mempool_queue_restore(), and submits the operation once more.
 */
static int finish(struct work *work, const struct mempool_completion *completion)
{
	uint32_t slot = (uint32_t)completion->cookie;
	const char *bytes = work->bytes + (size_t)slot * BLOCK_BYTES;

	if (completion->code != 0) {
		fprintf(stderr, "block %llu: error %d: %s\n", (unsigned long long)work->block[slot],
			(int)completion->code, mempool_error_text(completion->code));
		return completion->code;
	}
	for (size_t i = 0; i < BLOCK_BYTES; i++) {
		if (bytes[i] != content(work->block[slot]))
			return 1;
	}
	work->slots[work->free_count++] = slot;
	work->ended++;
	return 0;
}

/* Until there is nothing more to report; only then is it right to arm, and to wait. */
static int drain_and_arm(struct work *work)
{
	struct mempool_completion completions[DEPTH];
	size_t count = 0;
	int r;

	do {
		r = mempool_poll(work->queue, completions, DEPTH, &count);
		for (size_t i = 0; i < count && r == 0; i++)
			r = finish(work, &completions[i]);
		if (r == 0)
			r = submit(work);
	} while (r == 0 && count > 0);
	return r == 0 ? mempool_queue_arm(work->queue) : r;
}

/* The loop. */

static int watch(const struct work *work, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};

	return epoll_ctl(work->loop, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : MEMPOOL_E_SYSTEM;
}

static void tell(const struct work *work)
{
	uint64_t times;

	if (read(work->timer, &times, sizeof(times)) == sizeof(times))
		fprintf(stderr, "%llu of %d blocks\n", (unsigned long long)work->ended, BLOCKS);
}

static int turn(struct work *work)
{
	struct epoll_event events[2];
	int n = epoll_wait(work->loop, events, 2, -1);
	int r = n < 0 && errno != EINTR ? MEMPOOL_E_SYSTEM : 0;

	for (int i = 0; i < n && r == 0; i++) {
		if (events[i].data.fd == work->timer)
			tell(work);
		else
			r = drain_and_arm(work);
	}
	return r;
}

static int run(struct work *work, uint32_t kind)
{
	int r;

	work->kind = kind;
	work->begun = 0;
	work->ended = 0;
	/* Once before waiting for the first time: this submits the first operations. */
	r = drain_and_arm(work);
	while (r == 0 && work->ended < BLOCKS)
		r = turn(work);
	return r;
}

/* What it takes. */

static int open_loop(struct work *work)
{
	struct itimerspec each_second = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = 1}};
	int r;

	work->loop = epoll_create1(EPOLL_CLOEXEC);
	work->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (work->loop < 0 || work->timer < 0 ||
	    timerfd_settime(work->timer, 0, &each_second, NULL) < 0)
		return MEMPOOL_E_SYSTEM;
	r = watch(work, mempool_queue_fd(work->queue));
	return r == 0 ? watch(work, work->timer) : r;
}

static int prepare(struct work *work)
{
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
	};
	struct mempool_queue_opts how = {.size = sizeof(how), .depth = DEPTH};
	int r;

	r = mempool_acquire(work->pool, BLOCKS * BLOCK_BYTES, &what, &work->lease);
	if (r == 0)
		r = mempool_buf_alloc(work->pool, DEPTH * BLOCK_BYTES, 0, &work->buf);
	if (r == 0)
		r = mempool_queue_create(work->pool, &how, &work->queue);
	if (r == 0)
		r = mempool_queue_attach(work->queue, work->lease);
	if (r < 0) {
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
		return r;
	}
	work->bytes = mempool_buf_bytes(work->buf);
	while (work->free_count < DEPTH) {
		work->slots[work->free_count] = work->free_count;
		work->free_count++;
	}
	return open_loop(work);
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct work work = {.loop = -1, .timer = -1};
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE\n", argv[0]);
		return 2;
	}
	who.key_file = argv[2];
	r = mempool_connect(argv[1], &who, &work.pool);
	if (r < 0) {
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
		return 1;
	}
	r = prepare(&work);
	if (r == 0)
		r = run(&work, MEMPOOL_OP_WRITE);
	if (r == 0)
		r = run(&work, MEMPOOL_OP_READ);
	if (r == 0)
		printf("%d blocks there and back, %d at a time\n", BLOCKS, DEPTH);
	else
		fprintf(stderr, "it has failed: %d\n", r);
	/* The descriptor of the queue is the queue's; ours are closed first. */
	if (work.loop >= 0)
		(void)close(work.loop);
	if (work.timer >= 0)
		(void)close(work.timer);
	/* What is under way is cut off here; before that nothing may be freed. */
	mempool_queue_destroy(work.queue);
	(void)mempool_buf_free(work.buf);
	(void)mempool_release(work.lease);
	mempool_close(work.pool);
	return r == 0 ? 0 : 1;
}
