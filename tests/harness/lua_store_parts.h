/* SPDX-License-Identifier: MIT
 * Shared by the files of the Redis in memory: see lua_store.h. */
#ifndef LUA_STORE_PARTS_H
#define LUA_STORE_PARTS_H

#include "lua_store.h"

#include <stdbool.h>

#define LUA_WORDS_MAX 256 /* of one command */
#define LUA_NUMBER_SIZE 40

struct lua_word {
	const char *bytes;
	size_t len;
};

/* ---- Commands of clients (lua_store.c) ------------------------------------------------------ */

/* Run one command, and append the reply's bytes. */
void lua_store_execute(struct lua_store *store, int argc, const struct lua_word *argv,
                       struct lk__buf *reply);

/* ---- Replies (lua_store_reply.c) ----------------------------------------------------------- */

void lua_reply_bytes(struct lk__buf *reply, const char *bytes, size_t len);
void lua_reply_text(struct lk__buf *reply, const char *bytes, size_t len);
void lua_reply_nil(struct lk__buf *reply);
void lua_reply_number(struct lk__buf *reply, int64_t number);
void lua_reply_score(struct lk__buf *reply, double score);
size_t lua_number_text(double number, char text[LUA_NUMBER_SIZE]);
void lua_reply_array(struct lk__buf *reply, size_t count);
void lua_reply_status(struct lk__buf *reply, const char *text);
void lua_reply_error(struct lk__buf *reply, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- Keys (lua_store_keys.c) --------------------------------------------------------------- */

enum lua_type { LUA_STRING, LUA_HASH, LUA_ZSET };

/* A field of a hash, or a member of a sorted set. */
struct lua_item {
	char *name;
	size_t name_len;
	char *value; /* hash */
	size_t value_len;
	double score; /* sorted set */
};

struct lua_key {
	struct lua_key *next;
	char *name;
	size_t name_len;
	enum lua_type type;
	int64_t expires_ms; /* -1 = never */
	char *text;         /* string */
	size_t text_len;
	struct lua_item *items; /* a sorted set's in order of score */
	size_t count, room;
};

struct lua_keys {
	struct lua_key **slots; /* chains, by a hash of the name */
	size_t slot_count, count;
	int64_t now_us;
	bool has_ends;
	int64_t first_end_ms; /* no key expires before that */
};

int64_t lua_keys_now_ms(const struct lua_keys *keys);
/* NULL if there is none. */
struct lua_key *lua_keys_find(const struct lua_keys *keys, struct lua_word name);
struct lua_key *lua_keys_make(struct lua_keys *keys, struct lua_word name, enum lua_type type);
void lua_keys_remove(struct lua_keys *keys, struct lua_key *key);
/* -1 = never.  The only function that sets the expiry of a key. */
void lua_keys_set_end(struct lua_keys *keys, struct lua_key *key, int64_t expires_ms);
void lua_keys_expire(struct lua_keys *keys);
void lua_keys_flush(struct lua_keys *keys);
/* All keys by name, keys->count of them; the caller frees the array. */
struct lua_key **lua_keys_sorted(const struct lua_keys *keys);
void lua_key_set_text(struct lua_key *key, struct lua_word text);
/* The index of an item, -1 if it is missing. */
long lua_key_item(const struct lua_key *key, struct lua_word name);
struct lua_item *lua_key_add_item(struct lua_key *key, struct lua_word name);
int lua_item_order(const struct lua_item *one, const struct lua_item *other); /* by name */
void lua_item_set_value(struct lua_item *item, struct lua_word value);
/* Set the score of a member and sort it in; returns false if the member existed. */
bool lua_key_set_score(struct lua_key *key, struct lua_word name, double score);
/* Removing the last item removes the key. */
void lua_key_remove_item(struct lua_keys *keys, struct lua_key *key, long index);

const struct lua_keys *lua_store_keys(const struct lua_store *store);

/* ---- Images of all keys (lua_store_image.c) ------------------------------------------------ */

void lua_keys_dump(const struct lua_keys *keys, struct lk__buf *out);
struct lua_store_image *lua_keys_save(const struct lua_keys *keys);
void lua_keys_load(struct lua_keys *keys, const struct lua_store_image *image);

/* ---- Commands (lua_store_commands.c, lua_store_items.c) ------------------------------------ */

#define LUA_COMMAND_SLOTS 128 /* a power of two, twice the number of commands or more */

struct lua_server {
	struct lua_keys keys;
	const struct lua_command *commands[LUA_COMMAND_SLOTS]; /* by a hash of the name */
	lua_store_publish_fn *publish;
	void *arg;
	struct lua_store_process process;
	bool full;
	bool wrote; /* the running script, or the last command */
	const char *refused,
		*refused_key; /* a refused command, NULL = none; on that key, NULL = on any */
	const char *target;   /* the node that the slot of all keys moves to, NULL = none */
};

#define LUA_REFUSED "ERR The user executing the script can't run this command or subcommand"
#define LUA_AWAY "ERR Script attempted to access a non local key in a cluster node"
#define LUA_FULL "OOM command not allowed when used memory > 'maxmemory'."

typedef void lua_command_fn(struct lua_server *server, int argc, const struct lua_word *argv,
                            struct lk__buf *reply);

struct lua_command {
	const char *name;
	int arity; /* including the name; negative = at least */
	lua_command_fn *run;
	enum { LUA_READS, LUA_WRITES, LUA_GROWS } effect; /* LUA_GROWS: a full server refuses it */
	enum { LUA_ONE_KEY, LUA_NO_KEY, LUA_ALL_KEYS } keys; /* which arguments are keys */
};

extern const struct lua_command lua_item_commands[];
lua_command_fn lua_run_info; /* lua_store_info.c */

void lua_commands_init(struct lua_server *server);
const struct lua_command *lua_command_find(const struct lua_server *server, struct lua_word name);
bool lua_command_takes(const struct lua_command *command, int argc);
/* Has it a key that does not exist? */
bool lua_command_misses(const struct lua_server *server, const struct lua_command *command,
                        int argc, const struct lua_word *argv);
void lua_command_run(struct lua_server *server, int argc, const struct lua_word *argv,
                     struct lk__buf *reply);
const char *lua_type_name(enum lua_type type);
bool lua_word_is(struct lua_word word, const char *text); /* of any type */
bool lua_word_number(struct lua_word word, int64_t *number);
/* The key, if it exists.  False if it has another type: the reply has the error. */
bool lua_key_of(const struct lua_server *server, struct lua_word name, enum lua_type type,
                struct lua_key **key, struct lk__buf *reply);

/* ---- Digests (lua_store_sha1.c) ------------------------------------------------------------ */

void lua_sha1(struct lua_word text, char hex[41]);

/* ---- Scripts (lua_store_script.c) ---------------------------------------------------------- */

struct lua_script_host; /* a Lua state */

struct lua_script_host *lua_script_host_new(struct lua_server *server);
void lua_script_host_free(struct lua_script_host *host);
/* Compile a text, once for all its runs; 0 if it does not compile: the reply has the error. */
int lua_script_compile(struct lua_script_host *host, struct lua_word text, struct lk__buf *reply);
void lua_script_forget(struct lua_script_host *host, int compiled);
/* digest: for the text of an error. */
void lua_script_run(struct lua_script_host *host, int compiled, const char *digest, int keys,
                    int argc, const struct lua_word *argv, struct lk__buf *reply);

#endif
