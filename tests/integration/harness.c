/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts, asks and stops real daemons and other programs of the project. Everything of one
 * daemon is in a folder of its own under /tmp: configuration, admin socket, log.
 *
 * Programs are spawned without copying this process: it has memory that devices write to.
 * Thread: the test's.
 */
#include "tests/integration/harness.h"

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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/rpc.h"
#include "common/clock.h"
#include "tests/integration/keys.h"

#define HARNESS_START_LIMIT_MS 30000
#define HARNESS_STOP_LIMIT_MS  20000
#define HARNESS_RPC_TIMEOUT_MS 10000
#define HARNESS_LOG_TAIL_LINES 60

extern char **environ;

static const struct {
	uint32_t full;
	uint32_t reduced;
} harness_figures[FIGURES] = {
	[FIGURE_EXPIRY_LEASES] = {50, 50},
	[FIGURE_KILL_ROUNDS] = {20, 4},
	[FIGURE_RESTART_LEASES] = {50, 50},
	[FIGURE_STALE_DESCRIPTORS] = {50, 10},
	[FIGURE_CYCLES] = {200, 60},
	[FIGURE_TENANT_ROUNDS] = {200, 20},
	[FIGURE_RACE_ROUNDS] = {10000, 500},
	[FIGURE_STORM_LEASES] = {10000, 1000},
	[FIGURE_STORM_TURN_MS] = {50, 250}, /* the quick run may share its CPUs with anything */
	[FIGURE_LEAVING_SESSIONS] = {500, 50},
	[FIGURE_LEAVING_MS] = {100, 250},
	[FIGURE_LIVES] = {200, 60},
	[FIGURE_CROWD] = {200, 40},
	[FIGURE_STOPS] = {20, 3},
	[FIGURE_RESTARTS] = {20, 3},
	[FIGURE_BREAKS] = {50, 8},
	[FIGURE_FORKS] = {100, 10},
	[FIGURE_THREAD_OPERATIONS] = {100000, 600},
	[FIGURE_SIGNALS] = {50, 10},
	[FIGURE_STANDSTILLS] = {20, 3},
	[FIGURE_MEASURE_MS] = {300, 50},
	[FIGURE_FLUSHES] = {4000, 200},
	[FIGURE_RELOADS] = {100, 10},
	[FIGURE_LARGE_MIB] = {64, 8},
	[FIGURE_OUTAGES] = {140, 8},
	[FIGURE_OUTAGES_OF_SESSIONS] = {60, 4},
};

static const uint32_t harness_soak[FIGURES] = {
	[FIGURE_LIVES] = 5000,
};

static const char *harness_env(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : otherwise;
}

uint32_t harness_figure(enum harness_figure figure)
{
	if (strcmp(harness_env("TEST_SOAK", ""), "1") == 0 && harness_soak[figure] != 0)
		return harness_soak[figure];
	return strcmp(harness_env("TEST_FULL", ""), "1") == 0 ? harness_figures[figure].full
							      : harness_figures[figure].reduced;
}

const char *harness_address(void)
{
	return harness_env("MEMPOOL_ADDRESS", "10.77.0.1");
}

const char *harness_endpoint(void)
{
	static _Thread_local char text[HARNESS_TEXT_MAX];

	snprintf(text, sizeof(text), "%s:%d", harness_address(), HARNESS_PORT);
	return text;
}

bool harness_is_unverified(void)
{
	return strcmp(harness_env("MEMPOOL_ISOLATION", "auto"), "unverified") == 0;
}

void harness_sleep_ms(uint64_t ms)
{
	struct timespec time = {
		.tv_sec = (time_t)(ms / 1000),
		.tv_nsec = (long)(ms % 1000 * CLOCK_NS_PER_MS),
	};

	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

uint64_t harness_since_ms(uint64_t begun_ns)
{
	return (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
}

static int harness_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void harness_sort(uint64_t *values, size_t count)
{
	qsort(values, count, sizeof(*values), harness_compare);
}

unsigned int harness_count_lines(const char *text)
{
	unsigned int lines = 0;

	for (; *text != '\0'; text++)
		lines += *text == '\n';
	return lines;
}

void harness_fill(uint8_t *buf, size_t len_bytes, uint32_t seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < len_bytes; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		buf[i] = (uint8_t)(x >> 8 | 1);
	}
}

/* Programs. */

char *harness_program(const char *name, char *buf)
{
	static const char *const folders[] = {"",
					      "../../daemon/",
					      "../../client/",
					      "../seams/",
					      "../integration/",
					      "../../client/tools/",
					      "../../client/examples/"};
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len > 0) {
		self[len] = '\0';
		*(strrchr(self, '/') + 1) = '\0';
		for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
			if (snprintf(buf, PATH_MAX, "%s%s%s", self, folders[i], name) < PATH_MAX &&
			    access(buf, X_OK) == 0)
				return buf;
		}
	}
	snprintf(buf, PATH_MAX, "%s", name);
	return buf;
}

