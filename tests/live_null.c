/* SPDX-License-Identifier: MIT
 * NULL where latchkey.h wants a handle, a name or a place for a result: LK_EINVALID, or the
 * harmless value that the header promises.  The rows below cover every pointer of every function;
 * the test reads the header and fails if one is missing. */
#include "harness/handles.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "include/latchkey.h"
#define HEADER_MAX (1 << 17)

/* The other arguments of the calls below. */
static lk_client *client;
static lk_lock *lock;
static lk_semaphore *semaphore;
static lk_latch *latch;
static lk_hold snapshot;
static lk_run run;
static lk_party parties[2];
static char key[LK_GUARD_KEY_SIZE];
static lk_ticket permits[2];
static lk_lock_status lock_status;
static lk_memory memory;
static lk_server address;
static lk_semaphore_status semaphore_status;
static lk_latch_status latch_status;
static lk_latch_step step;
static lk_counters counters;
static lk_fitness worst;
static uint64_t hold;
static lk_kind kind;
static size_t count;

static bool next_name(void *arg, const char *name, size_t name_len)
{
	return arg != NULL || name != NULL || name_len > 0;
}

static int work(void *arg, uint64_t fence)
{
	return arg != NULL && fence == 0;
}

static bool named(const char *parameter)
{
	char words[60];

	snprintf(words, sizeof(words), "%s: ", parameter);
	return !strncmp(lk_errmsg(), words, strlen(words));
}

static lk_err try_without_fence(lk_lock *free_lock)
{
	lk_err err = lk_lock_acquire(free_lock, 0, NULL);

	return err ? err : lk_lock_release(free_lock);
}

/* A function, one of its pointers, and a call where only that pointer is NULL.  REFUSED:
 * LK_EINVALID, and lk_errmsg() begins with the pointer's name.  HARMLESS: the condition holds.
 * ALLOWED: NULL has a meaning of its own, which the condition checks. */
