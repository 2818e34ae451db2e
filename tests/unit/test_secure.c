/* SPDX-License-Identifier: BSD-3-Clause */
/* common/secure.c: that each name reaches the right function, held against published figures. */
#include "common/secure.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/hex.h"
#include "tests/unit/test.h"

TEST(secure_init__again)
{
	CHECK_INT(secure_init(), 0);
	CHECK_INT(secure_init(), 0);
}

TEST(secure_random__fills_all_and_no_more)
{
	uint8_t ors[66] = {0};

	CHECK_INT(secure_init(), 0);
	/* A byte stays 0 in 64 fills with a chance of 2^-512. */
	for (int fill = 0; fill < 64; fill++) {
		uint8_t buf[66] = {0};

		secure_random(buf + 1, 64);
		for (size_t i = 0; i < sizeof(buf); i++)
			ors[i] |= buf[i];
	}
	CHECK_INT(ors[0], 0);
	CHECK_INT(ors[65], 0);
	for (size_t i = 1; i <= 64; i++)
		CHECK(ors[i] != 0);
}

TEST(secure_random__differs_each_time)
{
	uint8_t a[16];
	uint8_t b[16];

	CHECK_INT(secure_init(), 0);
	secure_random(a, sizeof(a));
	secure_random(b, sizeof(b));
	CHECK(memcmp(a, b, sizeof(a)) != 0);
}

TEST(secure_random__empty)
{
	uint8_t byte = 0x5a;

	CHECK_INT(secure_init(), 0);
	secure_random(&byte, 0);
	CHECK_INT(byte, 0x5a);
}

TEST(secure_uniform__every_value_below_the_bound)
{
	unsigned int counts[7] = {0};

	CHECK_INT(secure_init(), 0);
	for (int i = 0; i < 7000; i++) {
		uint32_t value = secure_uniform(7);

		CHECK(value < 7);
		counts[value]++;
	}
	/* 1000 expected, standard deviation 29: 15 of them either way. */
	for (size_t i = 0; i < 7; i++)
		CHECK(counts[i] > 560 && counts[i] < 1440);
}

TEST(secure_uniform__bound_of_one)
{
	CHECK_INT(secure_init(), 0);
	for (int i = 0; i < 100; i++)
		CHECK_INT(secure_uniform(1), 0);
}

TEST(secure_uniform__greatest_bound)
{
	uint32_t ors = 0;

	CHECK_INT(secure_init(), 0);
	for (int i = 0; i < 64; i++)
		ors |= secure_uniform(UINT32_MAX);
	CHECK_INT(ors, UINT32_MAX);
}

TEST(secure_equal__each_byte_counts)
{
	uint8_t a[32];
	uint8_t b[32];

	memset(a, 0xa5, sizeof(a));
	memcpy(b, a, sizeof(a));
	CHECK(secure_equal(a, b, sizeof(a)));
	for (size_t i = 0; i < sizeof(b); i++) {
		b[i] ^= 1;
		CHECK(!secure_equal(a, b, sizeof(a)));
		CHECK(secure_equal(a, b, i));
		b[i] ^= 1;
	}
}

TEST(secure_equal__empty)
{
	CHECK(secure_equal("a", "b", 0));
}

TEST(secure_wipe__exactly_the_range)
{
	uint8_t buf[10];
	static const uint8_t expected[10] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1};

	memset(buf, 1, sizeof(buf));
	secure_wipe(buf + 1, 8);
	CHECK_MEM(buf, expected, sizeof(buf));
	secure_wipe(buf, 0);
	CHECK_INT(buf[0], 1);
}

TEST(secure_is_zero__each_byte_counts)
{
	uint8_t buf[32] = {0};

	CHECK(secure_is_zero(buf, sizeof(buf)));
	for (size_t i = 0; i < sizeof(buf); i++) {
		buf[i] = 0x80;
		CHECK(!secure_is_zero(buf, sizeof(buf)));
		CHECK(secure_is_zero(buf, i));
		buf[i] = 0;
	}
}

/* Memory for secrets. */

