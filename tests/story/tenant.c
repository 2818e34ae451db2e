/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant of the pool: the public interface of the library, and the raw access that its
 * tests have.
 *
 * How long anything takes depends on the machine, so a lease that must not end meanwhile is
 * held by a thread of its own. All else happens in the thread of the story.
 */
#include "tests/story/tenant.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/story/tell.h"

#define TENANT_TIMEOUT_MS 120000 /* of one call; emulated machines are slow */

static int tenant_failure(const struct tenant *tenant, const char *what, int code)
{
	return tell_failure("%s: %s: %s (%d)", tenant->name, what, mempool_last_error(), code);
}

int tenant_connect(struct tenant *tenant, const char *name, const struct operator* op)
{
	char key_file[2 * OPERATOR_PATH_MAX];
	const struct mempool_connect_opts opts = {
		.size = sizeof(opts),
		.key_file = key_file,
		.timeout_ms = TENANT_TIMEOUT_MS,
	};
	uint64_t since_ns = clock_now_ns();
	int r;

	(void)snprintf(key_file, sizeof(key_file), "%s/%s.key", op->folder, name);
	*tenant = (struct tenant){.name = name};
	r = mempool_connect(op->uri, &opts, &tenant->pool);
	if (r < 0)
		return tenant_failure(tenant, "cannot connect", r);
	tell("%s has a session with %s after %" PRIu64 " ms", name, op->uri,
	     (clock_now_ns() - since_ns) / CLOCK_NS_PER_MS);
	return 0;
}

int tenant_acquire(struct tenant *tenant, uint64_t len_bytes, uint64_t ttl_ms, uint32_t wait_ms)
{
	const struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = ttl_ms,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
		.wait_ms = wait_ms,
	};
	struct mempool_lease_info info = {.size = sizeof(info)};
	int r;

	tenant->renewed_ns = clock_now_ns();
	r = mempool_acquire(tenant->pool, len_bytes, &opts, &tenant->lease);
	if (r < 0)
		return tenant_failure(tenant, "cannot acquire a lease", r);
	tenant->answered_ns = clock_now_ns();
	r = mempool_lease_info(tenant->lease, &info);
	if (r < 0)
		return tenant_failure(tenant, "knows nothing of its lease", r);
	tenant->id = info.id;
	tenant->len_bytes = len_bytes;
	tenant->ttl_ms = ttl_ms;
	tell("%s has lease 0x%" PRIx64 ": %" PRIu64 " bytes for %" PRIu64 " ms, granted after "
	     "%" PRIu64 " us",
	     tenant->name, info.id, len_bytes, ttl_ms,
	     (tenant->answered_ns - tenant->renewed_ns) / 1000);
	return 0;
}

int tenant_renew(struct tenant *tenant)
{
	uint64_t now_ns = clock_now_ns();
	int r;

	r = mempool_renew(tenant->lease, tenant->ttl_ms);
	if (r < 0)
		return tenant_failure(tenant, "cannot renew", r);
	tenant->renewed_ns = now_ns;
	tenant->answered_ns = clock_now_ns();
	return 0;
}

/* Ends when told so, or when there is nothing left to renew. */
static void *tenant_keeper(void *arg)
{
	struct tenant *tenant = arg;
	struct pollfd fd = {.fd = tenant->stop_fd, .events = POLLIN};

	while (poll(&fd, 1, (int)(tenant->ttl_ms / 4)) == 0 &&
	       mempool_renew(tenant->lease, tenant->ttl_ms) == 0)
		tenant->renewals++;
	return NULL;
}

int tenant_hold(struct tenant *tenant)
{
	int r;

	tenant->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (tenant->stop_fd < 0)
		return tell_failure("eventfd: %s", strerrordesc_np(errno));
	r = pthread_create(&tenant->keeper, NULL, tenant_keeper, tenant);
	if (r != 0) {
		(void)close(tenant->stop_fd);
		return tell_failure("cannot start a thread: %s", strerrordesc_np(r));
	}
	tenant->held = true;
	return 0;
}

void tenant_let_go(struct tenant *tenant)
{
	if (!tenant->held)
		return;
	(void)eventfd_write(tenant->stop_fd, 1);
	(void)pthread_join(tenant->keeper, NULL);
	(void)close(tenant->stop_fd);
	tenant->held = false;
}

static void tenant_tell_speed(const struct tenant *tenant, const char *what, size_t len_bytes,
			      uint64_t since_ns)
{
	double ms = (double)(clock_now_ns() - since_ns) / (double)CLOCK_NS_PER_MS;

	tell("%s %s %zu bytes in %.0f ms (%.1f MiB/s)", tenant->name, what, len_bytes, ms,
	     ms > 0 ? (double)len_bytes / 1048576 / ms * 1000 : 0);
}

int tenant_write(struct tenant *tenant, const uint8_t *bytes, size_t len_bytes)
{
	uint64_t since_ns = clock_now_ns();
	int r;

	r = mempool_write(tenant->lease, 0, bytes, len_bytes);
	if (r < 0)
		return tenant_failure(tenant, "cannot write", r);
	tenant_tell_speed(tenant, "has written", len_bytes, since_ns);
	return 0;
}

int tenant_read(struct tenant *tenant, uint8_t *bytes, size_t len_bytes)
{
	uint64_t since_ns = clock_now_ns();
	int r;

	r = mempool_read(tenant->lease, 0, bytes, len_bytes);
	if (r < 0)
		return tenant_failure(tenant, "cannot read", r);
	tenant_tell_speed(tenant, "has read", len_bytes, since_ns);
	return 0;
}

int tenant_check_ended(struct tenant *tenant, int expected_code)
{
	uint8_t byte;
	int r;

	r = mempool_read(tenant->lease, 0, &byte, sizeof(byte));
	if (r != expected_code)
		return tell_failure("%s: reading gives %d, expected %d (%s)", tenant->name, r,
				    expected_code, mempool_error_text(expected_code));
	tell("%s's library says: %s", tenant->name, mempool_last_error());
	return 0;
}

const struct message_descriptor *tenant_descriptor(const struct tenant *tenant)
{
	uint32_t count;

	return lease_descriptors(tenant->lease, &count);
}

int tenant_raw(struct tenant *tenant, enum ibv_wr_opcode opcode,
	       const struct message_descriptor *descriptor, uint8_t *bytes,
	       enum ibv_wc_status *ret_status)
{
	struct lane *lane = pool_lane(tenant->pool);
	int r;

	/* Without a connection there are no buffers either. */
	if (!lane_is_up(lane))
		return tell_failure("%s: the data connection is not up", tenant->name);
	if (opcode == IBV_WR_RDMA_WRITE)
		memcpy(lane_slot(lane, 0), bytes, TENANT_RAW_BYTES);
	r = lane_raw(lane, opcode, lane_slot(lane, 0), TENANT_RAW_BYTES, descriptor->remote_addr,
		     descriptor->rkey, TENANT_TIMEOUT_MS, ret_status);
	if (r < 0)
		return tenant_failure(tenant, "raw access", r);
	if (opcode == IBV_WR_RDMA_READ && *ret_status == IBV_WC_SUCCESS)
		memcpy(bytes, lane_slot(lane, 0), TENANT_RAW_BYTES);
	return 0;
}

void tenant_close(struct tenant *tenant)
{
	tenant_let_go(tenant);
	mempool_close(tenant->pool);
	*tenant = (struct tenant){.name = tenant->name};
}
