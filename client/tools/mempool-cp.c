/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempool-cp: copies a file or what comes through a pipe into a lease, and a lease into a file or
 * a pipe. Between the two nobody holds the lease: the session is lost, not closed, and a daemon
 * that keeps the leases of lost sessions (orphan_grace) keeps it. What is needed to come back for
 * it is in a file.
 *
 * Here are the command line, the files, and what becomes of the lease in the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tools/copy.h"
#include "client/tools/stop.h"
#include "client/tools/token_file.h"
#include "client/tools/tool.h"
#include "common/units.h"

#define LEASE_PREFIX	"lease:"
#define DEFAULT_TTL_MS	(10 * 60 * 1000)
#define DEFAULT_WAIT_MS 5000

enum show {
	SHOW_ON_TERMINAL,
	SHOW_ALWAYS,
	SHOW_NEVER,
};

struct options {
	struct tool_session session;
	uint32_t ttl_ms;     /* 0: not given */
	uint64_t size_bytes; /* likewise */
	bool release;
	enum show show;
	const char *from;
	const char *to;
};

static void print_help(void)
{
	fputs("Usage: mempool-cp [OPTION...] FILE lease:TOKEN\n"
	      "       mempool-cp [OPTION...] lease:TOKEN FILE\n"
	      "Copy a file into a lease of a mempoold, or back. FILE may be - for standard input\n"
	      "or output. TOKEN is a file with what is needed to come back for the lease; it is\n"
	      "made by the first form.\n\n"
	      "Options:\n" TOOL_OPTIONS_HELP
	      "  --ttl DURATION       how long the lease lasts from the end of the copy on: at\n"
	      "                       first 10min, and back: as long as it has, unless given\n"
	      "  --size SIZE          acquire so much at once for a source whose length is not\n"
	      "                       known; otherwise the lease grows with it\n"
	      "  --release            back: give the lease back afterwards, remove TOKEN\n"
	      "  --progress           show progress even if standard error is no terminal\n"
	      "  --quiet              show no progress\n" TOOL_VERSION_HELP "\n" TOOL_STATUS_HELP,
	      stdout);
}

/* Files. */

static bool is_lease(const char *name)
{
	return strncmp(name, LEASE_PREFIX, strlen(LEASE_PREFIX)) == 0;
}

static const char *token_path(const char *name)
{
	return name + strlen(LEASE_PREFIX);
}

static bool is_standard(const char *name)
{
	return strcmp(name, "-") == 0;
}

static enum tool_status fail_file(const char *name, int r)
{
	if (r == -EINTR && stop_asked())
		return stop_complain();
	tool_complain("%s: %s", name, r == -EBADMSG ? "not the token of a lease" : strerror(-r));
	return TOOL_FAILED;
}

static enum tool_status open_source(const char *name, int *ret_fd)
{
	int fd = is_standard(name) ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return fail_file(name, -errno);
	*ret_fd = fd;
	return TOOL_OK;
}

static enum tool_status open_destination(const char *name, int *ret_fd)
{
	int fd = is_standard(name) ? STDOUT_FILENO
				   : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		return fail_file(name, -errno);
	*ret_fd = fd;
	return TOOL_OK;
}

/* Bytes from where it stands to its end; 0 if that cannot be known. */
static uint64_t length_of(int fd)
{
	struct stat st;
	off_t at;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return 0;
	at = lseek(fd, 0, SEEK_CUR);
	return at >= 0 && at < st.st_size ? (uint64_t)(st.st_size - at) : 0;
}

/* What is given back is not there to be copied again. Pipes and terminals cannot be synced. */
static enum tool_status store_file(int fd, const char *name)
{
	if (fsync(fd) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP)
		return TOOL_OK;
	return fail_file(name, -errno);
}

static enum tool_status close_file(int fd, const char *name)
{
	return is_standard(name) || close(fd) == 0 ? TOOL_OK : fail_file(name, -errno);
}

/* Both ways. */

static void show_progress(struct copy *copy, enum show show, uint64_t total_bytes)
{
	bool on_terminal = show == SHOW_ON_TERMINAL && isatty(STDERR_FILENO);

	progress_begin(&copy->progress, on_terminal || show == SHOW_ALWAYS, total_bytes);
}

static enum tool_status put_with_token(struct copy *copy, const struct options *options,
				       int token_fd)
{
	struct mempool_lease_token token;
	enum tool_status status;
	uint64_t len_bytes = length_of(copy->fd);
	int r;

	status = tool_connect(&options->session, &copy->pool);
	if (status == TOOL_OK && stop_asked())
		status = stop_complain();
	if (status != TOOL_OK)
		return status;
	show_progress(copy, options->show, len_bytes);
	status = copy_put(copy, options->size_bytes != 0 ? options->size_bytes : len_bytes,
			  options->size_bytes == 0);
	if (status == TOOL_OK)
		progress_end(&copy->progress, copy->done_bytes);
	if (status == TOOL_OK)
		status = copy_renew(copy);
	if (status != TOOL_OK)
		return status;
	r = mempool_lease_token(copy->lease, &token);
	if (r < 0)
		return tool_refused("no token", r);
	r = token_file_write(token_fd, &token);
	return r < 0 ? fail_file(token_path(options->to), r) : TOOL_OK;
}

/* The token's file is there first, so that nothing is copied in vain. */
static enum tool_status put(struct copy *copy, const struct options *options)
{
	const char *path = token_path(options->to);
	enum tool_status status;
	int token_fd;

