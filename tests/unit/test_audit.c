/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/audit.c: each line as it is to be, and that no line disappears without a word,
 * whatever happens to its sink.
 */
#include "daemon/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "proto/message.h"
#include "tests/unit/abort.h"
#include "tests/unit/test.h"

#define S	 CLOCK_NS_PER_S
#define TEXT_CAP 65536

/* A folder of its own for the files of a case. */
struct place {
	char folder[32];
	char path[64];
	char other[64];
};

static struct place make_place(void)
{
	struct place place = {.folder = "/tmp/test_audit.XXXXXX"};

	if (mkdtemp(place.folder) == NULL)
		abort();
	snprintf(place.path, sizeof(place.path), "%s/audit", place.folder);
	snprintf(place.other, sizeof(place.other), "%s/audit.1", place.folder);
	return place;
}

static void remove_place(const struct place *place)
{
	(void)unlink(place->path);
	(void)unlink(place->other);
	(void)rmdir(place->folder);
}

/* All of a file, with the time of day taken off each line; a line without one stays as it is. */
static const char *read_lines(const char *path, char *text)
{
	char *line = NULL;
	size_t cap = 0, used = 0;
	FILE *file = fopen(path, "r");

	text[0] = '\0';
	if (file == NULL)
		return "no file";
	while (getline(&line, &cap, file) > 0) {
		int n[7], end = 0;

		(void)sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &n[0], &n[1], &n[2], &n[3],
			     &n[4], &n[5], &n[6], &end);
		used += (size_t)snprintf(text + used, TEXT_CAP - used, "%s",
					 end == 25 ? line + end : line);
	}
	free(line);
	(void)fclose(file);
	return text;
}

static const struct audit_record granted = {
	.event = AUDIT_LEASE_GRANTED,
	.tenant = "blue",
	.session_id = 0x1f,
	.lease_id = 0x2a,
	.generation = 1,
	.len_bytes = 4096,
	.rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE,
	.duration_ms = 30000,
	.peer = "192.0.2.7:4791",
};

#define GRANTED                                                                        \
	"audit: event=lease-granted tenant=blue session=0x1f lease=0x2a generation=1 " \
	"bytes=4096 rights=rw- reason=- duration_ms=30000 peer=192.0.2.7:4791\n"

/* What a line with these fields looks like in a file. */
static const char *line_of(const struct audit_record *record, char *text)
{
	struct place place = make_place();
	struct audit *audit;

	if (audit_new(place.path, 1, &audit) != 0)
		abort();
	audit_write(audit, record, 0);
	audit_free(audit);
	(void)read_lines(place.path, text);
	remove_place(&place);
	return text;
}

static void write_lines(struct audit *audit, int count, enum audit_event event, uint64_t now_ns)
{
	for (int i = 0; i < count; i++)
		audit_write(audit, &(struct audit_record){.event = event}, now_ns);
}

static size_t count_of(const char *text, const char *what)
{
	size_t count = 0;

	for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
		count++;
	return count;
}

TEST(audit_write__all_fields)
{
	struct audit_record record = granted;
	char text[TEXT_CAP];

	CHECK_STR(line_of(&record, text), GRANTED);
	record = (struct audit_record){
		.event = AUDIT_LEASE_ENDED,
		.tenant = "blue",
		.session_id = UINT64_MAX,
		.lease_id = UINT64_MAX,
		.generation = UINT32_MAX,
		.len_bytes = UINT64_MAX,
		.rights = MESSAGE_RIGHTS_ALL,
		.reason = "expired",
		.duration_ms = UINT64_MAX,
		.peer = "[2001:db8::1]:4791",
	};
	CHECK_STR(line_of(&record, text),
		  "audit: event=lease-ended tenant=blue session=0xffffffffffffffff "
		  "lease=0xffffffffffffffff generation=4294967295 bytes=18446744073709551615 "
		  "rights=rwa reason=expired duration_ms=18446744073709551615 "
		  "peer=[2001:db8::1]:4791\n");
}

