/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The examples do what they say, with a real daemon.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/place.h"

#define LIMIT_MS 60000

static struct harness_output output;

/* @third, @fourth: further arguments, or NULL. Return: the exit status. */
static int run_with(const struct place *place, const char *name, const char *third,
		    const char *fourth)
{
	char program[PATH_MAX];
	const char *argv[] = {
		harness_program(name, program), place->address, place->key, third, fourth, NULL};

	(void)harness_run(argv, LIMIT_MS, &output);
	if (output.status != 0)
		printf("# %s: status %d\n# %s\n# %s\n", name, output.status, output.out,
		       output.err);
	return output.status;
}

static int run(const struct place *place, const char *name)
{
	return run_with(place, name, NULL, NULL);
}

static bool says(const char *text)
{
	if (strstr(output.out, text) != NULL)
		return true;
	printf("# not said: %s\n# but: %s\n", text, output.out);
	return false;
}

/* Nothing is left of what an example had. */
static void check_all_given_back(struct harness *h)
{
	CHECK(harness_wait_number(h, "sessions", 0, 10000));
	CHECK(harness_wait_number(h, "leases.active", 0, 10000));
	CHECK_INT(harness_stop(h), 0);
}

TEST(examples__hello)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-01-hello"), 0);
	CHECK(says("read back: hello, memory of another machine\n"));
	check_all_given_back(&h);
}

TEST(examples__hello_without_a_daemon)
{
	PLACE(place, "alpha");
	char program[PATH_MAX];
	const char *argv[] = {harness_program("example-01-hello", program), place.address,
			      place.key, NULL};

	CHECK_INT(harness_run(argv, LIMIT_MS, &output), 0);
	CHECK_INT(output.status, 1);
	CHECK(strstr(output.err, "error -10") != NULL);
}

TEST(examples__errors)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-02-errors"), 0);
	CHECK(says("write past its end: -1044, "));
	CHECK(says("write after its time: -1031, "));
	check_all_given_back(&h);
}

TEST(examples__renew)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-03-renew"), 0);
	CHECK(says("20 rounds of 200 ms with a lease of 2000 ms, renewed "));
	check_all_given_back(&h);
}

TEST(examples__many)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-04-many"), 0);
	CHECK(says("16 blocks of 65536 bytes hold what was written\n"));
	check_all_given_back(&h);
}

TEST(examples__modify)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-05-modify"), 0);
	CHECK(says("sealed with 300000 bytes\n"));
	check_all_given_back(&h);
}

TEST(examples__token)
{
	HARNESS(h, .extra = "\"orphan_grace\": \"1min\"");
	PLACE(place, "alpha");
	char token[PLACE_TEXT_MAX];
	struct stat st;

	(void)umask(022);
	place_path(&place, "token", token);
	CHECK_INT(run_with(&place, "example-06-token", "leave", token), 0);
	CHECK(says("gone without closing\n"));
	CHECK_INT(stat(token, &st), 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	CHECK_INT(run_with(&place, "example-06-token", "return", token), 0);
	CHECK(says("found: left behind\n"));
	CHECK(access(token, F_OK) < 0);
	check_all_given_back(&h);
}

TEST(examples__threads)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-07-threads"), 0);
	CHECK(says("4 threads, 4 of them without a mistake\n"));
	check_all_given_back(&h);
}

/* Its device may be one that cannot: then the example says so, and has nothing. */
TEST(examples__atomic)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");
	int status = run(&place, "example-08-atomic");

	if (status == 1 && strstr(output.err, "error -1016") != NULL) {
		check_all_given_back(&h);
		SKIP("the device does not keep atomics inside their window");
	}
	CHECK_INT(status, 0);
	CHECK(says("100 of 100 tickets were given once, 1 of 4 threads leads\n"));
	check_all_given_back(&h);
}

TEST(examples__buffers)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-09-buffers"), 0);
	CHECK(says("cache: 1 misses, 1 hits, 1 entries\n"
		   "cache: 1 misses, 1 hits, 0 entries\n"
		   "all bytes came back\n"));
	check_all_given_back(&h);
}

TEST(examples__queue)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(run(&place, "example-10-queue"), 0);
	CHECK(says("1000 blocks there and back, 32 at a time\n"));
	check_all_given_back(&h);
}
