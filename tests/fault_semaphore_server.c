/* SPDX-License-Identifier: MIT
 * Server faults that concern permits only (S6, S10 of the fault list): partial releases, late
 * requests for a number of permits, keys that disagree.  fault_server.c has the others. */
#include "harness/fault.h"
#include "harness/permit_watch.h"

#include "scripts.h"

#include <stdio.h>
#include <string.h>

/* ---- Stopped servers ---------------------------------------------------------------------- */

/* The call returns LK_EUNKNOWN, no later than that. */
#define UNKNOWN_WITHIN(ms, call)                                                                   \
	do {                                                                                       \
		int64_t unknown_start_ = now_ms();                                                 \
		EXPECT(call, LK_EUNKNOWN);                                                         \
		ck_assert_int_le(now_ms() - unknown_start_, ms);                                   \
	} while (0)

TEST(s6_calls_keep_their_deadlines_while_the_server_stands_still)
{
	const lk_client_options options = {.command_timeout_ms = 400};
	struct permit_wait wait;
	lk_semaphore *semaphore, *waits;
	lk_semaphore_status status;
	lk_client *client, *other;
	uint64_t holds[2], none = 77;

	fault_set_up(NULL);
	client = client_with(server.url, &options);
	other = client_with(server.url, &options);
	semaphore = semaphore_of(client, "a", 4, 10000);
	waits = semaphore_of(other, "a", 4, 10000);
	for (int i = 0; i < 2; i++)
		holds[i] = permits_of(semaphore, 2, 0);
	permit_wait_queue(&wait, redis, "a", waits, 3, true);
	nap_ms(50); /* the client has introduced itself */
	server_pause(&server);
	UNKNOWN_WITHIN(300 + 400 + 200, lk_semaphore_acquire(semaphore, 1, 300, &none));
	ck_assert_uint_eq(none, 77);
	OK(lk_semaphore_cancel(waits));
	EXPECT(permit_wait_join(&wait), LK_EUNKNOWN);
	/* The link was given up by now: no request is sent, or none answered. */
	ck_assert_int_ne(lk_semaphore_query(semaphore, &status), LK_OK);
	ck_assert_int_ne(lk_semaphore_resize(semaphore, 5), LK_OK);
	UNKNOWN_WITHIN(400 + 200, lk_semaphore_release_some(semaphore, holds[0], 1));
	ck_assert_int_eq(hold_in(semaphore, holds[0]).count, 1);
	UNKNOWN_WITHIN(400 + 200, lk_semaphore_release(semaphore, holds[1]));
	ck_assert_int_eq(proc_state(server.pid), 'T');
	server_resume(&server);
	/* All of it is executed in the background. */
	ck_assert(WITHIN(5000, permits_used(redis, "a") == 1));
	ck_assert_int_eq(permits_queue(redis, "a"), 0);
	permits_add_up(redis, "a");
	ck_assert_int_gt(hold_in(semaphore, holds[0]).remaining_ms, 0);
	OK(lk_semaphore_release(semaphore, holds[0]));
	ck_assert_int_eq(permits_used(redis, "a"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* Requests of an earlier hold that the network delayed for long, executed by hand. */
TEST(s6_late_requests_of_a_hold_that_is_over_touch_no_newer_one)
{
	char ticket[200] = "", before[1000], ends[200];
	lk_semaphore *semaphore, *other;
	const char *marker;
	uint64_t hold, next;

	fault_set_up(NULL);
	semaphore = semaphore_of(client_at(server.url), "a", 4, 60000);
	other = semaphore_of(client_at(server.url), "a", 4, 30000);
	marker = redis_marker(redis);
	hold = permits_of(semaphore, 3, 0);
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	OK(lk_semaphore_release(semaphore, hold));
	next = permits_of(other, 2, 0);
	snprintf(before, sizeof(before), "%s", redis_text(redis, "HGETALL lk:{a}"));
	snprintf(ends, sizeof(ends), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 -1 WITHSCORES"));
	ck_assert_ptr_null(strstr(before, ticket));
	ck_assert_str_ne(ticket, "");
	/* A renewal, a claim, a partial release, a release, a break. */
	redis_do(redis, "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch %s %lld 60000 %s 0",
	         lk__script_semaphore_renew.text, ticket, (long long)hold, marker);
	redis_do(redis, "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch %s 0 60000 %s 0",
	         lk__script_semaphore_renew.text, ticket, marker);
	for (int keep = 0; keep < 3; keep++)
		redis_do(redis,
		         "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch %s %lld lk:c:0: 1 "
		         "21000 %s 0",
		         lk__script_semaphore_leave.text, ticket, (long long)keep, marker);
	ck_assert_str_eq(redis_text(redis, "HGETALL lk:{a}"), before);
	ck_assert_str_eq(redis_text(redis, "ZRANGE lk:{a}:h 0 -1 WITHSCORES"), ends);
	/* A renewal with another fence does not concern the newer hold. */
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	redis_do(redis, "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch %s 7 60000 %s 0",
	         lk__script_semaphore_renew.text, ticket, marker);
	ck_assert_str_eq(redis_text(redis, "ZRANGE lk:{a}:h 0 -1 WITHSCORES"), ends);
	/* For a hold whose lease is over, before any request has noticed. */
	OK(lk_semaphore_release(other, next));
	other = semaphore_with(
		client_at(server.url), "a",
		&(lk_semaphore_options){.capacity = 4, .lease_ms = 100, .fixed = true});
	OK(lk_semaphore_acquire(other, 2, 0, NULL));
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	nap_ms(110);
	ck_assert_str_eq(
		redis_text(redis,
	                   "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch %s 0 60000 %s 0",
	                   lk__script_semaphore_renew.text, ticket, marker),
		"gone");
	/* A hold never regains permits: released ones stay released. */
	other = semaphore_of(client_at(server.url), "a", 4, 30000);
	next = permits_of(other, 2, 0);
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:h 0 0"));
	OK(lk_semaphore_release_some(other, next, 1));
	redis_do(redis,
	         "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch %s 2 lk:c:0: 0 21000 %s 0",
	         lk__script_semaphore_leave.text, ticket, marker);
	ck_assert_int_eq(permits_used(redis, "a"), 1);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(other, next));
	ck_assert(permits_at_rest(redis, "a", 4));
}

/* ---- Operators' actions ------------------------------------------------------------------- */

/* A key was deleted, and the holder is dead: no client cleans up after it. */
TEST(s10_holds_without_ends_or_ends_without_holds_are_nobodys)
{
	static const char ticket[] = "2:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:60000:r:3";
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "a", 4, 0);
	redis_do(redis, "HSET lk:{a} used 3 %s %s", ticket, "3 5 60000");
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.available, 4);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 4, 0)));
	permits_add_up(redis, "a");
	ck_assert(permits_at_rest(redis, "a", 4));
	redis_do(redis, "DEL lk:{a}");
	redis_do(redis, "ZADD lk:{a}:h 9000000000000000 %s", ticket);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 4, 0)));
	permits_add_up(redis, "a");
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
}
