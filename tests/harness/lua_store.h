/* SPDX-License-Identifier: MIT
 * A Redis in memory, for scripts: it runs the library's Lua as it is sent, in an embedded Lua 5.1
 * with an environment as narrow as the server's, over the commands that the scripts use, with a
 * clock that the test sets.  live_lua_store.c compares it with a real server.
 *
 *   lua_store.c           commands of clients: EVAL, EVALSHA, others; the known scripts
 *   lua_store_script.c    the Lua state, its globals, its values to replies and back
 *   lua_store_commands.c  the table of commands; those of keys and strings, TIME, PUBLISH
 *   lua_store_items.c     the commands of hashes and sorted sets
 *   lua_store_keys.c      the keys, their values, their expiry
 *   lua_store_info.c      INFO
 *   lua_store_image.c     all keys as bytes, and back
 *   lua_store_reply.c     replies as bytes
 *   lua_store_sha1.c      digests
 *   lua_seam.c            a server in this process, behind the interface of src/store.h */
#ifndef LUA_STORE_H
#define LUA_STORE_H

#include "redis/resp.h"

#include <stdbool.h>
#include <stdint.h>

struct lua_store;

/* A message that PUBLISH sends; returns the number of receivers. */
typedef int lua_store_publish_fn(void *arg, const char *channel, const char *text, size_t len);

/* publish may be NULL: there are no receivers.  Aborts when out of memory, as do all functions
 * here. */
struct lua_store *lua_store_new(lua_store_publish_fn *publish, void *arg);
void lua_store_free(struct lua_store *store);

/* Load the library's scripts, as a client does that connects. */
void lua_store_load_scripts(struct lua_store *store);

/* The server's wall clock; it may step back.  Expired keys are removed. */
void lua_store_set_time(struct lua_store *store, int64_t now_us);
int64_t lua_store_time(const struct lua_store *store);
/* A full server with noeviction: it refuses commands that may need memory, and a script whose first
 * write is one of them. */
void lua_store_set_full(struct lua_store *store, bool full);
/* Refuse scripts a command, NULL = none, on a key, NULL = on any.  Borrowed. */
void lua_store_refuse(struct lua_store *store, const char *command, const char *key);

/* A node of a Cluster whose slot of all keys moves to that node, "<slot> <host>:<port>"; borrowed,
 * NULL = none moves.  A script runs only if all keys that it declares exist, and a command in it
 * fails on a key that does not exist: never there, or removed by the script.  Commands that clients
 * send run as ever. */
void lua_store_set_migrating(struct lua_store *store, const char *target);

/* What INFO says of the server's process.  A new store is a process that began long ago. */
struct lua_store_process {
	const char *run_id;            /* NULL = made from run */
	uint64_t run, replid, replid2; /* run_id, master_replid, master_replid2 */
	int64_t began_us;
	int64_t process_id; /* 0 = not shown */
	int64_t evicted;
	bool flushed, flushed_db;    /* since it began */
	int flushes;                 /* how often each of these, 0 = once */
	int swaps;                   /* calls of SWAPDB */
	bool was_replica, was_slave; /* by either command */
	bool hides_run;              /* a proxy leaves run_id out */
	bool cluster;                /* it is a node of a Cluster */
	bool is_valkey;              /* Valkey's INFO has another field for that */
	int64_t replicas;            /* that WAIT counts */
};

struct lua_store_process *lua_store_process(struct lua_store *store);
/* A new process begins now, with the keys as they are. */
void lua_store_restart(struct lua_store *store);

/* Run one command of a client, and append the reply's bytes.  A script is unknown until EVAL or
 * SCRIPT LOAD sends it, and again after SCRIPT FLUSH. */
void lua_store_run(struct lua_store *store, const char *bytes, size_t len, struct lk__buf *reply);
/* Did that command run a script that wrote something? */
bool lua_store_wrote(const struct lua_store *store);

/* The reply in those bytes; free it with lk__resp_free(). */
struct lk__resp *lua_store_parse(const struct lk__buf *reply);

/* The same with words; the reply is formatted as by redis_text(): strings unchanged, errors with a
 * leading '-', numbers in decimal, "" for nil, the elements of an array one a line.  Valid until
 * the next call. */
const char *lua_store_ask(struct lua_store *store, int argc, const char *const *argv,
                          const size_t *lens);
/* Takes words up to a NULL. */
const char *lua_store_text(struct lua_store *store, const char *word, ...)
	__attribute__((sentinel));

/* ---- All keys ------------------------------------------------------------------------------ */

/* A copy of all keys with their expiry in absolute time; without the clock and the loaded scripts.
 * One image can be loaded any number of times, into any store. */
struct lua_store_image;
struct lua_store_image *lua_store_save(const struct lua_store *store);
/* Replace all keys by those of the image; expired ones are removed. */
void lua_store_load(struct lua_store *store, const struct lua_store_image *image);
uint64_t lua_store_image_hash(const struct lua_store_image *image);
void lua_store_image_free(struct lua_store_image *image);

/* Append all keys as bytes: equal for equal keys, whatever the order of the writes.  For each key,
 * by name: type (1 byte: 0 string, 1 hash, 2 sorted set); expiry, ms (int64_t, -1 = never); name; a
 * string's text, or the number of items (uint32_t) and each: field and value, by field; or score
 * (double) and member, in their order.  A text is its length (uint32_t) and bytes. */
void lua_store_dump(const struct lua_store *store, struct lk__buf *out);

/* By name.  type: "string", "hash", "zset".  The function does not change the store. */
typedef void lua_store_key_fn(void *arg, const char *name, size_t len, const char *type,
                              int64_t expires_ms);
void lua_store_each_key(const struct lua_store *store, lua_store_key_fn *fn, void *arg);

/* ---- Altered scripts ----------------------------------------------------------------------- */

/* Replace a part of a script's text; it must have that part, and compile.
 * LK_SCRIPT_REPLACE=NAME:FILE,... in the environment replaces the scripts of every new store by the
 * texts in those files; if that fails, the program ends. */
void lua_store_alter(struct lua_store *store, const char *script, const char *old,
                     const char *altered);

#endif