/* kB of locked memory of this process. */
static unsigned long locked_kb(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long kb = ULONG_MAX;
	char line[256];

	if (file == NULL)
		return kb;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "VmLck: %lu", &kb) == 1)
			break;
	}
	fclose(file);
	return kb;
}

/* The address sanitizer replaces mlock() by nothing. */
static bool mlock_locks(void)
{
	static uint8_t pages[2 * 4096];
	unsigned long before_kb = locked_kb();
	bool locks;

	locks = mlock(pages, sizeof(pages)) == 0 && locked_kb() > before_kb;
	(void)munlock(pages, sizeof(pages));
	return locks;
}

TEST(secure_alloc__is_zeroed_aligned_and_locked_until_it_is_freed)
{
	static const size_t lengths[] = {1, 15, 16, 17, 4095, 4096, 4097};
	unsigned long before_kb = locked_kb();

	CHECK_INT(secure_init(), 0);
	if (!mlock_locks())
		SKIP("memory cannot be locked here");
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint8_t *memory = secure_alloc(lengths[i]);

		CHECK(memory != NULL);
		CHECK_INT((uintptr_t)memory % 16, 0);
		CHECK(secure_is_zero(memory, lengths[i]));
		CHECK(locked_kb() >= before_kb + (lengths[i] + 1023) / 1024);
		memset(memory, 0xa5, lengths[i]);
		secure_free(memory);
		CHECK_INT(locked_kb(), before_kb);
	}
	secure_free(NULL);
}

static void write_behind(void *arg)
{
	volatile uint8_t *memory = arg;

	memory[16] = 1;
}

static int status_of(void (*call)(void *arg), void *arg)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		call(arg);
		_exit(EXIT_SUCCESS);
	}
	return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

TEST(secure_alloc__a_byte_behind_is_out_of_reach)
{
	void *memory = secure_alloc(16);
	int status;

	CHECK(memory != NULL);
	status = status_of(write_behind, memory);
	secure_free(memory);
	CHECK(WIFSIGNALED(status));
	CHECK_INT(WTERMSIG(status), SIGSEGV);
}

static void alloc_without_right_to_lock(void *arg)
{
	struct rlimit none = {0, 0};

	(void)arg;
	/* Only a user without rights is bound by the limit. */
	if (setrlimit(RLIMIT_MEMLOCK, &none) < 0 || (geteuid() == 0 && setuid(65534) < 0))
		_exit(EXIT_FAILURE);
	errno = 0;
	if (secure_alloc(16) != NULL || errno == 0)
		_exit(EXIT_FAILURE);
}

TEST(secure_alloc__fails_if_nothing_can_be_locked)
{
	int status;

	if (!mlock_locks())
		SKIP("memory cannot be locked here");
	status = status_of(alloc_without_right_to_lock, NULL);
	CHECK(WIFEXITED(status));
	CHECK_INT(WEXITSTATUS(status), EXIT_SUCCESS);
}

TEST(secure_alloc__more_than_there_is)
{
	errno = 0;
	CHECK(secure_alloc(SIZE_MAX) == NULL);
	CHECK_INT(errno, ENOMEM);
	CHECK(secure_alloc(SIZE_MAX / 2) == NULL);
}

/* X25519: RFC 7748, 5.2 and 6.1. */

TEST(secure_x25519__published_figures)
{
	uint8_t private_key[32], public_key[32], expected[32], shared[32];

	hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4", private_key, 32);
	hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c", public_key, 32);
	hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552", expected, 32);
	CHECK_INT(secure_x25519(private_key, public_key, shared), 0);
	CHECK_MEM(shared, expected, 32);
	CHECK(!secure_x25519_is_weak(public_key));
}

TEST(secure_key_pair_from_private__published_figures)
{
	uint8_t private_key[32], expected[32];
	struct secure_key_pair pair;

	hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb", private_key, 32);
	hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f", expected, 32);
	secure_key_pair_from_private(private_key, &pair);
	CHECK_MEM(pair.private_key, private_key, 32);
	CHECK_MEM(pair.public_key, expected, 32);
	/* Within the result as well. */
	memset(pair.public_key, 0, 32);
	secure_key_pair_from_private(pair.private_key, &pair);
	CHECK_MEM(pair.public_key, expected, 32);
}

