/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CONTROL_H
#define CLIENT_CONTROL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "client/buffer.h"
#include "client/cm.h"
#include "client/error.h"
#include "client/request.h"
#include "common/endpoint.h"
#include "common/verbs.h"
#include "proto/message.h"

struct mempool;

/* The control connection of a session; guarded by the session's lock. */
struct control {
	struct cm cm;
	struct verbs_cq cq;
	struct buffer memory;
	struct endpoint ep;
	bool posted;   /* the endpoint is in use */
	bool welcomed; /* the handshake is over; welcome is valid */
	bool lost;     /* for good; loss says why */
	struct client_error loss;
	int cause; /* the code that it was lost for, which the calls of a session do not return */
	struct message_welcome welcome;
	uint64_t sessions; /* that were welcomed so far */
	struct request_list requests;
	pthread_cond_t sent; /* signalled when nothing waits to be sent any more */
};

/** control_is_open() - is the handshake over, and the session not lost? */
static inline bool control_is_open(const struct control *control)
{
	return control->welcomed && !control->lost;
}

/** control_init() - Return: 0 or a negative errno */
int control_init(struct mempool *pool);
void control_deinit(struct mempool *pool);

/**
 * control_open() - connect; takes the session's lock
 *
 * Return: 0, or a code with the thread's last error set; close it then.
 */
int control_open(struct mempool *pool, struct sockaddr *peer, uint64_t deadline_ns);

/** control_reset() - lock held: it is closed, and may be opened for another session */
void control_reset(struct control *control);

/** control_hello() - the handshake; takes the lock; Return: 0 or a code, last error set */
int control_hello(struct mempool *pool, uint64_t deadline_ns);

/** control_bye() - tell the daemon that all is done, if that can be done in time; takes the lock */
void control_bye(struct mempool *pool, uint64_t deadline_ns);

/** control_close() - disconnect; may be opened again; takes the session's lock */
void control_close(struct mempool *pool);

/**
 * control_call() - send a request, wait for its answer; takes the session's lock
 * @m: its request id is filled in
 * @request: initialised; with an id other than 0 it goes under that one; its answer function
 *	has seen the answer if 0 is returned
 *
 * Return: 0, the daemon's code, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST, ...; the thread's
 * last error is set.
 */
int control_call(struct mempool *pool, struct message *m, struct request *request,
		 uint64_t deadline_ns);

/**
 * control_begin() - send a request and let it wait; lock held
 *
 * Return: 0, or a code with the last error set; the request does not wait then.
 */
int control_begin(struct mempool *pool, struct message *m, struct request *request);

/**
 * control_await() - wait for the answer to a request that has begun; lock held
 * @type: of the request, for the sentence
 *
 * Return: as control_call(); after MEMPOOL_E_TIMEOUT the request still waits.
 */
int control_await(struct mempool *pool, struct request *request, uint16_t type,
		  uint64_t deadline_ns);

/** control_notify() - send what nobody answers; lock held; what cannot be sent is dropped */
void control_notify(struct mempool *pool, const struct message *m);

/** control_give_back() - release what no handle stands for, not waiting for it; lock held */
void control_give_back(struct mempool *pool, const struct message_leases *leases);

/** control_request() - control_call() with a request made from the last arguments */
int control_request(struct mempool *pool, struct message *m, uint16_t answer_type,
		    request_answer_fn answer, void *context, uint64_t deadline_ns);

/** control_step() - digest completions, without blocking; lock held */
void control_step(struct mempool *pool);

/** control_next_ms() - when control_step() is due at the latest: milliseconds for poll(), or -1; lock held */
int control_next_ms(const struct mempool *pool);

/** control_tell_lost() - lock held: the session that the application has is lost */
void control_tell_lost(struct mempool *pool);

/** control_give_up_requests() - none waits any more, each has failed with that; lock held */
void control_give_up_requests(struct mempool *pool, int code, const char *text);

/** control_lose() - the session is over: wake everybody; lock held */
void control_lose(struct mempool *pool, int code, const char *text);

#endif
