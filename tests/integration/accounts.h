/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_ACCOUNTS_H
#define TESTS_INTEGRATION_ACCOUNTS_H

struct harness;

/**
 * accounts_check() - when all sessions have ended, is everything accounted for?
 *
 * Waits until nothing is left; then every window and guard that was made is gone, no bind was
 * invalidated twice, all bytes are clean. Fails the running case otherwise.
 */
void accounts_check(struct harness *h);

/** accounts_finish() - the same, and then the daemon stops in order */
void accounts_finish(struct harness *h);

#endif
