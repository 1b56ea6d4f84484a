/* SPDX-License-Identifier: MIT
 * What the bare baselines have in common: a connection of hiredis, and commands that are formatted
 * once and then sent as they are. */
#ifndef BARE_COMMAND_H
#define BARE_COMMAND_H

#include "bench.h"
#include "scripts.h"

#include <hiredis/hiredis.h>

#include <stddef.h>

/* In the place of a ticket's nonce, which is another one each time. */
#define NONCE_MARK "NoNceNoNceN"
#define NONCE_LEN 11

/* One command as it goes over the wire. */
struct command {
	char *text, *nonce; /* nonce is in text, NULL = none; text is the caller's to free */
	size_t len;
};

/* A blocking connection by TCP, with TCP_NODELAY.  who names the baseline when it fails. */
redisContext *bare_dial(const struct test_server *server, const char *who);
/* Load a script; its digest. */
void bare_load(redisContext *context, const char *text, size_t len, char sha1[41]);
/* One of ours, whose digest is known: another one ends the run. */
void bare_load_ours(redisContext *context, const struct lk__script *script);
struct command bare_format(int argc, const char *const *argv);
/* Send it and read the answer, the caller's to free.  A lost connection ends the run. */
redisReply *bare_ask(redisContext *context, const struct command *command);

#endif
