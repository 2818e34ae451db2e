/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/noise.c: the vector that implementations of Noise share, from both sides, and that
 * nothing but the right bytes in the right place gets through.
 */
#include "common/noise.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/abort.h"
#include "tests/unit/hex.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

/* The published vector; figures of the test's own are from an implementation in Python. */

#define INIT_STATIC    "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"
#define INIT_EPHEMERAL "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"
#define RESP_STATIC    "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893"
#define RESP_PUBLIC    "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62"
#define RESP_EPHEMERAL "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"
#define HANDSHAKE_HASH                                                     \
	"1c8fa891cb414fedba6daa7c6f4ae0a6d98e5f9768cc9cecd27e805614943ee9" \
	"c8a1b27fbfb76dc197255c8aa69f6b4285c423840b8bedf45e652ca64f797d81"

/* Not in the vector, but they follow from it. */
#define KEY_TO_RESPONDER  "e5a7ef420e26421734c82df62522251fa2f56a6626d64039756ffec438b2883f"
#define KEY_TO_INITIATOR  "065bc21e75d5ac1c0d227dcd158cc9e1979fc30efeb558622535b4b84eb6c80a"
#define KEY_REKEYED	  "e7f2898a1df827651b186d62d2d6ac5ba7e677043a13b9b69859cd2489f3a232"
#define KEY_REKEYED_AGAIN "bd42a85aa910785e4f12fbeda03b4943ea968e2202245181621b54b9eaa0d6ef"
#define EXPORTED_LANE	  "62247df6b51a54d0f6ea131a979931a518a24730180b1111f985bcdf34c444e1"

static const char prologue[] = "John Galt";

#define PROLOGUE_BYTES (sizeof(prologue) - 1)

struct exchange {
	const char *payload;
	const char *message; /* hex */
};

/* Initiator and responder in turn; the first two are the handshake. */
static const struct exchange exchanges[] = {
	{"Ludwig von Mises", "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
			     "ba83a447b38c83e327ad936929812f624884847b7831e95e197b2f797088efdd"
			     "2f88f1db7e1fb0e99c64419097af91cee64e470f4b6fcd9298ce0b56fe20f86e"
			     "13bf70439c538e3602a7127af71a29cc"},
	{"Murray Rothbard", "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
			    "9f069b267a06b3de3ecb1043bcb098e9af91d9c64748d998c7b47890871571"},
	{"F. A. Hayek", "cd54383060e7a28434cca27fb1cc524cfbabeb18181589df219d07"},
	{"Carl Menger", "a856d3bf0246bfc476c655009cd1ed677b8dcc5b349ae8ef2a05f2"},
	{"Jean-Baptiste Say", "49063084b2c51f098337cb8a13739ac848f907e67cfb2cc8a8b60586467aa02fc7"},
	{"Eugen B\xf6hm von Bawerk",
	 "8b9709d23b47e4639df7678d7a21741eba4ef1e9c60383001c7435549c20f9d56f30e935d3"},
};

#define EXCHANGES    (sizeof(exchanges) / sizeof(exchanges[0]))
#define FIRST_BYTES  (NOISE_FIRST_BYTES + 16)  /* of the vector's message 1 */
#define SECOND_BYTES (NOISE_SECOND_BYTES + 15) /* and 2 */
#define ROOM	     512

/* Both ends of one connection, and what is between them. */
struct ends {
	struct secure_key_pair init_static;
	struct secure_key_pair resp_static;
	struct noise init;
	struct noise resp;
	struct noise_cipher init_send, init_receive;
	struct noise_cipher resp_send, resp_receive;
	uint8_t message[ROOM];
	size_t len_bytes;
	uint8_t payload[ROOM];
	size_t payload_bytes;
};

static void pair_from_hex(const char *text, struct secure_key_pair *ret_pair)
{
	uint8_t private_key[SECURE_KEY_BYTES];

	hex(text, private_key, sizeof(private_key));
	secure_key_pair_from_private(private_key, ret_pair);
}

static void set_ephemeral(struct noise *noise, const char *text)
{
	uint8_t private_key[SECURE_KEY_BYTES];

	hex(text, private_key, sizeof(private_key));
	noise_set_ephemeral(noise, private_key);
}

/* With the keys of the vector. */
static void start(struct ends *ends)
{
	int r = secure_init();

	assert(r == 0);
	(void)r;
	memset(ends, 0, sizeof(*ends));
	pair_from_hex(INIT_STATIC, &ends->init_static);
	pair_from_hex(RESP_STATIC, &ends->resp_static);
	noise_init_initiator(&ends->init, prologue, PROLOGUE_BYTES, &ends->init_static,
			     ends->resp_static.public_key);
	noise_init_responder(&ends->resp, prologue, PROLOGUE_BYTES, &ends->resp_static);
	set_ephemeral(&ends->init, INIT_EPHEMERAL);
	set_ephemeral(&ends->resp, RESP_EPHEMERAL);
}

static int write_message(struct ends *ends, struct noise *noise, const char *payload)
{
	return noise_write(noise, payload, strlen(payload), ends->message, ROOM, &ends->len_bytes);
}

static int read_message(struct ends *ends, struct noise *noise)
{
	return noise_read(noise, ends->message, ends->len_bytes, ends->payload, ROOM,
			  &ends->payload_bytes);
}

/* Up to where message 1 has been written, message 2 has been written, both have passed. */
static bool start_to_first(struct ends *ends)
{
	start(ends);
	return write_message(ends, &ends->init, exchanges[0].payload) == 0;
}

static bool start_to_second(struct ends *ends)
{
	return start_to_first(ends) && read_message(ends, &ends->resp) == 0 &&
	       write_message(ends, &ends->resp, exchanges[1].payload) == 0;
}

static bool start_to_done(struct ends *ends)
{
	return start_to_second(ends) && read_message(ends, &ends->init) == 0;
}

static bool start_to_split(struct ends *ends)
{
	return start_to_done(ends) &&
	       noise_split(&ends->init, &ends->init_send, &ends->init_receive) == 0 &&
	       noise_split(&ends->resp, &ends->resp_send, &ends->resp_receive) == 0;
}

