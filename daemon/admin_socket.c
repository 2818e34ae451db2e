/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket's file and its door. Owns the lock file's descriptor (held for life, so that
 * two daemons never serve one path), the listening socket, and the socket file if we made it.
 *
 * The rights of the file are the first fence, and hold from its birth. What connects is looked
 * at once more, since a file's rights can be changed by others, and a folder moved.
 *
 * Thread: any before the loop runs, then the loop.
 */
#include "daemon/admin_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"

#define BACKLOG		64
#define MODE_BORN	0600
#define MODE		0660
#define OVERFLOW_ID	65534
#define GROUPS_FIRST	64
#define GROUPS_MAX	65536
#define GROUP_BUF_FIRST 4096
#define GROUP_BUF_MAX	(1u << 20)
#define REFUSAL                                                                                \
	"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,\"message\":\"this user may not use " \
	"the admin socket\"},\"id\":null}\n"

struct admin_socket {
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	gid_t gid;
	int lock_fd;
	int fd;
	dev_t dev; /* with ino: the file that we made; 0 if none */
	ino_t ino;
};

static struct log_limit refuse_limit;

/* The place */

static int take_lock(const char *path, int *ret_fd)
{
	char lock_path[sizeof(((struct admin_socket *)NULL)->path) + sizeof(".lock")];
	int fd, r;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		r = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
		(void)close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int admin_socket_new(const char *path, gid_t gid, struct admin_socket **ret_door)
{
	struct admin_socket *door;
	int r;

	if (strlen(path) >= sizeof(door->path))
		return -ENAMETOOLONG;
	if (!*path)
		return -EINVAL;
	door = calloc(1, sizeof(*door));
	if (door == NULL)
		return -ENOMEM;
	memcpy(door->path, path, strlen(path) + 1);
	door->gid = gid;
	door->fd = -1;
	r = take_lock(path, &door->lock_fd);
	if (r < 0) {
		free(door);
		return r;
	}
	*ret_door = door;
	return 0;
}

static int get_option(int fd, int name, int *ret_value)
{
	socklen_t len = sizeof(*ret_value);

	return getsockopt(fd, SOL_SOCKET, name, ret_value, &len) < 0 ? -errno : 0;
}

int admin_socket_adopt(struct admin_socket *door, int fd)
{
	int domain = 0, type = 0, listens = 0;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	if (get_option(fd, SO_DOMAIN, &domain) < 0 || get_option(fd, SO_TYPE, &type) < 0 ||
	    get_option(fd, SO_ACCEPTCONN, &listens) < 0)
		return -ENOTSOCK;
	if (domain != AF_UNIX || type != SOCK_STREAM || !listens)
		return -EINVAL;
	if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	door->fd = fd;
	return 0;
}

/* Does anybody accept connections there, perhaps a program that does not know our lock? */
static bool is_served(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool served;

	if (fd < 0)
		return true;
	served = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
		 errno != ECONNREFUSED;
	(void)close(fd);
	return served;
}

/* Under the lock. */
static int remove_stale(const struct sockaddr_un *address)
{
	struct stat st;

	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	if (st.st_uid != geteuid())
		return -EEXIST;
	if (is_served(address))
		return -EADDRINUSE;
	return unlink(address->sun_path) < 0 ? -errno : 0;
}

/*
 * fchmod() before bind() lets the file be born with no more than that, whatever the umask; and
 * before listen() nobody can connect.
 */
static int bind_and_listen(struct admin_socket *door, const struct sockaddr_un *address)
{
	struct stat st;

	if (fchmod(door->fd, MODE_BORN) < 0 ||
	    bind(door->fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
	    lstat(door->path, &st) < 0)
		return -errno;
	door->dev = st.st_dev;
	door->ino = st.st_ino;
	/* The group comes first: the mode is then about it. */
	if (chown(door->path, (uid_t)-1, door->gid) < 0 || chmod(door->path, MODE) < 0)
		return -errno;
	return listen(door->fd, BACKLOG) < 0 ? -errno : 0;
}

int admin_socket_listen(struct admin_socket *door)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	if (door->fd >= 0)
		return 0;
	memcpy(address.sun_path, door->path, sizeof(address.sun_path));
	r = remove_stale(&address);
	if (r < 0)
		return r;
	door->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (door->fd < 0)
		return -errno;
	return bind_and_listen(door, &address);
}

static void remove_own_file(const struct admin_socket *door)
{
	struct stat st;

	if (door->ino == 0 || lstat(door->path, &st) < 0)
		return;
	if (st.st_dev == door->dev && st.st_ino == door->ino)
		(void)unlink(door->path);
}

struct admin_socket *admin_socket_free(struct admin_socket *door)
{
	if (door == NULL)
		return NULL;
	remove_own_file(door);
	if (door->fd >= 0)
		(void)close(door->fd);
	/* Last: whoever takes the lock next finds no file of ours. */
	(void)close(door->lock_fd);
	free(door);
	return NULL;
}

int admin_socket_fd(const struct admin_socket *door)
{
	return door->fd;
}

/* The door */

/* In a user namespace this number stands for all that have none there: it is nobody's own. */
static bool is_known(unsigned int id)
{
	return id != OVERFLOW_ID;
}

bool admin_socket_may(const struct admin_socket *door, uid_t uid, gid_t gid, const gid_t *groups,
		      size_t group_count)
{
	if (uid == 0 || (uid == geteuid() && is_known(uid)))
		return true;
	if (!is_known(door->gid))
		return false;
	if (gid == door->gid)
		return true;
	for (size_t i = 0; i < group_count; i++) {
		if (groups[i] == door->gid)
			return true;
	}
	return false;
}

/* The groups that a peer had when it connected. Return: an array to be freed, or NULL. */
static gid_t *peer_groups(int fd, size_t *ret_count)
{
	socklen_t len = GROUPS_FIRST * sizeof(gid_t);
	gid_t *groups = NULL;
	gid_t *grown;

	for (int tries = 0; tries < 2; tries++) {
		grown = realloc(groups, len);
		if (grown == NULL)
			break;
		groups = grown;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) == 0) {
			*ret_count = len / sizeof(gid_t);
			return groups;
		}
		/* There are more: the kernel has said how many. */
		if (errno != ERANGE || len > GROUPS_MAX * sizeof(gid_t))
			break;
	}
	free(groups);
	return NULL;
}

