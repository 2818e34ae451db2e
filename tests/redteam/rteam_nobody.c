/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A local user without any rights, at the admin socket; no suite of its own.
 *
 * usage: rteam_nobody SOCKET MILLISECONDS [GROUP]
 *
 * Must be started by root. Becomes nobody (in that group, by number, if there is one), prints
 * "ready", tries to connect all the time and to be answered, and then prints how often there was
 * no socket, it was refused, something else happened, it was let in, it got an answer to what it
 * asked; and how often the file had rights for others.
 */
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"

#define NOBODY	  65534
#define ANSWER_MS 2000

struct tries {
	unsigned long absent;
	unsigned long refused;
	unsigned long other;
	unsigned long let_in;
	unsigned long served;
	unsigned long open; /* looks at which the mode was too wide */
};

static bool is_answered(int fd)
{
	static const char ask[] = "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"status\"}\n";
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	char answer[256] = "";

	(void)send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL);
	if (poll(&ready, 1, ANSWER_MS) != 1 || recv(fd, answer, sizeof(answer) - 1, 0) <= 0)
		return false;
	return strstr(answer, "\"result\"") != NULL;
}

static void try_once(const struct sockaddr_un *peer, struct tries *tries)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (stat(peer->sun_path, &st) == 0)
		tries->open += (st.st_mode & S_IRWXO) != 0;
	if (connect(fd, (const struct sockaddr *)peer, sizeof(*peer)) == 0) {
		tries->let_in++;
		tries->served += is_answered(fd);
	} else if (errno == ENOENT)
		tries->absent++;
	else if (errno == EACCES)
		tries->refused++;
	else
		tries->other++;
	close(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_un peer = {.sun_family = AF_UNIX};
	struct tries tries = {0};
	uint64_t until_ns;
	gid_t group;

	if (argc != 3 && argc != 4)
		return 2;
	group = argc == 4 ? (gid_t)strtoul(argv[3], NULL, 10) : NOBODY;
	if (setgroups(1, &group) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
		return 1;
	snprintf(peer.sun_path, sizeof(peer.sun_path), "%.100s", argv[1]);
	puts("ready");
	fflush(stdout);
	until_ns = clock_add_ms(clock_now_ns(), strtoull(argv[2], NULL, 10));
	while (clock_now_ns() < until_ns)
		try_once(&peer, &tries);
	printf("absent %lu refused %lu other %lu let-in %lu served %lu open %lu\n", tries.absent,
	       tries.refused, tries.other, tries.let_in, tries.served, tries.open);
	return 0;
}
