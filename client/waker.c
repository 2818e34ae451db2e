/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What wakes those who wait for a queue. Owns all descriptors but the lane's channel, which is
 * the lane's and comes and goes with it.
 *
 * Invariants: what is said is written once until it is taken, so that nothing that goes on all
 * the time costs a system call; no one but the application's side takes "done", and none but the
 * flushes' side takes "idle".
 *
 * Thread: any that has the queue's lock; the two epolls are waited for without it.
 */
#include "client/waker.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/clock.h"

static int waker_add(int epoll_fd, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int waker_open(struct waker *waker)
{
	waker->app_fd = epoll_create1(EPOLL_CLOEXEC);
	waker->flush_fd = epoll_create1(EPOLL_CLOEXEC);
	waker->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	waker->idle_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	waker->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (waker->app_fd < 0 || waker->flush_fd < 0 || waker->done_fd < 0 || waker->idle_fd < 0 ||
	    waker->timer_fd < 0)
		return -errno;
	return 0;
}

static int waker_connect(struct waker *waker)
{
	int r = waker_add(waker->app_fd, waker->done_fd);

	if (r == 0)
		r = waker_add(waker->app_fd, waker->timer_fd);
	if (r == 0)
		r = waker_add(waker->flush_fd, waker->idle_fd);
	if (r == 0)
		r = waker_add(waker->flush_fd, waker->timer_fd);
	return r;
}

int waker_init(struct waker *waker)
{
	int r;

	*waker = (struct waker){.channel_fd = -1, .due_ns = UINT64_MAX};
	r = waker_open(waker);
	if (r == 0)
		r = waker_connect(waker);
	if (r < 0)
		waker_deinit(waker);
	return r;
}

void waker_deinit(struct waker *waker)
{
	int *fds[] = {&waker->app_fd, &waker->flush_fd, &waker->done_fd, &waker->idle_fd,
		      &waker->timer_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			(void)close(*fds[i]);
		*fds[i] = -1;
	}
}

int waker_watch(struct waker *waker, int channel_fd)
{
	int r = waker_add(waker->app_fd, channel_fd);

	if (r < 0)
		return r;
	r = waker_add(waker->flush_fd, channel_fd);
	if (r < 0) {
		(void)epoll_ctl(waker->app_fd, EPOLL_CTL_DEL, channel_fd, NULL);
		return r;
	}
	waker->channel_fd = channel_fd;
	return 0;
}

void waker_unwatch(struct waker *waker)
{
	if (waker->channel_fd < 0)
		return;
	(void)epoll_ctl(waker->app_fd, EPOLL_CTL_DEL, waker->channel_fd, NULL);
	(void)epoll_ctl(waker->flush_fd, EPOLL_CTL_DEL, waker->channel_fd, NULL);
	waker->channel_fd = -1;
}

void waker_set_timer(struct waker *waker, uint64_t due_ns)
{
	struct itimerspec timer = {0};

	/* 0 means never; a time that has passed fires at once. */
	if (due_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(due_ns / CLOCK_NS_PER_S);
		timer.it_value.tv_nsec = (long)(due_ns % CLOCK_NS_PER_S);
	}
	(void)timerfd_settime(waker->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
	waker->due_ns = due_ns;
}

static void waker_say(int fd, bool *said)
{
	uint64_t one = 1;
	ssize_t n;

	if (*said)
		return;
	n = write(fd, &one, sizeof(one));
	(void)n; /* it cannot be full */
	*said = true;
}

static void waker_take(int fd, bool *said)
{
	uint64_t value;
	ssize_t n;

	if (!*said)
		return;
	n = read(fd, &value, sizeof(value));
	(void)n; /* nothing in it is as good */
	*said = false;
}

void waker_say_done(struct waker *waker)
{
	waker_say(waker->done_fd, &waker->done);
}

void waker_take_done(struct waker *waker)
{
	waker_take(waker->done_fd, &waker->done);
}

void waker_say_idle(struct waker *waker)
{
	waker_say(waker->idle_fd, &waker->idle);
}

void waker_take_idle(struct waker *waker)
{
	waker_take(waker->idle_fd, &waker->idle);
}
