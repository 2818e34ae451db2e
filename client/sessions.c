/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of open sessions. Owns nothing but the links in them.
 *
 * Invariants: a session is in the list from when its handle is given to the application until
 * somebody sets out to close it; whoever takes it out is the only one who closes it.
 *
 * Thread: any. Not in a forked child, where another thread may have held the lock.
 */
#include "client/sessions.h"

#include <pthread.h>
#include <stddef.h>

#include "client/pool.h"

static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER; /* no other is taken under it */
static struct mempool *sessions_first;

void sessions_add(struct mempool *pool)
{
	(void)pthread_mutex_lock(&sessions_lock);
	pool->next_open = sessions_first;
	sessions_first = pool;
	(void)pthread_mutex_unlock(&sessions_lock);
}

bool sessions_remove(const struct mempool *pool)
{
	struct mempool **at = &sessions_first;
	bool found;

	(void)pthread_mutex_lock(&sessions_lock);
	while (*at != NULL && *at != pool)
		at = &(*at)->next_open;
	found = *at != NULL;
	if (found)
		*at = pool->next_open;
	(void)pthread_mutex_unlock(&sessions_lock);
	return found;
}
