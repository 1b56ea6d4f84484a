/* SPDX-License-Identifier: MIT
 * List the contestants by the script of each folder. */
#include "driver.h"

#include "harness/process.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define MISSING 77
#define OURS "latchkey"
#define WORDS_SIZE 2048

bool word_in(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)) != NULL; at += len)
		if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

bool word_next(const char **words, char *word, size_t size)
{
	size_t len;

	*words += strspn(*words, " ");
	len = strcspn(*words, " ");
	snprintf(word, size, "%.*s", (int)len, *words);
	*words += len;
	return len > 0;
}

static void word_add(char *words, size_t size, const char *word)
{
	size_t len = strlen(words);

	snprintf(words + len, size - len, "%s%s", len ? " " : "", word);
}

/* Copy the next part of a line, up to a tab; false if it is too long or missing. */
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

/* List the names of a folder's contestants; false if its script fails, as it may before a build. */
static bool add_names(const char *root, const char *folder, char *names, size_t size)
{
	char command[400], line[1024];
	FILE *lines;

	snprintf(command, sizeof(command), "'%s/%s/peer' list 2>/dev/null", root, folder);
	lines = popen(command, "re");
	if (!lines)
		give_up("cannot run %s", command);
	while (fgets(line, sizeof(line), lines)) {
		line[strcspn(line, "\t\n")] = 0;
		word_add(names, size, line);
	}
	return !pclose(lines);
}

/* Refuse a name that no contestant has.  A folder that cannot list its names is built first, but
 * only for a name that no other folder has; if the build fails, the name may be right. */
static void names_check(const char *root, const char *folders, const char *names)
{
	char all[WORDS_SIZE] = "", silent[WORDS_SIZE] = "", word[64];
	bool all_said = true;
	const char *at;

	for (at = folders; word_next(&at, word, sizeof(word));)
		if (!add_names(root, word, all, sizeof(all)))
			word_add(silent, sizeof(silent), word);
	for (at = names; word_next(&at, word, sizeof(word)) && word_in(all, word);)
		continue;
	if (!*word)
		return;
	for (at = silent; word_next(&at, word, sizeof(word));) {
		(void)shell("'%s/%s/peer' check >/dev/null && '%s/%s/peer' build >&2", root, word,
		            root, word);
		all_said = add_names(root, word, all, sizeof(all)) && all_said;
	}
	for (at = names; word_next(&at, word, sizeof(word));) {
		if (word_in(all, word))
			continue;
		if (all_said)
			refuse("CONTESTANTS: there is no %s; there are: %s", word, all);
		printf("CONTESTANTS: %s: in no folder that could be listed\n", word);
	}
}

/* All folders, ours first. */
static void folders_find(const char *root, char *all, size_t size)
{
	char pattern[256], word[64];
	glob_t peers;

	snprintf(pattern, sizeof(pattern), "%s/*/peer", root);
	if (glob(pattern, 0, NULL, &peers))
		give_up("no peers in %s", root);
	*all = 0;
	for (int ours = 1; ours >= 0; ours--) {
		for (size_t i = 0; i < peers.gl_pathc; i++) {
			char *name = peers.gl_pathv[i] + strlen(root) + 1;

			snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "/"), name);
			if ((strcmp(word, OURS) == 0) == (ours == 1))
				word_add(all, size, word);
		}
	}
	globfree(&peers);
}

int contestants_find(const char *root, const char *folders, const char *names,
                     struct contestant *found, int max)
{
	char all[WORDS_SIZE], chosen[WORDS_SIZE] = "", word[64];
	int count = 0;

	folders_find(root, all, sizeof(all));
	for (const char *at = folders ? folders : ""; word_next(&at, word, sizeof(word));)
		if (!word_in(all, word))
			refuse("PEERS: there is no %s; there are: %s", word, all);
	for (const char *at = all; word_next(&at, word, sizeof(word));)
		if (!folders || word_in(folders, word))
			word_add(chosen, sizeof(chosen), word);
	if (names)
		names_check(root, chosen, names);
	for (const char *at = chosen; word_next(&at, word, sizeof(word));)
		count += folder(root, word, names, found + count, max - count);
	return count;
}
