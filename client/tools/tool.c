/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tools for tenants share. Keeps the name of the tool, set once at its start.
 *
 * Thread: any may complain; the rest is the main thread's.
 */
#include "client/tools/tool.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "common/text.h"
#include "common/units.h"

#ifndef MEMPOOL_VERSION
#error "the build must define MEMPOOL_VERSION"
#endif

#define TOOL_LINE_MAX 1024

static const char *tool_name = "";
static atomic_bool tool_line_begun;

/*
 * Else the next file or connection that is opened takes their place, and what is printed goes
 * there. They are opened the wrong way round, so that whoever uses them fails.
 */
static void tool_occupy_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(TOOL_FAILED);
	}
}

void tool_init(const char *name)
{
	tool_name = name;
	tool_occupy_standard_fds();
}

void tool_begin_line(void)
{
	tool_line_begun = true;
}

void tool_end_line(void)
{
	if (atomic_exchange(&tool_line_begun, false))
		fputc('\n', stderr);
}

static void tool_complain_args(const char *format, va_list args, const char *behind)
{
	char line[TOOL_LINE_MAX];
	char shown[TOOL_LINE_MAX];

	(void)vsnprintf(line, sizeof(line), format, args);
	(void)text_escape(line, shown, sizeof(shown));
	tool_end_line();
	fprintf(stderr, "%s: %s%s\n", tool_name, shown, behind);
}

void tool_complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tool_complain_args(format, args, "");
	va_end(args);
}

enum tool_status tool_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tool_complain_args(format, args, "; see --help");
	va_end(args);
	return TOOL_USAGE;
}

enum tool_status tool_refused(const char *what, int code)
{
	tool_complain("%s: error %d: %s", what, code, mempool_last_error());
	return TOOL_FAILED;
}

enum tool_status tool_duration(const char *option, const char *text, uint32_t *ret_ms)
{
	uint64_t ms;

	if (units_parse_duration(text, &ms) < 0 || ms == 0 || ms > UINT32_MAX)
		return tool_usage("%s takes 1ms to 49d, not %s", option, text);
	*ret_ms = (uint32_t)ms;
	return TOOL_OK;
}

/* One of every tool's; @ret_status: TOOL_OK, or it has complained. Return: was it one? */
static bool tool_take_option(struct tool_session *session, int option, const char *arg,
			     enum tool_status *ret_status)
{
	*ret_status = TOOL_OK;
	switch (option) {
	case TOOL_OPTION_DAEMON:
		session->daemon = arg;
		return true;
	case TOOL_OPTION_DAEMON_KEY:
		session->daemon_key = arg;
		return true;
	case TOOL_OPTION_KEY_FILE:
		session->key_file = arg;
		return true;
	case TOOL_OPTION_TIMEOUT:
		*ret_status = tool_duration("--timeout", arg, &session->timeout_ms);
		return true;
	default:
		return false;
	}
}

enum tool_status tool_parse(const struct tool_line *line, int argc, char **argv,
			    struct tool_session *session, void *options, bool *ret_done)
{
	enum tool_status status = TOOL_OK;
	int option;

	*ret_done = true;
	while (status == TOOL_OK &&
	       (option = getopt_long(argc, argv, "", line->long_options, NULL)) != -1) {
		if (option == TOOL_OPTION_HELP) {
			line->print_help();
			return TOOL_OK;
		}
		if (option == TOOL_OPTION_VERSION) {
			printf("%s %s\n", tool_name, MEMPOOL_VERSION);
			return TOOL_OK;
		}
		if (!tool_take_option(session, option, optarg, &status))
			status = line->take_option(options, option, optarg);
	}
	*ret_done = false;
	return status;
}

enum tool_status tool_connect(const struct tool_session *session, mempool **ret_pool)
{
	struct mempool_connect_opts opts = {
		.size = sizeof(opts),
		.key_file = session->key_file,
		.daemon_key = session->daemon_key,
		.timeout_ms = session->timeout_ms,
	};
	int r;

	if (session->daemon == NULL)
		return tool_usage("--daemon says where the daemon is");
	if (session->key_file == NULL)
		return tool_usage("--key-file says which key is ours");
	r = mempool_connect(session->daemon, &opts, ret_pool);
	if (r == 0)
		return TOOL_OK;
	(void)tool_refused("cannot connect", r);
	return r == MEMPOOL_E_INVALID ? TOOL_USAGE : TOOL_UNREACHABLE;
}

enum tool_status tool_finish(enum tool_status status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	tool_complain("standard output cannot be written");
	return status == TOOL_OK ? TOOL_FAILED : status;
}
