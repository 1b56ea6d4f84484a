/* SPDX-License-Identifier: MIT
 * Shared by the bare baselines: a connection of hiredis, and commands that are formatted once and
 * sent many times. */
#ifndef BARE_COMMAND_H
#define BARE_COMMAND_H

#include "bench.h"
#include "scripts.h"

#include <hiredis/hiredis.h>

#include <stddef.h>

/* Placeholder of a ticket's nonce, which is new each time. */
#define NONCE_MARK "NoNceNoNceN"
#define NONCE_LEN 11

/* One command as it is sent. */
struct command {
	char *text, *nonce; /* nonce points into text, NULL = none; the caller frees text */
	size_t len;
};

/* Open a blocking TCP connection with TCP_NODELAY.  Errors name the baseline. */
redisContext *bare_dial(const struct test_server *server, const char *baseline);
/* Load a script and return its digest. */
void bare_load(redisContext *context, const char *text, size_t len, char sha1[41]);
/* Load a script of the library; a digest other than the known one ends the run. */
void bare_load_ours(redisContext *context, const struct lk__script *script);
struct command bare_format(int argc, const char *const *argv);
/* Send it and read the reply, which the caller frees.  A lost connection ends the run. */
redisReply *bare_ask(redisContext *context, const struct command *command);

#endif
