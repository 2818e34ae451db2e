/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that are renewed by themselves, and the local deadline of those that are not: what
 * comes after it never reaches the wire, and what would is refused there.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/proof.h"
#include "tests/integration/told.h"

#define PAGE	  4096
#define LIMIT_MS  20000
#define MANY	  50
#define SHORT_MS  2400
#define PERIODS	  4
#define LONGER_MS (PERIODS * SHORT_MS)

static void check_alive(mempool_lease **leases, int count)
{
	uint8_t byte;

	for (int i = 0; i < count; i++)
		CHECK_INT(mempool_read(leases[i], 0, &byte, 1), 0);
}

TEST(renewal__leases_outlive_their_time)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *leases[MANY];
	uint64_t begun_ns;
	unsigned int renewals;

	for (int i = 0; i < MANY; i++)
		CHECK_INT(told_acquire(alpha, PAGE, SHORT_MS, MEMPOOL_AUTO_RENEW, &leases[i]), 0);
	begun_ns = clock_now_ns();
	while (harness_since_ms(begun_ns) < LONGER_MS && !test_has_failed()) {
		check_alive(leases, MANY);
		harness_sleep_ms(50);
	}
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "leases.active"), MANY);
	renewals = harness_count_log(&h, "event=lease-renewed", NULL);
	printf("# %u renewals of %d leases in %d times their time\n", renewals, MANY, PERIODS);
	/* At three to five eighths: about twice in each time, and not without end. */
	CHECK(renewals >= MANY * (PERIODS - 1));
	CHECK(renewals <= MANY * PERIODS * 3);
	CHECK(told_nothing(alpha, 0));
	for (int i = 0; i < MANY; i++)
		CHECK_INT(mempool_release(leases[i]), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Programs that were built before there were flags, and options that nobody knows. */
TEST(acquire__options)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_acquire_opts opts = {
		.size = 24,
		.ttl_ms = SHORT_MS,
		.rights = MEMPOOL_READ,
		.flags = MEMPOOL_AUTO_RENEW, /* beyond the size that is said */
		.reserved = 1,
	};
	mempool_lease *lease = NULL;

	CHECK_INT(mempool_acquire(alpha, PAGE, &opts, &lease), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_EXPIRING, LIMIT_MS, NULL));
	CHECK_INT(mempool_release(lease), 0);
	lease = NULL;
	opts.size = sizeof(opts);
	CHECK_INT(mempool_acquire(alpha, PAGE, &opts, &lease), MEMPOOL_E_INVALID);
	opts.reserved = 0;
	opts.flags = MEMPOOL_AUTO_RENEW | 2;
	CHECK_INT(mempool_acquire(alpha, PAGE, &opts, &lease), MEMPOOL_E_INVALID);
	opts.flags = 0;
	for (opts.size = 0; opts.size < sizeof(opts); opts.size++) {
		if (opts.size != 24)
			CHECK_INT(mempool_acquire(alpha, PAGE, &opts, &lease), MEMPOOL_E_INVALID);
	}
	CHECK(lease == NULL);
	CHECK_INT(mempool_auto_renew(NULL, 1000), MEMPOOL_E_INVALID);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* On from now, off from now: then it is told what is coming, and when it has come. */
TEST(renewal__switched_on_and_off)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *lease;
	uint64_t id;

	CHECK_INT(told_acquire(alpha, PAGE, SHORT_MS, 0, &lease), 0);
	id = harness_lease_id(lease);
	CHECK_INT(mempool_auto_renew(lease, SHORT_MS), 0);
	harness_sleep_ms(2 * SHORT_MS);
	check_alive(&lease, 1);
	CHECK(told_nothing(alpha, 0));
	CHECK_INT(mempool_auto_renew(lease, 0), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_EXPIRING, LIMIT_MS, &event));
	CHECK(event.lease == lease);
	CHECK_INT(event.lease_id, id);
	CHECK(event.left_ms > 0 && event.left_ms <= SHORT_MS / 4);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK_INT(event.lease_id, id);
	CHECK_INT(event.code, MEMPOOL_E_EXPIRED);
	CHECK_INT(mempool_auto_renew(lease, SHORT_MS), MEMPOOL_E_EXPIRED);
	CHECK(told_nothing(alpha, 100));
	CHECK_INT(mempool_release(lease), MEMPOOL_E_EXPIRED);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* A daemon that does not answer for a while: it is asked again, and the lease lives. */
