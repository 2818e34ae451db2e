/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orders to the daemon: lines of JSON-RPC that are written and whose answers are read later
 * or never. Owns the connection.
 *
 * Thread: one at a time.
 */
#include "tests/integration/order.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

int order_open(struct order *order, const struct harness *h)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char path[HARNESS_TEXT_MAX];

	*order = (struct order){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	if (order->fd < 0)
		return -errno;
	harness_socket(h, path);
	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, strlen(path) + 1);
	return connect(order->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 ? 0 : -errno;
}

void order_close(struct order *order)
{
	if (order->fd >= 0)
		(void)close(order->fd);
	order->fd = -1;
}

static int order_give(struct order *order, const char *name, const char *value, bool now)
{
	int n = dprintf(order->fd,
			"{\"jsonrpc\": \"2.0\", \"id\": %" PRIu64 ", \"method\": \"lease.revoke\", "
			"\"params\": {\"%s\": %s, \"now\": %s}}\n",
			++order->given, name, value, now ? "true" : "false");

	return n > 0 ? 0 : -EIO;
}

int order_revoke(struct order *order, uint64_t lease_id, bool now)
{
	char value[32];

	(void)snprintf(value, sizeof(value), "%" PRIu64, lease_id);
	return order_give(order, "id", value, now);
}

int order_revoke_tenant(struct order *order, const char *tenant, bool now)
{
	char value[96];

	(void)snprintf(value, sizeof(value), "\"%s\"", tenant);
	return order_give(order, "tenant", value, now);
}

/* Return: 1 = there is a whole line, at the beginning of @line; 0 = none in time; -errno */
static int order_read(struct order *order, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	struct pollfd fd = {.fd = order->fd, .events = POLLIN};

	while (memchr(order->line, '\n', order->used_bytes) == NULL) {
		ssize_t n;

		if (order->used_bytes == sizeof(order->line))
			return -EMSGSIZE;
		if (poll(&fd, 1, (int)clock_left_ms(until_ns, clock_now_ns())) <= 0)
			return 0;
		n = read(order->fd, order->line + order->used_bytes,
			 sizeof(order->line) - order->used_bytes);
		if (n <= 0)
			return -ENETRESET;
		order->used_bytes += (size_t)n;
	}
	return 1;
}

int order_answer(struct order *order, uint64_t limit_ms, json_t **ret_result)
{
	int r = order_read(order, limit_ms);
	json_t *answer;
	size_t len;

	*ret_result = NULL;
	if (r <= 0)
		return r == 0 ? -ETIMEDOUT : r;
	len = (size_t)((char *)memchr(order->line, '\n', order->used_bytes) - order->line) + 1;
	answer = json_loadb(order->line, len, 0, NULL);
	order->used_bytes -= len;
	memmove(order->line, order->line + len, order->used_bytes);
	if (answer == NULL)
		return -EPROTO;
	r = (int)json_integer_value(json_object_get(json_object_get(answer, "error"), "code"));
	*ret_result = json_incref(json_object_get(answer, "result"));
	json_decref(answer);
	return r;
}

void order_forget(struct order *order)
{
	json_t *result;

	while (order_answer(order, 0, &result) >= 0)
		json_decref(result);
}
