/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_PENALTY_H
#define DAEMON_PENALTY_H

#include <stdint.h>

#include "daemon/strikes.h"

struct lane;
struct server;
struct session;
struct tenant;

/* What a tenant has to bear for what its lanes and sessions have done. */

/** penalty_lane_died() - a lane was found dead of an access that it had no right to */
void penalty_lane_died(struct lane *lane);

/** penalty_session() - a session whose client is known for certain has broken the rules */
void penalty_session(struct session *session, enum strike_kind kind);

/** penalty_lane_from_ns() - the first time that a tenant may have a new lane; 0: now */
uint64_t penalty_lane_from_ns(const struct tenant *tenant);

/** penalty_is_banned() - is the tenant banned now? */
bool penalty_is_banned(const struct tenant *tenant);

/** penalty_strikes() - those of a tenant that are not forgotten */
uint32_t penalty_strikes(const struct server *server, const struct tenant *tenant);

/** penalty_ban_left_ms() - 0: it is not banned */
uint64_t penalty_ban_left_ms(const struct tenant *tenant);

/** penalty_unban() - by the operator; Return: was it banned? */
bool penalty_unban(struct server *server, struct tenant *tenant);

#endif