TEST(audit_write__each_event)
{
	static const struct {
		enum audit_event event;
		const char *name;
		const char *duration; /* if it is given as 0 */
	} cases[] = {
		{AUDIT_SESSION_OPENED, "session-opened", "-"},
		{AUDIT_SESSION_ENDED, "session-ended", "0"},
		{AUDIT_LEASE_GRANTED, "lease-granted", "0"},
		{AUDIT_LEASE_RENEWED, "lease-renewed", "0"},
		{AUDIT_LEASE_MODIFIED, "lease-modified", "0"},
		{AUDIT_LEASE_ENDED, "lease-ended", "0"},
		{AUDIT_LEASE_ORPHANED, "lease-orphaned", "0"},
		{AUDIT_LEASE_REATTACHED, "lease-reattached", "0"},
		{AUDIT_TENANT_BANNED, "tenant-banned", "0"},
		{AUDIT_TENANT_UNBANNED, "tenant-unbanned", "-"},
		{AUDIT_ADDRESS_BANNED, "address-banned", "0"},
		{AUDIT_ADMIN, "admin", "-"},
	};

	CHECK_INT(sizeof(cases) / sizeof(cases[0]), AUDIT_EVENTS);
	for (size_t i = 0; i < AUDIT_EVENTS; i++) {
		struct audit_record record = {.event = cases[i].event};
		char text[TEXT_CAP], expected[512];

		snprintf(expected, sizeof(expected),
			 "audit: event=%s tenant=- session=- lease=- generation=- bytes=- "
			 "rights=- reason=- duration_ms=%s peer=-\n",
			 cases[i].name, cases[i].duration);
		CHECK_STR(line_of(&record, text), expected);
	}
}

TEST(audit_write__rights)
{
	static const char *const words[] = {"-", "r--", "-w-", "rw-", "--a", "r-a", "-wa", "rwa"};

	for (uint32_t rights = 0; rights < 8; rights++) {
		struct audit_record record = {.event = AUDIT_ADMIN, .rights = rights};
		char text[TEXT_CAP], expected[32];

		snprintf(expected, sizeof(expected), " rights=%s reason=", words[rights]);
		CHECK(strstr(line_of(&record, text), expected) != NULL);
	}
}

/* Whoever chooses a text can forge neither a field nor a line. */
TEST(audit_write__escapes)
{
	struct audit_record record = {
		.event = AUDIT_ADMIN,
		.tenant = "a\naudit: event=admin",
		.reason = "revoke lease=0x1 \\ \"\x1b[2J\xff",
		.peer = "",
	};
	char text[TEXT_CAP];

	CHECK_STR(line_of(&record, text),
		  "audit: event=admin tenant=a\\x0aaudit:\\x20event=admin session=- lease=- "
		  "generation=- bytes=- rights=- "
		  "reason=revoke\\x20lease=0x1\\x20\\\\\\x20\"\\x1b[2J\\xff duration_ms=- "
		  "peer=\n");
	CHECK_INT(count_of(text, " "), 10);
	/* A text that is the sign for none. */
	record = (struct audit_record){.event = AUDIT_ADMIN, .tenant = "-", .reason = "--"};
	CHECK(strstr(line_of(&record, text), " tenant=\\x2d session=") != NULL);
	CHECK(strstr(text, " reason=-- duration_ms=") != NULL);
}

TEST(audit_write__long_text)
{
	struct audit_record record = {.event = AUDIT_ADMIN};
	char text[TEXT_CAP], long_text[10001], expected[128];

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[10000] = '\0';
	record.tenant = long_text;
	snprintf(expected, sizeof(expected), " tenant=%.64s... session=", long_text);
	CHECK(strstr(line_of(&record, text), expected) != NULL);
	long_text[65] = '\0';
	CHECK(strstr(line_of(&record, text), expected) != NULL);
	long_text[64] = '\0';
	snprintf(expected, sizeof(expected), " tenant=%.64s session=", long_text);
	CHECK(strstr(line_of(&record, text), expected) != NULL);
}