/* @out, @err: where its output goes; -1: stays as ours */
static pid_t harness_exec(const char *const *argv, char **env, int out, int err)
{
	posix_spawn_file_actions_t actions;
	pid_t pid = 0;
	int r;

	posix_spawn_file_actions_init(&actions);
	if (out >= 0)
		posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (err >= 0)
		posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
	r = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, env);
	posix_spawn_file_actions_destroy(&actions);
	return r == 0 ? pid : -r;
}

static int harness_exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Return: the exit status, or -ETIMEDOUT. */
static int harness_wait(pid_t pid, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	int status;

	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			return harness_exit_status(status);
		if (got < 0)
			return -errno;
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
		harness_sleep_ms(2);
	}
}

pid_t harness_spawn(const char *const *argv, int *ret_out)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = harness_exec(argv, environ, fds[1], -1);
	close(fds[1]);
	if (pid < 0)
		close(fds[0]);
	else
		*ret_out = fds[0];
	return pid;
}

static void harness_read_back(int fd, char *buf, size_t cap_bytes)
{
	ssize_t n = pread(fd, buf, cap_bytes - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
}

int harness_run(const char *const *argv, uint64_t limit_ms, struct harness_output *ret_output)
{
	int out = memfd_create("out", MFD_CLOEXEC);
	int err = memfd_create("err", MFD_CLOEXEC);
	pid_t pid = harness_exec(argv, environ, out, err);
	int r = pid < 0 ? (int)pid : harness_wait(pid, limit_ms);

	if (r == -ETIMEDOUT) {
		(void)kill(pid, SIGKILL);
		(void)harness_wait(pid, HARNESS_STOP_LIMIT_MS);
	}
	ret_output->status = r;
	harness_read_back(out, ret_output->out, sizeof(ret_output->out));
	harness_read_back(err, ret_output->err, sizeof(ret_output->err));
	close(out);
	close(err);
	return r < 0 ? r : 0;
}

/* The daemon. */

char *harness_socket(const struct harness *h, char *buf)
{
	snprintf(buf, HARNESS_TEXT_MAX, "%s/admin.sock", h->dir);
	return buf;
}

char *harness_path(const struct harness *h, const char *name, char *buf)
{
	snprintf(buf, HARNESS_TEXT_MAX, "%s/%s", h->dir, name);
	return buf;
}

bool harness_log_says(const struct harness *h, const char *text)
{
	char path[HARNESS_TEXT_MAX];
	char line[1024];
	bool says = false;
	FILE *file = fopen(harness_path(h, "log", path), "re");

	if (file == NULL)
		return false;
	while (!says && fgets(line, sizeof(line), file) != NULL)
		says = strstr(line, text) != NULL;
	fclose(file);
	return says;
}

int harness_configure(struct harness *h, const struct harness_options *options)
{
	char path[HARNESS_TEXT_MAX];
	char sock[HARNESS_TEXT_MAX];
	char key[HARNESS_TEXT_MAX];
	FILE *file;

	harness_path(h, "daemon.key", key);
	if (keys_write("daemon", key) < 0)
		return -EIO;
	harness_path(h, "mempoold.conf", path);
	file = fopen(path, "we");
	if (file == NULL)
		return -errno;
	fprintf(file,
		"{\"pool_size\": \"%s\", \"listen\": [\"%s\"], \"admin_socket\": \"%s\",\n"
		" \"isolation\": \"%s\", \"ttl_max\": \"%s\", \"log_level\": \"debug\",\n"
		" \"sessions_max\": %u, \"key_file\": \"%s\", \"state_dir\": \"%s\", %s%s%s,\n",
		options->pool_size != NULL ? options->pool_size : "16MiB", harness_endpoint(),
		harness_socket(h, sock),
		options->isolation != NULL ? options->isolation
					   : harness_env("MEMPOOL_ISOLATION", "auto"),
		options->ttl_max != NULL ? options->ttl_max : "1h",
		options->sessions_max != 0 ? options->sessions_max : 64, key, h->dir,
		options->limits != NULL ? options->limits : HARNESS_NO_LIMITS,
		options->extra != NULL ? ", " : "", options->extra != NULL ? options->extra : "");
	if (options->tenants != NULL)
		fprintf(file, "\"tenants\": %s", options->tenants);
	else
		keys_print_tenants(file);
	fprintf(file, "}\n");
	return fclose(file) == 0 ? 0 : -errno;
}

/* The environment with MEMPOOLD_SEAM set as asked; free() it. */
static char **harness_environment(const char *seam, char *text)
{
	size_t count = 0;
	size_t used = 0;
	char **env;

	while (environ[count] != NULL)
		count++;
	env = calloc(count + 2, sizeof(*env));
	if (env == NULL)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		if (strncmp(environ[i], "MEMPOOLD_SEAM=", 14) != 0)
			env[used++] = environ[i];
	}
	if (seam != NULL) {
		snprintf(text, HARNESS_TEXT_MAX, "MEMPOOLD_SEAM=%s", seam);
		env[used] = text;
	}
	return env;
}

