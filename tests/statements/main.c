/* SPDX-License-Identifier: MIT
 * Deletes every statement of every script in turn, and runs the tests that must notice: see
 * rules.mk.
 *
 *   main.c        the work, shared among processes; the results
 *   sources.c     the scripts and their statements
 *   split.c       splits a Lua text into statements
 *   killers.c     the programs that must notice
 *   survivors.c   the list of statements that no test needs to notice */
#include "statements.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SCRIPTS "src/redis/scripts"
#define SURVIVORS "tests/statements/survivors"
#define JOBS_MAX 16
#define NOT_LUA 200 /* exit statuses of a worker; below: the killer's index */
#define NOBODY 201

static char folder[] = "/tmp/statements.XXXXXX";

/* ---- One mutant --------------------------------------------------------------------------- */

static bool compiles(const char *text)
{
	lua_State *lua = luaL_newstate();
	bool good = lua && !luaL_loadbuffer(lua, text, strlen(text), "script");

	lua_close(lua);
	return good;
}

/* Write the altered sources, and pass their path to the programs.  False if it is not valid Lua any
 * more. mutant: NULL = all scripts, unchanged. */
static bool plant(const struct mutant *mutant, int number)
{
	static char list[8000];
	size_t len = 0;

	for (int i = 0; i < source_count; i++) {
		char *text = source_with(&sources[i], mutant), path[200];
		bool good = true;
		FILE *file;
		if (!text)
			continue;
		snprintf(path, sizeof(path), "%s/%d-%.60s", folder, number, sources[i].name);
		file = fopen(path, "we");
		good = compiles(text);
		if (!file || fputs(text, file) < 0 || fclose(file))
			abort();
		free(text);
		if (!good)
			return false;
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%.*s:%s", len ? "," : "",
		                        (int)strlen(sources[i].name) - 4, sources[i].name, path);
	}
	setenv("LK_SCRIPT_REPLACE", list, 1);
	return true;
}

static pid_t start(const struct mutant *mutant, int number)
{
	pid_t pid = fork();
	int killer;

	if (pid < 0)
		abort();
	if (pid)
		return pid;
	setenv("LK_SEED", "1", 1);
	if (!plant(mutant, number))
		_exit(NOT_LUA);
	killer = killers_run(mutant->source->name);
	_exit(killer < 0 ? NOBODY : killer);
}

static bool traced(void)
{
	const char *text = getenv("TRACE");

	return text && *text;
}

static void finish(struct mutant *mutant, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : NOBODY;

	mutant->killer = code;
	mutant->verdict = code == NOT_LUA ? INVALID : code == NOBODY ? SURVIVED : KILLED;
	if (traced() || (mutant->verdict == SURVIVED && !survivor_listed(mutant->key)))
		printf("%s %s (line %d)\n",
		       mutant->verdict == KILLED    ? killer_name(code)
		       : mutant->verdict == INVALID ? "does not compile"
		                                    : "SURVIVES",
		       mutant->key, mutant->statement.line);
	fflush(stdout);
}

/* ---- All of them -------------------------------------------------------------------------- */

/* Is it in the share?  SHARE=1/10, of which SEED selects the tenth; FILES= selects sources. */
static bool chosen(const struct mutant *mutant)
{
	const char *share = getenv("SHARE"), *seed = getenv("SEED"), *files = getenv("FILES");
	uint64_t hash = seed ? strtoull(seed, NULL, 10) : 0;
	unsigned part = 1, of = 1;

	if (files && *files && !strstr(files, mutant->source->name))
		return false;
	if (share && *share &&
	    (sscanf(share, "%u/%u", &part, &of) != 2 || !of || !part || part > of)) {
		fprintf(stderr, "statements: SHARE=%s is no share\n", share);
		exit(2);
	}
	for (const char *at = mutant->key; *at; at++)
		hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
	return (hash >> 20) % of < part;
}

static bool any_chosen(void)
{
	for (int i = 0; i < mutant_count; i++)
		if (chosen(&mutants[i]))
			return true;
	return false;
}

