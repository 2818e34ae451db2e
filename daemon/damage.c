/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGBUS for damaged memory. The handler does what may be done in one and nothing else: an
 * early report goes down a pipe to the loop; a late one goes back to whoever has said, in a
 * variable of its thread, that it can live with that.
 *
 * Owns the pipe and the handler. Thread: damage_zero() any, all else the loop's.
 */
#include "daemon/damage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/zero.h"

/* Where a thread goes on that has touched damaged memory; jump is NULL if it does not. */
struct damage_guard {
	sigjmp_buf *volatile jump;
	volatile struct damage damage;
};

static _Thread_local struct damage_guard damage_guard;
static int damage_pipe[2] = {-1, -1};
static struct sigaction damage_before;

static uint64_t damage_page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Of a signal: the kernel says how many low bits of the address mean nothing. */
static struct damage damage_of(const siginfo_t *info)
{
	struct damage damage = {.addr = (uint64_t)(uintptr_t)info->si_addr};

	damage.len_bytes = UINT64_C(1) << (info->si_addr_lsb & 63);
	damage.addr &= ~(damage.len_bytes - 1);
	return damage;
}

static void damage_on_signal(int signal_number, siginfo_t *info, void *context)
{
	struct damage damage = damage_of(info);
	int saved_errno = errno;

	(void)context;
	if (info->si_code == BUS_MCEERR_AR && damage_guard.jump != NULL) {
		damage_guard.damage.addr = damage.addr;
		damage_guard.damage.len_bytes = damage.len_bytes;
		siglongjmp(*damage_guard.jump, 1);
	}
	if (info->si_code == BUS_MCEERR_AO &&
	    write(damage_pipe[1], &damage, sizeof(damage)) == sizeof(damage)) {
		errno = saved_errno;
		return;
	}
	/* Nobody can be told, or nothing can be done: as without a handler. */
	(void)signal(signal_number, SIG_DFL);
	(void)raise(signal_number);
}

int damage_open(int *ret_fd)
{
	struct sigaction action = {.sa_sigaction = damage_on_signal,
				   .sa_flags = SA_SIGINFO | SA_RESTART};
	int r;

	if (pipe2(damage_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	(void)sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, &damage_before) < 0) {
		r = -errno;
		(void)close(damage_pipe[0]);
		(void)close(damage_pipe[1]);
		damage_pipe[0] = damage_pipe[1] = -1;
		return r;
	}
	/* A kernel that cannot do it reports late. */
	(void)prctl(PR_MCE_KILL, (unsigned long)PR_MCE_KILL_SET, (unsigned long)PR_MCE_KILL_EARLY,
		    0ul, 0ul);
	*ret_fd = damage_pipe[0];
	return 0;
}

void damage_close(void)
{
	if (damage_pipe[0] < 0)
		return;
	(void)prctl(PR_MCE_KILL, (unsigned long)PR_MCE_KILL_CLEAR, 0ul, 0ul, 0ul);
	(void)sigaction(SIGBUS, &damage_before, NULL);
	(void)close(damage_pipe[0]);
	(void)close(damage_pipe[1]);
	damage_pipe[0] = damage_pipe[1] = -1;
}

bool damage_next(struct damage *ret_damage)
{
	/* What goes in is shorter than what a pipe takes whole, so it comes out whole. */
	return read(damage_pipe[0], ret_damage, sizeof(*ret_damage)) == sizeof(*ret_damage);
}

/* Return: is it zero now? If not the thread's guard knows why. */
static bool damage_try_zero(void *memory, size_t len_bytes)
{
	sigjmp_buf jump;

	if (sigsetjmp(jump, 1) != 0) {
		damage_guard.jump = NULL;
		return false;
	}
	damage_guard.jump = &jump;
	zero_pages(memory, len_bytes);
	damage_guard.jump = NULL;
	return true;
}

static size_t damage_append(struct damage *list, size_t count, size_t cap, struct damage damage)
{
	struct damage *last = count > 0 ? &list[count - 1] : NULL;
	uint64_t end = damage.addr + damage.len_bytes;

	if (last != NULL && (damage.addr <= last->addr + last->len_bytes || count == cap)) {
		if (end > last->addr + last->len_bytes)
			last->len_bytes = end - last->addr;
		return count;
	}
	list[count] = damage;
	return count + 1;
}

size_t damage_zero(void *memory, size_t len_bytes, struct damage *ret_list, size_t cap)
{
	uint64_t begin = (uint64_t)(uintptr_t)memory;
	uint64_t page_bytes = damage_page_bytes();
	uint64_t at = begin;
	size_t count = 0;

	if (damage_try_zero(memory, len_bytes))
		return 0;
	/* In which order the bytes were written nobody has promised: page by page once more. */
	while (at < begin + len_bytes) {
		struct damage damage;

		if (damage_try_zero((void *)(uintptr_t)at, page_bytes)) {
			at += page_bytes;
			continue;
		}
		damage.addr = damage_guard.damage.addr;
		damage.len_bytes = damage_guard.damage.len_bytes;
		count = damage_append(ret_list, count, cap, damage);
		at = damage.addr + damage.len_bytes > at ? damage.addr + damage.len_bytes
							 : at + page_bytes;
	}
	return count;
}
