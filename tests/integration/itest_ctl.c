/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl with a live daemon: what each command says to people and to programs, what it
 * does, and with which status it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"
#include "tests/integration/order.h"

#define RUN_MS	  20000
#define WAIT_MS	  20000
#define WORDS_MAX 16
#define TEXT_MAX  65536

/* Running it. */

static struct harness_output output;

static size_t command_line(const struct harness *h, const char *const *words, const char **argv)
{
	static char program[PATH_MAX];
	static char path[HARNESS_TEXT_MAX];
	size_t count = 0;

	argv[count++] = harness_program("mempoolctl", program);
	argv[count++] = "--socket";
	argv[count++] = harness_socket(h, path);
	while (*words != NULL && count < WORDS_MAX)
		argv[count++] = *words++;
	argv[count] = NULL;
	return count;
}

static int run(const struct harness *h, const char *const *words)
{
	const char *argv[WORDS_MAX + 1];

	(void)command_line(h, words, argv);
	if (harness_run(argv, RUN_MS, &output) < 0)
		return -1;
	if (output.status != 0)
		printf("# status %d: %s", output.status, output.err);
	return output.status;
}

/* Return: its exit status. */
#define CTL(h, ...) run(h, (const char *const[]){__VA_ARGS__, NULL})

/* One line of JSON; NULL if it is not that. The caller's reference. */
static json_t *said(void)
{
	if (harness_count_lines(output.out) != 1)
		return NULL;
	return json_loads(output.out, 0, NULL);
}

static bool says(const char *text)
{
	if (strstr(output.out, text) != NULL)
		return true;
	printf("# \"%s\" is not in:\n%s", text, output.out);
	return false;
}

static bool complains(const char *text)
{
	if (harness_count_lines(output.err) == 1 && strstr(output.err, text) != NULL)
		return true;
	printf("# \"%s\" is not the complaint, but:\n%s", text, output.err);
	return false;
}

static char *hex(uint64_t id, char *buf)
{
	snprintf(buf, 32, "0x%" PRIx64, id);
	return buf;
}

static int64_t number_of(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return json_is_integer(value) ? json_integer_value(value) : -1;
}

static const char *text_of(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text != NULL ? text : "";
}

/* Of a list that was printed: the numbers of a member, "7,9" say. */
static const char *numbers(const char *list, const char *member)
{
	static char text[512];
	json_t *root = said();
	const json_t *row;
	size_t used = 0, i;

	text[0] = '\0';
	json_array_foreach(json_object_get(root, list), i, row)
	{
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRId64,
					 i > 0 ? "," : "", number_of(row, member));
	}
	json_decref(root);
	return text;
}

/* The id of the one session that a tenant has. */
static uint64_t session_of(struct harness *h, const char *tenant)
{
	json_t *result = harness_call(h, "session.list", NULL);
	uint64_t id = 0;
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "sessions"), i, row)
	{
		if (strcmp(text_of(row, "tenant"), tenant) == 0)
			id = (uint64_t)number_of(row, "id");
	}
	json_decref(result);
	return id;
}

/* Leases and sessions. */

TEST(ctl__lease_list)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	mempool_lease *leases[3];
	char session[32], expected[64];

	CHECK_INT(CTL(&h, "lease", "list"), 0);
	CHECK_INT(harness_count_lines(output.out), 1);
	CHECK_INT(CTL(&h, "lease", "list", "--json"), 0);
	CHECK_STR(output.out, "{\"leases\":[]}\n");
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &leases[0]), 0);
	CHECK_INT(harness_acquire(beta, 3 * 4096, 60000, &leases[1]), 0);
	CHECK_INT(harness_acquire(alpha, 2 * 4096, 60000, &leases[2]), 0);
	CHECK_INT(CTL(&h, "lease", "list"), 0);
	CHECK_INT(harness_count_lines(output.out), 4);
	CHECK_INT(CTL(&h, "lease", "list", "--json", "--sort", "length"), 0);
	CHECK_STR(numbers("leases", "len_bytes"), "4096,8192,12288");
	CHECK_INT(CTL(&h, "lease", "list", "--json", "--sort", "length", "--reverse"), 0);
	CHECK_STR(numbers("leases", "len_bytes"), "12288,8192,4096");
	CHECK_INT(CTL(&h, "lease", "list", "--json", "--tenant", "alpha", "--sort", "length"), 0);
	CHECK_STR(numbers("leases", "len_bytes"), "4096,8192");
	hex(session_of(&h, "beta"), session);
	CHECK_INT(CTL(&h, "lease", "list", "--json", "--session", session), 0);
	snprintf(expected, sizeof(expected), "%" PRIu64, harness_lease_id(leases[1]));
	CHECK_STR(numbers("leases", "id"), expected);
	CHECK_INT(CTL(&h, "lease", "list", "--state", "active"), 0);
	CHECK_INT(harness_count_lines(output.out), 4);
	CHECK_INT(CTL(&h, "lease", "list", "--state", "orphaned"), 0);
	CHECK_INT(harness_count_lines(output.out), 1);
	CHECK_INT(CTL(&h, "lease", "list", "--sort", "nonesuch"), 2);
	CHECK(complains("nonesuch"));
	CHECK_STR(output.out, "");
}

