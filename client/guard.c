/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices a fork by a page that the kernel gives to a child full of zeros. So it costs one read
 * of memory, holds up no fork, and sees those, too, at which no handlers run.
 *
 * Invariants: the page is made once, before the first session, and stays.
 * Thread: any.
 */
#include "client/guard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/error.h"

static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static _Atomic(volatile char *)
	guard_page;	  /* begins with 1 where sessions may be used; NULL: none yet */
static int guard_failure; /* a negative errno: why there is no page */
static _Thread_local bool guard_callback;

static void guard_make_page(void)
{
	size_t len_bytes = (size_t)sysconf(_SC_PAGESIZE);
	char *page =
		mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED) {
		guard_failure = -errno;
		return;
	}
	if (madvise(page, len_bytes, MADV_WIPEONFORK) != 0) {
		guard_failure = -errno;
		(void)munmap(page, len_bytes);
		return;
	}
	page[0] = 1;
	atomic_store(&guard_page, page);
}

bool guard_in_child(void)
{
	const volatile char *page = atomic_load(&guard_page);

	return page != NULL && page[0] == 0;
}

bool guard_in_callback(void)
{
	return guard_callback;
}

void guard_enter_callback(void)
{
	guard_callback = true;
}

void guard_leave_callback(void)
{
	guard_callback = false;
}

int guard_look(void)
{
	if (guard_in_child())
		return client_error_raise(MEMPOOL_E_STATE,
					  "this process was forked from one that has had a "
					  "session; it must exec first");
	return 0;
}

int guard_call(void)
{
	if (guard_in_callback())
		return client_error_raise(MEMPOOL_E_STATE, "the call is not allowed in a callback");
	return guard_look();
}

int guard_open(void)
{
	int r = guard_call();

	if (r < 0)
		return r;
	(void)pthread_once(&guard_once, guard_make_page);
	if (guard_failure < 0)
		return client_error_raise(client_error_errno(guard_failure),
					  "cannot make a page that children do not get: %s",
					  strerrordesc_np(-guard_failure));
	return 0;
}
