/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the pool that goes bad: the kernel is told to take a page out of use as if the
 * hardware had reported it. Its lease ends, everybody else goes on, and nobody gets the page again.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/error.h"
#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"
#include "tests/integration/machine.h"
#include "tests/integration/peer.h"
#include "tests/integration/told.h"

#define PAGE	      4096
#define TTL_MS	      600000
#define LIMIT_MS      10000
#define OFFLINE	      "/sys/devices/system/memory/hard_offline_page"
#define PAGEMAP_PFN   ((UINT64_C(1) << 55) - 1)
#define PAGEMAP_THERE (UINT64_C(1) << 63)

static bool is_possible(void)
{
	return machine_is_guest() && access(OFFLINE, W_OK) == 0;
}

/* Where the pool begins in the daemon; 0 if that cannot be found out. */
static uint64_t pool_addr(const struct harness *h)
{
	char path[64];
	char line[512];
	uint64_t addr = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)h->pid);
	file = fopen(path, "re");
	while (file != NULL && addr == 0 && fgets(line, sizeof(line), file) != NULL) {
		if (strstr(line, "/memfd:mempool") != NULL)
			addr = strtoull(line, NULL, 16);
	}
	if (file != NULL)
		fclose(file);
	return addr;
}

/* Physical page of an address of the daemon; 0 if unknown. */
static uint64_t physical_page(const struct harness *h, uint64_t addr)
{
	char path[64];
	uint64_t entry = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)h->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (pread(fd, &entry, sizeof(entry), (off_t)(addr / PAGE * sizeof(entry))) != sizeof(entry))
		entry = 0;
	close(fd);
	return (entry & PAGEMAP_THERE) != 0 ? entry & PAGEMAP_PFN : 0;
}

/* @offset_bytes: in the pool. The kernel says that a pinned page cannot go, but it is marked. */
static void damage(const struct harness *h, uint64_t offset_bytes)
{
	uint64_t addr = pool_addr(h);
	uint64_t page = addr != 0 ? physical_page(h, addr + offset_bytes) : 0;
	FILE *file = fopen(OFFLINE, "we");

	CHECK(addr != 0);
	CHECK(page != 0);
	CHECK(file != NULL);
	fprintf(file, "0x%" PRIx64, page * PAGE);
	(void)fclose(file);
}

/* Of a lease, in the pool. */
static uint64_t lease_offset(struct harness *h, uint64_t id)
{
	json_t *result = harness_call(h, "lease.list", NULL);
	uint64_t offset_bytes = UINT64_MAX;
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "leases"), i, row)
	{
		if ((uint64_t)json_integer_value(json_object_get(row, "id")) == id)
			offset_bytes =
				(uint64_t)json_integer_value(json_object_get(row, "offset_bytes"));
	}
	json_decref(result);
	return offset_bytes;
}

static void check_alive(mempool *pool)
{
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
}

