/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_REQUEST_H
#define CLIENT_REQUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/error.h"
#include "proto/message.h"

/*
 * A request that waits for its answer. It lives on the stack of the thread that waits; all
 * functions but init and deinit are called with the lock of the session held.
 */

struct request;

/*
 * Digests an answer of the expected type, on the service thread.
 * Return: 1 = a further one follows; 0 = complete; negative = the daemon broke the protocol.
 */
typedef int (*request_answer_fn)(struct request *request, const struct message *m);

struct request {
	struct request *next; /* in the list while it waits */
	uint64_t id;	      /* 0: to be given one when it is added */
	uint16_t answer_type;
	request_answer_fn answer; /* NULL: nothing but the type is of interest */
	void *context;
	/* Told, when no thread waits, that it is done; the request is in no list. NULL: nobody. */
	void (*finished)(struct request *request);
	uint64_t sent_ns; /* not later than the message left us */
	bool done;
	pthread_cond_t changed;
	struct client_error error; /* code 0: answered */
};

struct request_list {
	struct request *first;
	uint64_t last_id;
};

/** request_init() - Return: 0 or a negative errno */
int request_init(struct request *request, uint16_t answer_type, request_answer_fn answer,
		 void *context);

/** request_deinit() - must not be in a list */
void request_deinit(struct request *request);

/** request_add() - let it wait, for the first time or anew; gives it an id if it has none */
void request_add(struct request_list *list, struct request *request);

/** request_remove() - it waits no more; not being in the list is allowed */
void request_remove(struct request_list *list, struct request *request);

/** request_find() - Return: the request with that id, or NULL */
struct request *request_find(const struct request_list *list, uint64_t id);

/** request_finish() - remove it and wake its thread; @error: NULL for success */
void request_finish(struct request_list *list, struct request *request,
		    const struct client_error *error);

#endif
