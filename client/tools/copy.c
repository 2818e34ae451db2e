/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between a file descriptor and a lease, a chunk at a time. A transfer that fails because
 * the data connection was lost is made again: reads and writes of the same bytes may be.
 *
 * Thread: one.
 */
#include "client/tools/copy.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tools/stop.h"
#include "common/checked.h"
#include "common/clock.h"
#include "common/units.h"

#define COPY_FIRST_BYTES (UINT64_C(1) << 20) /* of a lease that grows */
#define COPY_TRIES	 5		     /* of one chunk, or of a renewal */
#define COPY_AGAIN_MS	 100

static void copy_complain_file(const struct copy *copy, int error)
{
	if (stop_asked())
		(void)stop_complain();
	else
		tool_complain("%s: %s", copy->name, strerror(error));
}

static void copy_pause(void)
{
	struct timespec pause = {.tv_nsec = COPY_AGAIN_MS * (long)CLOCK_NS_PER_MS};

	(void)nanosleep(&pause, NULL);
}

/* What the daemon refuses for the moment, or did not answer. */
static bool copy_may_renew_again(int code)
{
	return code == MEMPOOL_E_TIMEOUT || code == MEMPOOL_E_QUOTA_RATE;
}

enum tool_status copy_renew(const struct copy *copy)
{
	int r;

	if (copy->ttl_ms == 0)
		return TOOL_OK;
	r = mempool_renew(copy->lease, copy->ttl_ms);
	for (int i = 1; i < COPY_TRIES && copy_may_renew_again(r) && !stop_asked(); i++) {
		copy_pause();
		r = mempool_renew(copy->lease, copy->ttl_ms);
	}
	return r < 0 ? tool_refused("the lease cannot be renewed", r) : TOOL_OK;
}

/* Is there still a lease to copy to? Return: false, and it has complained. */
static bool copy_look_at_events(const struct copy *copy)
{
	struct mempool_event event = {.size = sizeof(event)};
	int code;

	while (mempool_next_event(copy->pool, &event, 0) == 0) {
		if (event.kind != MEMPOOL_EVENT_LEASE_ENDED &&
		    event.kind != MEMPOOL_EVENT_SESSION_LOST)
			continue;
		code = event.code != 0 ? event.code : MEMPOOL_E_SESSION_LOST;
		tool_complain("the lease is lost: error %d: %s", code, mempool_error_text(code));
		return false;
	}
	return true;
}

/* The file. */

/* Nothing may come for as long as the lease is there. Return: false, and it has complained. */
static bool copy_wait_file(const struct copy *copy)
{
	struct pollfd fds[] = {
		{.fd = copy->fd, .events = POLLIN},
		{.fd = mempool_event_fd(copy->pool), .events = POLLIN},
	};
	int n;

	for (;;) {
		n = stop_asked() ? 0 : poll(fds, 2, -1);
		if (stop_asked() || (n < 0 && errno != EINTR)) {
			copy_complain_file(copy, errno);
			return false;
		}
		if (n > 0 && fds[1].revents != 0 && !copy_look_at_events(copy))
			return false;
		if (n > 0 && fds[0].revents != 0)
			return true;
	}
}

/* As much as there is room for, or all that comes. Return: false, and it has complained. */
static bool copy_read_file(struct copy *copy, size_t cap_bytes, size_t *ret_len_bytes)
{
	size_t got = 0;
	ssize_t n = 1;

	while (got < cap_bytes && n != 0) {
		if (!copy_wait_file(copy))
			return false;
		n = read(copy->fd, copy->chunk + got, cap_bytes - got);
		if (n < 0 && (stop_asked() || errno != EINTR)) {
			copy_complain_file(copy, errno);
			return false;
		}
		got += n > 0 ? (size_t)n : 0;
	}
	*ret_len_bytes = got;
	return true;
}

