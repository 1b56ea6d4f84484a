/* SPDX-License-Identifier: MIT
 * What remains unsafe with Sentinel (F7 to F11 of the fault list; docs/redis.md names each):
 * each test causes one case, shows two valid holds at once, and shows what prevents them. */
#include "harness/fake_sentinel.h"
#include "harness/grace.h"
#include "harness/sentinel_setup.h"
#include "harness/server_clock.h"

#include <stdio.h>
#include <string.h>

#define BRIEF_MS 1500
#define PLANNED_LEASE_MS 3000
#define LONG_LEASE_MS 30000 /* longer than a failover and the grace after it */
#define FOLLOW_MS 3000      /* of each grace: it covers leases that are so much shorter */
#define WAIT_MS 20000
#define ASK_MS 200 /* for a request to be sent */

/* A master refuses writes when no replica confirms that it hears it. */
static const char *const needs_replica[] = {"--min-replicas-to-write", "1",
                                            "--min-replicas-max-lag", "1", NULL};

static struct sentinel_setup setup;
/* The only sentinel that one of the clients knows, a made-up one: it does not learn of a failover,
 * as one that is cut off from the others. */
static struct fake_sentinel uninformed;
static struct claims held, next;
static char url[200]; /* of the clients that know all sentinels */
static lk_client *cut_off, *other;

static void look_at(const struct test_server *at)
{
	if (redis)
		redis_close(redis);
	redis = redis_open(at);
}

/* Start the service, whose grace has passed, and two clients, of which one follows no failover. */
static void set_up(const struct sentinel_setup_options *options, int64_t grace_ms)
{
	sentinel_setup_start(&setup, options);
	look_at(&setup.servers[0]);
	grace_pass();
	fake_sentinel_start(&uninformed, 0, setup.servers[0].port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/" SETUP_SERVICE "?grace=%lld",
	         uninformed.port, (long long)grace_ms);
	cut_off = client_at(url);
	snprintf(url, sizeof(url), "%s?grace=%lld", setup.url, (long long)grace_ms);
	other = client_at(url);
}

static void tear_down(void)
{
	OK(lk_client_close(other));
	lk_client_close(cut_off); /* the store has forgotten what it held */
	fake_sentinel_stop(&uninformed);
	sentinel_setup_stop(&setup);
}

/* Are the holds of both valid at the same moment, by their clients' clocks? */
static bool overlap(struct claims *one, struct claims *two)
{
	EACH (claim, one) {
		struct claim *beside = &two->of[claim - one->of];
		if (claim->primitive->remaining_ms(claim) <= 0 ||
		    beside->primitive->remaining_ms(beside) <= 0 ||
		    claim->primitive->remaining_ms(claim) <= 0)
			return false;
	}
	return true;
}

/* The lease of each hold had ended, and its loss was reported, before the wait for the next one
 * did. */
static void expect_one_after_the_other(struct claims *ended, struct claims *waits, int64_t began_ms)
{
	EACH (claim, ended) {
		struct claim *later = &waits->of[claim - ended->of];
		ck_assert_int_gt(claim->lost.count, 0);
		ck_assert_int_eq(claim->lost.reason, LK_LOST_EXPIRED);
		ck_assert_int_lt(claim->lost.at_ms, began_ms + later->took_ms);
	}
}

/* ---- A partition ----------------------------------------------------------------------------- */

/* The master is on one side with the holder and a sentinel; on the other side are its replicas, the
 * other sentinels and a client that waits. */
static void divide(unsigned set, const char *const *args)
{
	static struct proxy way;
	const struct proxy_fault silence = {.stall = true};
	const struct sentinel_setup_options options = {
		.down_after_ms = 2000, .args = args, .way = &way};

	set_up(&options, BRIEF_MS + FOLLOW_MS);
	claims_hold(&held, set, cut_off, BRIEF_MS);
	claims_open(&next, set, other, BRIEF_MS);
	sentinel_setup_await_sync(&setup, 0);
	proxy_set_all(&way, &silence);
	look_at(&setup.servers[sentinel_setup_await_switch(&setup, 0)]);
	ck_assert(sentinel_setup_is_master(&setup, 0));
}

TEST_OF(f7_partition_has_a_holder_on_each_side, LEASED, 60)
{
	int64_t end_ms;

	divide(set, NULL);
	claims_start(&next, WAIT_MS, true);
	claims_join(&next, LK_OK);
	for (end_ms = now_ms() + 2 * BRIEF_MS; now_ms() < end_ms; nap_ms(10))
		ck_assert(overlap(&held, &next));
	claims_release(&next);
	claims_release(&held);
	tear_down();
}

TEST_OF(f7_master_that_needs_a_replica_ends_the_holds_of_its_side, LEASED, 60)
{
	int64_t began_ms;

	divide(set, needs_replica);
	began_ms = now_ms();
	claims_start(&next, WAIT_MS, true);
	claims_join(&next, LK_OK);
	expect_one_after_the_other(&held, &next, began_ms);
	claims_release_lost(&held);
	claims_release(&next);
	tear_down();
}

