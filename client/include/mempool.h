/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMPOOL_H
#define MEMPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/*
 * libmempool: use memory of another machine that mempoold lends.
 *
 * A `mempool` is a session with one daemon. In it one acquires leases, each so many bytes,
 * with such rights, for so long. Reads and writes of a lease are RDMA: the daemon's CPU has
 * no part in them. A lease that has ended is refused by the daemon's device.
 *
 * All functions return 0 or a negative code of enum mempool_error; mempool_last_error()
 * then has a sentence about it for the calling thread. Beside the errors that each function
 * names, the daemon refuses what is beyond the tenant's quota (MEMPOOL_E_QUOTA_*), and a tenant
 * that has broken the rules too often (MEMPOOL_E_BANNED, MEMPOOL_E_BACK_OFF).
 */

enum mempool_error {
	MEMPOOL_E_PROTOCOL = -1001, /* the other end broke the protocol, or says that we did */
	MEMPOOL_E_VERSION = -1002,  /* protocol versions do not overlap */
	MEMPOOL_E_BUSY = -1003,
	MEMPOOL_E_AUTH = -1004,
	MEMPOOL_E_INTERNAL = -1005,
	MEMPOOL_E_DRAINING = -1006,
	MEMPOOL_E_SESSIONS_MAX = -1007,
	MEMPOOL_E_TAKEN_OVER = -1008,
	MEMPOOL_E_LENGTH_ZERO = -1010,
	MEMPOOL_E_LENGTH_POOL = -1011,
	MEMPOOL_E_LENGTH_EXTENT = -1012,
	MEMPOOL_E_TTL_ZERO = -1013,
	MEMPOOL_E_TTL_MAX = -1014,
	MEMPOOL_E_RIGHTS = -1015,
	MEMPOOL_E_RIGHTS_DEVICE = -1016,
	MEMPOOL_E_LEASES_MAX = -1017,
	MEMPOOL_E_LANE_STATE = -1018,
	MEMPOOL_E_LANES_MAX = -1019,
	MEMPOOL_E_WINDOWS_MAX = -1020,
	MEMPOOL_E_LANE_LEASES_MAX = -1021,
	MEMPOOL_E_LANE_OFFER = -1022,
	MEMPOOL_E_DEVICE = -1023,
	MEMPOOL_E_PORT = -1024,
	MEMPOOL_E_NO_LEASE = -1030,
	MEMPOOL_E_EXPIRED = -1031,
	MEMPOOL_E_REVOKED = -1032,
	MEMPOOL_E_RELEASED = -1033,
	MEMPOOL_E_SESSION_ENDED = -1034,
	MEMPOOL_E_DRAINED = -1035,
	MEMPOOL_E_ORPHANED = -1036,
	MEMPOOL_E_MEMORY = -1037,
	MEMPOOL_E_LANE = -1040,
	MEMPOOL_E_TIMEOUT = -1041,
	MEMPOOL_E_UNKNOWN = -1042,
	MEMPOOL_E_ACCESS = -1043,
	MEMPOOL_E_RANGE = -1044,
	MEMPOOL_E_ALIGN = -1045,
	MEMPOOL_E_INVALID = -1046,
	MEMPOOL_E_STATE = -1047,
	MEMPOOL_E_RESOLVE = -1050,
	MEMPOOL_E_UNREACHABLE = -1051,
	MEMPOOL_E_NO_RDMA = -1052,
	MEMPOOL_E_REJECTED = -1053,
	MEMPOOL_E_SESSION_LOST = -1054,
	MEMPOOL_E_NO_MEMORY = -1055,
	MEMPOOL_E_SYSTEM = -1056,
	MEMPOOL_E_QUOTA_BYTES = -1060,
	MEMPOOL_E_QUOTA_LEASES = -1061,
	MEMPOOL_E_QUOTA_WINDOWS = -1062,
	MEMPOOL_E_QUOTA_SESSIONS = -1063,
	MEMPOOL_E_QUOTA_LANES = -1064,
	MEMPOOL_E_QUOTA_RATE = -1065,
	MEMPOOL_E_QUOTA_LEASE_LENGTH = -1066,
	MEMPOOL_E_QUOTA_TTL = -1067,
	MEMPOOL_E_QUOTA_RIGHTS = -1068,
	MEMPOOL_E_CONNECTIONS_MAX = -1080,
	MEMPOOL_E_ADDRESS_MAX = -1081,
	MEMPOOL_E_HANDSHAKES_MAX = -1082,
	MEMPOOL_E_BACK_OFF = -1083,
	MEMPOOL_E_BANNED = -1084,

