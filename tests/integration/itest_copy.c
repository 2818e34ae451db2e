/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempool-cp with a real daemon: what is copied in comes out again, what cannot be leaves nothing
 * behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/place.h"
#include "tests/integration/programs.h"

#define LIMIT_MS    90000
#define ODD_BYTES   (9 * MIB + 12345) /* no multiple of anything that a copy is cut into */
#define GRACE	    "\"orphan_grace\": \"1min\""
#define COMMAND_MAX 2048

extern char **environ;

static struct harness_output output;

#define RUN(place, name, ...) programs_run(place, name, PROGRAMS_ARGS(__VA_ARGS__), &output)

static void check_kept(struct harness *h, uint64_t len_bytes)
{
	json_t *result;
	const json_t *lease;

	CHECK(harness_wait_number(h, "leases.orphaned", 1, 10000));
	result = harness_call(h, "lease.list", NULL);
	lease = json_array_get(json_object_get(result, "leases"), 0);
	CHECK_INT(json_integer_value(json_object_get(lease, "len_bytes")), len_bytes);
	json_decref(result);
}

TEST(cp__a_file_there_and_back)
{
	HARNESS(h, .pool_size = "32MiB", .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];
	struct stat st;

	programs_lease(&place, lease);
	CHECK_INT(place_write(&place, "in", ODD_BYTES, 1), 0);
	place_path(&place, "in", in);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(stat(lease + strlen("lease:"), &st), 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	check_kept(&h, ODD_BYTES);
	/* It can be had more than once. */
	place_path(&place, "out1", out);
	CHECK_INT(RUN(&place, "mempool-cp", lease, out), 0);
	CHECK_INT(place_holds(&place, "out1", ODD_BYTES, 1), 1);
	check_kept(&h, ODD_BYTES);
	place_path(&place, "out2", out);
	CHECK_INT(RUN(&place, "mempool-cp", "--release", lease, out), 0);
	CHECK_INT(place_holds(&place, "out2", ODD_BYTES, 1), 1);
	CHECK(!programs_has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__one_byte)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];

	programs_lease(&place, lease);
	CHECK_INT(place_write(&place, "in", 1, 2), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 0);
	check_kept(&h, 1);
	CHECK_INT(RUN(&place, "mempool-cp", lease, place_path(&place, "out", out)), 0);
	CHECK_INT(place_holds(&place, "out", 1, 2), 1);
	CHECK_INT(harness_stop(&h), 0);
}

static int run_shell(const struct place *place, const char *format)
{
	char program[PATH_MAX], command[COMMAND_MAX];
	const char *argv[] = {
		"sh",		"-c",	    command,	harness_program("mempool-cp", program),
		place->address, place->key, place->dir, NULL};

	snprintf(command, sizeof(command), "cd \"$3\" && %s", format);
	(void)harness_run(argv, LIMIT_MS, &output);
	return output.status;
}

#define CP "\"$0\" --daemon \"$1\" --key-file \"$2\" --timeout 60s "

/* Its length is not known, so the lease grows; then it is as long as what came. */
TEST(cp__through_pipes)
{
	HARNESS(h, .pool_size = "32MiB", .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", ODD_BYTES, 3), 0);
	CHECK_INT(run_shell(&place, "cat in | " CP "- lease:token"), 0);
	CHECK_STR(output.err, "");
	check_kept(&h, ODD_BYTES);
	CHECK_INT(run_shell(&place, CP "lease:token - | cat >out"), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(place_holds(&place, "out", ODD_BYTES, 3), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* Exactly what was asked for goes, one byte more does not, and leaves nothing behind. */
TEST(cp__through_a_pipe_of_a_size)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", MIB + 1, 4), 0);
	CHECK_INT(run_shell(&place, "cat in | " CP "--size 1MiB - lease:token"), 1);
	CHECK(strstr(output.err, "- is longer than the lease") != NULL);
	CHECK(!programs_has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(run_shell(&place, "head -c 1048576 in | " CP "--size 1MiB - lease:token"), 0);
	check_kept(&h, MIB);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__what_is_longer_than_the_pool_is_refused)
{
	HARNESS(h, .pool_size = "8MiB", .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];

	programs_lease(&place, lease);
	CHECK_INT(place_write(&place, "in", ODD_BYTES, 5), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 1);
	CHECK(strstr(output.err, "error -1011") != NULL);
	CHECK(!programs_has_token(&place));
	CHECK_INT(run_shell(&place, "cat in | " CP "- lease:token"), 1);
	CHECK(strstr(output.err, "the lease cannot get the length that is needed") != NULL);
	CHECK(!programs_has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__files_that_are_of_no_use)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];

	programs_lease(&place, lease);
	place_path(&place, "in", in);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 1);
	CHECK(strstr(output.err, "No such file") != NULL);
	CHECK(!programs_has_token(&place));
	CHECK_INT(place_write(&place, "in", 0, 6), 0);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 1);
	CHECK(strstr(output.err, "is empty") != NULL);
	CHECK(!programs_has_token(&place));
	/* A token is never written over. */
	CHECK_INT(place_write(&place, "in", 10, 6), 0);
	CHECK_INT(place_write(&place, "token", 10, 7), 0);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 1);
	CHECK(strstr(output.err, "File exists") != NULL);
	CHECK_INT(place_holds(&place, "token", 10, 7), 1);
	CHECK_INT(RUN(&place, "mempool-cp", lease, place_path(&place, "out", out)), 1);
	CHECK(strstr(output.err, "not the token of a lease") != NULL);
	CHECK_INT(harness_stop(&h), 0);
}