/* In a planned failover the old master goes on for 10 s more.  The holder has gone to the new one,
 * so its hold at the old one ends with its lease, while a client still asks there. */
static void follow_late(unsigned set, const char *const *args)
{
	const struct sentinel_setup_options options = {.args = args};

	set_up(&options, PLANNED_LEASE_MS + FOLLOW_MS);
	claims_hold(&held, set, other, PLANNED_LEASE_MS);
	claims_open(&next, set, cut_off, PLANNED_LEASE_MS);
	sentinel_setup_await_sync(&setup, 0);
	sentinel_setup_failover(&setup);
	look_at(&setup.servers[sentinel_setup_await_switch(&setup, 0)]);
	claims_expect_held(&held);
	claims_start(&next, WAIT_MS, true);
}

TEST_OF(f7_client_that_follows_late_is_granted_by_the_old_master, LEASED, 60)
{
	follow_late(set, NULL);
	claims_join(&next, LK_OK);
	ck_assert(overlap(&held, &next));
	ck_assert(sentinel_setup_is_master(&setup, 0));
	tear_down();
}

TEST_OF(f7_old_master_that_needs_a_replica_grants_nothing, LEASED, 60)
{
	follow_late(set, needs_replica);
	claims_stay_held(&held, 2 * PLANNED_LEASE_MS);
	ck_assert(!claims_any_ended(&next));
	ck_assert(sentinel_setup_is_master(&setup, 0));
	EACH (claim, &next)
		OK(claim->primitive->cancel(claim));
	EACH (claim, &next)
		ck_assert_int_ne(claim_join(claim), LK_OK);
	tear_down();
}

/* ---- A stopped master ------------------------------------------------------------------------ */

#define STOP_LEASE_MS 8000 /* longer than a failover on a busy machine */
#define REFUSED_MS 4000    /* the lag, and two turns of the server's timer */

/* The holder has followed the failover with its hold, which the old master has forgotten since.  It
 * wakes up and executes what lies in the buffers of its sockets: an ask of a client that has not
 * learned of the failover.  Only then does it find that it has no replica. */
TEST_OF(f8_stopped_master_that_wakes_up_grants_to_an_uninformed_client, LEASED, 60)
{
	const struct sentinel_setup_options options = {.args = needs_replica};
	struct redis *old;
	int64_t stopped_ms;

	set_up(&options, STOP_LEASE_MS + FOLLOW_MS);
	claims_hold(&held, set, other, STOP_LEASE_MS);
	claims_open(&next, set, cut_off, STOP_LEASE_MS);
	claims_warm_up(set, cut_off);
	sentinel_setup_await_sync(&setup, 0);
	server_pause(&setup.servers[0]);
	stopped_ms = now_ms();
	look_at(&setup.servers[sentinel_setup_await_switch(&setup, 0)]);
	claims_expect_held(&held);
	claims_stay_held(&held, stopped_ms + STOP_LEASE_MS - now_ms());
	claims_start(&next, WAIT_MS, true);
	nap_ms(ASK_MS);
	server_resume(&setup.servers[0]);
	claims_join(&next, LK_OK);
	ck_assert(overlap(&held, &next));
	old = redis_open(&setup.servers[0]);
	ck_assert(WITHIN(REFUSED_MS, !strncmp(redis_text(old, "SET x 1"), "-NOREPLICAS", 11)));
	redis_close(old);
	tear_down();
}

/* ---- The server's clock ---------------------------------------------------------------------- */

#define CLOCK_LEASE_MS 12000 /* longer than a failover on a busy machine */
#define CLOCK_GRACE_MS (CLOCK_LEASE_MS + FOLLOW_MS)

static void expect_tries(struct claims *tries, lk_err expected)
{
	EACH (claim, tries)
		EXPECT(claim->primitive->wait(claim, 0), expected);
}

/* A clock that is set forward shortens the grace; without a grace, the leases. */
TEST_OF(f9_clock_set_forward_makes_two_holders, LEASED, 60)
{
	struct claims third;
	lk_client *new_client;

	server_clock_begin();
	set_up(NULL, CLOCK_GRACE_MS);
	server_clock_end();
	claims_hold(&held, set, cut_off, CLOCK_LEASE_MS);
	claims_open(&next, set, other, CLOCK_LEASE_MS);
	server_kill(&setup.servers[0]);
	sentinel_setup_await_switch(&setup, 0);
	expect_tries(&next, LK_EBUSY);
	server_clock_move(CLOCK_GRACE_MS, 0);
	expect_tries(&next, LK_OK);
	ck_assert(overlap(&held, &next));
	new_client = client_at(url);
	claims_open(&third, set, new_client, CLOCK_LEASE_MS);
	EACH (claim, &third)
		claim->exclusive = true;
	expect_tries(&third, LK_EBUSY);
	server_clock_move(CLOCK_GRACE_MS + CLOCK_LEASE_MS, 0);
	expect_tries(&third, LK_OK);
	ck_assert(overlap(&next, &third));
	lk_client_close(new_client);
	tear_down();
}

/* ---- A lease that is longer than the grace --------------------------------------------------- */