/* Failed, nothing left, and nothing works any more. */
static bool is_dead(struct noise *noise)
{
	static const struct noise nothing = {.state = NOISE_FAILED};
	uint8_t buf[ROOM];
	struct noise_cipher a, b;
	size_t len_bytes;

	return memcmp(noise, &nothing, sizeof(nothing)) == 0 &&
	       noise_write(noise, NULL, 0, buf, sizeof(buf), &len_bytes) == -EPROTO &&
	       noise_read(noise, buf, sizeof(buf), buf, sizeof(buf), &len_bytes) == -EPROTO &&
	       noise_split(noise, &a, &b) == -EPROTO && noise_hash(noise, buf) == -EPROTO &&
	       noise_export(noise, "lane", buf) == -EPROTO &&
	       noise_peer_public(noise, buf) == -EPROTO && !noise_is_done(noise);
}

static bool is_dead_cipher(struct noise_cipher *cipher)
{
	uint8_t buf[SECURE_TAG_BYTES] = {0};

	return !cipher->is_live && secure_is_zero(cipher->key, sizeof(cipher->key)) &&
	       noise_seal(cipher, NULL, 0, NULL, 0, buf) == -EPROTO &&
	       noise_open(cipher, NULL, 0, buf, sizeof(buf), NULL) == -EPROTO;
}

/* The vector. */

static void check_vector_handshake(struct ends *ends)
{
	uint8_t expected[ROOM], actual[SECURE_HASH_BYTES];

	CHECK_INT(secure_init(), 0);
	start(ends);
	hex(RESP_PUBLIC, expected, SECURE_KEY_BYTES);
	CHECK_MEM(ends->resp_static.public_key, expected, SECURE_KEY_BYTES);
	for (size_t i = 0; i < 2; i++) {
		struct noise *from = i == 0 ? &ends->init : &ends->resp;
		struct noise *to = i == 0 ? &ends->resp : &ends->init;

		CHECK_INT(write_message(ends, from, exchanges[i].payload), 0);
		CHECK_INT(ends->len_bytes, i == 0 ? FIRST_BYTES : SECOND_BYTES);
		hex(exchanges[i].message, expected, ends->len_bytes);
		CHECK_MEM(ends->message, expected, ends->len_bytes);
		CHECK_INT(read_message(ends, to), 0);
		CHECK_INT(ends->payload_bytes, strlen(exchanges[i].payload));
		CHECK_MEM(ends->payload, exchanges[i].payload, ends->payload_bytes);
	}
	hex(HANDSHAKE_HASH, expected, SECURE_HASH_BYTES);
	CHECK_INT(noise_hash(&ends->init, actual), 0);
	CHECK_MEM(actual, expected, SECURE_HASH_BYTES);
	CHECK_INT(noise_hash(&ends->resp, actual), 0);
	CHECK_MEM(actual, expected, SECURE_HASH_BYTES);
	CHECK_INT(noise_peer_public(&ends->resp, actual), 0);
	CHECK_MEM(actual, ends->init_static.public_key, SECURE_KEY_BYTES);
	CHECK_INT(noise_peer_public(&ends->init, actual), 0);
	CHECK_MEM(actual, ends->resp_static.public_key, SECURE_KEY_BYTES);
}

static void check_vector_messages(struct ends *ends)
{
	uint8_t expected[ROOM];

	CHECK_INT(noise_split(&ends->init, &ends->init_send, &ends->init_receive), 0);
	CHECK_INT(noise_split(&ends->resp, &ends->resp_send, &ends->resp_receive), 0);
	for (size_t i = 2; i < EXCHANGES; i++) {
		const char *payload = exchanges[i].payload;
		size_t len_bytes = strlen(payload), sealed_bytes = len_bytes + SECURE_TAG_BYTES;
		struct noise_cipher *from = i % 2 == 0 ? &ends->init_send : &ends->resp_send;
		struct noise_cipher *to = i % 2 == 0 ? &ends->resp_receive : &ends->init_receive;

		CHECK_INT(noise_seal(from, NULL, 0, payload, len_bytes, ends->message), 0);
		hex(exchanges[i].message, expected, sealed_bytes);
		CHECK_MEM(ends->message, expected, sealed_bytes);
		CHECK_INT(noise_open(to, NULL, 0, expected, sealed_bytes, ends->payload), 0);
		CHECK_MEM(ends->payload, payload, len_bytes);
	}
}

TEST(noise__published_vector_from_both_sides)
{
	struct ends ends;

	check_vector_handshake(&ends);
	if (!test_has_failed())
		check_vector_messages(&ends);
}

TEST(noise_split__keys_that_follow_from_the_vector)
{
	struct ends ends;
	uint8_t expected[SECURE_KEY_BYTES];

	CHECK(start_to_split(&ends));
	hex(KEY_TO_RESPONDER, expected, sizeof(expected));
	CHECK_MEM(ends.init_send.key, expected, sizeof(expected));
	CHECK_MEM(ends.resp_receive.key, expected, sizeof(expected));
	hex(KEY_TO_INITIATOR, expected, sizeof(expected));
	CHECK_MEM(ends.resp_send.key, expected, sizeof(expected));
	CHECK_MEM(ends.init_receive.key, expected, sizeof(expected));
	CHECK_INT(ends.init_send.nonce, 0);
	CHECK_INT(ends.init_receive.nonce, 0);
}

/* In locked memory, where objects are to be. */
TEST(noise__random_ephemerals_in_locked_memory)
{
	struct ends *a = secure_alloc(sizeof(*a));
	struct ends *b = secure_alloc(sizeof(*b));
	bool is_done[2] = {false, false};
	struct ends *both[] = {a, b};

	CHECK(a != NULL && b != NULL);
	for (size_t i = 0; i < 2; i++) {
		struct ends *ends = both[i];

		start(ends);
		ends->init.has_ephemeral = false;
		ends->resp.has_ephemeral = false;
		is_done[i] = write_message(ends, &ends->init, "a") == 0 &&
			     read_message(ends, &ends->resp) == 0 &&
			     write_message(ends, &ends->resp, "b") == 0 &&
			     read_message(ends, &ends->init) == 0;
	}
	CHECK(is_done[0] && is_done[1]);
	CHECK(memcmp(a->message, b->message, SECURE_KEY_BYTES) != 0);
	CHECK(memcmp(a->init.hash, b->init.hash, SECURE_HASH_BYTES) != 0);
	CHECK_MEM(a->init.hash, a->resp.hash, SECURE_HASH_BYTES);
	CHECK_MEM(a->init.chaining_key, a->resp.chaining_key, SECURE_HASH_BYTES);
	secure_free(a);
	secure_free(b);
}

/* States. */

struct step {
	enum noise_state from;
	enum noise_state to;
};

