/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <stdint.h>

/*
 * How long the event loop's turns take: from the first callback after a wait to the next
 * wait. A long turn holds up every client, so the longest one is shown to the operator.
 */

/** loop_mark() - called at the beginning of every callback of the loop; the first one begins the turn */
void loop_mark(void);

/** loop_turn_over() - the loop is about to wait */
void loop_turn_over(void);

/** loop_longest_us() - the longest turn since the start */
uint64_t loop_longest_us(void);

#endif
