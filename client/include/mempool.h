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
 *
 * Structs that begin with their size. The caller sets it to sizeof(the struct), by which the
 * library knows which version of this header the caller was compiled with. A struct of options may
 * be that of any version up to the library's own; or a later one, of at most 4096 bytes, if it is 0
 * in all that the library does not know. A struct that is filled in may be that of any version, too:
 * what the library does not know stays as it is. Any other size, 0 for one, is refused with
 * MEMPOOL_E_INVALID, and nothing is done or written.
 *
 * Forks. A child that only execs, as posix_spawn(), system() and popen() make it, is safe at any
 * time: it gets none of our descriptors and none of our memory that devices write to. A child
 * that goes on by itself may not use the library: sessions stay the parent's. There every
 * function with a handle, and mempool_connect(), fails with MEMPOOL_E_STATE (mempool_buf_bytes()
 * returns NULL, mempool_queue_destroy() does nothing); mempool_close() wipes the child's copy of
 * the keys and leaves the parent's session alone. The memory of mempool_buf_alloc() is not there.
 * It must exec before it can have a session of its own. (A process that has had no session yet may
 * fork as it likes.) Kernels before 5.12 moreover need ibv_fork_init() before the first session, or
 * RDMAV_FORK_SAFE=1 in the environment.
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
	MEMPOOL_E_CANCELLED = -1048,
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
	MEMPOOL_E_NO_SESSION = -1093,
};

/* Rights of a lease; at least one. */
#define MEMPOOL_READ   1u
#define MEMPOOL_WRITE  2u
#define MEMPOOL_ATOMIC 4u

typedef struct mempool mempool;
typedef struct mempool_lease mempool_lease;

/* See mempool_next_event(). */
struct mempool_event;
typedef void (*mempool_event_fn)(const struct mempool_event *event, void *context);

