/* SPDX-License-Identifier: MIT
 * The state of a name in a Redis in memory, read from its keys, as values. */
#ifndef STORE_VIEW_H
#define STORE_VIEW_H

#include "lua_store.h"
#include "redis/codec.h"

#define STORE_TICKETS 256 /* read of a name */

struct store_ticket {
	char text[LK__TICKET_MAX];
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms;
	bool fixed, final;
	uint32_t permits; /* 0 = a lock's */
	/* Of a hold: its permits, its fence, its current lease and expiry.  Of a wait: its
	 * arrival. */
	uint32_t held;
	uint64_t fence;
	int64_t force_ms, end_us;
	uint64_t mark; /* of the memory in which it was reclaimed, see store_mark(); 0 = none */
	int64_t arrival_us; /* of a quorum's ticket its priority, also of a hold */
};

struct store_view {
	bool there;
	int64_t capacity, used; /* of a semaphore */
	struct store_ticket holds[STORE_TICKETS];
	int hold_count;
	struct store_ticket queue[STORE_TICKETS];
	int queued;
	/* Of a latch. */
	uint64_t generation;
	int64_t count, initial;
	int64_t end_us; /* expiry of its key, INT64_MAX = never */
};

/* The keys of a name: holds are those of a semaphore. */
struct store_keys {
	lk_kind kind;
	const char *main, *queue, *holds;
};

void store_look(const struct lua_store *store, const struct store_keys *keys,
                struct store_view *view);
/* NULL if it does not have that ticket. */
const struct store_ticket *store_hold(const struct store_view *view, const char *ticket);
const struct store_ticket *store_wait(const struct store_view *view, const char *ticket);

/* Are they the same ticket, or of a quorum's leg two epochs? */
bool store_is_same(const char *one, const char *other);

/* A memory's marker: the text at that key, "" if it is missing. */
const char *store_marker(const struct lua_store *store, const char *key);
/* The mark of a memory with that marker, "1 <id> <since>", as a number; 0 = no marker. */
uint64_t store_mark(const char *marker);

#endif