/* The new master lacks the holds, and their client cannot reach it in the grace.  Beside them, a
 * lease that the grace covers. */
TEST_OF(f10_lease_longer_than_the_grace_makes_two_holders, LEASED, 60)
{
	struct claims covered, after;
	int64_t began_ms;

	set_up(NULL, BRIEF_MS + FOLLOW_MS);
	sentinel_setup_cut_replicas(&setup, 0);
	claims_hold(&held, set, cut_off, LONG_LEASE_MS);
	grace_open_free(&covered, set, cut_off);
	EACH (claim, &covered)
		OK(claim->primitive->hold(claim, 0));
	claims_open(&next, set, other, BRIEF_MS);
	grace_open_free(&after, set, other);
	server_kill(&setup.servers[0]);
	for (int i = 1; i < SETUP_SERVERS; i++)
		server_resume(&setup.servers[i]);
	sentinel_setup_await_switch(&setup, 0);
	began_ms = now_ms();
	claims_start(&next, WAIT_MS, true);
	claims_start(&after, WAIT_MS, true);
	claims_join(&next, LK_OK);
	ck_assert(overlap(&held, &next));
	claims_join(&after, LK_OK);
	expect_one_after_the_other(&covered, &after, began_ms);
	tear_down();
}

/* ---- A name that leads to another server ----------------------------------------------------- */

static struct test_server replacement;

static void let_sentinels_name(int port)
{
	for (int i = 0; i < SETUP_SENTINELS; i++) {
		struct redis *sentinel = redis_open(&setup.sentinels[i]);
		redis_do(sentinel, "SENTINEL REMOVE " SETUP_SERVICE);
		redis_do(sentinel, "SENTINEL MONITOR " SETUP_SERVICE " 127.0.0.1 %lld 2",
		         (long long)port);
		redis_close(sentinel);
	}
}

/* The clients of one prefix, which has a marker of its own, and so its own case. */
struct world {
	char uninformed_url[200], url[200], replacement_url[200];
	lk_client *holder, *waiter;
	struct claims held, waits;
};

static void begin_world(struct world *world, unsigned set, const char *prefix)
{
	static const char query[] = "?grace=1500&prefix=";

	snprintf(world->uninformed_url, sizeof(world->uninformed_url),
	         "redis+sentinel://127.0.0.1:%d/" SETUP_SERVICE "%s%s", uninformed.port, query,
	         prefix);
	snprintf(world->url, sizeof(world->url), "%s%s%s", setup.url, query, prefix);
	snprintf(world->replacement_url, sizeof(world->replacement_url), "redis://127.0.0.1:%d%s%s",
	         replacement.port, query, prefix);
	world->holder = client_at(world->uninformed_url);
	claims_hold_later(&world->held, set, world->holder, BRIEF_MS);
}

/* Let a client that knows the first server wait, so that it asks the sentinels. */
static void queue_in_world(struct world *world)
{
	world->waiter = client_at(world->url);
	claims_open(&world->waits, world->held.set, world->waiter, BRIEF_MS);
	claims_start(&world->waits, WAIT_MS, true);
}

/* A client that has never known the first server acquires at once; does not, in the grace. */
static void expect_overlap(struct world *world)
{
	struct claims beside;
	lk_client *client = client_at(world->url);

	claims_open(&beside, world->held.set, client, BRIEF_MS);
	expect_tries(&beside, LK_OK);
	ck_assert(overlap(&world->held, &beside));
	claims_release(&beside);
	OK(lk_client_close(client));
}

static void expect_grace(struct world *world)
{
	lk_client *client = client_at(world->url);

	grace_expect_busy(world->held.set, client);
	OK(lk_client_close(client));
}

/* The sentinels name a server that has run for longer than the grace. */
TEST_OF(f11_other_server_under_the_same_name_makes_two_holders, LEASED, 60)
{
	struct world unknown, known, served, flushed;

	server_start(&replacement, NULL);
	set_up(NULL, 0);
	begin_world(&unknown, set, "unknown");
	begin_world(&known, set, "known");
	begin_world(&served, set, "served");
	begin_world(&flushed, set, "flushed");
	queue_in_world(&known);
	queue_in_world(&served);
	OK(lk_client_close(client_at(served.replacement_url)));
	look_at(&replacement);
	ck_assert(WITHIN(10000, redis_info(redis, "uptime_in_seconds") > 3));
	let_sentinels_name(replacement.port);
	/* Its first client knew another server, so a grace begins. */
	ck_assert(WITHIN(BACK_MS, redis_int(redis, "EXISTS known:epoch") == 1));
	ck_assert(!claims_any_ended(&known.waits));
	expect_grace(&known);
	expect_overlap(&unknown);
	claims_join(&served.waits, LK_OK);
	ck_assert(overlap(&served.held, &served.waits));
	/* What prevents both: the replacement forgets all before it is named. */
	redis_do(redis, "FLUSHALL");
	expect_grace(&flushed);
	claims_join(&known.waits, LK_OK);
	server_stop(&replacement);
	tear_down();
}
