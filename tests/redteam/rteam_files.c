/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More admin clients than the daemon may have files. It takes no more than it can and does
 * not spin for the others; those who are in are served, tenants are served, and whenever
 * somebody leaves somebody else comes in, until all have been served.
 *
 * Thread: the test's.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"

#define FILES_MAX   64
#define CLIENTS	    200
#define IDLE_MS	    2000
#define CPU_PERCENT 20 /* of one CPU; spinning takes all of it */
#define ANSWER_MS   1000
#define SERVED_MS   60000
#define TURN_MS	    700 /* for the next to be served: sooner than the daemon looks by itself */

static const char question[] = "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"status\"}\n";

struct client {
	int fd;	       /* -1: none */
	bool asked;    /* and not answered */
	bool answered; /* at least once */
};

static void clients_close(struct client (*clients)[CLIENTS])
{
	for (int i = 0; i < CLIENTS; i++) {
		if ((*clients)[i].fd >= 0)
			close((*clients)[i].fd);
		(*clients)[i].fd = -1;
	}
}

/* One that cannot even wait stays outside and may try again. */
static void client_connect(struct client *client, const struct harness *h)
{
	struct sockaddr_un peer = {.sun_family = AF_UNIX};
	char path[HARNESS_TEXT_MAX];

	if (client->fd >= 0)
		return;
	snprintf(peer.sun_path, sizeof(peer.sun_path), "%.100s", harness_socket(h, path));
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (connect(client->fd, (struct sockaddr *)&peer, sizeof(peer)) == 0)
		return;
	close(client->fd);
	client->fd = -1;
}

static void client_ask(struct client *client)
{
	if (client->fd < 0 || client->asked)
		return;
	client->asked = send(client->fd, question, sizeof(question) - 1, MSG_NOSIGNAL) ==
			(ssize_t)sizeof(question) - 1;
}

/* An answer is a line; that it is a good one is tested elsewhere. */
static void client_listen(struct client *client)
{
	static char buf[65536];
	ssize_t n = client->fd < 0 ? -1 : recv(client->fd, buf, sizeof(buf), 0);

	if (n <= 0 || buf[n - 1] != '\n')
		return;
	client->answered = true;
	client->asked = false;
}

static int count_answered(const struct client *clients)
{
	int count = 0;

	for (int i = 0; i < CLIENTS; i++)
		count += clients[i].answered;
	return count;
}

static void listen_for(struct client *clients, uint64_t ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), ms);

	while (clock_now_ns() < until_ns) {
		for (int i = 0; i < CLIENTS; i++)
			client_listen(&clients[i]);
		harness_sleep_ms(5);
	}
}

static int count_files(pid_t pid)
{
	char path[64];
	int count = -2; /* . and .. */
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		(void)closedir(dir);
	return count;
}

/* Of all threads together. */
static uint64_t cpu_ms(pid_t pid)
{
	char path[64];
	unsigned long user, kernel;
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	n = fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
		   &kernel);
	fclose(file);
	return n == 2 ? (uint64_t)(user + kernel) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) : 0;
}

static void check_idle(pid_t pid)
{
	uint64_t before_ms = cpu_ms(pid);
	uint64_t used_ms;

	CHECK(before_ms > 0);
	harness_sleep_ms(IDLE_MS);
	used_ms = cpu_ms(pid) - before_ms;
	printf("# S5 at the limit the daemon used %" PRIu64 " ms of CPU in %d ms\n", used_ms,
	       IDLE_MS);
	CHECK(used_ms * 100 <= (uint64_t)IDLE_MS * CPU_PERCENT);
}

/* Those who are in get every answer they ask for. */
static void check_answers(struct client *clients, int expected)
{
	int answers = 0;

	for (int i = 0; i < CLIENTS; i++) {
		if (clients[i].answered)
			client_ask(&clients[i]);
	}
	listen_for(clients, ANSWER_MS);
	for (int i = 0; i < CLIENTS; i++)
		answers += clients[i].answered && !clients[i].asked;
	CHECK_INT(answers, expected);
}

/* All leave who are answered, others come; Return: longest pause between two answers. */
static uint64_t serve_all(struct client *clients, const struct harness *h)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), SERVED_MS);
	uint64_t last_ns = clock_now_ns();
	uint64_t longest_ns = 0;
	int before = count_answered(clients);

	while (count_answered(clients) < CLIENTS && clock_now_ns() < until_ns) {
		for (int i = 0; i < CLIENTS; i++) {
			if (clients[i].answered && clients[i].fd >= 0) {
				close(clients[i].fd);
				clients[i].fd = -1;
			}
			if (clients[i].answered)
				continue;
			client_connect(&clients[i], h);
			client_ask(&clients[i]);
			client_listen(&clients[i]);
		}
		if (count_answered(clients) > before) {
			before = count_answered(clients);
			if (clock_now_ns() - last_ns > longest_ns)
				longest_ns = clock_now_ns() - last_ns;
			last_ns = clock_now_ns();
		}
		harness_sleep_ms(5);
	}
	return longest_ns;
}

TEST(files__more_admin_clients_than_the_daemon_may_have_files)
{
	HARNESS(h, .pool_size = NULL);
	struct rlimit limit = {.rlim_cur = FILES_MAX, .rlim_max = FILES_MAX};
	__attribute__((cleanup(clients_close))) struct client clients[CLIENTS];
	uint64_t longest_ns;
	int files;
	int in = 0;
	int connected = 0;

	for (int i = 0; i < CLIENTS; i++)
		clients[i] = (struct client){.fd = -1};
	CHECK(harness_number(&h, "pid") > 0);
	files = count_files(h.pid);
	CHECK_INT(prlimit(h.pid, RLIMIT_NOFILE, &limit, NULL), 0);
	for (int i = 0; i < CLIENTS; i++) {
		client_connect(&clients[i], &h);
		client_ask(&clients[i]);
		connected += clients[i].fd >= 0;
	}
	listen_for(clients, ANSWER_MS);
	in = count_answered(clients);
	printf("# S5 %d files before; of %d admin clients %d were let in, %d wait, %d have to try "
	       "again\n",
	       files, CLIENTS, in, connected - in, CLIENTS - connected);
	CHECK_INT(in, FILES_MAX - files);
	CHECK_INT(count_files(h.pid), FILES_MAX);
	CHECK(connected > in);
	check_idle(h.pid);
	CHECK(!test_has_failed());
	check_answers(clients, in);
	CHECK(!test_has_failed());
	/* Neither does a tenant need a file of the daemon's. */
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, 1, 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	harness_close(&alpha);
	longest_ns = serve_all(clients, &h);
	printf("# S5 in the end %d were served, with pauses of %.0f ms at most\n",
	       count_answered(clients), (double)longest_ns / 1e6);
	CHECK_INT(count_answered(clients), CLIENTS);
	CHECK(longest_ns < TURN_MS * CLOCK_NS_PER_MS);
	clients_close(&clients);
	CHECK(harness_number(&h, "pid") > 0);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(count_files(h.pid), files);
	CHECK_INT(harness_stop(&h), 0);
}