TEST(ctl__lease_show)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	char id[32], session[32];
	json_t *shown;

	CHECK_INT(harness_acquire(alpha, 4097, 60000, &lease), 0);
	hex(harness_lease_id(lease), id);
	hex(session_of(&h, "alpha"), session);
	CHECK_INT(CTL(&h, "lease", "show", id), 0);
	CHECK(says(id));
	CHECK(says(session));
	CHECK(says("alpha"));
	CHECK(says(harness_address()));
	CHECK(says("(4097 bytes)"));
	CHECK(says("8 KiB at 0x"));
	CHECK(says("rw-"));
	CHECK(says("1 min, "));
	CHECK_INT(CTL(&h, "--json", "lease", "show", id), 0);
	shown = said();
	CHECK(shown != NULL);
	CHECK_INT(number_of(shown, "id"), (int64_t)harness_lease_id(lease));
	CHECK_INT(number_of(shown, "len_bytes"), 4097);
	CHECK_INT(number_of(shown, "extent_bytes"), 8192);
	CHECK_INT(number_of(shown, "ttl_ms"), 60000);
	CHECK(number_of(shown, "ttl_left_ms") > 0 && number_of(shown, "ttl_left_ms") <= 60000);
	CHECK(number_of(shown, "age_ms") >= 0);
	CHECK_INT(number_of(shown, "generation"), 1);
	CHECK_STR(text_of(shown, "state"), "active");
	CHECK_STR(text_of(shown, "tenant"), "alpha");
	CHECK_STR(text_of(shown, "rights"), "rw-");
	json_decref(shown);
	CHECK_INT(mempool_release(lease), 0);
	CHECK(harness_wait_number(&h, "leases.active", 0, WAIT_MS));
	CHECK_INT(CTL(&h, "lease", "show", "1"), 1);
	CHECK(complains("lease 0x1: error 1030: "));
	CHECK_INT(CTL(&h, "lease", "show", "x"), 2);
	CHECK_INT(CTL(&h, "lease", "show"), 2);
	CHECK_INT(CTL(&h, "lease", "show", "1", "2"), 2);
}

TEST(ctl__lease_revoke)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	json_t *result;
	char id[32];

	CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
	hex(harness_lease_id(lease), id);
	CHECK_INT(CTL(&h, "lease", "revoke", id, "--now"), 0);
	CHECK(says(" revoked: 1 lease, fence in "));
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
	CHECK_INT(CTL(&h, "lease", "revoke", "--tenant", "alpha", "--json"), 0);
	result = said();
	CHECK_INT(number_of(result, "leases"), 2);
	CHECK(number_of(result, "took_us") > 0);
	json_decref(result);
	CHECK_INT(CTL(&h, "lease", "revoke", id), 1);
	CHECK(complains(id));
	CHECK_INT(CTL(&h, "lease", "revoke", id, "--tenant", "alpha"), 2);
	CHECK_INT(CTL(&h, "lease", "revoke", id, "--session", "1"), 2);
	CHECK(complains("--session"));
}