/* The longest line there can be is written whole. */
TEST(audit_write__longest_line)
{
	char text[TEXT_CAP], spaces[66];
	struct audit_record record = {
		.event = AUDIT_TENANT_BANNED,
		.tenant = spaces,
		.session_id = UINT64_MAX,
		.lease_id = UINT64_MAX,
		.generation = UINT32_MAX,
		.len_bytes = UINT64_MAX,
		.rights = MESSAGE_RIGHTS_ALL,
		.reason = spaces,
		.duration_ms = UINT64_MAX,
		.peer = spaces,
	};

	memset(spaces, ' ', sizeof(spaces) - 1);
	spaces[sizeof(spaces) - 1] = '\0';
	(void)line_of(&record, text);
	CHECK_INT(count_of(text, "\\x20"), 3 * 64);
	CHECK(strstr(text, "\\x20... session=") != NULL);
	CHECK_STR(text + strlen(text) - 8, "\\x20...\n");
}

TEST(audit_new__file_mode)
{
	struct place place = make_place();
	mode_t mask = umask(0);
	struct audit *audit;
	struct stat st;

	CHECK_INT(audit_new(place.path, 10, &audit), 0);
	umask(mask);
	CHECK_INT(stat(place.path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0640);
	audit_free(audit);
	remove_place(&place);
}

TEST(audit_new__appends)
{
	struct place place = make_place();
	char text[TEXT_CAP];

	for (int i = 0; i < 2; i++) {
		struct audit *audit;

		CHECK_INT(audit_new(place.path, 10, &audit), 0);
		audit_write(audit, &granted, 0);
		audit_free(audit);
	}
	CHECK_STR(read_lines(place.path, text), GRANTED GRANTED);
	remove_place(&place);
}

TEST(audit_new__wrong_path)
{
	struct place place = make_place();
	struct audit *audit = NULL;

	CHECK_INT(symlink(place.other, place.path), 0);
	CHECK_INT(audit_new(place.path, 10, &audit), -ELOOP);
	CHECK_INT(access(place.other, F_OK), -1);
	CHECK_INT(audit_new(place.folder, 10, &audit), -EISDIR);
	CHECK_INT(audit_new("/nonexistent/audit", 10, &audit), -ENOENT);
	CHECK_INT(unlink(place.path), 0);
	/* Nobody reads from it: it must not wait for one. */
	CHECK_INT(mkfifo(place.path, 0600), 0);
	CHECK_INT(audit_new(place.path, 10, &audit), -ENXIO);
	CHECK(audit == NULL);
	CHECK(audit_free(NULL) == NULL);
	remove_place(&place);
}

static void new_without_lines(void *arg)
{
	struct audit *audit;

	(void)audit_new(arg, 0, &audit);
}

TEST(audit_new__limit_of_none)
{
	CHECK(test_aborts(new_without_lines, NULL));
}

static int descriptor_of(const char *path)
{
	struct stat wanted, st;

	for (int fd = 3; fd < 64; fd++) {
		if (stat(path, &wanted) == 0 && fstat(fd, &st) == 0 && st.st_ino == wanted.st_ino &&
		    st.st_dev == wanted.st_dev)
			return fd;
	}
	return -1;
}

TEST(audit_new__descriptor_is_not_inherited)
{
	struct place place = make_place();
	struct audit *audit;
	int fd;

	CHECK_INT(audit_new(place.path, 10, &audit), 0);
	fd = descriptor_of(place.path);
	CHECK(fd >= 0);
	CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK((fcntl(fd, F_GETFL) & O_APPEND) != 0);
	CHECK_INT(audit_reopen(audit), 0);
	fd = descriptor_of(place.path);
	CHECK_INT(fcntl(fd, F_GETFD), FD_CLOEXEC);
	audit_free(audit);
	CHECK_INT(descriptor_of(place.path), -1);
	remove_place(&place);
}

TEST(audit_reopen__after_rotation)
{
	struct place place = make_place();
	struct audit_record ended = granted;
	char text[TEXT_CAP];
	struct audit *audit;

	ended.event = AUDIT_LEASE_ENDED;
	CHECK_INT(audit_new(place.path, 10, &audit), 0);
	audit_write(audit, &granted, 0);
	CHECK_INT(rename(place.path, place.other), 0);
	/* Until it is told it writes on into the old file. */
	audit_write(audit, &granted, 0);
	CHECK_INT(audit_reopen(audit), 0);
	CHECK_INT(descriptor_of(place.other), -1);
	audit_write(audit, &ended, 0);
	audit_free(audit);
	CHECK_STR(read_lines(place.other, text), GRANTED GRANTED);
	(void)read_lines(place.path, text);
	CHECK_INT(count_of(text, "\n"), 1);
	CHECK_INT(count_of(text, "event=lease-ended "), 1);
	remove_place(&place);
}

TEST(audit_reopen__cannot_be_opened)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 10, &audit), 0);
	CHECK_INT(rename(place.path, place.other), 0);
	CHECK_INT(symlink("/dev/null", place.path), 0);
	CHECK_INT(audit_reopen(audit), -ELOOP);
	audit_write(audit, &granted, 0);
	audit_free(audit);
	CHECK_STR(read_lines(place.other, text), GRANTED);
	remove_place(&place);
}

