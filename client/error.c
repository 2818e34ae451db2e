/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Codes and sentences of the library's errors. The last error is kept per thread, so that a
 * caller reads the sentence about its own call. What goes wrong on the service thread travels
 * in a struct client_error to the thread that waits for it.
 *
 * Thread: any.
 */
#include "client/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/text.h"
#include "proto/error.h"

#define X(name, number, text) static_assert(MEMPOOL_E_##name == -(number), #name);
ERROR_LIST(X)
#undef X

static _Thread_local struct client_error client_error_last;

int client_error_set(struct client_error *error, int code, const char *format, ...)
{
	va_list args;

	error->code = code;
	va_start(args, format);
	(void)vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return code;
}

int client_error_raise(int code, const char *format, ...)
{
	struct client_error error = {.code = code};
	va_list args;

	/* Not written in place: an argument may be the text that is replaced. */
	va_start(args, format);
	(void)vsnprintf(error.text, sizeof(error.text), format, args);
	va_end(args);
	return client_error_forward(&error);
}

int client_error_forward(const struct client_error *error)
{
	client_error_last = *error;
	return error->code;
}

int client_error_errno(int r)
{
	switch (r) {
	case -ENOMEM:
	case -ENOBUFS:
	case -EMFILE:
	case -ENFILE:
		return MEMPOOL_E_NO_MEMORY;
	default:
		return MEMPOOL_E_SYSTEM;
	}
}

int client_error_code(uint32_t number)
{
	switch (number) {
#define X(name, value, text) case (value):
		ERROR_LIST(X)
#undef X
		return -(int)number;
	default:
		return MEMPOOL_E_INTERNAL;
	}
}

int client_error_told(struct client_error *error, const struct message_error *told)
{
	int code = client_error_code(told->code);
	char text[PROTO_TEXT_MAX + 1];

	if (told->text[0] == '\0')
		return client_error_set(error, code, "the daemon answers: %s", error_text(code));
	(void)text_escape(told->text, text, sizeof(text));
	return client_error_set(error, code, "the daemon answers: %s", text);
}

const char *mempool_error_text(int code)
{
	return error_text(code);
}

const char *mempool_last_error(void)
{
	return client_error_last.text;
}
