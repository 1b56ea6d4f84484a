/* SPDX-License-Identifier: MIT
 * The Redis in memory against a real one: random calls of all the library's scripts, mixed as by
 * clients, operators and foreign programs, with the same arguments at the same time on both.  It
 * compares byte by byte: each reply, including error texts; the messages that a subscriber gets;
 * and after every batch of calls all keys with their values and TTLs.
 *
 * The server's clock stands still (tests/preload/still_clock.c) and is set between two batches, so
 * comparisons need no tolerance.  The store gets the server's run_id, so that INFO, as far as a
 * marker depends on it, is the same on both.  The seed determines the run.
 *
 *   replay.c          both sides, batches, comparing
 *   replay_show.c     differences
 *   replay_keys.c     all keys of either side as text
 *   replay_calls.c    which script is called, with which arguments
 *   replay_damage.c   other changes of keys: evictions, foreign programs, operators */
#ifndef REPLAY_H
#define REPLAY_H

#include "lua_store.h"
#include "scripts.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REPLAY_WORDS 40 /* of one command */
#define REPLAY_NAMES 5
#define REPLAY_CLIENTS 6
#define REPLAY_TICKETS 90 /* at most, of one name and kind */
#define REPLAY_KEY 40
#define REPLAY_BATCH 40 /* calls, at most */
#define REPLAY_SCRIPTS 32
#define REPLAY_ANSWERS 12 /* kinds of reply of one script that are counted separately */

enum replay_kind { REPLAY_LOCK, REPLAY_SEMAPHORE, REPLAY_LATCH, REPLAY_LEG, REPLAY_KINDS };

/* The client's knowledge of it. */
struct replay_ticket {
	char text[100];
	char arrival[24], fence[24];
	int client, permits;
	int epoch, base_len; /* of a leg; the text before its epoch */
};

struct replay_name {
	enum replay_kind kind; /* its main kind */
	int tickets;           /* how many exist at a time */
	int capacity;
	char main[REPLAY_KEY], queue[REPLAY_KEY], holds[REPLAY_KEY], memory[REPLAY_KEY];
	char topic[REPLAY_KEY];
	/* Of the lock, of the semaphore, of the leg. */
	struct replay_ticket ticket[3][REPLAY_TICKETS];
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
	char process[24];         /* the server's id of its process */
	char marker[180];         /* of the server's memory, as clients know it */
	char damaged[REPLAY_KEY]; /* a damaged key; "" = none */
	struct replay_sums sums;
};

/* Run so many calls.  True if both sides agreed; else the difference is written to "out". each:
 * from that batch on, compare all keys after each call, to find the call that caused it; -1 = after
 * each batch. */
bool replay_run(uint64_t seed, long long calls, long long each, struct replay_sums *sums,
                FILE *out);
/* The number of calls of each script, and of each kind of reply. */
void replay_print(const struct replay_sums *sums, FILE *out);

/* ---- Shared by the files --------------------------------------------------------------------- */

uint64_t replay_draw(struct replay *replay, uint64_t below);

/* Run one command on both.  Returns the first element of the store's reply, or all of it. */
const char *replay_command(struct replay *replay, int argc, const char *const *argv);
/* Run a script with its keys and arguments, NULL at the end of each. */
const char *replay_script(struct replay *replay, const struct lk__script *script,
                          const char *const *keys, const char *const *args);
/* The element at an index of the last reply, "" if there is none. */
const char *replay_answer(struct replay *replay, int index, char *text, size_t size);
/* The store's reply to a command that the server does not get. */
const char *replay_peek(struct replay *replay, const char *command, const char *key,
                        const char *field);

void replay_calls_init(struct replay *replay);
void replay_call(struct replay *replay);   /* call a random script */
void replay_crowd(struct replay *replay);  /* fill one queue with many tickets */
void replay_damage(struct replay *replay); /* run one command that no script sends */

/* The script that dumps all keys of a server, and the same text from the store's dump. */
extern const char replay_keys_script[];
void replay_keys_text(const struct lk__buf *dump, int64_t now_us, struct lk__buf *text);

#endif
