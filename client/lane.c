/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data connection: how it is made, its queue, its staging buffers, its death. It owns the
 * connection (QP, CQ, buffers) of the present incarnation.
 *
 * Invariants: work requests are counted, and none is forgotten before its completion or the
 * destruction of the QP; a lane that had an error is never posted on again.
 *
 * Thread: the holder's; what is marked so, any that has the lock.
 */
#include "client/lane.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "client/control.h"
#include "client/error.h"
#include "client/pool.h"
#include "client/secrets.h"
#include "client/wait.h"
#include "common/clock.h"
#include "proto/error.h"
#include "proto/message.h"

#define LANE_READ_DEPTH_MAX 16
#define LANE_SPINS	    200 /* polls before we sleep */
#define LANE_PAUSE_MIN_MS   10	/* before another offer is asked for; doubles */
#define LANE_PAUSE_MAX_MS   1000
#define LANE_FLUSH_MS	    1000 /* a QP in ERR gives everything back within that, or never */

/* Limits of the device that concern us. */
static int lane_query(struct lane *lane, struct cm *cm)
{
	uint32_t depth = lane->pool->control.welcome.read_depth;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	int r;

	r = ibv_query_device(cm->id->verbs, &device);
	if (r == 0)
		r = ibv_query_port(cm->id->verbs, cm->id->port_num, &port);
	if (r != 0)
		return r > 0 ? -r : -EIO;
	if (depth > LANE_READ_DEPTH_MAX)
		depth = LANE_READ_DEPTH_MAX;
	if (device.max_qp_init_rd_atom >= 0 && depth > (uint32_t)device.max_qp_init_rd_atom)
		depth = (uint32_t)device.max_qp_init_rd_atom;
	cm->initiator_depth = (uint8_t)depth;
	lane->message_max_bytes =
		port.max_msg_sz < LANE_PIECE_BYTES ? port.max_msg_sz : LANE_PIECE_BYTES;
	return lane->message_max_bytes > 0 ? 0 : -EIO;
}

/* Only we can make this connection to the session: its QP and address are known at last. */
static void lane_prove(const struct lane *lane, struct cm *cm)
{
	struct channel_lane bound = {
		.session_id = lane->pool->control.welcome.session_id,
		.lane = lane->number,
		.client_qpn = cm->id->qp->qp_num,
	};
	struct private_data data = {
		.kind = PRIVATE_DATA_LANE,
		.session_id = bound.session_id,
		.lane = bound.lane,
	};

	channel_lane_address(rdma_get_local_addr(cm->id), &bound);
	channel_lane_mac(&lane->pool->secrets->channel, &bound, data.mac);
	cm_set_private_data(cm, &data);
}

/* Not every device can send inline, or as much: then without. */
static int lane_create_qp(struct lane *lane, struct cm *cm)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.send_cq = lane->cq.cq,
		.recv_cq = lane->cq.cq,
		.cap =
			{
				.max_send_wr = lane->sends,
				.max_recv_wr =
					1, /* none is posted, but not every device can do without */
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = LANE_INLINE_BYTES,
			},
	};
	struct ibv_qp_init_attr without = attr;

	without.cap.max_inline_data = 0;
	if (rdma_create_qp(cm->id, lane->pd, &attr) != 0) {
		attr = without;
		if (rdma_create_qp(cm->id, lane->pd, &attr) != 0)
			return -errno;
	}
	/* What the QP has got, which may be more than was asked for. */
	lane->inline_max_bytes = attr.cap.max_inline_data < LANE_INLINE_BYTES
					 ? attr.cap.max_inline_data
					 : LANE_INLINE_BYTES;
	return 0;
}

