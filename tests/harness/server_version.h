/* SPDX-License-Identifier: MIT
 * Where other servers answer otherwise than the server in memory, which is a Redis 7.0
 * (lua_store.h): a list, applied to what the store says before it is compared. */
#ifndef SERVER_VERSION_H
#define SERVER_VERSION_H

#include "redis.h"
#include "redis/resp.h"

/* A later version counts as the newest one here. */
enum server_version { SERVER_REDIS_7, SERVER_REDIS_8, SERVER_VALKEY_8, SERVER_VERSIONS };

enum server_version server_version(const struct test_server *server);

/* Change a text of the store to that server's: any text in the reply to a script, NULL = to any. */
void server_version_text(enum server_version version, const char *script, struct lk__buf *text);
/* The same for each element of the store's RESP replies from that byte on. */
void server_version_reply(enum server_version version, struct lk__buf *reply, size_t from);
/* Print each difference of that server, outside of a Cluster or there only, which no text of this
 * process had; their number. */
int server_version_unused(enum server_version version, bool in_cluster);

#endif
