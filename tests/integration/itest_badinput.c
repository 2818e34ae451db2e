/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that break the protocol. Whatever they send ends their own session at most: another
 * one, which writes all the time, does not notice, and neither does the daemon.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

/* The session that must not notice. */
struct bystander {
	mempool *pool;
	mempool_lease *lease;
	pthread_t thread;
	atomic_bool stop;
	uint32_t writes;
	int code;
};

static void *bystander_thread(void *arg)
{
	struct bystander *bystander = arg;
	uint8_t bytes[4096];

	harness_fill(bytes, sizeof(bytes), 1);
	while (!atomic_load(&bystander->stop) && bystander->code == 0) {
		bystander->code = mempool_write(bystander->lease, 0, bytes, sizeof(bytes));
		bystander->writes++;
		harness_sleep_ms(1);
	}
	return NULL;
}

static void bystander_start(struct bystander *bystander)
{
	CHECK_INT(harness_connect("bystander", &bystander->pool), 0);
	CHECK_INT(harness_acquire(bystander->pool, 4096, 600000, &bystander->lease), 0);
	CHECK_INT(pthread_create(&bystander->thread, NULL, bystander_thread, bystander), 0);
}

static void bystander_end(struct bystander *bystander)
{
	atomic_store(&bystander->stop, true);
	if (bystander->thread != 0)
		(void)pthread_join(bystander->thread, NULL);
	bystander->thread = 0;
	mempool_close(bystander->pool);
	bystander->pool = NULL;
}

#define BYSTANDER(name)                                                      \
	__attribute__((cleanup(bystander_end))) struct bystander name = {0}; \
	bystander_start(&name);                                              \
	CHECK(!test_has_failed())

static void check_unharmed(struct harness *h, struct bystander *bystander)
{
	uint32_t writes;

	CHECK(harness_wait_number(h, "sessions", 1, 10000));
	CHECK_INT(harness_number(h, "pid"), h->pid);
	bystander_end(bystander);
	writes = bystander->writes;
	printf("# meanwhile %u writes of another session\n", writes);
	CHECK_INT(bystander->code, 0);
	CHECK(writes > 10);
	CHECK_INT(harness_stop(h), 0);
}

/* Malformed messages: a good one with something changed. */

static const struct corruption {
	const char *what;
	uint32_t offset;
	uint8_t value;
	int32_t len_change;
} corruptions[] = {
	{"type 0", 0, 0, 0},
	{"a type beyond the last", 0, MESSAGE_TYPE_END, 0},
	{"a type with a high byte", 1, 0x80, 0},
	{"an unknown flag", 2, 0x02, 0},
	{"a flag that is for others", 2, 0x01, 0},
	{"a high flag", 3, 0x80, 0},
	{"a length that is short by one", 4, 0, -1},
	{"a length that is long by one", 4, 0, 1},
	{"a huge length", 7, 0xff, 0},
	{"a request id that is 0", 8, 0, 0},
	{"more credits than receives", 16, 0xff, 0},
	{"far too many credits", 17, 0xff, 0},
	{"a reserved byte", 18, 1, 0},
	{"the last reserved byte", 23, 1, 0},
};

/* Return: the code with which the session ended; 0 if without one; negative errno. */
static int wait_for_end(struct raw *raw)
{
	struct message m;
	int code = 0;
	int r;

	while ((r = raw_wait(raw, RAW_LATE_MS, &m)) == 1) {
		if (m.type == MESSAGE_ERROR && m.request_id == 0)
			code = (int)m.u.error.code;
	}
	return r == -ENETRESET ? code : -ETIMEDOUT;
}