static int harness_exec_daemon(struct harness *h, const char *name, const char *seam)
{
	char program[PATH_MAX];
	char config[HARNESS_TEXT_MAX];
	char log[HARNESS_TEXT_MAX];
	char text[HARNESS_TEXT_MAX];
	const char *argv[] = {program, "--config", config, NULL};
	char **env = harness_environment(seam, text);
	pid_t pid;
	int fd;

	if (name != NULL || getenv("MEMPOOLD") == NULL)
		harness_program(name != NULL ? name : "mempoold", program);
	else
		snprintf(program, sizeof(program), "%s", getenv("MEMPOOLD"));
	harness_path(h, "mempoold.conf", config);
	harness_path(h, "log", log);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || env == NULL) {
		free(env);
		return -EIO;
	}
	pid = harness_exec(argv, env, -1, fd);
	free(env);
	close(fd);
	if (pid < 0)
		return (int)pid;
	h->pid = pid;
	return 0;
}

static int harness_wait_ready(struct harness *h, uint64_t begun_ns)
{
	uint64_t until_ns = clock_add_ms(begun_ns, HARNESS_START_LIMIT_MS);
	int status;

	while (clock_now_ns() < until_ns) {
		json_t *result = harness_call(h, "status", NULL);

		if (result != NULL) {
			json_decref(result);
			h->start_ns = clock_now_ns() - begun_ns;
			return 0;
		}
		if (waitpid(h->pid, &status, WNOHANG) == h->pid) {
			printf("# the daemon has ended with status %d\n",
			       harness_exit_status(status));
			h->pid = 0;
			return -ECHILD;
		}
		harness_sleep_ms(10);
	}
	return -ETIMEDOUT;
}

static int harness_launch(struct harness *h, const char *name, const char *seam)
{
	uint64_t begun_ns = clock_now_ns();
	int r = harness_exec_daemon(h, name, seam);

	return r < 0 ? r : harness_wait_ready(h, begun_ns);
}

int harness_start(struct harness *h, const struct harness_options *options)
{
	int r;

	if (h->dir[0] == '\0') {
		snprintf(h->dir, sizeof(h->dir), "/tmp/itest.XXXXXX");
		if (mkdtemp(h->dir) == NULL)
			return -errno;
	}
	r = harness_configure(h, options);
	return r < 0 ? r : harness_launch(h, options->program, options->seam);
}

int harness_restart(struct harness *h)
{
	return harness_launch(h, NULL, NULL);
}

int harness_stop(struct harness *h)
{
	int r;

	h->rpc = rpc_free(h->rpc);
	if (h->pid == 0)
		return -ESRCH;
	(void)kill(h->pid, SIGTERM);
	r = harness_wait(h->pid, HARNESS_STOP_LIMIT_MS);
	if (r == -ETIMEDOUT)
		harness_kill(h);
	h->pid = 0;
	return r;
}

