/* SPDX-License-Identifier: MIT
 * Which member of a cluster to connect to, and when: each of a round in an order of the client's
 * own, so that clients spread; then a pause that doubles.  Nothing here dials or reads a clock. */
#ifndef LK__ENDPOINTS_H
#define LK__ENDPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#define LK__ENDPOINTS_MAX 16
#define LK__ENDPOINTS_NEVER INT64_MAX

struct lk__endpoints {
	uint8_t order[LK__ENDPOINTS_MAX]; /* a permutation; a dial is to the one at `next` */
	uint8_t count, next;
	uint8_t failed;     /* dials of this round that failed */
	int64_t backoff_ns; /* the last pause, 0 = none */
	int64_t due_ns;     /* of the next dial, LK__ENDPOINTS_NEVER while one is tried or used */
	int64_t up_ns;
	uint64_t random; /* the state of a generator */
};

/* count members, at most LK__ENDPOINTS_MAX and at least 1; random: any number.  A dial is due at
 * once. */
void lk__endpoints_init(struct lk__endpoints *endpoints, unsigned count, uint64_t random);

/* When lk__endpoints_next() has a member to dial. */
static inline int64_t lk__endpoints_due_ns(const struct lk__endpoints *endpoints)
{
	return endpoints->due_ns;
}
/* The member to dial now, or -1.  Report the outcome by _up or _failed. */
int lk__endpoints_next(struct lk__endpoints *endpoints, int64_t now_ns);
void lk__endpoints_up(struct lk__endpoints *endpoints, int64_t now_ns);
void lk__endpoints_failed(struct lk__endpoints *endpoints, int64_t now_ns);
/* The connection has ended.  leave: that member cannot help for now (no leader, silent, stopped),
 * so the others come first; otherwise, after a connection that lasted, it is dialled again at once.
 */
void lk__endpoints_down(struct lk__endpoints *endpoints, int64_t now_ns, bool leave);

#endif