TEST(secure_key_pair_make__two_agree_and_all_differ)
{
	struct secure_key_pair a, b;
	uint8_t ab[32], ba[32];

	secure_key_pair_make(&a);
	secure_key_pair_make(&b);
	CHECK(memcmp(a.private_key, b.private_key, 32) != 0);
	CHECK_INT(secure_x25519(a.private_key, b.public_key, ab), 0);
	CHECK_INT(secure_x25519(b.private_key, a.public_key, ba), 0);
	CHECK_MEM(ab, ba, 32);
	CHECK(!secure_is_zero(ab, 32));
}

TEST(secure_x25519__low_order_is_refused_and_gives_nothing)
{
	static const char *const points[] = {
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	};
	struct secure_key_pair pair;
	uint8_t point[32], shared[32];

	secure_key_pair_make(&pair);
	for (size_t i = 0; i < 2 * sizeof(points) / sizeof(points[0]); i++) {
		hex(points[i / 2], point, 32);
		/* The last bit is ignored. */
		if (i % 2 != 0)
			point[31] |= 0x80;
		memset(shared, 0xa5, 32);
		CHECK_INT(secure_x25519(pair.private_key, point, shared), -EKEYREJECTED);
		CHECK(secure_is_zero(shared, 32));
		CHECK(secure_x25519_is_weak(point));
	}
	CHECK(!secure_x25519_is_weak(pair.public_key));
}

/* Figures without another source: Python's hashlib and hmac, and its cryptography package. */

static void count_up(uint8_t *buf, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i++)
		buf[i] = (uint8_t)i;
}

TEST(secure_seal__counter_is_little_endian_behind_four_zeros)
{
	static const char plain[] = "what do ya want";
	uint8_t key[32], sealed[31], expected[31], opened[15];

	count_up(key, sizeof(key));
	hex("8721cc908b5d85381dca0abb1216153b10f1b8108c028975bafefd6961aeb0", expected, 31);
	secure_seal(key, UINT64_C(0x0102030405060708), "ad", 2, plain, 15, sealed);
	CHECK_MEM(sealed, expected, 31);
	CHECK_INT(secure_open(key, UINT64_C(0x0102030405060708), "ad", 2, sealed, 31, opened), 0);
	CHECK_MEM(opened, plain, 15);
	CHECK_INT(secure_open(key, UINT64_C(0x0102030405060709), "ad", 2, sealed, 31, opened),
		  -EBADMSG);
	CHECK_INT(secure_open(key, UINT64_C(0x0102030405060708), "aD", 2, sealed, 31, opened),
		  -EBADMSG);
	key[31] ^= 1;
	CHECK_INT(secure_open(key, UINT64_C(0x0102030405060708), "ad", 2, sealed, 31, opened),
		  -EBADMSG);
}

TEST(secure_seal__nothing_is_a_tag)
{
	uint8_t key[32], sealed[16], expected[16];

	count_up(key, sizeof(key));
	hex("a8d30d2553bfe08494e6aa8fd5b07296", expected, 16);
	secure_seal(key, 1, NULL, 0, NULL, 0, sealed);
	CHECK_MEM(sealed, expected, 16);
	CHECK_INT(secure_open(key, 1, NULL, 0, sealed, 16, NULL), 0);
	CHECK_INT(secure_open(key, 1, NULL, 0, sealed, 15, NULL), -EBADMSG);
	CHECK_INT(secure_open(key, 1, NULL, 0, sealed, 0, NULL), -EBADMSG);
}

TEST(secure_seal__greatest_counter)
{
	static const uint8_t zeros[32];
	uint8_t key[32], sealed[48], expected[48];

	count_up(key, sizeof(key));
	hex("50835543a205b22c9323f2022bc4f67d838f90e61d5ccf33c4513e01f85b5042"
	    "daf7738c3a0fe477089f1061d9c520a2",
	    expected, 48);
	secure_seal(key, UINT64_MAX, NULL, 0, zeros, sizeof(zeros), sealed);
	CHECK_MEM(sealed, expected, 48);
}

