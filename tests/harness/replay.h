/* SPDX-License-Identifier: MIT
 * The Redis in memory against a real one: random calls of all the library's scripts, as clients,
 * operators and strangers would mix them, with the same arguments at the same time on both.
 * Compared are, byte by byte: each reply, errors and their texts included; the messages that a
 * subscriber gets; and after every batch of calls all keys with their values and the time they have
 * left.
 *
 * The server's clock stands still (tests/preload/still_clock.c) and is moved by hand between two
 * batches, so no tolerance is needed anywhere.  A run is its seed: it is the same each time.
 *
 *   replay.c          both sides, batches, comparing
 *   replay_show.c     what was not the same
 *   replay_keys.c     all keys of either side as text
 *   replay_calls.c    which script is called, with which arguments
 *   replay_damage.c   what else happens to keys: evictions, strangers, operators */
#ifndef REPLAY_H
#define REPLAY_H

#include "lua_store.h"
#include "scripts.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REPLAY_WORDS 40 /* of one command */
#define REPLAY_NAMES 4
#define REPLAY_CLIENTS 6
#define REPLAY_TICKETS 90 /* of one name and kind, at most */
#define REPLAY_KEY 40
#define REPLAY_BATCH 40 /* calls at most */
#define REPLAY_SCRIPTS 32
#define REPLAY_ANSWERS 12 /* kinds of answer of one script that are counted apart */

enum replay_kind { REPLAY_LOCK, REPLAY_SEMAPHORE, REPLAY_LATCH, REPLAY_KINDS };

/* What its client knows of it. */
struct replay_ticket {
	char text[100];
	char arrival[24], fence[24];
	int client, permits;
};

struct replay_name {
	enum replay_kind kind; /* what it is used as, mostly */
	int tickets;           /* how many there are at a time */
	int capacity;
	char main[REPLAY_KEY], queue[REPLAY_KEY], holds[REPLAY_KEY], memory[REPLAY_KEY];
	char topic[REPLAY_KEY];
	struct replay_ticket ticket[2][REPLAY_TICKETS]; /* of the lock, of the semaphore */
};

struct replay_sums {
	long long calls, commands, replies, errors, keys, values, messages, batches, damages;
	long long script[REPLAY_SCRIPTS];
	struct {
		char word[12];
		long long count;
	} answer[REPLAY_SCRIPTS][REPLAY_ANSWERS];
};

struct replay {
	struct replay_sides *sides;
	uint64_t random;
	int64_t now_us;
	struct replay_name name[REPLAY_NAMES];
	char client[REPLAY_CLIENTS][24];
	char client_key[REPLAY_CLIENTS][REPLAY_KEY];
	int64_t step[REPLAY_CLIENTS]; /* the number of a client's last step on a latch */
	int serial;
	char damaged[REPLAY_KEY]; /* a key that somebody meddled with; "" = none */
	struct replay_sums sums;
};

/* Run so many calls.  True when all was the same; else what was not is written to "out".  each:
 * compare all keys after each single call from that batch on, to find the call that is to blame; -1
 * = after each batch. */
bool replay_run(uint64_t seed, long long calls, long long each, struct replay_sums *sums,
                FILE *out);
/* How often each script was called, and what it answered. */
void replay_print(const struct replay_sums *sums, FILE *out);

/* ---- Between the files --------------------------------------------------------------------- */

uint64_t replay_draw(struct replay *replay, uint64_t below);

/* One command on both.  The first element of the store's answer, or the whole of it. */
const char *replay_command(struct replay *replay, int argc, const char *const *argv);
/* A script with its keys and arguments, NULL at the end of each. */
const char *replay_script(struct replay *replay, const struct lk__script *script,
                          const char *const *keys, const char *const *args);
/* The element at an index of the last answer, "" if there is none. */
const char *replay_answer(struct replay *replay, int index, char *text, size_t size);
/* What the store says to a command that the server never hears. */
const char *replay_peek(struct replay *replay, const char *command, const char *key,
                        const char *field);

void replay_calls_init(struct replay *replay);
void replay_call(struct replay *replay);   /* one script, by chance */
void replay_crowd(struct replay *replay);  /* many stand in one queue */
void replay_damage(struct replay *replay); /* one command that is none of ours */

/* The script that a server is asked for all its keys with, and the same text from the store's dump.
 */
extern const char replay_keys_script[];
void replay_keys_text(const struct lk__buf *dump, int64_t now_us, struct lk__buf *text);

#endif
