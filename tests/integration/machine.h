/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_MACHINE_H
#define TESTS_INTEGRATION_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** machine_is_guest() - is this a test guest, where a test may change what it likes? */
bool machine_is_guest(void);

/** machine_shell() - a command for sh, 20 s at most; tells of a failure; Return: did it succeed? */
bool machine_shell(const char *command);

/** machine_resume() - let a process go on that may stand still; for a variable's cleanup */
void machine_resume(const pid_t *pid);

/* A change of a machine that is undone again. Commands for sh; `undo` must do with half of it. */
struct machine_change {
	const char *make;
	const char *undo;
};

/**
 * machine_test() - a test case on a machine that is changed meanwhile
 * @name: of the case itself: the program is started once more for it and does @run there, since
 *	  an RDMA device that is open cannot be removed, and the resolver does not look at its
 *	  files again
 *
 * Skipped where there is no test guest.
 */
void machine_test(const struct machine_change *change, const char *name, uint64_t limit_ms,
		  void (*run)(void));

#endif
