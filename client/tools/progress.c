/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A progress line. What is in it is decided by a pure function; the rest asks the terminal for
 * its width and the clock for the time.
 *
 * Thread: one.
 */
#include "client/tools/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/tools/tool.h"
#include "common/clock.h"
#include "common/units.h"

#define PROGRESS_COLUMNS     80 /* of a terminal that does not tell */
#define PROGRESS_COLUMNS_MAX 200
#define PROGRESS_BAR_MIN     10
#define PROGRESS_BAR_MAX     50
#define PROGRESS_DRAW_MS     100
#define PROGRESS_TEXT_MAX    256

static uint64_t per_second(uint64_t bytes, uint64_t ms)
{
	if (ms == 0)
		return 0;
	return bytes > UINT64_MAX / 1000 ? bytes / ms * 1000 : bytes * 1000 / ms;
}

static unsigned int percent_of(uint64_t done, uint64_t total)
{
	if (done >= total)
		return 100;
	return (unsigned int)(total > UINT64_MAX / 100 ? done / (total / 100) : done * 100 / total);
}

/* Behind the bar: "450 MiB of 1 GiB, 1.2 GiB/s, 3 s left" */
static void progress_figures(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ms,
			     char *buf)
{
	uint64_t rate = per_second(done_bytes, elapsed_ms);
	char done[UNITS_TEXT_MAX], total[UNITS_TEXT_MAX], text[UNITS_TEXT_MAX];
	size_t used;

	units_format_size(done_bytes, done);
	if (total_bytes == 0)
		used = (size_t)snprintf(buf, PROGRESS_TEXT_MAX, "%s", done);
	else
		used = (size_t)snprintf(buf, PROGRESS_TEXT_MAX, "%s of %s", done,
					units_format_size(total_bytes, total));
	if (rate == 0)
		return;
	used += (size_t)snprintf(buf + used, PROGRESS_TEXT_MAX - used, ", %s/s",
				 units_format_size(rate, text));
	if (done_bytes < total_bytes)
		(void)snprintf(buf + used, PROGRESS_TEXT_MAX - used, ", %" PRIu64 " s left",
			       (total_bytes - done_bytes) / rate + 1);
}

/* "[====>     ]" of a width that counts the brackets */
static void progress_bar(unsigned int percent, size_t width, char *buf)
{
	size_t inside = width - 2;
	size_t filled = inside * percent / 100;

	buf[0] = '[';
	memset(buf + 1, ' ', inside);
	memset(buf + 1, '=', filled);
	if (filled < inside)
		buf[1 + filled] = '>';
	buf[width - 1] = ']';
	buf[width] = '\0';
}

char *progress_format(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ms,
		      size_t columns, char *buf)
{
	unsigned int percent = percent_of(done_bytes, total_bytes);
	char bar[PROGRESS_BAR_MAX + 3] = "";
	char figures[PROGRESS_TEXT_MAX];
	char line[PROGRESS_TEXT_MAX * 2];
	size_t needed;

	progress_figures(done_bytes, total_bytes, elapsed_ms, figures);
	needed = strlen(figures) + strlen(" 100 %  ");
	if (total_bytes == 0) {
		(void)snprintf(line, sizeof(line), "%s", figures);
	} else {
		if (columns >= needed + PROGRESS_BAR_MIN)
			progress_bar(percent,
				     columns - needed < PROGRESS_BAR_MAX ? columns - needed
									 : PROGRESS_BAR_MAX,
				     bar);
		(void)snprintf(line, sizeof(line), "%s%s%3u %%  %s", bar, bar[0] != '\0' ? " " : "",
			       percent, figures);
	}
	(void)snprintf(buf, columns + 1, "%s", line);
	return buf;
}

static size_t progress_columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
		return PROGRESS_COLUMNS;
	return size.ws_col < PROGRESS_COLUMNS_MAX ? size.ws_col : PROGRESS_COLUMNS_MAX;
}

static void progress_draw(struct progress *progress, uint64_t done_bytes, uint64_t now_ns)
{
	uint64_t elapsed_ms = (now_ns - progress->begun_ns) / CLOCK_NS_PER_MS;
	char line[PROGRESS_COLUMNS_MAX + 1];

	/* A character in the last column would wrap on some terminals. */
	progress_format(done_bytes, progress->total_bytes, elapsed_ms, progress_columns() - 1,
			line);
	tool_begin_line();
	fprintf(stderr, "\r%s\033[K", line);
	(void)fflush(stderr);
	progress->drawn_ns = now_ns;
}

void progress_begin(struct progress *progress, bool shown, uint64_t total_bytes)
{
	*progress = (struct progress){
		.shown = shown,
		.total_bytes = total_bytes,
		.begun_ns = clock_now_ns(),
	};
}

void progress_update(struct progress *progress, uint64_t done_bytes)
{
	uint64_t now_ns;

	if (!progress->shown)
		return;
	now_ns = clock_now_ns();
	if (progress->drawn_ns == 0 ||
	    now_ns - progress->drawn_ns >= PROGRESS_DRAW_MS * CLOCK_NS_PER_MS)
		progress_draw(progress, done_bytes, now_ns);
}

void progress_end(struct progress *progress, uint64_t done_bytes)
{
	if (!progress->shown)
		return;
	progress_draw(progress, done_bytes, clock_now_ns());
	tool_end_line();
}