	/* Of the operator's orders; no call returns them. */
	MEMPOOL_E_NO_TENANT = -1090,
	MEMPOOL_E_TENANT_EXISTS = -1091,
	MEMPOOL_E_KEY_USED = -1092,
};

/* Rights of a lease; at least one. */
#define MEMPOOL_READ   1u
#define MEMPOOL_WRITE  2u
#define MEMPOOL_ATOMIC 4u

typedef struct mempool mempool;
typedef struct mempool_lease mempool_lease;

struct mempool_connect_opts {
	size_t size;		/* sizeof(struct mempool_connect_opts) */
	const char *key_file;	/* our private key, made by `mempoolctl keygen`; or */
	const uint8_t *key;	/* the 32 bytes themselves; then key_file is not read */
	const char *daemon_key; /* the daemon's public key in base64; NULL: the address has it */
	uint32_t timeout_ms;	/* for the whole call, and later for each call; 0: 5000 */
};

/**
 * mempool_connect() - open a session with a daemon
 * @address: "host:port", "[v6 address]:port"; host alone means port 7471;
 *	"mempool://host:port?key=BASE64" names the daemon's public key, too
 * @opts: required; copied
 * @ret_pool: the session; close it with mempool_close()
 *
 * Both ends prove who they are: we are the tenant that has our key in the daemon's
 * configuration, and the daemon is the one whose key we name. All that is said over the
 * control connection is encrypted; transfers of leases are not.
 *
 * Starts one thread of the library's own, with all signals blocked, that keeps the session
 * alive. Each address of the host is tried in turn, within the time-out; only the look-up of
 * the host's name, which is the system resolver's, may take longer than that.
 * Thread: any. State: none needed.
 *
 * Errors: MEMPOOL_E_INVALID (an argument, or the key file cannot be used), MEMPOOL_E_RESOLVE
 * (no such host), MEMPOOL_E_NO_RDMA (the route does not lead over an RDMA device),
 * MEMPOOL_E_UNREACHABLE (nobody answers), MEMPOOL_E_REJECTED (nobody listens there),
 * MEMPOOL_E_AUTH (the daemon does not know our key or has another than we expect, or somebody
 * changes messages on the way), MEMPOOL_E_VERSION, MEMPOOL_E_SESSIONS_MAX, MEMPOOL_E_DEVICE,
 * MEMPOOL_E_CONNECTIONS_MAX, MEMPOOL_E_ADDRESS_MAX, MEMPOOL_E_HANDSHAKES_MAX,
 * MEMPOOL_E_QUOTA_SESSIONS, MEMPOOL_E_QUOTA_LANES, MEMPOOL_E_BACK_OFF, MEMPOOL_E_BANNED (the
 * daemon refused), MEMPOOL_E_PROTOCOL, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_LANE,
 * MEMPOOL_E_LANE_OFFER (what was there was lost again), MEMPOOL_E_TIMEOUT,
 * MEMPOOL_E_NO_MEMORY, MEMPOOL_E_SYSTEM.
 * Since 0.1.
 */
int mempool_connect(const char *address, const struct mempool_connect_opts *opts,
		    mempool **ret_pool);

/**
 * mempool_close() - end the session; its leases end with it
 * @pool: NULL is allowed; invalid afterwards, and so are its leases
 *
 * Thread: any, but no other call on this session may be running. Ends within the session's
 * time-out also when the daemon does not answer.
 * Errors: none. Since 0.1.
 */
void mempool_close(mempool *pool);

struct mempool_acquire_opts {
	size_t size;	  /* sizeof(struct mempool_acquire_opts) */
	uint64_t ttl_ms;  /* how long the lease lasts unless renewed; not 0 */
	uint32_t rights;  /* MEMPOOL_READ | ... */
	uint32_t wait_ms; /* how long the daemon may let us wait for memory; 0: do not wait */
};

