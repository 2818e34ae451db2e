/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool's memory, and what an operator is told who has too little of it. */
#include "daemon/mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/test.h"

#define MIB	   (UINT64_C(1) << 20)
#define HUGE_FREE  "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define NODE_0	   "/sys/devices/system/node/node0"
#define NO_NODE	   1023
#define TEXT_MAX   256
#define SMAPS_LINE 512

static const struct mapping nothing;

/* Opens nothing; the message is one line and names the size. */
static void check_refused(const struct mapping_request *request, int r, const char *size,
			  const char *text)
{
	struct mapping mapping = nothing;
	char error[MAPPING_ERROR_MAX] = "";

	CHECK_INT(mapping_open(request, &mapping, error), r);
	CHECK_MEM(&mapping, &nothing, sizeof(mapping));
	printf("# %s\n", error);
	CHECK(strchr(error, '\n') == NULL);
	CHECK(strlen(error) < MAPPING_ERROR_MAX - 1);
	CHECK(strstr(error, text) != NULL);
	CHECK(strstr(error, size) != NULL);
	CHECK(strstr(error, "of memory for the pool") != NULL);
}

/* Is a flag set for the mapping that begins at an address? */
static bool has_flag(const void *memory, const char *flag)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char begin[32];
	char line[SMAPS_LINE];
	bool within = false;
	bool has = false;

	snprintf(begin, sizeof(begin), "%" PRIxPTR "-", (uintptr_t)memory);
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, begin, strlen(begin)) == 0)
			within = true;
		if (within && strncmp(line, "VmFlags:", 8) == 0) {
			has = strstr(line, flag) != NULL;
			break;
		}
	}
	if (file != NULL)
		fclose(file);
	return has;
}

TEST(mapping_open__ordinary)
{
	struct mapping_request request = {.len_bytes = MIB, .numa_node = MAPPING_ANY_NODE};
	char error[MAPPING_ERROR_MAX] = "";
	struct mapping mapping;
	uint8_t byte = 0;

	CHECK_INT(mapping_open(&request, &mapping, error), 0);
	CHECK_STR(error, "");
	CHECK_INT(mapping.len_bytes, MIB);
	CHECK_INT(mapping.frame_bytes, sysconf(_SC_PAGESIZE));
	for (uint64_t i = 0; i < MIB; i++)
		byte |= mapping.memory[i];
	CHECK_INT(byte, 0);
	CHECK(has_flag(mapping.memory, " dd"));
	mapping.memory[MIB - 1] = 0x77;
	CHECK_INT(pread(mapping.fd, &byte, 1, MIB - 1), 1);
	CHECK_INT(byte, 0x77);
	mapping_close(&mapping);
	CHECK_MEM(&mapping, &nothing, sizeof(mapping));
	mapping_close(&mapping);
}

TEST(mapping_open__lengths)
{
	struct mapping_request request = {.numa_node = MAPPING_ANY_NODE};

	check_refused(&request, -EINVAL, "0", "Invalid argument");
	request.len_bytes = MIB + 1;
	check_refused(&request, -EINVAL, "1.00 MiB", "Invalid argument");
	request.len_bytes = MIB;
	request.pages = MAPPING_PAGES_2MIB;
	check_refused(&request, -EINVAL, "1 MiB", "Invalid argument");
	request.pages = MAPPING_PAGES_1GIB;
	request.len_bytes = 1026 * MIB;
	check_refused(&request, -EINVAL, "1.00 GiB", "Invalid argument");
}

/* Before the kernel looks for a process to end. */
TEST(mapping_open__more_than_there_is)
{
	struct mapping_request request = {
		.len_bytes = UINT64_C(64) << 40,
		.numa_node = MAPPING_ANY_NODE,
	};

	check_refused(&request, -ENOMEM, "64 TiB", " can be had; lower 'pool_size'");
	if (access(NODE_0 "/meminfo", R_OK) < 0)
		return;
	request.numa_node = 0;
	check_refused(&request, -ENOMEM, "64 TiB", " can be had on NUMA node 0; lower 'pool_size'");
}

TEST(mapping_open__no_such_node)
{
	struct mapping_request request = {.len_bytes = MIB, .numa_node = NO_NODE};

	check_refused(&request, -ENODEV, "1 MiB",
		      "the machine has no memory on NUMA node 1023 (key 'numa_node'), but on: ");
}

TEST(mapping_open__node)
{
	struct mapping_request request = {.len_bytes = MIB, .numa_node = 0};
	char error[MAPPING_ERROR_MAX] = "";
	struct mapping mapping;
	int r;

	if (access(NODE_0, F_OK) < 0)
		SKIP("the machine has no NUMA nodes");
	r = mapping_open(&request, &mapping, error);
	if (r == -EPERM || r == -ENOSYS)
		SKIP("a sandbox forbids mbind");
	CHECK_STR(error, "");
	CHECK_INT(r, 0);
	mapping.memory[0] = 1;
	mapping_close(&mapping);
}

/* One page more than is free. */
TEST(mapping_open__short_of_huge_pages)
{
	struct mapping_request request = {
		.pages = MAPPING_PAGES_2MIB,
		.numa_node = MAPPING_ANY_NODE,
	};
	FILE *file = fopen(HUGE_FREE, "re");
	unsigned long free_pages = 0;
	char text[TEXT_MAX];

	if (file == NULL) {
		request.len_bytes = 2 * MIB;
		check_refused(&request, -ENODEV, "2 MiB", "has no huge pages of 2MiB");
		SKIP("the machine has no huge pages");
	}
	CHECK_INT(fscanf(file, "%lu", &free_pages), 1);
	fclose(file);
	request.len_bytes = (free_pages + 1) * 2 * MIB;
	snprintf(text, sizeof(text), ": of huge pages of 2MiB %lu are needed, and ",
		 free_pages + 1);
	check_refused(&request, -ENOMEM, "iB of memory", text);
	check_refused(&request, -ENOMEM, "are free; write ", "(sysctl vm.nr_hugepages)");
}
