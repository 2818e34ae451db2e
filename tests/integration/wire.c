/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A wire within one test guest. Owns it; one thread.
 *
 * The local table is looked at only by what comes in from the wire, and behind our rules by
 * everything else. Neighbours are fixed, as nobody would answer for them.
 *
 * The queue that loses and delays is there from the beginning, and long enough for anything: while
 * it is put in, and when it is full, the network stack refuses packets, and Soft-RoCE answers that
 * with a queue pair in error. If it is the one that connections are made over, the device makes no
 * more until it is added anew.
 */
#include "tests/integration/wire.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/integration/machine.h"

#define WIRE_QUEUE "netem limit 100000"

#define WIRE_NEIGHBOURS                                                                  \
	"mac0=$(cat /sys/class/net/v0/address); mac1=$(cat /sys/class/net/v1/address); " \
	"ip neigh replace 10.77.0.2 lladdr $mac1 dev v0 nud permanent; "                 \
	"ip neigh replace 10.77.0.1 lladdr $mac0 dev v1 nud permanent; "

static const char wire_up[] =
	"set -e; modprobe sch_netem; cd /proc/sys/net/ipv4/conf; "
	"for f in v0 v1; do echo 1 >$f/accept_local; echo 0 >$f/rp_filter; done; "
	"echo 0 >all/rp_filter; "
	"ip addr add 10.77.0.2/24 dev v1; "
	"for d in v0 v1; do tc qdisc add dev $d root " WIRE_QUEUE "; done; "
	"rdma link add rxe1 type rxe netdev v1; " WIRE_NEIGHBOURS
	"ip route add 10.77.0.2 dev v0 src 10.77.0.1 table 100; "
	"ip route add 10.77.0.1 dev v1 src 10.77.0.2 table 101; "
	"ip rule add pref 1 iif v0 to 10.77.0.1 lookup local; "
	"ip rule add pref 1 iif v1 to 10.77.0.2 lookup local; "
	"ip rule add pref 2 to 10.77.0.2 lookup 100; "
	"ip rule add pref 2 to 10.77.0.1 lookup 101; "
	"ip rule add pref 3 lookup local; "
	"ip rule del pref 0; "
	"i=0; until cat /sys/class/infiniband/rxe1/ports/1/gids/? 2>/dev/null | grep -q 0a4d:0002; "
	"do i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 0.05; done";

static const char wire_down[] =
	"ip rule add pref 0 lookup local; "
	"ip rule del pref 3; ip rule del pref 2; ip rule del pref 2; ip rule del pref 1; "
	"ip rule del pref 1; ip route flush table 100; ip route flush table 101; "
	"ip neigh del 10.77.0.2 dev v0; ip neigh del 10.77.0.1 dev v1; "
	"tc qdisc del dev v0 root; tc qdisc del dev v1 root; "
	"rdma link delete rxe1; ip addr del 10.77.0.2/24 dev v1; true";

bool wire_drop(const char *device, bool drop)
{
	char command[128];

	snprintf(command, sizeof(command), "tc qdisc change dev %s root " WIRE_QUEUE " loss %s",
		 device, drop ? "100%" : "0%");
	return machine_shell(command);
}

bool wire_delay(const char *device, uint32_t ms)
{
	char command[128];

	snprintf(command, sizeof(command),
		 "tc qdisc change dev %s root " WIRE_QUEUE " delay %" PRIu32 "ms", device, ms);
	return machine_shell(command);
}

uint64_t wire_received(const char *device)
{
	uint64_t bytes = 0;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/net/%s/statistics/rx_bytes", device);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%" SCNu64, &bytes) != 1)
		bytes = 0;
	fclose(file);
	return bytes;
}

bool wire_flush(void)
{
	return machine_shell(
		"set -e; ip neigh flush dev v0 nud all; ip neigh flush dev v1 nud all; "
		"ip neigh flush dev v0 nud permanent; "
		"ip neigh flush dev v1 nud permanent; " WIRE_NEIGHBOURS);
}

bool wire_wrong_neighbours(void)
{
	return machine_shell("set -e; for d in 'v0 10.77.0.2' 'v1 10.77.0.1'; do "
			     "ip neigh replace ${d#* } lladdr 02:00:00:77:ff:ff dev ${d% *} "
			     "nud permanent; done");
}

bool wire_change_mac(const char *device)
{
	static unsigned int changes;
	char command[1024];

	changes++;
	snprintf(command, sizeof(command),
		 "set -e; ip link set dev %s address 02:00:00:77:%02x:%02x; " WIRE_NEIGHBOURS,
		 device, changes / 256 % 256, changes % 256);
	return machine_shell(command);
}

void wire_test(const char *name, uint64_t limit_ms, void (*run)(void))
{
	static const struct machine_change wire = {.make = wire_up, .undo = wire_down};

	machine_test(&wire, name, limit_ms, run);
}