/* RFC 7693, appendix A, and the parts of it in every way. */
TEST(secure_hash__parts_are_one_text)
{
	static const char text[] = "abc";
	uint8_t expected[64], hash[64];

	hex("ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
	    "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923",
	    expected, 64);
	for (size_t i = 0; i <= 3; i++) {
		struct secure_part parts[] = {{text, i}, {NULL, 0}, {text + i, 3 - i}};

		secure_hash(parts, 3, hash);
		CHECK_MEM(hash, expected, 64);
	}
}

TEST(secure_hash__nothing)
{
	uint8_t expected[64], hash[64];

	hex("786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419"
	    "d25e1031afee585313896444934eb04b903a685b1448b755d56f701afe9be2ce",
	    expected, 64);
	secure_hash(NULL, 0, hash);
	CHECK_MEM(hash, expected, 64);
}

TEST(secure_hash__two_blocks_into_one_of_the_parts)
{
	struct secure_part part;
	uint8_t expected[64], buf[256];

	hex("1ecc896f34d3f9cac484c73f75f6a5fb58ee6784be41b35f46067b9c65c63a67"
	    "94d3d744112c653f73dd7deb6666204c5a9bfa5b46081fc10fdbe7884fa5cbf8",
	    expected, 64);
	count_up(buf, sizeof(buf));
	part = (struct secure_part){buf, sizeof(buf)};
	secure_hash(&part, 1, buf);
	CHECK_MEM(buf, expected, 64);
}

TEST(secure_mac__parts_under_a_key)
{
	struct secure_part parts[] = {{"what do ya ", 11}, {"want for nothing?", 17}};
	uint8_t key[32], expected[16], mac[17];

	count_up(key, sizeof(key));
	hex("ac916c47fccee5d8bd75a45696ca1e7a", expected, 16);
	mac[16] = 0x5a;
	secure_mac(key, parts, 2, mac);
	CHECK_MEM(mac, expected, 16);
	CHECK_INT(mac[16], 0x5a);
}

TEST(secure_hmac__keys_of_every_kind)
{
	static const struct {
		size_t key_bytes; /* 0, 1, 2, ... */
		const char *expected;
	} cases[] = {
		{128, "442e7244d3deea49a4a6263da650c3205f4a1bde97fd5e4dcf530a492e4f7885"
		      "a7086f428a04f08150af3b693d3532171d371d88c23aa56cf6f1d7cdfe5b485c"},
		{129, "e57d41295899b3cf6d0fee842fcf5d31b7db3dd88484753a6fa971429fa955fa"
		      "8cf94f722f8f0bd6f63128db546d522c6a794345c288e1fdfa562127e77eaf4a"},
	};
	struct secure_part part = {"abc", 3};
	uint8_t key[129], expected[64], hmac[64];

	count_up(key, sizeof(key));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		hex(cases[i].expected, expected, 64);
		secure_hmac(key, cases[i].key_bytes, &part, 1, hmac);
		CHECK_MEM(hmac, expected, 64);
	}
}

TEST(secure_hmac__short_key_and_parts)
{
	struct secure_part parts[] = {{"what do ya ", 11}, {NULL, 0}, {"want for nothing?", 17}};
	uint8_t expected[64], hmac[64];

	hex("6ff884f8ddc2a6586b3c98a4cd6ebdf14ec10204b6710073eb5865ade37a2643"
	    "b8807c1335d107ecdb9ffeaeb6828c4625ba172c66379efcd222c2de11727ab4",
	    expected, 64);
	secure_hmac("Jefe", 4, parts, 3, hmac);
	CHECK_MEM(hmac, expected, 64);
}