/* Everything that is not in this list is forbidden. */
static const struct step allowed[] = {
	{NOISE_NEW, NOISE_WRITE_FIRST},
	{NOISE_NEW, NOISE_READ_FIRST},
	{NOISE_WRITE_FIRST, NOISE_READ_SECOND},
	{NOISE_WRITE_FIRST, NOISE_FAILED},
	{NOISE_READ_FIRST, NOISE_WRITE_SECOND},
	{NOISE_READ_FIRST, NOISE_FAILED},
	{NOISE_WRITE_SECOND, NOISE_DONE},
	{NOISE_WRITE_SECOND, NOISE_FAILED},
	{NOISE_READ_SECOND, NOISE_DONE},
	{NOISE_READ_SECOND, NOISE_FAILED},
	{NOISE_DONE, NOISE_SPLIT},
};

static bool is_allowed(enum noise_state from, enum noise_state to)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		if (allowed[i].from == from && allowed[i].to == to)
			return true;
	}
	return false;
}

TEST(noise_can_go__all_pairs)
{
	CHECK_INT(NOISE_STATES, 8);
	for (int from = 0; from <= NOISE_STATES; from++) {
		for (int to = 0; to <= NOISE_STATES; to++)
			CHECK_INT(noise_can_go((enum noise_state)from, (enum noise_state)to),
				  is_allowed((enum noise_state)from, (enum noise_state)to));
	}
}

/* Puts a handshake into a state. */
static struct noise *reach(struct ends *ends, enum noise_state state)
{
	start(ends);
	switch (state) {
	case NOISE_NEW:
		noise_wipe(&ends->init);
		return &ends->init;
	case NOISE_WRITE_FIRST:
		return &ends->init;
	case NOISE_READ_FIRST:
		return &ends->resp;
	case NOISE_READ_SECOND:
		return start_to_first(ends) ? &ends->init : NULL;
	case NOISE_WRITE_SECOND:
		return start_to_first(ends) && read_message(ends, &ends->resp) == 0 ? &ends->resp
										    : NULL;
	case NOISE_DONE:
		return start_to_done(ends) ? &ends->init : NULL;
	case NOISE_SPLIT:
		return start_to_split(ends) ? &ends->init : NULL;
	case NOISE_FAILED:
		ends->len_bytes = 1;
		return read_message(ends, &ends->resp) == -EBADMSG ? &ends->resp : NULL;
	case NOISE_STATES:
		break;
	}
	return NULL;
}

TEST(noise__each_call_in_each_state)
{
	for (int i = 0; i < NOISE_STATES; i++) {
		enum noise_state state = (enum noise_state)i;
		bool is_write = state == NOISE_WRITE_FIRST || state == NOISE_WRITE_SECOND;
		bool is_read = state == NOISE_READ_FIRST || state == NOISE_READ_SECOND;
		bool is_done = state == NOISE_DONE || state == NOISE_SPLIT;
		bool has_peer = is_done || state == NOISE_WRITE_FIRST ||
				state == NOISE_WRITE_SECOND || state == NOISE_READ_SECOND;
		struct noise_cipher send = {.nonce = 7}, receive = {.nonce = 7};
		struct noise *noise, before;
		uint8_t buf[SECURE_HASH_BYTES];
		struct ends ends;
		int r;

		noise = reach(&ends, state);
		CHECK(noise != NULL);
		CHECK_INT(noise->state, state);
		before = *noise;
		CHECK_INT(noise_is_done(noise), is_done);
		CHECK_INT(noise_peer_public(noise, buf), has_peer ? 0 : -EPROTO);
		CHECK_INT(noise_hash(noise, buf), is_done ? 0 : -EPROTO);
		CHECK_INT(noise_export(noise, "lane", buf), state == NOISE_DONE ? 0 : -EPROTO);
		CHECK_MEM(noise, &before, sizeof(before));
		ends.len_bytes = ROOM;
		if (!is_read)
			CHECK_INT(read_message(&ends, noise), -EPROTO);
		CHECK_INT(ends.len_bytes, ROOM);
		if (!is_write)
			CHECK_INT(write_message(&ends, noise, ""), -EPROTO);
		CHECK_INT(ends.len_bytes, ROOM);
		/* What came at the wrong time has changed nothing. */
		CHECK_MEM(noise, &before, sizeof(before));
		r = noise_split(noise, &send, &receive);
		CHECK_INT(r, state == NOISE_DONE ? 0 : -EPROTO);
		CHECK_INT(send.is_live, r == 0);
		CHECK_INT(receive.is_live, r == 0);
		CHECK_INT(send.nonce, r == 0 ? 0 : 7);
		noise_wipe(noise);
		CHECK(secure_is_zero(noise, sizeof(*noise)));
		noise_wipe(noise);
	}
}

TEST(noise_write__twice)
{
	struct ends ends;

	CHECK(start_to_first(&ends));
	CHECK_INT(write_message(&ends, &ends.init, "again"), -EPROTO);
	CHECK_INT(ends.len_bytes, FIRST_BYTES);
	CHECK_INT(read_message(&ends, &ends.resp), 0);
	CHECK_INT(read_message(&ends, &ends.resp), -EPROTO);
	CHECK_INT(write_message(&ends, &ends.resp, "b"), 0);
	CHECK_INT(write_message(&ends, &ends.resp, "again"), -EPROTO);
	CHECK_INT(read_message(&ends, &ends.init), 0);
}

TEST(noise_wipe__can_start_again)
{
	struct ends ends;

	CHECK(start_to_split(&ends));
	noise_wipe(&ends.init);
	noise_init_initiator(&ends.init, prologue, PROLOGUE_BYTES, &ends.init_static,
			     ends.resp_static.public_key);
	CHECK_INT(write_message(&ends, &ends.init, ""), 0);
	noise_wipe(&ends.resp);
	noise_init_responder(&ends.resp, prologue, PROLOGUE_BYTES, &ends.resp_static);
	CHECK_INT(read_message(&ends, &ends.resp), 0);
	CHECK_INT(ends.payload_bytes, 0);
}

static void init_twice(void *arg)
{
	struct ends *ends = arg;

	noise_init_responder(&ends->resp, NULL, 0, &ends->resp_static);
}

static void set_ephemeral_late(void *arg)
{
	struct ends *ends = arg;

	noise_set_ephemeral(&ends->init, ends->init_static.private_key);
}

static void export_for_nothing(void *arg)
{
	struct ends *ends = arg;
	uint8_t key[SECURE_KEY_BYTES];

	(void)noise_export(&ends->init, "", key);
}