TEST(ctl__session_list)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	mempool_lease *lease;
	const json_t *row;
	json_t *result;
	char id[32];

	CHECK_INT(harness_acquire(beta, 4096, 60000, &lease), 0);
	CHECK_INT(CTL(&h, "session", "list"), 0);
	CHECK_INT(harness_count_lines(output.out), 3);
	CHECK(says(hex(session_of(&h, "alpha"), id)));
	CHECK(says(hex(session_of(&h, "beta"), id)));
	CHECK(says("open"));
	CHECK_INT(CTL(&h, "session", "list", "--json", "--tenant", "beta"), 0);
	result = said();
	CHECK_INT(json_array_size(json_object_get(result, "sessions")), 1);
	row = json_array_get(json_object_get(result, "sessions"), 0);
	CHECK_STR(text_of(row, "tenant"), "beta");
	CHECK_STR(text_of(row, "state"), "open");
	CHECK_INT(number_of(row, "leases"), 1);
	CHECK_INT(number_of(row, "lanes"), 1);
	CHECK_INT(strncmp(text_of(row, "peer"), harness_address(), strlen(harness_address())), 0);
	CHECK(number_of(row, "age_ms") >= 0);
	CHECK(number_of(row, "silent_ms") >= 0);
	json_decref(result);
	CHECK_INT(CTL(&h, "session", "list", "--state", "closing"), 0);
	CHECK_INT(harness_count_lines(output.out), 1);
}

TEST(ctl__session_kick)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	mempool_lease *kicked, *kept;
	uint64_t other = session_of(&h, "beta");
	uint8_t byte = 1;
	char id[32], text[128];

	CHECK_INT(harness_acquire(alpha, 4096, 60000, &kicked), 0);
	CHECK_INT(harness_acquire(beta, 4096, 60000, &kept), 0);
	hex(session_of(&h, "alpha"), id);
	CHECK_INT(CTL(&h, "session", "kick", id), 0);
	snprintf(text, sizeof(text), "session %s of alpha kicked: 1 lease ends\n", id);
	CHECK_STR(output.out, text);
	CHECK(harness_wait_number(&h, "sessions", 1, WAIT_MS));
	CHECK(harness_wait_lease_gone(&h, harness_lease_id(kicked), WAIT_MS));
	CHECK(harness_count_log(&h, "event=session-ended tenant=alpha",
				"reason=kicked\\\\x20by\\\\x20the\\\\x20operator") == 1);
	CHECK_INT(harness_count_log(&h, "event=lease-ended tenant=alpha", "reason=revoked"), 1);
	CHECK_INT(harness_count_log(&h, "event=admin tenant=alpha", "reason=session-kick"), 1);
	CHECK(mempool_write(kicked, 0, &byte, 1) != 0);
	/* Nobody else is touched. */
	CHECK_INT(mempool_write(kept, 0, &byte, 1), 0);
	CHECK_INT(CTL(&h, "session", "kick", id), 1);
	CHECK(complains("error 1093: there is no such session"));
	CHECK_INT(CTL(&h, "session", "kick", "x"), 2);
	CHECK_INT(CTL(&h, "session", "kick"), 2);
	/* Of several, all are tried. */
	snprintf(text, sizeof(text), "%" PRIu64, other);
	CHECK_INT(CTL(&h, "--json", "session", "kick", id, text), 1);
	snprintf(text, sizeof(text), "{\"id\":%" PRIu64 ",\"tenant\":\"beta\",", other);
	CHECK(says(text));
	CHECK_INT(harness_count_lines(output.out), 1);
	CHECK(harness_wait_number(&h, "sessions", 0, WAIT_MS));
}

/* Tenants, and the rest. */

TEST(ctl__tenants)
{
	HARNESS(h, .pool_size = NULL);
	char key[KEYS_TEXT_MAX], text[256];
	json_t *result;

	keys_public_text("new", key);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "bytes=1MiB", "--quota",
		      "rights=read"),
		  0);
	CHECK_STR(output.out, "tenant new added, not saved: a reload takes it back\n");
	CHECK_INT(CTL(&h, "tenant", "show", "new"), 0);
	CHECK(says(key));
	CHECK(says("1MiB"));
	CHECK_INT(CTL(&h, "tenant", "show", "new", "--json"), 0);
	result = said();
	CHECK_STR(text_of(result, "name"), "new");
	CHECK_STR(text_of(result, "state"), "ok");
	CHECK_STR(text_of(json_object_get(result, "quota"), "bytes"), "1MiB");
	json_decref(result);
	CHECK_INT(CTL(&h, "tenant", "set", "new", "--quota", "leases=7", "--json"), 0);
	CHECK_STR(output.out, "{\"name\":\"new\",\"saved\":false}\n");
	CHECK_INT(CTL(&h, "tenant", "list", "--sort", "tenant", "--reverse"), 0);
	CHECK(strstr(output.out, "\nnew ") != NULL);
	CHECK(strstr(output.out, "\nnew ") < strstr(output.out, "\nalpha "));
	CHECK_INT(CTL(&h, "tenant", "list", "--state", "banned", "--json"), 0);
	CHECK_STR(output.out, "{\"tenants\":[]}\n");
	CHECK_INT(CTL(&h, "tenant", "unban", "new"), 0);
	CHECK_STR(output.out, "tenant new was not banned\n");
	CHECK_INT(CTL(&h, "tenant", "unban", "new", "--json"), 0);
	CHECK_STR(output.out, "{\"name\":\"new\",\"was_banned\":false}\n");
	/* Not even a public key is in the log. */
	CHECK(!harness_log_says(&h, key));
	CHECK_INT(CTL(&h, "tenant", "remove", "new", "--save"), 0);
	CHECK_STR(output.out, "tenant new removed and saved\n");
	CHECK_INT(CTL(&h, "tenant", "remove", "new"), 1);
	snprintf(text, sizeof(text), "tenant new: error %d: ", ERROR_NO_TENANT);
	CHECK(complains(text));
}

