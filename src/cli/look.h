/* SPDX-License-Identifier: MIT
 * The state of a name of any kind, and its output. */
#ifndef LOOK_H
#define LOOK_H

#include <latchkey.h>

#include <stdbool.h>
#include <stddef.h>

#define LOOK_MAX 1000 /* limit of listed holders and waiters */

struct look {
	lk_kind kind;
	lk_server server; /* empty while there is no connection */
	/* only the one for kind is filled; LK_KIND_NONE is shown as a free lock */
	lk_lock_status lock;
	lk_semaphore_status semaphore;
	lk_latch_status latch;
	/* LOOK_MAX of each; allocated on first use */
	lk_party *parties; /* waiters for the lock */
	lk_ticket *holders;
	lk_ticket *waiters;
	size_t holder_count;
	size_t waiter_count; /* of parties, or of waiters */
};

/* Query a name; with all, its holders and waiters, too.  name_len 0 = up to its NUL.  A struct may
 * be used for one name after another. */
lk_err look_at(struct look *look, lk_client *client, const char *name, size_t name_len, bool all);
void look_fini(struct look *look);

/* Print everything: for people, or as JSON without a final newline.  name is escaped. */
void look_print(const struct look *look, const char *name);
void look_json(const struct look *look, const char *name);
/* Print one row of a table; the heading if look is NULL. */
void look_row(const struct look *look, const char *name);

#endif
