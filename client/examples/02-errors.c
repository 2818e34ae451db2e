/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong, and how one is told: a code to act on, a sentence for people. Provokes some
 * errors, and shows the one after which it is right to try again.
 *
 * usage: example-02-errors ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <stdio.h>
#include <time.h>

/* A lost data connection is made anew by the library: the same transfer may succeed next time. */
static int write_with_patience(mempool_lease *lease, uint64_t offset_bytes, const void *buf,
			       size_t len_bytes)
{
	int r = MEMPOOL_E_LANE;

	for (int i = 0; i < 5 && r == MEMPOOL_E_LANE; i++)
		r = mempool_write(lease, offset_bytes, buf, len_bytes);
	return r;
}

/* Return: 0 if the code is the one that belongs here. */
static int expect(const char *what, int code, int expected)
{
	printf("%s: %d, %s\n", what, code, mempool_error_text(code));
	if (code != 0)
		printf("    in detail: %s\n", mempool_last_error());
	return code != expected;
}

static int provoke(mempool *pool)
{
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 2000,
		.rights = MEMPOOL_WRITE,
	};
	struct timespec a_while = {.tv_sec = 2, .tv_nsec = 100 * 1000 * 1000};
	mempool_lease *lease = NULL;
	char word[8] = "4 bytes";
	int wrong = 0;

	wrong += expect("a lease of no bytes", mempool_acquire(pool, 0, &what, &lease),
			MEMPOOL_E_LENGTH_ZERO);
	wrong += expect("a lease of two pages, to write only",
			mempool_acquire(pool, 8192, &what, &lease), 0);
	if (lease == NULL)
		return 1;
	wrong += expect("write at its end",
			write_with_patience(lease, 8192 - sizeof(word), word, sizeof(word)), 0);
	wrong += expect("write past its end",
			write_with_patience(lease, 8192 - sizeof(word) + 1, word, sizeof(word)),
			MEMPOOL_E_RANGE);
	wrong += expect("read, without the right", mempool_read(lease, 0, word, sizeof(word)),
			MEMPOOL_E_ACCESS);
	(void)nanosleep(&a_while, NULL);
	wrong += expect("write after its time", write_with_patience(lease, 0, word, sizeof(word)),
			MEMPOOL_E_EXPIRED);
	/* A handle outlives its lease: it is freed by this, whatever the code. */
	wrong += expect("give it back", mempool_release(lease), MEMPOOL_E_EXPIRED);
	return wrong;
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	mempool *pool = NULL;
	int wrong;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE\n", argv[0]);
		return 2;
	}
	/* Without a key nothing is sent. */
	wrong = expect("connect without a key", mempool_connect(argv[1], &who, &pool),
		       MEMPOOL_E_INVALID);
	who.key_file = argv[2];
	wrong += expect("connect", mempool_connect(argv[1], &who, &pool), 0);
	if (pool != NULL)
		wrong += provoke(pool);
	mempool_close(pool);
	return wrong == 0 ? 0 : 1;
}
