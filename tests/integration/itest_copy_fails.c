/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempool-cp with a real daemon when something happens on the way: signals, daemons that do not
 * answer, leases that end. What fails on the way in leaves nothing behind, and what was copied in
 * stays whatever becomes of the way back.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tools/token_file.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/place.h"
#include "tests/integration/programs.h"

#define LIMIT_MS 90000
#define STOP_MS	 10000 /* from a signal to the end */
#define GRACE	 "\"orphan_grace\": \"1min\""

static struct harness_output output;

#define RUN(place, name, ...) programs_run(place, name, PROGRAMS_ARGS(__VA_ARGS__), &output)

/* A source from which nothing comes, and which does not end. Return: its descriptor. */
static int make_silent(const struct place *place)
{
	char path[PLACE_TEXT_MAX];

	if (mkfifo(place_path(place, "in", path), 0600) != 0)
		return -errno;
	return open(path, O_RDWR | O_CLOEXEC);
}

/* From "in" to a lease. Return: pid or -errno. */
static pid_t spawn_put(const struct place *place, const char *ttl, const char *timeout,
		       int *ret_out)
{
	char in[PLACE_TEXT_MAX], lease[PLACE_TEXT_MAX];

	place_path(place, "in", in);
	programs_lease(place, lease);
	return programs_spawn(place, "mempool-cp",
			      PROGRAMS_ARGS("--ttl", ttl, "--timeout", timeout, in, lease),
			      ret_out);
}

