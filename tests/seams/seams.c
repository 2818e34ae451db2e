/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults for mempoold-seam: the daemon as it is, but with some of the thin calls of
 * common/verbs.h led through here by the linker (--wrap). MEMPOOLD_SEAM names the fault, behind
 * a colon how often it strikes (without: always), and behind an @ how often it does not before
 * that; without it nothing is changed.
 *
 *	skip-invalidate  a local invalidate completes with success, in its turn, and has
 *			 invalidated nothing; a guard is said to be deregistered and is not,
 *			 since the device would refuse that while its window is bound
 *	skip-guard-wait  a guard is said to be deregistered before it is
 *	lose-invalidate  the completion of an invalidate never comes
 *	flush-invalidate an invalidate is executed and reported as flushed
 *	fail-bind	 a bind is executed and reported as failed
 *	stuck-bind	 every bind is flushed, so its lane is lost, and a window cannot be
 *			 deallocated
 *	fail-post-bind, fail-post-invalidate  such a work request cannot be posted
 *	fail-reg	 a registration fails for want of memory
 *	fail-alloc	 a window cannot be allocated
 *	fail-dealloc	 a window cannot be deallocated
 *	fail-destroy-qp	 a QP of rdma_cm's cannot be destroyed
 *	slow-alloc	 a window takes long to be allocated
 *	slow-scrub	 a chunk takes long to be zeroed
 *	async		 asynchronous events are what signals say: SIGRTMIN + enum ibv_event_type;
 *			 those of a QP are of the first that is in the error state
 *	late-damage	 the kernel tells of damaged memory when it is touched, no sooner
 *	busy-cq		 no completion queue is ever found empty: what comes belongs to nobody
 *	no-windows	 no device says that it has memory windows
 *	small-cq:N	 devices say that a completion queue has N entries at most, and it has
 *	small-mr:N	 devices say that they register N bytes at a time
 *	slow-reg:N	 the registration of the pool takes N seconds longer
 *	block-loop	 SIGUSR1 stops the loop for good
 *	start:N		 see start.c
 *
 * The self-test of the start is left alone: but for the last six, the fault begins with the
 * first connection, which is the first QP that rdma_cm makes.
 *
 * Thread: the loop, the verbs worker for windows and registrations, the scrubber for zeroing.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/verbs.h"
#include "daemon/device.h"
#include "daemon/zero.h"
#include "tests/seams/start.h"

#define GUARD_LATE_US 20000
#define SLOW_US	      10000
#define SEAM_QPS      8

struct ibv_cq *__real_ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
				    struct ibv_comp_channel *channel, int vector);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
				    struct ibv_comp_channel *channel, int vector);
int __real_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __real_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __real_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);
int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);
int __real_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __wrap_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __real_verbs_dereg_mr(struct ibv_mr *mr);
int __wrap_verbs_dereg_mr(struct ibv_mr *mr);
int __real_verbs_alloc_mw(struct ibv_pd *pd, struct ibv_mw **ret_mw);
int __wrap_verbs_alloc_mw(struct ibv_pd *pd, struct ibv_mw **ret_mw);
int __real_verbs_dealloc_mw(struct ibv_mw *mw);
int __wrap_verbs_dealloc_mw(struct ibv_mw *mw);
int __real_verbs_destroy_qp(struct ibv_qp *qp);
int __wrap_verbs_destroy_qp(struct ibv_qp *qp);
void __real_zero_pages(void *memory, size_t len_bytes);
void __wrap_zero_pages(void *memory, size_t len_bytes);
int __real_prctl(int option, ...);
int __wrap_prctl(int option, ...);
int __real_verbs_async_fd(const struct ibv_context *context);
int __wrap_verbs_async_fd(const struct ibv_context *context);
int __real_verbs_get_async_event(struct ibv_context *context, struct ibv_async_event *ret_event);
int __wrap_verbs_get_async_event(struct ibv_context *context, struct ibv_async_event *ret_event);
void __real_verbs_ack_async_event(struct ibv_async_event *event);
void __wrap_verbs_ack_async_event(struct ibv_async_event *event);

static atomic_bool seam_armed;
static atomic_bool seam_pool_registered;
static atomic_uint seam_turns; /* of the fault, struck or not */
static int seam_pipe[2] = {-1, -1};
static struct ibv_qp *seam_qps[SEAM_QPS]; /* that rdma_cm has made, with "async" */
static int seam_qp_count;

static bool seam_is(const char *name)
{
	const char *seam = getenv("MEMPOOLD_SEAM");
	size_t len = strlen(name);

	return seam != NULL && strncmp(seam, name, len) == 0 &&
	       (seam[len] == '\0' || seam[len] == ':' || seam[len] == '@');
}