struct mempool_connect_opts {
	size_t size;		/* sizeof(struct mempool_connect_opts) */
	const char *key_file;	/* our private key, made by `mempoolctl keygen`; or */
	const uint8_t *key;	/* the 32 bytes themselves; then key_file is not read */
	const char *daemon_key; /* the daemon's public key in base64; NULL: the address has it */
	uint32_t timeout_ms;	/* for the whole call, and later for each call; 0: 5000 */
	uint32_t reconnect_ms;	/* how long to try to come back to the session each time that
				 * it is lost: see mempool_connect(); 0: not at all;
				 * UINT32_MAX: for ever */
	/* Called for each event of the session, on its thread; NULL: events are taken with
	 * mempool_next_event(), which says what a callback may do. */
	mempool_event_fn on_event;
	void *on_event_context;
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
 *
 * A session that is lost stays so, and all calls that need the daemon fail with
 * MEMPOOL_E_SESSION_LOST, unless reconnect_ms is set. Then a second thread connects
 * anew to the address that had answered, after 100 ms at most, waiting up to twice as long each
 * time, 10 s at most and by chance a little less; and takes over the leases, if the daemon keeps
 * them (`orphan_grace`). Their contents stay, and their time runs on; a lease that cannot be had
 * ends with the reason that the daemon gives, MEMPOOL_E_NO_LEASE if it was started anew. Calls
 * that are running when the session is lost fail with MEMPOOL_E_SESSION_LOST; those that begin
 * later wait until all this is done, but not beyond their time-outs. It is given up, and
 * told (MEMPOOL_EVENT_SESSION_GIVEN_UP), when the time is over, when another session took over a
 * lease of this one, and when the daemon does not know our key any more or speaks another version
 * of the protocol.
 * Thread: any. State: none needed.
 *
 * Errors: MEMPOOL_E_INVALID (an argument, or the key file cannot be used), MEMPOOL_E_RESOLVE
 * (no such host), MEMPOOL_E_NO_RDMA (the route does not lead over an RDMA device),
 * MEMPOOL_E_UNREACHABLE (nobody answers), MEMPOOL_E_REJECTED (nobody listens there),
 * MEMPOOL_E_AUTH (the daemon does not know our key or has another than we expect, or somebody
 * changes messages on the way), MEMPOOL_E_VERSION, MEMPOOL_E_SESSIONS_MAX, MEMPOOL_E_DEVICE,
 * MEMPOOL_E_CONNECTIONS_MAX, MEMPOOL_E_ADDRESS_MAX, MEMPOOL_E_HANDSHAKES_MAX,
 * MEMPOOL_E_QUOTA_SESSIONS, MEMPOOL_E_QUOTA_LANES, MEMPOOL_E_BACK_OFF, MEMPOOL_E_BANNED,
 * MEMPOOL_E_DRAINING, MEMPOOL_E_INTERNAL (the daemon refused), MEMPOOL_E_PROTOCOL, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_LANE,
 * MEMPOOL_E_LANE_OFFER (what was there was lost again), MEMPOOL_E_TIMEOUT,
 * MEMPOOL_E_NO_MEMORY, MEMPOOL_E_SYSTEM.
 * Since 0.1.
 */
int mempool_connect(const char *address, const struct mempool_connect_opts *opts,
		    mempool **ret_pool);

/**
 * mempool_close() - end the session; its leases end with it
 * @pool: NULL is allowed; invalid afterwards, and so are its leases, queues and buffers
 *
 * If the session is lost, or the daemon cannot be told in time, the daemon keeps the leases for as
 * long as it keeps those of lost sessions (`orphan_grace`). A lease whose mempool_reattach() has
 * failed without saying that it is over may be the session's all the same, and then ends, too.
 * Thread: any, but no other call on this session may be running, except this one: a session that
 * is closed by two threads at once, or once more later, is closed once. The second call does
 * nothing, and does not wait for the first; but a session that was opened later may have got the
 * same handle. Ends within the session's time-out also when the daemon does not answer, and a
 * second more for each data connection whose device does not give back what is posted.
 * Errors: none. Since 0.1.
 */
void mempool_close(mempool *pool);

/* Flags of an acquire. */
#define MEMPOOL_AUTO_RENEW 1u /* the leases are renewed by themselves: see mempool_auto_renew() */

struct mempool_acquire_opts {
	size_t size;	   /* sizeof(struct mempool_acquire_opts) */
	uint64_t ttl_ms;   /* how long the lease lasts unless renewed; not 0 */
	uint32_t rights;   /* MEMPOOL_READ | ... */
	uint32_t wait_ms;  /* how long the daemon may let us wait for memory; 0: do not wait */
	uint32_t flags;	   /* MEMPOOL_AUTO_RENEW, or 0 */
	uint32_t reserved; /* 0 */
};

/**
 * mempool_acquire() - acquire a lease
 * @len_bytes: its length, any number of bytes
 * @ret_lease: give it back with mempool_release()
 *
 * The bytes are zero. Ends within the session's time-out and wait_ms; a lease that was waited for
 * may take one time-out more, to be renewed. Thread: any. State: session open.
 *
 * Errors: MEMPOOL_E_LENGTH_ZERO, MEMPOOL_E_LENGTH_POOL (longer than the pool),
 * MEMPOOL_E_LENGTH_EXTENT (no room now), MEMPOOL_E_TTL_ZERO, MEMPOOL_E_TTL_MAX,
 * MEMPOOL_E_RIGHTS (none, or unknown ones), MEMPOOL_E_RIGHTS_DEVICE, MEMPOOL_E_LEASES_MAX,
 * MEMPOOL_E_WINDOWS_MAX, MEMPOOL_E_LANE_LEASES_MAX, MEMPOOL_E_DRAINING (the daemon is about to
 * stop), MEMPOOL_E_LANE (the data connection was lost: try again), MEMPOOL_E_LANE_OFFER,
 * MEMPOOL_E_LANES_MAX, MEMPOOL_E_QUOTA_LANES (it was lost before, and a new one cannot be had),
 * MEMPOOL_E_BUSY (too many requests wait to be sent), MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST,
 * MEMPOOL_E_NO_MEMORY, MEMPOOL_E_INVALID.
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
 * @buf: any memory, not used after the return; needs no registration, but is not copied if it
 *	lies in one mempool_buf
 * @len_bytes: how many; 0 does nothing and touches no wire
 *
 * A read of bytes that another thread is writing may see some of them. When an error is
 * returned, any part of the range may have been transferred.
 * A transfer is over at the session's time-out: nothing more is posted then. If something is
 * posted then, or when the data connection is lost, up to a second more passes until the device is
 * done with the memory.
 * While the lease is being modified a transfer waits; it goes by what the lease is then. A
 * lease that the operator takes back ends for us when the daemon says so, before its keys
 * do: a transfer under way stops then.
 * Thread: any. State: lease not released.
 *
 * Errors: MEMPOOL_E_RANGE (outside the lease), MEMPOOL_E_ACCESS (the lease lacks the right),
 * MEMPOOL_E_EXPIRED, MEMPOOL_E_REVOKED, MEMPOOL_E_DRAINED, MEMPOOL_E_NO_LEASE (the lease has
 * ended), MEMPOOL_E_LANE (the data connection was lost; it has been or will be restored: try
 * again), MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT, MEMPOOL_E_INVALID (an argument; no memory for
 * bytes that there are).
 * Since 0.1.
 */
int mempool_read(mempool_lease *lease, uint64_t offset_bytes, void *buf, size_t len_bytes);
int mempool_write(mempool_lease *lease, uint64_t offset_bytes, const void *buf, size_t len_bytes);

/**
 * mempool_renew() - let the lease last @ttl_ms from now
 *
 * Thread: any. Errors: MEMPOOL_E_TTL_ZERO, MEMPOOL_E_TTL_MAX, the codes of an ended lease,
 * MEMPOOL_E_BUSY (too many requests wait to be sent), MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT,
 * MEMPOOL_E_NO_MEMORY, MEMPOOL_E_INVALID. Since 0.1.
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
 * @lease: NULL is allowed; invalid afterwards, unless MEMPOOL_E_BUSY is returned
 *
 * On success the daemon's device refuses the lease's keys already.
 * A lease that was not given back, as the session is lost or the daemon does not answer, ends when
 * its time is over at the latest.
 * Thread: any, but no other call on this lease may be running.
 * Errors: the codes of an ended lease, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_TIMEOUT;
 * MEMPOOL_E_BUSY (operations of a queue are not done, or too many requests wait to be sent:
 * nothing was done, and the lease stays valid). Since 0.1.
 */
int mempool_release(mempool_lease *lease);

/**
 * mempool_release_many() - give several leases of one session back in one message
 * @leases: each named once; all invalid afterwards, unless MEMPOOL_E_INVALID or
 *	MEMPOOL_E_BUSY is returned
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
 * After an error it is right to try again, except after MEMPOOL_E_NO_LEASE. The daemon may have
 * given the lease to the session nevertheless, or may still do so: then mempool_close() ends it.
 * Who gives up, and wants the lease to stay, leaves the session without closing it, as by the end
 * of the program.
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

/* Operations on several ranges, and on words. */

/* A range of a lease, and the memory that its bytes come to or from. */
struct mempool_segment {
	uint64_t offset_bytes; /* where in the lease */
	void *buf;	       /* mempool_writev() only reads from it */
	size_t len_bytes;      /* 0 is allowed, and needs no memory */
};

/**
 * mempool_readv(), mempool_writev() - copy several ranges of a lease in one call
 * @segments: in the order in which they are transferred; the ranges may overlap
 * @count: 1 to 1024
 * @ret_count: how many segments, from the first on, have been transferred in full, written also
 *	when an error is returned, except MEMPOOL_E_INVALID for an argument and MEMPOOL_E_STATE;
 *	NULL is allowed
 *
 * As mempool_read() and mempool_write() in all else: all segments are checked before anything
 * is transferred; after an error any part of them may have been.
 * Thread: any. State: lease not released.
 *
 * Errors: as mempool_read(); MEMPOOL_E_INVALID (an argument: no segments or too many, a segment
 * without memory). Since 0.1.
 */
int mempool_readv(mempool_lease *lease, const struct mempool_segment *segments, size_t count,
		  size_t *ret_count);
int mempool_writev(mempool_lease *lease, const struct mempool_segment *segments, size_t count,
		   size_t *ret_count);

/**
 * mempool_fetch_add() - add to a word of a lease
 * @offset_bytes: of its 8 bytes in the lease, a multiple of 8
 * @add: what is added, modulo 2^64
 * @ret_old: what was there before
 *
 * Words are in the byte order of the machine. The operation is atomic to other atomic
 * operations that come to the same device, those of other sessions included; whether reads and
 * writes see a part of it is the device's matter. It is posted once and never repeated: when
 * the data connection is lost, or the deadline passes, before the outcome is known, that is what
 * is reported.
 * Thread: any. State: lease not released, with the right MEMPOOL_ATOMIC.
 *
 * Errors: MEMPOOL_E_UNKNOWN (it may have taken place or not), MEMPOOL_E_ALIGN (the offset is no
 * multiple of 8, or a part of the word was added when the lease grew), MEMPOOL_E_RANGE,
 * MEMPOOL_E_ACCESS (the lease lacks the right), MEMPOOL_E_LANE, the codes of an ended lease,
 * MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST (it has not taken place), MEMPOOL_E_INVALID.
 * Since 0.1.
 */
int mempool_fetch_add(mempool_lease *lease, uint64_t offset_bytes, uint64_t add, uint64_t *ret_old);

/**
 * mempool_compare_swap() - replace a word of a lease if it has the expected value
 * @expected: what it must be
 * @desired: what it becomes then
 * @ret_old: what was there before; it was replaced if this is @expected
 *
 * In all else as mempool_fetch_add(). Since 0.1.
 */
int mempool_compare_swap(mempool_lease *lease, uint64_t offset_bytes, uint64_t expected,
			 uint64_t desired, uint64_t *ret_old);

/* Registered memory. */

typedef struct mempool_buf mempool_buf;

#define MEMPOOL_BUF_HUGE      1u /* pages of 2 MiB if there are any */
#define MEMPOOL_BUF_HUGE_ONLY 2u /* with MEMPOOL_BUF_HUGE: no others */

/**
 * mempool_buf_alloc() - allocate memory that the device may use
 * @len_bytes: not 0; rounded up to whole pages, which are the buffer's own
 * @flags: 0, MEMPOOL_BUF_HUGE or MEMPOOL_BUF_HUGE | MEMPOOL_BUF_HUGE_ONLY
 * @ret_buf: give it back with mempool_buf_free()
 *
 * The bytes are zero. Transfers from and to it need no copy. The memory is locked (RLIMIT_MEMLOCK
 * counts); forked children do not get it. Thread: any. State: session open.
 * Errors: MEMPOOL_E_NO_MEMORY (also: not enough huge pages, more than may be locked),
 * MEMPOOL_E_SYSTEM, MEMPOOL_E_STATE (the session has no device), MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_buf_alloc(mempool *pool, size_t len_bytes, uint32_t flags, mempool_buf **ret_buf);

/**
 * mempool_buf_register() - let the device use memory of the application
 * @bytes: any address; the memory must be writable
 * @len_bytes: not 0
 * @ret_buf: give it back with mempool_buf_free(), before the memory is unmapped or freed
 *
 * The device may use exactly these bytes. All pages that have a part of them are locked, in
 * whole, and must stay mapped where they are; they may have other data, too. A buffer may not
 * overlap another one of the session, but two may share a page.
 * Thread: any. State: session open.
 * Errors: MEMPOOL_E_NO_MEMORY, MEMPOOL_E_SYSTEM (no such memory, or it cannot be written),
 * MEMPOOL_E_STATE (a part is a buffer already; the session has no device), MEMPOOL_E_INVALID.
 * Since 0.1.
 */
int mempool_buf_register(mempool *pool, void *bytes, size_t len_bytes, mempool_buf **ret_buf);

/**
 * mempool_buf_free() - give a buffer back
 * @buf: NULL is allowed; invalid afterwards unless MEMPOOL_E_BUSY is returned
 *
 * Memory of mempool_buf_alloc() is unmapped; memory of the application is its own again when 0 is
 * returned. mempool_close() gives back what is left. A handle that was given back is recognised
 * until another buffer takes it, which is as late as possible.
 * Thread: any. Errors: MEMPOOL_E_BUSY (operations or transfers use it, or might for ever, as the
 * device could not be stopped; it is still a buffer), MEMPOOL_E_STATE (it
 * has been given back), MEMPOOL_E_SYSTEM (the device still has it: keep the memory). Since 0.1.
 */
int mempool_buf_free(mempool_buf *buf);

/**
 * mempool_buf_bytes(), mempool_buf_length() - where a buffer is, and how many bytes it has
 *
 * Return: NULL and 0 if it was given back, or is NULL. Thread: any. Since 0.1.
 */
void *mempool_buf_bytes(mempool_buf *buf);
size_t mempool_buf_length(mempool_buf *buf);

/*
 * mempool_read() and its like take any memory. What lies in one buffer goes without a copy; all
 * else is copied through memory of the library's own, unless the cache is turned on: then memory
 * that is given to such a call is registered at its first use, and stays registered.
 *
 * The device goes on to use the pages that were there when memory was registered. So whoever turns
 * the cache on must call mempool_cache_forget() before memory that was given to a call is
 * unmapped, moved, or freed in a way that might unmap it. Nobody else can. (For a buffer
 * mempool_buf_free() does it.)
 */

struct mempool_cache_opts {
	size_t size;		/* sizeof(struct mempool_cache_opts) */
	uint64_t bytes_max;	/* that stay registered at a time */
	uint64_t len_min_bytes; /* shorter transfers are copied */
	uint32_t entries_max;	/* that stay registered at a time; 0: off, which is the default */
	uint32_t reserved;	/* 0 */
};

struct mempool_cache_stats {
	size_t size; /* sizeof(struct mempool_cache_stats), set by the caller */
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions; /* to make room */
	uint64_t failures;  /* not registered: no room, or refused by the system; copied instead */
	uint64_t entries;   /* now */
	uint64_t bytes;	    /* now */
};

/**
 * mempool_cache_limit() - turn the registration cache on or off, or change its limits
 *
 * What is beyond lower limits is unregistered at once, or when the transfer that uses it is over.
 * Other memory makes room for new memory only when that could be registered, so for a moment both
 * are. Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_cache_limit(mempool *pool, const struct mempool_cache_opts *opts);

/**
 * mempool_cache_forget() - unregister what the cache has of a range; nothing is allowed
 *
 * Thread: any. Errors: MEMPOOL_E_BUSY (a transfer uses it), MEMPOOL_E_SYSTEM (the device still has
 * some of it: keep the memory), MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_cache_forget(mempool *pool, const void *bytes, size_t len_bytes);

/**
 * mempool_cache_stats() - what the cache has done since the session was opened
 *
 * Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_cache_stats(mempool *pool, struct mempool_cache_stats *ret_stats);

/*
 * Queues: operations that nobody waits for one by one.
 *
 * A queue has a data connection (lane) of its own. Operations are submitted, many at a time, and
 * reported by mempool_poll() when they are over, each exactly once, with the caller's cookie.
 * Nothing is reported, and no memory let go, before the device is done with it. Operations on one
 * lease take place in the order in which they were submitted only as far as the device keeps it:
 * a write is not known to have arrived before it is reported.
 *
 * An operation is over at its deadline, or soon after: what is not posted by then fails with
 * MEMPOOL_E_TIMEOUT; if it is posted, the queue gives its lane up, waits (a second at most) until
 * the device has given everything back, and reports MEMPOOL_E_TIMEOUT for it and MEMPOOL_E_LANE
 * for the others. Once its lane is lost, a queue fails all operations with MEMPOOL_E_LANE, until
 * mempool_queue_restore(). Atomic operations are posted once; when they are cut off, in whatever
 * way, they end with MEMPOOL_E_UNKNOWN.
 *
 * With the session all lanes are lost. Until it is restored (see reconnect_ms) operations fail
 * with MEMPOOL_E_SESSION_LOST, and none of them waits; then it is mempool_queue_restore() again.
 *
 * A queue has no thread: all this happens in the calls on it. So whoever has operations under way
 * polls, or waits for the descriptor; an operator who takes a lease back waits for them, too, for
 * as long as the grace lasts, and so does mempool_modify(): drain the queue before it.
 *
 * None of mempool_submit(), mempool_poll(), mempool_cancel(), mempool_queue_arm() waits for the
 * device or the daemon; but calls on one queue take turns, and while mempool_queue_attach() or
 * mempool_queue_restore() opens its lane or attaches a lease the others wait. The first two
 * allocate nothing, and call the kernel only as far as the device's doorbell needs it, unless
 * another thread is in the library at that moment, or flushes the queue, or the lane is lost. For
 * that, memory must be registered: in a mempool_buf.
 *
 * With an event loop:
 *
 *	fd = mempool_queue_fd(queue);	  once; have the loop wait until it is readable
 *	each time it is, and once before the first time:
 *		do {
 *			mempool_poll(queue, completions, n, &count);	drain
 *			... handle them; submit more ...
 *		} while (count > 0);
 *		mempool_queue_arm(queue);
 *
 * The descriptor becomes readable when there is something to poll or a deadline has passed, but
 * only as long as the queue is armed: arm it after having drained it and after each submit or
 * cancel that came later. Arming looks once more, so that nothing gets lost in between; if there is
 * something the descriptor is readable at once. What attaching, restoring and flushing find, in
 * whatever thread, makes it readable, too, armed or not. Reading from it, and closing it, is not
 * for the caller.
 */

typedef struct mempool_queue mempool_queue;

struct mempool_queue_opts {
	size_t size;	/* sizeof(struct mempool_queue_opts) */
	uint32_t depth; /* work requests in flight; 0: 64; at most 4096, or what the device can */
	uint32_t capacity; /* operations that are not reported yet; 0: as depth; at most 65536 */
};

/**
 * mempool_queue_create() - make a queue and open its lane
 * @opts: required; copied
 * @ret_queue: end it with mempool_queue_destroy(); mempool_close() does it, too
 *
 * Waits, at most for the session's time-out, also for a session that is being restored.
 * Thread: any. State: session open.
 * Errors: MEMPOOL_E_LANES_MAX, MEMPOOL_E_QUOTA_LANES, MEMPOOL_E_LANE (the connection could not be
 * made, or was lost at once), MEMPOOL_E_LANE_OFFER, MEMPOOL_E_BUSY (too many are being opened),
 * MEMPOOL_E_DRAINING, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_NO_MEMORY,
 * MEMPOOL_E_SYSTEM (also: more depth than the device can), MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_queue_create(mempool *pool, const struct mempool_queue_opts *opts,
			 mempool_queue **ret_queue);

/**
 * mempool_queue_destroy() - end a queue
 * @queue: NULL is allowed; invalid afterwards
 *
 * What is not over is cut off, and not reported; its memory may be freed when this returns.
 * Thread: any, but no other call on this queue may be running. Errors: none; in a callback and in
 * a forked child it does nothing. Since 0.1.
 */
void mempool_queue_destroy(mempool_queue *queue);

/**
 * mempool_queue_attach() - let the queue use a lease
 *
 * Needed once for each lease; opens the lane first if it is lost. Waits as
 * mempool_queue_restore() does, and until a change of the lease is over. When it fails the lease is
 * not attached, and not by mempool_queue_restore() either. If the daemon does not answer in time
 * the lane is given up, as what was asked for may have been done. Thread: any.
 * Errors: MEMPOOL_E_LANE_LEASES_MAX, MEMPOOL_E_QUOTA_WINDOWS, MEMPOOL_E_BUSY (a change of the lease
 * began at that moment), the codes of an ended lease, MEMPOOL_E_INVALID (an argument, or a lease of
 * another session), and those of mempool_queue_create(). Since 0.1.
 */
int mempool_queue_attach(mempool_queue *queue, mempool_lease *lease);

/**
 * mempool_queue_restore() - open the lane if it is lost, attach all leases that were attached
 *
 * Waits, at most for the session's time-out, also for a session that is being restored and for
 * leases that are still to be taken over by it. Leases that have ended are left out. One that
 * cannot be attached does not keep the others from it; the first code is returned. Operations that
 * were cut off are not repeated. Meanwhile none of the leases may be released. When it has failed
 * it may be called again.
 * Thread: any. Errors: as mempool_queue_attach(). Since 0.1.
 */
int mempool_queue_restore(mempool_queue *queue);

#define MEMPOOL_OP_READ		1u
#define MEMPOOL_OP_WRITE	2u
#define MEMPOOL_OP_FETCH_ADD	3u /* as mempool_fetch_add() */
#define MEMPOOL_OP_COMPARE_SWAP 4u /* as mempool_compare_swap() */

/* One operation; all else is 0. */
struct mempool_op {
	uint64_t cookie; /* the caller's; need not be unique */
	mempool_lease *lease;
	uint64_t offset_bytes;
	uint64_t len_bytes;  /* 8 of atomic operations; 0 succeeds at once */
	void *bytes;	     /* in buf; of atomic operations: where the old value comes, aligned */
	mempool_buf *buf;    /* NULL is allowed for a write of at most inline_max_bytes */
	uint32_t kind;	     /* MEMPOOL_OP_READ, ... */
	uint32_t timeout_ms; /* from now; 0: the session's */
	uint64_t operand;    /* what is added, or expected */
	uint64_t swap;	     /* what comes in its place */
	uint64_t reserved;   /* 0 */
};

/**
 * mempool_submit() - take operations and post them, with one doorbell
 * @ops: copied; the memory and the lease that they name stay until they are reported
 * @count: not 0
 * @ret_count: how many were taken, from the first on: as many as the queue has room for; 0 also
 *	with MEMPOOL_E_BUSY
 *
 * An operation that is wrong is taken, too, and reported with its code:
 * MEMPOOL_E_INVALID (no lease or one of another session, unknown kind, memory outside of its
 * buffer, no buffer, a length other than 8), MEMPOOL_E_STATE (the buffer was given back or is of
 * another device, or the lease is not attached to the queue), MEMPOOL_E_ALIGN (of an atomic
 * operation: offset or memory), MEMPOOL_E_RANGE, MEMPOOL_E_ACCESS, MEMPOOL_E_BUSY (the lease is
 * being modified), and the codes of an ended lease. A lease whose time is over by our own count
 * is such a one. None of these reaches the wire.
 * Thread: any. Errors: MEMPOOL_E_BUSY (none was taken: the queue is full), MEMPOOL_E_INVALID.
 * Since 0.1.
 */
int mempool_submit(mempool_queue *queue, const struct mempool_op *ops, size_t count,
		   size_t *ret_count);

struct mempool_completion {
	uint64_t cookie;
	int32_t code; /* 0, or why it has failed: then any part of it may have taken place */
	uint32_t reserved;
};

/**
 * mempool_poll() - report operations that are over
 * @count: room in @completions; not 0
 * @ret_count: how many there are now; 0 if none
 *
 * In the order in which they ended. Beside the codes of mempool_submit() these:
 * MEMPOOL_E_TIMEOUT, MEMPOOL_E_LANE, MEMPOOL_E_UNKNOWN (an atomic operation may have taken place
 * or not), MEMPOOL_E_CANCELLED, MEMPOOL_E_SESSION_LOST.
 * Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_poll(mempool_queue *queue, struct mempool_completion *completions, size_t count,
		 size_t *ret_count);

/**
 * mempool_cancel() - end operations of which nothing has been posted
 * @cookie: of all that are meant
 * @ret_count: how many were cancelled; mempool_poll() reports them
 *
 * Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_cancel(mempool_queue *queue, uint64_t cookie, size_t *ret_count);

/**
 * mempool_queue_fd() - a descriptor that is readable when there is something to do
 *
 * The same as long as the queue lives, and the queue's own. Return: it, or MEMPOOL_E_INVALID.
 * Thread: any. Since 0.1.
 */
int mempool_queue_fd(mempool_queue *queue);

/**
 * mempool_queue_arm() - have the descriptor become readable from now on; see above
 *
 * Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_queue_arm(mempool_queue *queue);

/**
 * mempool_flush() - wait until all operations are over
 * @timeout_ms: 0: the session's
 *
 * They are then to be polled. Others may use the queue meanwhile. Thread: any.
 * Errors: MEMPOOL_E_TIMEOUT, MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_flush(mempool_queue *queue, uint32_t timeout_ms);

struct mempool_queue_info {
	size_t size; /* sizeof(struct mempool_queue_info), set by the caller */
	uint32_t depth;
	uint32_t capacity;
	uint32_t inline_max_bytes; /* of writes that need no registered memory; 0: all do */
	uint32_t waiting;	   /* operations of which nothing is posted */
	uint32_t posted;
	uint32_t done; /* to be polled */
	uint32_t lane_up;
};