	copy->name = options->from;
	copy->ttl_ms = options->ttl_ms != 0 ? options->ttl_ms : DEFAULT_TTL_MS;
	status = open_source(options->from, &copy->fd);
	if (status != TOOL_OK)
		return status;
	token_fd = token_file_create(path);
	if (token_fd < 0)
		return fail_file(path, token_fd);
	status = put_with_token(copy, options, token_fd);
	if (close(token_fd) != 0 && status == TOOL_OK)
		status = fail_file(path, -errno);
	if (status != TOOL_OK)
		(void)unlink(path);
	return status;
}

static enum tool_status give_back(struct copy *copy, const char *path)
{
	int r = mempool_release(copy->lease);

	copy->lease = NULL;
	copy->given_back = true;
	if (r < 0)
		return tool_refused("the lease cannot be given back", r);
	return unlink(path) == 0 ? TOOL_OK : fail_file(path, -errno);
}

static enum tool_status get(struct copy *copy, const struct options *options)
{
	const struct tool_session *session = &options->session;
	const char *path = token_path(options->from);
	struct mempool_lease_token token;
	enum tool_status status;
	int r;

	copy->name = options->to;
	copy->ttl_ms = options->ttl_ms;
	r = token_file_load(path, &token);
	if (r < 0)
		return fail_file(path, r);
	status = tool_connect(session, &copy->pool);
	if (status == TOOL_OK)
		status = copy_take_over(copy, &token,
					session->timeout_ms != 0 ? session->timeout_ms
								 : DEFAULT_WAIT_MS);
	if (status == TOOL_OK && stop_asked())
		status = stop_complain();
	if (status == TOOL_OK)
		status = open_destination(options->to, &copy->fd);
	if (status != TOOL_OK)
		return status;
	show_progress(copy, options->show, copy->lease_bytes);
	status = copy_get(copy);
	if (status == TOOL_OK)
		progress_end(&copy->progress, copy->done_bytes);
	if (status == TOOL_OK && options->release)
		status = store_file(copy->fd, options->to);
	if (status == TOOL_OK)
		status = close_file(copy->fd, options->to);
	if (status == TOOL_OK && options->release)
		return give_back(copy, path);
	return status == TOOL_OK ? copy_renew(copy) : status;
}

/* The command line. */

static enum tool_status check(const struct options *options)
{
	bool is_put = is_lease(options->to);

	if (is_put == is_lease(options->from))
		return tool_usage("one of the two is lease:TOKEN, the other a file");
	if (token_path(is_put ? options->to : options->from)[0] == '\0')
		return tool_usage("lease: is followed by the name of a file");
	if (is_put && options->release)
		return tool_usage("--release is for copies out of a lease");
	if (!is_put && options->size_bytes != 0)
		return tool_usage("--size is for copies into a lease");
	return TOOL_OK;
}

enum {
	OPTION_TTL = 1,
	OPTION_SIZE,
	OPTION_RELEASE,
	OPTION_PROGRESS,
	OPTION_QUIET,
};

static enum tool_status take_option(void *context, int option, const char *arg)
{
	struct options *options = context;

	switch (option) {
	case OPTION_TTL:
		return tool_duration("--ttl", arg, &options->ttl_ms);
	case OPTION_SIZE:
		if (units_parse_size(arg, &options->size_bytes) < 0 || options->size_bytes == 0)
			return tool_usage("--size takes a size like 64MiB, not %s", arg);
		return TOOL_OK;
	case OPTION_RELEASE:
		options->release = true;
		return TOOL_OK;
	case OPTION_PROGRESS:
		options->show = SHOW_ALWAYS;
		return TOOL_OK;
	case OPTION_QUIET:
		options->show = SHOW_NEVER;
		return TOOL_OK;
	default:
		return TOOL_USAGE; /* getopt_long() has complained */
	}
}

/* @ret_done: there is nothing left to do */
static enum tool_status parse(int argc, char **argv, struct options *options, bool *ret_done)
{
	static const struct option long_options[] = {
		TOOL_LONG_OPTIONS,
		{"ttl", required_argument, NULL, OPTION_TTL},
		{"size", required_argument, NULL, OPTION_SIZE},
		{"release", no_argument, NULL, OPTION_RELEASE},
		{"progress", no_argument, NULL, OPTION_PROGRESS},
		{"quiet", no_argument, NULL, OPTION_QUIET},
		{NULL, 0, NULL, 0},
	};
	static const struct tool_line line = {long_options, print_help, take_option};
	enum tool_status status;

	status = tool_parse(&line, argc, argv, &options->session, options, ret_done);
	if (status != TOOL_OK || *ret_done)
		return status;
	if (argc - optind != 2)
		return tool_usage("a source and a destination are needed");
	options->from = argv[optind];
	options->to = argv[optind + 1];
	return check(options);
}

static enum tool_status run(const struct options *options)
{
	struct copy copy = {.fd = -1, .chunk = malloc(COPY_CHUNK_BYTES)};
	enum tool_status status;
	bool is_put = is_lease(options->to);

	if (copy.chunk == NULL) {
		tool_complain("not enough memory");
		return TOOL_FAILED;
	}
	stop_catch();
	status = is_put ? put(&copy, options) : get(&copy, options);
	/*
	 * A session that is closed takes its leases with it. So one whose lease is to stay is left
	 * as by a crash: where a lease was filled in full, and where one was only read or asked
	 * for, as the daemon may give it to the session also when we do not wait for it any more.
	 */
	if (is_put ? status == TOOL_OK : copy.pool != NULL && !copy.given_back)
		_exit((int)status);
	stop_no_more();
	mempool_close(copy.pool);
	free(copy.chunk);
	return status;
}

int main(int argc, char **argv)
{
	struct options options = {0};
	enum tool_status status;
	bool done;

	tool_init("mempool-cp");
	status = parse(argc, argv, &options, &done);
	if (status == TOOL_OK && !done)
		status = run(&options);
	return (int)tool_finish(status);
}
