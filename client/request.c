/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests in flight. The list has those only that still wait: one that has been answered or
 * whose thread has given up is not in it, so that a late answer finds nobody.
 *
 * Thread: any that holds the lock of the session.
 */
#include "client/request.h"

#include <assert.h>

#include "client/wait.h"

int request_init(struct request *request, uint16_t answer_type, request_answer_fn answer,
		 void *context)
{
	*request = (struct request){
		.answer_type = answer_type,
		.answer = answer,
		.context = context,
	};
	return wait_init(&request->changed);
}

void request_deinit(struct request *request)
{
	(void)pthread_cond_destroy(&request->changed);
}

void request_add(struct request_list *list, struct request *request)
{
	if (request->id == 0)
		request->id = ++list->last_id;
	request->done = false;
	request->error = (struct client_error){0};
	request->next = list->first;
	list->first = request;
}

void request_remove(struct request_list *list, struct request *request)
{
	struct request **link = &list->first;

	while (*link != NULL && *link != request)
		link = &(*link)->next;
	if (*link != NULL)
		*link = request->next;
}

struct request *request_find(const struct request_list *list, uint64_t id)
{
	struct request *request = list->first;

	while (request != NULL && request->id != id)
		request = request->next;
	return request;
}

void request_finish(struct request_list *list, struct request *request,
		    const struct client_error *error)
{
	assert(!request->done);
	request_remove(list, request);
	if (error != NULL)
		request->error = *error;
	request->done = true;
	(void)pthread_cond_signal(&request->changed);
	if (request->finished != NULL)
		request->finished(request);
}
