/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets the pool's memory from the kernel. What is missing is found out here, by asking before
 * it is touched and by touching it in a way that returns errors: a fault that finds no page
 * would be a SIGBUS, or the end of whichever process the kernel thinks best.
 *
 * The bytes are a memfd, so that they can outlive the process one day; nothing is punched
 * out of it, advised away or forked once it is registered with a device.
 *
 * Owns the descriptor and the mapping. Thread: any, before the loop.
 */
#include "daemon/mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/units.h"
#include "daemon/service.h"

#define MAPPING_POPULATE_STEP_BYTES (UINT64_C(256) << 20)
#define MAPPING_PATH_MAX	    128
#define MAPPING_LINE_MAX	    128
#define MAPPING_NODES_MAX	    1024 /* as the configuration allows */
#define MAPPING_WORD_BITS	    (8 * sizeof(unsigned long))
#define KIB			    UINT64_C(1024)

static const struct {
	const char *name;
	uint64_t bytes; /* 0: the machine's ordinary page */
	unsigned int flags;
} mapping_kinds[] = {
	[MAPPING_PAGES_NONE] = {"", 0, 0},
	[MAPPING_PAGES_2MIB] = {"2MiB", UINT64_C(2) << 20, MFD_HUGETLB | MFD_HUGE_2MB},
	[MAPPING_PAGES_1GIB] = {"1GiB", UINT64_C(1) << 30, MFD_HUGETLB | MFD_HUGE_1GB},
};

