/* SPDX-License-Identifier: MIT
 * What the store knows of a name, whatever it stands for, and telling it. */
#ifndef LOOK_H
#define LOOK_H

#include <latchkey.h>

#include <stdbool.h>
#include <stddef.h>

#define LOOK_MAX 1000 /* holders and waiters that are told */

struct look {
	lk_kind kind;
	/* of these the one of its kind; a name that is nothing is a lock that is free */
	lk_lock_status lock;
	lk_semaphore_status semaphore;
	lk_latch_status latch;
	/* LOOK_MAX of each; NULL until they are needed */
	lk_party *parties; /* who waits for the lock */
	lk_ticket *holders;
	lk_ticket *waiters;
	size_t holder_count;
	size_t waiter_count; /* of parties, or of waiters */
};

/* Look, also at who holds and waits if all is set; name_len 0 = up to its NUL.  The same look may
 * be used for one name after the other. */
lk_err look_at(struct look *look, lk_client *client, const char *name, size_t name_len, bool all);
void look_fini(struct look *look);

/* Everything, for people; for scripts, without a newline at its end.  name is escaped. */
void look_print(const struct look *look, const char *name);
void look_json(const struct look *look, const char *name);
/* One row of a table; the head with look NULL. */
void look_row(const struct look *look, const char *name);

#endif
