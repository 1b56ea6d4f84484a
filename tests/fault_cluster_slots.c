/* SPDX-License-Identifier: MIT
 * Slots of a real Cluster that move (R1 to R7 of the fault list) while their names are held, waited
 * for and counted: every answer of a server that does not have a name is followed, no hold is lost,
 * no two hold at once, and queues keep their order. */
#include "harness/cluster_fault.h"

#include "base/slot.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_LEASE_MS 1500
#define LONG_LEASE_MS 9000 /* no renewal is due in a test's few steps */
#define WAITERS 3
#define SERVED_MS 1000
#define GO_ON_MS 8000

CLUSTER_SETUP_SHARED(NULL)

static lk_client *holder, *waiter[WAITERS];
static struct claims held, waits[WAITERS];
static struct cluster_move move;

/* Hold something of each primitive, and let so many clients wait for all of it. */
static void begin(unsigned set, int waiters, int64_t lease_ms)
{
	cluster_fault_set_up(-1);
	holder = client_at(cluster_url);
	claims_hold(&held, set, holder, lease_ms);
	for (int i = 0; i < waiters; i++) {
		waiter[i] = client_at(cluster_url);
		claims_queue(&waits[i], set, waiter[i], lease_ms, false);
	}
}

static void expect_no_loss(void)
{
	EACH (claim, &held)
		ck_assert_int_eq(claim->lost.count, 0);
}

/* Each wait ends with a grant, after the hold, and in the order of the queue. */
static void expect_served(int waiters, bool in_order)
{
	const struct claims *before = &held;

	for (int i = 0; i < waiters; i++) {
		claims_join(&waits[i], LK_OK);
		for (int row = 0; row < PRIMITIVES; row++)
			ck_assert(!(held.set & LEASED & 1u << row) ||
			          waits[i].of[row].fence > before->of[row].fence);
		before = in_order ? &waits[i] : &held;
	}
	ck_assert(WITHIN(BACK_MS, claims_at_rest(held.set)));
}

static void end(int waiters)
{
	expect_no_loss();
	OK(lk_client_close(holder));
	for (int i = 0; i < waiters; i++)
		OK(lk_client_close(waiter[i]));
}

/* A name in that slot. */
static void name_in_slot(int slot, char name[40])
{
	int i = 0;

	do
		snprintf(name, 40, "n%d", i++);
	while (cluster_slot_of_name(name) != slot);
}

static bool any_ended(int waiters)
{
	for (int i = 0; i < waiters; i++)
		if (claims_any_ended(&waits[i]))
			return true;
	return false;
}

static bool all_ended(int waiters)
{
	for (int i = 0; i < waiters; i++)
		if (!claims_all_ended(&waits[i]))
			return false;
	return true;
}

/* ---- R1 -------------------------------------------------------------------------------------- */

/* A user who may not subscribe to the inboxes of names, but to those of links, in the first slots
 * of their nodes: its clients do not hear that a slot moves. */
static const char *deaf_url(void)
{
	static char url[300];
	char command[120], tag[LK__TAG_SIZE];
	struct cluster_view view;

	cluster_setup_each(cluster, "ACL SETUSER deaf reset on >pw ~* +@all");
	cluster_setup_view(cluster, 0, &view);
	for (int i = 0; i < CLUSTER_MASTERS + PRIMITIVES; i++) {
		unsigned slot;
		if (i < CLUSTER_MASTERS)
			lk__slots_first((const uint8_t *)view.owner, (uint8_t)i, cluster->ids[i],
			                &slot, 1);
		else
			slot = (unsigned)cluster_slot_of_name(primitives[i - CLUSTER_MASTERS].name);
		lk__slot_tag(slot, tag);
		snprintf(command, sizeof(command), "ACL SETUSER deaf &lk:c:{%s}:*", tag);
		cluster_setup_each(cluster, command);
	}
	snprintf(url, sizeof(url), "redis+cluster://deaf:pw@%s", strstr(cluster_url, "://") + 3);
	return url;
}

