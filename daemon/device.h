/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_DEVICE_H
#define DAEMON_DEVICE_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "common/route.h"
#include "common/verbs.h"
#include "daemon/config.h"
#include "daemon/pool.h"

#define DEVICE_ERROR_MAX   512
#define DEVICE_POOL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) /* no remote right */

/*
 * The RDMA device that serves: PD, completion queues, the registration of the pool and of
 * the control buffers. Every QP of the daemon uses these.
 */
struct device {
	struct ibv_context **list; /* rdma_get_devices(); contexts are librdmacm's own */
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct ibv_pd *pd;
	struct verbs_cq control_cq;
	struct verbs_cq lane_cq;
	struct route_table control_routes; /* completion -> session */
	struct route_table lane_routes;	   /* completion -> lane */
	struct ibv_mr *pool_mr;
	uint8_t *control_memory; /* buffers of all control connections */
	uint64_t control_bytes;
	uint64_t control_slot_bytes;
	uint32_t control_slots;
	uint32_t *control_free; /* stack of free slots */
	uint32_t control_free_count;
	struct ibv_mr *control_mr;
};

#define DEVICE_POLL_MS 250 /* how often what is not there yet is looked for */

/**
 * device_wait() - wait until a device is there, or a time is over
 * @name: "": any
 *
 * Blocks. To be called before librdmacm is asked for anything, which may take its list of
 * devices only once.
 */
void device_wait(const char *name, uint64_t until_ns);

/**
 * device_find() - the device to serve on
 * @name: "" = @preferred if given, else the first that has Type 2B windows
 * @preferred: a context that a listen address is bound to, or NULL
 * @error: DEVICE_ERROR_MAX bytes, one line
 *
 * Return: 0, -ENODEV.
 */
int device_find(struct device *device, const char *name, struct ibv_context *preferred,
		char *error);

/**
 * device_open() - PD, completion queues, control buffers
 *
 * Return: 0, -EOPNOTSUPP (no Type 2B windows), -EFBIG (the pool is more than it registers at a
 * time), or another negative errno. On failure
 * device_close() is still due.
 */
int device_open(struct device *device, const struct config *config, char *error);

/**
 * device_register_pool() - register the whole pool, without any remote right
 *
 * Blocks for long with a large pool. Return: 0 or a negative errno.
 */
int device_register_pool(struct device *device, const struct pool *pool, char *error);

/**
 * device_close() - undo everything, in reverse order
 *
 * Return: 0, or the first negative errno of a destroy call (the rest is left to the kernel).
 */
int device_close(struct device *device);

/** device_control_bytes() - registered bytes that the control connections of a configuration need */
uint64_t device_control_bytes(const struct config *config);

/** device_take_control_slot() - memory for one endpoint; Return: NULL if all are taken */
uint8_t *device_take_control_slot(struct device *device);
void device_give_control_slot(struct device *device, uint8_t *memory);

/** device_control_slot() - number of a slot, from 0 to sessions_max - 1 */
uint32_t device_control_slot(const struct device *device, const uint8_t *memory);

#endif