TEST(damage__of_a_lease)
{
	if (!is_possible())
		SKIP("pages are damaged in a test guest only, if its kernel can");

	HARNESS(h, .pool_size = "1MiB");
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	struct mempool_event event;
	mempool_lease *hit;
	mempool_lease *spared;
	mempool_lease *most;
	uint8_t bytes[4 * PAGE];
	uint8_t read[4 * PAGE];
	uint64_t id;

	harness_fill(bytes, sizeof(bytes), 3);
	CHECK_INT(harness_acquire(alpha, 4 * PAGE, TTL_MS, &hit), 0);
	CHECK_INT(harness_acquire(beta, 4 * PAGE, TTL_MS, &spared), 0);
	CHECK_INT(mempool_write(hit, 0, bytes, sizeof(bytes)), 0);
	CHECK_INT(mempool_write(spared, 0, bytes, sizeof(bytes)), 0);
	id = harness_lease_id(hit);
	damage(&h, lease_offset(&h, id) + PAGE);
	CHECK(!test_has_failed());
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_MEMORY);
	CHECK_INT(event.lease_id, id);
	CHECK_INT(mempool_read(hit, 0, read, 1), MEMPOOL_E_MEMORY);
	CHECK_INT(mempool_release(hit), MEMPOOL_E_MEMORY);
	/* The other one knows nothing of it. */
	CHECK_INT(mempool_read(spared, 0, read, sizeof(read)), 0);
	CHECK_MEM(read, bytes, sizeof(read));
	CHECK(told_nothing(beta, 100));
	check_alive(alpha);
	/* The page is not lent again; the three beside it are. */
	CHECK(harness_wait_number(&h, "pool.dirty_bytes", 0, LIMIT_MS));
	CHECK_INT(harness_number(&h, "pool.damaged_bytes"), PAGE);
	CHECK_INT(harness_number(&h, "pool.free_bytes"), (int64_t)MIB - 4 * PAGE - PAGE);
	CHECK_INT(harness_number(&h, "counters.memory_errors"), 1);
	CHECK_INT(mempool_release(spared), 0);
	CHECK(harness_wait_number(&h, "pool.free_bytes", (int64_t)MIB - PAGE, LIMIT_MS));
	CHECK_INT(harness_acquire(alpha, MIB - PAGE, TTL_MS, &most), MEMPOOL_E_LENGTH_EXTENT);
	CHECK_INT(harness_acquire(alpha, MIB / 2, TTL_MS, &most), 0);
	CHECK_INT(mempool_read(most, 0, read, sizeof(read)), 0);
	for (size_t i = 0; i < sizeof(read); i++)
		CHECK_INT(read[i], 0);
	CHECK_INT(mempool_release(most), 0);
	harness_close(&beta);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(damage__of_free_memory)
{
	if (!is_possible())
		SKIP("pages are damaged in a test guest only, if its kernel can");

	HARNESS(h, .pool_size = "1MiB");
	SESSION(alpha, "alpha");
	mempool_lease *lease;

	damage(&h, 7 * PAGE);
	CHECK(log_lines_wait(&h, "memory of the pool is damaged", 1, LIMIT_MS));
	CHECK(harness_wait_number(&h, "pool.damaged_bytes", PAGE, LIMIT_MS));
	CHECK_INT(harness_number(&h, "pool.free_bytes"), (int64_t)MIB - PAGE);
	CHECK_INT(harness_number(&h, "pool.largest_free_bytes"), (int64_t)MIB - 8 * PAGE);
	CHECK_INT(harness_acquire(alpha, MIB - 8 * PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* A daemon that is not told early: the scrubber finds out, and lives. */
TEST(damage__met_by_the_scrubber)
{
	if (!is_possible())
		SKIP("pages are damaged in a test guest only, if its kernel can");

	HARNESS(h, .program = "mempoold-seam", .seam = "late-damage", .pool_size = "1MiB");
	SESSION(alpha, "alpha");
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, 8 * PAGE, TTL_MS, &lease), 0);
	damage(&h, lease_offset(&h, harness_lease_id(lease)) + 5 * PAGE);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.memory_errors"), 0);
	CHECK_INT(mempool_release(lease), 0);
	CHECK(harness_wait_number(&h, "counters.memory_errors", 1, LIMIT_MS));
	CHECK(harness_wait_number(&h, "pool.dirty_bytes", 0, LIMIT_MS));
	CHECK_INT(harness_number(&h, "pool.damaged_bytes"), PAGE);
	CHECK_INT(harness_number(&h, "pool.free_bytes"), (int64_t)MIB - PAGE);
	check_alive(alpha);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Is a mapping of the pool left out of dumps? */
static bool pool_is_left_out(const struct harness *h)
{
	char path[64];
	char line[512];
	bool within = false;
	bool is = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)h->pid);
	file = fopen(path, "re");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (strstr(line, "/memfd:mempool") != NULL)
			within = true;
		if (within && strncmp(line, "VmFlags:", 8) == 0) {
			is = strstr(line, " dd") != NULL;
			break;
		}
	}
	if (file != NULL)
		fclose(file);
	return is;
}

/* A shell that is killed in the same way does dump, where the machine lets it. */
static bool others_dump(void)
{
	static const char *const argv[] = {"sh", "-c", "kill -SEGV $$", NULL};
	int out;
	int status = 0;
	pid_t pid = harness_spawn(argv, &out);

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	(void)close(out);
	return WIFSIGNALED(status) && WCOREDUMP(status);
}

TEST(hygiene__no_core_dump)
{
	struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	int status = 0;

	if (!machine_is_guest())
		SKIP("where cores go is changed in a test guest only");
	CHECK_INT(setrlimit(RLIMIT_CORE, &all), 0);
	CHECK(machine_shell("echo /tmp/itest.core >/proc/sys/kernel/core_pattern"));
	CHECK(others_dump());
	CHECK_INT(unlink("/tmp/itest.core"), 0);

	HARNESS(h, .pool_size = "1MiB");
	CHECK(pool_is_left_out(&h));
	CHECK_INT(kill(h.pid, SIGSEGV), 0);
	CHECK_INT(waitpid(h.pid, &status, 0), h.pid);
	h.pid = 0;
	CHECK(WIFSIGNALED(status));
	CHECK_INT(WTERMSIG(status), SIGSEGV);
	CHECK(!WCOREDUMP(status));
	CHECK(access("/tmp/itest.core", F_OK) < 0);
}