#define ROWS(REFUSED, HARMLESS, ALLOWED)                                                           \
	ALLOWED(lk_client_open, url, lk_client_open(NULL, NULL, &client) == LK_ESYSTEM)            \
	ALLOWED(lk_client_open, options, lk_client_open("x:", NULL, &client) == LK_EINVALID)       \
	REFUSED(lk_client_open, client, ("local:", NULL, NULL))                                    \
	ALLOWED(lk_client_close, client, lk_client_close(NULL) == LK_OK)                           \
	HARMLESS(lk_client_id, client, !strcmp(lk_client_id(NULL), ""))                            \
	REFUSED(lk_client_counters, client, (NULL, &counters))                                     \
	REFUSED(lk_client_counters, counters, (client, NULL))                                      \
	ALLOWED(lk_quorum_begin, url, lk_quorum_begin(NULL, NULL, 0) == LK_EINVALID)               \
	ALLOWED(lk_quorum_begin, options, lk_quorum_begin("x:", NULL, 0) == LK_EINVALID)           \
	REFUSED(lk_lock_open, client, (NULL, "a", 0, NULL, &lock))                                 \
	REFUSED(lk_lock_open, name, (client, NULL, 0, NULL, &lock))                                \
	ALLOWED(lk_lock_open, options, lk_lock_open(client, "a", 0, NULL, &lock) == LK_OK)         \
	REFUSED(lk_lock_open, lock, (client, "a", 0, NULL, NULL))                                  \
	ALLOWED(lk_lock_close, lock, lk_lock_close(NULL) == LK_OK)                                 \
	REFUSED(lk_lock_acquire, lock, (NULL, 0, &hold))                                           \
	ALLOWED(lk_lock_acquire, fence, try_without_fence(lock) == LK_OK)                          \
	REFUSED(lk_lock_run, lock, (NULL, 0, work, NULL, &run))                                    \
	REFUSED(lk_lock_run, fn, (lock, 0, NULL, NULL, &run))                                      \
	ALLOWED(lk_lock_run, arg, lk_lock_run(lock, 0, work, NULL, &run) == LK_OK)                 \
	ALLOWED(lk_lock_run, out, lk_lock_run(lock, 0, work, &count, NULL) == LK_OK)               \
	REFUSED(lk_lock_release, lock, (NULL))                                                     \
	REFUSED(lk_lock_cancel, lock, (NULL))                                                      \
	REFUSED(lk_lock_extend, lock, (NULL, 1000))                                                \
	REFUSED(lk_lock_snapshot, lock, (NULL, &snapshot))                                         \
	REFUSED(lk_lock_snapshot, hold, (lock, NULL))                                              \
	REFUSED(lk_lock_guard_key, lock, (NULL, key, sizeof(key)))                                 \
	REFUSED(lk_lock_guard_key, key, (lock, NULL, sizeof(key)))                                 \
	HARMLESS(lk_lock_state, lock, lk_lock_state(NULL) == LK_STATE_NONE)                        \
	HARMLESS(lk_lock_is_mine, lock, !lk_lock_is_mine(NULL))                                    \
	REFUSED(lk_lock_query, lock, (NULL, &lock_status))                                         \
	REFUSED(lk_lock_query, status, (lock, NULL))                                               \
	REFUSED(lk_lock_waiters, lock, (NULL, 2, parties, &count))                                 \
	REFUSED(lk_lock_waiters, waiters, (lock, 2, NULL, &count))                                 \
	REFUSED(lk_lock_waiters, count, (lock, 2, parties, NULL))                                  \
	REFUSED(lk_lock_break, lock, (NULL, "x"))                                                  \
	ALLOWED(lk_lock_break, if_holder, lk_lock_break(lock, NULL) == LK_EABSENT)                 \
	REFUSED(lk_semaphore_open, client, (NULL, "s", 0, NULL, &semaphore))                       \
	REFUSED(lk_semaphore_open, name, (client, NULL, 0, NULL, &semaphore))                      \
	ALLOWED(lk_semaphore_open, options,                                                        \
	        lk_semaphore_open(client, "s", 0, NULL, &semaphore) == LK_OK)                      \
	REFUSED(lk_semaphore_open, semaphore, (client, "s", 0, NULL, NULL))                        \
	ALLOWED(lk_semaphore_close, semaphore, lk_semaphore_close(NULL) == LK_OK)                  \
	REFUSED(lk_semaphore_acquire, semaphore, (NULL, 1, 0, &hold))                              \
	/* Allowed where leases are fixed, which these are not. */                                 \
	REFUSED(lk_semaphore_acquire, hold, (semaphore, 1, 0, NULL))                               \
	REFUSED(lk_semaphore_run, semaphore, (NULL, 1, 0, work, NULL, &run))                       \
	REFUSED(lk_semaphore_run, fn, (semaphore, 1, 0, NULL, NULL, &run))                         \
	ALLOWED(lk_semaphore_run, arg,                                                             \
	        lk_semaphore_run(semaphore, 1, 0, work, NULL, &run) == LK_OK)                      \
	ALLOWED(lk_semaphore_run, out,                                                             \
	        lk_semaphore_run(semaphore, 1, 0, work, &count, NULL) == LK_OK)                    \
	REFUSED(lk_semaphore_release, semaphore, (NULL, 1))                                        \
	REFUSED(lk_semaphore_release_some, semaphore, (NULL, 1, 1))                                \
	REFUSED(lk_semaphore_cancel, semaphore, (NULL))                                            \
	REFUSED(lk_semaphore_extend, semaphore, (NULL, 1, 1000))                                   \
	HARMLESS(lk_semaphore_state, semaphore, lk_semaphore_state(NULL, 1) == LK_STATE_NONE)      \
	REFUSED(lk_semaphore_snapshot, semaphore, (NULL, 1, &snapshot))                            \
	REFUSED(lk_semaphore_snapshot, hold, (semaphore, 1, NULL))                                 \
	REFUSED(lk_semaphore_query, semaphore, (NULL, &semaphore_status))                          \
	REFUSED(lk_semaphore_query, status, (semaphore, NULL))                                     \
	REFUSED(lk_semaphore_holders, semaphore, (NULL, 2, permits, &count))                       \
	REFUSED(lk_semaphore_holders, holders, (semaphore, 2, NULL, &count))                       \
	REFUSED(lk_semaphore_holders, count, (semaphore, 2, permits, NULL))                        \
	REFUSED(lk_semaphore_waiters, semaphore, (NULL, 2, permits, &count))                       \
	REFUSED(lk_semaphore_waiters, waiters, (semaphore, 2, NULL, &count))                       \
	REFUSED(lk_semaphore_waiters, count, (semaphore, 2, permits, NULL))                        \
	REFUSED(lk_semaphore_resize, semaphore, (NULL, 2))                                         \
	REFUSED(lk_semaphore_break, semaphore, (NULL, "x"))                                        \
	ALLOWED(lk_semaphore_break, if_holder, lk_semaphore_break(semaphore, NULL) == LK_EABSENT)  \
	REFUSED(lk_latch_open, client, (NULL, "l", 0, NULL, &latch))                               \
	REFUSED(lk_latch_open, name, (client, NULL, 0, NULL, &latch))                              \
	ALLOWED(lk_latch_open, options, lk_latch_open(client, "l", 0, NULL, &latch) == LK_OK)      \
	REFUSED(lk_latch_open, latch, (client, "l", 0, NULL, NULL))                                \
	ALLOWED(lk_latch_close, latch, lk_latch_close(NULL) == LK_OK)                              \
	REFUSED(lk_latch_set, latch, (NULL, 1, NULL))                                              \
	ALLOWED(lk_latch_set, was, lk_latch_set(latch, 3, NULL) == LK_OK)                          \
	REFUSED(lk_latch_reset, latch, (NULL, 1, NULL))                                            \
	ALLOWED(lk_latch_reset, was, lk_latch_reset(latch, 3, NULL) == LK_OK)                      \
	REFUSED(lk_latch_remove, latch, (NULL))                                                    \
	REFUSED(lk_latch_down, latch, (NULL, 1, "x", 0, &step))                                    \
	ALLOWED(lk_latch_down, step_name, lk_latch_down(latch, 1, NULL, 0, &step) == LK_OK)        \
	ALLOWED(lk_latch_down, step, lk_latch_down(latch, 1, "x", 0, NULL) == LK_OK)               \
	REFUSED(lk_latch_await, latch, (NULL, 0))                                                  \
	REFUSED(lk_latch_cancel, latch, (NULL))                                                    \
	REFUSED(lk_latch_query, latch, (NULL, &latch_status))                                      \
	REFUSED(lk_latch_query, status, (latch, NULL))                                             \
	REFUSED(lk_client_name_kind, client, (NULL, "a", 0, &kind))                                \
	REFUSED(lk_client_name_kind, name, (client, NULL, 0, &kind))                               \
	REFUSED(lk_client_name_kind, kind, (client, "a", 0, NULL))                                 \
	REFUSED(lk_client_memory, client, (NULL, &memory))                                         \
	REFUSED(lk_client_memory, memory, (client, NULL))                                          \
	REFUSED(lk_client_server, client, (NULL, &address))                                        \
	REFUSED(lk_client_server, server, (client, NULL))                                          \
	REFUSED(lk_client_name_server, client, (NULL, "a", 0, &address))                           \
	REFUSED(lk_client_name_server, name, (client, NULL, 0, &address))                          \
	REFUSED(lk_client_name_server, server, (client, "a", 0, NULL))                             \
	REFUSED(lk_client_end_grace, client, (NULL, NULL))                                         \
	ALLOWED(lk_client_end_grace, memory, lk_client_end_grace(client, NULL) == LK_EABSENT)      \
	REFUSED(lk_client_names, client, (NULL, next_name, NULL))                                  \
	REFUSED(lk_client_names, fn, (client, NULL, NULL))                                         \
	ALLOWED(lk_client_names, arg, lk_client_names(client, next_name, NULL) == LK_OK)           \
	REFUSED(lk_local_start, info, (NULL))                                                      \
	REFUSED(lk_local_status, info, (NULL))                                                     \
	ALLOWED(lk_doctor, url, lk_doctor(NULL, NULL, NULL, NULL, &worst) == LK_ESYSTEM)           \
	ALLOWED(lk_doctor, options, lk_doctor("x:", NULL, NULL, NULL, &worst) == LK_EINVALID)      \
	ALLOWED(lk_doctor, fn, lk_doctor(nowhere, NULL, NULL, NULL, &worst) == LK_OK)              \
	ALLOWED(lk_doctor, arg, lk_doctor(nowhere, NULL, NULL, NULL, &worst) == LK_OK)             \
	ALLOWED(lk_doctor, worst, lk_doctor(nowhere, NULL, NULL, NULL, NULL) == LK_OK)

