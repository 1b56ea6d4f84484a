/* SPDX-License-Identifier: MIT
 * A server that refuses requests for a while (S22, S23 of the fault list): it has too few replicas,
 * or an operator withdraws rights and grants them again.  Tickets left in its queues meanwhile must
 * not block other clients afterwards. */
#include "harness/permit_watch.h"
#include "harness/primitive.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS 400
#define LEASE_MS 60000 /* long enough that no lease ends in a test */
#define QUICK_MS 1200  /* less than a claim window, 3 s, on a heavily loaded machine */

static lk_client *holder, *client, *next; /* the user of client may lose its rights */

static void set_up(void)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};
	char url[120];

	fault_set_up(NULL);
	redis_do(redis, "ACL SETUSER b on >x ~* &* +@all");
	snprintf(url, sizeof(url), "redis://b:x@127.0.0.1:%d?grace=0", server.port);
	holder = client_at(server.url);
	client = client_with(url, &options);
	next = client_at(server.url);
}

static void tear_down(void)
{
	OK(lk_client_close(client));
	OK(lk_client_close(holder));
	OK(lk_client_close(next));
}

static void take_rights(void)
{
	redis_do(redis, "ACL SETUSER b -evalsha -eval");
}

static void give_rights(void)
{
	redis_do(redis, "ACL SETUSER b +@all");
}

static void want_replicas(int count)
{
	redis_do(redis, "CONFIG SET min-replicas-to-write %d", count);
}

/* No request of it reaches the server in the next second and a half. */
static bool is_seldom_refused(void)
{
	const char *at = strstr(redis_text(redis, "ACL LOG 1"), "count\n");
	long before = at ? strtol(at + 6, NULL, 10) : 0;

	nap_ms(1500);
	at = strstr(redis_text(redis, "ACL LOG 1"), "count\n");
	return at && strtol(at + 6, NULL, 10) == before;
}

/* ---- S22: too few replicas ---------------------------------------------------------------- */

TEST_OF(s22_too_few_replicas_are_waited_out, LEASED, 20)
{
	struct claims claims;

	set_up();
	claims_open(&claims, set, client, LEASE_MS);
	want_replicas(1);
	ck_assert(!strncmp(redis_text(redis, "SET x 1"), "-NOREPLICAS", 11));
	EACH (claim, &claims) {
		EXPECT(claim->primitive->wait(claim, 0), LK_EAGAIN);
		ck_assert_msg(strstr(lk_errmsg(), "NOREPLICAS") != NULL, "%s", lk_errmsg());
	}
	claims_start(&claims, 300, true);
	claims_join(&claims, LK_ETIMEDOUT);
	claims_start(&claims, 20000, true);
	nap_ms(500);
	ck_assert(!claims_any_ended(&claims));
	want_replicas(0);
	claims_join(&claims, LK_OK);
	claims_release(&claims);
	ck_assert(claims_at_rest(set));
	tear_down();
}

/* The holder holds, and a wait of the client has been queued for a moment. */
static void hold_and_queue(unsigned set, struct claims *held, struct claims *ended, int64_t wait_ms)
{
	set_up();
	claims_hold(held, set, holder, LEASE_MS);
	claims_open(ended, set, client, LEASE_MS);
	claims_start(ended, wait_ms, false);
	ck_assert(WITHIN(5000, claims_waiting(set, 1)));
}

/* The next client is served within that time, though it stands behind an ended wait. */
static void expect_served(struct claims *waits)
{
	EACH (claim, waits)
		ck_assert_int_le(claim->took_ms, QUICK_MS);
	ck_assert(WITHIN(QUICK_MS, claims_at_rest(waits->set)));
}

TEST_OF(s22_ticket_of_a_wait_that_ended_meanwhile_blocks_nobody, LEASED, 20)
{
	struct claims held, ended, waits;

	hold_and_queue(set, &held, &ended, 700);
	want_replicas(1);
	claims_join(&ended, LK_EUNKNOWN);
	ck_assert(claims_waiting(set, 1));
	nap_ms(3200); /* it is old, and its leave is now repeated every 3 s at most */
	want_replicas(0);
	claims_release(&held);
	claims_open(&waits, set, next, LEASE_MS);
	claims_start(&waits, 20000, false);
	claims_join(&waits, LK_OK);
	expect_served(&waits);
	tear_down();
}

