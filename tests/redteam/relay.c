/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Owns the listening id, both connections of the session that goes on, and the records.
 *
 * Connections of this process are diverted where librdmacm is told the address, so that the
 * daemon's address stays what a client knows: its lanes can lead straight to the daemon.
 *
 * Thread: its own; what the test looks at is guarded by the lock.
 */
#include "tests/redteam/relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

#define RELAY_PORT    7473
#define RELAY_BACKLOG 64
#define RELAY_LAST_MS 500 /* for messages that are under way when an end is gone */

int __real_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *dest,
			     int timeout_ms);
int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *dest,
			     int timeout_ms);

static atomic_int relay_diverted;
static _Thread_local bool relay_is_own; /* what he connects himself leads to the daemon */

void relay_divert(int count)
{
	atomic_store(&relay_diverted, count);
}

static bool relay_take_diversion(void)
{
	int left = atomic_load(&relay_diverted);

	while (left > 0) {
		if (atomic_compare_exchange_weak(&relay_diverted, &left, left - 1))
			return true;
	}
	return false;
}

int __wrap_rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *dest,
			     int timeout_ms)
{
	struct sockaddr_in there;

	if (dest->sa_family != AF_INET || relay_is_own || !relay_take_diversion())
		return __real_rdma_resolve_addr(id, source, dest, timeout_ms);
	memcpy(&there, dest, sizeof(there));
	there.sin_port = htons(RELAY_PORT);
	return __real_rdma_resolve_addr(id, source, (struct sockaddr *)&there, timeout_ms);
}

/* Records. */

static const struct relay_record *relay_record(struct relay *relay, uint32_t session,
					       enum relay_side side, uint32_t number,
					       const void *bytes, uint32_t len_bytes)
{
	struct relay_record *record;

	if (relay->count == relay->cap) {
		size_t cap = relay->cap == 0 ? 1024 : 2 * relay->cap;
		struct relay_record *records =
			reallocarray(relay->records, cap, sizeof(*relay->records));

		if (records == NULL)
			abort();
		relay->records = records;
		relay->cap = cap;
	}
	record = &relay->records[relay->count++];
	*record = (struct relay_record){
		.session = session,
		.side = side,
		.number = number,
		.len_bytes = len_bytes,
		.bytes = malloc(len_bytes + 1), /* a SEND may have no bytes */
	};
	if (record->bytes == NULL)
		abort();
	memcpy(record->bytes, bytes, len_bytes);
	return record;
}

unsigned int relay_count(const struct relay *relay, uint32_t session, const void *bytes,
			 size_t len_bytes)
{
	unsigned int count = 0;

	for (size_t i = 0; i < relay->count; i++) {
		const struct relay_record *record = &relay->records[i];

		if (session == 0 || record->session == session)
			count += memmem(record->bytes, record->len_bytes, bytes, len_bytes) != NULL;
	}
	return count;
}

const struct relay_record *relay_find(const struct relay *relay, uint32_t session,
				      enum relay_side side, uint32_t number)
{
	for (size_t i = 0; i < relay->count; i++) {
		const struct relay_record *record = &relay->records[i];

		if (record->session == session && record->side == side && record->number == number)
			return record;
	}
	return NULL;
}

/* Connections. */

static void relay_reject(struct rdma_cm_id *id, int code)
{
	struct private_data data = {.kind = PRIVATE_DATA_REJECT, .code = (uint32_t)code};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];

	(void)rdma_reject(id, bytes, private_data_encode(&data, bytes));
}

static void relay_take_lane(struct relay *relay, struct rdma_cm_id *id, const uint8_t *bytes,
			    uint8_t len_bytes)
{
	struct raw lane;
	int r;

	(void)relay_record(relay, 0, RELAY_TO_DAEMON, RELAY_PRIVATE_DATA, bytes, len_bytes);
	r = raw_connect(&lane, bytes, len_bytes);
	raw_close(&lane);
	relay->lanes_tried++;
	relay->lanes_opened += r == 0;
	relay->failed |= r < 0;
	relay->lane_code = r;
	relay_reject(id, r);
	(void)rdma_destroy_id(id);
}