/* A lease that has ended: the file that was to be written is not touched. */
TEST(cp__back_from_a_lease_that_is_gone)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];

	programs_lease(&place, lease);
	CHECK_INT(place_write(&place, "in", 10, 8), 0);
	place_path(&place, "in", in);
	CHECK_INT(RUN(&place, "mempool-cp", "--ttl", "1s", in, lease), 0);
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(RUN(&place, "mempool-cp", lease, in), 1);
	CHECK(strstr(output.err, "the lease cannot be had: error -103") != NULL);
	CHECK_INT(place_holds(&place, "in", 10, 8), 1);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__another_tenant_does_not_get_it)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	PLACE(other, "beta");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];

	programs_lease(&place, lease);
	place_path(&place, "out", out);
	CHECK_INT(place_write(&place, "in", 10, 9), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 0);
	CHECK_INT(RUN(&other, "mempool-cp", lease, out), 1);
	CHECK(strstr(output.err, "error -1030") != NULL);
	CHECK(access(out, F_OK) < 0);
	CHECK_INT(RUN(&place, "mempool-cp", lease, out), 0);
	CHECK_INT(place_holds(&place, "out", 10, 9), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* It is renewed while nothing comes; its time runs from the end of the copy. */
TEST(cp__a_source_that_pauses_for_longer_than_the_lease_lasts)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", 2 * MIB, 10), 0);
	CHECK_INT(run_shell(&place, "(head -c 1000000 in; sleep 4; tail -c +1000001 in) | " CP
				    "--ttl 3s - lease:token"),
		  0);
	CHECK_STR(output.err, "");
	CHECK_INT(run_shell(&place, CP "lease:token out"), 0);
	CHECK_INT(place_holds(&place, "out", 2 * MIB, 10), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* Else the library's first connection is opened in its place. */
TEST(cp__without_standard_output)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", 1000, 14), 0);
	CHECK_INT(run_shell(&place, CP "in lease:token >&-"), 0);
	CHECK_INT(run_shell(&place, CP "--release lease:token - >&-"), 1);
	CHECK(strstr(output.err, "-: Bad file descriptor") != NULL);
	CHECK(programs_has_token(&place));
	CHECK_INT(run_shell(&place, CP "lease:token out"), 0);
	CHECK_INT(place_holds(&place, "out", 1000, 14), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* Runs it with a terminal as standard error; what it wrote there is in output.err. */
static int run_on_terminal(const char *const *argv)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	posix_spawn_file_actions_t actions;
	size_t used = 0;
	int status = -1;
	ssize_t n;
	pid_t pid;

	if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, ptsname(terminal),
					 O_RDWR | O_NOCTTY, 0);
	if (posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ) == 0) {
		/* Ends with EIO when the last one that has it open is gone. */
		while (used < sizeof(output.err) - 1 &&
		       (n = read(terminal, output.err + used, sizeof(output.err) - 1 - used)) > 0)
			used += (size_t)n;
		(void)waitpid(pid, &status, 0);
	}
	output.err[used] = '\0';
	posix_spawn_file_actions_destroy(&actions);
	close(terminal);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(cp__shows_progress_on_a_terminal_only)
{
	HARNESS(h, .pool_size = "32MiB", .extra = GRACE);
	PLACE(place, "alpha");
	char program[PATH_MAX], lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];
	const char *argv[] = {harness_program("mempool-cp", program),
			      "--daemon",
			      place.address,
			      "--key-file",
			      place.key,
			      place_path(&place, "in", in),
			      programs_lease(&place, lease),
			      NULL};

	CHECK_INT(place_write(&place, "in", ODD_BYTES, 11), 0);
	CHECK_INT(run_on_terminal(argv), 0);
	CHECK(strstr(output.err, "100 %  9.01 MiB of 9.01 MiB") != NULL);
	CHECK(strchr(output.err, '=') != NULL);
	place_path(&place, "out", out);
	CHECK_INT(RUN(&place, "mempool-cp", lease, out), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(RUN(&place, "mempool-cp", "--progress", lease, out), 0);
	CHECK(strstr(output.err, "100 %") != NULL);
	CHECK_INT(RUN(&place, "mempool-cp", "--progress", "--quiet", lease, out), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__wrong_use)
{
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-cp", "a"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "a", "b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "lease:a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "lease:", "b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--release", "a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--size", "1MiB", "lease:a", "b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--size", "0", "a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--ttl", "1", "a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--version"), 0);
	CHECK(strncmp(output.out, "mempool-cp ", 11) == 0);
}

TEST(cp__without_a_daemon)
{
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];

	CHECK_INT(place_write(&place, "in", 10, 12), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in),
		      programs_lease(&place, lease)),
		  3);
	CHECK(!programs_has_token(&place));
}
