/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The least there is: connect, acquire, write, read, release, close.
 *
 * usage: example-01-hello ADDRESS KEY-FILE
 *	ADDRESS   mempool://HOST:PORT?key=THE-DAEMON'S-PUBLIC-KEY
 *	KEY-FILE  our private key, which the daemon's configuration knows
 */
#include <mempool.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
	};
	const char sent[] = "hello, memory of another machine";
	char got[sizeof(sent)] = "";
	mempool *pool = NULL;
	mempool_lease *lease = NULL;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE\n", argv[0]);
		return 2;
	}
	who.key_file = argv[2];
	r = mempool_connect(argv[1], &who, &pool);
	if (r == 0)
		r = mempool_acquire(pool, 1024 * 1024, &what, &lease);
	if (r == 0)
		r = mempool_write(lease, 4096, sent, sizeof(sent));
	if (r == 0)
		r = mempool_read(lease, 4096, got, sizeof(got));
	if (r == 0) {
		printf("read back: %s\n", got);
		r = mempool_release(lease);
	}
	if (r != 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	mempool_close(pool);
	return r == 0 && strcmp(sent, got) == 0 ? 0 : 1;
}
