/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_HARNESS_H
#define TESTS_INTEGRATION_HARNESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/mempool.h"
#include "tests/integration/keys.h"
#include "tests/unit/test.h"

/*
 * A real daemon for a test, and what tests need around it. The environment says where:
 *
 *	MEMPOOL_ADDRESS    an address of an RDMA interface of this machine (10.77.0.1)
 *	MEMPOOL_ISOLATION  isolation mode of daemons that do not name one (auto)
 *	MEMPOOLD           the daemon's program (found beside the test, or in PATH)
 *	TEST_FULL          1: the full figures of harness_figure()
 *	TEST_SOAK          1: those of a test that takes hours, where it has such
 *	TEST_LOG           show the logs of daemons, too, whose tests pass
 */

#define HARNESS_PORT	   7471
#define HARNESS_TEXT_MAX   256
#define HARNESS_TIMEOUT_MS 60000 /* of sessions: an emulator is slow */

#define MIB (UINT64_C(1) << 20)

/* All clients of a test share one address, some break the rules, and raw ones do not ping. */
#define HARNESS_NO_LIMITS                                                                          \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 0, \"heartbeat\": \"0\", " \
	"\"connections_max_per_address\": 65536, \"handshakes_max\": 65536, "                      \
	"\"handshakes_max_per_address\": 65536"

/* How often, how many. The table in harness.c has all columns. */
enum harness_figure {
	FIGURE_EXPIRY_LEASES,
	FIGURE_KILL_ROUNDS,
	FIGURE_RESTART_LEASES,
	FIGURE_STALE_DESCRIPTORS,
	FIGURE_CYCLES,
	FIGURE_TENANT_ROUNDS,
	FIGURE_RACE_ROUNDS,
	FIGURE_STORM_LEASES,
	FIGURE_STORM_TURN_MS,
	FIGURE_LEAVING_SESSIONS,
	FIGURE_LEAVING_MS,
	FIGURE_RELOADS,
	FIGURE_LIVES,
	FIGURE_CROWD,
	FIGURE_STOPS,
	FIGURE_RESTARTS,
	FIGURE_BREAKS,
	FIGURE_FORKS,
	FIGURE_THREAD_OPERATIONS,
	FIGURE_LARGE_MIB,
	FIGURE_OUTAGES,
	FIGURE_OUTAGES_OF_SESSIONS,
	FIGURE_SIGNALS,
	FIGURE_STANDSTILLS,
	FIGURE_MEASURE_MS,
	FIGURE_FLUSHES,
	FIGURES,
};

struct harness_options {
	const char *program;   /* NULL: mempoold */
	const char *seam;      /* MEMPOOLD_SEAM in its environment; NULL: not there */
	const char *pool_size; /* NULL: 16MiB */
	const char *ttl_max;   /* NULL: 1h */
	const char *isolation; /* NULL: as the environment says */
	uint32_t sessions_max; /* 0: 64, which starts sooner than the default */
	const char *limits; /* members of the configuration instead of HARNESS_NO_LIMITS, or NULL */
	const char *extra;  /* further members of the configuration, or NULL */
	const char
		*tenants; /* the list "tenants" instead of all that tests know (keys.h), or NULL */
};

struct rpc;

/* A daemon. All zero: none. */
struct harness {
	pid_t pid;			/* 0: not running */
	char dir[HARNESS_TEXT_MAX / 2]; /* of its files; "": none */
	struct rpc *rpc;
	uint64_t start_ns; /* how long from exec to the first answer on the admin socket */
};

/* What a program that has ended left. */
struct harness_output {
	int status; /* exit status, or 128 and the signal */
	char out[16384];
	char err[16384];
};

uint32_t harness_figure(enum harness_figure figure);

/** harness_address() - "10.77.0.1"; harness_endpoint() - with HARNESS_PORT */
const char *harness_address(void);
const char *harness_endpoint(void);

/** harness_is_unverified() - does the environment ask for the mode without enforcement? */
bool harness_is_unverified(void);

/** harness_program() - path of a program of the project; @buf: PATH_MAX bytes; Return: @buf */
char *harness_program(const char *name, char *buf);

/**
 * harness_start() - write a configuration, start a daemon, wait until it answers
 * @h: all zero, or of a daemon that has ended: then its configuration and log are kept
 *
 * Return: 0 or a negative errno; harness_cleanup() in any case.
 */
int harness_start(struct harness *h, const struct harness_options *options);

/** harness_configure() - write another configuration for the daemon; Return: 0 or a negative errno */
int harness_configure(struct harness *h, const struct harness_options *options);

/** harness_restart() - harness_start() again with the same configuration */
int harness_restart(struct harness *h);

/** harness_stop() - SIGTERM; Return: the exit status (128 + signal), or -ETIMEDOUT (killed) */
int harness_stop(struct harness *h);

