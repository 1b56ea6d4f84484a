/* SPDX-License-Identifier: MIT
 * The primitives, a row each, for tests that cause a fault once for all of them: how a client holds
 * one, waits for it and releases it, and what the store shows of it.  A primitive with holds is
 * called by its row of noun.h.  A new one adds to that a row in primitive_rows.c, and a place in
 * the sets below; every test of such a set then covers it.
 *
 * A lock or a semaphore is held when it is acquired.  A latch is held while it counts: its holder
 * has set it and has counted one step, by name, and releases it by the steps that are left; a
 * waiter awaits it. */
#ifndef PRIMITIVE_H
#define PRIMITIVE_H

#include "fault.h"
#include "noun.h"

#include <pthread.h>
#include <stdatomic.h>

/* The primitives in the order of their rows, and sets of them.  tests/tidy reads these lines. */
enum primitive_set {
	LOCK = 1,
	SEMAPHORE = 2,
	LATCH = 4,
	LEASED = LOCK | SEMAPHORE, /* one holder after the other, each for a lease */
	EVERY = LEASED | LATCH,
};
#define PRIMITIVES 3

/* TEST_OF(states_a_fact, set, seconds) { ... }: one test for the primitives of a set, which the
 * body gets as `set`: they are held at once, and there is one fault.  TEST_EACH() is a test for
 * each of them, named states_a_fact:noun.  tests/faults lists the primitives of both. */
#define TEST_OF(name, primitives_, seconds)                                                        \
	static void name##_of(unsigned set);                                                       \
	TEST_LIMIT(name, seconds)                                                                  \
	{                                                                                          \
		name##_of(primitives_);                                                            \
	}                                                                                          \
	static void name##_of(unsigned set)
