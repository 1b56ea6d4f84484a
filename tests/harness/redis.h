/* SPDX-License-Identifier: MIT
 * The test's own commands to a server: one command, its reply as text or number. */
#ifndef REDIS_H
#define REDIS_H

#include "server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis; /* one connection; one thread at a time */

/* Connect (to the Unix socket); fails the test on an error. */
struct redis *redis_open(const struct test_server *server);
/* The same to a server in this process: run() executes a command and returns the reply's bytes,
 * which the caller frees. */
typedef char *redis_run_fn(const char *bytes, size_t len, size_t *reply_len);
struct redis *redis_open_in_process(redis_run_fn *run);
void redis_close(struct redis *redis);
/* Send the bytes of one command; the bytes of its reply, which the caller frees. */
char *redis_raw(struct redis *redis, const char *bytes, size_t len, size_t *reply_len);

/* Send one command, words separated by spaces; in fmt %s is a word, %b bytes and their size_t, %lld
 * a number: hiredis' own format.  A lost connection fails the test.  The reply as text: strings
 * unchanged, errors with a leading '-', numbers in decimal, "" for nil, the elements of an array
 * one a line.  Valid until the next command. */
const char *redis_text(struct redis *redis, const char *fmt, ...);
/* The reply as a number; any other reply fails the test. nil is -1. */
long long redis_int(struct redis *redis, const char *fmt, ...);
/* How many keys there are, without the marker of the server's memory. */
long long redis_size(struct redis *redis);
/* The marker of the server's memory; "" = no client has connected yet.  Valid until it is called
 * again. */
const char *redis_marker(struct redis *redis);
/* Send the command; an error reply fails the test. */
void redis_do(struct redis *redis, const char *fmt, ...);

/* The next message of this connection's subscriptions within ms, NULL if none comes: as a reply's
 * text.  Valid until the next command. */
const char *redis_next(struct redis *redis, int64_t ms);

/* The number of calls of a command since the start: "evalsha", "client|setname".  Includes calls by
 * scripts. */
long long redis_calls(struct redis *redis, const char *command);
/* The number of scripts sent by clients: evalsha and eval. */
long long redis_script_calls(struct redis *redis);
/* One number of INFO: redis_info(r, "connected_clients"). */
long long redis_info(struct redis *redis, const char *field);

/* From now on, read the server's requests by MONITOR. */
struct monitor;
struct monitor *monitor_open(const struct test_server *server);
/* The next line within ms, NULL if none comes.  Valid until the next call. */
const char *monitor_next(struct monitor *monitor, int64_t ms);
void monitor_close(struct monitor *monitor);

#endif
