/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptors of a queue: what makes which of the two readable, and what does not any more.
 */
#include "client/waker.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/test.h"

static bool is_readable(int fd, int wait_ms)
{
	struct pollfd fds = {.fd = fd, .events = POLLIN};

	return poll(&fds, 1, wait_ms) == 1;
}

static void check(const struct waker *waker, bool app, bool flush)
{
	CHECK_INT(is_readable(waker->app_fd, 0), app);
	CHECK_INT(is_readable(waker->flush_fd, 0), flush);
}

TEST(waker__done_is_for_the_application_and_idle_for_flushes)
{
	struct waker waker;

	CHECK_INT(waker_init(&waker), 0);
	check(&waker, false, false);
	waker_take_done(&waker);
	waker_take_idle(&waker);
	waker_say_done(&waker);
	check(&waker, true, false);
	waker_say_done(&waker);
	waker_say_idle(&waker);
	check(&waker, true, true);
	/* Said twice, taken once. */
	waker_take_done(&waker);
	check(&waker, false, true);
	waker_say_idle(&waker);
	waker_take_idle(&waker);
	check(&waker, false, false);
	waker_say_done(&waker);
	check(&waker, true, false);
	waker_deinit(&waker);
	waker_deinit(&waker);
}

TEST(waker_set_timer__wakes_both_until_it_is_set_anew)
{
	struct waker waker;

	CHECK_INT(waker_init(&waker), 0);
	CHECK_INT(waker.due_ns, UINT64_MAX);
	waker_set_timer(&waker, clock_now_ns() + 3600 * CLOCK_NS_PER_S);
	check(&waker, false, false);
	waker_set_timer(&waker, clock_now_ns() - 1);
	CHECK(is_readable(waker.app_fd, 10000));
	CHECK(is_readable(waker.flush_fd, 10000));
	waker_set_timer(&waker, UINT64_MAX);
	CHECK_INT(waker.due_ns, UINT64_MAX);
	check(&waker, false, false);
	waker_set_timer(&waker, clock_now_ns() + CLOCK_NS_PER_MS);
	CHECK(is_readable(waker.app_fd, 10000));
	CHECK(is_readable(waker.flush_fd, 10000));
	waker_deinit(&waker);
}

/* Also one of which a forked child has a copy, and so is not closed. */
TEST(waker_watch__a_channel_that_comes_and_goes)
{
	struct waker waker;
	int ends[2];
	int copy;

	CHECK_INT(waker_init(&waker), 0);
	waker_unwatch(&waker);
	CHECK_INT(pipe(ends), 0);
	copy = dup(ends[0]);
	CHECK(copy >= 0);
	CHECK_INT(waker_watch(&waker, ends[0]), 0);
	check(&waker, false, false);
	CHECK_INT(write(ends[1], "1", 1), 1);
	check(&waker, true, true);
	waker_unwatch(&waker);
	CHECK_INT(close(ends[0]), 0);
	check(&waker, false, false);
	CHECK_INT(waker_watch(&waker, -1), -EBADF);
	CHECK_INT(waker_watch(&waker, copy), 0);
	check(&waker, true, true);
	/* Its other end is gone: it is never quiet again. */
	CHECK_INT(close(ends[1]), 0);
	check(&waker, true, true);
	waker_unwatch(&waker);
	waker_unwatch(&waker);
	check(&waker, false, false);
	CHECK_INT(close(copy), 0);
	waker_deinit(&waker);
}