TEST(noise__misuse_of_ours_is_asserted)
{
	struct ends ends;

	start(&ends);
	CHECK(test_aborts(init_twice, &ends));
	CHECK(start_to_done(&ends));
	CHECK(test_aborts(set_ephemeral_late, &ends));
	CHECK(test_aborts(export_for_nothing, &ends));
}

/* Secrets. */

TEST(noise__secrets_go_where_they_are_used_last)
{
	struct ends ends;

	CHECK(start_to_first(&ends));
	CHECK(secure_is_zero(ends.init.key, sizeof(ends.init.key)));
	CHECK(!secure_is_zero(&ends.init.ephemeral, sizeof(ends.init.ephemeral)));
	CHECK_INT(read_message(&ends, &ends.resp), 0);
	CHECK(secure_is_zero(ends.resp.key, sizeof(ends.resp.key)));
	CHECK(ends.resp.own == NULL);
	CHECK_INT(write_message(&ends, &ends.resp, ""), 0);
	CHECK_INT(read_message(&ends, &ends.init), 0);
	for (size_t i = 0; i < 2; i++) {
		struct noise *noise = i == 0 ? &ends.init : &ends.resp;
		struct noise_cipher send, receive;

		CHECK(noise->own == NULL);
		CHECK(secure_is_zero(noise->key, sizeof(noise->key)));
		CHECK(secure_is_zero(&noise->ephemeral, sizeof(noise->ephemeral)));
		CHECK(!secure_is_zero(noise->chaining_key, sizeof(noise->chaining_key)));
		CHECK_INT(noise_split(noise, &send, &receive), 0);
		CHECK(secure_is_zero(noise->chaining_key, sizeof(noise->chaining_key)));
	}
}

TEST(noise_export__alike_at_both_ends_and_by_label)
{
	uint8_t expected[SECURE_KEY_BYTES], init[SECURE_KEY_BYTES], resp[SECURE_KEY_BYTES];
	struct ends ends;

	CHECK(start_to_done(&ends));
	hex(EXPORTED_LANE, expected, sizeof(expected));
	CHECK_INT(noise_export(&ends.init, "lane", init), 0);
	CHECK_MEM(init, expected, sizeof(expected));
	CHECK_INT(noise_export(&ends.resp, "lane", resp), 0);
	CHECK_MEM(resp, expected, sizeof(expected));
	CHECK_INT(noise_export(&ends.resp, "lanes", resp), 0);
	CHECK(memcmp(init, resp, sizeof(resp)) != 0);
	/* The keys of the directions are others. */
	CHECK_INT(noise_split(&ends.init, &ends.init_send, &ends.init_receive), 0);
	CHECK(memcmp(init, ends.init_send.key, sizeof(init)) != 0);
	CHECK(memcmp(init, ends.init_receive.key, sizeof(init)) != 0);
}

/* Handshake messages that are not what was sent. */

