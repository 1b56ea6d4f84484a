/* SPDX-License-Identifier: MIT
 * Synthetic rounds for the judge, record by record and line by line.  For the tests of one program
 * each, which may leave some functions unused. */
#ifndef JUDGE_MADE_H
#define JUDGE_MADE_H

#include "chaos/judge.h"
#include "scripts.h"
#include "test.h"

#include <latchkey.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Each test program uses only some of these. */
#define MADE __attribute__((unused)) static

#define MS INT64_C(1000000)
#define LOCK 0
#define POOL 1
#define GATE 2
#define TAP 3
#define RECORDS_MAX 4096
#define TEXT_SIZE 65536

static const char names[] = "0 lock 1000 1 job\n1 semaphore 1000 3 pool\n2 latch 0 0 gate\n"
			    "3 rate 100 2 tap\n";

/* A round under construction. */
static struct history_record records[RECORDS_MAX];
static size_t count;
static uint64_t calls;
static char nemesis[TEXT_SIZE], monitor[TEXT_SIZE], rest[256];
static struct judge_options options;
static struct judge_verdict verdict;

MADE void begin_round(void)
{
	count = 0;
	*nemesis = *monitor = *rest = 0;
	options = judge_defaults;
	options.min_rate = 0;
	options.min_faults = 0;
	options.slack_ms = 0;
}

MADE struct history_record *put(int64_t at_ns, uint32_t pid, int op, int phase, int name)
{
	struct history_record *record = &records[count++];

	*record = (struct history_record){.at_ns = at_ns,
	                                  .pid = pid,
	                                  .thread = 1,
	                                  .op = (uint8_t)op,
	                                  .phase = (uint8_t)phase,
	                                  .name = (uint16_t)name,
	                                  .permits = 1};
	return record;
}

/* A call; to_ns 0 = it never returns. */
MADE struct history_record *call(uint32_t pid, int op, int name, int64_t from_ns, int64_t to_ns,
                                 int err)
{
	struct history_record *begin = put(from_ns, pid, op, HISTORY_BEGIN, name), *end;

	begin->call = ++calls;
	if (op == HISTORY_ACQUIRE || op == HISTORY_AWAIT)
		begin->u.of.valid_until_ns = from_ns + 3000 * MS;
	if (op == HISTORY_ACQUIRE)
		begin->u.of.amount = 1000;
	if (!to_ns)
		return begin;
	end = put(to_ns, pid, op, HISTORY_DONE, name);
	end->call = begin->call;
	end->err = err;
	return end;
}

MADE void acquire(uint32_t pid, int name, int64_t from_ns, int64_t to_ns, uint64_t fence,
                  int64_t valid_ns)
{
	struct history_record *end = call(pid, HISTORY_ACQUIRE, name, from_ns, to_ns, LK_OK);

	end->u.of.fence = fence;
	end->u.of.valid_until_ns = valid_ns;
}

MADE void release(uint32_t pid, int name, int64_t from_ns, int64_t to_ns, uint64_t fence, int err)
{
	struct history_record *end = call(pid, HISTORY_RELEASE, name, from_ns, to_ns, err);

	end->u.of.fence = fence;
	if (to_ns)
		(end - 1)->u.of.fence = fence;
}

MADE struct history_record *step(uint32_t pid, int64_t from_ns, int64_t to_ns, int64_t remains)
{
	struct history_record *end = call(pid, HISTORY_DOWN, GATE, from_ns, to_ns, LK_OK);

	if (to_ns)
		end->u.of.amount = remains;
	return end;
}

MADE void set(int64_t from_ns, int64_t to_ns, int64_t amount)
{
	struct history_record *end = call(1, HISTORY_SET, GATE, from_ns, to_ns, LK_OK);

	end->u.of.amount = (end - 1)->u.of.amount = amount;
}

MADE void note(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

MADE void note(char *text, const char *format, ...)
{
	size_t len = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + len, TEXT_SIZE - len, format, args);
	va_end(args);
}

MADE bool ended(uint32_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (records[i].pid == pid && records[i].op == HISTORY_END)
			return true;
	return false;
}

/* All processes end well, except one. */
MADE void judge_but(uint32_t odd)
{
	struct judge_input input = {.names = names, .nemesis = nemesis, .final = rest};
	char *shown = *monitor ? strdup(monitor) : NULL;
	FILE *report = fopen(getenv("V") ? "/dev/stderr" : "/dev/null", "we");
	int64_t last_ns = 0;

	for (size_t i = 0; i < count; i++)
		if (records[i].at_ns > last_ns)
			last_ns = records[i].at_ns;
	for (size_t i = count; i-- > 0;)
		if (records[i].pid != odd && !ended(records[i].pid))
			put(last_ns, records[i].pid, HISTORY_END, HISTORY_EVENT, 0);
	input.history.records = malloc(sizeof(records));
	memcpy(input.history.records, records, sizeof(records));
	input.history.count = count;
	ck_assert(history_sort(&input.history));
	input.monitor = shown;
	input.monitor_len = shown ? strlen(shown) : 0;
	ck_assert(judge_round(&input, &options, &verdict, report));
	history_free(&input.history);
	free(shown);
	fclose(report);
}

MADE void judge(void)
{
	judge_but(0);
}

#define GOOD() ck_assert_int_eq(verdict.violations, 0)
#define BAD(check) ck_assert_int_gt(verdict.of[check], 0)
#define ONLY(check)                                                                                \
	do {                                                                                       \
		BAD(check);                                                                        \
		ck_assert_int_eq(verdict.violations, verdict.of[check]);                           \
	} while (0)

/* ---- the monitor -------------------------------------------------------------------------------
 */