/* ---- S23: rights that are withdrawn and granted again --------------------------------------- */

TEST_OF(s23_ticket_of_who_had_no_rights_for_a_while_blocks_nobody, LEASED, 40)
{
	struct claims held, ended, waits;

	hold_and_queue(set, &held, &ended, 700);
	take_rights();
	claims_join(&ended, LK_EUNKNOWN);
	ck_assert(claims_waiting(set, 1));
	/* It is not forgotten, and does not fill the server's log. */
	ck_assert(WITHIN(15000, is_seldom_refused()));
	give_rights();
	claims_open(&waits, set, next, LEASE_MS);
	claims_start(&waits, 20000, false);
	ck_assert(WITHIN(5000, claims_waiting(set, 2) || claims_waiting(set, 1)));
	claims_release(&held);
	claims_join(&waits, LK_OK);
	expect_served(&waits);
	tear_down();
}

TEST_OF(s23_release_without_rights_is_repeated_before_the_next_turn_of_its_own, LEASED, 20)
{
	struct claims claims;
	int64_t start_ms;

	set_up();
	claims_open(&claims, set, client, LEASE_MS);
	claims_start(&claims, 0, true);
	claims_join(&claims, LK_OK);
	take_rights();
	EACH (claim, &claims)
		EXPECT(claim->primitive->release(claim), LK_EUNKNOWN);
	ck_assert(claims_in_use(set));
	claims_start(&claims, 1000, true);
	claims_join(&claims, LK_EAUTH);
	nap_ms(3200);
	give_rights();
	start_ms = now_ms();
	EACH (claim, &claims)
		claim->exclusive = true;
	claims_start(&claims, 10000, true);
	claims_join(&claims, LK_OK);
	ck_assert_int_le(now_ms() - start_ms, QUICK_MS);
	claims_release(&claims);
	ck_assert(claims_at_rest(set));
	tear_down();
}

/* As soon as a wait for "r" is queued. */
static void *take_rights_from_waiter(void *arg)
{
	redis = redis_open(&server);
	ck_assert(WITHIN(5000, permits_queue(redis, "r") == 1));
	take_rights();
	return arg;
}

/* Its permit is not used up, and its ticket blocks no other. */
TEST_LIMIT(s23_turn_of_a_rate_that_ended_without_rights_is_nobodys, 40)
{
	const lk_semaphore_options options = {.capacity = 1, .lease_ms = 6000, .fixed = true};
	lk_semaphore *mine, *others;
	pthread_t operator;
	int64_t start_ms;

	set_up();
	others = semaphore_with(next, "r", &options);
	mine = semaphore_with(client, "r", &options);
	OK(lk_semaphore_acquire(others, 1, 0, NULL));
	start_ms = now_ms();
	pthread_create(&operator, NULL, take_rights_from_waiter, NULL);
	EXPECT(lk_semaphore_acquire(mine, 1, 700, NULL), LK_EUNKNOWN);
	pthread_join(operator, NULL);
	ck_assert_int_eq(permits_queue(redis, "r"), 1);
	nap_ms(3200);
	give_rights();
	OK(lk_semaphore_acquire(others, 1, 20000, NULL));
	ck_assert_int_le(now_ms() - start_ms, 6000 + QUICK_MS);
	ck_assert_int_eq(permits_queue(redis, "r"), 0);
	tear_down();
}

TEST_OF(s23_close_waits_for_no_rights, LEASED, 20)
{
	struct claims held, ended;
	int64_t start_ms;

	hold_and_queue(set, &held, &ended, 500);
	take_rights();
	claims_join(&ended, LK_EUNKNOWN);
	start_ms = now_ms();
	EXPECT(lk_client_close(client), LK_EUNKNOWN);
	ck_assert_int_lt(now_ms() - start_ms, TIMEOUT_MS);
	claims_release(&held);
	OK(lk_client_close(holder));
	OK(lk_client_close(next));
}