/**
 * mempool_acquire() - acquire a lease
 * @len_bytes: its length, any number of bytes
 * @ret_lease: give it back with mempool_release()
 *
 * The bytes are zero. Thread: any. State: session open.
 *
 * Errors: MEMPOOL_E_LENGTH_ZERO, MEMPOOL_E_LENGTH_POOL (longer than the pool),
 * MEMPOOL_E_LENGTH_EXTENT (no room now), MEMPOOL_E_TTL_ZERO, MEMPOOL_E_TTL_MAX,
 * MEMPOOL_E_RIGHTS (none, or unknown ones), MEMPOOL_E_RIGHTS_DEVICE, MEMPOOL_E_LEASES_MAX,
 * MEMPOOL_E_WINDOWS_MAX, MEMPOOL_E_LANE_LEASES_MAX, MEMPOOL_E_LANE (the data connection was
 * lost: try again), MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_INVALID.
 * Since 0.1.
 */
int mempool_acquire(mempool *pool, uint64_t len_bytes, const struct mempool_acquire_opts *opts,
		    mempool_lease **ret_lease);

/**
 * mempool_acquire_many() - acquire several leases, all alike, in one message
 * @len_bytes: of each
 * @count: 1 to 64
 * @ret_leases: room for @count; written only on success, when all have been acquired
 *
 * Thread: any. State: session open. Errors: as mempool_acquire(). Since 0.1.
 */
int mempool_acquire_many(mempool *pool, uint64_t len_bytes, const struct mempool_acquire_opts *opts,
			 size_t count, mempool_lease **ret_leases);

/**
 * mempool_read(), mempool_write() - copy bytes of a lease to or from local memory
 * @offset_bytes: where in the lease
 * @buf: any memory; need not be registered, and is not used after the return
 * @len_bytes: how many; 0 does nothing and touches no wire
 *
 * A read of bytes that another thread is writing may see some of them. When an error is
 * returned, any part of the range may have been transferred.
 * While the lease is being modified a transfer waits; it goes by what the lease is then. A
 * lease that the operator takes back ends for us when the daemon says so, before its keys
 * do: a transfer under way stops then.
 * Thread: any. State: lease not released.
 *
 * Errors: MEMPOOL_E_RANGE (outside the lease), MEMPOOL_E_ACCESS (the lease lacks the right),
 * MEMPOOL_E_EXPIRED, MEMPOOL_E_REVOKED, MEMPOOL_E_DRAINED, MEMPOOL_E_NO_LEASE (the lease has
 * ended), MEMPOOL_E_LANE (the data connection was lost; it has been or will be restored: try
 * again), MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT.
 * Since 0.1.
 */
int mempool_read(mempool_lease *lease, uint64_t offset_bytes, void *buf, size_t len_bytes);
int mempool_write(mempool_lease *lease, uint64_t offset_bytes, const void *buf, size_t len_bytes);

/**
 * mempool_renew() - let the lease last @ttl_ms from now
 *
 * Thread: any. Errors: MEMPOOL_E_TTL_ZERO, MEMPOOL_E_TTL_MAX, the codes of an ended lease,
 * MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT. Since 0.1.
 */
int mempool_renew(mempool_lease *lease, uint64_t ttl_ms);

/**
 * mempool_modify() - give the lease another length or other rights
 * @len_bytes: that it is to have; the same as now is allowed
 * @rights: that it is to have, MEMPOOL_READ | ...; the same as now are allowed
 *
 * The bytes that stay keep what is in them, and the deadline stays. A lease grows only where
 * the bytes behind it are free. Bytes that are added are zero, but for those up to the end
 * of a page that the lease had before it was made shorter. Other threads' transfers of the
 * lease wait if they must; growing alone holds up nobody.
 * When an error is returned the lease is as it was, except that after MEMPOOL_E_TIMEOUT and
 * MEMPOOL_E_LANE it may have been modified; mempool_lease_info() tells after the next
 * transfer, or simply modify it again.
 * Thread: any.
 *
 * Errors: MEMPOOL_E_LENGTH_ZERO, MEMPOOL_E_LENGTH_POOL, MEMPOOL_E_LENGTH_EXTENT (the bytes
 * behind it are not free), MEMPOOL_E_RIGHTS, MEMPOOL_E_RIGHTS_DEVICE, MEMPOOL_E_WINDOWS_MAX,
 * MEMPOOL_E_BUSY (it is being modified already, or our transfers did not end in time),
 * MEMPOOL_E_LANE, the codes of an ended lease, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT,
 * MEMPOOL_E_INVALID.
 * Since 0.1.
 */
