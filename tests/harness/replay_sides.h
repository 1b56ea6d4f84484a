/* SPDX-License-Identifier: MIT
 * Both sides of a replay, for the files that compare and print them. */
#ifndef REPLAY_SIDES_H
#define REPLAY_SIDES_H

#include "replay.h"
#include "server.h"
#include "server_version.h"

#define REPLAY_COMMANDS 400 /* of one batch */

struct replay_sent {
	size_t request_end, reply_end;
};

struct replay_sides {
	struct test_server server;
	enum server_version version;
	char dir[80];
	char run_id[41];
	volatile int64_t *clock_us;
	struct lua_store *store;
	int fd, subscriber_fd;
	struct lk__buf requests, replies; /* of the batch; the store's replies */
	struct lk__buf messages;          /* the messages that the subscriber must get */
	struct lk__buf got;
	struct replay_sent command[REPLAY_COMMANDS];
	int count;
	char last[160]; /* a text of replay_peek() or the first word of the last reply */
	size_t last_reply;
	bool hears[REPLAY_CLIENTS + REPLAY_NAMES];
	long long syncs;
	bool failed;
	FILE *out;
};

/* Send, and read the wanted number of bytes into sides->got; fewer if no more arrive, or if they
 * already differ: a reply that is too short is not awaited. */
void replay_say(int fd, const struct lk__buf *bytes);
void replay_hear(struct replay_sides *sides, int fd, const struct lk__buf *wanted);

/* ---- replay_show.c ------------------------------------------------------------------------- */

/* The length of the common prefix. */
size_t replay_same(const struct lk__buf *one, const struct lk__buf *other);
void replay_show_bytes(FILE *out, const char *bytes, size_t len);
void replay_show_command(const struct replay_sides *sides, int i);
/* Print the reply that has that byte, or the keys, given the store's text of them. */
void replay_show_reply(struct replay *replay, size_t at);
void replay_show_keys(struct replay *replay, const struct lk__buf *text);

#endif
