/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_HELD_H
#define TESTS_INTEGRATION_HELD_H

#include <infiniband/verbs.h>

/*
 * A device that gives back only as many work requests as it is let. Programs with it are linked
 * with --wrap=verbs_poll_cq.
 */

/** held_begin() - from now on @count more come from that queue; another one is let go */
void held_begin(struct ibv_cq *cq, int count);

/** held_let() - @count more */
void held_let(int count);

/** held_left() - how many may come yet */
int held_left(void);

/** held_end() - all come */
void held_end(void);

#endif