/* Half of it has come, and no more will: it gives back what it has. */
TEST(cp__stopped_by_a_signal)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	int fifo = make_silent(&place);
	int out;
	pid_t pid;

	CHECK(fifo >= 0);
	CHECK_INT(write(fifo, "some bytes", 10), 10);
	pid = spawn_put(&place, "10min", "60s", &out);
	CHECK(pid > 0);
	CHECK(harness_wait_number(&h, "leases.active", 1, 30000));
	CHECK(programs_has_token(&place));
	CHECK_INT(kill(pid, SIGTERM), 0);
	CHECK_INT(programs_end(pid, out, STOP_MS), 1);
	close(fifo);
	CHECK(!programs_has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

/* How long it takes from its start until it waits for its source; 0: it failed. */
static uint64_t measure_put(struct harness *h, const struct place *place)
{
	uint64_t begun_ns = clock_now_ns();
	uint64_t whole_ms;
	int out;
	pid_t pid = spawn_put(place, "10min", "60s", &out);

	if (pid < 0 || !harness_wait_number(h, "leases.active", 1, 30000))
		return 0;
	whole_ms = harness_since_ms(begun_ns) + 1;
	(void)kill(pid, SIGTERM);
	return programs_end(pid, out, STOP_MS) == 1 ? whole_ms : 0;
}

TEST(cp__stopped_at_any_moment)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	uint32_t rounds = harness_figure(FIGURE_SIGNALS);
	uint32_t in_order = 0;
	int fifo = make_silent(&place);
	uint64_t whole_ms;

	CHECK(fifo >= 0);
	whole_ms = measure_put(&h, &place);
	CHECK(whole_ms > 0);
	for (uint32_t i = 1; i <= rounds; i++) {
		int number = i % 2 == 0 ? SIGTERM : SIGHUP;
		int out, status;
		pid_t pid = spawn_put(&place, "10min", "60s", &out);

		CHECK(pid > 0);
		harness_sleep_ms(whole_ms * i / rounds);
		CHECK_INT(kill(pid, number), 0);
		status = programs_end(pid, out, STOP_MS);
		/* Before it knows of signals it has nothing that could be left behind. */
		CHECK(status == 1 || status == 128 + number);
		in_order += status == 1;
		CHECK(!programs_has_token(&place));
		CHECK(harness_wait_number(&h, "sessions", 0, 10000));
		CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	}
	close(fifo);
	printf("# %u of %u ended in order, within %" PRIu64 " ms\n", in_order, rounds, whole_ms);
	CHECK(in_order > 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* As a shell starts it in the background; nohup does the same with another signal. */
TEST(cp__a_signal_that_was_ignored_before)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	int fifo = make_silent(&place);
	void (*before)(int);
	int out;
	pid_t pid;

	CHECK(fifo >= 0);
	before = signal(SIGINT, SIG_IGN);
	CHECK(before != SIG_ERR);
	pid = spawn_put(&place, "10min", "60s", &out);
	CHECK(signal(SIGINT, before) != SIG_ERR);
	CHECK(pid > 0);
	CHECK(harness_wait_number(&h, "leases.active", 1, 30000));
	CHECK_INT(kill(pid, SIGINT), 0);
	CHECK_INT(write(fifo, "some bytes", 10), 10);
	close(fifo);
	CHECK_INT(programs_end(pid, out, LIMIT_MS), 0);
	CHECK(harness_wait_number(&h, "leases.orphaned", 1, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

/*
 * The daemon says nothing for longer than a call waits, just when the lease is to be renewed: it
 * lasts for longer than that, and is renewed later.
 */
TEST(cp__a_renewal_that_fails)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	int fifo = make_silent(&place);
	int out;
	pid_t pid;

	CHECK(fifo >= 0);
	pid = spawn_put(&place, "12s", "1s", &out);
	CHECK(pid > 0);
	CHECK(harness_wait_number(&h, "counters.leases_granted", 1, 30000));
	CHECK_INT(kill(h.pid, SIGSTOP), 0);
	harness_sleep_ms(6600);
	CHECK_INT(kill(h.pid, SIGCONT), 0);
	CHECK_INT(write(fifo, "some bytes", 10), 10);
	close(fifo);
	CHECK_INT(programs_end(pid, out, LIMIT_MS), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Nothing is waited for when there is no lease any more that it could be copied to. */
TEST(cp__a_lease_that_is_taken_back_before_anything_comes)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	int fifo = make_silent(&place);
	int out;
	pid_t pid;

	CHECK(fifo >= 0);
	pid = spawn_put(&place, "10min", "60s", &out);
	CHECK(pid > 0);
	CHECK(harness_wait_number(&h, "leases.active", 1, 30000));
	CHECK_INT(harness_order(&h, "lease.revoke",
				json_pack("{s:s, s:b}", "tenant", "alpha", "now", 1), NULL),
		  0);
	CHECK_INT(programs_end(pid, out, STOP_MS), 1);
	close(fifo);
	CHECK(!programs_has_token(&place));
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

/* Its file is made before the daemon is asked for anything. */
static bool wait_token(const struct place *place)
{
	for (int i = 0; i < 10000 && !programs_has_token(place); i++)
		harness_sleep_ms(2);
	return programs_has_token(place);
}

/* More comes than the file had when its length was looked at; only --size is a limit. */
TEST(cp__a_file_that_grows)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], out_path[PLACE_TEXT_MAX];
	int out;
	pid_t pid;

	CHECK_INT(place_write(&place, "in", 1000, 13), 0);
	CHECK_INT(kill(h.pid, SIGSTOP), 0);
	pid = spawn_put(&place, "10min", "60s", &out);
	CHECK(pid > 0);
	CHECK(wait_token(&place));
	harness_sleep_ms(300);
	CHECK_INT(place_write(&place, "in", 2 * MIB, 13), 0);
	CHECK_INT(kill(h.pid, SIGCONT), 0);
	CHECK_INT(programs_end(pid, out, LIMIT_MS), 0);
	programs_lease(&place, lease);
	CHECK_INT(RUN(&place, "mempool-cp", lease, place_path(&place, "out", out_path)), 0);
	CHECK_INT(place_holds(&place, "out", 2 * MIB, 13), 1);
	CHECK_INT(harness_stop(&h), 0);
}

static void leave_token(const struct place *place, mempool_lease *lease)
{
	struct mempool_lease_token token;
	char path[PLACE_TEXT_MAX];
	int fd = token_file_create(place_path(place, "token", path));

	CHECK(fd >= 0);
	CHECK_INT(mempool_lease_token(lease, &token), 0);
	CHECK_INT(token_file_write(fd, &token), 0);
	close(fd);
}

/*
 * The daemon gives the lease to whoever comes back for it, but only when the session that has it
 * is fenced off, and that takes longer than the first one waits: the seam keeps back the
 * completion of the first invalidate. The lease is his then, and must not end with him.
 */
TEST(cp__back_in_vain_and_again)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "lose-invalidate:1",
		.extra = GRACE ", \"completion_timeout\": \"5s\", \"quiesce_timeout\": \"1min\"");
	PLACE(place, "alpha");
	SESSION(pool, "alpha");
	char lease_text[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];
	mempool_lease *lease = NULL;
	uint8_t bytes[1000];

	harness_fill(bytes, sizeof(bytes), 15);
	CHECK_INT(harness_acquire(pool, sizeof(bytes), 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, bytes, sizeof(bytes)), 0);
	leave_token(&place, lease);
	programs_lease(&place, lease_text);
	place_path(&place, "out", out);
	CHECK_INT(RUN(&place, "mempool-cp", "--timeout", "2s", lease_text, out), 1);
	CHECK(strstr(output.err, "the lease cannot be had: error -1041") != NULL);
	CHECK(access(out, F_OK) < 0);
	CHECK_INT(RUN(&place, "mempool-cp", lease_text, out), 0);
	CHECK_INT(place_holds(&place, "out", sizeof(bytes), 15), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* The same when the daemon itself stands still at some moment. */
TEST(cp__back_from_a_daemon_that_stands_still)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char in[PLACE_TEXT_MAX], lease[PLACE_TEXT_MAX], out_path[PLACE_TEXT_MAX];
	uint32_t rounds = harness_figure(FIGURE_STANDSTILLS);
	uint64_t begun_ns, whole_ms;
	uint32_t failed = 0;

	CHECK_INT(place_write(&place, "in", 1000, 16), 0);
	place_path(&place, "out", out_path);
	programs_lease(&place, lease);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 0);
	begun_ns = clock_now_ns();
	CHECK_INT(RUN(&place, "mempool-cp", lease, out_path), 0);
	whole_ms = harness_since_ms(begun_ns) + 1;
	for (uint32_t i = 1; i <= rounds; i++) {
		int out;
		pid_t pid = programs_spawn(&place, "mempool-cp",
					   PROGRAMS_ARGS("--timeout", "1s", lease, out_path), &out);

		CHECK(pid > 0);
		harness_sleep_ms(whole_ms * i / (rounds + 1));
		CHECK_INT(kill(h.pid, SIGSTOP), 0);
		harness_sleep_ms(1200);
		CHECK_INT(kill(h.pid, SIGCONT), 0);
		failed += programs_end(pid, out, LIMIT_MS) != 0;
		CHECK_INT(RUN(&place, "mempool-cp", lease, out_path), 0);
		CHECK_INT(place_holds(&place, "out", 1000, 16), 1);
	}
	printf("# %u of %u failed; one takes %" PRIu64 " ms\n", failed, rounds, whole_ms);
	CHECK_INT(harness_stop(&h), 0);
}