TEST(noise_read__each_bit_of_message_1_flipped)
{
	struct ends ends;

	for (size_t bit = 0; bit < FIRST_BYTES * 8; bit++) {
		CHECK(start_to_first(&ends));
		CHECK_INT(ends.len_bytes, FIRST_BYTES);
		ends.message[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK_INT(read_message(&ends, &ends.resp), -EBADMSG);
		CHECK(is_dead(&ends.resp));
	}
}

TEST(noise_read__each_bit_of_message_2_flipped)
{
	struct ends ends;

	for (size_t bit = 0; bit < SECOND_BYTES * 8; bit++) {
		CHECK(start_to_second(&ends));
		CHECK_INT(ends.len_bytes, SECOND_BYTES);
		ends.message[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK_INT(read_message(&ends, &ends.init), -EBADMSG);
		CHECK(is_dead(&ends.init));
	}
}

TEST(noise_read__message_1_cut_at_each_length_or_longer)
{
	struct ends ends;

	for (size_t len = 0; len <= FIRST_BYTES + 1; len++) {
		CHECK(start_to_first(&ends));
		ends.len_bytes = len;
		CHECK_INT(read_message(&ends, &ends.resp), len == FIRST_BYTES ? 0 : -EBADMSG);
		CHECK_INT(is_dead(&ends.resp), len != FIRST_BYTES);
		CHECK_INT(ends.payload_bytes, len == FIRST_BYTES ? 16 : 0);
	}
}

TEST(noise_read__message_2_cut_at_each_length_or_longer)
{
	struct ends ends;

	for (size_t len = 0; len <= SECOND_BYTES + 1; len++) {
		CHECK(start_to_second(&ends));
		ends.len_bytes = len;
		CHECK_INT(read_message(&ends, &ends.init), len == SECOND_BYTES ? 0 : -EBADMSG);
		CHECK_INT(is_dead(&ends.init), len != SECOND_BYTES);
		CHECK_INT(ends.payload_bytes, len == SECOND_BYTES ? 15 : 16);
	}
}

TEST(noise_read__message_1_for_another_responder)
{
	struct secure_key_pair other;
	struct ends ends;

	secure_key_pair_make(&other);
	start(&ends);
	noise_wipe(&ends.init);
	noise_init_initiator(&ends.init, prologue, PROLOGUE_BYTES, &ends.init_static,
			     other.public_key);
	CHECK_INT(write_message(&ends, &ends.init, "a"), 0);
	CHECK_INT(read_message(&ends, &ends.resp), -EBADMSG);
	CHECK(is_dead(&ends.resp));
}

/* X25519 takes it for the same key, but the two ends have hashed different bytes. */
TEST(noise_read__responder_key_with_its_unused_bit_set)
{
	struct ends ends;
	uint8_t public_key[SECURE_KEY_BYTES];

	start(&ends);
	memcpy(public_key, ends.resp_static.public_key, sizeof(public_key));
	public_key[31] |= 0x80;
	noise_wipe(&ends.init);
	noise_init_initiator(&ends.init, prologue, PROLOGUE_BYTES, &ends.init_static, public_key);
	CHECK_INT(write_message(&ends, &ends.init, "a"), 0);
	CHECK_INT(read_message(&ends, &ends.resp), -EBADMSG);
}

/* An impostor answers who does not have the private key, only saw message 1. */
TEST(noise_read__message_2_of_another_responder)
{
	struct secure_key_pair other;
	struct noise impostor = {0};
	struct ends ends;

	CHECK(start_to_first(&ends));
	secure_key_pair_make(&other);
	memcpy(other.public_key, ends.resp_static.public_key, SECURE_KEY_BYTES);
	noise_init_responder(&impostor, prologue, PROLOGUE_BYTES, &other);
	CHECK_INT(read_message(&ends, &impostor), -EBADMSG);
	/* Message 2 of another handshake with the right one. */
	CHECK_INT(read_message(&ends, &ends.resp), 0);
	CHECK_INT(write_message(&ends, &ends.resp, ""), 0);
	noise_wipe(&ends.init);
	noise_init_initiator(&ends.init, prologue, PROLOGUE_BYTES, &ends.init_static,
			     ends.resp_static.public_key);
	CHECK_INT(noise_write(&ends.init, NULL, 0, ends.payload, ROOM, &ends.payload_bytes), 0);
	CHECK_INT(read_message(&ends, &ends.init), -EBADMSG);
	CHECK(is_dead(&ends.init));
}

/* Two initiators may not be taken for each other: message 2 binds the static key. */
TEST(noise_read__message_2_for_another_initiator)
{
	struct secure_key_pair other;
	struct ends ends;

	CHECK(start_to_second(&ends));
	secure_key_pair_make(&other);
	ends.init.own = &other;
	CHECK_INT(read_message(&ends, &ends.init), -EBADMSG);
	CHECK(is_dead(&ends.init));
}

TEST(noise_read__own_message_sent_back)
{
	struct ends ends;

	CHECK(start_to_first(&ends));
	CHECK_INT(read_message(&ends, &ends.init), -EBADMSG);
	CHECK(is_dead(&ends.init));
}

TEST(noise_read__prologue_differs)
{
	static const char *const others[] = {"John Gals", "John Gal", "John Galt ", "kohn Galt",
					     ""};
	struct ends ends;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		CHECK(start_to_first(&ends));
		noise_wipe(&ends.resp);
		noise_init_responder(&ends.resp, others[i], strlen(others[i]), &ends.resp_static);
		CHECK_INT(read_message(&ends, &ends.resp), -EBADMSG);
		CHECK(is_dead(&ends.resp));
	}
}

TEST(noise_read__no_prologue)
{
	struct ends ends;

	start(&ends);
	noise_wipe(&ends.init);
	noise_wipe(&ends.resp);
	noise_init_initiator(&ends.init, NULL, 0, &ends.init_static, ends.resp_static.public_key);
	noise_init_responder(&ends.resp, NULL, 0, &ends.resp_static);
	CHECK_INT(write_message(&ends, &ends.init, "a"), 0);
	CHECK_INT(read_message(&ends, &ends.resp), 0);
}

/* Points that make every shared secret zero. */

static const char *const low_order[] = {
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0000000000000000000000000000000000000000000000000000000000000080",
};

#define LOW_ORDER (sizeof(low_order) / sizeof(low_order[0]))

TEST(noise_read__low_order_ephemeral_in_message_1)
{
	struct ends ends;

	for (size_t i = 0; i < LOW_ORDER; i++) {
		CHECK(start_to_first(&ends));
		hex(low_order[i], ends.message, SECURE_KEY_BYTES);
		CHECK_INT(read_message(&ends, &ends.resp), -EKEYREJECTED);
		CHECK(is_dead(&ends.resp));
	}
}

TEST(noise_read__low_order_ephemeral_in_message_2)
{
	struct ends ends;

	for (size_t i = 0; i < LOW_ORDER; i++) {
		CHECK(start_to_second(&ends));
		hex(low_order[i], ends.message, SECURE_KEY_BYTES);
		CHECK_INT(read_message(&ends, &ends.init), -EKEYREJECTED);
		CHECK(is_dead(&ends.init));
	}
}

/* Sealed as it should be, by somebody who wants to be known by such a key. */
TEST(noise_read__low_order_static_in_message_1)
{
	struct ends ends;

	for (size_t i = 0; i < LOW_ORDER; i++) {
		start(&ends);
		hex(low_order[i], ends.init_static.public_key, SECURE_KEY_BYTES);
		CHECK_INT(write_message(&ends, &ends.init, "a"), 0);
		CHECK_INT(read_message(&ends, &ends.resp), -EKEYREJECTED);
		CHECK(is_dead(&ends.resp));
	}
}

TEST(noise_write__low_order_responder)
{
	struct ends ends;

	for (size_t i = 0; i < LOW_ORDER; i++) {
		start(&ends);
		hex(low_order[i], ends.resp_static.public_key, SECURE_KEY_BYTES);
		noise_wipe(&ends.init);
		noise_init_initiator(&ends.init, prologue, PROLOGUE_BYTES, &ends.init_static,
				     ends.resp_static.public_key);
		CHECK_INT(write_message(&ends, &ends.init, "a"), -EKEYREJECTED);
		CHECK_INT(ends.len_bytes, 0);
		CHECK(is_dead(&ends.init));
	}
}

/* Lengths. */

static uint8_t big_plain[NOISE_MESSAGE_MAX + 1];
static uint8_t big_message[NOISE_MESSAGE_MAX + 1];
static uint8_t big_payload[NOISE_MESSAGE_MAX + 1];

/* One handshake whose payloads have the given lengths, with not a byte of room too many. */
static bool pass_payloads(size_t first_bytes, size_t second_bytes)
{
	struct ends ends;
	size_t first_len = 0, second_len = 0;

	start(&ends);
	return noise_write(&ends.init, big_plain, first_bytes, big_message,
			   first_bytes + NOISE_FIRST_BYTES, &first_len) == 0 &&
	       first_len == first_bytes + NOISE_FIRST_BYTES &&
	       noise_read(&ends.resp, big_message, first_len, big_payload, first_bytes,
			  &first_len) == 0 &&
	       first_len == first_bytes && memcmp(big_plain, big_payload, first_bytes) == 0 &&
	       noise_write(&ends.resp, big_plain, second_bytes, big_message,
			   second_bytes + NOISE_SECOND_BYTES, &second_len) == 0 &&
	       second_len == second_bytes + NOISE_SECOND_BYTES &&
	       noise_read(&ends.init, big_message, second_len, big_payload, second_bytes,
			  &second_len) == 0 &&
	       second_len == second_bytes && memcmp(big_plain, big_payload, second_bytes) == 0;
}

TEST(noise_write__payloads_up_to_the_longest)
{
	secure_random(big_plain, sizeof(big_plain));
	CHECK(pass_payloads(0, 0));
	CHECK(pass_payloads(1, 1));
	CHECK(pass_payloads(1000, 0));
	CHECK(pass_payloads(NOISE_MESSAGE_MAX - NOISE_FIRST_BYTES,
			    NOISE_MESSAGE_MAX - NOISE_SECOND_BYTES));
}

TEST(noise_write__payload_too_long_or_no_room_changes_nothing)
{
	struct noise before;
	struct ends ends;
	size_t len_bytes = 77;

	start(&ends);
	before = ends.init;
	CHECK_INT(noise_write(&ends.init, big_plain, NOISE_MESSAGE_MAX - NOISE_FIRST_BYTES + 1,
			      big_message, sizeof(big_message), &len_bytes),
		  -EMSGSIZE);
	CHECK_INT(noise_write(&ends.init, big_plain, SIZE_MAX, big_message, sizeof(big_message),
			      &len_bytes),
		  -EMSGSIZE);
	CHECK_INT(noise_write(&ends.init, big_plain, 5, big_message, NOISE_FIRST_BYTES + 4,
			      &len_bytes),
		  -ENOBUFS);
	CHECK_INT(len_bytes, 77);
	CHECK_MEM(&ends.init, &before, sizeof(before));
	CHECK_INT(write_message(&ends, &ends.init, ""), 0);
	CHECK_INT(read_message(&ends, &ends.resp), 0);
	CHECK_INT(noise_write(&ends.resp, big_plain, NOISE_MESSAGE_MAX - NOISE_SECOND_BYTES + 1,
			      big_message, sizeof(big_message), &len_bytes),
		  -EMSGSIZE);
	CHECK_INT(noise_write(&ends.resp, big_plain, 0, big_message, NOISE_SECOND_BYTES - 1,
			      &len_bytes),
		  -ENOBUFS);
	CHECK_INT(write_message(&ends, &ends.resp, ""), 0);
}

TEST(noise_read__payload_longer_than_the_room)
{
	struct ends ends;
	size_t len_bytes = 77;

	CHECK(start_to_first(&ends));
	memset(big_payload, 0x5a, 16);
	CHECK_INT(noise_read(&ends.resp, ends.message, FIRST_BYTES, big_payload, 15, &len_bytes),
		  -EMSGSIZE);
	CHECK_INT(len_bytes, 77);
	CHECK_INT(big_payload[15], 0x5a);
	CHECK(is_dead(&ends.resp));
	CHECK(start_to_second(&ends));
	CHECK_INT(noise_read(&ends.init, ends.message, SECOND_BYTES, big_payload, 14, &len_bytes),
		  -EMSGSIZE);
	CHECK(is_dead(&ends.init));
}

TEST(noise_read__longer_than_any_message)
{
	struct ends ends;
	size_t len_bytes;

	start(&ends);
	CHECK_INT(noise_read(&ends.resp, big_message, NOISE_MESSAGE_MAX + 1, big_payload,
			     sizeof(big_payload), &len_bytes),
		  -EMSGSIZE);
	CHECK(is_dead(&ends.resp));
	start(&ends);
	memset(big_message, 9, sizeof(big_message));
	CHECK_INT(noise_read(&ends.resp, big_message, NOISE_MESSAGE_MAX, big_payload,
			     sizeof(big_payload), &len_bytes),
		  -EBADMSG);
}

/* Sealed messages. */

static const char text[] = "F. A. Hayek";

#define TEXT_BYTES   (sizeof(text) - 1)
#define SEALED_BYTES (TEXT_BYTES + SECURE_TAG_BYTES)

static int seal_text(struct noise_cipher *cipher, uint8_t *ret_sealed)
{
	return noise_seal(cipher, "ad", 2, text, TEXT_BYTES, ret_sealed);
}

static int open_text(struct noise_cipher *cipher, const uint8_t *sealed, size_t len_bytes)
{
	uint8_t plain[ROOM];
	int r;

	r = noise_open(cipher, "ad", 2, sealed, len_bytes, plain);
	if (r == 0 && (len_bytes != SEALED_BYTES || memcmp(plain, text, TEXT_BYTES) != 0))
		return -ENOTRECOVERABLE;
	return r;
}

TEST(noise_seal__both_directions_many)
{
	struct ends ends;
	uint8_t sealed[SEALED_BYTES], last[SEALED_BYTES] = {0};

	CHECK(start_to_split(&ends));
	for (int i = 0; i < 100; i++) {
		CHECK_INT(seal_text(&ends.init_send, sealed), 0);
		CHECK(memcmp(sealed, last, sizeof(sealed)) != 0);
		CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), 0);
		memcpy(last, sealed, sizeof(last));
		CHECK_INT(seal_text(&ends.resp_send, sealed), 0);
		CHECK(memcmp(sealed, last, sizeof(sealed)) != 0);
		CHECK_INT(open_text(&ends.init_receive, sealed, sizeof(sealed)), 0);
	}
	CHECK_INT(ends.init_send.nonce, 100);
	CHECK_INT(ends.init_receive.nonce, 100);
}

