/* SPDX-License-Identifier: MIT
 * The scripts, their statements, and a script without one of them. */
#include "statements.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATEMENTS_MAX 400 /* of one file */
#define INCLUDE "-- include "

struct source sources[FILES_MAX];
int source_count;
struct mutant mutants[MUTANTS_MAX];
int mutant_count;

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t size = 0;
	char *text = NULL;

	if (!file || getdelim(&text, &size, '\0', file) < 0) {
		fprintf(stderr, "statements: cannot read %s\n", path);
		exit(2);
	}
	fclose(file);
	return text;
}

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct source *)one)->name, ((const struct source *)other)->name);
}

static void read_folder(const char *folder, const char *under)
{
	char path[600];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s", folder, under);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);
		if (len < 5 || len > 40 || strcmp(entry->d_name + len - 4, ".lua") != 0 ||
		    source_count == FILES_MAX)
			continue;
		snprintf(sources[source_count].name, sizeof(sources[0].name), "%s%.40s", under,
		         entry->d_name);
		snprintf(path, sizeof(path), "%s/%s", folder, sources[source_count].name);
		sources[source_count++].text = read_file(path);
	}
	if (dir)
		closedir(dir);
}

/* The statement on one line, and its index among equal ones. */
static void name_mutant(struct mutant *mutant)
{
	const char *at = mutant->source->text + mutant->statement.start;
	const char *end = mutant->source->text + mutant->statement.end;
	int len = snprintf(mutant->key, KEY_MAX, "%s: ", mutant->source->name), same = 1;
	bool space = false;

	for (; at < end && len < KEY_MAX - 12; at++) {
		bool blank = *at == ' ' || *at == '\t' || *at == '\n';
		if (!strncmp(at, "--", 2)) {
			at += strcspn(at, "\n");
			blank = true;
		}
		if (!blank && space)
			mutant->key[len++] = ' ';
		if (!blank)
			mutant->key[len++] = *at;
		space = blank;
	}
	mutant->key[len] = '\0';
	for (const struct mutant *other = mutants; other < mutant; other++)
		same += !strncmp(other->key, mutant->key, (size_t)len) &&
		        (!other->key[len] || !strncmp(other->key + len, " #", 2));
	if (same > 1)
		snprintf(mutant->key + len, KEY_MAX - (size_t)len, " #%d", same);
}

void sources_read(const char *folder)
{
	static struct statement statements[STATEMENTS_MAX];

	read_folder(folder, "");
	read_folder(folder, "shared/");
	qsort(sources, (size_t)source_count, sizeof(*sources), by_name);
	for (int i = 0; i < source_count; i++) {
		int line;
		int count = split(sources[i].text, statements, STATEMENTS_MAX, &line);
		if (count <= 0 || mutant_count + count > MUTANTS_MAX) {
			fprintf(stderr, "statements: %s:%d cannot be parsed\n", sources[i].name,
			        line);
			exit(2);
		}
		for (int j = 0; j < count; j++) {
			struct mutant *mutant = &mutants[mutant_count];
			mutant->source = &sources[i];
			mutant->statement = statements[j];
			name_mutant(mutant);
			mutant_count++;
		}
	}
	if (!source_count) {
		fprintf(stderr, "statements: no scripts in %s\n", folder);
		exit(2);
	}
}

static const struct source *find(const char *name, size_t len)
{
	for (int i = 0; i < source_count; i++)
		if (strlen(sources[i].name) == len && !strncmp(sources[i].name, name, len))
			return &sources[i];
	fprintf(stderr, "statements: no %.*s\n", (int)len, name);
	exit(2);
}

/* The source with its includes, without the statement if it is the mutant's: blanks instead, so
 * that line numbers stay.  Returns whether one of the sources is the mutant's. */
static bool put_source(FILE *out, const struct source *source, const struct mutant *mutant)
{
	bool own = !mutant || mutant->source == source;

	for (size_t i = 0; source->text[i]; i++) {
		const char *at = source->text + i;
		char c = *at;
		bool gone = mutant && mutant->source == source && i >= mutant->statement.start &&
		            i < mutant->statement.end && c != '\n';
		if (!strncmp(at, INCLUDE, strlen(INCLUDE))) {
			const char *name = at + strlen(INCLUDE);
			if (put_source(out, find(name, strcspn(name, "\n")), mutant))
				own = true;
		}
		fputc(gone ? ' ' : c, out);
	}
	return own;
}

char *source_with(const struct source *script, const struct mutant *mutant)
{
	char *text = NULL;
	size_t size;
	FILE *out;

	if (strchr(script->name, '/'))
		return NULL;
	out = open_memstream(&text, &size);
	if (!out)
		abort();
	if (put_source(out, script, mutant)) {
		fclose(out);
		return text;
	}
	fclose(out);
	free(text);
	return NULL;
}