TEST(ctl__reload)
{
	HARNESS(h, .pool_size = NULL);
	json_t *result;

	CHECK_INT(CTL(&h, "reload"), 0);
	CHECK_STR(output.out, "reloaded; tenants: 0 added, 0 changed, 0 removed\n");
	CHECK_INT(CTL(&h, "reload", "--json"), 0);
	result = said();
	CHECK(json_is_array(json_object_get(result, "needs_restart")));
	json_decref(result);
	CHECK_INT(CTL(&h, "reload", "--save"), 2);
}

TEST(ctl__keygen)
{
	HARNESS(h, .pool_size = NULL);
	char path[HARNESS_TEXT_MAX];
	json_t *result;
	struct stat st;

	harness_path(&h, "new.key", path);
	CHECK_INT(CTL(&h, "keygen", "--out", path), 0);
	CHECK_INT(strlen(output.out), SECURE_KEY_TEXT_LENGTH + 1);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
	CHECK_INT(CTL(&h, "keygen", "--out", path), 1);
	CHECK_STR(output.out, "");
	CHECK_INT(CTL(&h, "keygen"), 2);
	unlink(path);
	CHECK_INT(CTL(&h, "keygen", "--out", path, "--json"), 0);
	result = said();
	CHECK_INT(strlen(text_of(result, "public_key")), SECURE_KEY_TEXT_LENGTH);
	json_decref(result);
	unlink(path);
}

TEST(ctl__log_level)
{
	HARNESS(h, .pool_size = NULL);
	int opened;

	CHECK_INT(CTL(&h, "log-level"), 0);
	CHECK_STR(output.out, "log level debug\n");
	CHECK_INT(CTL(&h, "log-level", "warn"), 0);
	CHECK_STR(output.out, "log level warn, was debug\n");
	CHECK_INT(CTL(&h, "log-level", "--json"), 0);
	CHECK_STR(output.out, "{\"level\":\"warn\"}\n");
	opened = log_lines_count(&h, "session opened");
	{
		SESSION(alpha, "alpha");
		CHECK_INT(harness_number(&h, "sessions"), 1);
	}
	CHECK(harness_wait_number(&h, "sessions", 0, WAIT_MS));
	CHECK_INT(log_lines_count(&h, "session opened"), opened);
	/* Whoever wants few lines has not asked for no audit. */
	CHECK_INT(harness_count_log(&h, "event=session-opened tenant=alpha", NULL), 1);
	CHECK_INT(CTL(&h, "log-level", "info", "--json"), 0);
	CHECK_STR(output.out, "{\"level\":\"info\",\"was\":\"warn\"}\n");
	{
		SESSION(alpha, "alpha");
		CHECK_INT(harness_number(&h, "sessions"), 1);
	}
	CHECK_INT(log_lines_count(&h, "session opened"), opened + 1);
	CHECK_INT(CTL(&h, "log-level", "loud"), 1);
	CHECK_INT(CTL(&h, "log-level", "INFO"), 1);
	CHECK_INT(CTL(&h, "log-level", "info", "warn"), 2);
	/* The configuration has the last word. */
	CHECK_INT(CTL(&h, "reload"), 0);
	CHECK_INT(CTL(&h, "log-level"), 0);
	CHECK_STR(output.out, "log level debug\n");
}

/* Events. */

