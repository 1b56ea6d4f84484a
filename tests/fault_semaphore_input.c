/* SPDX-License-Identifier: MIT
 * Unusual, wrong or hostile input (V3 to V8 of the fault list), for permits: numbers, fences,
 * capacities that disagree, a server's answers and forged messages.  Names are in
 * live_semaphore_names.c. */
#include "harness/fault.h"
#include "harness/permit_watch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- Numbers ------------------------------------------------------------------------------ */

TEST(v3_times_out_of_range_are_refused_before_anything_is_sent)
{
	static const int64_t wrong_leases[] = {-1,        1,        99, LK_LEASE_MAX_MS + 1,
	                                       INT64_MAX, INT64_MIN};
	static const int64_t wrong_waits[] = {-2, INT64_MIN};
	lk_client *client;
	lk_semaphore *semaphore, *none = NULL;
	lk_semaphore_options options = {.capacity = 3};
	uint64_t hold, got = 77;
	int64_t sent;

	fault_set_up_proxy();
	client = client_at(proxy.url);
	semaphore = semaphore_of(client, "a", 3, 0);
	hold = permits_of(semaphore, 1, 0);
	nap_ms(50);
	sent = proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER];
	for (size_t i = 0; i < sizeof(wrong_leases) / sizeof(wrong_leases[0]); i++) {
		options.lease_ms = wrong_leases[i];
		EXPECT(lk_semaphore_open(client, "b", 0, &options, &none), LK_EINVALID);
		EXPECT(lk_semaphore_extend(semaphore, hold, wrong_leases[i]), LK_EINVALID);
	}
	for (size_t i = 0; i < sizeof(wrong_waits) / sizeof(wrong_waits[0]); i++)
		EXPECT(lk_semaphore_acquire(semaphore, 1, wrong_waits[i], &got), LK_EINVALID);
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(got, 77);
	ck_assert_int_eq(proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER], sent);
	/* The ends of the ranges are accepted, and so is the longest wait. */
	options.lease_ms = LK_LEASE_MAX_MS;
	OK(lk_semaphore_open(client, "b", 0, &options, &none));
	hold = permits_of(none, 3, INT64_MAX);
	ck_assert_int_gt(hold_in(none, hold).remaining_ms, LK_LEASE_MAX_MS / 2);
	ck_assert_int_gt(redis_int(redis, "PTTL lk:{b}"), LK_LEASE_MAX_MS); /* outlives its holds */
	semaphore = semaphore_of(client, "c", 1, LK_LEASE_MIN_MS);
	hold = permits_of(semaphore, 1, 0);
	nap_ms(300);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	OK(lk_client_close(client));
}

TEST(v5_permits_at_the_edges_overflow_nothing)
{
	static const int64_t edges[] = {LK_PERMITS_MAX,   INT64_C(1) + LK_PERMITS_MAX, UINT32_MAX,
	                                INT64_C(1) << 32, (INT64_C(1) << 32) + 1,      INT64_MAX};
	lk_client *client;
	lk_semaphore *semaphore;
	uint64_t holds[2], got = 77;

	fault_set_up_proxy();
	client = client_at(server.url);
	semaphore = semaphore_of(client, "a", LK_PERMITS_MAX, 0);
	holds[0] = permits_of(semaphore, LK_PERMITS_MAX - 1, 0);
	holds[1] = permits_of(semaphore, 1, 0);
	for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
		EXPECT(lk_semaphore_acquire(semaphore, edges[i], 0, &got),
		       i ? LK_EINVALID : LK_EBUSY);
		EXPECT(lk_semaphore_release_some(semaphore, holds[1], edges[i]), LK_ELIMIT);
		EXPECT(lk_semaphore_release_some(semaphore, holds[0], edges[i]), LK_ELIMIT);
	}
	ck_assert_uint_eq(got, 77);
	ck_assert_int_eq(permits_used(redis, "a"), LK_PERMITS_MAX);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release_some(semaphore, holds[0], LK_PERMITS_MAX - 2));
	OK(lk_semaphore_release(semaphore, holds[0]));
	OK(lk_semaphore_release(semaphore, holds[1]));
	ck_assert(permits_at_rest(redis, "a", LK_PERMITS_MAX));
	OK(lk_client_close(client));
}

