/* SPDX-License-Identifier: MIT
 * Bare hiredis: sends commands, reads replies, and does nothing else.  Written as efficiently as we
 * could: a blocking socket with TCP_NODELAY, commands formatted once, scripts by their digest; with
 * TLS, OpenSSL reads all that is there at once. */
#ifndef BASELINE_BARE_H
#define BASELINE_BARE_H

#include "bench.h"

struct bare; /* one connection; one thread at a time */

/* Connect and load the scripts for pairs of that name. */
struct bare *bare_open(const struct test_server *server, bool by_unix, const char *name);
/* The same by TLS at that port, with the CA in that file; only in a build with TLS. */
struct bare *bare_open_tls(const struct test_server *server, int port, const char *ca,
                           const char *name);
void bare_close(void *bare);

/* The two scripts of acquire and release, with the arguments that Latchkey sends: a new ticket a
 * pair; the fence of the first reply is an argument of the second script. */
void bare_pair(void *bare);
/* From now on a pair asks in the same write how many replicas have it, and needs so many. */
void bare_need_replicas(struct bare *bare, int replicas);
/* PING twice: the same two round trips without any work. */
void bare_pings(void *bare);

/* Pairs sent at once, about BARE_DEPTH commands deep: what they cost the server without the cost of
 * reading one command at a time. */
#define BARE_DEPTH 100
struct bare_batch;
struct bare_batch *bare_batch_ours(const struct bare *bare, const char *name);
/* The steps that Redisson publishes for its RLock, written anew: the classic ones, and those of
 * today, which keep the reply of a release for a client that repeats it. */
struct bare_batch *bare_batch_redisson(struct bare *bare, const char *name, bool of_today);
/* Send all commands, read all replies, return the number of pairs. */
int bare_batch_run(struct bare *bare, struct bare_batch *batch);
void bare_batch_free(struct bare_batch *batch);

#endif
