/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration file. One table describes every key; parsing, defaults,
 * validation and help derive from it, so a key is added by adding a row and a field.
 * Limits and defaults are written in the file's own language and go through the same
 * parser as the operator's values. Nothing is kept between calls; used before the
 * loop runs.
 */
#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strict_json.h"
#include "common/text.h"
#include "common/units.h"

#define FILE_MAX_BYTES	 (1u << 20)
#define VALUE_TEXT_MAX	 96 /* of a wrong value in an error line */
#define PATH_TEXT_MAX	 128
#define ALLOWED_TEXT_MAX 128

enum key_type {
	KEY_STRING,   /* min and max are lengths */
	KEY_LIST,     /* of strings; min and max are counts */
	KEY_SIZE,     /* string with a unit */
	KEY_DURATION, /* string with a unit */
	KEY_UINT,     /* JSON integer */
	KEY_ENUM,     /* string, one of names */
};

struct config_key {
	const char *name;
	enum key_type type;
	size_t offset;		  /* of the field in struct config */
	const char *default_text; /* NULL: the key is required */
	const char *min;
	const char *max;
	const char *multiple;	  /* sizes only; NULL: any */
	const char *const *names; /* KEY_ENUM: in the order of its numbers, NULL at the end */
	bool (*is_valid)(const char *item); /* strings and items of lists; NULL: anything */
	const char *form;		    /* what is_valid takes */
	const char *help;
};

/* Where and how a load goes wrong. */
struct load {
	const char *path;
	char *error;
};

static const char *const isolation_names[] = {
	[CONFIG_ISOLATION_AUTO] = "auto",
	[CONFIG_ISOLATION_WINDOWS] = "windows",
	[CONFIG_ISOLATION_UNVERIFIED] = "unverified",
	NULL,
};

static const char *const log_level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
	NULL,
};

static bool is_endpoint(const char *item);

#define FIELD(name) offsetof(struct config, name)