TEST(audit_write__limit_and_one_more)
{
	struct place place = make_place();
	struct audit_counts counts;
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 3, &audit), 0);
	write_lines(audit, 3, AUDIT_LEASE_GRANTED, 10 * S);
	CHECK_INT(audit_due_ns(audit), UINT64_MAX);
	CHECK_INT(count_of(read_lines(place.path, text), "\n"), 3);
	write_lines(audit, 1, AUDIT_LEASE_ENDED, 11 * S - 1);
	CHECK_INT(audit_due_ns(audit), 11 * S);
	CHECK_INT(count_of(read_lines(place.path, text), "\n"), 3);
	audit_counts(audit, &counts);
	CHECK_INT(counts.written, 3);
	CHECK_INT(counts.suppressed, 1);
	CHECK_INT(counts.lost, 0);
	audit_tick(audit, 11 * S - 1);
	CHECK_INT(count_of(read_lines(place.path, text), "\n"), 3);
	audit_tick(audit, 11 * S);
	(void)read_lines(place.path, text);
	CHECK_INT(count_of(text, "\n"), 4);
	CHECK_INT(count_of(text, "audit: 1 lines suppressed lease-ended=1\n"), 1);
	CHECK_INT(audit_due_ns(audit), UINT64_MAX);
	/* Said once. */
	audit_tick(audit, 12 * S);
	audit_free(audit);
	CHECK_INT(count_of(read_lines(place.path, text), "\n"), 4);
	remove_place(&place);
}

/* The next line comes before the timer: the summary is in front of it. */
TEST(audit_write__summary_before_the_next_line)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 1, &audit), 0);
	audit_write(audit, &granted, 0);
	write_lines(audit, 1, AUDIT_ADMIN, 0);
	write_lines(audit, 4, AUDIT_SESSION_OPENED, S / 2);
	write_lines(audit, 2, AUDIT_LEASE_ENDED, S - 1);
	audit_write(audit, &granted, S);
	/* The window begins with its first line. */
	audit_write(audit, &granted, 2 * S - 1);
	CHECK_INT(audit_due_ns(audit), 2 * S);
	audit_write(audit, &granted, 2 * S);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text), GRANTED
		  "audit: 7 lines suppressed session-opened=4 lease-ended=2 admin=1\n" GRANTED
		  "audit: 1 lines suppressed lease-granted=1\n" GRANTED);
	remove_place(&place);
}

TEST(audit_write__every_event_suppressed)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 1, &audit), 0);
	write_lines(audit, 1, AUDIT_ADMIN, 0);
	for (int i = 0; i < AUDIT_EVENTS; i++)
		write_lines(audit, i + 1, (enum audit_event)i, 0);
	audit_tick(audit, S);
	CHECK(strstr(read_lines(place.path, text),
		     "audit: 78 lines suppressed session-opened=1 session-ended=2 lease-granted=3 "
		     "lease-renewed=4 lease-modified=5 lease-ended=6 lease-orphaned=7 "
		     "lease-reattached=8 tenant-banned=9 tenant-unbanned=10 address-banned=11 "
		     "admin=12\n") != NULL);
	audit_free(audit);
	remove_place(&place);
}