TEST(secure_hmac__nothing_into_the_key)
{
	uint8_t key[64] = {0};
	uint8_t expected[64];

	hex("198cd2006f66ff83fbbd913f78aca2251caf4f19fe9475aade8cf2091b99a684"
	    "66775177424f58286886cbae8229644cec747237d4b721735485e17372fdf59c",
	    expected, 64);
	secure_hmac(key, sizeof(key), NULL, 0, key);
	CHECK_MEM(key, expected, 64);
}

TEST(secure_hkdf__with_input)
{
	uint8_t chaining_key[64], input[32], second[64], expected[64];

	count_up(chaining_key, sizeof(chaining_key));
	count_up(input, sizeof(input));
	/* Into the chaining key, as the handshake does. */
	secure_hkdf(chaining_key, input, sizeof(input), chaining_key, second);
	hex("b257cf2863e7aa7f84d41d31e58df6dfb1e0a6cf3172192cc35eba2625a21975"
	    "db4475b2ef89316383acac6b2ac7cf03f7583e0ff20a64fb208fa5b1199f835f",
	    expected, 64);
	CHECK_MEM(chaining_key, expected, 64);
	hex("4f4d712feaff914e80db4d0d400a46056854134b5001018c4f1fe19bb477053c"
	    "5a9b92f8c937b1328c0ae7e51895b8d68068bc84d59436cc3b75de5a2d6d0630",
	    expected, 64);
	CHECK_MEM(second, expected, 64);
}

TEST(secure_hkdf__without_input)
{
	uint8_t chaining_key[64], first[64], second[64], expected[64];

	count_up(chaining_key, sizeof(chaining_key));
	secure_hkdf(chaining_key, NULL, 0, first, second);
	hex("03be0946afb62e33dcc2e8cb76dfad47663d284d81c0bde963f32a283dede221"
	    "be2b9e3a86fa82934234d2a6ed331fb664a3e670252b9454da9ed2567b435e11",
	    expected, 64);
	CHECK_MEM(first, expected, 64);
	hex("8481b385940ea1ddc1e37243d34e6a00d9e35fe86844b75be2f9d084efcbf4a9"
	    "d18c764645baf5262707efcb490c9ddfcc81c78ff75e1e727428f05b9fee857f",
	    expected, 64);
	CHECK_MEM(second, expected, 64);
}

/* Keys as text. */

static const char key_text[] = "MeAwP9ZBjS+MDni5HyLoyu0Pvkhlbc9HZ+SDT3Abj2I=";

TEST(secure_key_encode__and_back)
{
	uint8_t key[32], decoded[32];
	char text[45];

	hex("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62", key, 32);
	text[44] = 'x';
	secure_key_encode(key, text);
	CHECK_INT(text[44], 'x');
	CHECK_MEM(text, key_text, 44);
	CHECK_INT(secure_key_decode(text, decoded), 0);
	CHECK_MEM(decoded, key, 32);
}

/* Every other byte in every place: another key, or refused, but never the same key. */
TEST(secure_key_decode__one_spelling_per_key)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				       "0123456789+/";
	uint8_t key[32], decoded[32];
	unsigned int taken = 0;
	char text[44];

	CHECK_INT(secure_key_decode(key_text, key), 0);
	for (size_t i = 0; i < sizeof(text); i++) {
		for (int byte = 0; byte < 256; byte++) {
			bool is_in_alphabet = byte != 0 && strchr(alphabet, byte) != NULL;
			int r;

			memcpy(text, key_text, sizeof(text));
			if (text[i] == (char)byte)
				continue;
			text[i] = (char)byte;
			memset(decoded, 0xa5, sizeof(decoded));
			r = secure_key_decode(text, decoded);
			/* Of the last digit only 4 bits count, the others must be 0. */
			if (is_in_alphabet && i < 42) {
				CHECK_INT(r, 0);
				CHECK(memcmp(decoded, key, sizeof(key)) != 0);
			} else if (r < 0) {
				CHECK_INT(r, -EBADMSG);
				CHECK_INT(decoded[0], 0xa5);
			} else {
				CHECK_INT(i, 42);
				CHECK(memcmp(decoded, key, sizeof(key)) != 0);
				taken++;
			}
		}
	}
	CHECK_INT(taken, 15);
}
