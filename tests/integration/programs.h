/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_PROGRAMS_H
#define TESTS_INTEGRATION_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/integration/harness.h"
#include "tests/integration/place.h"

/*
 * The tools for tenants, with the options that say who we are and where the daemon is.
 * Arguments are lists that end with NULL.
 */

/** programs_run() - to its end; Return: the exit status, 128 and the signal, or a negative errno */
int programs_run(const struct place *place, const char *name, const char *const *args,
		 struct harness_output *ret_output);

/** programs_spawn() - start one; @ret_out: read end of its output; Return: pid or -errno */
pid_t programs_spawn(const struct place *place, const char *name, const char *const *args,
		     int *ret_out);

/**
 * programs_end() - wait for one that was started, kill it when it takes too long
 *
 * Return: as programs_run(), -ETIMEDOUT if it was killed.
 */
int programs_end(pid_t pid, int out, uint64_t limit_ms);

/** programs_lease() - "lease:" and the file "token"; @buf: PLACE_TEXT_MAX bytes; Return: @buf */
char *programs_lease(const struct place *place, char *buf);

/** programs_has_token() - is that file there? */
bool programs_has_token(const struct place *place);

#define PROGRAMS_ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