TEST(noise_seal__in_place)
{
	struct ends ends;
	uint8_t buf[SEALED_BYTES], apart[SEALED_BYTES];
	struct noise_cipher copy;

	CHECK(start_to_split(&ends));
	copy = ends.init_send;
	CHECK_INT(seal_text(&copy, apart), 0);
	memcpy(buf, text, TEXT_BYTES);
	CHECK_INT(noise_seal(&ends.init_send, "ad", 2, buf, TEXT_BYTES, buf), 0);
	CHECK_MEM(buf, apart, sizeof(apart));
	CHECK_INT(noise_open(&ends.resp_receive, "ad", 2, buf, sizeof(buf), buf), 0);
	CHECK_MEM(buf, text, TEXT_BYTES);
}

TEST(noise_seal__empty_and_longest)
{
	size_t longest = NOISE_MESSAGE_MAX - SECURE_TAG_BYTES;
	struct ends ends;
	uint8_t tag[SECURE_TAG_BYTES];

	CHECK(start_to_split(&ends));
	CHECK_INT(noise_seal(&ends.init_send, NULL, 0, NULL, 0, tag), 0);
	CHECK_INT(noise_open(&ends.resp_receive, NULL, 0, tag, sizeof(tag), NULL), 0);
	secure_random(big_plain, sizeof(big_plain));
	CHECK_INT(noise_seal(&ends.init_send, NULL, 0, big_plain, longest + 1, big_message),
		  -EMSGSIZE);
	CHECK_INT(noise_seal(&ends.init_send, NULL, 0, big_plain, SIZE_MAX, big_message),
		  -EMSGSIZE);
	CHECK_INT(ends.init_send.nonce, 1);
	CHECK_INT(noise_seal(&ends.init_send, NULL, 0, big_plain, longest, big_message), 0);
	CHECK_INT(noise_open(&ends.resp_receive, NULL, 0, big_message, NOISE_MESSAGE_MAX,
			     big_payload),
		  0);
	CHECK_MEM(big_payload, big_plain, longest);
	CHECK_INT(noise_open(&ends.resp_receive, NULL, 0, big_message, NOISE_MESSAGE_MAX + 1,
			     big_payload),
		  -EMSGSIZE);
	CHECK(is_dead_cipher(&ends.resp_receive));
}

