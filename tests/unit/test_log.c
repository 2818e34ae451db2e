/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of common/log.c. Standard error is replaced by a datagram socket while a case
 * logs, so that every write(2) is one message and an empty socket means no write.
 */
#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/test.h"

#define LINE_CAP 2048

struct capture {
	int saved_fd;
	int read_fd;
};

static uint64_t fake_ns;

static uint64_t fake_source(void)
{
	return fake_ns;
}

/* As systemd sets it: the file that standard error is. */
static void journal_is_stderr(void)
{
	char text[64];
	struct stat st;

	if (fstat(STDERR_FILENO, &st) < 0)
		abort();
	snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", text, 1);
}

static void capture_begin(struct capture *capture)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds) < 0)
		abort();
	capture->saved_fd = dup(STDERR_FILENO);
	capture->read_fd = fds[0];
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	journal_is_stderr();
	log_set_level(LOG_LEVEL_INFO);
}

/* The next line, or "" if there is none. */
static const char *capture_next(const struct capture *capture, char *line)
{
	ssize_t n = recv(capture->read_fd, line, LINE_CAP - 1, 0);

	line[n > 0 ? n : 0] = '\0';
	return line;
}

static void capture_end(struct capture *capture)
{
	dup2(capture->saved_fd, STDERR_FILENO);
	close(capture->saved_fd);
	close(capture->read_fd);
}

TEST(log_write__journal_prefixes)
{
	char lines[5][LINE_CAP];
	struct capture capture;

	capture_begin(&capture);
	log_set_level(LOG_LEVEL_DEBUG);
	log_error("e=%d", 1);
	log_warn("w");
	log_info("i");
	log_debug("d");
	for (size_t i = 0; i < 5; i++)
		capture_next(&capture, lines[i]);
	capture_end(&capture);
	CHECK_STR(lines[0], "<3>e=1\n");
	CHECK_STR(lines[1], "<4>w\n");
	CHECK_STR(lines[2], "<6>i\n");
	CHECK_STR(lines[3], "<7>d\n");
	CHECK_STR(lines[4], "");
}

TEST(log_write__timestamp)
{
	struct capture capture;
	char line[LINE_CAP];
	int year, month, day, hour, minute, second, ms, end = 0;

	capture_begin(&capture);
	unsetenv("JOURNAL_STREAM");
	log_warn("hello");
	capture_next(&capture, line);
	capture_end(&capture);
	CHECK_INT(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour,
			 &minute, &second, &ms, &end),
		  7);
	CHECK_INT(end, 24);
	CHECK(year >= 2024);
	CHECK_STR(line + end, " warn: hello\n");
}

TEST(log_write__level)
{
	char lines[3][LINE_CAP];
	struct capture capture;
	enum log_level level;

	capture_begin(&capture);
	log_set_level(LOG_LEVEL_WARN);
	level = log_get_level();
	log_info("dropped");
	log_warn("kept");
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("dropped");
	for (size_t i = 0; i < 3; i++)
		capture_next(&capture, lines[i]);
	capture_end(&capture);
	CHECK_INT(level, LOG_LEVEL_WARN);
	CHECK_STR(lines[0], "<4>kept\n");
	CHECK_STR(lines[1], "");
}

TEST(log_write__escapes)
{
	struct capture capture;
	char line[LINE_CAP];

	capture_begin(&capture);
	log_info("tenant=%s", "a\n<3>forged\x1b");
	capture_next(&capture, line);
	capture_end(&capture);
	CHECK_STR(line, "<6>tenant=a\\x0a<3>forged\\x1b\n");
}

TEST(log_write__length_limit)
{
	char lines[3][LINE_CAP], text[LINE_CAP];
	struct capture capture;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	capture_begin(&capture);
	log_info("%.996s", text);
	log_info("%.997s", text);
	log_info("%s", text);
	for (size_t i = 0; i < 3; i++)
		capture_next(&capture, lines[i]);
	capture_end(&capture);
	CHECK_INT(strlen(lines[0]), 1000);
	CHECK_STR(lines[0] + 995, "xxxx\n");
	CHECK_INT(strlen(lines[1]), 1000);
	CHECK_STR(lines[1] + 995, "x...\n");
	CHECK_STR(lines[2], lines[1]);
}

