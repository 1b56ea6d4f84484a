/* SPDX-License-Identifier: MIT
 * Both sides of a replay, for the files that compare and show them. */
#ifndef REPLAY_SIDES_H
#define REPLAY_SIDES_H

#include "replay.h"
#include "server.h"

#define REPLAY_COMMANDS 400 /* of one batch */

struct replay_sent {
	size_t request_end, reply_end;
};

struct replay_sides {
	struct test_server server;
	char dir[80];
	volatile int64_t *clock_us;
	struct lua_store *store;
	int fd, subscriber_fd;
	struct lk__buf requests, replies; /* of the batch; what the store answers */
	struct lk__buf messages;          /* what the subscriber should get */
	struct lk__buf got;
	struct replay_sent command[REPLAY_COMMANDS];
	int count;
	char last[160]; /* a text of replay_peek() or the last answer's first word */
	size_t last_reply;
	bool hears[REPLAY_CLIENTS + REPLAY_NAMES];
	long long syncs;
	bool failed;
	FILE *out;
};

/* Send, and read into sides->got as many bytes as are wanted; fewer when no more come, or when they
 * are already others: a reply that is too short is not waited for. */
void replay_say(int fd, const struct lk__buf *bytes);
void replay_hear(struct replay_sides *sides, int fd, const struct lk__buf *wanted);

/* ---- replay_show.c ------------------------------------------------------------------------- */

/* How many first bytes are the same. */
size_t replay_same(const struct lk__buf *one, const struct lk__buf *other);
void replay_show_bytes(FILE *out, const char *bytes, size_t len);
void replay_show_command(const struct replay_sides *sides, int i);
/* The reply that holds that byte differs, or the keys do, whose text the store has. */
void replay_show_reply(struct replay *replay, size_t at);
void replay_show_keys(struct replay *replay, const struct lk__buf *text);

#endif