static void run_all(int jobs)
{
	struct {
		pid_t pid;
		struct mutant *mutant;
	} running[JOBS_MAX] = {{0}};
	int next = 0, active = 0;

	while (next < mutant_count || active) {
		while (active < jobs && next < mutant_count) {
			struct mutant *mutant = &mutants[next++];
			int slot = 0;
			if (!chosen(mutant))
				continue;
			while (running[slot].pid)
				slot++;
			running[slot].mutant = mutant;
			running[slot].pid = start(mutant, slot);
			active++;
		}
		if (active) {
			int status, slot = 0;
			pid_t pid = wait(&status);
			while (slot < jobs && running[slot].pid != pid)
				slot++;
			if (slot == jobs)
				continue;
			finish(running[slot].mutant, status);
			running[slot].pid = 0;
			active--;
		}
	}
}

/* Replacing scripts by themselves must not be noticed. */
static bool sound(void)
{
	static const char *const kinds[] = {"semaphore", "lock", "latch"};
	bool good = plant(NULL, 0);

	setenv("LK_SEED", "1", 1);
	for (int i = 0; good && i < 3; i++) {
		int killer = killers_there(kinds[i]) ? killers_run(kinds[i]) : 0;
		if (killer >= 0)
			fprintf(stderr,
			        "statements: %s fails, or is not there, with the scripts as "
			        "they are\n",
			        killer_name(killer));
		good = killer < 0;
	}
	unsetenv("LK_SCRIPT_REPLACE");
	return good;
}

static void remove_folder(void)
{
	for (int i = 0; i < source_count; i++)
		for (int slot = 0; slot < JOBS_MAX; slot++) {
			char path[200];
			snprintf(path, sizeof(path), "%s/%d-%.60s", folder, slot, sources[i].name);
			unlink(path);
		}
	rmdir(folder);
}

static int tell(double took, FILE *out)
{
	int count[SURVIVED + 1] = {0}, unlisted = 0, wrongly = 0;
	const char *commit = getenv("LK_COMMIT");

	for (int i = 0; i < mutant_count; i++) {
		const struct mutant *mutant = &mutants[i];
		bool listed = survivor_listed(mutant->key);
		count[mutant->verdict]++;
		unlisted += mutant->verdict == SURVIVED && !listed;
		if ((mutant->verdict == KILLED || mutant->verdict == INVALID) && listed) {
			fprintf(out, "listed as a survivor, and killed: %s\n", mutant->key);
			wrongly++;
		}
	}
	fprintf(out,
	        "statements: %d of %d deleted: %d noticed, %d no Lua without it, %d survive (%d of "
	        "them not listed, %d listed wrongly); %.0f s, commit %s\n",
	        mutant_count - count[NOT_RUN], mutant_count, count[KILLED], count[INVALID],
	        count[SURVIVED], unlisted, wrongly, took, commit ? commit : "unknown");
	return unlisted + wrongly;
}

int main(void)
{
	const char *jobs_text = getenv("J"), *evidence = getenv("LK_EVIDENCE");
	int jobs = jobs_text && *jobs_text ? atoi(jobs_text) : 2, bad;
	struct timespec begin, end;
	double took;
	FILE *file;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	sources_read(SCRIPTS);
	survivors_read(SURVIVORS);
	if (!any_chosen()) {
		fprintf(stderr, "statements: nothing is selected by SHARE and FILES\n");
		return 2;
	}
	if (!mkdtemp(folder))
		return 2;
	if (!sound()) {
		remove_folder();
		return 2;
	}
	run_all(jobs < 1 ? 1 : jobs > JOBS_MAX ? JOBS_MAX : jobs);
	remove_folder();
	clock_gettime(CLOCK_MONOTONIC, &end);
	took = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
	bad = survivors_unknown();
	file = evidence ? fopen(evidence, "ae") : NULL;
	if (file) {
		tell(took, file);
		fclose(file);
	}
	return tell(took, stdout) + bad > 0;
}