TEST(noise_open__each_bit_flipped)
{
	struct noise_cipher receive;
	struct ends ends;
	uint8_t sealed[SEALED_BYTES];

	CHECK(start_to_split(&ends));
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	for (size_t bit = 0; bit < SEALED_BYTES * 8; bit++) {
		receive = ends.resp_receive;
		sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK_INT(open_text(&receive, sealed, sizeof(sealed)), -EBADMSG);
		CHECK(is_dead_cipher(&receive));
		sealed[bit / 8] ^= (uint8_t)(1 << bit % 8);
		/* Not even the right one, afterwards. */
		CHECK_INT(open_text(&receive, sealed, sizeof(sealed)), -EPROTO);
	}
	CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), 0);
}

TEST(noise_open__cut_at_each_length_or_longer)
{
	struct noise_cipher receive;
	struct ends ends;
	uint8_t sealed[SEALED_BYTES + 1] = {0};

	CHECK(start_to_split(&ends));
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	for (size_t len = 0; len <= SEALED_BYTES + 1; len++) {
		receive = ends.resp_receive;
		CHECK_INT(open_text(&receive, sealed, len), len == SEALED_BYTES ? 0 : -EBADMSG);
		CHECK_INT(is_dead_cipher(&receive), len != SEALED_BYTES);
	}
}

TEST(noise_open__replayed)
{
	struct ends ends;
	uint8_t sealed[SEALED_BYTES];

	CHECK(start_to_split(&ends));
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), 0);
	CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), -EBADMSG);
	CHECK(is_dead_cipher(&ends.resp_receive));
}

TEST(noise_open__two_swapped_or_one_lost)
{
	struct ends ends;
	uint8_t first[SEALED_BYTES], second[SEALED_BYTES];

	CHECK(start_to_split(&ends));
	CHECK_INT(seal_text(&ends.init_send, first), 0);
	CHECK_INT(seal_text(&ends.init_send, second), 0);
	CHECK_INT(open_text(&ends.resp_receive, second, sizeof(second)), -EBADMSG);
	CHECK_INT(open_text(&ends.resp_receive, first, sizeof(first)), -EPROTO);
	CHECK(is_dead_cipher(&ends.resp_receive));
}

TEST(noise_open__sent_back_or_of_another_session)
{
	struct noise_cipher receive;
	struct ends ends, other;
	uint8_t sealed[SEALED_BYTES];

	CHECK(start_to_split(&ends));
	start(&other);
	set_ephemeral(&other.resp, RESP_STATIC);
	CHECK_INT(write_message(&other, &other.init, ""), 0);
	CHECK_INT(read_message(&other, &other.resp), 0);
	CHECK_INT(write_message(&other, &other.resp, ""), 0);
	CHECK_INT(noise_split(&other.resp, &other.resp_send, &other.resp_receive), 0);
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	receive = ends.init_receive;
	CHECK_INT(open_text(&receive, sealed, sizeof(sealed)), -EBADMSG);
	CHECK_INT(open_text(&other.resp_receive, sealed, sizeof(sealed)), -EBADMSG);
	CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), 0);
}

TEST(noise_open__bytes_in_clear_changed)
{
	static const char *const others[] = {"aD", "a", "ad ", "", "Ad"};
	struct noise_cipher receive;
	struct ends ends;
	uint8_t sealed[SEALED_BYTES], plain[SEALED_BYTES];

	CHECK(start_to_split(&ends));
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		receive = ends.resp_receive;
		memset(plain, 0, sizeof(plain));
		CHECK_INT(noise_open(&receive, others[i], strlen(others[i]), sealed, sizeof(sealed),
				     plain),
			  -EBADMSG);
		CHECK(secure_is_zero(plain, sizeof(plain)));
		CHECK(is_dead_cipher(&receive));
	}
}

TEST(noise_cipher_wipe__at_any_time)
{
	struct noise_cipher cipher = {0};
	struct ends ends;

	CHECK(is_dead_cipher(&cipher));
	noise_cipher_wipe(&cipher);
	CHECK(is_dead_cipher(&cipher));
	CHECK(start_to_split(&ends));
	noise_cipher_wipe(&ends.init_send);
	CHECK(secure_is_zero(&ends.init_send, sizeof(ends.init_send)));
	CHECK(is_dead_cipher(&ends.init_send));
}

/* The change of keys. */

/* Lets the same text pass until so many messages have passed in all. */
static bool pass_until(struct ends *ends, uint64_t messages)
{
	uint8_t sealed[SEALED_BYTES];

	while (ends->init_send.nonce < messages) {
		if (seal_text(&ends->init_send, sealed) < 0 ||
		    open_text(&ends->resp_receive, sealed, sizeof(sealed)) < 0)
			return false;
	}
	return ends->resp_receive.nonce == messages;
}

static void check_keys(struct ends *ends, const char *expected_hex)
{
	uint8_t expected[SECURE_KEY_BYTES];

	hex(expected_hex, expected, sizeof(expected));
	CHECK_MEM(ends->init_send.key, expected, sizeof(expected));
	CHECK_MEM(ends->resp_receive.key, expected, sizeof(expected));
}

/* Message number @number (from 0) passes and is the expected one. */
static void check_pass(struct ends *ends, uint64_t number, const char *expected_hex)
{
	uint8_t expected[SEALED_BYTES], sealed[SEALED_BYTES], plain[TEXT_BYTES];

	CHECK_INT(ends->init_send.nonce, number);
	hex(expected_hex, expected, sizeof(expected));
	CHECK_INT(noise_seal(&ends->init_send, NULL, 0, text, TEXT_BYTES, sealed), 0);
	CHECK_MEM(sealed, expected, sizeof(expected));
	CHECK_INT(noise_open(&ends->resp_receive, NULL, 0, sealed, sizeof(sealed), plain), 0);
	CHECK_MEM(plain, text, TEXT_BYTES);
}

