/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults of the start: MEMPOOLD_SEAM=start:N lets the N-th call fail that the daemon makes
 * while it starts, of those that are led through here; start:N:NAME the N-th call of that
 * name. What they fail with is a want of memory.
 *
 * The start begins with the random numbers and ends when connections can come in. The call
 * that fails is named on the standard output. A start that succeeds all the same, because
 * there are not so many calls, is told to stop at once.
 *
 * Thread: the loop, before there is one.
 */
#include "tests/seams/start.h"

#include <errno.h>
#include <event2/event.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/verbs.h"

#define START_PREFIX "start:"

static bool start_has_begun;
static bool start_is_over;
static unsigned long start_calls;

bool start_fails(const char *call)
{
	const char *seam = getenv("MEMPOOLD_SEAM");
	unsigned long which;
	char *rest;

	if (seam == NULL || strncmp(seam, START_PREFIX, strlen(START_PREFIX)) != 0 ||
	    !start_has_begun || start_is_over)
		return false;
	which = strtoul(seam + strlen(START_PREFIX), &rest, 10);
	if ((*rest == ':' && strcmp(rest + 1, call) != 0) || ++start_calls != which)
		return false;
	(void)dprintf(STDOUT_FILENO, "%s\n", call);
	return true;
}

/* A call that returns @failure, with errno set, when it is its turn. */
#define START_WRAP(type, name, parameters, arguments, failure) \
	type __real_##name parameters;                         \
	type __wrap_##name parameters;                         \
	type __wrap_##name parameters                          \
	{                                                      \
		if (start_fails(#name)) {                      \
			errno = ENOMEM;                        \
			return failure;                        \
		}                                              \
		return __real_##name arguments;                \
	}

/* The first and the last call of a start. */

int __real_sodium_init(void);
int __wrap_sodium_init(void);
int __real_rdma_listen(struct rdma_cm_id *id, int backlog);
int __wrap_rdma_listen(struct rdma_cm_id *id, int backlog);

int __wrap_sodium_init(void)
{
	start_has_begun = true;
	return start_fails("sodium_init") ? -1 : __real_sodium_init();
}

int __wrap_rdma_listen(struct rdma_cm_id *id, int backlog)
{
	const char *seam = getenv("MEMPOOLD_SEAM");
	int r;

	if (start_fails("rdma_listen")) {
		errno = ENOMEM;
		return -1;
	}
	r = __real_rdma_listen(id, backlog);
	start_is_over = true;
	if (r == 0 && seam != NULL && strncmp(seam, START_PREFIX, strlen(START_PREFIX)) == 0)
		(void)raise(SIGTERM);
	return r;
}

/* Memory, threads and descriptors. */

START_WRAP(void *, calloc, (size_t count, size_t size), (count, size), NULL)
START_WRAP(void *, malloc, (size_t size), (size), NULL)
START_WRAP(void *, realloc, (void *old, size_t size), (old, size), NULL)
START_WRAP(void *, reallocarray, (void *old, size_t count, size_t size), (old, count, size), NULL)
START_WRAP(void *, mmap64, (void *addr, size_t len, int prot, int flags, int fd, off_t offset),
	   (addr, len, prot, flags, fd, offset), MAP_FAILED)
START_WRAP(int, madvise, (void *addr, size_t len, int advice), (addr, len, advice), -1)
START_WRAP(int, memfd_create, (const char *name, unsigned int flags), (name, flags), -1)
START_WRAP(int, ftruncate64, (int fd, off_t len), (fd, len), -1)
START_WRAP(int, pthread_create,
	   (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *), void *context),
	   (thread, attr, run, context), ENOMEM)
START_WRAP(int, eventfd, (unsigned int count, int flags), (count, flags), -1)
START_WRAP(int, timerfd_create, (int clock, int flags), (clock, flags), -1)
START_WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1)
START_WRAP(int, bind, (int fd, const struct sockaddr *addr, socklen_t len), (fd, addr, len), -1)
START_WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1)
START_WRAP(int, getaddrinfo,
	   (const char *node, const char *service, const struct addrinfo *hints,
	    struct addrinfo **ret_list),
	   (node, service, hints, ret_list), EAI_MEMORY)

/* The loop. */

START_WRAP(struct event_base *, event_base_new, (void), (), NULL)
START_WRAP(struct event *, event_new,
	   (struct event_base * base, evutil_socket_t fd, short what, event_callback_fn callback,
	    void *context),
	   (base, fd, what, callback, context), NULL)
START_WRAP(int, event_add, (struct event * event, const struct timeval *timeout), (event, timeout),
	   -1)

/* The device. */

START_WRAP(struct ibv_context **, rdma_get_devices, (int *ret_count), (ret_count), NULL)
START_WRAP(struct rdma_event_channel *, rdma_create_event_channel, (void), (), NULL)
START_WRAP(int, rdma_create_id,
	   (struct rdma_event_channel * channel, struct rdma_cm_id **ret_id, void *context,
	    enum rdma_port_space space),
	   (channel, ret_id, context, space), -1)
START_WRAP(int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr *addr), (id, addr), -1)
START_WRAP(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * context), (context), NULL)
START_WRAP(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * context),
	   (context), NULL)
START_WRAP(struct ibv_qp *, ibv_create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *attr),
	   (pd, attr), NULL)
START_WRAP(int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask),
	   (qp, attr, mask), ENOMEM)
START_WRAP(ssize_t, _ibv_query_gid_table,
	   (struct ibv_context * context, struct ibv_gid_entry *entries, size_t cap, uint32_t flags,
	    size_t entry_size),
	   (context, entries, cap, flags, entry_size), -ENOMEM)
START_WRAP(int, verbs_set_nonblocking, (int fd), (fd), -ENOMEM)
