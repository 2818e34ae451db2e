/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_ERROR_H
#define CLIENT_ERROR_H

#include <stdint.h>

#include "client/include/mempool.h"
#include "proto/message.h"

#define CLIENT_ERROR_TEXT_MAX 512

/* A code of enum mempool_error and its sentence, on the way from one thread to another. */
struct client_error {
	int code; /* 0: none */
	char text[CLIENT_ERROR_TEXT_MAX];
};

/** client_error_set() - Return: @code */
int client_error_set(struct client_error *error, int code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** client_error_raise() - make it the calling thread's last error; Return: @code */
int client_error_raise(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** client_error_forward() - make it the calling thread's last error; Return: its code */
int client_error_forward(const struct client_error *error);

/** client_error_errno() - the code for a negative errno of a call that uses up resources */
int client_error_errno(int r);

/** client_error_code() - the code for a number that the daemon sent; unknown ones are INTERNAL */
int client_error_code(uint32_t number);

/** client_error_told() - take over an error message of the daemon; Return: the code */
int client_error_told(struct client_error *error, const struct message_error *told);

#endif