TEST(renewal__daemon_stands_still)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	__attribute__((cleanup(machine_resume))) pid_t pid = h.pid;
	mempool_lease *lease;

	CHECK_INT(told_acquire(alpha, PAGE, 4000, MEMPOOL_AUTO_RENEW, &lease), 0);
	CHECK_INT(kill(pid, SIGSTOP), 0);
	harness_sleep_ms(3000);
	check_alive(&lease, 1);
	CHECK_INT(kill(pid, SIGCONT), 0);
	harness_sleep_ms(4000);
	check_alive(&lease, 1);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "leases.active"), 1);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Switched off, or to a shorter time, while the daemon is being asked: what it grants counts. */
TEST(renewal__changed_while_it_is_asked_for)
{
	static const uint64_t later_ms[] = {0, 300};
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	__attribute__((cleanup(machine_resume))) pid_t pid = h.pid;
	struct mempool_lease_info info = {.size = sizeof(info)};
	mempool_lease *lease;
	uint64_t begun_ns;
	bool asked;

	for (int i = 0; i < 2; i++) {
		CHECK_INT(told_acquire(alpha, PAGE, 8000, MEMPOOL_AUTO_RENEW, &lease), 0);
		CHECK_INT(kill(pid, SIGSTOP), 0);
		begun_ns = clock_now_ns();
		asked = false;
		while (!asked && harness_since_ms(begun_ns) < LIMIT_MS) {
			(void)pthread_mutex_lock(&alpha->lock);
			asked = lease->renewal.asked;
			(void)pthread_mutex_unlock(&alpha->lock);
		}
		CHECK(asked);
		CHECK_INT(mempool_auto_renew(lease, later_ms[i]), 0);
		CHECK_INT(kill(pid, SIGCONT), 0);
		begun_ns = clock_now_ns();
		while (asked && harness_since_ms(begun_ns) < LIMIT_MS) {
			(void)pthread_mutex_lock(&alpha->lock);
			asked = lease->renewal.asked;
			(void)pthread_mutex_unlock(&alpha->lock);
		}
		CHECK(!asked);
		CHECK_INT(mempool_lease_info(lease, &info), 0);
		printf("# %" PRIu64 " ms left\n", info.ttl_left_ms);
		CHECK(info.ttl_left_ms > 5000);
		check_alive(&lease, 1);
		CHECK_INT(mempool_release(lease), 0);
	}
	harness_close(&alpha);
	accounts_finish(&h);
}

/* What the daemon refuses does not come about: the application is told in time. */
TEST(renewal__refused)
{
	HARNESS(h, .ttl_max = "1min");
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *lease;

	CHECK_INT(told_acquire(alpha, PAGE, SHORT_MS, 0, &lease), 0);
	CHECK_INT(mempool_auto_renew(lease, 60001), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_EXPIRING, LIMIT_MS, &event));
	check_alive(&lease, 1);
	CHECK_INT(harness_count_log(&h, "event=lease-renewed", NULL), 0);
	/* There is time yet. */
	CHECK_INT(mempool_renew(lease, SHORT_MS), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_EXPIRING, LIMIT_MS, &event));
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_EXPIRED);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_EXPIRED);
	harness_close(&alpha);
	accounts_finish(&h);
}

static void wait_until_all_are_asked_for(mempool *pool, mempool_lease **leases)
{
	uint64_t begun_ns = clock_now_ns();
	int asked = 0;

	while (asked < MANY && harness_since_ms(begun_ns) < LIMIT_MS) {
		asked = 0;
		(void)pthread_mutex_lock(&pool->lock);
		for (int i = 0; i < MANY; i++)
			asked += leases[i]->renewal.asked ? 1 : 0;
		(void)pthread_mutex_unlock(&pool->lock);
	}
	CHECK_INT(asked, MANY);
}

