/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device and everything that exists once on it. Made before the daemon listens, torn
 * down after the last QP and window are gone, in reverse order; each destroy call is checked.
 *
 * The control buffers of all sessions are one registration made at start: admitting a
 * session then neither blocks nor needs memory.
 *
 * Thread: before the loop starts and after it ends, and the loop.
 */
#include "daemon/device.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/log.h"
#include "daemon/service.h"

#define DEVICE_ALLOW_MS	   30000 /* for the service manager, after each look */
#define DEVICE_LANE_CQ_MAX 65536u

static bool device_is_there(const char *name)
{
	struct ibv_device **devices;
	bool found = false;
	int count = 0;

	devices = ibv_get_device_list(&count);
	if (devices == NULL)
		return false;
	for (int i = 0; i < count && !found; i++)
		found = name[0] == '\0' || strcmp(ibv_get_device_name(devices[i]), name) == 0;
	ibv_free_device_list(devices);
	return found;
}

static bool device_has_windows(struct ibv_context *context)
{
	struct ibv_device_attr attr;

	return ibv_query_device(context, &attr) == 0 &&
	       (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
}

static struct ibv_context *device_choose(struct ibv_context **list, const char *name,
					 struct ibv_context *preferred)
{
	if (name[0] == '\0' && preferred != NULL)
		return preferred;
	for (; *list != NULL; list++) {
		if (name[0] != '\0' && strcmp(ibv_get_device_name((*list)->device), name) == 0)
			return *list;
		if (name[0] == '\0' && device_has_windows(*list))
			return *list;
	}
	return NULL;
}

void device_wait(const char *name, uint64_t until_ns)
{
	if (device_is_there(name) || clock_now_ns() >= until_ns)
		return;
	log_info("waiting for an RDMA device device=%s", name[0] != '\0' ? name : "any");
	while (!device_is_there(name) && clock_now_ns() < until_ns) {
		service_stage("waiting for the RDMA device", DEVICE_ALLOW_MS);
		(void)poll(NULL, 0, DEVICE_POLL_MS);
	}
}

int device_find(struct device *device, const char *name, struct ibv_context *preferred, char *error)
{
	int count = 0;

	device->list = rdma_get_devices(&count);
	if (device->list != NULL)
		device->context = device_choose(device->list, name, preferred);
	if (device->context != NULL)
		return 0;
	if (name[0] != '\0')
		snprintf(error, DEVICE_ERROR_MAX,
			 "no RDMA device '%s' (key 'device'); 'rdma link' lists what there is",
			 name);
	else
		snprintf(error, DEVICE_ERROR_MAX,
			 "no RDMA device with Type 2B memory windows; 'rdma link' lists what there "
			 "is, "
			 "and /dev/infiniband must be accessible");
	return -ENODEV;
}

uint64_t device_control_bytes(const struct config *config)
{
	return config->sessions_max * endpoint_memory_bytes((uint32_t)config->control_receives);
}

static int device_open_control(struct device *device, const struct config *config)
{
	uint64_t slot_bytes = endpoint_memory_bytes((uint32_t)config->control_receives);
	uint32_t slots = (uint32_t)config->sessions_max;
	void *memory;

	memory = mmap(NULL, slots * slot_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	device->control_memory = memory;
	device->control_bytes = slots * slot_bytes;
	device->control_slot_bytes = slot_bytes;
	if (madvise(memory, device->control_bytes, MADV_DONTDUMP) < 0)
		return -errno;
	device->control_free = calloc(slots, sizeof(*device->control_free));
	if (device->control_free == NULL)
		return -ENOMEM;
	device->control_slots = slots;
	for (uint32_t i = 0; i < slots; i++)
		device->control_free[i] = slots - 1 - i;
	device->control_free_count = slots;
	return verbs_reg_mr(device->pd, memory, device->control_bytes, IBV_ACCESS_LOCAL_WRITE,
			    &device->control_mr);
}

/*
 * Sessions and lanes are admitted as far as their completions have room. @each: completions
 * that one may have at the same time
 */
static int device_open_cq(struct device *device, struct verbs_cq *cq, const char *whose,
			  uint64_t each, uint64_t count, char *error)
{
	const char *name = ibv_get_device_name(device->context->device);
	uint64_t max = (uint64_t)device->attr.max_cqe;
	uint64_t wanted = each * count;
	int r;

	if (max < each) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "device %s: a completion queue has %" PRIu64
			 " entries at most, and one %s needs %" PRIu64,
			 name, max, whose, each);
		return -ENOSPC;
	}
	r = verbs_cq_init(cq, device->context, (uint32_t)(wanted < max ? wanted : max));
	if (r < 0) {
		snprintf(error, DEVICE_ERROR_MAX, "device %s: cannot create completion queue: %s",
			 name, strerror(-r));
		return r;
	}
	if (cq->entries < wanted)
		log_info("the device's completion queues are small device=%s entries=%u "
			 "limit=\"%" PRIu64 " %ss\"",
			 name, cq->entries, cq->entries / each, whose);
	return 0;
}

