/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_SEAMS_START_H
#define TESTS_SEAMS_START_H

#include <stdbool.h>

/** start_fails() - is this call of the start the one that is to fail? Says so if it is. */
bool start_fails(const char *call);

#endif