/* One primitive at a time: the first redirect of a client lets it ask for all owners. */
TEST_EACH(r1_moved_slot_redirects_each_request, EVERY, 40)
{
	lk_client *late;
	struct claims other;
	long long moved;
	bool is_leased = set & LEASED;

	cluster_fault_set_up(-1);
	holder = client_at(deaf_url());
	late = client_at(cluster_url);
	claims_hold(&other, set & LEASED, late, LONG_LEASE_MS); /* it knows the owners of before */
	claims_release(&other);
	/* Renewals. */
	claims_hold(&held, set & LEASED, holder, HOLD_LEASE_MS);
	cluster_move_open(&move, set);
	moved = cluster_move_errors(&move, "MOVED", true);
	cluster_move_close(&move);
	claims_stay_held(&held, 2 * HOLD_LEASE_MS);
	ck_assert_int_ge(cluster_move_errors(&move, "MOVED", true), moved + is_leased);
	claims_expect_held(&held);
	/* An ask: a try by a client that has heard of nothing. */
	moved = cluster_move_errors(&move, "MOVED", true);
	EACH (claim, &other)
		EXPECT(claim->primitive->wait(claim, 0), LK_EBUSY);
	ck_assert_int_ge(cluster_move_errors(&move, "MOVED", true), moved + is_leased);
	claims_release(&held);
	expect_no_loss();
	/* Releases, and steps of a latch. */
	claims_hold(&held, set, holder, LONG_LEASE_MS);
	cluster_move_open(&move, set);
	moved = cluster_move_errors(&move, "MOVED", true);
	cluster_move_close(&move);
	ck_assert_int_eq(cluster_move_errors(&move, "MOVED", true), moved);
	claims_release(&held);
	ck_assert_int_ge(cluster_move_errors(&move, "MOVED", true), moved + 1);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(late));
	end(0);
}

/* ---- R2 -------------------------------------------------------------------------------------- */

TEST_OF(r2_ask_redirects_once_and_the_route_stays, EVERY, 40)
{
	long long asked, moved, run[2];

	begin(set, 1, HOLD_LEASE_MS);
	cluster_move_open(&move, set);
	cluster_move_keys(&move);
	claims_expect_held(&held);
	asked = cluster_move_errors(&move, "ASK", true);
	moved = cluster_errors("MOVED");
	for (int i = 1; i <= 3; i++) {
		EACH (claim, &held)
			OK(claim->primitive->query(claim));
		ck_assert_int_ge(cluster_move_errors(&move, "ASK", true), asked + 3 * i);
	}
	asked = cluster_move_errors(&move, "ASK", true);
	run[0] = cluster_setup_requests(cluster, move.to[0]);
	claims_stay_held(&held, 2 * HOLD_LEASE_MS);
	run[1] = cluster_setup_requests(cluster, move.to[0]);
	ck_assert_int_ge(cluster_move_errors(&move, "ASK", true), asked + 6); /* renewals */
	ck_assert_int_ge(run[1], run[0] + 3);
	ck_assert_int_eq(cluster_errors("MOVED"), moved);
	ck_assert(!any_ended(1));
	cluster_move_close(&move);
	claims_release(&held);
	expect_served(1, true);
	end(1);
}

/* A client that waits for one lock, and asks for another one of the same slot. */
struct pair {
	lk_lock *waits, *asks;
};

static void *acquire_it(void *arg)
{
	OK(lk_lock_acquire(((struct pair *)arg)->waits, GO_ON_MS, NULL));
	OK(lk_lock_release(((struct pair *)arg)->waits));
	return NULL;
}

static void *look_at_it(void *arg)
{
	lk_lock_status status;

	OK(lk_lock_query(((struct pair *)arg)->asks, &status));
	return NULL;
}

static long long calls_at(int node, const char *command)
{
	struct redis *own = redis_open(&cluster->nodes[node]);
	long long calls = redis_calls(own, command);

	redis_close(own);
	return calls;
}

static void set_slot_at(int node, int slot, int to)
{
	struct redis *own = redis_open(&cluster->nodes[node]);

	redis_do(own, "CLUSTER SETSLOT %d NODE %s", slot, cluster->ids[to]);
	redis_close(own);
}

/* The new server is stopped with the redirected ask in its socket, behind ASKING; meanwhile the
 * client learns that the slot is there for good. */
static void move_during_ask(struct pair *pair, int slot, int to)
{
	struct redis *own = redis_open(&cluster->nodes[to]);
	const pid_t pid = (pid_t)redis_info(own, "process_id");
	const long long asked = cluster_errors_at(0, "ASK"), told = calls_at(0, "cluster|slots");
	pthread_t waiting, asking;
	lk_counters before, now;

	redis_close(own);
	OK(lk_client_counters(holder, &before));
	ck_assert(!kill(pid, SIGSTOP));
	ck_assert(!pthread_create(&waiting, NULL, acquire_it, pair));
	ck_assert(WITHIN(GO_ON_MS, cluster_errors_at(0, "ASK") > asked));
	ck_assert(WITHIN(GO_ON_MS,
	                 !lk_client_counters(holder, &now) && now.requests >= before.requests + 2));
	set_slot_at(0, slot, to);
	ck_assert(!pthread_create(&asking, NULL, look_at_it, pair));
	ck_assert(WITHIN(GO_ON_MS, calls_at(0, "cluster|slots") > told));
	ck_assert(!kill(pid, SIGCONT));
	set_slot_at(to, slot, to);
	pthread_join(waiting, NULL);
	pthread_join(asking, NULL);
}

