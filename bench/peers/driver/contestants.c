/* SPDX-License-Identifier: MIT
 * Which contestants there are: each folder's script is asked. */
#include "driver.h"

#include "harness/process.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define MISSING 77
#define OURS "latchkey"

bool word_in(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
		if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

/* The next part of a line, up to a tab; false when it is too long or not there. */
static bool part(char **line, char *text, size_t size)
{
	char *start = strsep(line, "\t");

	return start && strlen(start) < size && memcpy(text, start, strlen(start) + 1);
}

static int list(const char *peer, const char *names, struct contestant *found, int max)
{
	char command[300], line[1024];
	FILE *lines;
	int count = 0;

	snprintf(command, sizeof(command), "'%s' list", peer);
	lines = popen(command, "re");
	if (!lines)
		give_up("cannot run %s", command);
	while (fgets(line, sizeof(line), lines)) {
		struct contestant *one = &found[count];
		char *at = line;

		line[strcspn(line, "\n")] = 0;
		if (count == max)
			give_up("more than %d contestants", CONTESTANTS_MAX);
		if (!part(&at, one->name, sizeof(one->name)) ||
		    !part(&at, one->works, sizeof(one->works)) ||
		    !part(&at, one->what, sizeof(one->what)))
			give_up("%s: not a line of a contestant: %s", command, line);
		if (!part(&at, one->server, sizeof(one->server)) || !*one->server)
			snprintf(one->server, sizeof(one->server), "redis");
		snprintf(one->peer, sizeof(one->peer), "%s", peer);
		if (names && !word_in(names, one->name))
			continue;
		if (!store_exists(one->server))
			printf("skipped: %s: %s is not installed\n", one->name, one->server);
		else
			count++;
	}
	if (pclose(lines))
		give_up("%s fails", command);
	return count;
}

static int folder(const char *root, const char *name, const char *names, struct contestant *found,
                  int max)
{
	char peer[256], command[300], why[256] = "";
	FILE *check;
	int status;

	snprintf(peer, sizeof(peer), "%s/%s/peer", root, name);
	snprintf(command, sizeof(command), "'%s' check", peer);
	check = popen(command, "re");
	if (!check || (!fgets(why, sizeof(why), check) && ferror(check)))
		give_up("cannot run %s", command);
	status = pclose(check);
	if (WIFEXITED(status) && WEXITSTATUS(status) == MISSING) {
		printf("skipped: %s", *why ? why : name);
		return 0;
	}
	if (status || shell("'%s' build >&2", peer)) {
		printf("skipped: %s: cannot be built\n", name);
		return 0;
	}
	return list(peer, names, found, max);
}

int contestants_find(const char *root, const char *folders, const char *names,
                     struct contestant *found, int max)
{
	char pattern[256];
	glob_t peers;
	int count = 0;

	snprintf(pattern, sizeof(pattern), "%s/*/peer", root);
	if (glob(pattern, 0, NULL, &peers))
		give_up("no peers in %s", root);
	for (int ours = 1; ours >= 0; ours--) {
		for (size_t i = 0; i < peers.gl_pathc; i++) {
			char *name = peers.gl_pathv[i] + strlen(root) + 1;
			char word[64];

			snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "/"), name);
			if ((strcmp(word, OURS) == 0) == (ours == 1) &&
			    (!folders || word_in(folders, word)))
				count += folder(root, word, names, found + count, max - count);
		}
	}
	globfree(&peers);
	return count;
}
