/* SPDX-License-Identifier: MIT
 * The latchkey command: locks, semaphores and latches for shells, cron and deploy scripts. */
#include "options.h"
#include "say.h"
#include "status.h"
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first socket would otherwise get the number of a closed standard descriptor, and the command
 * would read or write it. */
static void fill_standard_descriptors(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			open("/dev/null", fd ? O_WRONLY : O_RDONLY);
}

/* False when output was lost: a truncated result must not look complete. */
static bool flush_output(void)
{
	bool lost = ferror(stdout); /* in an earlier flush */

	errno = 0;
	lost = fflush(stdout) || lost;
	if (lost)
		say("cannot write the output: %s",
		    errno ? strerror(errno) : "an earlier write failed");
	return !lost;
}

int main(int argc, char **argv)
{
	static int (*const verbs[])(const struct options *) = {
		[VERB_LOCK] = verb_lock,
		[VERB_SEM] = verb_lock,
		[VERB_RATE] = verb_lock,
		[VERB_LATCH_SET] = verb_latch_set,
		[VERB_LATCH_RESET] = verb_latch_set,
		[VERB_LATCH_DOWN] = verb_latch_down,
		[VERB_LATCH_WAIT] = verb_latch_wait,
		[VERB_LATCH_SHOW] = verb_latch_show,
		[VERB_LATCH_RM] = verb_latch_rm,
		[VERB_SHOW] = verb_show,
		[VERB_BREAK] = verb_break,
		[VERB_LOCAL] = verb_local,
		[VERB_GRACE] = verb_grace,
		[VERB_QUORUM] = verb_quorum,
		[VERB_DOCTOR] = verb_doctor,
	};
	static struct options options; /* a detached thread may read them after main() */
	int status;

	fill_standard_descriptors();
	text_init();
	if (options_parse(&options, argc, argv, &status))
		status = verbs[options.verb](&options);
	return flush_output() ? status : STATUS_SYSTEM;
}