TEST_LIMIT(r2_reply_to_asking_is_no_request_s, 40)
{
	const int to = 1;
	int slot;
	char same[40], url[300];
	struct pair pair;
	lk_lock *other;
	lk_lock_status status;
	lk_client *rival;

	cluster_fault_set_up(0);
	slot = cluster_slot_of_name("lock");
	name_in_slot(slot, same);
	cluster_slot_move(cluster, cluster_slot_of_name("lock of rivals"), to);
	snprintf(url, sizeof(url), "%s&command_timeout=20000", cluster_url);
	holder = client_at(url);
	rival = client_at(cluster_url);
	pair = (struct pair){lock_leased(holder, "lock", LONG_LEASE_MS),
	                     lock_leased(holder, same, LONG_LEASE_MS)};
	other = lock_leased(holder, "lock of rivals", LONG_LEASE_MS);
	OK(lk_lock_query(other, &status)); /* both links are up */
	OK(lk_lock_query(pair.asks, &status));
	cluster_slot_open(cluster, slot, to);
	cluster_slot_move_keys(cluster, slot, to, CLUSTER_ALL_KEYS);
	move_during_ask(&pair, slot, to);
	/* Its answers are still those of its requests. */
	EXPECT(lk_lock_acquire(lock_leased(rival, "lock of rivals", LONG_LEASE_MS), 0, NULL),
	       LK_OK);
	EXPECT(lk_lock_acquire(other, 0, NULL), LK_EBUSY);
	OK(lk_lock_acquire(pair.waits, 0, NULL));
	EXPECT(lk_lock_acquire(lock_leased(rival, "lock", LONG_LEASE_MS), 0, NULL), LK_EBUSY);
	ck_assert(WITHIN(CLUSTER_SETTLED_MS, cluster_setup_owner(cluster, slot) == to));
	OK(lk_client_close(rival));
	end(0);
}

/* ---- R3, R4 ---------------------------------------------------------------------------------- */

TEST_OF(r3_hold_is_renewed_while_its_slot_says_try_again, LEASED, 40)
{
	const int64_t lease_ms = 900;
	long long tries;
	lk_counters before, after;

	begin(set, 0, lease_ms);
	cluster_move_open(&move, set); /* the queue's key does not exist */
	tries = cluster_move_errors(&move, "TRYAGAIN", true);
	OK(lk_client_counters(holder, &before));
	claims_stay_held(&held, getenv("LK_LONG") ? 30000 : 3000);
	OK(lk_client_counters(holder, &after));
	ck_assert_int_ge(cluster_move_errors(&move, "TRYAGAIN", true), tries + 6);
	ck_assert_int_ge(after.renewed, before.renewed + 6);
	claims_expect_held(&held);
	cluster_move_close(&move);
	claims_stay_held(&held, lease_ms);
	claims_release(&held);
	expect_served(0, true);
	end(0);
}

/* The keys of the holds move, those of the queues do not: no ask and no whole renewal runs. */
TEST_OF(r4_slot_left_migrating_costs_no_hold_and_no_waiter, LEASED, 40)
{
	long long tries;
	int64_t released_ms;

	begin(set, WAITERS, HOLD_LEASE_MS);
	cluster_move_open(&move, set);
	cluster_move_holds(&move);
	tries = cluster_move_errors(&move, "TRYAGAIN", true);
	claims_stay_held(&held, (getenv("LK_LONG") ? 10 : 2) * HOLD_LEASE_MS);
	ck_assert_int_ge(cluster_move_errors(&move, "TRYAGAIN", true), tries + 6);
	ck_assert(!any_ended(WAITERS));
	ck_assert(claims_waiting(set, WAITERS));
	/* A release ends the hold now; it serves the queue when all keys are on one server,
	 * beginning with who hears it there. */
	released_ms = now_ms();
	EACH (claim, &held) {
		OK(claim->primitive->noun->release(claim->handle, claim->fence));
		if (claim->first)
			OK(claim->primitive->noun->release(claim->handle, claim->first));
	}
	ck_assert_int_le(now_ms() - released_ms, 2000);
	EACH (claim, &held)
		ck_assert_int_eq(redis_int(redis, "EXISTS %s", claim->primitive->keys[0]),
		                 claim->primitive->hold_keys > 1); /* a semaphore's state stays */
	ck_assert(!any_ended(WAITERS));
	cluster_move_close(&move);
	expect_served(WAITERS, false);
	end(WAITERS);
}

/* ---- R5 -------------------------------------------------------------------------------------- */

static atomic_bool reshard_ended;
static atomic_int missing_max_ms; /* the longest time for which a waiter was in no queue */

