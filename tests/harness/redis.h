/* SPDX-License-Identifier: MIT
 * What a test says to a server by itself: one command, its answer as text or number. */
#ifndef REDIS_H
#define REDIS_H

#include "server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis; /* one connection; one thread at a time */

/* Connect (to the Unix socket); fails the test when it cannot. */
struct redis *redis_open(const struct test_server *server);
/* The same to a server in this process: run() executes a command and returns the reply's bytes,
 * which are freed. */
typedef char *redis_run_fn(const char *bytes, size_t len, size_t *reply_len);
struct redis *redis_open_in_process(redis_run_fn *run);
void redis_close(struct redis *redis);

/* Send one command, words separated by spaces; in fmt %s is a word, %b bytes and their size_t,
 * %lld a number: hiredis' own format.  A lost connection fails the test.
 * The answer as text: strings as they are, errors with a leading '-', numbers in decimal, "" for
 * nil, the elements of an array one a line.  Valid until the next command. */
const char *redis_text(struct redis *redis, const char *fmt, ...);
/* The answer as a number; one that is none fails the test.  nil is -1. */
long long redis_int(struct redis *redis, const char *fmt, ...);
/* Send it, and fail the test when the answer is an error. */
void redis_do(struct redis *redis, const char *fmt, ...);

/* How often a command was called since the start: "evalsha", "client|setname".  Commands that
 * scripts call are counted, too. */
long long redis_calls(struct redis *redis, const char *command);
/* How often clients sent a script: evalsha and eval. */
long long redis_script_calls(struct redis *redis);
/* One number of INFO: redis_info(r, "connected_clients"). */
long long redis_info(struct redis *redis, const char *field);

/* Watch what a server is asked, by MONITOR, from now on. */
struct monitor;
struct monitor *monitor_open(const struct test_server *server);
/* The next line within ms, NULL when there is none.  Valid until the next call. */
const char *monitor_next(struct monitor *monitor, int64_t ms);
void monitor_close(struct monitor *monitor);

#endif