TEST(log_write__keeps_errno)
{
	struct capture capture;
	int after, after_failure;

	capture_begin(&capture);
	errno = EXDEV;
	log_info("x");
	after = errno;
	close(capture.read_fd);
	capture.read_fd = -1;
	errno = EXDEV;
	log_info("nobody listens");
	after_failure = errno;
	capture_end(&capture);
	CHECK_INT(after, EXDEV);
	CHECK_INT(after_failure, EXDEV);
}

TEST(log_limited__ten_a_second)
{
	char lines[13][LINE_CAP], after[2][LINE_CAP];
	struct log_limit limit = {0};
	struct capture capture;

	capture_begin(&capture);
	clock_set_source(fake_source);
	fake_ns = 5 * CLOCK_NS_PER_S;
	for (int i = 0; i < 13; i++)
		log_limited(LOG_LEVEL_INFO, &limit, "n=%d", i);
	for (size_t i = 0; i < 13; i++)
		capture_next(&capture, lines[i]);
	fake_ns += CLOCK_NS_PER_S - 1;
	log_limited(LOG_LEVEL_INFO, &limit, "still");
	capture_next(&capture, after[0]);
	fake_ns++;
	log_limited(LOG_LEVEL_INFO, &limit, "first");
	capture_next(&capture, after[1]);
	log_limited(LOG_LEVEL_INFO, &limit, "second");
	capture_next(&capture, lines[12]);
	clock_set_source(NULL);
	capture_end(&capture);
	CHECK_STR(lines[0], "<6>n=0\n");
	CHECK_STR(lines[9], "<6>n=9\n");
	CHECK_STR(lines[10], "");
	CHECK_STR(after[0], "");
	CHECK_STR(after[1], "<6>first suppressed=4\n");
	CHECK_STR(lines[12], "<6>second\n");
}

TEST(log_limited__suppressed_survives_cut)
{
	struct log_limit limit = {.suppressed = UINT64_MAX};
	struct capture capture;
	char line[LINE_CAP];

	capture_begin(&capture);
	log_limited(LOG_LEVEL_INFO, &limit, "%01500d", 0);
	capture_next(&capture, line);
	capture_end(&capture);
	CHECK_INT(strlen(line), 1000);
	CHECK_STR(line + 963, "0... suppressed=18446744073709551615\n");
}

TEST(log_limited__dropped_level_is_not_counted)
{
	struct log_limit limit = {0};
	struct capture capture;
	char line[LINE_CAP];

	capture_begin(&capture);
	for (int i = 0; i < 20; i++)
		log_limited(LOG_LEVEL_DEBUG, &limit, "debug");
	log_limited(LOG_LEVEL_INFO, &limit, "info");
	capture_next(&capture, line);
	capture_end(&capture);
	CHECK_INT(limit.suppressed, 0);
	CHECK_STR(line, "<6>info\n");
}

/* Whoever inherits the variable but not the file is not the journal's. */
TEST(log_is_journal__other_files)
{
	static const char *const streams[] = {"", "8:1", "8", "8:", ":", "x:y", "-1:-1"};
	struct capture capture;
	char line[LINE_CAP], longer[80];
	bool is;

	capture_begin(&capture);
	is = log_is_journal();
	snprintf(longer, sizeof(longer), "%s0", getenv("JOURNAL_STREAM"));
	setenv("JOURNAL_STREAM", longer, 1);
	is = is && !log_is_journal();
	snprintf(longer, sizeof(longer), "%sx", getenv("JOURNAL_STREAM"));
	setenv("JOURNAL_STREAM", longer, 1);
	is = is && !log_is_journal();
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		setenv("JOURNAL_STREAM", streams[i], 1);
		is = is && !log_is_journal();
	}
	log_warn("x");
	capture_next(&capture, line);
	capture_end(&capture);
	CHECK(is);
	CHECK(strstr(line, "Z warn: x\n") != NULL);
}

static char sunk[2][LINE_CAP];
static bool sink_takes;

static bool sink(enum log_level level, const char *text)
{
	snprintf(sunk[0], sizeof(sunk[0]), "%d %s", (int)level, text);
	snprintf(sunk[1], sizeof(sunk[1]), "%s", text);
	errno = ENOBUFS;
	return sink_takes;
}

