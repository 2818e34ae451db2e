/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROTO_ERROR_H
#define PROTO_ERROR_H

/*
 * The one list of error codes. The number goes over the wire in an `error`
 * message or a lease's end reason; libmempool returns its negative. Numbers
 * are never reused or changed. Columns: name, number, text for people.
 */
#define ERROR_LIST(X)                                                                         \
	X(PROTOCOL, 1001, "the message is malformed or not allowed now")                      \
	X(VERSION, 1002, "the protocol versions of the two ends do not overlap")              \
	X(BUSY, 1003, "too many requests are in flight, or the object is busy")               \
	X(AUTH, 1004, "the tenant is not known or not allowed here")                          \
	X(INTERNAL, 1005, "the other end failed for a reason of its own")                     \
	X(DRAINING, 1006, "the daemon takes no new leases because it is about to stop")       \
	X(SESSIONS_MAX, 1007, "the daemon has as many sessions as it allows")                 \
	X(TAKEN_OVER, 1008, "another session of the tenant took over a lease of this")        \
	X(LENGTH_ZERO, 1010, "a lease cannot be 0 bytes long")                                \
	X(LENGTH_POOL, 1011, "the lease is longer than the whole pool")                       \
	X(LENGTH_EXTENT, 1012, "the lease is longer than the largest free extent")            \
	X(TTL_ZERO, 1013, "a lease cannot last 0 ms")                                         \
	X(TTL_MAX, 1014, "the lease would last longer than the daemon allows")                \
	X(RIGHTS, 1015, "the access rights are empty or not known")                           \
	X(RIGHTS_DEVICE, 1016, "the daemon's device cannot grant these access rights safely") \
	X(LEASES_MAX, 1017, "no further lease is allowed")                                    \
	X(LANE_STATE, 1018, "there is no such lane, or it is not ready")                      \
	X(LANES_MAX, 1019, "no further lane is allowed")                                      \
	X(WINDOWS_MAX, 1020, "the lease needs more memory windows than are allowed")          \
	X(LANE_LEASES_MAX, 1021, "the lane carries as many leases as it may")                 \
	X(LANE_OFFER, 1022, "the lane offer is wrong, used or expired")                       \
	X(DEVICE, 1023, "the connection came in on a device that has no pool memory")         \
	X(PORT, 1024, "the daemon's device or port is not usable now")                        \
	X(NO_LEASE, 1030, "there is no such lease")                                           \
	X(EXPIRED, 1031, "the lease has expired")                                             \
	X(REVOKED, 1032, "the lease was revoked by the operator")                             \
	X(RELEASED, 1033, "the lease has been released")                                      \
	X(SESSION_ENDED, 1034, "the session that owned the lease has ended")                  \
	X(DRAINED, 1035, "the lease ended because the daemon is stopping")                    \
	X(ORPHANED, 1036, "nobody came back for the lease in time")                           \
	X(MEMORY, 1037, "the memory of the lease is damaged")                                 \
	X(LANE, 1040, "the data connection was lost")                                         \
	X(TIMEOUT, 1041, "the deadline passed")                                               \
	X(UNKNOWN, 1042, "it is not known whether the operation took place")                  \
	X(ACCESS, 1043, "the device refused the access")                                      \
	X(RANGE, 1044, "the range lies outside the lease")                                    \
	X(ALIGN, 1045, "the offset or length is not aligned as it must be")                   \
	X(INVALID, 1046, "an argument is not valid")                                          \
	X(STATE, 1047, "the call is not allowed in this state")                               \
	X(CANCELLED, 1048, "the operation was cancelled before it began")                     \
	X(RESOLVE, 1050, "the address cannot be resolved")                                    \
	X(UNREACHABLE, 1051, "the daemon cannot be reached")                                  \
	X(NO_RDMA, 1052, "the route to the daemon does not lead over an RDMA device")         \
	X(REJECTED, 1053, "the daemon's host refused the connection")                         \
	X(SESSION_LOST, 1054, "the connection to the daemon was lost")                        \
	X(NO_MEMORY, 1055, "not enough memory, or not enough lockable memory")                \
	X(SYSTEM, 1056, "a system call failed")                                               \
	X(QUOTA_BYTES, 1060, "the tenant's quota of bytes does not allow it")                 \
	X(QUOTA_LEASES, 1061, "the tenant's quota of leases does not allow it")               \
	X(QUOTA_WINDOWS, 1062, "the tenant's quota of memory windows does not allow it")      \
	X(QUOTA_SESSIONS, 1063, "the tenant's quota of sessions does not allow it")           \
	X(QUOTA_LANES, 1064, "the tenant's quota of lanes does not allow it")                 \
	X(QUOTA_RATE, 1065, "the tenant sends requests faster than its quota allows")         \
	X(QUOTA_LEASE_LENGTH, 1066, "the lease is longer than the tenant's quota allows")     \
	X(QUOTA_TTL, 1067, "the lease would last longer than the tenant's quota allows")      \
	X(QUOTA_RIGHTS, 1068, "the tenant's quota does not allow these access rights")        \
	X(CONNECTIONS_MAX, 1080, "the daemon has as many connections as it allows")           \
	X(ADDRESS_MAX, 1081, "this address has as many connections as it may")                \
	X(HANDSHAKES_MAX, 1082, "too many connections have not introduced themselves yet")    \
	X(BACK_OFF, 1083, "too soon after something failed; wait longer each time")           \
	X(BANNED, 1084, "banned for a time because of too many failures or violations")       \
	X(NO_TENANT, 1090, "there is no such tenant")                                         \
	X(TENANT_EXISTS, 1091, "there is a tenant of that name already")                      \
	X(KEY_USED, 1092, "a key is another tenant's already")                                \
	X(NO_SESSION, 1093, "there is no such session")

enum error_code {
	ERROR_NONE = 0,
#define X(name, number, text) ERROR_##name = number,
	ERROR_LIST(X)
#undef X
};

/**
 * error_text() - the text for people that belongs to a code
 * @code: a number of the list (its sign does not matter), or 0
 *
 * Return: a static string, never NULL; a fixed text for unknown numbers.
 */
const char *error_text(int code);

/**
 * error_name() - the name of a code in lower case with hyphens, "expired" say
 * @code: a number of the list (its sign does not matter), or 0
 *
 * Return: a static string, never NULL.
 */
const char *error_name(int code);

#endif