uint64_t mapping_page_bytes(enum mapping_pages pages)
{
	uint64_t bytes = mapping_kinds[pages].bytes;

	return bytes != 0 ? bytes : (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What the kernel tells of memory. */

static bool mapping_read_line(const char *path, char *line)
{
	FILE *file = fopen(path, "re");
	bool ok;

	if (file == NULL)
		return false;
	ok = fgets(line, MAPPING_LINE_MAX, file) != NULL;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return ok;
}

/* The folder that counts huge pages of a kind; @node: of one node, or of all. */
static void mapping_huge_folder(enum mapping_pages pages, int node, char *path)
{
	uint64_t kib = mapping_page_bytes(pages) / KIB;

	if (node == MAPPING_ANY_NODE)
		snprintf(path, MAPPING_PATH_MAX, "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB",
			 kib);
	else
		snprintf(path, MAPPING_PATH_MAX,
			 "/sys/devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB", node,
			 kib);
}

/* Return: is the count there? */
static bool mapping_huge_count(enum mapping_pages pages, int node, const char *name,
			       uint64_t *ret_count)
{
	char folder[MAPPING_PATH_MAX];
	char path[MAPPING_PATH_MAX + 32];
	char line[MAPPING_LINE_MAX];

	mapping_huge_folder(pages, node, folder);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!mapping_read_line(path, line))
		return false;
	*ret_count = strtoull(line, NULL, 10);
	return true;
}

/* Pages that are free and promised to nobody. */
static bool mapping_huge_free(enum mapping_pages pages, int node, uint64_t *ret_free)
{
	uint64_t reserved = 0;

	if (!mapping_huge_count(pages, node, "free_hugepages", ret_free))
		return false;
	if (node == MAPPING_ANY_NODE)
		(void)mapping_huge_count(pages, node, "resv_hugepages", &reserved);
	*ret_free -= reserved < *ret_free ? reserved : *ret_free;
	return true;
}

/* Sum of some lines of a "meminfo"; those of a node begin with "Node N ". Return: was any there? */
static bool mapping_meminfo(const char *path, const char *const *names, uint64_t *ret_bytes)
{
	FILE *file = fopen(path, "re");
	char line[MAPPING_LINE_MAX];
	uint64_t bytes = 0;
	bool any = false;

	if (file == NULL)
		return false;
	while (fgets(line, sizeof(line), file) != NULL) {
		for (size_t i = 0; names[i] != NULL; i++) {
			const char *at = strstr(line, names[i]);

			if (at == NULL || (at != line && at[-1] != ' '))
				continue;
			bytes += strtoull(at + strlen(names[i]), NULL, 10) * KIB;
			any = true;
		}
	}
	fclose(file);
	*ret_bytes = bytes;
	return any;
}

/* At most so many bytes can be had, whatever the kernel gives up for them. */
static uint64_t mapping_free_bytes(int node)
{
	static const char *const all[] = {"MemAvailable:", "SwapFree:", NULL};
	static const char *const one[] = {"MemFree:", "FilePages:", "SReclaimable:", NULL};
	static const char *const swap[] = {"SwapFree:", NULL};
	char path[MAPPING_PATH_MAX];
	uint64_t bytes;
	uint64_t swap_bytes = 0;

	if (node == MAPPING_ANY_NODE)
		return mapping_meminfo("/proc/meminfo", all, &bytes) ? bytes : UINT64_MAX;
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
	if (!mapping_meminfo(path, one, &bytes))
		return UINT64_MAX;
	(void)mapping_meminfo("/proc/meminfo", swap, &swap_bytes);
	return bytes + swap_bytes;
}

/* Errors. */

static void mapping_place(int node, char *place)
{
	if (node == MAPPING_ANY_NODE)
		place[0] = '\0';
	else
		snprintf(place, MAPPING_LINE_MAX, " on NUMA node %d", node);
}

static int mapping_fail(const struct mapping_request *request, int r, char *error)
{
	char size[UNITS_TEXT_MAX];
	char place[MAPPING_LINE_MAX];

	mapping_place(request->numa_node, place);
	snprintf(error, MAPPING_ERROR_MAX, "cannot get %s of memory for the pool%s: %s",
		 units_format_size(request->len_bytes, size), place, strerror(-r));
	return r;
}

static int mapping_fail_node(const struct mapping_request *request, char *error)
{
	char line[MAPPING_LINE_MAX] = "none";
	char size[UNITS_TEXT_MAX];

	(void)mapping_read_line("/sys/devices/system/node/has_memory", line);
	snprintf(error, MAPPING_ERROR_MAX,
		 "cannot get %s of memory for the pool: the machine has no memory on NUMA node %d "
		 "(key 'numa_node'), but on: %s",
		 units_format_size(request->len_bytes, size), request->numa_node, line);
	return -ENODEV;
}

static int mapping_fail_kind(const struct mapping_request *request, char *error)
{
	char size[UNITS_TEXT_MAX];

	snprintf(error, MAPPING_ERROR_MAX,
		 "cannot get %s of memory for the pool: this machine has no huge pages of %s (key "
		 "'hugepages'); 'ls /sys/kernel/mm/hugepages' lists what it has",
		 units_format_size(request->len_bytes, size), mapping_kinds[request->pages].name);
	return -ENODEV;
}

static int mapping_fail_huge(const struct mapping_request *request, uint64_t free_pages,
			     char *error)
{
	uint64_t page_bytes = mapping_page_bytes(request->pages);
	uint64_t wanted = request->len_bytes / page_bytes;
	uint64_t all = 0;
	char size[UNITS_TEXT_MAX];
	char place[MAPPING_LINE_MAX];
	char folder[MAPPING_PATH_MAX];

	mapping_place(request->numa_node, place);
	mapping_huge_folder(request->pages, request->numa_node, folder);
	(void)mapping_huge_count(request->pages, request->numa_node, "nr_hugepages", &all);
	snprintf(error, MAPPING_ERROR_MAX,
		 "cannot get %s of memory for the pool: of huge pages of %s %" PRIu64
		 " are needed%s, and %" PRIu64 " of %" PRIu64 " are free; write %" PRIu64
		 " to %s/nr_hugepages%s",
		 units_format_size(request->len_bytes, size), mapping_kinds[request->pages].name,
		 wanted, place, free_pages, all,
		 all - (free_pages < all ? free_pages : all) + wanted, folder,
		 request->pages == MAPPING_PAGES_2MIB ? " (sysctl vm.nr_hugepages)"
						      : ", or boot with hugepagesz=1G hugepages=N");
	return -ENOMEM;
}

static int mapping_fail_short(const struct mapping_request *request, uint64_t free_bytes,
			      char *error)
{
	char size[UNITS_TEXT_MAX];
	char free_size[UNITS_TEXT_MAX];
	char place[MAPPING_LINE_MAX];

	mapping_place(request->numa_node, place);
	snprintf(error, MAPPING_ERROR_MAX,
		 "cannot get %s of memory for the pool: %s can be had%s; lower 'pool_size'",
		 units_format_size(request->len_bytes, size),
		 units_format_size(free_bytes / KIB * KIB, free_size), place);
	return -ENOMEM;
}

/* Before anything is touched. */
static int mapping_check(const struct mapping_request *request, char *error)
{
	uint64_t page_bytes = mapping_page_bytes(request->pages);
	uint64_t free_bytes;
	uint64_t free_pages;
	char path[MAPPING_PATH_MAX];

	if (request->len_bytes == 0 || request->len_bytes % page_bytes != 0)
		return mapping_fail(request, -EINVAL, error);
	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", request->numa_node);
	if (request->numa_node != MAPPING_ANY_NODE && access(path, F_OK) < 0)
		return mapping_fail_node(request, error);
	if (request->pages == MAPPING_PAGES_NONE) {
		free_bytes = mapping_free_bytes(request->numa_node);
		return request->len_bytes > free_bytes
			       ? mapping_fail_short(request, free_bytes, error)
			       : 0;
	}
	if (!mapping_huge_free(request->pages, request->numa_node, &free_pages))
		return mapping_fail_kind(request, error);
	return request->len_bytes / page_bytes > free_pages
		       ? mapping_fail_huge(request, free_pages, error)
		       : 0;
}

/* Getting it. */

/* Bytes that are not there yet come from this node or from nowhere. */
static int mapping_bind(uint8_t *memory, uint64_t len_bytes, int node)
{
	unsigned long mask[MAPPING_NODES_MAX / MAPPING_WORD_BITS] = {0};

	if (node == MAPPING_ANY_NODE)
		return 0;
	mask[(size_t)node / MAPPING_WORD_BITS] = 1ul << (size_t)node % MAPPING_WORD_BITS;
	/* The kernel takes one bit less than it is told. */
	if (syscall(SYS_mbind, memory, len_bytes, MPOL_BIND, mask, MAPPING_NODES_MAX + 1, 0) < 0)
		return errno == EINVAL ? -ENODEV : -errno;
	return 0;
}

/* In steps: a shortage comes back as an error here, never as SIGBUS later. */
static int mapping_populate(uint8_t *memory, uint64_t len_bytes)
{
	for (uint64_t done = 0; done < len_bytes; done += MAPPING_POPULATE_STEP_BYTES) {
		uint64_t left = len_bytes - done;
		uint64_t step =
			left < MAPPING_POPULATE_STEP_BYTES ? left : MAPPING_POPULATE_STEP_BYTES;

		service_progress("getting memory for the pool", done, len_bytes,
				 service_bytes_ms(step));
		if (madvise(memory + done, step, MADV_POPULATE_WRITE) < 0)
			return errno == EFAULT ? -ENOMEM : -errno;
	}
	return 0;
}

static int mapping_fill(const struct mapping_request *request, uint8_t *memory)
{
	int r = mapping_bind(memory, request->len_bytes, request->numa_node);

	if (r == 0)
		r = mapping_populate(memory, request->len_bytes);
	if (r == 0 && madvise(memory, request->len_bytes, MADV_DONTDUMP) < 0)
		r = -errno;
	return r;
}

/* What it was that failed, in the operator's words: somebody else may have been quicker. */
static int mapping_explain(const struct mapping_request *request, int r, char *error)
{
	uint64_t free_pages = 0;

	if (r == -ENODEV && request->numa_node != MAPPING_ANY_NODE)
		return mapping_fail_node(request, error);
	if (r == -ENOMEM && request->pages != MAPPING_PAGES_NONE) {
		(void)mapping_huge_free(request->pages, request->numa_node, &free_pages);
		return mapping_fail_huge(request, free_pages, error);
	}
	return mapping_fail(request, r, error);
}

int mapping_open(const struct mapping_request *request, struct mapping *ret_mapping, char *error)
{
	void *memory;
	int fd;
	int r = mapping_check(request, error);

	if (r < 0)
		return r;
	fd = memfd_create("mempool", MFD_CLOEXEC | mapping_kinds[request->pages].flags);
	if (fd < 0)
		return mapping_fail(request, -errno, error);
	if (ftruncate(fd, (off_t)request->len_bytes) < 0) {
		r = mapping_fail(request, -errno, error);
		goto err_close;
	}
	memory = mmap(NULL, request->len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		r = mapping_explain(request, -errno, error);
		goto err_close;
	}
	r = mapping_fill(request, memory);
	if (r < 0) {
		r = mapping_explain(request, r, error);
		goto err_unmap;
	}
	*ret_mapping = (struct mapping){
		.memory = memory,
		.len_bytes = request->len_bytes,
		.frame_bytes = mapping_page_bytes(request->pages),
		.fd = fd,
	};
	return 0;

err_unmap:
	munmap(memory, request->len_bytes);
err_close:
	close(fd);
	return r;
}

void mapping_close(struct mapping *mapping)
{
	if (mapping->memory == NULL)
		return;
	munmap(mapping->memory, mapping->len_bytes);
	close(mapping->fd);
	*mapping = (struct mapping){0};
}
