/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports of damaged memory, with signals made by the test itself, which the kernel allows to
 * whom they are for. The real ones are in tests/integration/itest_damage.c.
 */
#include "daemon/damage.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/zero.h"
#include "tests/unit/test.h"

#define PAGES	 16
#define BITS_2MB 21

void __real_zero_pages(void *memory, size_t len_bytes);
void __wrap_zero_pages(void *memory, size_t len_bytes);

static uint64_t page_bytes;
static uint8_t *memory;
static bool is_bad[PAGES];
static short bad_bits; /* of the address that mean nothing */

static void send_report(int code, const void *addr, short bits)
{
	siginfo_t info = {.si_signo = SIGBUS, .si_code = code};

	info.si_addr = (void *)(uintptr_t)addr;
	info.si_addr_lsb = bits;
	(void)syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info);
}

/* As the processor would: what lies before a damaged page has been written. */
void __wrap_zero_pages(void *begin, size_t len_bytes)
{
	uint64_t first = (uint64_t)((uint8_t *)begin - memory) / page_bytes;

	for (uint64_t i = first; i < first + len_bytes / page_bytes; i++) {
		if (is_bad[i])
			send_report(BUS_MCEERR_AR, memory + i * page_bytes + 8, bad_bits);
		__real_zero_pages(memory + i * page_bytes, page_bytes);
	}
}

static void start(void)
{
	page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	memory = mmap(NULL, PAGES * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	CHECK(memory != MAP_FAILED);
	memset(memory, 0xab, PAGES * page_bytes);
	memset(is_bad, 0, sizeof(is_bad));
	bad_bits = (short)__builtin_ctzll(page_bytes);
}

static void finish(void)
{
	damage_close();
	(void)munmap(memory, PAGES * page_bytes);
}

static bool is_page(uint64_t page, uint8_t value)
{
	for (uint64_t i = 0; i < page_bytes; i++) {
		if (memory[page * page_bytes + i] != value)
			return false;
	}
	return true;
}

static void check_pages(void)
{
	for (uint64_t i = 0; i < PAGES; i++)
		CHECK(is_page(i, is_bad[i] ? 0xab : 0));
}

TEST(damage_next__early_reports)
{
	struct damage damage;
	int fd;

	start();
	CHECK_INT(damage_open(&fd), 0);
	CHECK(!damage_next(&damage));
	send_report(BUS_MCEERR_AO, (void *)(uintptr_t)0x12345678, 12);
	send_report(BUS_MCEERR_AO, (void *)(uintptr_t)0x7f1234567890, BITS_2MB);
	CHECK(damage_next(&damage));
	CHECK_INT(damage.addr, 0x12345000);
	CHECK_INT(damage.len_bytes, 4096);
	CHECK(damage_next(&damage));
	CHECK_INT(damage.addr, 0x7f1234400000);
	CHECK_INT(damage.len_bytes, 2u << 20);
	CHECK(!damage_next(&damage));
	finish();
}

TEST(damage_zero__sound)
{
	struct damage list[2];
	int fd;

	start();
	CHECK_INT(damage_open(&fd), 0);
	CHECK_INT(damage_zero(memory, PAGES * page_bytes, list, 2), 0);
	check_pages();
	finish();
}

/* Each page of the list is named, and all others are zero. */
static void check_zero(const int *bad, size_t bad_count)
{
	struct damage list[4];
	int fd;

	start();
	CHECK_INT(damage_open(&fd), 0);
	for (size_t i = 0; i < bad_count; i++)
		is_bad[bad[i]] = true;
	CHECK_INT(damage_zero(memory, PAGES * page_bytes, list, 4), bad_count);
	for (size_t i = 0; i < bad_count; i++) {
		CHECK_INT(list[i].addr - (uint64_t)(uintptr_t)memory,
			  (uint64_t)bad[i] * page_bytes);
		CHECK_INT(list[i].len_bytes, page_bytes);
	}
	check_pages();
	/* And nothing of it is told a second time. */
	CHECK(!damage_next(&list[0]));
	finish();
}

TEST(damage_zero__single_pages)
{
	check_zero((const int[]){0}, 1);
	check_zero((const int[]){7}, 1);
	check_zero((const int[]){PAGES - 1}, 1);
	check_zero((const int[]){0, 2, 9, PAGES - 1}, 4);
}

/* Neighbours are one range, and what there is no room for is added to the last. */
TEST(damage_zero__ranges)
{
	struct damage list[2];
	int fd;

	start();
	CHECK_INT(damage_open(&fd), 0);
	is_bad[3] = is_bad[4] = is_bad[5] = true;
	CHECK_INT(damage_zero(memory, PAGES * page_bytes, list, 2), 1);
	CHECK_INT(list[0].addr - (uint64_t)(uintptr_t)memory, 3 * page_bytes);
	CHECK_INT(list[0].len_bytes, 3 * page_bytes);
	check_pages();
	is_bad[8] = is_bad[12] = true;
	CHECK_INT(damage_zero(memory, PAGES * page_bytes, list, 2), 2);
	CHECK_INT(list[1].addr - (uint64_t)(uintptr_t)memory, 8 * page_bytes);
	CHECK_INT(list[1].len_bytes, 5 * page_bytes);
	finish();
}

/* A huge page is damaged as a whole: what lies in it is not tried again. */
TEST(damage_zero__huge_page)
{
	struct damage list[2];
	int fd;

	start();
	CHECK_INT(damage_open(&fd), 0);
	is_bad[6] = true;
	bad_bits = BITS_2MB;
	CHECK_INT(damage_zero(memory, PAGES * page_bytes, list, 2), 1);
	CHECK_INT(list[0].len_bytes, 2u << 20);
	CHECK_INT(list[0].addr % (2u << 20), 0);
	CHECK(list[0].addr <= (uint64_t)(uintptr_t)memory + 6 * page_bytes);
	for (uint64_t i = 0; i < 6; i++)
		CHECK(is_page(i, 0));
	CHECK(is_page(6, 0xab));
	finish();
}

/* Return: the signal that ends a process which gets such a report; 0: it has lived on. */
static int ends_by(int code)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int fd;

		if (damage_open(&fd) < 0)
			_exit(1);
		send_report(code, memory, 12);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		abort();
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

/* What nobody has said that they can live with ends the process, as without a handler. */
TEST(damage_open__other_faults)
{
	start();
	CHECK_INT(ends_by(BUS_MCEERR_AO), 0);
	CHECK_INT(ends_by(BUS_MCEERR_AR), SIGBUS);
	CHECK_INT(ends_by(BUS_ADRERR), SIGBUS);
	finish();
}

/* No report is lost: one that finds the pipe full ends the process. */
TEST(damage_open__too_many_reports)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int fd;

		if (damage_open(&fd) < 0)
			_exit(1);
		for (int i = 0; i < 100000; i++)
			send_report(BUS_MCEERR_AO, NULL, 12);
		_exit(0);
	}
	CHECK(pid > 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
	CHECK_INT(WTERMSIG(status), SIGBUS);
}

TEST(damage_close__not_open)
{
	damage_close();
}
