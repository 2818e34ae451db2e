/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device goes away under a running daemon, and comes back: the daemon ends with a status of
 * its own and holds up nobody, and the next one waits for the device and serves. And the other
 * things of a machine that a start may lack.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"
#include "tests/integration/machine.h"
#include "tests/integration/refused.h"

#define TTL_MS	     600000
#define LIMIT_MS     20000
#define EXIT_DEVICE  74
#define OTHER	     "10.79.0.1"
#define LEASES	     3
#define OWN_LINK     "ip link add w0 type veth peer name w1; ip link set w0 up; ip link set w1 up; "
#define ADD_DEVICE   "rdma link add rxe9 type rxe netdev w0"
#define ADD_ADDRESS  "ip addr add " OTHER "/24 dev w0"
#define WITHOUT_LOCK "exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "

static int wait_exit(struct harness *h, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	int status;

	while (waitpid(h->pid, &status, WNOHANG) != h->pid) {
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
		harness_sleep_ms(10);
	}
	h->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Another process's leases, on the same device; it must go, too, before the device can. */
static pid_t start_client(int *ret_out)
{
	char program[PATH_MAX];
	const char *argv[] = {harness_program("itest_child", program),
			      OTHER ":7471",
			      "alpha",
			      "3",
			      "8192",
			      "idle",
			      NULL};

	return harness_spawn(argv, ret_out);
}

static void end_client(pid_t pid, int out)
{
	int status;

	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	(void)close(out);
}

/* Removes the device, which the kernel does not finish before everybody has let go of it. */
static void remove_device(struct harness *h, pid_t client, int out)
{
	static const char *const argv[] = {"rdma", "link", "delete", "rxe9", NULL};
	uint64_t begun_ns = clock_now_ns();
	int removal_out;
	pid_t removal = harness_spawn(argv, &removal_out);
	int status;

	CHECK(removal > 0);
	CHECK_INT(wait_exit(h, LIMIT_MS), EXIT_DEVICE);
	printf("# ended %" PRIu64 " ms after the order to remove the device\n",
	       harness_since_ms(begun_ns));
	if (client > 0)
		end_client(client, out);
	CHECK_INT(waitpid(removal, &status, 0), removal);
	CHECK_INT(status, 0);
	(void)close(removal_out);
	CHECK(harness_log_says(h, "device lost device=rxe9"));
}

static void use_device(void)
{
	char ready[8] = "";
	pid_t client;
	int out;

	CHECK_INT(setenv("MEMPOOL_ADDRESS", OTHER, 1), 0);
	HARNESS(h, .extra = "\"device_wait\": \"1min\"");

	/* First with nobody there, then with leases. */
	remove_device(&h, 0, -1);
	CHECK(!test_has_failed());
	CHECK(machine_shell("(sleep 1; " ADD_DEVICE ") >/dev/null 2>&1 &"));
	CHECK_INT(harness_restart(&h), 0);
	CHECK(h.start_ns >= CLOCK_NS_PER_S / 2);
	CHECK_INT(log_lines_count(&h, "waiting for it wait_ms=60000"), 1);
	client = start_client(&out);
	CHECK(client > 0);
	CHECK_INT(read(out, ready, 6), 6);
	CHECK_STR(ready, "ready\n");
	CHECK_INT(harness_number(&h, "leases.active"), LEASES);
	remove_device(&h, client, out);
	CHECK(!test_has_failed());
	/* The address may come behind the device, too. */
	CHECK(machine_shell("ip addr del " OTHER "/24 dev w0; " ADD_DEVICE));
	CHECK(machine_shell("(sleep 1; " ADD_ADDRESS ") >/dev/null 2>&1 &"));
	CHECK_INT(harness_restart(&h), 0);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 0x5a;

	CHECK_INT(harness_acquire(alpha, 8192, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 8191, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(device__removed_and_added)
{
	static const struct machine_change own = {
		.make = "set -e; " OWN_LINK ADD_ADDRESS "; " ADD_DEVICE,
		.undo = "rdma link delete rxe9; ip link del w0",
	};

	machine_test(&own, "device__removed_and_added", 120000, use_device);
}

/* When the time is over the start fails as if nobody had waited. */
TEST(device__does_not_come)
{
	struct harness_options options = {
		.extra = "\"device_wait\": \"500ms\", \"device\": \"rxe9\""};
	struct harness_output output;

	CHECK_INT(refused_start(&options, NULL, &output), 0);
	refused_check(&output, 1,
		      "no RDMA device 'rxe9' (key 'device'); 'rdma link' lists what there is");
	CHECK(strstr(output.err, "waiting for an RDMA device device=rxe9") != NULL);
}

/* Told in parts, with the remedy; one byte of the limit less than needed is too little. */
TEST(memlock__too_little)
{
	struct harness_options options = {.sessions_max = 4};
	struct harness_output output;

	if (!machine_is_guest())
		SKIP("only in a test guest it is known that root's limit can be taken away");
	CHECK_INT(refused_start(&options, "ulimit -l 1024; " WITHOUT_LOCK "\"$@\"", &output), 0);
	refused_check(&output, 1, "not enough lockable memory: ");
	CHECK(strstr(output.err, "(pool 16 MiB, guard registrations 0 B, control buffers ") !=
	      NULL);
	CHECK(strstr(output.err,
		     ", 1 MiB allowed; raise LimitMEMLOCK= of the service or 'ulimit -l'") != NULL);
	/* Enough for the pool, but a device like this one needs it twice. */
	CHECK_INT(refused_start(&options, "ulimit -l 24576; " WITHOUT_LOCK "\"$@\"", &output), 0);
	refused_check(&output, 1, "(pool 16 MiB, guard registrations 16 MiB, control buffers ");
}