TEST(v6_clients_that_disagree_on_the_capacity_lose_nothing)
{
	lk_client *client, *other;
	lk_semaphore *semaphore, *behind, *none = NULL;
	uint64_t holds[3], got = 77;

	fault_set_up_proxy();
	client = client_at(server.url);
	other = client_at(server.url);
	semaphore = semaphore_of(client, "a", 4, 0);
	behind = semaphore_of(other, "a", 4, 0);
	for (int i = 0; i < 2; i++)
		holds[i] = permits_of(semaphore, 2, 0);
	OK(lk_semaphore_resize(semaphore, 2)); /* while all 4 are held */
	EXPECT(lk_semaphore_open(other, "a", 0, &(lk_semaphore_options){.capacity = 4}, &none),
	       LK_EMISMATCH);
	ck_assert_ptr_null(none);
	EXPECT(lk_semaphore_acquire(behind, 3, 0, &got), LK_ELIMIT);
	EXPECT(lk_semaphore_release_some(semaphore, holds[0], 3), LK_ELIMIT);
	EXPECT(lk_semaphore_release_some(behind, holds[0], 1), LK_ENOTOWNER);
	OK(lk_semaphore_release(semaphore, holds[0]));
	EXPECT(lk_semaphore_acquire(behind, 1, 0, &got), LK_EBUSY); /* 2 of 2 are held */
	OK(lk_semaphore_release_some(semaphore, holds[1], 1));
	holds[2] = permits_of(behind, 1, 0);
	ck_assert_int_eq(permits_used(redis, "a"), 2);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, holds[1]));
	OK(lk_semaphore_release(behind, holds[2]));
	ck_assert_uint_eq(got, 77);
	ck_assert(permits_at_rest(redis, "a", 2));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Forged and damaged input ------------------------------------------------------------- */

/* Any program may publish on a client's channel; a message that does not match its ticket is
 * ignored. */
TEST(v8_forged_grants_do_not_match)
{
	static const char *const forms[] = {
		"grant 2:%s:5000:r:2 0 5000 0 0 1",      /* no fence */
		"grant 2:%s:5000:r:3 12345 5000 0 0 1",  /* other permits */
		"grant 2:%s:5000:f:2 12345 5000 0 0 1",  /* another kind of lease */
		"grant 2:%s:6000:r:2 12345 6000 0 0 1",  /* another lease */
		"grant 2:%s:5000:r 12345 5000 0 0 1",    /* a lock's */
		"grant 2:%s:5000:r: 12345 5000 0 0 1",   /* no number */
		"grant 2:%s:5000:r:2x 12345 5000 0 0 1", /* not a number */
		"grant 2:%s:5000:r:4294967298 12345 5000 0 0 1",
		"grant 2:%s:5000:r:-2 12345 5000 0 0 1",
		"grant 2:%s:5000:r:2 12345 5000 0 0",
	};
	struct permit_wait wait;
	lk_client *client, *near;
	lk_semaphore *held;
	lk_ticket waiter;
	uint64_t hold;
	size_t count;

	fault_set_up_proxy();
	client = client_at(server.url);
	near = client_at(server.url);
	held = semaphore_of(near, "a", 4, 5000);
	hold = permits_of(held, 4, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(client, "a", 4, 5000), 2, true);
	OK(lk_semaphore_waiters(held, 1, &waiter, &count));
	ck_assert_uint_eq(count, 1);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		char forged[100], message[300];
		snprintf(forged, sizeof(forged), "%s", forms[i]);
		*strstr(forged, "%s") = '\0';
		snprintf(message, sizeof(message), "%s%s%s", forged, waiter.party.id,
		         strstr(forms[i], "%s") + 2);
		ck_assert_int_eq(
			redis_int(redis, "PUBLISH lk:c:0:%s %s", lk_client_id(client), message), 1);
		nap_ms(20);
		ck_assert_msg(!wait.ended, "%s", message);
	}
	OK(lk_semaphore_release(held, hold));
	OK(permit_wait_join(&wait));
	ck_assert_uint_gt(wait.hold, 12345);
	OK(lk_semaphore_release(wait.semaphore, wait.hold));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(client));
	OK(lk_client_close(near));
}

/* The hash may also contain anything. */
TEST(v8_damaged_memory_is_an_error_and_no_grant)
{
	static const char *const fields[][2] = {{"capacity", "abc"}, {"used", ""},
	                                        {"used", "x"},       {"ttl", "-"},
	                                        {"capacity", ""},    {"head_us", "abc"}};
	lk_client *client;
	lk_semaphore *semaphore;
	lk_semaphore_status status;

	fault_set_up_proxy();
	client = client_at(server.url);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		uint64_t hold;
		lk_err err;
		redis_do(redis, "DEL lk:{a}");
		semaphore = semaphore_of(client, "a", 4, 0);
		redis_do(redis, "HSET lk:{a} %s %b", fields[i][0], fields[i][1],
		         strlen(fields[i][1]));
		err = lk_semaphore_acquire(semaphore, 1, 300, &hold);
		if (i == 5) { /* only used while there is a head */
			OK(err);
			OK(lk_semaphore_release(semaphore, hold));
			continue;
		}
		ck_assert_msg(err == LK_EFOREIGN, "%s=%s: %s: %s", fields[i][0], fields[i][1],
		              lk_err_name(err), lk_errmsg());
		ck_assert_ptr_nonnull(strstr(lk_errmsg(), "damaged"));
		ck_assert_int_eq(permits_holds(redis, "a"), 0);
		EXPECT(lk_semaphore_query(semaphore, &status), LK_EFOREIGN);
	}
	OK(lk_client_close(client));
}