/* Is it this fault's turn? */
static bool seam_strikes(const char *name)
{
	const char *colon;
	const char *at;
	unsigned long turn;
	unsigned long spared;

	if (!seam_is(name) || !atomic_load(&seam_armed))
		return false;
	colon = strchr(getenv("MEMPOOLD_SEAM"), ':');
	at = strchr(getenv("MEMPOOLD_SEAM"), '@');
	turn = atomic_fetch_add(&seam_turns, 1);
	spared = at == NULL ? 0 : strtoul(at + 1, NULL, 10);
	return turn >= spared && (colon == NULL || turn - spared < strtoul(colon + 1, NULL, 10));
}

/* The number behind the fault's name; 0 if that is not the fault. */
static int seam_number(const char *name)
{
	const char *colon = seam_is(name) ? strchr(getenv("MEMPOOLD_SEAM"), ':') : NULL;

	return colon == NULL ? 0 : (int)strtol(colon + 1, NULL, 10);
}

int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int entries = seam_number("small-cq");
	int r = start_fails("ibv_query_device") ? ENOMEM : __real_ibv_query_device(context, attr);

	if (r == 0 && entries > 0)
		attr->max_cqe = entries;
	if (r == 0 && seam_is("small-mr"))
		attr->max_mr_size = (uint64_t)seam_number("small-mr");
	if (r == 0 && seam_is("no-windows"))
		attr->device_cap_flags &=
			~(unsigned int)(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
					IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	return r;
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	int most = seam_number("small-cq");
	bool fails = start_fails("ibv_create_cq");

	if (fails || (most > 0 && entries > most)) {
		errno = fails ? ENOMEM : EINVAL;
		return NULL;
	}
	return __real_ibv_create_cq(context, entries, cq_context, channel, vector);
}

int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int r;

	atomic_store(&seam_armed, true);
	r = __real_rdma_create_qp(id, pd, attr);
	if (r == 0 && seam_is("async") && seam_qp_count < SEAM_QPS)
		seam_qps[seam_qp_count++] = id->qp;
	return r;
}

/* Work requests. */

/* A write of no bytes needs no key and reaches no memory. */
static void seam_skip_invalidate(struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->sg_list = NULL;
	wr->num_sge = 0;
	wr->wr.rdma.remote_addr = 0;
	wr->wr.rdma.rkey = 0;
}

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	if ((wr->opcode == IBV_WR_BIND_MW && seam_strikes("fail-post-bind")) ||
	    (wr->opcode == IBV_WR_LOCAL_INV && seam_strikes("fail-post-invalidate"))) {
		*ret_bad = wr;
		return -ENOMEM;
	}
	for (struct ibv_send_wr *at = wr; at != NULL; at = at->next) {
		if (at->opcode == IBV_WR_LOCAL_INV && seam_strikes("skip-invalidate"))
			seam_skip_invalidate(at);
	}
	return __real_verbs_post_send(qp, wr, ret_bad);
}

/* Return: is it to be kept? */
static bool seam_completion(struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		return true;
	if (wc->opcode == IBV_WC_BIND_MW && seam_strikes("fail-bind"))
		wc->status = IBV_WC_MW_BIND_ERR;
	if (wc->opcode == IBV_WC_BIND_MW && seam_is("stuck-bind") && atomic_load(&seam_armed))
		wc->status = IBV_WC_WR_FLUSH_ERR;
	if (wc->opcode == IBV_WC_LOCAL_INV && seam_strikes("flush-invalidate"))
		wc->status = IBV_WC_WR_FLUSH_ERR;
	return wc->opcode != IBV_WC_LOCAL_INV || !seam_strikes("lose-invalidate");
}

int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc)
{
	int n = __real_verbs_poll_cq(cq, cap, ret_wc);
	int kept = 0;

	for (int i = 0; i < n; i++) {
		if (seam_completion(&ret_wc[i]))
			ret_wc[kept++] = ret_wc[i];
	}
	if (n == 0 && seam_is("busy-cq") && atomic_load(&seam_armed))
		ret_wc[kept++] = (struct ibv_wc){.status = IBV_WC_SUCCESS};
	return n < 0 ? n : kept;
}

/* Registrations and windows. */

int __wrap_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr)
{
	if (start_fails("verbs_reg_mr") || seam_strikes("fail-reg"))
		return -ENOMEM;
	/* The pool's is the first for windows. */
	if (access == DEVICE_POOL_ACCESS && !atomic_exchange(&seam_pool_registered, true))
		(void)sleep((unsigned int)seam_number("slow-reg"));
	return __real_verbs_reg_mr(pd, addr, len_bytes, access, ret_mr);
}

