/* SPDX-License-Identifier: MIT
 * The list of statements that no test needs to notice, each with its reason:
 * tests/statements/survivors.  A line that begins with a source is an entry; the indented text
 * after it is the reason. */
#include "statements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_MAX 400

static char listed[LISTED_MAX][KEY_MAX];
static int listed_count;

void survivors_read(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[KEY_MAX];
	bool reason = true;

	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == ' ' || line[0] == '\t') {
			reason = true;
			continue;
		}
		if (line[0] == '#' || !line[0])
			continue;
		if (!reason || listed_count == LISTED_MAX) {
			fprintf(stderr, "statements: %s: no reason before: %s\n", path, line);
			exit(2);
		}
		reason = false;
		snprintf(listed[listed_count++], KEY_MAX, "%s", line);
	}
	if (!file || !reason) {
		fprintf(stderr, "statements: %s cannot be read, or its last line has no reason\n",
		        path);
		exit(2);
	}
	fclose(file);
}

bool survivor_listed(const char *key)
{
	for (int i = 0; i < listed_count; i++)
		if (!strcmp(listed[i], key))
			return true;
	return false;
}

int survivors_unknown(void)
{
	int unknown = 0;

	for (int i = 0; i < listed_count; i++) {
		bool there = false;
		for (int j = 0; j < mutant_count; j++)
			there = there || !strcmp(mutants[j].key, listed[i]);
		if (!there)
			printf("listed, and no statement of any script: %s\n", listed[i]);
		unknown += !there;
	}
	return unknown;
}