void harness_kill(struct harness *h)
{
	int status;

	h->rpc = rpc_free(h->rpc);
	if (h->pid == 0)
		return;
	(void)kill(h->pid, SIGKILL);
	(void)waitpid(h->pid, &status, 0);
	h->pid = 0;
}

static void harness_show_log(const struct harness *h)
{
	char path[HARNESS_TEXT_MAX];
	char line[1024];
	unsigned int lines = 0;
	FILE *file;

	harness_path(h, "log", path);
	file = fopen(path, "re");
	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file) != NULL)
		lines++;
	rewind(file);
	printf("# the daemon's log, at most its last %d lines:\n", HARNESS_LOG_TAIL_LINES);
	for (; fgets(line, sizeof(line), file) != NULL; lines--) {
		if (lines <= HARNESS_LOG_TAIL_LINES)
			printf("#   %s", line);
	}
	fclose(file);
}

/* One that has crashed behind the last check of a case must not pass. */
static void harness_check_alive(struct harness *h)
{
	int status;

	if (h->pid == 0 || waitpid(h->pid, &status, WNOHANG) != h->pid)
		return;
	test_fail(__FILE__, __LINE__, "the daemon runs until it is stopped");
	printf("# it has ended with status %d\n", harness_exit_status(status));
	h->pid = 0;
}

void harness_cleanup(struct harness *h)
{
	static const char *const names[] = {"mempoold.conf",   "log",	     "admin.sock",
					    "admin.sock.lock", "daemon.key", "tenants.json"};
	char path[HARNESS_TEXT_MAX];

	harness_check_alive(h);
	harness_kill(h);
	if (h->dir[0] == '\0')
		return;
	if (test_has_failed() || getenv("TEST_LOG") != NULL)
		harness_show_log(h);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		harness_path(h, names[i], path);
		(void)unlink(path);
	}
	(void)rmdir(h->dir);
	h->dir[0] = '\0';
}

/* Asking it. */

json_t *harness_call(struct harness *h, const char *method, json_t *params)
{
	struct rpc_failure failure;
	char path[HARNESS_TEXT_MAX];
	json_t *result = NULL;
	int r = 0;

	if (h->rpc == NULL)
		r = rpc_new(harness_socket(h, path), HARNESS_RPC_TIMEOUT_MS, &h->rpc);
	if (r < 0) {
		h->rpc = NULL;
		json_decref(params);
		return NULL;
	}
	r = rpc_call(h->rpc, method, params, &result, &failure);
	if (r < 0 && r != -EREMOTEIO)
		h->rpc = rpc_free(h->rpc);
	return r == 0 ? result : NULL;
}

int64_t harness_number(struct harness *h, const char *path)
{
	json_t *status = harness_call(h, "status", NULL);
	const json_t *at = status;
	char part[64];
	int64_t value;

	while (at != NULL && *path != '\0') {
		size_t len = strcspn(path, ".");

		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		at = json_object_get(at, part);
		path += len + (path[len] == '.');
	}
	value = json_is_integer(at) ? json_integer_value(at) : -1;
	json_decref(status);
	return value;
}

bool harness_wait_number(struct harness *h, const char *path, int64_t value, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);

	while (harness_number(h, path) != value) {
		if (clock_now_ns() >= until_ns) {
			printf("# %s is %" PRId64 " and not %" PRId64 " after %" PRIu64 " ms\n",
			       path, harness_number(h, path), value, limit_ms);
			return false;
		}
		harness_sleep_ms(2);
	}
	return true;
}

char *harness_lease_state(struct harness *h, uint64_t id, char *buf)
{
	json_t *result = harness_call(h, "lease.list", NULL);
	json_t *lease;
	size_t i;

	snprintf(buf, 32, "%s", result != NULL ? "gone" : "?");
	json_array_foreach(json_object_get(result, "leases"), i, lease)
	{
		if ((uint64_t)json_integer_value(json_object_get(lease, "id")) == id)
			snprintf(buf, 32, "%s", json_string_value(json_object_get(lease, "state")));
	}
	json_decref(result);
	return buf;
}

bool harness_wait_lease_gone(struct harness *h, uint64_t id, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	char state[32];

	while (strcmp(harness_lease_state(h, id, state), "gone") != 0) {
		if (clock_now_ns() >= until_ns)
			return false;
		harness_sleep_ms(2);
	}
	return true;
}

