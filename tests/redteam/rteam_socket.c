/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A local user who is in no group that may gives himself all trouble to get at the admin
 * socket, from before the daemon starts on: no file mode is ever right for him, and were it
 * so, the daemon would not answer him.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define START_MS   4000 /* the daemon starts and serves within */
#define SECOND_TRY "300"
#define MEMBERS	   "4242" /* a group that need not exist */

struct verdict {
	unsigned long absent;
	unsigned long refused;
	unsigned long other;
	unsigned long let_in;
	unsigned long served;
	unsigned long open;
};

static bool read_line(int fd, char *line, size_t cap_bytes)
{
	size_t used = 0;

	while (used + 1 < cap_bytes && read(fd, line + used, 1) == 1) {
		if (line[used++] == '\n')
			break;
	}
	line[used] = '\0';
	return used > 0;
}

/* @group: a number, or NULL */
static pid_t nobody_start(const char *path, const char *ms, const char *group, int *ret_out)
{
	char program[4096];
	const char *argv[] = {harness_program("rteam_nobody", program), path, ms, group, NULL};
	char line[64];
	pid_t pid = harness_spawn(argv, ret_out);

	return pid > 0 && read_line(*ret_out, line, sizeof(line)) ? pid : -1;
}

static void nobody_end(pid_t pid, int out, struct verdict *ret_verdict)
{
	char line[256];
	int status;

	CHECK(read_line(out, line, sizeof(line)));
	CHECK_INT(waitpid(pid, &status, 0), pid);
	close(out);
	printf("# S11 nobody: %s", line);
	CHECK_INT(sscanf(line, "absent %lu refused %lu other %lu let-in %lu served %lu open %lu",
			 &ret_verdict->absent, &ret_verdict->refused, &ret_verdict->other,
			 &ret_verdict->let_in, &ret_verdict->served, &ret_verdict->open),
		  6);
}

/* What somebody comes to who tries for a while. */
static void nobody_try(const char *path, const char *group, struct verdict *ret_verdict)
{
	pid_t pid;
	int out;

	pid = nobody_start(path, SECOND_TRY, group, &out);
	CHECK(pid > 0);
	nobody_end(pid, out, ret_verdict);
}

static void restore_umask(const mode_t *mask)
{
	(void)umask(*mask);
}

TEST(socket__nobody_is_never_let_in)
{
	/* The widest there is: the daemon is not to rely on it. */
	__attribute__((cleanup(restore_umask))) mode_t mask = umask(0);
	__attribute__((cleanup(harness_cleanup))) struct harness h = {.dir = "/tmp/itest.XXXXXX"};
	char path[HARNESS_TEXT_MAX];
	struct verdict verdict = {0};
	struct stat st;
	char ms[16];
	pid_t pid;
	int out;

	(void)mask; /* only put back */
	if (geteuid() != 0)
		SKIP("only root can become nobody");
	CHECK(mkdtemp(h.dir) != NULL);
	/* It is the socket that is to refuse, not the folder. */
	CHECK_INT(chmod(h.dir, 0755), 0);
	harness_socket(&h, path);
	snprintf(ms, sizeof(ms), "%d", START_MS);
	pid = nobody_start(path, ms, NULL, &out);
	CHECK(pid > 0);
	CHECK_INT(harness_start(&h, &(struct harness_options){0}), 0);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0660);
	nobody_end(pid, out, &verdict);
	CHECK(!test_has_failed());
	CHECK(verdict.absent > 0);
	CHECK(verdict.refused > 0);
	CHECK_INT(verdict.other, 0);
	CHECK_INT(verdict.let_in, 0);
	CHECK_INT(verdict.open, 0);
	/* With the mode wrong he connects: that was not for want of trying. But nobody listens. */
	CHECK_INT(chmod(path, 0666), 0);
	nobody_try(path, NULL, &verdict);
	CHECK(!test_has_failed());
	CHECK(verdict.let_in > 0);
	CHECK(verdict.open > 0);
	CHECK_INT(verdict.served, 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(socket__only_members_of_the_group)
{
	__attribute__((cleanup(harness_cleanup))) struct harness h = {.dir = "/tmp/itest.XXXXXX"};
	struct verdict verdict = {0};
	char path[HARNESS_TEXT_MAX];
	struct stat st;

	if (geteuid() != 0)
		SKIP("only root can become nobody");
	CHECK(mkdtemp(h.dir) != NULL);
	CHECK_INT(chmod(h.dir, 0755), 0);
	harness_socket(&h, path);
	CHECK_INT(harness_start(&h, &(struct harness_options){.extra = "\"admin_group\": \"" MEMBERS
								       "\""}),
		  0);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0660);
	CHECK_INT(st.st_gid, strtoul(MEMBERS, NULL, 10));
	nobody_try(path, NULL, &verdict);
	CHECK(!test_has_failed());
	CHECK(verdict.refused > 0);
	CHECK_INT(verdict.let_in, 0);
	nobody_try(path, MEMBERS, &verdict);
	CHECK(!test_has_failed());
	CHECK_INT(verdict.refused, 0);
	CHECK(verdict.let_in > 0);
	CHECK_INT(verdict.served, verdict.let_in);
	CHECK_INT(harness_stop(&h), 0);
}
