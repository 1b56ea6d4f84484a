/* SPDX-License-Identifier: MIT
 * A right is tested by using it, in a process of its own. */
#include "rights.h"

#include "test.h"

#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For root; for other users, and for root without enough capabilities. */
static const char *const ways[] = {"--propagation=private", "--map-root-user"};
static int way = -1; /* the one that worked */

static void skip(const char *test, const char *why)
{
	/* TEST(name) is the function name_run(), TEST_OF(name) and TEST_EACH(name) name_of(). */
	printf("skipped: %.*s: %s\n", (int)(strrchr(test, '_') - test), test, why);
	fflush(stdout);
}

/* Try one way; return the exit status, and the first line of the output. */
static int try_way(int which, const char *options_and_command, char *line, int size)
{
	char command[512];
	FILE *output;
	int status;

	snprintf(command, sizeof(command),
	         "PATH=$PATH:/usr/sbin:/sbin unshare %s %s 2>&1 </dev/null", ways[which],
	         options_and_command);
	output = popen(command, "re");
	ck_assert_ptr_nonnull(output);
	if (!fgets(line, size, output))
		line[0] = 0;
	line[strcspn(line, "\n")] = 0;
	while (fgetc(output) != EOF)
		;
	status = pclose(output);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) < 126, "%s: %s", command, line);
	return WEXITSTATUS(status);
}

const char *unshare_right(void)
{
	if (way < 0)
		return ways[geteuid() == 0 ? 0 : 1];
	return ways[way];
}

bool right_to_unshare(const char *options_and_command, const char *test)
{
	char why[2][256] = {"", ""};
	int first = geteuid() == 0 ? 0 : 1;

	for (int i = first; i < 2; i++) {
		if (!try_way(i, options_and_command, why[i], sizeof(why[i]))) {
			way = i;
			return true;
		}
	}
	skip(test, why[first]);
	return false;
}

bool right_of_root(const char *test)
{
	if (geteuid() == 0)
		return true;
	skip(test, "needs root");
	return false;
}

bool right_to_see_processes(const char *test)
{
	if (!access("/proc/self/stat", R_OK))
		return true;
	skip(test, "/proc is not mounted");
	return false;
}

bool right_to_terminal(const char *test)
{
	int terminal, inside;
	char why[128];

	if (!openpty(&terminal, &inside, NULL, NULL, NULL)) {
		close(terminal);
		close(inside);
		return true;
	}
	snprintf(why, sizeof(why), "no pseudo-terminal (/dev/pts): %s", strerror(errno));
	skip(test, why);
	return false;
}