static void relay_end_session(struct relay *relay)
{
	raw_close(&relay->ends[RELAY_TO_CLIENT]);
	raw_close(&relay->ends[RELAY_TO_DAEMON]);
	relay->open = false;
}

static int relay_accept(struct relay *relay)
{
	struct raw *daemon = &relay->ends[RELAY_TO_DAEMON];
	struct rdma_conn_param param = {
		.private_data = daemon->reply,
		.private_data_len = daemon->reply_bytes,
		.rnr_retry_count = 6,
	};

	if (relay->change_accept != NULL)
		relay->change_accept(daemon->reply, daemon->reply_bytes);
	return rdma_accept(relay->ends[RELAY_TO_CLIENT].id, &param) == 0 ? 0 : -errno;
}

static void relay_take_control(struct relay *relay, struct rdma_cm_id *id, uint8_t *bytes,
			       uint8_t len_bytes)
{
	struct raw *client = &relay->ends[RELAY_TO_CLIENT];
	struct raw *daemon = &relay->ends[RELAY_TO_DAEMON];
	int r;

	relay->sessions++;
	relay->open = true;
	memset(relay->numbers, 0, sizeof(relay->numbers));
	(void)relay_record(relay, relay->sessions, RELAY_TO_DAEMON, RELAY_PRIVATE_DATA, bytes,
			   len_bytes);
	if (relay->change_request != NULL)
		relay->change_request(bytes, len_bytes);
	r = raw_adopt(client, id);
	if (r == 0)
		r = raw_connect(daemon, bytes, len_bytes);
	if (r > 0)
		relay_reject(id, r);
	if (r == 0) {
		(void)relay_record(relay, relay->sessions, RELAY_TO_CLIENT, RELAY_PRIVATE_DATA,
				   daemon->reply, daemon->reply_bytes);
		r = relay_accept(relay);
	}
	relay->failed |= r < 0;
	if (r != 0)
		relay_end_session(relay);
}

static void relay_take_request(struct relay *relay, struct rdma_cm_id *id, uint8_t *bytes,
			       uint8_t len_bytes)
{
	struct private_data data;

	if (private_data_decode(bytes, len_bytes, &data) != 0) {
		relay->failed = true;
		relay_reject(id, 0);
		(void)rdma_destroy_id(id);
		return;
	}
	/* Of what rdma_cm delivers only so much was sent. */
	len_bytes = private_data_encode(&data, bytes);
	if (data.kind == PRIVATE_DATA_LANE) {
		relay_take_lane(relay, id, bytes, len_bytes);
		return;
	}
	if (relay->open)
		relay_end_session(relay);
	relay_take_control(relay, id, bytes, len_bytes);
}

/* Return: was there an event? */
static bool relay_look_at_requests(struct relay *relay)
{
	struct pollfd fd = {.fd = relay->channel->fd, .events = POLLIN};
	uint8_t bytes[UINT8_MAX] = {0};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id = NULL;
	uint8_t len_bytes = 0;

	if (poll(&fd, 1, 0) <= 0 || rdma_get_cm_event(relay->channel, &event) != 0)
		return false;
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		id = event->id;
		if (event->param.conn.private_data != NULL)
			len_bytes = event->param.conn.private_data_len;
		if (len_bytes > 0)
			memcpy(bytes, event->param.conn.private_data, len_bytes);
	}
	(void)rdma_ack_cm_event(event);
	if (id != NULL)
		relay_take_request(relay, id, bytes, len_bytes);
	return true;
}

/* Passing on. */

void relay_deliver(struct relay *relay, enum relay_side side, const uint8_t *bytes,
		   uint32_t len_bytes)
{
	int r = raw_send(&relay->ends[side], bytes, len_bytes);

	/* Refused by a queue pair that is gone: that is for the end of the session to see. */
	if (r == -EAGAIN || r == -EMSGSIZE)
		relay->failed = true;
}