static int device_open_cqs(struct device *device, const struct config *config, char *error)
{
	uint64_t session_entries = config->control_receives + ENDPOINT_SENDS;
	uint64_t lane_entries = config->lane_send_queue + 1;
	uint64_t lanes = config->sessions_max * config->lanes_max;
	int r;

	if (lanes > DEVICE_LANE_CQ_MAX / lane_entries)
		lanes = DEVICE_LANE_CQ_MAX / lane_entries;
	r = device_open_cq(device, &device->control_cq, "session", session_entries,
			   config->sessions_max, error);
	if (r == 0)
		r = device_open_cq(device, &device->lane_cq, "data connection", lane_entries, lanes,
				   error);
	return r;
}

/* Of what the device can do, what we cannot do without. */
static int device_check(const struct device *device, const struct config *config, char *error)
{
	const char *name = ibv_get_device_name(device->context->device);

	if ((device->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) == 0) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "device %s has no Type 2B memory windows: it cannot take a lease back",
			 name);
		return -EOPNOTSUPP;
	}
	/* A driver may register as much as it can, and say that all went well. */
	if (config->pool_size_bytes > device->attr.max_mr_size) {
		snprintf(error, DEVICE_ERROR_MAX,
			 "device %s registers %" PRIu64
			 " bytes at a time (max_mr_size), and pool_size is %" PRIu64
			 ": make pool_size smaller",
			 name, (uint64_t)device->attr.max_mr_size, config->pool_size_bytes);
		return -EFBIG;
	}
	return 0;
}

int device_open(struct device *device, const struct config *config, char *error)
{
	const char *name = ibv_get_device_name(device->context->device);
	const char *what;
	int r;

	what = "query device";
	r = -ibv_query_device(device->context, &device->attr);
	if (r < 0)
		goto fail;
	r = device_check(device, config, error);
	if (r < 0)
		return r;
	r = verbs_set_nonblocking(device->context->async_fd);
	if (r < 0)
		goto fail;
	what = "allocate protection domain";
	device->pd = ibv_alloc_pd(device->context);
	if (device->pd == NULL) {
		r = -errno;
		goto fail;
	}
	r = device_open_cqs(device, config, error);
	if (r < 0)
		return r;
	what = "register control buffers";
	r = device_open_control(device, config);
	if (r < 0)
		goto fail;
	return 0;

fail:
	snprintf(error, DEVICE_ERROR_MAX, "device %s: cannot %s: %s", name, what, strerror(-r));
	return r;
}

/*
 * Not IBV_ACCESS_HUGETLB: it is for memory that is paged on demand, which this is not, and a
 * device that does not know it refuses. How large the pages are is seen from the memory itself.
 */
int device_register_pool(struct device *device, const struct pool *pool, char *error)
{
	int r;

	service_stage("registering the pool with the device", service_bytes_ms(pool->len_bytes));
	r = verbs_reg_mr(device->pd, pool->memory, pool->len_bytes, DEVICE_POOL_ACCESS,
			 &device->pool_mr);
	if (r < 0)
		snprintf(
			error, DEVICE_ERROR_MAX,
			"device %s: cannot register the pool: %s; check the memory lock limit, the "
			"device's limit on registered pages (larger pages help), and the cgroup's "
			"rdma and memory limits",
			ibv_get_device_name(device->context->device), strerror(-r));
	return r;
}

int device_close(struct device *device)
{
	int r;

	r = verbs_dereg_mr(device->pool_mr);
	if (r < 0)
		return r;
	device->pool_mr = NULL;
	r = verbs_dereg_mr(device->control_mr);
	if (r < 0)
		return r;
	device->control_mr = NULL;
	r = verbs_cq_deinit(&device->lane_cq);
	if (r < 0)
		return r;
	r = verbs_cq_deinit(&device->control_cq);
	if (r < 0)
		return r;
	if (device->pd != NULL) {
		r = ibv_dealloc_pd(device->pd);
		if (r != 0)
			return r > 0 ? -r : r;
		device->pd = NULL;
	}
	if (device->control_memory != NULL)
		munmap(device->control_memory, device->control_bytes);
	free(device->control_free);
	route_table_deinit(&device->control_routes);
	route_table_deinit(&device->lane_routes);
	if (device->list != NULL)
		rdma_free_devices(device->list);
	*device = (struct device){0};
	return 0;
}

uint8_t *device_take_control_slot(struct device *device)
{
	if (device->control_free_count == 0)
		return NULL;
	return device->control_memory +
	       device->control_free[--device->control_free_count] * device->control_slot_bytes;
}

uint32_t device_control_slot(const struct device *device, const uint8_t *memory)
{
	return (uint32_t)((uint64_t)(memory - device->control_memory) / device->control_slot_bytes);
}

void device_give_control_slot(struct device *device, uint8_t *memory)
{
	assert(device->control_free_count < device->control_slots);
	device->control_free[device->control_free_count++] = device_control_slot(device, memory);
}