static int lane_setup(struct cm *cm)
{
	struct lane *lane = cm->owner;
	int r;

	r = lane_query(lane, cm);
	if (r < 0)
		return r;
	r = pool_pd(lane->pool, cm->id->verbs, &lane->pd);
	if (r < 0)
		return r;
	r = verbs_cq_init(&lane->cq, cm->id->verbs, lane->sends + 1);
	if (r < 0)
		return r;
	if (lane->staged)
		r = buffer_init(&lane->staging, lane->pd, (size_t)LANE_SLOTS * LANE_SLOT_BYTES);
	if (r < 0)
		return r;
	r = lane_create_qp(lane, cm);
	if (r < 0)
		return r;
	lane_prove(lane, cm);
	return 0;
}

static int lane_prepare(struct cm *cm)
{
	int r = lane_setup(cm);

	if (r == 0)
		return 0;
	return client_error_set(&cm->error, client_error_errno(r),
				"cannot set up the data connection: %s", strerrordesc_np(-r));
}

static void lane_established(struct cm *cm)
{
	(void)cm;
}

static void lane_gone(struct cm *cm)
{
	lane_lose(cm->owner, MEMPOOL_E_LANE, cm->error.text);
}

static const struct cm_ops lane_cm_ops = {
	.prepare = lane_prepare,
	.established = lane_established,
	.gone = lane_gone,
};

static int lane_offered(struct request *request, const struct message *m)
{
	struct lane *lane = request->context;

	lane->offer = m->u.lane_offer;
	/* What is left after that is for the connect request's way. */
	lane->offer_until_ns = clock_add_ms(clock_now_ns(), lane->offer.expires_ms / 2);
	return 0;
}

int lane_init(struct lane *lane, struct mempool *pool)
{
	int r;

	*lane = (struct lane){.pool = pool, .sends = LANE_SENDS, .staged = true};
	r = wait_init(&lane->freed);
	if (r < 0)
		return r;
	r = request_init(&lane->asking, MESSAGE_LANE_OFFER, lane_offered, lane);
	if (r < 0)
		goto err_destroy_freed;
	r = cm_init(&lane->cm, &lane_cm_ops, lane);
	if (r < 0)
		goto err_deinit_asking;
	lane->cm.patience_ms = pool->timeout_ms / 2;
	return 0;

err_deinit_asking:
	request_deinit(&lane->asking);
err_destroy_freed:
	(void)pthread_cond_destroy(&lane->freed);
	return r;
}

void lane_deinit(struct lane *lane)
{
	assert(lane->state == LANE_CLOSED && !lane->busy);
	cm_deinit(&lane->cm);
	request_remove(&lane->pool->control.requests, &lane->asking);
	request_deinit(&lane->asking);
	(void)pthread_cond_destroy(&lane->freed);
}

int lane_enter(struct lane *lane, uint64_t deadline_ns)
{
	struct mempool *pool = lane->pool;
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	while (lane->busy && wait_until(&lane->freed, &pool->lock, deadline_ns))
		;
	if (lane->busy)
		r = client_error_raise(MEMPOOL_E_TIMEOUT,
				       "the data connection was busy with other transfers");
	else
		lane->busy = true;
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

void lane_leave(struct lane *lane)
{
	struct mempool *pool = lane->pool;

	(void)pthread_mutex_lock(&pool->lock);
	assert(lane->busy);
	lane->busy = false;
	(void)pthread_cond_signal(&lane->freed);
	(void)pthread_mutex_unlock(&pool->lock);
}

void lane_lose(struct lane *lane, int code, const char *text)
{
	if (lane->state != LANE_OPENING && lane->state != LANE_UP)
		return;
	if (lane->state == LANE_UP && !lane->quiet)
		events_tell(lane->pool, MEMPOOL_EVENT_LANE_LOST, 0);
	lane->state = LANE_LOST;
	lane->flush_until_ns = clock_add_ms(clock_now_ns(), LANE_FLUSH_MS);
	/* Flushes what the holder waits for; without it the device would try for seconds. */
	if (cm_qp(&lane->cm) != NULL)
		(void)verbs_qp_to_error(cm_qp(&lane->cm));
	cm_fail(&lane->cm, code, text);
}

void lane_forget_offer(struct lane *lane)
{
	request_remove(&lane->pool->control.requests, &lane->asking);
	lane->asked = false;
}

void lane_lost(struct mempool *pool, uint32_t number)
{
	for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next) {
		if (lane->number == number)
			lane_lose(lane, MEMPOOL_E_LANE, "the daemon closed the data connection");
	}
}