TEST(audit_free__tells_what_was_suppressed)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 1, &audit), 0);
	audit_write(audit, &granted, 0);
	audit_write(audit, &granted, 0);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text),
		  GRANTED "audit: 1 lines suppressed lease-granted=1\n");
	remove_place(&place);
}

/* Each line of a flood is either there or in a summary. */
TEST(audit_write__flood_adds_up)
{
	struct place place = make_place();
	unsigned long long summed = 0;
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 7, &audit), 0);
	for (uint64_t i = 0; i < 10000; i++)
		audit_write(audit, &granted, i * S / 1000);
	audit_free(audit);
	(void)read_lines(place.path, text);
	CHECK_INT(count_of(text, "event=lease-granted "), 70);
	CHECK_INT(count_of(text, "lines suppressed"), 10);
	for (const char *at = strstr(text, "lease-granted="); at;
	     at = strstr(at + 1, "lease-granted="))
		summed += strtoull(at + strlen("lease-granted="), NULL, 10);
	CHECK_INT(summed, 10000 - 70);
	remove_place(&place);
}

TEST(audit_write__clock_goes_back)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;

	CHECK_INT(audit_new(place.path, 1, &audit), 0);
	write_lines(audit, 1, AUDIT_ADMIN, 100 * S);
	write_lines(audit, 1, AUDIT_ADMIN, 0);
	audit_tick(audit, 50 * S);
	CHECK_INT(count_of(read_lines(place.path, text), "\n"), 1);
	CHECK_INT(audit_due_ns(audit), 101 * S);
	audit_tick(audit, 101 * S);
	CHECK_INT(count_of(read_lines(place.path, text), "\n"), 2);
	audit_free(audit);
	remove_place(&place);
}

/* A file that cannot grow for a while: a limit on its size, which cuts a line in the middle. */
struct small {
	struct rlimit before;
	void (*handler)(int);
};

static struct small make_small(rlim_t bytes)
{
	struct small small = {.handler = signal(SIGXFSZ, SIG_IGN)};
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &small.before) != 0)
		abort();
	limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = small.before.rlim_max};
	if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
		abort();
	return small;
}

static void make_large(const struct small *small)
{
	if (setrlimit(RLIMIT_FSIZE, &small->before) != 0)
		abort();
	(void)signal(SIGXFSZ, small->handler);
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_size : -1;
}

TEST(audit_write__lost_is_told_when_writing_works)
{
	struct place place = make_place();
	struct audit_counts counts;
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;

	CHECK_INT(audit_new(place.path, 100, &audit), 0);
	audit_write(audit, &granted, 0);
	small = make_small((rlim_t)size_of(place.path));
	for (int i = 0; i < 3; i++)
		audit_write(audit, &granted, 0);
	make_large(&small);
	audit_write(audit, &granted, 0);
	CHECK_INT(audit_due_ns(audit), UINT64_MAX);
	audit_counts(audit, &counts);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text), GRANTED "audit: 3 lines lost\n" GRANTED);
	CHECK_INT(counts.written, 2);
	CHECK_INT(counts.lost, 3);
	remove_place(&place);
}

TEST(audit_tick__lost_is_told_without_a_further_line)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;

	CHECK_INT(audit_new(place.path, 2, &audit), 0);
	audit_write(audit, &granted, 0);
	small = make_small((rlim_t)size_of(place.path));
	for (int i = 0; i < 3; i++)
		audit_write(audit, &granted, 0);
	audit_tick(audit, 2 * S);
	CHECK_INT(audit_due_ns(audit), 3 * S);
	make_large(&small);
	audit_tick(audit, 3 * S - 1);
	CHECK_STR(read_lines(place.path, text), GRANTED);
	/* Both, in one go. */
	audit_tick(audit, 3 * S);
	CHECK_INT(audit_due_ns(audit), UINT64_MAX);
	CHECK_STR(read_lines(place.path, text),
		  GRANTED "audit: 1 lines lost\naudit: 2 lines suppressed lease-granted=2\n");
	audit_free(audit);
	remove_place(&place);
}