struct follower {
	pid_t pid; /* 0: it has ended */
	int fd;
	size_t used_bytes;
	char text[TEXT_MAX];
};

static void follower_end(struct follower *f)
{
	if (f->pid > 0) {
		(void)kill(f->pid, SIGKILL);
		(void)waitpid(f->pid, NULL, 0);
	}
	if (f->fd >= 0)
		close(f->fd);
}

static int follower_start(struct follower *f, const struct harness *h, const char *tenant)
{
	const char *argv[WORDS_MAX + 1];
	size_t count = command_line(h, (const char *const[]){"events", "--follow", NULL}, argv);

	if (tenant != NULL) {
		argv[count++] = "--tenant";
		argv[count++] = tenant;
		argv[count] = NULL;
	}
	f->pid = harness_spawn(argv, &f->fd);
	return f->pid > 0 ? 0 : -1;
}

#define FOLLOWER(f) __attribute__((cleanup(follower_end))) struct follower f = {.fd = -1}

/* The next line; NULL if it ends, or none comes. The caller's reference. */
static json_t *next_event(struct follower *f)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), WAIT_MS);
	struct pollfd ready = {.fd = f->fd, .events = POLLIN};
	char *newline;
	json_t *event;
	ssize_t n;

	while ((newline = memchr(f->text, '\n', f->used_bytes)) == NULL) {
		if (poll(&ready, 1, (int)clock_left_ms(until_ns, clock_now_ns())) <= 0)
			return NULL;
		n = read(f->fd, f->text + f->used_bytes, sizeof(f->text) - f->used_bytes);
		if (n <= 0)
			return NULL;
		f->used_bytes += (size_t)n;
	}
	event = json_loadb(f->text, (size_t)(newline - f->text), 0, NULL);
	f->used_bytes -= (size_t)(newline + 1 - f->text);
	memmove(f->text, newline + 1, f->used_bytes);
	return event;
}