static const struct config_key keys[] = {
	{.name = "device",
	 .type = KEY_STRING,
	 .offset = FIELD(device),
	 .default_text = "",
	 .min = "0",
	 .max = "255",
	 .help = "RDMA device; empty: by listen address, else the first that can serve"},
	{.name = "device_wait",
	 .type = KEY_DURATION,
	 .offset = FIELD(device_wait_ms),
	 .default_text = "60s",
	 .min = "0",
	 .max = "1h",
	 .help = "how long to wait at start for a device"},
	{.name = "listen",
	 .type = KEY_LIST,
	 .offset = FIELD(listen),
	 .min = "1",
	 .max = "8",
	 .is_valid = is_endpoint,
	 .form = "host:port or [v6]:port",
	 .help = "addresses of RDMA interfaces to serve on"},
	{.name = "pool_size",
	 .type = KEY_SIZE,
	 .offset = FIELD(pool_size_bytes),
	 .min = "1MiB",
	 .max = "64TiB",
	 .multiple = "4KiB",
	 .help = "memory to lend; all of it is locked at start"},
	{.name = "admin_socket",
	 .type = KEY_STRING,
	 .offset = FIELD(admin_socket),
	 .default_text = "/run/mempoold/admin.sock",
	 .min = "1",
	 .max = "107",
	 .help = "unix socket for mempoolctl"},
	{.name = "ttl_default",
	 .type = KEY_DURATION,
	 .offset = FIELD(ttl_default_ms),
	 .default_text = "30s",
	 .min = "1ms",
	 .max = "30d",
	 .help = "life of a lease that is not renewed, if the client does not say"},
	{.name = "ttl_max",
	 .type = KEY_DURATION,
	 .offset = FIELD(ttl_max_ms),
	 .default_text = "1h",
	 .min = "1ms",
	 .max = "30d",
	 .help = "the longest that a client may ask for at a time; at least ttl_default"},
	{.name = "isolation",
	 .type = KEY_ENUM,
	 .offset = FIELD(isolation),
	 .default_text = "auto",
	 .names = isolation_names,
	 .help = "how tenants are kept apart; unverified only for tests or a single tenant"},
	{.name = "window_max",
	 .type = KEY_SIZE,
	 .offset = FIELD(window_max_bytes),
	 .default_text = "1GiB",
	 .min = "4KiB",
	 .max = "2GiB",
	 .multiple = "4KiB",
	 .help = "the longest memory window; longer leases have several"},
	{.name = "scrub_chunk",
	 .type = KEY_SIZE,
	 .offset = FIELD(scrub_chunk_bytes),
	 .default_text = "16MiB",
	 .min = "4KiB",
	 .max = "1GiB",
	 .help = "bytes zeroed at a time before memory is lent again"},
	{.name = "sessions_max",
	 .type = KEY_UINT,
	 .offset = FIELD(sessions_max),
	 .default_text = "256",
	 .min = "1",
	 .max = "65536",
	 .help = "sessions at the same time"},
	{.name = "lanes_max",
	 .type = KEY_UINT,
	 .offset = FIELD(lanes_max),
	 .default_text = "16",
	 .min = "1",
	 .max = "1024",
	 .help = "data connections of one session"},
	{.name = "leases_max",
	 .type = KEY_UINT,
	 .offset = FIELD(leases_max),
	 .default_text = "65536",
	 .min = "1",
	 .max = "1048576",
	 .help = "leases of the whole daemon"},
	{.name = "lane_leases_max",
	 .type = KEY_UINT,
	 .offset = FIELD(lane_leases_max),
	 .default_text = "1024",
	 .min = "1",
	 .max = "16384",
	 .help = "leases on one data connection"},
	{.name = "control_receives",
	 .type = KEY_UINT,
	 .offset = FIELD(control_receives),
	 .default_text = "32",
	 .min = "4",
	 .max = "4096",
	 .help = "receives posted on a control connection"},
	{.name = "lane_send_queue",
	 .type = KEY_UINT,
	 .offset = FIELD(lane_send_queue),
	 .default_text = "128",
	 .min = "2",
	 .max = "4096",
	 .help = "binds and invalidates in flight on a data connection"},
	{.name = "read_depth",
	 .type = KEY_UINT,
	 .offset = FIELD(read_depth),
	 .default_text = "16",
	 .min = "1",
	 .max = "255",
	 .help = "outstanding reads and atomics of a data connection"},
	{.name = "backlog",
	 .type = KEY_UINT,
	 .offset = FIELD(backlog),
	 .default_text = "128",
	 .min = "1",
	 .max = "65535",
	 .help = "connection requests that may wait to be accepted"},
	{.name = "handshake_timeout",
	 .type = KEY_DURATION,
	 .offset = FIELD(handshake_timeout_ms),
	 .default_text = "5s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "a new connection must have introduced itself within this time"},
	{.name = "lane_offer",
	 .type = KEY_DURATION,
	 .offset = FIELD(lane_offer_ms),
	 .default_text = "10s",
	 .min = "10ms",
	 .max = "5min",
	 .help = "how long an offer of a data connection is good"},
	{.name = "lane_sweep",
	 .type = KEY_DURATION,
	 .offset = FIELD(lane_sweep_ms),
	 .default_text = "5s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "the state of every data connection is looked at within this time"},
	{.name = "completion_timeout",
	 .type = KEY_DURATION,
	 .offset = FIELD(completion_timeout_ms),
	 .default_text = "2s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "the device must complete a bind or invalidate within this time"},
	{.name = "credit_timeout",
	 .type = KEY_DURATION,
	 .offset = FIELD(credit_timeout_ms),
	 .default_text = "2s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "a client that takes no messages for so long is dropped"},
	{.name = "revoke_grace",
	 .type = KEY_DURATION,
	 .offset = FIELD(revoke_grace_ms),
	 .default_text = "100ms",
	 .min = "0",
	 .max = "1min",
	 .help = "between the notice of a revocation and the end of the lease"},
	{.name = "quiesce_timeout",
	 .type = KEY_DURATION,
	 .offset = FIELD(quiesce_timeout_ms),
	 .default_text = "1s",
	 .min = "1ms",
	 .max = "1min",
	 .help = "for a client to stop using a lease that it wants changed"},
	{.name = "lane_wait_min",
	 .type = KEY_DURATION,
	 .offset = FIELD(lane_wait_min_ms),
	 .default_text = "100ms",
	 .min = "0",
	 .max = "1min",
	 .help = "wait before a second lost data connection is replaced; doubles with each loss"},
	{.name = "lane_wait_max",
	 .type = KEY_DURATION,
	 .offset = FIELD(lane_wait_max_ms),
	 .default_text = "10s",
	 .min = "0",
	 .max = "10min",
	 .help = "the longest such wait"},
	{.name = "lane_peace",
	 .type = KEY_DURATION,
	 .offset = FIELD(lane_peace_ms),
	 .default_text = "1min",
	 .min = "0",
	 .max = "1h",
	 .help = "time without a loss after which that wait begins anew"},
	{.name = "log_level",
	 .type = KEY_ENUM,
	 .offset = FIELD(log_level),
	 .default_text = "info",
	 .names = log_level_names,
	 .help = "the least important lines that are logged"},
};

#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

static_assert(CONFIG_LISTEN_MAX == 8, "the schema's max of listen must say the same");
static_assert(CONFIG_STRING_MAX == 256, "the schema's max of device must say the same");

static const char *const type_names[] = {
	[KEY_STRING] = "string",     [KEY_LIST] = "list",   [KEY_SIZE] = "size",
	[KEY_DURATION] = "duration", [KEY_UINT] = "number", [KEY_ENUM] = "choice",
};

static const char *const type_wants[] = {
	[KEY_STRING] = "a string",
	[KEY_LIST] = "a list of strings",
	[KEY_SIZE] = "a string with a size such as \"256MiB\"",
	[KEY_DURATION] = "a string with a duration such as \"5s\"",
	[KEY_UINT] = "a number",
	[KEY_ENUM] = "a string",
};

static void *field_of(struct config *config, const struct config_key *key)
{
	return (char *)config + key->offset;
}

/* A decimal port other than 0 behind a host; colons within the host need brackets. */
static bool is_endpoint(const char *item)
{
	const char *colon = strrchr(item, ':');
	uint64_t port;
	size_t host_len;

	if (!colon || colon == item)
		return false;
	host_len = (size_t)(colon - item);
	if (item[0] == '[' ? host_len < 3 || colon[-1] != ']' : memchr(item, ':', host_len) != NULL)
		return false;
	if (strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return false;
	return units_parse_size(colon + 1, &port) == 0 && port >= 1 && port <= 65535;
}

/* The number that a text stands for; bare digits where the type has no unit. */
static int parse_number(enum key_type type, const char *text, uint64_t *ret_value)
{
	if (type == KEY_DURATION)
		return units_parse_duration(text, ret_value);
	return units_parse_size(text, ret_value);
}

/* For texts of the table, which are right. */
static uint64_t table_number(enum key_type type, const char *text)
{
	uint64_t value = 0;
	int r = parse_number(type, text, &value);

	assert(r == 0);
	(void)r;
	return value;
}

static bool number_allowed(const struct config_key *key, uint64_t value)
{
	return value >= table_number(key->type, key->min) &&
	       value <= table_number(key->type, key->max) &&
	       (!key->multiple || value % table_number(key->type, key->multiple) == 0);
}

static bool string_allowed(const struct config_key *key, const char *text)
{
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	}
	return !key->is_valid || key->is_valid(text);
}

static int find_name(const char *const *names, const char *text)
{
	for (int i = 0; names[i]; i++) {
		if (!strcmp(names[i], text))
			return i;
	}
	return -EINVAL;
}

static void describe_names(const char *const *names, char *buf)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; names[i] && used < ALLOWED_TEXT_MAX; i++)
		used += (size_t)snprintf(buf + used, ALLOWED_TEXT_MAX - used, "%s%s",
					 i > 0 ? "|" : "", names[i]);
}

/* What a key allows, for errors and help. */
static void describe_allowed(const struct config_key *key, char *buf)
{
	const char *of = "";

	if (key->type == KEY_ENUM) {
		describe_names(key->names, buf);
		return;
	}
	if (key->type == KEY_STRING)
		of = " characters";
	else if (key->type == KEY_LIST)
		of = " entries";
	snprintf(buf, ALLOWED_TEXT_MAX, "%s..%s%s%s%s%s%s", key->min, key->max, of,
		 key->multiple ? ", a multiple of " : "", key->multiple ? key->multiple : "",
		 key->form ? " of the form " : "", key->form ? key->form : "");
}

static int __attribute__((format(printf, 2, 3)))
fail(const struct load *load, const char *format, ...)
{
	char path[PATH_TEXT_MAX];
	size_t used;
	va_list ap;

	text_escape(load->path, path, sizeof(path));
	used = (size_t)snprintf(load->error, CONFIG_ERROR_MAX, "%s: ", path);
	va_start(ap, format);
	(void)vsnprintf(load->error + used, CONFIG_ERROR_MAX - used, format, ap);
	va_end(ap);
	return -EINVAL;
}

static int fail_value(const struct load *load, const struct config_key *key, const json_t *value,
		      const char *what)
{
	char shown[VALUE_TEXT_MAX], allowed[ALLOWED_TEXT_MAX];
	char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

	text_escape(dump ? dump : "?", shown, sizeof(shown));
	free(dump);
	describe_allowed(key, allowed);
	return fail(load, "%s: %s %s; allowed: %s", key->name, shown, what, allowed);
}

static int fail_type(const struct load *load, const struct config_key *key, const json_t *value)
{
	char what[ALLOWED_TEXT_MAX];

	snprintf(what, sizeof(what), "is not %s", type_wants[key->type]);
	return fail_value(load, key, value, what);
}

static int load_string(const struct load *load, const struct config_key *key, const json_t *value,
		       struct config *config)
{
	const char *text = json_string_value(value);

	if (!text)
		return fail_type(load, key, value);
	if (!number_allowed(key, strlen(text)))
		return fail_value(load, key, value, "is too short or too long");
	if (!string_allowed(key, text))
		return fail_value(load, key, value, "is not valid");
	memcpy(field_of(config, key), text, strlen(text) + 1);
	return 0;
}

/* Only "listen" is a list, so its count is known to be listen_count. */
static int load_list(const struct load *load, const struct config_key *key, const json_t *value,
		     struct config *config)
{
	char(*items)[CONFIG_STRING_MAX] = field_of(config, key);
	const json_t *item;
	size_t i;

	if (!json_is_array(value))
		return fail_type(load, key, value);
	if (!number_allowed(key, json_array_size(value)))
		return fail_value(load, key, value, "has too few or too many entries");
	json_array_foreach(value, i, item)
	{
		const char *text = json_string_value(item);

		if (!text)
			return fail_type(load, key, value);
		if (strlen(text) >= CONFIG_STRING_MAX || !string_allowed(key, text))
			return fail_value(load, key, item, "is not valid");
		memcpy(items[i], text, strlen(text) + 1);
	}
	config->listen_count = json_array_size(value);
	return 0;
}

static int load_measure(const struct load *load, const struct config_key *key, const json_t *value,
			struct config *config)
{
	const char *text = json_string_value(value);
	uint64_t number;
	int r;

	if (!text)
		return fail_type(load, key, value);
	r = parse_number(key->type, text, &number);
	if (r == -EINVAL)
		return fail_type(load, key, value);
	if (r < 0 || !number_allowed(key, number))
		return fail_value(load, key, value, "is out of range");
	*(uint64_t *)field_of(config, key) = number;
	return 0;
}

static int load_uint(const struct load *load, const struct config_key *key, const json_t *value,
		     struct config *config)
{
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return fail_type(load, key, value);
	if (number < 0 || !number_allowed(key, (uint64_t)number))
		return fail_value(load, key, value, "is out of range");
	*(uint64_t *)field_of(config, key) = (uint64_t)number;
	return 0;
}

static int load_enum(const struct load *load, const struct config_key *key, const json_t *value,
		     struct config *config)
{
	const char *text = json_string_value(value);
	int number;

	if (!text)
		return fail_type(load, key, value);
	number = find_name(key->names, text);
	if (number < 0)
		return fail_value(load, key, value, "is not one of the choices");
	*(int *)field_of(config, key) = number;
	return 0;
}

static int load_value(const struct load *load, const struct config_key *key, const json_t *value,
		      struct config *config)
{
	switch (key->type) {
	case KEY_STRING:
		return load_string(load, key, value, config);
	case KEY_LIST:
		return load_list(load, key, value, config);
	case KEY_SIZE:
	case KEY_DURATION:
		return load_measure(load, key, value, config);
	case KEY_UINT:
		return load_uint(load, key, value, config);
	case KEY_ENUM:
		return load_enum(load, key, value, config);
	}
	return -EINVAL;
}

static const struct config_key *find_key(const char *name)
{
	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	}
	return NULL;
}

static int check_required(const struct load *load, const json_t *root)
{
	char allowed[ALLOWED_TEXT_MAX];

	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (keys[i].default_text || json_object_get(root, keys[i].name))
			continue;
		describe_allowed(&keys[i], allowed);
		return fail(load, "%s: is required and missing; allowed: %s", keys[i].name,
			    allowed);
	}
	return 0;
}