#define TEST_EACH(name, primitives_, seconds)                                                      \
	static void name##_of(unsigned set);                                                       \
	static void name##_run(int row)                                                            \
	{                                                                                          \
		name##_of(1u << row);                                                              \
	}                                                                                          \
	__attribute__((constructor)) static void name##_register(void)                             \
	{                                                                                          \
		const TTest test = {#name, name##_run, __FILE__, __LINE__};                        \
		primitive_register(&test, primitives_, seconds);                                   \
	}                                                                                          \
	static void name##_of(unsigned set)

/* Register that test for each of the set. */
void primitive_register(const TTest *test, unsigned set, double seconds);

/* One client's hold on a primitive, or its wait for one. */
struct claim {
	const struct primitive *primitive;
	lk_client *client;
	const char *name;
	int64_t lease_ms;
	bool fixed;     /* its lease is not renewed */
	bool exclusive; /* its wait is for so much that no other claim fits beside it */
	union {
		void *handle;
		lk_lock *lock;
		lk_semaphore *semaphore;
		lk_latch *latch;
	};
	uint64_t fence; /* of its hold, the newer one of two; the generation of a latch */
	uint64_t first; /* of the older one, 0 = it has one hold */
	struct noun_losses lost;
	/* The wait, in a thread of its own. */
	bool waits, keep;
	int64_t wait_ms, took_ms;
	lk_err err;
	atomic_bool ended;
	pthread_t thread;
};

#define PRIMITIVE_KEYS_MAX 5

struct primitive {
	const char *name;
	const struct noun *noun; /* NULL = it has no holds, and its calls are its own */
	bool is_leased;          /* its holds end with their lease */
	lk_err absent_err;       /* the result of a release after the store has lost the hold */
	/* The keys of the one that is called as the primitive is; the first ones are the hold
	 * itself. */
	const char *keys[PRIMITIVE_KEYS_MAX];
	int hold_keys;
	/* Open a handle; its holds belong to the caller's thread, where a primitive has this, or to
	 * the handle. */
	lk_err (*open)(struct claim *claim, bool of_handle);
	/* As its holder does; as its waiter does.  A release undoes either. */
	lk_err (*hold)(struct claim *claim, int64_t wait_ms);
	lk_err (*wait)(struct claim *claim, int64_t wait_ms);
	lk_err (*release)(struct claim *claim);
	lk_err (*cancel)(struct claim *claim);
	lk_err (*query)(struct claim *claim);
	/* By the client's clock. */
	int64_t (*remaining_ms)(struct claim *claim);
	lk_state (*state)(struct claim *claim);
	/* In the store: exactly this hold, and none else; the number of waiters (of clients that
	 * wait for a latch); neither a hold nor a waiter. */
	bool (*is_held)(struct claim *claim);
	long long (*waiting)(const char *name);
	bool (*is_at_rest)(const char *name);
	/* Assert that each call that needs the store fails with err, and with that text. */
	void (*expect_refused)(struct claim *claim, lk_err err, const char *text);
};

extern const struct primitive primitives[PRIMITIVES];

/* The permits of each semaphore: all are held by its holder, in two holds if it had not to wait.  A
 * waiter waits for so few that a second grant would fit, too; an exclusive one for all. */
#define CAPACITY 4
#define WAITER_PERMITS 2

/* ---- One claim ------------------------------------------------------------------------------- */

/* Fill in a claim of that row without opening it: of that name, NULL = the primitive's. */
void claim_init(struct claim *claim, int row, lk_client *client, const char *name,
                int64_t lease_ms);
/* Wait in a thread of its own, by an open handle that owns what it gets; keep: do not release it.
 */
void claim_start(struct claim *claim, int64_t wait_ms, bool keep);
/* The result of its wait; fails the test if there is none within 20 s. */
lk_err claim_join(struct claim *claim);

/* ---- The claims of one client, one for each primitive of a set ------------------------------- */

struct claims {
	unsigned set;
	struct claim of[PRIMITIVES];
};

/* for each claim of them */
#define EACH(claim, claims)                                                                        \
	for (struct claim *claim = (claims)->of; claim < (claims)->of + PRIMITIVES; claim++)       \
		if ((claims)->set & 1u << (claim - (claims)->of))

/* Fill in claims without opening them. */
void claims_init(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms);
/* Hold all: of the calling thread, and without waiting. */
void claims_hold(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms);
/* The same, when they are free. */
void claims_hold_later(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms);
/* Hold and release something of another name, so that the client has introduced itself, and the
 * server has the scripts. */
void claims_warm_up(unsigned set, lk_client *client);
/* Assert that they stay valid for that long, without a reported loss. */
void claims_stay_held(struct claims *claims, int64_t ms);
/* Assert that the store has exactly these holds; and that the client is soon sure of it. */
void claims_expect_stored(struct claims *claims);
void claims_expect_held(struct claims *claims);
/* Assert that nothing of another name can be opened and held: the server refuses it with that
 * text. */
void claims_expect_no_grant(unsigned set, lk_client *client, const char *text);
/* Wait until the client is connected: each is queried. */
void claims_await_link(struct claims *claims);
void claims_release(struct claims *claims);
/* Assert that these have the larger fences. */
void claims_expect_newer(struct claims *claims, struct claims *older);
/* Hold again what was lost, by fences above the earlier ones, and release it. */
void claims_hold_again(struct claims *claims);

/* Open handles, and wait for all, each in a thread of its own; may be repeated. */
void claims_open(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms);
void claims_start(struct claims *claims, int64_t wait_ms, bool keep);
/* Open and wait, for a long time, and return when all are in the queue. */
void claims_queue(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms,
                  bool keep);
/* The result of each wait. */
void claims_join(struct claims *claims, lk_err expected);
bool claims_all_ended(struct claims *claims);
bool claims_any_ended(struct claims *claims);
/* A latch that is lost has no hand-off: assert that its waiters wait on, so many clients of them.
 */
void claims_expect_still_waiting(struct claims *claims, long long clients);

/* Assert that each leased hold is soon no longer sure to continue, without a link. */
void claims_expect_unsure(struct claims *claims);
/* Assert that each leased hold was lost for that reason, 0 = for any, by that time. */
void claims_expect_lost(struct claims *claims, lk_lost_reason reason, int64_t by_ms);
/* Wait until each leased hold ends; assert that its loss is reported then, neither later nor
 * earlier. */
void claims_expect_expiry(struct claims *claims);
/* Assert that a release finds nothing: of the leased ones; of all, because the store has lost
 * them. */
void claims_release_lost(struct claims *claims);
void claims_release_absent(struct claims *claims);

/* Is that the number of waiters of each?  Are there neither holds nor waiters of any?  Has each
 * a hold or a waiter? */
bool claims_waiting(unsigned set, long long count);
bool claims_at_rest(unsigned set);
bool claims_in_use(unsigned set);

#endif