/**
 * mempool_queue_info() - what is known of a queue
 *
 * Thread: any. Errors: MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_queue_info(mempool_queue *queue, struct mempool_queue_info *ret_info);

/**
 * mempool_auto_renew() - renew the lease by itself from now on
 * @ttl_ms: how long it lasts after each renewal; 0: do not renew it by itself any more
 *
 * The session's thread renews it when about half of the time that is left has passed, and if
 * that fails again at half of what is left then, and so on. A renewal that the application asks
 * for with mempool_renew() counts, too. If the lease comes near its end nevertheless the
 * application is told (MEMPOOL_EVENT_LEASE_EXPIRING).
 *
 * The time of any lease is counted from when it was asked for, and ends for us a little before
 * it ends for the daemon: by a sixteenth, 20 ms at most, as operations are on their way, and by
 * one part in 4096, as two clocks differ. From then on operations fail with MEMPOOL_E_EXPIRED and
 * nothing more is given to the device. What the device has by then goes on; if a part of that
 * reaches the daemon too late it is refused there, and costs the data connection.
 * Thread: any; allowed in callbacks. State: lease not ended; nothing is waited for.
 *
 * Errors: the codes of an ended lease, MEMPOOL_E_SESSION_LOST (also while it is being restored),
 * MEMPOOL_E_STATE, MEMPOOL_E_INVALID. A time that the daemon does not allow is found out when it
 * is asked for: the lease runs out then. Since 0.1.
 */
