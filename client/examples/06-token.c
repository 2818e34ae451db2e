/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To come back for a lease: a program leaves bytes and goes, another one, or the same after a
 * crash, has them back. The daemon must keep the leases of sessions that were lost
 * ("orphan_grace" in its configuration); the lease's time runs on meanwhile.
 *
 * usage: example-06-token ADDRESS KEY-FILE leave TOKEN-FILE
 *	  example-06-token ADDRESS KEY-FILE return TOKEN-FILE
 */
#include <fcntl.h>
#include <mempool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRIES	 100
#define PAUSE_NS (100L * 1000 * 1000)

static const char left[] = "left behind";

/*
 * A token is plain bytes. Whoever has them and our key can have the lease, so nobody else may
 * read the file.
 */
static int save(const char *path, const struct mempool_lease_token *token)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, token, sizeof(*token));
	return close(fd) == 0 && n == (ssize_t)sizeof(*token) ? 0 : -1;
}

static int load(const char *path, struct mempool_lease_token *token)
{
	FILE *file = fopen(path, "r");
	size_t n;

	if (file == NULL)
		return -1;
	n = fread(token, sizeof(*token), 1, file);
	(void)fclose(file);
	return n == 1 ? 0 : -1;
}

static int leave(mempool *pool, const char *path)
{
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
	};
	struct mempool_lease_token token;
	mempool_lease *lease;
	int r;

	r = mempool_acquire(pool, 4096, &what, &lease);
	if (r == 0)
		r = mempool_write(lease, 0, left, sizeof(left));
	if (r == 0)
		r = mempool_lease_token(lease, &token);
	if (r < 0)
		return r;
	if (save(path, &token) < 0) {
		perror(path);
		return 1;
	}
	puts("gone without closing");
	(void)fflush(stdout);
	/* mempool_close() would end the lease. */
	_exit(0);
}

/* While the daemon is still busy with the end of the other session: soon, but not for ever. */
static int take_over(mempool *pool, const struct mempool_lease_token *token, mempool_lease **lease)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	int r = mempool_reattach(pool, token, lease);

	for (int i = 1; i < TRIES && r == MEMPOOL_E_BUSY; i++) {
		(void)nanosleep(&pause, NULL);
		r = mempool_reattach(pool, token, lease);
	}
	return r;
}

static int come_back(mempool *pool, const char *path)
{
	struct mempool_lease_token token;
	char got[sizeof(left)] = "";
	mempool_lease *lease;
	int r;

	if (load(path, &token) < 0) {
		perror(path);
		return 1;
	}
	r = take_over(pool, &token, &lease);
	if (r == 0)
		r = mempool_read(lease, 0, got, sizeof(got));
	if (r < 0) {
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
		/* The lease may be ours already: mempool_close() would end it, this keeps it. */
		_exit(1);
	}
	printf("found: %s\n", got);
	(void)remove(path);
	r = mempool_release(lease);
	return r == 0 && strcmp(got, left) != 0 ? 1 : r;
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	mempool *pool = NULL;
	int r;

	if (argc != 5 || (strcmp(argv[3], "leave") != 0 && strcmp(argv[3], "return") != 0)) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE leave|return TOKEN-FILE\n", argv[0]);
		return 2;
	}
	who.key_file = argv[2];
	r = mempool_connect(argv[1], &who, &pool);
	if (r == 0)
		r = strcmp(argv[3], "leave") == 0 ? leave(pool, argv[4]) : come_back(pool, argv[4]);
	if (r < 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	mempool_close(pool);
	return r == 0 ? 0 : 1;
}