static bool may_enter(const struct admin_socket *door, int fd, struct ucred *ret_peer)
{
	socklen_t len = sizeof(*ret_peer);
	gid_t *groups;
	size_t count = 0;
	bool may;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &len) < 0)
		return false;
	groups = peer_groups(fd, &count);
	may = admin_socket_may(door, ret_peer->uid, ret_peer->gid, groups, count);
	free(groups);
	return may;
}

int admin_socket_accept(struct admin_socket *door)
{
	struct ucred peer = {.pid = -1, .uid = (uid_t)-1};
	int fd = accept4(door->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (may_enter(door, fd, &peer))
		return fd;
	log_limited(LOG_LEVEL_WARN, &refuse_limit, "admin connection refused uid=%u pid=%d",
		    peer.uid, peer.pid);
	/* A new connection has room for it; if not, it is refused without a word. */
	(void)send(fd, REFUSAL, sizeof(REFUSAL) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)close(fd);
	return -EACCES;
}

/* Groups */

static int find_group(const char *name, gid_t *ret_gid)
{
	size_t cap_bytes = GROUP_BUF_FIRST;
	struct group group, *found = NULL;
	char *buf = NULL;
	char *grown;
	int r;

	do {
		cap_bytes *= 2;
		grown = realloc(buf, cap_bytes);
		if (grown == NULL) {
			free(buf);
			return -ENOMEM;
		}
		buf = grown;
		r = getgrnam_r(name, &group, buf, cap_bytes, &found);
	} while (r == ERANGE && cap_bytes < GROUP_BUF_MAX);
	if (found != NULL)
		*ret_gid = group.gr_gid;
	free(buf);
	if (found != NULL)
		return 0;
	return r == 0 ? -ENOENT : -r;
}

int admin_socket_group(const char *name, gid_t *ret_gid)
{
	unsigned long number;
	char *end;

	if (!*name) {
		*ret_gid = getegid();
		return 0;
	}
	if (name[strspn(name, "0123456789")])
		return find_group(name, ret_gid);
	errno = 0;
	number = strtoul(name, &end, 10);
	if (errno || number >= (gid_t)-1)
		return -ENOENT;
	*ret_gid = (gid_t)number;
	return 0;
}