static int lane_poll(struct lane *lane, struct ibv_wc *ret_wc)
{
	return verbs_poll_cq(lane->cq.cq, 1, ret_wc);
}

/* Waits for a completion, awake at first. Return: 1, 0 at the deadline, negative errno. */
static int lane_wait(struct lane *lane, uint64_t deadline_ns, struct ibv_wc *ret_wc)
{
	struct pollfd fd = {.fd = lane->cq.channel->fd, .events = POLLIN};
	uint64_t left_ms;
	int r = 0;

	for (int i = 0; i < LANE_SPINS && r == 0; i++)
		r = lane_poll(lane, ret_wc);
	while (r == 0) {
		r = verbs_cq_rearm(&lane->cq);
		if (r == 0)
			r = lane_poll(lane, ret_wc);
		if (r != 0)
			break;
		left_ms = clock_left_ms(deadline_ns, clock_now_ns());
		if (left_ms == 0)
			return 0;
		fd.revents = 0;
		(void)poll(&fd, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
		if ((fd.revents & (POLLERR | POLLNVAL)) != 0)
			return -EIO; /* the device was removed */
	}
	return r;
}

int lane_collect(struct lane *lane, uint64_t deadline_ns, enum ibv_wc_status *ret_status)
{
	struct ibv_wc wc;
	int r;

	assert(lane->posted > 0);
	r = lane_wait(lane, deadline_ns, &wc);
	if (r <= 0)
		return r;
	lane->posted--;
	*ret_status = wc.status;
	return 1;
}

/*
 * The QP is in ERR. What does not come back is not waited for for ever, and once for each loss: the
 * buffers are our own, and the device is done with them when the QP is destroyed.
 */
static void lane_flush(struct lane *lane)
{
	enum ibv_wc_status status;

	while (lane->posted > 0 && lane_collect(lane, lane->flush_until_ns, &status) > 0)
		;
}

void lane_abort(struct lane *lane)
{
	struct mempool *pool = lane->pool;

	(void)pthread_mutex_lock(&pool->lock);
	lane_lose(lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	(void)pthread_mutex_unlock(&pool->lock);
	lane_flush(lane);
}

int lane_close(struct lane *lane)
{
	struct mempool *pool = lane->pool;
	int r;

	lane_abort(lane);
	(void)pthread_mutex_lock(&pool->lock);
	r = cm_close(&lane->cm);
	lane->posted = 0;
	/* A queue that cannot be destroyed is left to the end of the process. */
	(void)verbs_cq_deinit(&lane->cq);
	lane->cq = (struct verbs_cq){0};
	buffer_deinit(&lane->staging);
	lane->state = LANE_CLOSED;
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lane_ask_held(struct lane *lane, uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_LANE_OPEN};
	struct mempool *pool = lane->pool;
	int r;

	if (lane->asked && lane->asking.done && clock_now_ns() >= lane->offer_until_ns)
		lane->asked = false;
	if (!lane->asked) {
		lane->asking.id = 0;
		r = control_begin(pool, &m, &lane->asking);
		if (r < 0)
			return r;
		lane->asked = true;
	}
	r = control_await(pool, &lane->asking, m.type, deadline_ns);
	if (lane->asking.done)
		lane->asked = false;
	return r;
}

/* An earlier call may have asked and not waited long enough: then that offer is taken. */
static int lane_ask(struct lane *lane, uint64_t deadline_ns)
{
	struct mempool *pool = lane->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lane_ask_held(lane, deadline_ns);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lane_connect(struct lane *lane, uint64_t deadline_ns)
{
	struct private_data data = {.kind = PRIVATE_DATA_LANE};
	struct mempool *pool = lane->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	if (!control_is_open(&pool->control)) {
		r = client_error_forward(&pool->control.loss);
	} else {
		lane->state = LANE_OPENING;
		lane->number = lane->offer.lane;
		cm_open(&lane->cm, pool->channel, (struct sockaddr *)&pool->peer, &data,
			deadline_ns);
		r = cm_wait(&lane->cm, &pool->lock);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lane_is_ready(struct request *request, const struct message *m)
{
	const struct lane *lane = request->context;

	return m->u.lane.lane == lane->number ? 0 : -EPROTO;
}

/* The daemon binds nothing before it knows that this connection is the one we have made. */
static int lane_confirm(struct lane *lane, uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_LANE_CONFIRM};
	struct ibv_qp *qp = cm_qp(&lane->cm);
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int r;

	r = ibv_query_qp(qp, &attr, IBV_QP_DEST_QPN, &init_attr);
	if (r != 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "ibv_query_qp: %s",
					  strerrordesc_np(r > 0 ? r : errno));
	m.u.lane_confirm = (struct message_lane_confirm){
		.lane = lane->number,
		.daemon_qpn = attr.dest_qp_num,
		.client_qpn = qp->qp_num,
	};
	return control_request(lane->pool, &m, MESSAGE_LANE_READY, lane_is_ready, lane,
			       deadline_ns);
}

static int lane_set_up(struct lane *lane)
{
	struct mempool *pool = lane->pool;
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	if (lane->state == LANE_OPENING) {
		lane->state = LANE_UP;
		if (lane->incarnation != 0)
			events_tell(pool, MEMPOOL_EVENT_LANE_RESTORED, 0);
		lane->incarnation = ++pool->incarnations;
	} else if (!control_is_open(&pool->control)) {
		r = client_error_forward(&pool->control.loss);
	} else {
		r = client_error_raise(MEMPOOL_E_LANE, "the data connection was lost at once: %s",
				       lane->cm.error.text);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lane_try(struct lane *lane, uint64_t deadline_ns)
{
	int r;

	(void)lane_close(lane);
	r = lane_ask(lane, deadline_ns);
	if (r < 0)
		return r;
	r = lane_connect(lane, deadline_ns);
	if (r == 0)
		r = lane_confirm(lane, deadline_ns);
	if (r == 0)
		r = lane_set_up(lane);
	if (r < 0)
		(void)lane_close(lane);
	return r;
}

/* Return: false if the session is lost, or the deadline passes before the pause is over. */
static bool lane_pause(struct lane *lane, uint64_t pause_ms, uint64_t deadline_ns)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), pause_ms);
	struct mempool *pool = lane->pool;
	bool lost;

	if (until_ns >= deadline_ns)
		return false;
	(void)pthread_mutex_lock(&pool->lock);
	while (!pool->control.lost && wait_until(&pool->leases_changed, &pool->lock, until_ns))
		;
	lost = pool->control.lost;
	(void)pthread_mutex_unlock(&pool->lock);
	return !lost;
}

/* An offer is used up by a connection that did not come about, since packets were lost, say. */
int lane_open(struct lane *lane, uint64_t deadline_ns)
{
	uint64_t pause_ms = LANE_PAUSE_MIN_MS;
	int r;

	r = lane_try(lane, deadline_ns);
	while (r == MEMPOOL_E_LANE_OFFER && lane_pause(lane, pause_ms, deadline_ns)) {
		if (pause_ms < LANE_PAUSE_MAX_MS)
			pause_ms *= 2;
		r = lane_try(lane, deadline_ns);
	}
	return r;
}

bool lane_is_up(struct lane *lane)
{
	struct mempool *pool = lane->pool;
	bool up;

	(void)pthread_mutex_lock(&pool->lock);
	up = lane->state == LANE_UP;
	(void)pthread_mutex_unlock(&pool->lock);
	return up;
}

int lane_ensure(struct lane *lane, uint64_t deadline_ns)
{
	int r;

	r = lane_enter(lane, deadline_ns);
	if (r < 0)
		return r;
	if (!lane_is_up(lane))
		r = lane_open(lane, deadline_ns);
	lane_leave(lane);
	return r;
}

void lane_fill(const struct lane *lane, const struct lane_work *work, struct ibv_sge *sge,
	       struct ibv_send_wr *ret_wr)
{
	bool is_inline = work->opcode == IBV_WR_RDMA_WRITE &&
			 work->remote.len_bytes <= lane->inline_max_bytes;

	*sge = (struct ibv_sge){
		.addr = (uintptr_t)work->local,
		.length = work->remote.len_bytes,
		.lkey = work->lkey,
	};
	*ret_wr = (struct ibv_send_wr){
		.sg_list = sge,
		.num_sge = 1,
		.opcode = work->opcode,
		.send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0u),
	};
	if (work->opcode == IBV_WR_RDMA_WRITE || work->opcode == IBV_WR_RDMA_READ) {
		ret_wr->wr.rdma.remote_addr = work->remote.remote_addr;
		ret_wr->wr.rdma.rkey = work->remote.rkey;
		return;
	}
	ret_wr->wr.atomic.remote_addr = work->remote.remote_addr;
	ret_wr->wr.atomic.rkey = work->remote.rkey;
	ret_wr->wr.atomic.compare_add = work->compare_add;
	ret_wr->wr.atomic.swap = work->swap;
}

int lane_post(struct lane *lane, const struct lane_work *work)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	int r;

	assert(lane->posted < LANE_SENDS);
	lane_fill(lane, work, &sge, &wr);
	r = verbs_post_send(cm_qp(&lane->cm), &wr, &bad);
	/* A device that does not say that it has not taken it may have. */
	if (r == 0 || bad != &wr)
		lane->posted++;
	return r;
}

static int lane_raw_held(struct lane *lane, enum ibv_wr_opcode opcode, void *local,
			 uint32_t len_bytes, uint64_t remote_addr, uint32_t rkey,
			 uint64_t deadline_ns, enum ibv_wc_status *ret_status)
{
	struct lane_work work = {
		.opcode = opcode,
		.local = local,
		.remote = {.remote_addr = remote_addr, .rkey = rkey, .len_bytes = len_bytes},
	};
	enum ibv_wc_status status;
	int r;

	if (!lane_is_up(lane))
		return client_error_raise(MEMPOOL_E_LANE, "the lane is not up");
	work.lkey = lane_staging_key(lane);
	r = lane_post(lane, &work);
	if (r < 0) {
		lane_abort(lane);
		return client_error_raise(MEMPOOL_E_SYSTEM, "ibv_post_send: %s",
					  strerrordesc_np(-r));
	}
	r = lane_collect(lane, deadline_ns, &status);
	if (r <= 0 || status != IBV_WC_SUCCESS)
		lane_abort(lane);
	if (r <= 0)
		return client_error_raise(MEMPOOL_E_TIMEOUT, "no completion in time");
	*ret_status = status;
	return 0;
}

int lane_raw(struct lane *lane, enum ibv_wr_opcode opcode, void *local, uint32_t len_bytes,
	     uint64_t remote_addr, uint32_t rkey, uint32_t timeout_ms,
	     enum ibv_wc_status *ret_status)
{
	uint64_t deadline_ns = clock_add_ms(clock_now_ns(), timeout_ms);
	int r;

	r = lane_enter(lane, deadline_ns);
	if (r < 0)
		return r;
	r = lane_raw_held(lane, opcode, local, len_bytes, remote_addr, rkey, deadline_ns,
			  ret_status);
	lane_leave(lane);
	return r;
}