TEST(log_set_sink__takes_lines)
{
	char lines[3][LINE_CAP], text[LINE_CAP];
	struct capture capture;
	size_t len;
	int after;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	capture_begin(&capture);
	log_set_sink(sink);
	sink_takes = true;
	errno = EXDEV;
	log_warn("a\nb n=%d", 1);
	after = errno;
	capture_next(&capture, lines[0]);
	snprintf(lines[2], LINE_CAP, "%s", sunk[0]);
	log_info("%s", text);
	len = strlen(sunk[1]);
	/* What it does not take goes where it went before. */
	sink_takes = false;
	log_warn("second");
	capture_next(&capture, lines[1]);
	log_set_sink(NULL);
	capture_end(&capture);
	CHECK_STR(lines[0], "");
	CHECK_STR(lines[2], "1 a\\x0ab n=1");
	CHECK_STR(lines[1], "second\n");
	CHECK_INT(after, EXDEV);
	CHECK_INT(len, 999);
}

TEST(log_limited__own_limit)
{
	struct log_limit limit = {.lines_per_s = 25};
	struct capture capture;
	char line[LINE_CAP];
	unsigned int lines = 0;

	capture_begin(&capture);
	clock_set_source(fake_source);
	fake_ns = 5 * CLOCK_NS_PER_S;
	for (int i = 0; i < 40; i++) {
		log_limited(LOG_LEVEL_INFO, &limit, "n=%d", i);
		lines += capture_next(&capture, line)[0] != '\0';
	}
	fake_ns += CLOCK_NS_PER_S;
	log_tick();
	capture_next(&capture, line);
	clock_set_source(NULL);
	capture_end(&capture);
	CHECK_INT(lines, 25);
	CHECK_STR(line, "<4>lines suppressed cause=\"\" suppressed=15\n");
}

/* What was suppressed is told, also if nothing more comes of that cause. */
TEST(log_tick__tells)
{
	static struct log_limit first, second;
	char lines[6][LINE_CAP];
	struct capture capture;

	capture_begin(&capture);
	clock_set_source(fake_source);
	fake_ns = 5 * CLOCK_NS_PER_S;
	for (int i = 0; i < 12; i++)
		log_limited(LOG_LEVEL_INFO, &first, "lease ends id=%d tenant=%s", i, "a");
	fake_ns += CLOCK_NS_PER_S / 2;
	for (int i = 0; i < 11; i++)
		log_limited(LOG_LEVEL_INFO, &second, "there are %d already", i);
	for (int i = 0; i < 20; i++)
		capture_next(&capture, lines[0]);
	log_tick();
	capture_next(&capture, lines[0]);
	fake_ns += CLOCK_NS_PER_S / 2;
	log_tick();
	capture_next(&capture, lines[1]);
	capture_next(&capture, lines[2]);
	fake_ns += CLOCK_NS_PER_S / 2;
	/* The next line of the cause tells it as well, and then there is nothing left to tell. */
	log_limited(LOG_LEVEL_INFO, &second, "there are %d already", 1);
	capture_next(&capture, lines[3]);
	log_tick();
	capture_next(&capture, lines[4]);
	clock_set_source(NULL);
	capture_end(&capture);
	CHECK_STR(lines[0], "");
	CHECK_STR(lines[1], "<4>lines suppressed cause=\"lease ends\" suppressed=2\n");
	CHECK_STR(lines[2], "");
	CHECK_STR(lines[3], "<6>there are 1 already suppressed=1\n");
	CHECK_STR(lines[4], "");
	CHECK(!first.is_listed && !second.is_listed);
}

TEST(log_level__names)
{
	enum log_level level = LOG_LEVEL_WARN;

	CHECK_STR(log_level_name(LOG_LEVEL_ERROR), "error");
	CHECK(log_level_find("debug", &level));
	CHECK_INT(level, LOG_LEVEL_DEBUG);
	CHECK(!log_level_find("", &level));
	CHECK(!log_level_find("Debug", &level));
	CHECK_INT(level, LOG_LEVEL_DEBUG);
}