/** harness_kill() - SIGKILL, and wait */
void harness_kill(struct harness *h);

/**
 * harness_cleanup() - kill what runs, show its log if the test has failed, remove files
 *
 * The test fails if the daemon has ended by itself.
 */
void harness_cleanup(struct harness *h);

/** harness_socket() - path of the admin socket; @buf: HARNESS_TEXT_MAX bytes; Return: @buf */
char *harness_socket(const struct harness *h, char *buf);

/** harness_path() - path of a file in the daemon's folder; @buf: HARNESS_TEXT_MAX bytes; Return: @buf */
char *harness_path(const struct harness *h, const char *name, char *buf);

/** harness_log_says() - is a text in the daemon's log? */
bool harness_log_says(const struct harness *h, const char *text);

/** harness_call() - a call on the admin socket; Return: the result, NULL if refused or failed */
json_t *harness_call(struct harness *h, const char *method, json_t *params);

/**
 * harness_order() - the same for an order
 * @ret_text: HARNESS_TEXT_MAX bytes: the text of a refusal, else ""; NULL is allowed
 *
 * Return: 0, the code of the refusal, or -EIO if there is no answer.
 */
int harness_order(struct harness *h, const char *method, json_t *params, char *ret_text);

/** harness_number() - an integer of `status`, "pool.free_bytes" say; Return: -1 if not there */
int64_t harness_number(struct harness *h, const char *path);

/** harness_wait_number() - wait until it has a value; Return: has it, within the limit? */
bool harness_wait_number(struct harness *h, const char *path, int64_t value, uint64_t limit_ms);

/** harness_lease_state() - @buf: 32 bytes: "active", ..., "gone" if not listed; Return: @buf */
char *harness_lease_state(struct harness *h, uint64_t id, char *buf);

/** harness_wait_lease_gone() - wait until it is not listed any more; Return: is it so? */
bool harness_wait_lease_gone(struct harness *h, uint64_t id, uint64_t limit_ms);

/** harness_revoke() - Return: 0, or the code of the refusal, -EIO if there is no answer */
int harness_revoke(struct harness *h, uint64_t id);

/**
 * harness_count_log() - lines of the daemon's log, of all its lives, that have a text in them
 * @also: a second text that they must have; NULL: none
 */
unsigned int harness_count_log(const struct harness *h, const char *text, const char *also);

/** harness_rss_bytes() - resident memory of a process; -1 if unknown */
int64_t harness_rss_bytes(pid_t pid);

/* What the options of a session point to. */
struct harness_keys {
	struct secure_key_pair own;
	char daemon[KEYS_TEXT_MAX];
};

/** harness_keys() - fill in who is who in the options; @keys must stay as long as they are used */
void harness_keys(const char *tenant, struct harness_keys *keys, struct mempool_connect_opts *opts);

/** harness_connect() - a session with the daemon at harness_endpoint() */
int harness_connect(const char *tenant, mempool **ret_pool);
void harness_close(mempool **pool);

/** harness_acquire() - with the rights to read and write */
int harness_acquire(mempool *pool, uint64_t len_bytes, uint64_t ttl_ms, mempool_lease **ret_lease);

/** harness_lease_id() - its id */
uint64_t harness_lease_id(mempool_lease *lease);

/**
 * harness_count_nonzero() - acquire the whole pool, when it is clean, and count
 * @ret_count: bytes that are not 0
 *
 * Nothing else may be leased. Return: 0 or a code.
 */
int harness_count_nonzero(struct harness *h, uint64_t *ret_count);

/** harness_spawn() - start a program; @ret_out: read end of its output; Return: pid or -errno */
pid_t harness_spawn(const char *const *argv, int *ret_out);

/** harness_run() - run a program to its end; Return: 0, or a negative errno (-ETIMEDOUT) */
int harness_run(const char *const *argv, uint64_t limit_ms, struct harness_output *ret_output);

void harness_sleep_ms(uint64_t ms);

/** harness_since_ms() - whole milliseconds since a time of clock_now_ns() */
uint64_t harness_since_ms(uint64_t begun_ns);

/** harness_sort() - ascending */
void harness_sort(uint64_t *values, size_t count);

unsigned int harness_count_lines(const char *text);

/* Patterns: the same seed gives the same bytes, none of which is 0. */
void harness_fill(uint8_t *buf, size_t len_bytes, uint32_t seed);

/* A running daemon in a variable of the test case, cleaned up with it. */
#define HARNESS(name, ...)                                                   \
	__attribute__((cleanup(harness_cleanup))) struct harness name = {0}; \
	CHECK_INT(harness_start(&name, &(struct harness_options){__VA_ARGS__}), 0)

/* A session in a variable of the test case, closed with it. */
#define SESSION(name, tenant)                                         \
	__attribute__((cleanup(harness_close))) mempool *name = NULL; \
	CHECK_INT(harness_connect(tenant, &name), 0)

#endif