int mempool_auto_renew(mempool_lease *lease, uint64_t ttl_ms);

/* What happens to a session and its leases. Further kinds may come; pass over unknown ones. */
enum mempool_event_kind {
	/* The lease ends in left_ms by our count, and may be renewed until then. Told once for
	 * each deadline, when a quarter of its time is left, 10 s at most. */
	MEMPOOL_EVENT_LEASE_EXPIRING = 1,
	/* The operator takes the lease back, in left_ms at the latest. Nothing new is started on
	 * it; when what is in flight is over the library says so, and the lease ends. */
	MEMPOOL_EVENT_LEASE_REVOKING = 2,
	/* The lease has ended, for the reason in code; its handle is still to be released. */
	MEMPOOL_EVENT_LEASE_ENDED = 3,
	/* A data connection was lost, and the operations in flight on it. The next call that
	 * needs one makes a new one; that of a queue, which mempool_queue_info() tells of, is
	 * made by mempool_queue_restore() ... */
	MEMPOOL_EVENT_LANE_LOST = 4,
	/* ... and this is it. */
	MEMPOOL_EVENT_LANE_RESTORED = 5,
	/* The daemon gives no new leases, and all that there are end in left_ms, unless its
	 * operator thinks better of it; with left_ms 0 it is about to stop. Told anew when that
	 * time changes. */
	MEMPOOL_EVENT_DRAINING = 6,
	/* The connection to the daemon is lost; code says why, if more is known than that
	 * (MEMPOOL_E_DRAINED, MEMPOOL_E_TAKEN_OVER, MEMPOOL_E_BANNED, ...). What that means for
	 * the leases is not told one by one, unless the session comes back. */
	MEMPOOL_EVENT_SESSION_LOST = 7,
	/* With reconnect_ms: it is there again; leases that were lost for good have been told of
	 * before, and those that come back later are waited for by the calls that use them. */
	MEMPOOL_EVENT_SESSION_RESTORED = 8,
	/* With reconnect_ms: it will not come back; code says why. */
	MEMPOOL_EVENT_SESSION_GIVEN_UP = 9,
	/* So many events as count says are missing here, as nobody took those before them. */
	MEMPOOL_EVENT_EVENTS_LOST = 10,
};