TEST(audit_free__tells_what_was_lost)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;

	CHECK_INT(audit_new(place.path, 2, &audit), 0);
	small = make_small(0);
	audit_write(audit, &granted, 0);
	make_large(&small);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text), "audit: 1 lines lost\n");
	remove_place(&place);
}

/* A part of a line counts as lost and does not run into the next one. */
TEST(audit_write__short_write)
{
	struct place place = make_place();
	struct audit_counts counts;
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;

	CHECK_INT(audit_new(place.path, 100, &audit), 0);
	audit_write(audit, &granted, 0);
	small = make_small((rlim_t)size_of(place.path) + 40);
	audit_write(audit, &granted, 0);
	audit_write(audit, &granted, 0);
	make_large(&small);
	audit_write(audit, &granted, 0);
	audit_counts(audit, &counts);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text),
		  GRANTED "audit: event=le\naudit: 2 lines lost\n" GRANTED);
	CHECK_INT(counts.lost, 2);
	remove_place(&place);
}

/* Nothing but the newline that a part lacks fits, then a part of the line after it. */
TEST(audit_write__short_write_twice)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;
	rlim_t at;

	CHECK_INT(audit_new(place.path, 100, &audit), 0);
	at = 40;
	small = make_small(at);
	audit_write(audit, &granted, 0);
	make_large(&small);
	small = make_small(at + 1);
	audit_write(audit, &granted, 0);
	make_large(&small);
	small = make_small(at + 1 + 30);
	audit_write(audit, &granted, 0);
	make_large(&small);
	audit_write(audit, &granted, 0);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text),
		  "audit: event=le\naudit\naudit: 3 lines lost\n" GRANTED);
	remove_place(&place);
}

/* The file that is rotated away keeps its part of a line; the new one begins with a line. */
TEST(audit_reopen__after_a_short_write)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;

	CHECK_INT(audit_new(place.path, 100, &audit), 0);
	small = make_small(40);
	audit_write(audit, &granted, 0);
	make_large(&small);
	/* Still the same file. */
	CHECK_INT(audit_reopen(audit), 0);
	audit_tick(audit, S);
	CHECK_STR(read_lines(place.path, text), "audit: event=le\naudit: 1 lines lost\n");
	small = make_small((rlim_t)size_of(place.path) + 40);
	audit_write(audit, &granted, S);
	make_large(&small);
	CHECK_INT(rename(place.path, place.other), 0);
	CHECK_INT(audit_reopen(audit), 0);
	audit_write(audit, &granted, S);
	audit_free(audit);
	CHECK_STR(read_lines(place.path, text), "audit: 1 lines lost\n" GRANTED);
	remove_place(&place);
}

/* A summary that could not be written is not forgotten. */
TEST(audit_tick__summary_is_lost)
{
	struct place place = make_place();
	char text[TEXT_CAP];
	struct audit *audit;
	struct small small;

	CHECK_INT(audit_new(place.path, 1, &audit), 0);
	audit_write(audit, &granted, 0);
	audit_write(audit, &granted, 0);
	small = make_small((rlim_t)size_of(place.path));
	audit_tick(audit, S);
	CHECK_INT(audit_due_ns(audit), 2 * S);
	audit_tick(audit, 2 * S);
	make_large(&small);
	write_lines(audit, 2, AUDIT_ADMIN, 2 * S);
	audit_tick(audit, 3 * S);
	audit_free(audit);
	(void)read_lines(place.path, text);
	CHECK_INT(count_of(text, "\n"), 4);
	CHECK_INT(count_of(text, "audit: 1 lines suppressed lease-granted=1\n"), 1);
	CHECK_INT(count_of(text, "audit: 1 lines suppressed admin=1\n"), 1);
	CHECK_INT(count_of(text, "lost"), 0);
	remove_place(&place);
}

