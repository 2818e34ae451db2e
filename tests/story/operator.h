/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STORY_OPERATOR_H
#define TESTS_STORY_OPERATOR_H

#include <stdint.h>
#include <sys/types.h>

/*
 * The operator: starts the real mempoold, asks and tells it by the real mempoolctl. Functions
 * return 0, or -1 having told what failed.
 */

#define OPERATOR_PATH_MAX 128

struct operator
{
	char folder[OPERATOR_PATH_MAX]; /* all files of the story; removed at the end */
	char config[OPERATOR_PATH_MAX];
	char log[OPERATOR_PATH_MAX];
	char socket[OPERATOR_PATH_MAX];
	char uri[OPERATOR_PATH_MAX]; /* what tenants connect to; with the daemon's key */
	uint64_t pool_bytes;
	pid_t daemon;	     /* 0: does not run */
	const char *service; /* the unit of systemd's that it is, or NULL */
};

/**
 * operator_init() - make the folder, the tenants' keys and the configuration
 *
 * MEMPOOL_SERVICE: the daemon is this unit, and its configuration is written where it is read.
 *
 * @tenants: names, up to a NULL; the key file of each is FOLDER/NAME.key
 */
int operator_init(struct operator* op, const char *address, uint64_t pool_bytes,
		  const char *const *tenants);

/** operator_start() - start the daemon, wait until its status says what it should */
int operator_start(struct operator* op, const char *address);

/** operator_show_leases() - "lease list" must have both leases, active and of that length */
int operator_show_leases(const struct operator* op, uint64_t first_id, uint64_t first_bytes,
			 uint64_t second_id, uint64_t second_bytes);

/** operator_revoke() - "lease revoke" */
int operator_revoke(const struct operator* op, uint64_t id);

/** operator_show_pool() - tell how many bytes are free, lent and waiting to be zeroed */
int operator_show_pool(const struct operator* op);

/** operator_stop() - SIGTERM; the daemon must exit with 0, and mempoolctl find nobody */
int operator_stop(struct operator* op);

/** operator_deinit() - kill a daemon that still runs; if not @passed, print its last log lines */
void operator_deinit(struct operator* op, int passed);

#endif
