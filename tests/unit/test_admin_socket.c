/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of daemon/admin_socket.c: whose the socket file is, what rights it has, and who is let
 * in. Other users are children that have become them, which only the superuser can.
 */
#include "daemon/admin_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/unit/test.h"

#define NOBODY	65534
#define MEMBERS 4242 /* a group that need not exist */
#define WAIT_MS 5000

struct place {
	char dir[64];
	char path[96];
	struct admin_socket *door;
};

static void place_make(struct place *p)
{
	log_set_level(LOG_LEVEL_ERROR);
	*p = (struct place){.dir = "/tmp/test_door.XXXXXX"};
	if (!mkdtemp(p->dir) || chmod(p->dir, 0755) < 0)
		abort();
	snprintf(p->path, sizeof(p->path), "%s/admin.sock", p->dir);
}

static void place_free(struct place *p)
{
	char lock_path[128];

	admin_socket_free(p->door);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", p->path);
	unlink(lock_path);
	unlink(p->path);
	rmdir(p->dir);
}

#define PLACE(p)                                                \
	struct place __attribute__((cleanup(place_free))) p##_; \
	struct place *p = &p##_;                                \
	place_make(p)

static mode_t mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_mode : 0;
}

static void address_of(const char *path, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "%.100s", path);
}

static int connect_to(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	address_of(path, &address);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -errno;
}

/* A child that is somebody else, connects, and says how it was received. */
static pid_t other_user(const struct place *p, gid_t gid, gid_t further)
{
	pid_t pid = fork();
	char answer[256];
	int fd;

	if (pid != 0)
		return pid;
	if (setgroups(1, &further) < 0 || setgid(gid) < 0 || setuid(NOBODY) < 0)
		_exit(99);
	fd = connect_to(p->path);
	if (fd < 0)
		_exit(fd == -EACCES ? 1 : 98);
	/* The door says something only to those that it does not let in; else the test writes. */
	if (read(fd, answer, sizeof(answer)) <= 0)
		_exit(97);
	_exit(strstr(answer, "may not use") != NULL ? 2 : 0);
}

enum received {
	SERVED = 0,
	NO_ENTRY = 1, /* by the file's rights */
	SENT_AWAY = 2,
};