static void relay_came(struct relay *relay, enum relay_side side, const uint8_t *bytes,
		       uint32_t len_bytes)
{
	const struct relay_record *record = relay_record(relay, relay->sessions, side,
							 relay->numbers[side]++, bytes, len_bytes);

	if (relay->pass != NULL)
		relay->pass(relay, record);
	else
		relay_deliver(relay, side, bytes, len_bytes);
}

/* Return: has something come? */
static bool relay_forward(struct relay *relay, enum relay_side side)
{
	struct raw *from =
		&relay->ends[side == RELAY_TO_DAEMON ? RELAY_TO_CLIENT : RELAY_TO_DAEMON];
	uint8_t bytes[PROTO_FRAME_MAX];
	uint32_t len_bytes;

	if (raw_take(from, bytes, &len_bytes) != 1)
		return false;
	relay_came(relay, side, bytes, len_bytes);
	return true;
}

/* What has been passed to an end is to arrive before the connection goes. */
static void relay_finish(struct relay *relay)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), RELAY_LAST_MS);
	struct raw *client = &relay->ends[RELAY_TO_CLIENT];
	uint8_t bytes[PROTO_FRAME_MAX];
	uint32_t len_bytes;

	while (relay->ends[RELAY_TO_DAEMON].gone && !client->gone && client->sends_posted > 0 &&
	       clock_now_ns() < until_ns) {
		if (raw_take(client, bytes, &len_bytes) == 0)
			harness_sleep_ms(1);
	}
	relay_end_session(relay);
}

/* Return: was there anything to do? */
static bool relay_step(struct relay *relay)
{
	bool busy = relay_look_at_requests(relay);

	for (int side = 0; side < RELAY_SIDES && relay->open; side++)
		busy |= relay_forward(relay, (enum relay_side)side);
	if (relay->open && !busy &&
	    (relay->ends[RELAY_TO_DAEMON].gone || relay->ends[RELAY_TO_CLIENT].gone))
		relay_finish(relay);
	return busy;
}

static void *relay_thread(void *arg)
{
	struct relay *relay = arg;
	bool busy;

	relay_is_own = true;
	while (!atomic_load(&relay->stop)) {
		(void)pthread_mutex_lock(&relay->lock);
		busy = relay_step(relay);
		(void)pthread_mutex_unlock(&relay->lock);
		if (!busy)
			harness_sleep_ms(1);
	}
	return NULL;
}

bool relay_wait_idle(struct relay *relay, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	bool open = true;

	while (clock_now_ns() < until_ns) {
		(void)pthread_mutex_lock(&relay->lock);
		open = relay->open;
		(void)pthread_mutex_unlock(&relay->lock);
		if (!open)
			break;
		harness_sleep_ms(1);
	}
	return !open;
}

static int relay_listen(struct relay *relay)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(RELAY_PORT)};

	if (inet_pton(AF_INET, harness_address(), &here.sin_addr) != 1)
		return -EINVAL;
	relay->channel = rdma_create_event_channel();
	if (relay->channel == NULL ||
	    rdma_create_id(relay->channel, &relay->listener, relay, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(relay->listener, (struct sockaddr *)&here) != 0 ||
	    rdma_listen(relay->listener, RELAY_BACKLOG) != 0)
		return -errno;
	return 0;
}

int relay_open(struct relay *relay, relay_pass_fn pass, void *context)
{
	int r;

	*relay = (struct relay){.pass = pass, .context = context};
	(void)pthread_mutex_init(&relay->lock, NULL);
	r = relay_listen(relay);
	if (r == 0)
		r = -pthread_create(&relay->thread, NULL, relay_thread, relay);
	relay->running = r == 0;
	return r;
}

void relay_close(struct relay *relay)
{
	relay_divert(0);
	atomic_store(&relay->stop, true);
	if (relay->running)
		(void)pthread_join(relay->thread, NULL);
	if (relay->open)
		relay_end_session(relay);
	if (relay->listener != NULL)
		(void)rdma_destroy_id(relay->listener);
	if (relay->channel != NULL)
		rdma_destroy_event_channel(relay->channel);
	for (size_t i = 0; i < relay->count; i++)
		free(relay->records[i].bytes);
	free(relay->records);
	*relay = (struct relay){0};
}
