/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The service manager is systemd. The environment that it has given us is left as it is.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "common/verbs.h"

void notify_send(const char *state)
{
	(void)sd_notify(0, state);
}

uint64_t notify_watchdog_us(void)
{
	uint64_t silent_us = 0;

	return sd_watchdog_enabled(0, &silent_us) > 0 ? silent_us : 0;
}

int notify_take_listener(const char *path)
{
	int count = sd_listen_fds(0);

	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
		if (sd_is_socket_unix(fd, SOCK_STREAM, 1, path, 0) > 0 &&
		    verbs_set_nonblocking(fd) == 0)
			return fd;
	}
	return -ENOENT;
}