static const char nowhere[] = "redis+unix:///nowhere/at/all";

#define REFUSED_CALL(function, parameter, arguments)                                               \
	static bool function##_##parameter(void)                                                   \
	{                                                                                          \
		return function arguments == LK_EINVALID && named(#parameter);                     \
	}
#define OTHER_CALL(function, parameter, condition)                                                 \
	static bool function##_##parameter(void)                                                   \
	{                                                                                          \
		return (condition);                                                                \
	}
ROWS(REFUSED_CALL, OTHER_CALL, OTHER_CALL)

#define ROW(function, parameter, ignored) {#function, #parameter, function##_##parameter},
static const struct row {
	const char *function, *parameter;
	bool (*as_promised)(void);
} rows[] = {ROWS(ROW, ROW, ROW)};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

TEST(null_is_refused_or_harmless)
{
	struct test_server server;

	server_start(&server, NULL);
	/* Not a valid directory: local: cannot be started by mistake. */
	setenv("LATCHKEY_LOCAL_DIR", "not/absolute", 1);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	semaphore = semaphore_of(client, "s", 2, 0);
	OK(lk_latch_open(client, "l", 0, NULL, &latch));
	for (size_t i = 0; i < ROW_COUNT; i++) {
		bool as_promised;

		fprintf(stderr, "%s, %s NULL\n", rows[i].function, rows[i].parameter);
		as_promised = rows[i].as_promised();
		ck_assert_msg(as_promised, "%s, %s NULL: not as promised; last error: %s",
		              rows[i].function, rows[i].parameter, lk_errmsg());
	}
	/* Nothing is read from an array without elements. */
	OK(lk_lock_waiters(lock, 0, NULL, &count));
	OK(lk_semaphore_holders(semaphore, 0, NULL, &count));
	OK(lk_semaphore_waiters(semaphore, 0, NULL, &count));
	OK(lk_client_close(client));
	server_stop(&server);
}

/* ---- Every pointer of the header has a row ------------------------------------------------- */

static bool has_row(const char *function, const char *parameter)
{
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (!strcmp(rows[i].function, function) && !strcmp(rows[i].parameter, parameter))
			return true;
	return false;
}

/* Return the last word of a declaration without its brackets: the parameter's name. */
static const char *name_of(char *declaration)
{
	char *end;

	declaration[strcspn(declaration, "[")] = '\0';
	end = declaration + strlen(declaration);
	while (end > declaration && strchr(" \t\n", end[-1]))
		*--end = '\0';
	while (end > declaration && !strchr(" \t\n*", end[-1]))
		end--;
	return end;
}

/* Return the number of pointers in a prototype "lk_err lk_noun_verb(lk_noun *noun, ...)"; each
 * needs a row. */
static size_t check_prototype(char *prototype)
{
	char *open = strchr(prototype, '('), *rest = NULL, *declaration;
	size_t pointers = 0;
	const char *function;

	ck_assert_msg(open != NULL && strrchr(prototype, ')') != NULL, "%s", prototype);
	*open++ = '\0';
	*strrchr(open, ')') = '\0';
	function = name_of(prototype);
	ck_assert_msg(!strncmp(function, "lk_", 3), "%s is no function of ours", function);
	for (declaration = strtok_r(open, ",", &rest); declaration;
	     declaration = strtok_r(NULL, ",", &rest)) {
		const char *parameter;

		if (!strpbrk(declaration, "*["))
			continue;
		parameter = name_of(declaration);
		ck_assert_msg(has_row(function, parameter), "no row for %s of %s()", parameter,
		              function);
		pointers++;
	}
	return pointers;
}

TEST(every_pointer_of_the_header_has_a_row)
{
	static char header[HEADER_MAX];
	FILE *file = fopen(HEADER, "re");
	size_t functions = 0, pointers = 0;
	char *at = header, *end;

	ck_assert_msg(file != NULL, "cannot open %s", HEADER);
	ck_assert_uint_lt(fread(header, 1, sizeof(header) - 1, file), sizeof(header) - 1);
	fclose(file);
	for (; (at = strstr(at, "\nLK_API ")); at = end + 1) {
		at += strlen("\nLK_API ");
		end = strchr(at, ';');
		ck_assert_ptr_nonnull(end);
		*end = '\0';
		pointers += check_prototype(at);
		functions++;
	}
	/* No row is for a function that the header lacks. */
	ck_assert_uint_eq(pointers, ROW_COUNT);
	ck_assert_uint_ge(functions, 50);
}
