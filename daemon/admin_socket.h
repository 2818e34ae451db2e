/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_SOCKET_H
#define DAEMON_ADMIN_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The unix socket that the operator's tools connect to: its file, who serves it, who may use it.
 * The superuser and the daemon's own user may, and the members of one group.
 */
struct admin_socket;

/**
 * admin_socket_new() - take a place for ourselves; nothing is there to connect to yet
 * @path: where; beside it a lock file "@path.lock" is made, which stays
 * @gid: the group that may use it
 *
 * Return: 0, -EADDRINUSE (another daemon has the place), -ENAMETOOLONG, -EINVAL (no path), or
 * another negative errno, of the lock file.
 */
int admin_socket_new(const char *path, gid_t gid, struct admin_socket **ret_door);

/**
 * admin_socket_adopt() - use a socket that somebody else has made, and listens on
 * @door: has not listened
 * @fd: ours from now on, if all goes well; its file is not
 *
 * Who may connect is for the maker to say, but who is served is as ever.
 * Return: 0, -ENOTSOCK, -EINVAL (it is no listening unix stream socket) or another negative errno.
 */
int admin_socket_adopt(struct admin_socket *door, int fd);

/**
 * admin_socket_listen() - make the file, and let clients connect; once
 *
 * The file has mode 0660 and the group before anybody can connect; at no time has it more. A
 * socket of ours that nobody serves any more is replaced. Nothing else is ever removed. Does
 * nothing if a socket was adopted.
 * Return: 0, -EADDRINUSE (somebody serves there who does not know our lock), -ENOTSOCK (the path
 * is something else), -EEXIST (another user's socket is there), or another negative errno.
 */
int admin_socket_listen(struct admin_socket *door);

/** admin_socket_fd() - readable when somebody wants to connect */
int admin_socket_fd(const struct admin_socket *door);

/**
 * admin_socket_accept() - let the next one in
 *
 * Return: a descriptor, non-blocking and closed on exec; -EAGAIN: nobody is waiting; -EACCES: one
 * that may not was told so and sent away; or another negative errno of accept4().
 */
int admin_socket_accept(struct admin_socket *door);

/**
 * admin_socket_may() - is a process of that user and these groups to be served?
 */
bool admin_socket_may(const struct admin_socket *door, uid_t uid, gid_t gid, const gid_t *groups,
		      size_t group_count);

/**
 * admin_socket_free() - close the socket, and remove its file if that is still ours; NULL is allowed
 *
 * Return: NULL.
 */
struct admin_socket *admin_socket_free(struct admin_socket *door);

/**
 * admin_socket_group() - the number of a group
 * @name: its name, or its number in digits; "": the daemon's own
 *
 * Return: 0, -ENOENT (there is none of that name), or another negative errno.
 */
int admin_socket_group(const char *name, gid_t *ret_gid);

#endif