int harness_order(struct harness *h, const char *method, json_t *params, char *ret_text)
{
	struct rpc_failure failure = {0};
	char path[HARNESS_TEXT_MAX];
	json_t *result = NULL;
	int r = 0;

	if (h->rpc == NULL)
		r = rpc_new(harness_socket(h, path), HARNESS_RPC_TIMEOUT_MS, &h->rpc);
	if (r < 0) {
		h->rpc = NULL;
		json_decref(params);
		return -EIO;
	}
	r = rpc_call(h->rpc, method, params, &result, &failure);
	json_decref(result);
	if (ret_text != NULL)
		snprintf(ret_text, HARNESS_TEXT_MAX, "%.*s", HARNESS_TEXT_MAX - 1,
			 r == 0 ? "" : failure.text);
	if (r == 0 || r == -EREMOTEIO)
		return r == 0 ? 0 : (int)failure.code;
	h->rpc = rpc_free(h->rpc);
	return -EIO;
}

int harness_revoke(struct harness *h, uint64_t id)
{
	return harness_order(h, "lease.revoke", json_pack("{s:I}", "id", (json_int_t)id), NULL);
}

unsigned int harness_count_log(const struct harness *h, const char *text, const char *also)
{
	char path[HARNESS_TEXT_MAX];
	char line[1024];
	unsigned int lines = 0;
	FILE *file;

	harness_path(h, "log", path);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL)
		lines += strstr(line, text) != NULL && (also == NULL || strstr(line, also) != NULL);
	fclose(file);
	return lines;
}

int64_t harness_rss_bytes(pid_t pid)
{
	char path[64];
	char line[256];
	int64_t kib = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	while (kib < 0 && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = strtoll(line + 6, NULL, 10);
	}
	fclose(file);
	return kib < 0 ? -1 : kib * 1024;
}

/* Sessions. */

void harness_keys(const char *tenant, struct harness_keys *keys, struct mempool_connect_opts *opts)
{
	keys_of(tenant, &keys->own);
	opts->size = sizeof(*opts);
	opts->key = keys->own.private_key;
	opts->daemon_key = keys_public_text("daemon", keys->daemon);
}

int harness_connect(const char *tenant, mempool **ret_pool)
{
	struct mempool_connect_opts opts = {.timeout_ms = HARNESS_TIMEOUT_MS};
	struct harness_keys keys;
	int r;

	harness_keys(tenant, &keys, &opts);
	r = mempool_connect(harness_endpoint(), &opts, ret_pool);

	if (r < 0)
		printf("# %s: %s\n", tenant, mempool_last_error());
	return r;
}

void harness_close(mempool **pool)
{
	mempool_close(*pool);
	*pool = NULL;
}

int harness_acquire(mempool *pool, uint64_t len_bytes, uint64_t ttl_ms, mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = ttl_ms,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
		.wait_ms = 5000,
	};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

uint64_t harness_lease_id(mempool_lease *lease)
{
	struct mempool_lease_info info = {.size = sizeof(info)};

	return mempool_lease_info(lease, &info) == 0 ? info.id : 0;
}

static int harness_read_nonzero(mempool *pool, uint64_t len_bytes, uint64_t *ret_count)
{
	uint8_t *buf = malloc(MIB);
	mempool_lease *lease;
	uint64_t count = 0;
	int r;

	if (buf == NULL)
		return MEMPOOL_E_NO_MEMORY;
	r = harness_acquire(pool, len_bytes, 600000, &lease);
	for (uint64_t at = 0; r == 0 && at < len_bytes; at += MIB) {
		r = mempool_read(lease, at, buf, MIB);
		for (size_t i = 0; i < MIB; i++)
			count += buf[i] != 0;
	}
	free(buf);
	if (r == 0)
		*ret_count = count;
	return r;
}

int harness_count_nonzero(struct harness *h, uint64_t *ret_count)
{
	int64_t len_bytes = harness_number(h, "pool.bytes");
	mempool *pool;
	int r;

	if (len_bytes < 0 || (uint64_t)len_bytes % MIB != 0)
		return MEMPOOL_E_INVALID;
	r = harness_connect("auditor", &pool);
	if (r < 0)
		return r;
	r = harness_read_nonzero(pool, (uint64_t)len_bytes, ret_count);
	if (r < 0)
		printf("# auditor: %s\n", mempool_last_error());
	mempool_close(pool);
	return r;
}
