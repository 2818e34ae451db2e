/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_WAKER_H
#define CLIENT_WAKER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The descriptors of a queue. The application waits for one of them, and flushes for another, so
 * that neither takes from the other what is to wake it. Both are epolls: of the lane's completion
 * channel, of a timer, and of an eventfd of its own. Guarded by the queue's lock.
 */
struct waker {
	int app_fd;	   /* readable if the channel, the timer or done_fd is */
	int flush_fd;	   /* readable if the channel, the timer or idle_fd is */
	int done_fd;	   /* there is something to report */
	int idle_fd;	   /* nothing is outstanding any more */
	int timer_fd;	   /* something is due */
	int channel_fd;	   /* that both watch; -1: none */
	uint64_t due_ns;   /* of the timer; UINT64_MAX: never */
	bool done;	   /* done_fd is readable */
	bool idle;	   /* idle_fd is readable */
	uint32_t flushing; /* threads that wait for flush_fd, or are about to */
};

/** waker_init() - Return: 0 or a negative errno; nothing is left open then */
int waker_init(struct waker *waker);
void waker_deinit(struct waker *waker);

/** waker_watch() - the lane has a completion channel; none was watched; Return: 0 or a negative errno */
int waker_watch(struct waker *waker, int channel_fd);

/**
 * waker_unwatch() - the channel is about to be closed; none is allowed
 *
 * A descriptor that is closed leaves an epoll only with its last copy, and a forked child may
 * have one.
 */
void waker_unwatch(struct waker *waker);

/** waker_set_timer() - @due_ns: absolute; UINT64_MAX: never */
void waker_set_timer(struct waker *waker, uint64_t due_ns);

/** waker_say_done(), waker_take_done() - make app_fd readable, or not for that reason any more */
void waker_say_done(struct waker *waker);
void waker_take_done(struct waker *waker);

/** waker_say_idle(), waker_take_idle() - the same with flush_fd */
void waker_say_idle(struct waker *waker);
void waker_take_idle(struct waker *waker);

#endif