/* @bytes: what a client sends that has or has not said hello, sealed as it should be or not */
static void try_frame(struct harness *h, const char *what, bool welcomed, bool sealed,
		      const void *bytes, uint32_t len_bytes)
{
	int expected = sealed ? ERROR_PROTOCOL : ERROR_AUTH;
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	int64_t errors = harness_number(h, "counters.protocol_errors");
	struct message_welcome welcome;
	int code;

	CHECK_INT(raw_open(&raw, "mallory"), 0);
	if (welcomed)
		CHECK_INT(raw_hello(&raw, &welcome), 0);
	if (sealed)
		CHECK_INT(raw_send_sealed(&raw, bytes, len_bytes), 0);
	else
		CHECK_INT(raw_send(&raw, bytes, len_bytes), 0);
	code = wait_for_end(&raw);
	if (code != expected)
		printf("# %s (%s): the session ended with %d\n", what,
		       welcomed ? "after the welcome" : "as the first message", code);
	CHECK_INT(code, expected);
	CHECK_INT(harness_number(h, "counters.protocol_errors"), errors + sealed);
}

static void try_bytes(struct harness *h, const char *what, bool welcomed, const void *bytes,
		      uint32_t len_bytes)
{
	try_frame(h, what, welcomed, true, bytes, len_bytes);
}

static void try_corruption(struct harness *h, const struct corruption *corruption, bool welcomed)
{
	struct message m = {.type = MESSAGE_PING, .request_id = 2};
	uint8_t bytes[PROTO_MESSAGE_MAX] = {0};
	size_t len_bytes;

	if (!welcomed)
		m = raw_hello_message();
	CHECK_INT(message_encode(&m, bytes, sizeof(bytes), &len_bytes), 0);
	if (corruption->len_change == 0)
		bytes[corruption->offset] = corruption->value;
	else
		len_bytes = (size_t)((int64_t)len_bytes + corruption->len_change);
	try_bytes(h, corruption->what, welcomed, bytes, (uint32_t)len_bytes);
}

static void try_corruptions(bool welcomed)
{
	HARNESS(h, .pool_size = NULL);
	BYSTANDER(bystander);

	for (size_t i = 0; i < sizeof(corruptions) / sizeof(corruptions[0]); i++) {
		try_corruption(&h, &corruptions[i], welcomed);
		if (test_has_failed()) {
			printf("# %s\n", corruptions[i].what);
			return;
		}
	}
	check_unharmed(&h, &bystander);
}

TEST(message__malformed_as_the_first)
{
	try_corruptions(false);
}

TEST(message__malformed_later)
{
	try_corruptions(true);
}

TEST(message__garbage_of_any_length)
{
	static const uint32_t lens_bytes[] = {1, 15, 16, 17, 47, 48, 96, 140, 4096, 8191, 8192};
	HARNESS(h, .pool_size = NULL);
	BYSTANDER(bystander);
	uint8_t garbage[PROTO_FRAME_MAX];

	for (size_t i = 0; i < sizeof(lens_bytes) / sizeof(lens_bytes[0]); i++) {
		harness_fill(garbage, sizeof(garbage), (uint32_t)i);
		try_frame(&h, "garbage", i % 2 != 0, false, garbage, lens_bytes[i]);
		memset(garbage, 0, sizeof(garbage));
		try_frame(&h, "zeros", i % 2 == 0, false, garbage, lens_bytes[i]);
		CHECK(!test_has_failed());
	}
	check_unharmed(&h, &bystander);
}

TEST(message__sealed_garbage_of_any_length)
{
	static const uint32_t lens_bytes[] = {0, 1, 23, 24, 25, 100, 4096, 8000, PROTO_MESSAGE_MAX};
	HARNESS(h, .pool_size = NULL);
	BYSTANDER(bystander);
	uint8_t garbage[PROTO_FRAME_MAX];

	for (size_t i = 0; i < sizeof(lens_bytes) / sizeof(lens_bytes[0]); i++) {
		bool fits_first = lens_bytes[i] < PROTO_MESSAGE_MAX;

		harness_fill(garbage, sizeof(garbage), (uint32_t)i);
		try_bytes(&h, "garbage", i % 2 != 0 || !fits_first, garbage, lens_bytes[i]);
		memset(garbage, 0, sizeof(garbage));
		try_bytes(&h, "zeros", i % 2 == 0 || !fits_first, garbage, lens_bytes[i]);
		CHECK(!test_has_failed());
	}
	check_unharmed(&h, &bystander);
}