static const char *const clients[] = {"", "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB",
                                      "CCCCCCCCCCCCCCCCCCCCCC"};

MADE void client(uint32_t pid)
{
	memcpy(put(1 * MS, pid, HISTORY_ID, HISTORY_EVENT, 0)->u.text, clients[pid], 22);
}

/* The connection of the client's scripts. */
static int connection = 1;

/* A script of a client for its ticket number n. */
MADE void script(int64_t at_ns, const struct lk__script *which, uint32_t pid, int n,
                 const char *args)
{
	note(monitor,
	     "%lld 1700000000.%06lld [0 127.0.0.1:%d] \"EVALSHA\" \"%s\" \"4\" \"lk:{job}\" "
	     "\"lk:{job}:q\" \"lk:fence\" \"lk:epoch\" \"2:%s:nonce%d:1000:r\" %s\n",
	     (long long)at_ns, (long long)(at_ns / 1000), connection, which->sha1, clients[pid], n,
	     args);
}

MADE void lua(int64_t at_ns, const char *command, uint32_t pid, int n, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* In format "@" stands for the ticket. */
MADE void lua(int64_t at_ns, const char *command, uint32_t pid, int n, const char *format, ...)
{
	char text[256], *at;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	at = strchr(text, '@');
	ck_assert_ptr_nonnull(at);
	*at = 0;
	note(monitor, "%lld 1700000000.%06lld [0 lua] \"%s\" %s2:%s:nonce%d:1000:r%s\n",
	     (long long)at_ns, (long long)(at_ns / 1000), command, text, clients[pid], n, at + 1);
}

MADE void asks(int64_t at_ns, uint32_t pid, int n, uint64_t fence)
{
	script(at_ns, &lk__script_lock_ask, pid, n, "\"1\" \"0\" \"lk:c:\" \"-\" \"30000\"");
	if (fence)
		lua(at_ns, "SET", pid, n, "\"lk:{job}\" \"@ %llu 1000 -\" \"PX\" \"1000\"",
		    (unsigned long long)fence);
	else
		lua(at_ns, "ZADD", pid, n, "\"lk:{job}:q\" \"%lld\" \"@\"",
		    (long long)(at_ns / 1000));
}

MADE void leaves(int64_t at_ns, uint32_t pid, int n)
{
	script(at_ns, &lk__script_lock_leave, pid, n, "\"0\" \"lk:c:\" \"0\"");
	lua(at_ns, "ZREM", pid, n, "\"lk:{job}:q\" \"@\"");
}

/* In the leave of another. */
MADE void goes_to(int64_t at_ns, uint32_t pid, int n, uint64_t fence)
{
	lua(at_ns, "ZREM", pid, n, "\"lk:{job}:q\" \"@\"");
	if (fence)
		lua(at_ns, "SET", pid, n, "\"lk:{job}\" \"@ %llu 1000 -\" \"PX\" \"1000\"",
		    (unsigned long long)fence);
}

/* ---- the server's memory -----------------------------------------------------------------------
 */

/* A command of another program. */
MADE void others(int64_t at_ns, const char *words)
{
	note(monitor, "%lld 1700000000.%06lld [0 127.0.0.1:9] %s\n", (long long)at_ns,
	     (long long)(at_ns / 1000), words);
}

/* A client finds a new memory, and writes its marker. */
MADE void new_memory(int64_t at_ns, int64_t since_ns)
{
	note(monitor,
	     "%lld 1700000000.%06lld [0 127.0.0.1:%d] \"EVALSHA\" \"%s\" \"1\" \"lk:epoch\" \"\"\n"
	     "%lld 1700000000.%06lld [0 lua] \"SET\" \"lk:epoch\" \"1 ab %lld\"\n",
	     (long long)at_ns, (long long)(at_ns / 1000), connection, lk__script_epoch_set.sha1,
	     (long long)at_ns, (long long)(at_ns / 1000),
	     (long long)(INT64_C(1700000000000000) + since_ns / 1000));
}

/* A client takes its hold back, in the memory since then. */
MADE void reclaims(int64_t at_ns, uint32_t pid, int n, uint64_t fence, int64_t since_ns)
{
	script(at_ns, &lk__script_lock_reclaim, pid, n,
	       "\"5\" \"1000\" \"5\" \"-\" \"1 ab\" \"0\"");
	lua(at_ns, "SET", pid, n, "\"lk:{job}\" \"@ %llu 1000 - ab %lld\" \"PX\" \"1000\"",
	    (unsigned long long)fence, (long long)(INT64_C(1700000000000000) + since_ns / 1000));
}

/* A script of the semaphore, and a hold that it writes. */
MADE void pool_script(int64_t at_ns, const struct lk__script *which, uint32_t pid, int n)
{
	note(monitor,
	     "%lld 1700000000.%06lld [0 127.0.0.1:%d] \"EVALSHA\" \"%s\" \"5\" \"lk:{pool}\" "
	     "\"lk:{pool}:q\" \"lk:fence\" \"lk:{pool}:h\" \"lk:epoch\" \"2:%s:nonce%d:1000:r\" "
	     "\"1\"\n",
	     (long long)at_ns, (long long)(at_ns / 1000), connection, which->sha1, clients[pid], n);
}

MADE void pool_holds(int64_t at_ns, uint32_t pid, int n, int permits, uint64_t fence)
{
	lua(at_ns, "ZADD", pid, n, "\"lk:{pool}:h\" \"%lld\" \"@\"",
	    (long long)(INT64_C(1700000000000000) + at_ns / 1000 + 1000000));
	lua(at_ns, "HSET", pid, n, "\"lk:{pool}\" \"@\" \"%d %llu 1000\"", permits,
	    (unsigned long long)fence);
}

#endif