/* Return: enum received, or what else became of the child. */
static int receive(const struct place *p, gid_t gid, gid_t further)
{
	pid_t pid = other_user(p, gid, further);
	struct pollfd ready = {.fd = admin_socket_fd(p->door), .events = POLLIN};
	int status, fd = -EAGAIN;

	/* It may be refused before it gets here. */
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (poll(&ready, 1, 10) == 1)
			fd = admin_socket_accept(p->door);
		if (fd >= 0) {
			(void)!write(fd, "yes\n", 4);
			close(fd);
			fd = -EAGAIN;
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(admin_socket__rights)
{
	static const mode_t masks[] = {0, 022, 077, 0777};
	struct stat st;

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		PLACE(p);
		mode_t old = umask(masks[i]);

		CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
		CHECK_INT(admin_socket_listen(p->door), 0);
		umask(old);
		CHECK_INT(mode_of(p->path), S_IFSOCK | 0660);
		CHECK_INT(stat(p->path, &st), 0);
		CHECK_INT(st.st_gid, getegid());
	}
}

TEST(admin_socket__nothing_before_listen)
{
	PLACE(p);

	CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
	CHECK_INT(connect_to(p->path), -ENOENT);
	CHECK_INT(admin_socket_listen(p->door), 0);
	CHECK_INT(admin_socket_accept(p->door), -EAGAIN);
}

TEST(admin_socket__second_daemon)
{
	struct admin_socket *second = NULL;
	PLACE(p);

	/* The place is taken from the first step on. */
	CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
	CHECK_INT(admin_socket_new(p->path, getegid(), &second), -EADDRINUSE);
	CHECK_INT(admin_socket_listen(p->door), 0);
	CHECK_INT(admin_socket_new(p->path, getegid(), &second), -EADDRINUSE);
	CHECK(second == NULL);
	CHECK_INT(mode_of(p->path), S_IFSOCK | 0660);
	p->door = admin_socket_free(p->door);
	CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
}

static int bind_there(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	address_of(path, &address);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		abort();
	return fd;
}

TEST(admin_socket__stale_socket_of_ours)
{
	PLACE(p);

	close(bind_there(p->path));
	CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
	CHECK_INT(admin_socket_listen(p->door), 0);
	CHECK_INT(mode_of(p->path), S_IFSOCK | 0660);
}

TEST(admin_socket__stale_socket_of_another)
{
	PLACE(p);

	if (geteuid() != 0)
		SKIP("only root can give a file away");
	close(bind_there(p->path));
	CHECK_INT(chown(p->path, NOBODY, NOBODY), 0);
	CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
	CHECK_INT(admin_socket_listen(p->door), -EEXIST);
	p->door = admin_socket_free(p->door);
	CHECK(S_ISSOCK(mode_of(p->path)));
}

/* Whatever is there and no socket stays, with its content. */
TEST(admin_socket__other_files)
{
	static const char *const kinds[] = {"file", "folder", "link", "dangling link"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		PLACE(p);
		struct stat before, after;
		int r = 0;

		if (i == 0)
			r = close(open(p->path, O_CREAT | O_WRONLY, 0600));
		else if (i == 1)
			r = mkdir(p->path, 0700);
		else
			r = symlink(i == 2 ? "/dev/null" : "/nonesuch/x", p->path);
		CHECK_INT(r, 0);
		CHECK_INT(lstat(p->path, &before), 0);
		CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
		CHECK_INT(admin_socket_listen(p->door), -ENOTSOCK);
		p->door = admin_socket_free(p->door);
		CHECK_INT(lstat(p->path, &after), 0);
		CHECK_INT(after.st_ino, before.st_ino);
		CHECK_INT(after.st_mode, before.st_mode);
		if (i == 1)
			CHECK_INT(rmdir(p->path), 0);
	}
}

TEST(admin_socket__may)
{
	static const gid_t many[] = {1, 2, MEMBERS};
	PLACE(p);

	CHECK_INT(admin_socket_new(p->path, MEMBERS, &p->door), 0);
	CHECK(admin_socket_may(p->door, 0, 5, NULL, 0));
	CHECK(admin_socket_may(p->door, geteuid(), 5, NULL, 0));
	CHECK(admin_socket_may(p->door, NOBODY, MEMBERS, NULL, 0));
	CHECK(admin_socket_may(p->door, NOBODY, 5, many, 3));
	CHECK(!admin_socket_may(p->door, NOBODY, 5, many, 2));
	CHECK(!admin_socket_may(p->door, NOBODY, 0, NULL, 0));
	p->door = admin_socket_free(p->door);
	/* A number that stands for many is no group, whoever has configured it. */
	CHECK_INT(admin_socket_new(p->path, NOBODY, &p->door), 0);
	CHECK(!admin_socket_may(p->door, 1, NOBODY, NULL, 0));
	CHECK(!admin_socket_may(p->door, NOBODY, 5, (const gid_t[]){NOBODY}, 1));
	CHECK(admin_socket_may(p->door, 0, NOBODY, NULL, 0));
}

TEST(admin_socket__members_of_the_group)
{
	PLACE(p);

	if (geteuid() != 0)
		SKIP("only root can become somebody else");
	CHECK_INT(admin_socket_new(p->path, MEMBERS, &p->door), 0);
	CHECK_INT(admin_socket_listen(p->door), 0);
	CHECK_INT(receive(p, MEMBERS, NOBODY), SERVED);
	CHECK_INT(receive(p, NOBODY, MEMBERS), SERVED);
	CHECK_INT(receive(p, NOBODY, NOBODY), NO_ENTRY);
	/* The second fence: the file's rights are wrong, and it still holds. */
	CHECK_INT(chmod(p->path, 0666), 0);
	CHECK_INT(receive(p, NOBODY, NOBODY), SENT_AWAY);
	CHECK_INT(receive(p, NOBODY, MEMBERS), SERVED);
}

TEST(admin_socket__adopted)
{
	PLACE(p);
	int fd = bind_there(p->path), pair[2], client;

	CHECK_INT(admin_socket_new(p->path, getegid(), &p->door), 0);
	CHECK_INT(admin_socket_adopt(p->door, fd), -EINVAL);
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	CHECK_INT(admin_socket_adopt(p->door, pair[0]), -EINVAL);
	CHECK_INT(admin_socket_adopt(p->door, 1000), -EBADF);
	close(pair[0]);
	close(pair[1]);
	CHECK_INT(pipe(pair), 0);
	CHECK_INT(admin_socket_adopt(p->door, pair[0]), -ENOTSOCK);
	close(pair[0]);
	close(pair[1]);
	CHECK_INT(listen(fd, 1), 0);
	CHECK_INT(chmod(p->path, 0600), 0);
	CHECK_INT(admin_socket_adopt(p->door, fd), 0);
	CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK_INT(admin_socket_listen(p->door), 0);
	CHECK_INT(admin_socket_accept(p->door), -EAGAIN);
	client = connect_to(p->path);
	CHECK(client >= 0);
	CHECK_INT(close(admin_socket_accept(p->door)), 0);
	p->door = admin_socket_free(p->door);
	/* Its file is its maker's. */
	CHECK_INT(mode_of(p->path), S_IFSOCK | 0600);
	CHECK_INT(fcntl(fd, F_GETFD), -1);
	close(client);
}

TEST(admin_socket_group__names)
{
	gid_t gid = 1;

	CHECK_INT(admin_socket_group("", &gid), 0);
	CHECK_INT(gid, getegid());
	CHECK_INT(admin_socket_group("root", &gid), 0);
	CHECK_INT(gid, 0);
	CHECK_INT(admin_socket_group("4242", &gid), 0);
	CHECK_INT(gid, 4242);
	CHECK_INT(admin_socket_group("nonesuch-group", &gid), -ENOENT);
	CHECK_INT(admin_socket_group("4294967294", &gid), 0);
	CHECK_INT(admin_socket_group("4294967295", &gid), -ENOENT);
	CHECK_INT(admin_socket_group("99999999999999999999", &gid), -ENOENT);
}
