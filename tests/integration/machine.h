/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_MACHINE_H
#define TESTS_INTEGRATION_MACHINE_H

#include <stdbool.h>

/** machine_is_guest() - is this a test guest, where a test may change what it likes? */
bool machine_is_guest(void);

/** machine_shell() - a command for sh, 20 s at most; tells of a failure; Return: did it succeed? */
bool machine_shell(const char *command);

#endif