TEST(noise_seal__next_key_after_65536_messages_and_again)
{
	struct ends ends;
	uint8_t other[SECURE_KEY_BYTES];

	CHECK_INT(NOISE_REKEY_MESSAGES, 65536);
	CHECK(start_to_split(&ends));
	memcpy(other, ends.resp_send.key, sizeof(other));
	CHECK(pass_until(&ends, 65535));
	check_keys(&ends, KEY_TO_RESPONDER);
	/* The 65536th message is the last of the old key, the next one the first of the new. */
	check_pass(&ends, 65535, "89802153d39d43fb705923b424d036db887a0117bd31b2be13b509");
	check_keys(&ends, KEY_REKEYED);
	check_pass(&ends, 65536, "a673e52f2f25c5a0e7910cf2136d989afc19967d6127621fb09f9c");
	check_keys(&ends, KEY_REKEYED);
	CHECK(pass_until(&ends, 131071));
	check_keys(&ends, KEY_REKEYED);
	CHECK(pass_until(&ends, 131072));
	check_keys(&ends, KEY_REKEYED_AGAIN);
	CHECK(pass_until(&ends, 131073));
	/* The other direction has sent nothing, so it keeps its key. */
	CHECK_MEM(ends.resp_send.key, other, sizeof(other));
	CHECK_INT(ends.resp_send.nonce, 0);
	CHECK_INT(seal_text(&ends.resp_send, ends.message), 0);
	CHECK_INT(open_text(&ends.init_receive, ends.message, SEALED_BYTES), 0);
}

/* The end of the nonces. */

TEST(noise_seal__last_nonce_but_one_is_the_last_message)
{
	static const char last[] = "7f7031ee9957ba5f0c69cab7ba52570e0b6a64cdc7d22eb559d0cd";
	struct ends ends;
	uint8_t sealed[SEALED_BYTES], expected[SEALED_BYTES], untouched[SEALED_BYTES];

	CHECK(start_to_split(&ends));
	ends.init_send.nonce = UINT64_MAX - 2;
	ends.resp_receive.nonce = UINT64_MAX - 2;
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), 0);
	CHECK_INT(seal_text(&ends.init_send, sealed), 0);
	hex(last, expected, sizeof(expected));
	CHECK_MEM(sealed, expected, sizeof(expected));
	CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), 0);
	memset(sealed, 0x5a, sizeof(sealed));
	memset(untouched, 0x5a, sizeof(untouched));
	for (int i = 0; i < 3; i++) {
		CHECK_INT(seal_text(&ends.init_send, sealed), -EOVERFLOW);
		CHECK_MEM(sealed, untouched, sizeof(untouched));
		CHECK_INT(open_text(&ends.resp_receive, sealed, sizeof(sealed)), -EOVERFLOW);
		CHECK_INT(ends.init_send.nonce, UINT64_MAX);
		CHECK_INT(ends.resp_receive.nonce, UINT64_MAX);
	}
}

/* Random mutations of a whole conversation. */

struct record {
	uint8_t bytes[ROOM];
	size_t len_bytes;
};

/* What passes undisturbed, in the order of the vector. */
static void record_all(struct record records[EXCHANGES])
{
	for (size_t i = 0; i < EXCHANGES; i++) {
		records[i].len_bytes = strlen(exchanges[i].message) / 2;
		hex(exchanges[i].message, records[i].bytes, records[i].len_bytes);
	}
}

/* Changes a message; true if it is another one afterwards. */
static bool mutate(struct random *random, const struct record *records, size_t index,
		   struct record *ret_mutated)
{
	struct record *m = ret_mutated;
	size_t at, count;

	*m = records[index];
	switch (random_below(random, 6)) {
	case 0: /* some bits */
		for (count = 1 + random_below(random, 8); count > 0; count--)
			m->bytes[random_below(random, m->len_bytes)] ^=
				(uint8_t)(1 << random_below(random, 8));
		break;
	case 1: /* a run of bytes */
		at = random_below(random, m->len_bytes);
		for (count = 1 + random_below(random, 32); count > 0 && at < m->len_bytes; count--)
			m->bytes[at++] = (uint8_t)random_next(random);
		break;
	case 2: /* cut */
		m->len_bytes = random_below(random, m->len_bytes);
		break;
	case 3: /* longer */
		for (count = 1 + random_below(random, 64); count > 0; count--)
			m->bytes[m->len_bytes++] = (uint8_t)random_next(random);
		break;
	case 4: /* another one: replay, or out of order, or of the other direction */
		*m = records[random_below(random, EXCHANGES)];
		break;
	default: /* a byte taken out */
		at = random_below(random, m->len_bytes);
		memmove(m->bytes + at, m->bytes + at + 1, m->len_bytes - at - 1);
		m->len_bytes--;
		break;
	}
	return m->len_bytes != records[index].len_bytes ||
	       memcmp(m->bytes, records[index].bytes, m->len_bytes) != 0;
}

static int receive(struct ends *ends, size_t index, const struct record *record)
{
	struct noise_cipher *cipher = index % 2 == 0 ? &ends->resp_receive : &ends->init_receive;

	memcpy(ends->message, record->bytes, record->len_bytes);
	ends->len_bytes = record->len_bytes;
	if (index < 2)
		return read_message(ends, index == 0 ? &ends->resp : &ends->init);
	return noise_open(cipher, NULL, 0, ends->message, ends->len_bytes, ends->payload);
}

static bool reach_message(struct ends *ends, size_t index, const struct record *records)
{
	if (index == 0)
		return start_to_first(ends);
	if (index == 1)
		return start_to_second(ends);
	if (!start_to_split(ends))
		return false;
	for (size_t i = 2; i < index; i++) {
		if (receive(ends, i, &records[i]) < 0)
			return false;
	}
	return true;
}

TEST(noise__a_thousand_random_mutations_end_the_session)
{
	struct random random = random_start();
	struct record records[EXCHANGES];
	unsigned int done = 0;

	record_all(records);
	while (done < 1000) {
		size_t index = random_below(&random, EXCHANGES);
		struct record mutated;
		struct ends ends;
		int r;

		if (!mutate(&random, records, index, &mutated))
			continue;
		CHECK(reach_message(&ends, index, records));
		r = receive(&ends, index, &mutated);
		CHECK_INT(r, -EBADMSG);
		/* And the right message does not help any more. */
		CHECK_INT(receive(&ends, index, &records[index]), -EPROTO);
		if (index < 2)
			CHECK(is_dead(index == 0 ? &ends.resp : &ends.init));
		else
			CHECK(is_dead_cipher(index % 2 == 0 ? &ends.resp_receive
							    : &ends.init_receive));
		done++;
	}
}
