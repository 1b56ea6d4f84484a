/* SPDX-License-Identifier: MIT
 * The latchkey command: locks for shells, cron and deploy scripts. */
#include "options.h"
#include "status.h"
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* A closed standard descriptor would be taken by the first socket, which the command would then
 * read or write. */
static void fill_standard_descriptors(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			open("/dev/null", fd ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	static int (*const verbs[])(const struct options *) = {
		[VERB_LOCK] = verb_lock,   [VERB_SHOW] = verb_show,     [VERB_BREAK] = verb_break,
		[VERB_LOCAL] = verb_local, [VERB_DOCTOR] = verb_doctor,
	};
	struct options options;
	int status;

	fill_standard_descriptors();
	if (options_parse(&options, argc, argv, &status))
		status = verbs[options.verb](&options);
	/* A full disk must not look like an empty answer. */
	if (fflush(stdout) && status == 0)
		status = STATUS_SYSTEM;
	return status;
}