static int follower_status(struct follower *f)
{
	int status;

	if (waitpid(f->pid, &status, 0) != f->pid)
		return -1;
	f->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A follower is there when it is told of something; @tenant: of whom it wants to know, or NULL. */
static bool is_following(struct harness *h, struct follower *f, const char *tenant)
{
	for (int i = 0; i < 200; i++) {
		struct pollfd ready = {.fd = f->fd, .events = POLLIN};
		json_t *result;

		if (tenant != NULL)
			result = harness_call(h, "tenant.set",
					      json_pack("{s:s, s:{s:i}}", "name", tenant, "quota",
							"leases", 1000 + i));
		else
			result = harness_call(
				h, "log-level",
				json_pack("{s:s}", "level", i % 2 == 0 ? "info" : "debug"));
		json_decref(result);
		if (poll(&ready, 1, 100) == 1)
			return true;
	}
	return false;
}

/* The next event of a name, passing over others. */
static json_t *wait_event(struct follower *f, const char *name)
{
	json_t *event;

	while ((event = next_event(f)) != NULL && strcmp(text_of(event, "event"), name) != 0)
		json_decref(event);
	if (event == NULL)
		printf("# no event %s\n", name);
	return event;
}

static bool event_is(struct follower *f, const char *name, const char *tenant, uint64_t lease,
		     const char *reason)
{
	json_t *event = wait_event(f, name);
	bool is = event != NULL && strcmp(text_of(event, "tenant"), tenant) == 0 &&
		  strcmp(text_of(event, "reason"), reason) == 0 &&
		  (lease == 0 || number_of(event, "lease") == (int64_t)lease) &&
		  strlen(text_of(event, "time")) == strlen("2026-01-01T00:00:00.000Z");
	char *text = json_dumps(event, JSON_COMPACT);

	if (!is)
		printf("# not what was expected: %s\n", text != NULL ? text : "nothing");
	free(text);
	json_decref(event);
	return is;
}

static bool wait_until_it_drains(struct harness *h)
{
	bool drains = false;

	for (int i = 0; i < WAIT_MS / 20 && !drains; i++) {
		json_t *status = harness_call(h, "status", NULL);

		drains =
			strcmp(text_of(json_object_get(status, "drain"), "state"), "draining") == 0;
		json_decref(status);
		(void)poll(NULL, 0, 20);
	}
	return drains;
}

TEST(ctl__drain)
{
	static const char *const waits[][4] = {
		{"drain", "--wait", NULL},
		{"drain", "--wait", "--exit", NULL},
	};
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease, *second;
	json_t *result;
	FOLLOWER(waiting);
	const char *argv[WORDS_MAX + 1];

	CHECK_INT(CTL(&h, "drain", "--deadline", "1min"), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(CTL(&h, "undrain"), 0);
	CHECK(says("serving"));
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
	CHECK_INT(CTL(&h, "drain", "--deadline", "1min"), 0);
	CHECK(says("draining"));
	CHECK_INT(CTL(&h, "status"), 0);
	CHECK(says("1 leases left"));
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &second), MEMPOOL_E_DRAINING);
	CHECK_INT(CTL(&h, "undrain", "--json"), 0);
	result = said();
	CHECK_STR(text_of(result, "state"), "serving");
	json_decref(result);
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &second), 0);
	CHECK_INT(mempool_release(second), 0);
	/* Waits until the lease is given back. */
	(void)command_line(&h, (const char *const[]){"drain", "--wait", "--json", NULL}, argv);
	waiting.pid = harness_spawn(argv, &waiting.fd);
	CHECK(waiting.pid > 0);
	CHECK(harness_wait_number(&h, "drain.leases_left", 1, WAIT_MS));
	CHECK(poll(&(struct pollfd){.fd = waiting.fd, .events = POLLIN}, 1, 500) == 0);
	CHECK_INT(mempool_release(lease), 0);
	result = next_event(&waiting);
	CHECK_STR(text_of(result, "state"), "drained");
	CHECK_INT(number_of(result, "leases_left"), 0);
	json_decref(result);
	CHECK_INT(follower_status(&waiting), 0);
	/* What is told to serve again meanwhile is not drained. */
	CHECK_INT(CTL(&h, "undrain"), 0);
	CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
	for (int i = 0; i < 2; i++) {
		FOLLOWER(cheated);

		(void)command_line(&h, waits[i], argv);
		cheated.pid = harness_spawn(argv, &cheated.fd);
		CHECK(cheated.pid > 0);
		CHECK(wait_until_it_drains(&h));
		CHECK_INT(CTL(&h, "undrain"), 0);
		CHECK_INT(follower_status(&cheated), 1);
	}
	CHECK_INT(mempool_release(lease), 0);
	/* And then the daemon's end. */
	CHECK_INT(CTL(&h, "drain", "--wait", "--exit", "--deadline", "0", "--json"), 0);
	result = said();
	CHECK_STR(text_of(result, "state"), "ended");
	json_decref(result);
	CHECK_INT(CTL(&h, "status"), 3);
	CHECK_INT(waitpid(h.pid, NULL, 0), h.pid);
	h.pid = 0;
}

/* To the end: are all of a tenant, and how many changes of it are there? */
static bool are_all_of(struct follower *f, const char *tenant, unsigned int *ret_changes)
{
	bool are = true;
	json_t *event;

	*ret_changes = 0;
	while ((event = next_event(f)) != NULL) {
		are = are && strcmp(text_of(event, "tenant"), tenant) == 0;
		*ret_changes += strcmp(text_of(event, "event"), "tenant-changed") == 0;
		json_decref(event);
	}
	return are && f->used_bytes == 0;
}

