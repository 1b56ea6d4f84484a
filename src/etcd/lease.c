/* SPDX-License-Identifier: MIT
 * The rounds of a lease: read (to learn the member's term), keep-alive, read (to confirm it). */
#include "lease.h"

#define SECOND INT64_C(1000000000)
#define ROUNDS 3 /* in the time to live, so that two may fail */

/* For good: a leader may have seen the end, too, and revoke the lease later. */
static bool is_over(const struct lk__lease *lease, int64_t now_ns)
{
	return !lk__lease_is_valid(lease, now_ns);
}

static void end(struct lk__lease *lease)
{
	lease->since_ns = 0;
	lease->sent = LK__LEASE_REST;
	lease->sent_ns = 0;
}

void lk__lease_granted(struct lk__lease *lease, int64_t sent_ns, int64_t ttl_s, uint64_t term)
{
	*lease = (struct lk__lease){.ttl_ns = ttl_s * SECOND, .since_ns = sent_ns, .term = term};
	lease->due_ns = sent_ns + lease->ttl_ns / ROUNDS;
}

enum lk__lease_step lk__lease_next(struct lk__lease *lease, int64_t now_ns)
{
	if (is_over(lease, now_ns) || lease->sent != LK__LEASE_REST || now_ns < lease->due_ns)
		return LK__LEASE_REST;
	if (lease->term == 0 || lease->sent_ns) {
		lease->sent = LK__LEASE_READ;
	} else {
		lease->sent = LK__LEASE_KEEP_ALIVE;
		lease->keep_alive_ns = now_ns;
	}
	return lease->sent;
}

bool lk__lease_renewed(struct lk__lease *lease, int64_t now_ns, int64_t ttl_s)
{
	lease->sent = LK__LEASE_REST;
	if (ttl_s <= 0 || is_over(lease, now_ns)) {
		end(lease);
		return false;
	}
	lease->sent_ns = lease->keep_alive_ns;
	lease->due_ns = now_ns;
	return true;
}

void lk__lease_confirmed(struct lk__lease *lease, int64_t now_ns, uint64_t term)
{
	bool is_led_still = term == lease->term;
	int64_t sent_ns = lease->sent_ns;

	lease->sent = LK__LEASE_REST;
	lease->sent_ns = 0;
	lease->term = term;
	lease->due_ns = now_ns; /* the term was not known, or is another: a keep-alive at once */
	if (is_over(lease, now_ns)) {
		end(lease);
	} else if (sent_ns && is_led_still) {
		lease->since_ns = sent_ns;
		lease->due_ns = sent_ns + lease->ttl_ns / ROUNDS;
	}
}

void lk__lease_failed(struct lk__lease *lease, int64_t now_ns, int64_t pause_ns)
{
	lease->sent = LK__LEASE_REST;
	lease->due_ns = now_ns + pause_ns;
}

void lk__lease_moved(struct lk__lease *lease, int64_t now_ns)
{
	lease->sent = LK__LEASE_REST;
	lease->sent_ns = 0;
	lease->term = 0;
	lease->due_ns = now_ns;
}
