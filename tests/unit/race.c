/* SPDX-License-Identifier: BSD-3-Clause */
/* Two threads that count without a lock: a race for the thread sanitizer to find. */
#include <pthread.h>
#include <stdio.h>

#define THREADS 2

static int counter;

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < 1000; i++)
		counter++;
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, count, NULL) != 0)
			return 1;
	}
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	printf("%d\n", counter);
	return 0;
}