static bool copy_write_file(struct copy *copy, size_t len_bytes)
{
	size_t put = 0;
	ssize_t n;

	while (put < len_bytes) {
		n = stop_asked() ? -1 : write(copy->fd, copy->chunk + put, len_bytes - put);
		if (n < 0 && (stop_asked() || errno != EINTR)) {
			copy_complain_file(copy, errno);
			return false;
		}
		put += n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* The lease. */

static enum tool_status copy_transfer(struct copy *copy, bool is_write, size_t len_bytes)
{
	int r = MEMPOOL_E_LANE;

	for (int i = 0; i < COPY_TRIES && r == MEMPOOL_E_LANE && !stop_asked(); i++) {
		if (i > 0)
			copy_pause();
		r = is_write ? mempool_write(copy->lease, copy->done_bytes, copy->chunk, len_bytes)
			     : mempool_read(copy->lease, copy->done_bytes, copy->chunk, len_bytes);
	}
	if (r == 0)
		return TOOL_OK;
	if (stop_asked())
		return stop_complain();
	return tool_refused(is_write ? "the lease cannot be written" : "the lease cannot be read",
			    r);
}

static enum tool_status copy_resize(struct copy *copy, uint64_t len_bytes)
{
	int r = mempool_modify(copy->lease, len_bytes, MEMPOOL_READ | MEMPOOL_WRITE);

	if (r < 0)
		return tool_refused("the lease cannot get the length that is needed", r);
	copy->lease_bytes = len_bytes;
	return TOOL_OK;
}

/* Twice as long is best, but just long enough will do. */
static enum tool_status copy_grow(struct copy *copy, uint64_t needed_bytes)
{
	uint64_t len_bytes = copy->lease_bytes;

	if (!checked_add(len_bytes, len_bytes, &len_bytes) || len_bytes < needed_bytes)
		len_bytes = needed_bytes;
	if (mempool_modify(copy->lease, len_bytes, MEMPOOL_READ | MEMPOOL_WRITE) < 0)
		return copy_resize(copy, needed_bytes);
	copy->lease_bytes = len_bytes;
	return TOOL_OK;
}

static enum tool_status copy_acquire(struct copy *copy, uint64_t len_bytes)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = copy->ttl_ms,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
		.flags = MEMPOOL_AUTO_RENEW,
	};
	int r = mempool_acquire(copy->pool, len_bytes, &opts, &copy->lease);

	if (r < 0)
		return tool_refused("no lease", r);
	copy->lease_bytes = len_bytes;
	return TOOL_OK;
}

/* @grows: else what is longer than the lease is an error. */
static enum tool_status copy_fill(struct copy *copy, bool grows)
{
	enum tool_status status = TOOL_OK;
	size_t len_bytes = 1;

	while (len_bytes > 0) {
		if (!copy_read_file(copy, COPY_CHUNK_BYTES, &len_bytes))
			return TOOL_FAILED;
		if (len_bytes > copy->lease_bytes - copy->done_bytes) {
			if (!grows) {
				tool_complain("%s is longer than the lease", copy->name);
				return TOOL_FAILED;
			}
			status = copy_grow(copy, copy->done_bytes + len_bytes);
		}
		if (status == TOOL_OK)
			status = copy_transfer(copy, true, len_bytes);
		if (status != TOOL_OK)
			return status;
		copy->done_bytes += len_bytes;
		progress_update(&copy->progress, copy->done_bytes);
	}
	return TOOL_OK;
}

enum tool_status copy_put(struct copy *copy, uint64_t len_bytes, bool grows)
{
	enum tool_status status;

	status = copy_acquire(copy, len_bytes != 0 ? len_bytes : COPY_FIRST_BYTES);
	if (status == TOOL_OK)
		status = copy_fill(copy, grows);
	if (status != TOOL_OK)
		return status;
	if (copy->done_bytes == 0) {
		tool_complain("%s is empty, and a lease cannot be", copy->name);
		return TOOL_FAILED;
	}
	if (copy->done_bytes < copy->lease_bytes)
		status = copy_resize(copy, copy->done_bytes);
	return status;
}

/* What the daemon is about to get done passes by itself. */
static bool copy_try_again(int code)
{
	return code == MEMPOOL_E_BUSY || code == MEMPOOL_E_LANE ||
	       code == MEMPOOL_E_QUOTA_WINDOWS || code == MEMPOOL_E_QUOTA_RATE;
}

/* At once, so that a time that is refused is known before anything is copied. */
static enum tool_status copy_keep(const struct copy *copy)
{
	enum tool_status status = copy_renew(copy);
	int r;

	if (copy->ttl_ms == 0 || status != TOOL_OK)
		return status;
	r = mempool_auto_renew(copy->lease, copy->ttl_ms);
	return r < 0 ? tool_refused("the lease cannot be renewed", r) : TOOL_OK;
}

enum tool_status copy_take_over(struct copy *copy, const struct mempool_lease_token *token,
				uint32_t timeout_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), timeout_ms);
	struct mempool_lease_info info = {.size = sizeof(info)};
	int r;

	for (;;) {
		r = mempool_reattach(copy->pool, token, &copy->lease);
		if (r == 0 || !copy_try_again(r) || clock_now_ns() >= until_ns || stop_asked())
			break;
		copy_pause();
	}
	if (r < 0)
		return tool_refused("the lease cannot be had", r);
	r = mempool_lease_info(copy->lease, &info);
	if (r < 0)
		return tool_refused("the lease cannot be looked at", r);
	copy->lease_bytes = info.len_bytes;
	return copy_keep(copy);
}

enum tool_status copy_get(struct copy *copy)
{
	uint64_t left_bytes = copy->lease_bytes;
	enum tool_status status;
	size_t len_bytes;

	while (left_bytes > 0) {
		len_bytes = left_bytes < COPY_CHUNK_BYTES ? left_bytes : COPY_CHUNK_BYTES;
		status = copy_transfer(copy, false, len_bytes);
		if (status != TOOL_OK)
			return status;
		if (!copy_write_file(copy, len_bytes))
			return TOOL_FAILED;
		copy->done_bytes += len_bytes;
		left_bytes -= len_bytes;
		progress_update(&copy->progress, copy->done_bytes);
	}
	return TOOL_OK;
}