/* Well-formed messages that are not allowed now, or never from a client. */
TEST(message__in_the_wrong_state)
{
	HARNESS(h, .pool_size = NULL);
	BYSTANDER(bystander);
	uint8_t bytes[PROTO_MESSAGE_MAX];
	size_t len_bytes;

	for (uint16_t type = MESSAGE_HELLO; type < MESSAGE_TYPE_END; type++) {
		bool notice = type == MESSAGE_BYE || type == MESSAGE_CREDIT ||
			      type == MESSAGE_LANE_LOST || type == MESSAGE_LEASES_ENDED ||
			      type == MESSAGE_REVOKE || type == MESSAGE_REVOKED ||
			      type == MESSAGE_QUIESCE || type == MESSAGE_QUIESCED ||
			      type == MESSAGE_DRAIN;
		bool from_client = type == MESSAGE_BYE || type == MESSAGE_CREDIT ||
				   type == MESSAGE_PING || type == MESSAGE_LANE_OPEN ||
				   type == MESSAGE_LANE_CONFIRM || type == MESSAGE_ACQUIRE ||
				   type == MESSAGE_RENEW || type == MESSAGE_RELEASE ||
				   type == MESSAGE_ATTACH || type == MESSAGE_REATTACH ||
				   type == MESSAGE_REVOKED || type == MESSAGE_MODIFY ||
				   type == MESSAGE_QUIESCED;
		struct message m = {.type = type, .request_id = notice ? 0 : 9};

		if (type == MESSAGE_HELLO || type == MESSAGE_WELCOME)
			m = raw_hello_message();
		m.type = type;
		if (type == MESSAGE_WELCOME || type == MESSAGE_GRANT ||
		    type == MESSAGE_LEASES_ENDED)
			continue; /* cannot be encoded from zeros; their headers are tried above */
		if (type == MESSAGE_ERROR)
			m.u.error.code = ERROR_BUSY;
		if (type == MESSAGE_CREDIT)
			m.credits = 1;
		if (type == MESSAGE_ACQUIRE)
			m.u.acquire.count = 1;
		if (type == MESSAGE_RELEASE || type == MESSAGE_REVOKED)
			m.u.leases.count = 1;
		if (type == MESSAGE_RELEASED)
			m.u.released.count = 1;
		if (type == MESSAGE_REVOKE)
			m.u.revoke.count = 1;
		CHECK_INT(message_encode(&m, bytes, sizeof(bytes), &len_bytes), 0);
		/* A first message may be hello only; afterwards, what a client may say. */
		if (type != MESSAGE_HELLO)
			try_bytes(&h, message_type_name(type), false, bytes, (uint32_t)len_bytes);
		if (!from_client)
			try_bytes(&h, message_type_name(type), true, bytes, (uint32_t)len_bytes);
		if (test_has_failed()) {
			printf("# %s\n", message_type_name(type));
			return;
		}
	}
	check_unharmed(&h, &bystander);
}

/* Private data of the connection. */
TEST(connect__wrong_private_data)
{
	HARNESS(h, .pool_size = NULL);
	BYSTANDER(bystander);
	uint8_t garbage[PROTO_PRIVATE_DATA_MAX];
	struct private_data good = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX] = {0};
	uint8_t good_bytes = private_data_encode(&good, bytes);

	harness_fill(garbage, sizeof(garbage), 77);
	for (uint8_t len_bytes = 0; len_bytes <= PROTO_PRIVATE_DATA_MAX; len_bytes++) {
		struct raw raw;
		int r = raw_connect(&raw, garbage, len_bytes);

		raw_close(&raw);
		CHECK_INT(r, ERROR_PROTOCOL);
	}
	/* Cut short: padding of zeros takes the place of the versions. */
	for (uint8_t len_bytes = 0; len_bytes + 1 < good_bytes; len_bytes++) {
		struct raw raw;
		int r = raw_connect(&raw, bytes, len_bytes);

		raw_close(&raw);
		if (len_bytes < good_bytes - 3)
			CHECK_INT(r, ERROR_PROTOCOL);
	}
	check_unharmed(&h, &bystander);
}