static void *resume_soon(void *arg)
{
	harness_sleep_ms(100);
	machine_resume(arg);
	return NULL;
}

/* Answers that come when the leases are given up already; and when the session is being closed. */
TEST(renewal__in_flight_when_released)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	__attribute__((cleanup(machine_resume))) pid_t pid = h.pid;
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = 4000,
		.rights = MEMPOOL_READ,
		.flags = MEMPOOL_AUTO_RENEW,
	};
	mempool_lease *leases[MANY];
	pthread_t thread;

	for (int round = 0; round < 2; round++) {
		CHECK_INT(mempool_acquire_many(alpha, PAGE, &opts, MANY, leases), 0);
		CHECK_INT(kill(pid, SIGSTOP), 0);
		wait_until_all_are_asked_for(alpha, leases);
		CHECK(!test_has_failed());
		CHECK_INT(pthread_create(&thread, NULL, resume_soon, &pid), 0);
		if (round == 0)
			CHECK_INT(mempool_release_many(leases, MANY), 0);
		else
			harness_close(&alpha);
		CHECK_INT(pthread_join(thread, NULL), 0);
	}
	accounts_finish(&h);
}

/*
 * The daemon stands still, so it does not end the lease, and its device goes on to honour the
 * key. The library does not use it any more all the same.
 */
TEST(deadline__nothing_reaches_the_wire_after_it)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	__attribute__((cleanup(machine_resume))) pid_t pid = h.pid;
	struct mempool_lease_info info = {.size = sizeof(info)};
	struct message_descriptor at;
	uint8_t before = 0x5a, after = 0xa5;
	uint64_t asked_ns, begun_ns = 0, last_ns;
	mempool_lease *lease;
	int r;

	asked_ns = clock_now_ns();
	CHECK_INT(told_acquire(alpha, PAGE, SHORT_MS, 0, &lease), 0);
	at = proof_descriptor(lease);
	CHECK_INT(kill(pid, SIGSTOP), 0);
	do {
		last_ns = begun_ns;
		begun_ns = clock_now_ns();
		r = mempool_write(lease, 0, &before, 1);
	} while (r == 0);
	CHECK_INT(r, MEMPOOL_E_EXPIRED);
	printf("# the last began %.1f ms before the time is over\n",
	       SHORT_MS - (double)(last_ns - asked_ns) / 1e6);
	/* Before the lease is over for the daemon, but not much. */
	CHECK(last_ns - asked_ns < SHORT_MS * CLOCK_NS_PER_MS);
	CHECK(clock_now_ns() - asked_ns > (SHORT_MS - 100) * CLOCK_NS_PER_MS);
	harness_sleep_ms(300);
	for (int i = 0; i < 3; i++)
		CHECK_INT(mempool_write(lease, 0, &after, 1), MEMPOOL_E_EXPIRED);
	CHECK_INT(mempool_read(lease, 0, &after, 1), MEMPOOL_E_EXPIRED);
	CHECK_INT(mempool_lease_info(lease, &info), 0);
	CHECK_INT(info.ttl_left_ms, 0);
	/* The lane has seen none of it, and the key opens the bytes yet: the first were the last. */
	CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_READ, 1, at.remote_addr, at.rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(*lane_slot(pool_lane(alpha), 0), before);
	CHECK_INT(kill(pid, SIGCONT), 0);
	CHECK(harness_wait_lease_gone(&h, info.id, LIMIT_MS));
	CHECK_INT(mempool_release(lease), MEMPOOL_E_EXPIRED);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* The other end of it: with the library's check passed by, the device refuses. */
TEST(deadline__device_refuses_after_it)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	struct message_descriptor at;
	mempool_lease *lease;

	CHECK_INT(told_acquire(alpha, PAGE, SHORT_MS, 0, &lease), 0);
	at = proof_descriptor(lease);
	CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_WRITE, 1, at.remote_addr, at.rkey),
		  IBV_WC_SUCCESS);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK(harness_wait_lease_gone(&h, event.lease_id, LIMIT_MS));
	CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_WRITE, 1, at.remote_addr, at.rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_EXPIRED);
	harness_close(&alpha);
	accounts_finish(&h);
}
