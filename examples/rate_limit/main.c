/* SPDX-License-Identifier: MIT
 * Start ten callers and the service, and compare the service's count with the limit. */
#include "rate_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* False if a caller could not be started; the others continue. */
static bool start_callers(const char *store, int listener, int port, struct caller *callers)
{
	for (int i = 0; i < CALLERS; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return false;
		if (pid == 0) {
			close(listener);
			exit(caller_run(store, port, CALLS / CALLERS, &callers[i]) ? 0 : 1);
		}
	}
	return true;
}

static bool wait_for_callers(void)
{
	bool ok = true;
	int status;

	while (wait(&status) > 0)
		ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	return ok;
}

/* Print the delays that the callers measured, and the time that the lease was extended by. */
static void report_callers(const struct caller *callers)
{
	int64_t measured_us = 0, allowed_us = 0, longest_us = 0;
	int late = 0;

	for (int i = 0; i < CALLERS; i++) {
		const struct caller *caller = &callers[i];

		measured_us = caller->measured_us > measured_us ? caller->measured_us : measured_us;
		allowed_us = caller->allowed_us > allowed_us ? caller->allowed_us : allowed_us;
		longest_us = caller->longest_us > longest_us ? caller->longest_us : longest_us;
		late += caller->longest_us > caller->allowed_us;
	}
	printf("a call arrives later than it is granted: at warm-up it took up to %.1f ms\n",
	       (double)measured_us / 1000);
	printf("so permits last up to %.1f ms longer than the window; the longest call took %.1f "
	       "ms\n",
	       (double)allowed_us / 1000, (double)longest_us / 1000);
	if (late)
		printf("%d callers had a call that took longer than they allow for: luck, not a "
		       "limit\n",
		       late);
}

static bool judge(const struct caller *callers, double seconds)
{
	int calls = server_calls(), most = server_most_calls(WINDOW_MS * INT64_C(1000));

	printf("%d calls from %d processes in %.1f s\n", calls, CALLERS, seconds);
	report_callers(callers);
	printf("the server saw at most %d calls in any %d ms, %d allowed\n", most, WINDOW_MS,
	       LIMIT);
	return calls == CALLS && most <= LIMIT;
}

int main(int argc, char **argv)
{
	const char *store = argc > 1 ? argv[1] : NULL;
	struct caller *callers = mmap(NULL, CALLERS * sizeof(*callers), PROT_READ | PROT_WRITE,
	                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int64_t start_us = now_us();
	int port, listener = server_listen(&port);
	bool ok;

	if (callers == MAP_FAILED || listener < 0) {
		perror("rate_limit");
		return 1;
	}
	/* The callers first: a process that has threads should not fork.  Their calls wait in the
	 * socket until the server answers. */
	ok = start_callers(store, listener, port, callers);
	if (!server_start(listener)) {
		fprintf(stderr, "rate_limit: no HTTP server\n");
		close(listener);
		wait_for_callers();
		return 1;
	}
	ok = wait_for_callers() && ok;
	server_stop();
	return judge(callers, (double)(now_us() - start_us) / 1e6) && ok ? 0 : 1;
}