TEST(ctl__events)
{
	HARNESS(h, .pool_size = NULL);
	mempool_lease *lease;
	char key[KEYS_TEXT_MAX];
	unsigned int changes;
	uint64_t id;
	FOLLOWER(f);
	FOLLOWER(only);

	CHECK_INT(follower_start(&only, &h, "beta"), 0);
	CHECK(is_following(&h, &only, "beta"));
	CHECK_INT(follower_start(&f, &h, NULL), 0);
	CHECK(is_following(&h, &f, NULL));
	{
		SESSION(alpha, "alpha");
		CHECK(event_is(&f, "session-opened", "alpha", 0, ""));
		CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
		id = harness_lease_id(lease);
		CHECK(event_is(&f, "lease-granted", "alpha", id, ""));
		CHECK_INT(mempool_renew(lease, 120000), 0);
		CHECK(event_is(&f, "lease-renewed", "alpha", id, ""));
		CHECK_INT(mempool_release(lease), 0);
		CHECK(event_is(&f, "lease-ended", "alpha", id, "released"));
		CHECK_INT(harness_acquire(alpha, 4096, 60000, &lease), 0);
		id = harness_lease_id(lease);
		CHECK_INT(harness_revoke(&h, id), 0);
		CHECK(event_is(&f, "lease-ended", "alpha", id, "revoked"));
	}
	CHECK(event_is(&f, "session-ended", "alpha", 0, "bye"));
	keys_public_text("new", key);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key), 0);
	CHECK(event_is(&f, "tenant-added", "new", 0, ""));
	CHECK(event_is(&f, "admin", "new", 0, "tenant-add"));
	CHECK_INT(CTL(&h, "tenant", "remove", "new"), 0);
	CHECK(event_is(&f, "tenant-removed", "new", 0, ""));
	CHECK(event_is(&f, "admin", "new", 0, "tenant-remove"));
	CHECK_INT(CTL(&h, "tenant", "set", "beta", "--quota", "leases=3"), 0);
	CHECK(event_is(&f, "tenant-changed", "beta", 0, ""));
	/* The reload takes it back, and nobody has to guess. */
	CHECK_INT(CTL(&h, "reload"), 0);
	CHECK(event_is(&f, "tenant-changed", "beta", 0, ""));
	CHECK(event_is(&f, "admin", "", 0, "reload"));
	CHECK_INT(CTL(&h, "drain"), 0);
	CHECK(event_is(&f, "drain", "", 0, "draining"));
	CHECK(event_is(&f, "admin", "", 0, "drain"));
	CHECK(event_is(&f, "drain", "", 0, "drained"));
	CHECK_INT(CTL(&h, "undrain"), 0);
	CHECK(event_is(&f, "drain", "", 0, "serving"));
	CHECK(event_is(&f, "admin", "", 0, "undrain"));
	CHECK_INT(harness_stop(&h), 0);
	CHECK(event_is(&f, "drain", "", 0, "stopping"));
	CHECK(are_all_of(&only, "beta", &changes));
	CHECK(changes >= 3); /* one that it was there for, and two */
	CHECK_INT(follower_status(&f), 3);
	CHECK_INT(follower_status(&only), 3);
}

TEST(ctl__events_usage)
{
	HARNESS(h, .pool_size = NULL);

	CHECK_INT(CTL(&h, "events"), 2);
	CHECK(complains("--follow"));
	CHECK_INT(CTL(&h, "events", "--follow", "--state", "active"), 2);
}

/* Many orders at once, each of which is an event; the answers are read. */
static void make_events(const struct harness *h, unsigned int count)
{
	static const char text[] = "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"log-level\", "
				   "\"params\": {\"level\": \"warn\"}}\n";
	__attribute__((cleanup(order_close))) struct order order;
	json_t *result;

	CHECK_INT(order_open(&order, h), 0);
	for (unsigned int i = 0; i < count; i += 16) {
		for (unsigned int k = 0; k < 16; k++)
			CHECK_INT(send(order.fd, text, sizeof(text) - 1, 0), sizeof(text) - 1);
		for (unsigned int k = 0; k < 16; k++) {
			CHECK_INT(order_answer(&order, WAIT_MS, &result), 0);
			json_decref(result);
		}
	}
}

/* A follower that sleeps for too long: it is cut off, and told so; nobody else notices. */
TEST(ctl__events_slow_reader)
{
	HARNESS(h, .pool_size = NULL);
	unsigned int events = 0;
	bool is_cut = false;
	json_t *event;
	FOLLOWER(slow);
	FOLLOWER(fast);

	CHECK_INT(follower_start(&slow, &h, NULL), 0);
	CHECK(is_following(&h, &slow, NULL));
	CHECK_INT(follower_start(&fast, &h, NULL), 0);
	CHECK(is_following(&h, &fast, NULL));
	CHECK_INT(kill(slow.pid, SIGSTOP), 0);
	/* What is above the limit, and what the kernel and a pipe hold, in lines of 100 bytes. */
	while (events < 20000 && !harness_log_says(&h, "does not read its events")) {
		make_events(&h, 256);
		CHECK(!test_has_failed());
		events += 256;
		while (fast.used_bytes > 0 ||
		       poll(&(struct pollfd){.fd = fast.fd, .events = POLLIN}, 1, 0) == 1) {
			event = next_event(&fast);
			CHECK(event != NULL);
			json_decref(event);
		}
	}
	printf("# cut after %u events\n", events);
	CHECK(events < 20000);
	CHECK_INT(kill(slow.pid, SIGCONT), 0);
	while (!is_cut && (event = next_event(&slow)) != NULL) {
		is_cut = strcmp(text_of(event, "event"), "cut") == 0;
		json_decref(event);
	}
	CHECK(is_cut);
	CHECK(next_event(&slow) == NULL);
	CHECK_INT(follower_status(&slow), 1);
	CHECK_INT(CTL(&h, "log-level", "error"), 0);
	event = NULL;
	while (event == NULL || strcmp(text_of(event, "reason"), "log-level-error") != 0) {
		json_decref(event);
		event = next_event(&fast);
		CHECK(event != NULL);
	}
	json_decref(event);
}