static void *seam_dereg_late(void *mr)
{
	(void)usleep(GUARD_LATE_US);
	(void)__real_verbs_dereg_mr(mr);
	return NULL;
}

int __wrap_verbs_dereg_mr(struct ibv_mr *mr)
{
	pthread_t thread;

	if (mr != NULL && seam_strikes("skip-invalidate"))
		return 0;
	if (mr == NULL || !seam_strikes("skip-guard-wait") ||
	    pthread_create(&thread, NULL, seam_dereg_late, mr) != 0)
		return __real_verbs_dereg_mr(mr);
	(void)pthread_detach(thread);
	return 0;
}

int __wrap_verbs_alloc_mw(struct ibv_pd *pd, struct ibv_mw **ret_mw)
{
	if (seam_strikes("slow-alloc"))
		(void)usleep(SLOW_US);
	if (start_fails("verbs_alloc_mw") || seam_strikes("fail-alloc"))
		return -ENOMEM;
	return __real_verbs_alloc_mw(pd, ret_mw);
}

int __wrap_verbs_dealloc_mw(struct ibv_mw *mw)
{
	return seam_strikes("fail-dealloc") || seam_strikes("stuck-bind")
		       ? -EBUSY
		       : __real_verbs_dealloc_mw(mw);
}

int __wrap_verbs_destroy_qp(struct ibv_qp *qp)
{
	return qp != NULL && seam_strikes("fail-destroy-qp") ? -EBUSY : __real_verbs_destroy_qp(qp);
}

void __wrap_zero_pages(void *memory, size_t len_bytes)
{
	if (seam_strikes("slow-scrub"))
		(void)usleep(SLOW_US);
	__real_zero_pages(memory, len_bytes);
}

/* Of those that the daemon asks for none has more arguments. */
int __wrap_prctl(int option, ...)
{
	unsigned long args[4];
	va_list list;

	va_start(list, option);
	for (int i = 0; i < 4; i++)
		args[i] = va_arg(list, unsigned long);
	va_end(list);
	if (option == PR_MCE_KILL && args[0] == PR_MCE_KILL_SET && seam_is("late-damage"))
		args[1] = PR_MCE_KILL_LATE;
	return __real_prctl(option, args[0], args[1], args[2], args[3]);
}

/* Asynchronous events: the number of a signal becomes that of an event. */

static void seam_on_signal(int signal_number)
{
	uint8_t type = (uint8_t)(signal_number - SIGRTMIN);

	(void)!write(seam_pipe[1], &type, 1);
}

/* The signals of the workers are blocked, so this is the loop's thread. */
static void seam_block(int signal_number)
{
	(void)signal_number;
	for (;;)
		(void)pause();
}

int __wrap_verbs_async_fd(const struct ibv_context *context)
{
	struct sigaction action = {.sa_handler = seam_on_signal, .sa_flags = SA_RESTART};

	if (seam_is("block-loop"))
		(void)signal(SIGUSR1, seam_block);
	if (!seam_is("async") || pipe2(seam_pipe, O_NONBLOCK | O_CLOEXEC) < 0)
		return __real_verbs_async_fd(context);
	for (int type = IBV_EVENT_CQ_ERR; type <= IBV_EVENT_PORT_ERR; type++)
		(void)sigaction(SIGRTMIN + type, &action, NULL);
	return seam_pipe[0];
}

/* Of the first that there were, which must not be destroyed before. */
static struct ibv_qp *seam_broken_qp(void)
{
	for (int i = 0; i < seam_qp_count; i++) {
		if (verbs_qp_state(seam_qps[i]) == IBV_QPS_ERR)
			return seam_qps[i];
	}
	abort();
}

int __wrap_verbs_get_async_event(struct ibv_context *context, struct ibv_async_event *ret_event)
{
	uint8_t type;

	if (seam_pipe[0] < 0)
		return __real_verbs_get_async_event(context, ret_event);
	if (read(seam_pipe[0], &type, 1) != 1)
		return -EAGAIN;
	*ret_event = (struct ibv_async_event){.event_type = (enum ibv_event_type)type};
	if (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_ACCESS_ERR)
		ret_event->element.qp = seam_broken_qp();
	return 0;
}

void __wrap_verbs_ack_async_event(struct ibv_async_event *event)
{
	if (seam_pipe[0] < 0)
		__real_verbs_ack_async_event(event);
}