struct capture {
	int saved_fd;
	int read_fd;
};

static struct capture capture_begin(void)
{
	struct capture capture;
	char stream[64];
	struct stat st;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		abort();
	capture.saved_fd = dup(STDERR_FILENO);
	capture.read_fd = fds[0];
	(void)dup2(fds[1], STDERR_FILENO);
	(void)close(fds[1]);
	/* As systemd sets it: the file that standard error is. */
	if (fstat(STDERR_FILENO, &st) < 0)
		abort();
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	return capture;
}

/* What was logged, one after the other. */
static void capture_end(struct capture *capture, char *text)
{
	size_t used = 0;
	ssize_t n;

	while ((n = recv(capture->read_fd, text + used, TEXT_CAP - 1 - used, 0)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	(void)dup2(capture->saved_fd, STDERR_FILENO);
	(void)close(capture->saved_fd);
	(void)close(capture->read_fd);
}

TEST(audit_write__to_the_log)
{
	struct audit_record record = {.event = AUDIT_ADMIN, .tenant = "a b"};
	struct capture capture;
	struct audit *audit;
	char text[TEXT_CAP];

	CHECK_INT(audit_new(NULL, 2, &audit), 0);
	capture = capture_begin();
	log_set_level(LOG_LEVEL_INFO);
	audit_write(audit, &granted, 0);
	audit_write(audit, &record, 0);
	audit_write(audit, &record, 0);
	audit_tick(audit, S);
	capture_end(&capture, text);
	CHECK_STR(text, "<6>" GRANTED
			"<6>audit: event=admin tenant=a\\\\x20b session=- lease=- generation=- "
			"bytes=- rights=- reason=- duration_ms=- peer=-\n"
			"<6>audit: 1 lines suppressed admin=1\n");
	CHECK_INT(audit_reopen(audit), 0);
	audit_free(audit);
}

/* The log's level is for the log. */
TEST(audit_write__to_a_log_of_errors_only)
{
	struct capture capture;
	struct audit *audit;
	char text[TEXT_CAP];

	CHECK_INT(audit_new(NULL, 2, &audit), 0);
	capture = capture_begin();
	log_set_level(LOG_LEVEL_ERROR);
	log_info("not wanted");
	audit_write(audit, &granted, 0);
	log_set_level(LOG_LEVEL_DEBUG);
	audit_write(audit, &granted, 0);
	capture_end(&capture, text);
	CHECK_STR(text, "<3>" GRANTED "<6>" GRANTED);
	audit_free(audit);
}

TEST(audit_write__disk_full)
{
	struct audit_counts counts;
	struct capture capture;
	struct audit *audit;
	char text[TEXT_CAP];

	CHECK_INT(audit_new("/dev/full", 3, &audit), 0);
	write_lines(audit, 1, AUDIT_ADMIN, 10 * S);
	/* It is tried again after a second. */
	CHECK_INT(audit_due_ns(audit), 11 * S);
	write_lines(audit, 1, AUDIT_ADMIN, 10 * S);
	audit_counts(audit, &counts);
	CHECK_INT(counts.written, 0);
	CHECK_INT(counts.lost, 2);
	CHECK_INT(audit_due_ns(audit), 11 * S);
	audit_tick(audit, 11 * S);
	CHECK_INT(audit_due_ns(audit), 12 * S);
	write_lines(audit, 4, AUDIT_ADMIN, 11 * S);
	audit_counts(audit, &counts);
	CHECK_INT(counts.lost, 5);
	CHECK_INT(counts.suppressed, 1);
	CHECK_INT(audit_due_ns(audit), 12 * S);
	capture = capture_begin();
	log_set_level(LOG_LEVEL_ERROR);
	audit_free(audit);
	capture_end(&capture, text);
	CHECK_STR(text, "<3>audit log ends with lines untold lost=5 suppressed=1\n");
}
