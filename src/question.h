/* SPDX-License-Identifier: MIT
 * Questions: commands that are none of the state machine's, each sent once and answered once.  All
 * are for a thread inside a call: the client's mutex is held, and given up meanwhile. */
#ifndef LK__QUESTION_H
#define LK__QUESTION_H

#include "client.h"
#include "redis/script.h"

/* Run calls whose bytes are ready, within one command timeout.  LK_OK when each has a reply. */
lk_err lk__questions(struct lk_client *client, struct lk__call *calls, size_t count);
/* One command; *resp is the caller's.  Error replies are failures; buf is taken in any case, and
 * !whole says that it could not be written for want of memory. */
lk_err lk__question(struct lk_client *client, struct lk__buf *buf, bool whole,
                    struct lk__resp **resp);
/* One script, by its text; "foreign" is a failure, too. */
lk_err lk__question_script(struct lk_client *client, const struct lk__script *script, int count,
                           const char *const *args, struct lk__resp **resp);
/* The answer is none of the script's: frees it, returns LK_ESERVER. */
lk_err lk__question_odd(struct lk_client *client, struct lk__resp *resp);

/* An array that begins with these: s a string, i an integer. */
bool lk__resp_is(const struct lk__resp *resp, const char *form);
/* An array whose first element is that word. */
bool lk__resp_says(const struct lk__resp *resp, const char *word);
/* A number that may have been written as text, 0 if it is none. */
int64_t lk__resp_number(const struct lk__resp *resp);

#endif
