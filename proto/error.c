/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Texts and names of the error codes. Both switches have no default, so the
 * compiler names a code that the list has and a switch lacks. Pure code, any
 * thread.
 */
#include "proto/error.h"

/* The sign does not matter; a number outside the list ends in no case. */
static enum error_code code_of(int code)
{
	return (enum error_code)(code < 0 ? 0u - (unsigned int)code : (unsigned int)code);
}

const char *error_text(int code)
{
	switch (code_of(code)) {
	case ERROR_NONE:
		return "no error";
#define X(name, number, text) \
	case ERROR_##name:    \
		return text;
		ERROR_LIST(X)
#undef X
	}
	return "an error whose number is not known here";
}

const char *error_name(int code)
{
	switch (code_of(code)) {
	case ERROR_NONE:
		return "none";
	case ERROR_PROTOCOL:
		return "protocol";
	case ERROR_VERSION:
		return "version";
	case ERROR_BUSY:
		return "busy";
	case ERROR_AUTH:
		return "auth";
	case ERROR_INTERNAL:
		return "internal";
	case ERROR_DRAINING:
		return "draining";
	case ERROR_SESSIONS_MAX:
		return "sessions-max";
	case ERROR_TAKEN_OVER:
		return "taken-over";
	case ERROR_LENGTH_ZERO:
		return "length-zero";
	case ERROR_LENGTH_POOL:
		return "length-pool";
	case ERROR_LENGTH_EXTENT:
		return "length-extent";
	case ERROR_TTL_ZERO:
		return "ttl-zero";
	case ERROR_TTL_MAX:
		return "ttl-max";
	case ERROR_RIGHTS:
		return "rights";
	case ERROR_RIGHTS_DEVICE:
		return "rights-device";
	case ERROR_LEASES_MAX:
		return "leases-max";
	case ERROR_LANE_STATE:
		return "lane-state";
	case ERROR_LANES_MAX:
		return "lanes-max";
	case ERROR_WINDOWS_MAX:
		return "windows-max";
	case ERROR_LANE_LEASES_MAX:
		return "lane-leases-max";
	case ERROR_LANE_OFFER:
		return "lane-offer";
	case ERROR_DEVICE:
		return "device";
	case ERROR_PORT:
		return "port";
	case ERROR_NO_LEASE:
		return "no-lease";
	case ERROR_EXPIRED:
		return "expired";
	case ERROR_REVOKED:
		return "revoked";
	case ERROR_RELEASED:
		return "released";
	case ERROR_SESSION_ENDED:
		return "session-ended";
	case ERROR_DRAINED:
		return "drained";
	case ERROR_ORPHANED:
		return "orphaned";
	case ERROR_MEMORY:
		return "memory";
	case ERROR_LANE:
		return "lane";
	case ERROR_TIMEOUT:
		return "timeout";
	case ERROR_UNKNOWN:
		return "unknown";
	case ERROR_ACCESS:
		return "access";
	case ERROR_RANGE:
		return "range";
	case ERROR_ALIGN:
		return "align";
	case ERROR_INVALID:
		return "invalid";
	case ERROR_CANCELLED:
		return "cancelled";
	case ERROR_STATE:
		return "state";
	case ERROR_RESOLVE:
		return "resolve";
	case ERROR_UNREACHABLE:
		return "unreachable";
	case ERROR_NO_RDMA:
		return "no-rdma";
	case ERROR_REJECTED:
		return "rejected";
	case ERROR_SESSION_LOST:
		return "session-lost";
	case ERROR_NO_MEMORY:
		return "no-memory";
	case ERROR_SYSTEM:
		return "system";
	case ERROR_QUOTA_BYTES:
		return "quota-bytes";
	case ERROR_QUOTA_LEASES:
		return "quota-leases";
	case ERROR_QUOTA_WINDOWS:
		return "quota-windows";
	case ERROR_QUOTA_SESSIONS:
		return "quota-sessions";
	case ERROR_QUOTA_LANES:
		return "quota-lanes";
	case ERROR_QUOTA_RATE:
		return "quota-rate";
	case ERROR_QUOTA_LEASE_LENGTH:
		return "quota-lease-length";
	case ERROR_QUOTA_TTL:
		return "quota-ttl";
	case ERROR_QUOTA_RIGHTS:
		return "quota-rights";
	case ERROR_CONNECTIONS_MAX:
		return "connections-max";
	case ERROR_ADDRESS_MAX:
		return "address-max";
	case ERROR_HANDSHAKES_MAX:
		return "handshakes-max";
	case ERROR_BACK_OFF:
		return "back-off";
	case ERROR_BANNED:
		return "banned";
	case ERROR_NO_TENANT:
		return "no-tenant";
	case ERROR_TENANT_EXISTS:
		return "tenant-exists";
	case ERROR_KEY_USED:
		return "key-used";
	case ERROR_NO_SESSION:
		return "no-session";
	}
	return "unlisted";
}