/* Rules that tie several keys together. */
static int check_together(const struct load *load, const struct config *config)
{
	char ttl_default[UNITS_TEXT_MAX], ttl_max[UNITS_TEXT_MAX];

	if (config->ttl_default_ms <= config->ttl_max_ms)
		return 0;
	return fail(load, "ttl_default: %s is longer than ttl_max; allowed: at most ttl_max, %s",
		    units_format_duration(config->ttl_default_ms, ttl_default),
		    units_format_duration(config->ttl_max_ms, ttl_max));
}

static int load_object(const struct load *load, json_t *root, struct config *config)
{
	const char *name;
	json_t *value;
	int r;

	if (!json_is_object(root))
		return fail(load, "is not a JSON object");
	json_object_foreach(root, name, value)
	{
		const struct config_key *key = find_key(name);
		char shown[VALUE_TEXT_MAX];

		if (!key) {
			text_escape(name, shown, sizeof(shown));
			return fail(load,
				    "%s: is not a known key; "
				    "mempoold --help-config lists all",
				    shown);
		}
		r = load_value(load, key, value, config);
		if (r < 0)
			return r;
	}
	r = check_required(load, root);
	if (r < 0)
		return r;
	return check_together(load, config);
}

/* Reads up to @cap_bytes; a full buffer means that there may be more. */
static int read_all(int fd, char *buf, size_t cap_bytes, size_t *ret_len_bytes)
{
	size_t used = 0;

	while (used < cap_bytes) {
		ssize_t n = read(fd, buf + used, cap_bytes - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	*ret_len_bytes = used;
	return 0;
}

static int read_file(const struct load *load, char *buf, size_t cap_bytes, size_t *ret_len_bytes)
{
	int fd, r;

	fd = open(load->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		(void)fail(load, "cannot be opened: %s", strerror(-r));
		return r;
	}
	r = read_all(fd, buf, cap_bytes, ret_len_bytes);
	(void)close(fd);
	if (r < 0)
		(void)fail(load, "cannot be read: %s", strerror(-r));
	return r;
}

static int parse_file(const struct load *load, json_t **ret_root)
{
	size_t cap_bytes = FILE_MAX_BYTES + 1, len_bytes = 0;
	char why[STRICT_JSON_ERROR_MAX];
	char *buf = malloc(cap_bytes);
	int r;

	if (!buf) {
		(void)fail(load, "cannot be read: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	r = read_file(load, buf, cap_bytes, &len_bytes);
	if (r < 0)
		goto out;
	if (len_bytes > FILE_MAX_BYTES) {
		r = fail(load, "is too long; allowed: 1MiB");
		goto out;
	}
	r = strict_json_parse(buf, len_bytes, why, ret_root);
	if (r < 0)
		r = fail(load, "%s", why);
out:
	free(buf);
	return r;
}

int config_load(const char *path, struct config *ret_config, char *error)
{
	struct load load = {.path = path, .error = error};
	struct config config;
	json_t *root;
	int r;

	r = parse_file(&load, &root);
	if (r < 0)
		return r;
	config_defaults(&config);
	r = load_object(&load, root, &config);
	json_decref(root);
	if (r < 0)
		return r;
	*ret_config = config;
	return 0;
}

static void set_default(const struct config_key *key, struct config *config)
{
	switch (key->type) {
	case KEY_STRING:
		memcpy(field_of(config, key), key->default_text, strlen(key->default_text) + 1);
		break;
	case KEY_ENUM:
		*(int *)field_of(config, key) = find_name(key->names, key->default_text);
		break;
	case KEY_SIZE:
	case KEY_DURATION:
	case KEY_UINT:
		*(uint64_t *)field_of(config, key) = table_number(key->type, key->default_text);
		break;
	case KEY_LIST:
		break;
	}
}

void config_defaults(struct config *ret_config)
{
	memset(ret_config, 0, sizeof(*ret_config));
	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (keys[i].default_text)
			set_default(&keys[i], ret_config);
	}
}

void config_print_schema(FILE *out)
{
	char allowed[ALLOWED_TEXT_MAX];

	fprintf(out, "%-18s  %-8s  %-24s  %-47s  %s\n", "KEY", "TYPE", "DEFAULT", "ALLOWED",
		"MEANING");
	for (size_t i = 0; i < KEY_COUNT; i++) {
		const struct config_key *key = &keys[i];
		const char *shown = key->default_text ? key->default_text : "(required)";

		describe_allowed(key, allowed);
		fprintf(out, "%-18s  %-8s  %-24s  %-47s  %s\n", key->name, type_names[key->type],
			*shown ? shown : "(empty)", allowed, key->help);
	}
}

const char *config_isolation_name(int isolation)
{
	switch (isolation) {
	case CONFIG_ISOLATION_AUTO:
	case CONFIG_ISOLATION_WINDOWS:
	case CONFIG_ISOLATION_UNVERIFIED:
		return isolation_names[isolation];
	}
	return "unknown";
}