int mempool_modify(mempool_lease *lease, uint64_t len_bytes, uint32_t rights);

/**
 * mempool_release() - give the lease back
 * @lease: NULL is allowed; invalid afterwards, whatever is returned
 *
 * On success the daemon's device refuses the lease's keys already.
 * Thread: any, but no other call on this lease may be running.
 * Errors: the codes of an ended lease, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT. Since 0.1.
 */
int mempool_release(mempool_lease *lease);

/**
 * mempool_release_many() - give several leases of one session back in one message
 * @leases: each named once; all invalid afterwards, unless MEMPOOL_E_INVALID is returned
 * @count: 1 to 64
 *
 * Return: 0, or the code of the first lease that was not released; the others may have been.
 * Thread: any, but no other call on these leases may be running.
 * Errors: as mempool_release(); MEMPOOL_E_INVALID (an argument; nothing was done). Since 0.1.
 */
int mempool_release_many(mempool_lease **leases, size_t count);

struct mempool_lease_info {
	size_t size; /* sizeof(struct mempool_lease_info), set by the caller */
	uint64_t id; /* as in mempoolctl lease list */
	uint64_t len_bytes;
	uint64_t ttl_left_ms; /* by our own clock, counted from the request: never too long */
	uint32_t rights;
	uint32_t generation; /* changes when the keys change */
};

/**
 * mempool_lease_info() - what is known of a lease
 *
 * Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_lease_info(mempool_lease *lease, struct mempool_lease_info *ret_info);

#define MEMPOOL_LEASE_TOKEN_VERSION 1u

/*
 * What is needed to come back for a lease: plain bytes, to be kept in a file or handed to
 * another program on this machine, say. Whoever has it, and the tenant's key, can take the
 * lease over.
 */
struct mempool_lease_token {
	uint32_t version; /* MEMPOOL_LEASE_TOKEN_VERSION */
	uint32_t reserved;
	uint64_t lease_id;
	uint8_t secret[16];
};

/**
 * mempool_lease_token() - what to come back for a lease with
 * @ret_token: good as long as the lease lives, however often it is taken over
 *
 * Also of a lease whose session is lost. Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_lease_token(mempool_lease *lease, struct mempool_lease_token *ret_token);

/**
 * mempool_reattach() - take over a lease that another session of this tenant has or had
 * @token: of the lease
 * @ret_lease: give it back with mempool_release()
 *
 * A daemon that is configured to (`orphan_grace`) keeps the leases of a session that was lost
 * without mempool_close() for a time: their bytes stay as they are, and their time runs on. If
 * the other session is alive it is lost by this, with all its calls and its keys; its other
 * leases are kept, too, and can be taken over one by one. The lease has the length and rights
 * that it had last.
 * After an error it is right to try again, except after MEMPOOL_E_NO_LEASE.
 * Thread: any. State: session open.
 *
 * Errors: MEMPOOL_E_NO_LEASE (no lease that one could have: it has ended, its secret is another,
 * it is another tenant's, or the daemon keeps no leases), the codes of an ended lease,
 * MEMPOOL_E_BUSY (it is being modified, or another thread is at it), MEMPOOL_E_STATE (this
 * session holds it), MEMPOOL_E_LANE_LEASES_MAX, MEMPOOL_E_QUOTA_WINDOWS (of which the old ones
 * may not be gone yet), MEMPOOL_E_QUOTA_RATE, MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT,
 * MEMPOOL_E_SESSION_LOST, MEMPOOL_E_NO_MEMORY, MEMPOOL_E_INVALID (an argument, or a token of a
 * version that is not known). Since 0.1.
 */
int mempool_reattach(mempool *pool, const struct mempool_lease_token *token,
		     mempool_lease **ret_lease);

/**
 * mempool_error_text() - a sentence for a code
 *
 * Return: a static string, never NULL, for any number. Since 0.1.
 */
const char *mempool_error_text(int code);

/**
 * mempool_last_error() - a sentence about the last error that a call returned to this thread
 *
 * Return: valid until the thread's next call; "" if there was none. Since 0.1.
 */
const char *mempool_last_error(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