/* Terminals. */

/* What a command prints on a terminal. @no_color: "NO_COLOR=..." or NULL */
static const char *on_terminal(const struct harness *h, const char *no_color)
{
	static char text[TEXT_MAX];
	char *env[] = {"TERM=xterm", (char *)no_color, NULL};
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	const char *argv[WORDS_MAX + 1];
	posix_spawn_file_actions_t actions;
	size_t used = 0;
	pid_t pid;
	int r;

	(void)command_line(h, (const char *const[]){"session", "list", NULL}, argv);
	if (terminal < 0 || grantpt(terminal) < 0 || unlockpt(terminal) < 0)
		return "no terminal";
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, ptsname(terminal),
					 O_RDWR | O_NOCTTY, 0);
	r = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, env);
	posix_spawn_file_actions_destroy(&actions);
	while (r == 0 && used + 1 < sizeof(text)) {
		ssize_t n = read(terminal, text + used, sizeof(text) - 1 - used);

		if (n <= 0)
			break; /* EIO when the other end is closed */
		used += (size_t)n;
	}
	text[used] = '\0';
	if (r == 0)
		(void)waitpid(pid, NULL, 0);
	close(terminal);
	return text;
}

TEST(ctl__colours)
{
	HARNESS(h, .pool_size = NULL);

	CHECK(strstr(on_terminal(&h, NULL), "\033[1mTENANT\033[0m") != NULL);
	CHECK(strstr(on_terminal(&h, "NO_COLOR="), "\033[1mTENANT\033[0m") != NULL);
	CHECK(strstr(on_terminal(&h, "NO_COLOR=1"), "TENANT") != NULL);
	CHECK(strchr(on_terminal(&h, "NO_COLOR=1"), '\033') == NULL);
	CHECK_INT(CTL(&h, "session", "list"), 0);
	CHECK(says("TENANT"));
	CHECK(strchr(output.out, '\033') == NULL);
}

/* Two daemons, and what else is in the socket's place. */

static int start_daemon(const struct harness *h)
{
	char program[PATH_MAX], config[HARNESS_TEXT_MAX];
	const char *argv[] = {harness_program("mempoold", program), "--config",
			      harness_path(h, "mempoold.conf", config), NULL};

	return harness_run(argv, RUN_MS, &output) < 0 ? -1 : output.status;
}

TEST(ctl__second_daemon)
{
	HARNESS(h, .pool_size = NULL);

	CHECK_INT(start_daemon(&h), 3);
	CHECK_INT(harness_count_lines(output.err), 1);
	CHECK(strstr(output.err, "/admin.sock': another daemon uses it") != NULL);
	/* The first one has not noticed. */
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(CTL(&h, "status"), 0);
	/* One that was killed leaves its socket, which is in nobody's way. */
	harness_kill(&h);
	CHECK_INT(CTL(&h, "status"), 3);
	CHECK_INT(harness_restart(&h), 0);
	CHECK_INT(CTL(&h, "status"), 0);
}

TEST(ctl__file_in_the_place)
{
	HARNESS(h, .pool_size = NULL);
	char path[HARNESS_TEXT_MAX];
	struct stat st;
	int fd;

	CHECK_INT(harness_stop(&h), 0);
	harness_socket(&h, path);
	CHECK_INT(access(path, F_OK), -1);
	fd = open(path, O_CREAT | O_WRONLY, 0640);
	CHECK(fd >= 0);
	CHECK_INT(write(fd, "keep me", 7), 7);
	close(fd);
	CHECK_INT(start_daemon(&h), 1);
	CHECK(strstr(output.err, "something that is not a socket is there") != NULL);
	CHECK_INT(CTL(&h, "status"), 3);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_size, 7);
	CHECK_INT(st.st_mode, S_IFREG | 0640);
	unlink(path);
}
