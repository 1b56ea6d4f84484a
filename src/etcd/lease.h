/* SPDX-License-Identifier: MIT
 * How long a lease of etcd is known to live: a state machine without I/O.
 *
 * etcd answers a keep-alive from the memory of the member that it takes for the leader, without
 * asking the others.  A leader that has been replaced and does not know it yet answers as well,
 * while the new one lets the lease expire.  So the answer alone proves nothing.  It counts when a
 * linearizable read, begun after it on the same member, shows the same raft term as before the
 * keep-alive was sent:
 *
 *   - a term has one leader;
 *   - the member had reached the term before the keep-alive left, and the read proves that this
 *     term was still led after its answer, so the leader of the term has renewed the lease;
 *   - that leader does not let the lease expire before it was sent + the time to live, and a later
 *     leader begins with the whole time to live.
 *
 * A lease that has ended by the client's own clock is never believed again, even if etcd goes on
 * renewing it: a leader may have seen it expired, and its revoke may still be on the way.
 *
 * Members older than 3.4.31 and 3.5.13 revoke what they believe expired without asking whether they
 * still lead; against that no rule of a client helps.  Those from 3.4.34 and 3.5.16 on ask only if
 * their loop stands still: a leader that stood still and goes on may revoke in the moment before it
 * learns that it was replaced.  So the fence is needed on etcd, too.  tests/unit_etcd_validity.c
 * explores all this. */
#ifndef LK__ETCD_LEASE_H
#define LK__ETCD_LEASE_H

#include <stdbool.h>
#include <stdint.h>

enum lk__lease_step {
	LK__LEASE_REST,       /* nothing, for now */
	LK__LEASE_READ,       /* a linearizable read */
	LK__LEASE_KEEP_ALIVE, /* a keep-alive */
};

struct lk__lease {
	int64_t ttl_ns;   /* time to live, as granted */
	int64_t since_ns; /* own clock: it lives for that time from then on; 0 = over, for good */
	int64_t due_ns;   /* when the next step may be sent */
	int64_t sent_ns;  /* of the keep-alive that was answered and not yet confirmed, 0 = none */
	uint64_t term;    /* that the member has reached, 0 = unknown */
	enum lk__lease_step sent; /* what has no answer yet */
	int64_t keep_alive_ns;    /* when the keep-alive that has no answer yet was sent */
};

/* The store has granted the lease to a request sent at sent_ns; the answer showed that term. */
void lk__lease_granted(struct lk__lease *lease, int64_t sent_ns, int64_t ttl_s, uint64_t term);
/* What to send now to the member in use.  It counts as sent: send it, or call lk__lease_failed().
 */
enum lk__lease_step lk__lease_next(struct lk__lease *lease, int64_t now_ns);
/* Answers.  False: the store does not know the lease any more, and it is over. */
bool lk__lease_renewed(struct lk__lease *lease, int64_t now_ns, int64_t ttl_s);
void lk__lease_confirmed(struct lk__lease *lease, int64_t now_ns, uint64_t term);
/* The step was not sent, or was refused; try again after pause_ns. */
void lk__lease_failed(struct lk__lease *lease, int64_t now_ns, int64_t pause_ns);
/* Another member is in use from now on, or another connection to the same one. */
void lk__lease_moved(struct lk__lease *lease, int64_t now_ns);

/* From when on the lease is over, 0 = it is.  Clocks may differ by 1 %, and it takes a moment to
 * act. */
static inline int64_t lk__lease_end_ns(const struct lk__lease *lease)
{
	return lease->since_ns ? lease->since_ns + lease->ttl_ns - lease->ttl_ns / 100 - 2000000
	                       : 0;
}

static inline bool lk__lease_is_valid(const struct lk__lease *lease, int64_t now_ns)
{
	return now_ns < lk__lease_end_ns(lease);
}

#endif
