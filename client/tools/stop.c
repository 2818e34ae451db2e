/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals that ask to stop. Keeps whether one has come, for the whole process.
 *
 * A signal may come after somebody has looked for it and before he waits, in open(), read(),
 * write() or poll(), maybe for ever. So the first one is followed by SIGALRM each second, until
 * nobody waits any more: one of these interrupts the wait.
 *
 * Thread: any; handlers run on any of the tool's own, as the library's block all signals.
 */
#include "client/tools/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define STOP_AGAIN_S 1

static atomic_bool stop_was_asked;
static atomic_bool stop_is_over;

static void stop_again(int number)
{
	(void)number;
	if (!atomic_load(&stop_is_over))
		(void)alarm(STOP_AGAIN_S);
}

static void stop_on_signal(int number)
{
	atomic_store(&stop_was_asked, true);
	stop_again(number);
}

/* Whoever starts us with a signal ignored, as nohup does, wants us to go on. */
static void stop_catch_one(int number)
{
	struct sigaction action = {.sa_handler = stop_on_signal};
	struct sigaction inherited;

	if (sigaction(number, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
		(void)sigaction(number, &action, NULL);
}

void stop_catch(void)
{
	struct sigaction action = {.sa_handler = stop_again};
	sigset_t alarms;

	(void)sigaction(SIGALRM, &action, NULL);
	(void)sigemptyset(&alarms);
	(void)sigaddset(&alarms, SIGALRM);
	(void)sigprocmask(SIG_UNBLOCK, &alarms, NULL);
	stop_catch_one(SIGINT);
	stop_catch_one(SIGTERM);
	stop_catch_one(SIGHUP);
}

bool stop_asked(void)
{
	return atomic_load_explicit(&stop_was_asked, memory_order_relaxed);
}

void stop_no_more(void)
{
	atomic_store(&stop_is_over, true);
	(void)alarm(0);
}

enum tool_status stop_complain(void)
{
	tool_complain("stopped by a signal");
	return TOOL_FAILED;
}
