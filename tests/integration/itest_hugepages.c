/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools of huge pages and on a NUMA node: leases, scrubbing and the end as ever, and a shortage
 * that is told at the start. It sets pages aside, so it runs in a test guest only.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/refused.h"

#define FOLDER_2MIB "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define FOLDER_1GIB "/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define TTL_MS	    600000
#define LIMIT_MS    20000
#define PAGES	    12 /* set aside; a pool of 16 MiB has 8 */

static long count(const char *path)
{
	FILE *file = fopen(path, "re");
	long value = -1;

	if (file == NULL)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

/* Return: how many there are then. */
static long set_aside(const char *folder, long pages)
{
	char command[HARNESS_TEXT_MAX];
	char path[HARNESS_TEXT_MAX];

	snprintf(command, sizeof(command),
		 "echo 1 >/proc/sys/vm/compact_memory; echo %ld >%snr_hugepages", pages, folder);
	(void)machine_shell(command);
	snprintf(path, sizeof(path), "%snr_hugepages", folder);
	return count(path);
}

static char *pool_text(struct harness *h, const char *name, char *buf)
{
	json_t *status = harness_call(h, "status", NULL);
	const char *text =
		json_string_value(json_object_get(json_object_get(status, "pool"), name));

	snprintf(buf, HARNESS_TEXT_MAX, "%s", text != NULL ? text : "nothing");
	json_decref(status);
	return buf;
}

/* Bytes on both sides of the border of two pages, and at the ends. */
static void use(struct harness *h, uint64_t len_bytes)
{
	SESSION(alpha, "alpha");
	static const uint64_t border = 2 * MIB;
	mempool_lease *lease;
	uint8_t written[8192];
	uint8_t read[8192];
	uint64_t nonzero;

	harness_fill(written, sizeof(written), 7);
	CHECK_INT(harness_acquire(alpha, len_bytes, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, border - 4096, written, sizeof(written)), 0);
	CHECK_INT(mempool_write(lease, len_bytes - 1, written, 1), 0);
	CHECK_INT(mempool_read(lease, border - 4096, read, sizeof(read)), 0);
	CHECK_MEM(read, written, sizeof(read));
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	if (len_bytes > 64 * MIB)
		return;
	CHECK_INT(harness_count_nonzero(h, &nonzero), 0);
	CHECK_INT(nonzero, 0);
}

/* Of System V: a headline, and a line for each. */
static int count_segments(void)
{
	FILE *file = fopen("/proc/sysvipc/shm", "re");
	int lines = 0;
	int c;

	if (file == NULL)
		return -1;
	while ((c = fgetc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines - 1;
}

TEST(hugepages__2mib)
{
	char text[HARNESS_TEXT_MAX];

	if (!machine_is_guest())
		SKIP("huge pages are set aside in a test guest only");
	CHECK_INT(set_aside(FOLDER_2MIB, PAGES), PAGES);
	CHECK_INT(count(FOLDER_2MIB "free_hugepages"), PAGES);
	{
		HARNESS(h, .extra = "\"hugepages\": \"2MiB\"");
		CHECK_STR(pool_text(&h, "hugepages", text), "2MiB");
		CHECK_INT(harness_number(&h, "pool.page_bytes"), sysconf(_SC_PAGESIZE));
		/* All are taken at once, not one by one as they are used. */
		CHECK_INT(count(FOLDER_2MIB "free_hugepages"), PAGES - 8);
		CHECK_INT(count_segments(), 0);
		use(&h, 5 * MIB);
		CHECK(!test_has_failed());
		accounts_check(&h);
		CHECK_INT(harness_stop(&h), 0);
	}
	CHECK_INT(count(FOLDER_2MIB "free_hugepages"), PAGES);
	CHECK_INT(set_aside(FOLDER_2MIB, 0), 0);
}

TEST(hugepages__too_few)
{
	struct harness_options options = {.extra = "\"hugepages\": \"2MiB\""};
	struct harness_output output;

	if (!machine_is_guest())
		SKIP("huge pages are set aside in a test guest only");
	CHECK_INT(set_aside(FOLDER_2MIB, 3), 3);
	CHECK_INT(refused_start(&options, NULL, &output), 0);
	refused_check(&output, 1,
		      "cannot get 16 MiB of memory for the pool: of huge pages of 2MiB 8 are "
		      "needed, and 3 of 3 are free; write 8 to " FOLDER_2MIB "nr_hugepages (sysctl "
		      "vm.nr_hugepages)");
	CHECK_INT(count(FOLDER_2MIB "free_hugepages"), 3);
	/* On a node likewise. */
	options.extra = "\"hugepages\": \"2MiB\", \"numa_node\": \"0\"";
	CHECK_INT(refused_start(&options, NULL, &output), 0);
	refused_check(&output, 1,
		      "of huge pages of 2MiB 8 are needed on NUMA node 0, and 3 of 3 are free");
	CHECK_INT(set_aside(FOLDER_2MIB, 0), 0);
}

/* The machine has no such pages set aside; if it can, a pool of one of them is used. */
TEST(hugepages__1gib)
{
	struct harness_options options = {
		.pool_size = "1GiB",
		.extra = "\"hugepages\": \"1GiB\"",
	};
	struct harness_output output;
	char text[HARNESS_TEXT_MAX];
	long pages;

	if (!machine_is_guest())
		SKIP("huge pages are set aside in a test guest only");
	if (access(FOLDER_1GIB, F_OK) < 0) {
		CHECK_INT(refused_start(&options, NULL, &output), 0);
		refused_check(&output, 1, "this machine has no huge pages of 1GiB");
		return;
	}
	pages = count(FOLDER_1GIB "nr_hugepages"); /* more than 0 if the guest was started so */
	if (pages == 0) {
		CHECK_INT(refused_start(&options, NULL, &output), 0);
		refused_check(
			&output, 1,
			"cannot get 1 GiB of memory for the pool: of huge pages of 1GiB 1 are "
			"needed, and 0 of 0 are free; write 1 to " FOLDER_1GIB "nr_hugepages, or "
			"boot with hugepagesz=1G hugepages=N");
		pages = set_aside(FOLDER_1GIB, 1);
	}
	if (pages < 1) {
		printf("# no gigabyte in one piece is left in the guest\n");
		return;
	}
	HARNESS(h, .pool_size = "1GiB", .extra = "\"hugepages\": \"1GiB\"");
	CHECK_STR(pool_text(&h, "hugepages", text), "1GiB");
	CHECK_INT(count(FOLDER_1GIB "free_hugepages"), pages - 1);
	use(&h, 1000 * MIB);
	CHECK_INT(harness_stop(&h), 0);
	printf("# a pool of a page of 1GiB has served\n");
	(void)set_aside(FOLDER_1GIB, 0);
}

TEST(numa_node__there_and_not_there)
{
	struct harness_options options = {.extra = "\"numa_node\": \"7\""};
	struct harness_output output;
	char text[HARNESS_TEXT_MAX];

	if (!machine_is_guest())
		SKIP("only a test guest is known to have one NUMA node");
	CHECK_INT(refused_start(&options, NULL, &output), 0);
	refused_check(&output, 1,
		      "the machine has no memory on NUMA node 7 (key 'numa_node'), but on: 0");
	HARNESS(h, .extra = "\"numa_node\": \"0\"");
	CHECK_STR(pool_text(&h, "numa_node", text), "0");
	use(&h, 5 * MIB);
	CHECK_INT(harness_stop(&h), 0);
}