/* As much as rdma_cm takes: what is good is not spoilt by what comes behind it. */
TEST(field_45_connect__private_data_of_each_length)
{
	HARNESS(h, .pool_size = NULL);
	struct private_data good = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX + 1];
	uint8_t good_bytes;
	struct raw raw;
	int r;

	harness_fill(bytes, sizeof(bytes), (uint32_t)clock_now_ns());
	good_bytes = private_data_encode(&good, bytes);
	for (uint8_t len_bytes = 0; len_bytes <= PROTO_PRIVATE_DATA_MAX; len_bytes++) {
		r = raw_connect(&raw, bytes, len_bytes);
		raw_close(&raw);
		/* rdma_cm sends zeros behind the end: the highest byte of version_min is one. */
		if (len_bytes != good_bytes - 1)
			CHECK_INT(r, len_bytes < good_bytes ? ERROR_PROTOCOL : 0);
	}
	r = raw_connect(&raw, bytes, PROTO_PRIVATE_DATA_MAX + 1);
	raw_close(&raw);
	CHECK_INT(r, -EINVAL);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(connect__other_versions)
{
	HARNESS(h, .pool_size = NULL);
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION + 1,
		.version_min = PROTO_VERSION + 1,
	};
	struct raw raw;
	int r = raw_connect_as(&raw, &data);

	raw_close(&raw);
	CHECK_INT(r, ERROR_VERSION);
	data.version_min = PROTO_VERSION;
	r = raw_connect_as(&raw, &data);
	raw_close(&raw);
	CHECK_INT(r, 0);
}

/* Lanes. */

static void wrong_mac(struct private_data *data)
{
	data->mac[PROTO_MAC_BYTES - 1] ^= 1;
}

static void wrong_lane(struct private_data *data)
{
	data->lane++;
}

static void wrong_session(struct private_data *data)
{
	data->session_id++;
}

static struct private_data last_sent;

static void remember(struct private_data *data)
{
	last_sent = *data;
}

static void replay(struct private_data *data)
{
	*data = last_sent;
}

static int try_lane(struct peer *peer, const struct message_lane_offer *offer,
		    void (*change)(struct private_data *data))
{
	struct peer_lane lane = {0};
	int r = peer_connect_with(peer, offer, change, &lane);

	peer_lane_close(&lane);
	return r;
}

/* What somebody has seen of a lane's private data is of no use on any other connection. */
TEST(lane__wrong_or_used_proof)
{
	HARNESS(h, .pool_size = NULL);
	BYSTANDER(bystander);
	PEER(mallory, "mallory");
	PEER_LANE(lane, &mallory);
	struct message_lane_offer offer, next;

	CHECK_INT(peer_offer(&mallory, &offer), 0);
	CHECK_INT(peer_offer(&mallory, &next), 0);
	CHECK_INT(try_lane(&mallory, &offer, wrong_mac), ERROR_LANE_OFFER);
	CHECK_INT(try_lane(&mallory, &offer, wrong_lane), ERROR_LANE_OFFER);
	CHECK_INT(try_lane(&mallory, &offer, wrong_session), ERROR_LANE_OFFER);
	/* Of another offer that is good, over another QP. */
	remember(&(struct private_data){
		.kind = PRIVATE_DATA_LANE,
		.session_id = mallory.welcome.session_id,
		.lane = next.lane,
	});
	peer_prove(&mallory, &lane, &last_sent);
	CHECK_INT(try_lane(&mallory, &offer, replay), ERROR_LANE_OFFER);
	/* None of these has used it up. */
	CHECK_INT(try_lane(&mallory, &offer, remember), 0);
	CHECK_INT(try_lane(&mallory, &offer, replay), ERROR_LANE_OFFER);
	CHECK_INT(try_lane(&mallory, &offer, NULL), ERROR_LANE_OFFER);
	peer_lane_close(&lane);
	peer_close(&mallory);
	check_unharmed(&h, &bystander);
}
