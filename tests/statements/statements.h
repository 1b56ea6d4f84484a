/* SPDX-License-Identifier: MIT
 * Shared by the files of build/statements: the deleted statements, the programs that must notice,
 * the exceptions. */
#ifndef STATEMENTS_H
#define STATEMENTS_H

#include "split.h"

#include <stdbool.h>
#include <stddef.h>

#define FILES_MAX 64
#define MUTANTS_MAX 2000
#define KEY_MAX 400

/* A script, or a file that several scripts include. */
struct source {
	char name[64]; /* "lock_ask.lua", "shared/lock.lua" */
	char *text;
};

enum verdict { NOT_RUN, INVALID, KILLED, SURVIVED };

struct mutant {
	const struct source *source;
	struct statement statement;
	char key[KEY_MAX]; /* source, index among equal ones, and the statement on one line */
	enum verdict verdict;
	int killer; /* index */
};

/* ---- sources.c ----------------------------------------------------------------------------- */

extern struct source sources[FILES_MAX];
extern int source_count;
extern struct mutant mutants[MUTANTS_MAX];
extern int mutant_count;

/* Read all scripts, and find their statements.  Ends the program on an error. */
void sources_read(const char *folder);
/* A script as it is sent, without the mutant's statement; NULL if the source is not a script, or
 * does not change. mutant: NULL = the unchanged script.  The caller frees it. */
char *source_with(const struct source *script, const struct mutant *mutant);

/* ---- killers.c ----------------------------------------------------------------------------- */

/* Run the programs that must notice, one after the other; returns the index of the first that does,
 * -1 if none does. */
int killers_run(const char *source_name);
const char *killer_name(int index);
/* False if a program is not built. */
bool killers_there(const char *source_name);

/* ---- survivors.c --------------------------------------------------------------------------- */

/* Read the list of statements that may survive. */
void survivors_read(const char *path);
bool survivor_listed(const char *key);
/* The entries of the list that match no statement. */
int survivors_unknown(void);

#endif