/* Watch the queues while their slots move; all wait, and none of them gives up. */
static void *watch_queues(void *arg)
{
	int64_t complete_ms = now_ms();

	(void)arg;
	redis = cluster_look();
	while (!reshard_ended) {
		int64_t seen_ms = now_ms();
		if (claims_waiting(LEASED, WAITERS))
			complete_ms = seen_ms;
		else if (seen_ms - complete_ms > missing_max_ms)
			missing_max_ms = (int)(seen_ms - complete_ms);
	}
	redis_close(redis);
	redis = NULL;
	return NULL;
}

static void reshard(struct rivals *rivals)
{
	int rounds = getenv("LK_LONG") ? 40 : 4;

	for (int i = 0; i < rounds; i++) {
		cluster_move_open(&move, LEASED);
		cluster_move_close(&move);
		for (int j = 0; j < 2; j++) {
			char name[40];
			int slot;
			snprintf(name, sizeof(name), "%s of rivals", rivals[j].noun->name);
			slot = cluster_slot_of_name(name);
			cluster_slot_move(cluster, slot,
			                  (cluster_setup_owner(cluster, slot) + 1) %
			                          CLUSTER_MASTERS);
			rivals_go_on(&rivals[j], GO_ON_MS);
		}
	}
}

TEST_OF(r5_resharding_under_load_keeps_the_order_and_one_holder, LEASED, 90)
{
	static struct rivals rivals[2];
	long long redirects;
	pthread_t watch;

	begin(set, WAITERS, HOLD_LEASE_MS);
	rivals_start(&rivals[0], &noun_lock, cluster_url, LONG_LEASE_MS);
	rivals_start(&rivals[1], &noun_semaphore, cluster_url, LONG_LEASE_MS);
	for (int i = 0; i < 2; i++)
		rivals_go_on(&rivals[i], GO_ON_MS);
	redirects = cluster_errors("MOVED");
	ck_assert(!pthread_create(&watch, NULL, watch_queues, NULL));
	reshard(rivals);
	reshard_ended = true;
	pthread_join(watch, NULL);
	printf("a waiter was in no queue for at most %d ms\n", missing_max_ms);
	ck_assert_int_le(missing_max_ms, SERVED_MS);
	ck_assert_int_ge(cluster_errors("MOVED"), redirects + 8);
	ck_assert(!any_ended(WAITERS));
	claims_expect_held(&held);
	EACH (claim, &held)
		ck_assert(WITHIN(SERVED_MS, cluster_subscriptions_at(move.to[claim - held.of],
		                                                     claim->name) > WAITERS));
	claims_release(&held);
	expect_served(WAITERS, true);
	for (int i = 0; i < 2; i++)
		rivals_stop(&rivals[i]);
	end(WAITERS);
}

/* ---- R6, R7 ---------------------------------------------------------------------------------- */

TEST_OF(r6_waiter_whose_subscription_ended_is_served_within_a_second, EVERY, 60)
{
	int rounds = getenv("LK_LONG") ? 30 : 2;

	for (int round = 0; round < rounds; round++) {
		int64_t released_ms;
		begin(set, 1, LONG_LEASE_MS);
		EACH (claim, &held) {
			int at = cluster_slot_owner(cluster, claim->primitive->keys[0]);
			ck_assert_int_ge(cluster_subscriptions_at(at, claim->name), 1);
		}
		cluster_move_open(&move, set);
		cluster_move_close(&move);
		EACH (claim, &held)
			ck_assert_int_eq(
				cluster_subscriptions_at(move.from[claim - held.of], claim->name),
				0);
		released_ms = now_ms();
		claims_release(&held);
		ck_assert_msg(WITHIN(SERVED_MS, claims_all_ended(&waits[0])), "no grant in %lld ms",
		              (long long)(now_ms() - released_ms));
		expect_served(1, true);
		end(1);
	}
}

/* It is executed where no waiter can listen yet: all leave the queue, and are back as soon as the
 * slot has moved.  Which of them is first, is open. */
TEST_OF(r7_leave_by_ask_loses_no_waiter, LEASED, 60)
{
	int rounds = getenv("LK_LONG") ? 20 : 1;

	for (int round = 0; round < rounds; round++) {
		long long asked;
		int64_t closed_ms;
		begin(set, WAITERS, LONG_LEASE_MS);
		cluster_move_open(&move, set);
		cluster_move_keys(&move);
		asked = cluster_move_errors(&move, "ASK", true);
		claims_release(&held);
		ck_assert_int_ge(cluster_move_errors(&move, "ASK", true), asked + 2);
		EACH (claim, &held)
			ck_assert_int_eq(
				cluster_subscriptions_at(move.to[claim - held.of], claim->name), 0);
		cluster_move_close(&move);
		closed_ms = now_ms();
		ck_assert_msg(WITHIN(SERVED_MS, all_ended(WAITERS)),
		              "a waiter was lost for %lld ms", (long long)(now_ms() - closed_ms));
		expect_served(WAITERS, false);
		end(WAITERS);
	}
}