struct mempool_event {
	size_t size;	      /* sizeof(struct mempool_event), set by who provides the struct */
	uint32_t kind;	      /* enum mempool_event_kind */
	int32_t code;	      /* of enum mempool_error: why; 0: the kind says all */
	mempool_lease *lease; /* that it is about; NULL: none, or released meanwhile */
	uint64_t lease_id;    /* 0: about none */
	uint64_t left_ms;
	uint64_t count;
};

/**
 * mempool_next_event() - take the oldest event of the session
 * @ret_event: its size set by the caller
 * @timeout_ms: how long to wait for one; 0: do not wait
 *
 * Up to 256 events wait to be taken. What comes when there is no room is counted, and the count
 * is an event in its place (MEMPOOL_EVENT_EVENTS_LOST). What the caller itself does, such as
 * releasing a lease, is no event. The lease in an event is good until it is released: who
 * releases leases in one thread while another takes events goes by lease_id.
 *
 * Sessions with on_event have no such queue to take from. The callback is called by the
 * session's own thread, one event after the other in their order; until it returns, no call of
 * the session gets an answer, so it must be quick. In it, and for any session, only
 * mempool_lease_info(), mempool_lease_token(), mempool_auto_renew(), mempool_buf_bytes(),
 * mempool_buf_length(), mempool_queue_fd(), mempool_error_text() and mempool_last_error() are
 * allowed; the other functions do nothing there and fail with MEMPOOL_E_STATE, mempool_close(),
 * mempool_queue_destroy() and mempool_event_fd() included. A callback may run before
 * mempool_connect() has returned, but none when mempool_close() has.
 *
 * Thread: any. State: session open or lost.
 * Errors: MEMPOOL_E_TIMEOUT (there was none), MEMPOOL_E_STATE (the session has a callback, or
 * this is a callback), MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_next_event(mempool *pool, struct mempool_event *ret_event, uint32_t timeout_ms);

/**
 * mempool_event_fd() - a descriptor for the application's own event loop
 *
 * Readable (POLLIN) as long as there is an event to take: then call mempool_next_event() with
 * no time-out until it fails with MEMPOOL_E_TIMEOUT. To be polled only: neither read from it
 * nor close it. It lasts as long as the session's handle.
 *
 * Return: the descriptor, not negative. Thread: any. State: session open or lost.
 * Errors: MEMPOOL_E_STATE (the session has a callback), MEMPOOL_E_INVALID. Since 0.1.
 */
int mempool_event_fd(mempool *pool);

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
