/* SPDX-License-Identifier: MIT
 * Claims on primitives of any kind: see primitive.h. */
#include "primitive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_MS 15000 /* a wait that a test ends itself */

void primitive_register(const TTest *test, unsigned set, double seconds)
{
	for (int i = 0; i < PRIMITIVES; i++) {
		size_t size = strlen(test->name) + 1 + strlen(primitives[i].name) + 1;
		TTest *row;
		char *name;
		if (!(set & 1u << i))
			continue;
		row = malloc(sizeof(*row)); /* for the life of the process */
		name = malloc(size);
		if (!row || !name)
			abort();
		snprintf(name, size, "%s:%s", test->name, primitives[i].name);
		*row = (TTest){name, test->fn, test->file, test->line};
		test_register_row(row, seconds, i);
	}
}

/* ---- One claim ------------------------------------------------------------------------------- */

void claim_init(struct claim *claim, int row, lk_client *client, const char *name, int64_t lease_ms)
{
	memset(claim, 0, sizeof(*claim));
	claim->primitive = &primitives[row];
	claim->client = client;
	claim->name = name ? name : claim->primitive->name;
	claim->lease_ms = lease_ms;
}

static void *wait_in_thread(void *arg)
{
	struct claim *claim = arg;
	int64_t start_ms = now_ms();

	claim->err = claim->primitive->wait(claim, claim->wait_ms);
	claim->took_ms = now_ms() - start_ms;
	if (!claim->err && !claim->keep)
		OK(claim->primitive->release(claim));
	claim->ended = true;
	return NULL;
}

void claim_start(struct claim *claim, int64_t wait_ms, bool keep)
{
	claim->waits = true;
	claim->wait_ms = wait_ms;
	claim->keep = keep;
	claim->ended = false;
	ck_assert(!pthread_create(&claim->thread, NULL, wait_in_thread, claim));
}

lk_err claim_join(struct claim *claim)
{
	ck_assert_msg(WITHIN(20000, claim->ended), "%s: a wait does not end", claim->name);
	pthread_join(claim->thread, NULL);
	return claim->err;
}

/* ---- Holds ----------------------------------------------------------------------------------- */

void claims_init(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms)
{
	claims->set = set;
	for (int i = 0; i < PRIMITIVES; i++)
		claim_init(&claims->of[i], i, client, NULL, lease_ms);
}

static void hold(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms,
                 int64_t wait_ms)
{
	claims_init(claims, set, client, lease_ms);
	EACH (claim, claims) {
		OK(claim->primitive->open(claim, false));
		OK(claim->primitive->hold(claim, wait_ms));
	}
}

void claims_hold(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms)
{
	hold(claims, set, client, lease_ms, 0);
}

void claims_hold_later(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms)
{
	hold(claims, set, client, lease_ms, BACK_MS);
}

void claims_warm_up(unsigned set, lk_client *client)
{
	struct claims claims;
	char name[80];

	claims_init(&claims, set, client, 0);
	EACH (claim, &claims) {
		snprintf(name, sizeof(name), "%s of %s", claim->name, lk_client_id(client));
		claim->name = name;
		OK(claim->primitive->open(claim, false));
		OK(claim->primitive->hold(claim, 0));
		OK(claim->primitive->release(claim));
	}
}

void claims_stay_held(struct claims *claims, int64_t ms)
{
	int64_t end_ms = now_ms() + ms;

	while (now_ms() < end_ms) {
		EACH (claim, claims)
			ck_assert_msg(claim->primitive->remaining_ms(claim) > 0, "%s", claim->name);
		nap_ms(10);
	}
	EACH (claim, claims)
		ck_assert_int_eq(claim->lost.count, 0);
}

void claims_expect_stored(struct claims *claims)
{
	EACH (claim, claims)
		ck_assert_msg(claim->primitive->is_held(claim), "the store lacks the hold of %s",
		              claim->name);
}

void claims_expect_held(struct claims *claims)
{
	EACH (claim, claims)
		ck_assert_msg(WITHIN(BACK_MS, claim->primitive->state(claim) == LK_STATE_HELD),
		              "%s", claim->name);
	claims_expect_stored(claims);
}

void claims_expect_no_grant(unsigned set, lk_client *client, const char *text)
{
	struct claims refused;

	claims_init(&refused, set, client, 0);
	EACH (claim, &refused) {
		lk_err err;
		claim->name = "refused";
		err = claim->primitive->open(claim, false);
		EXPECT(err ? err : claim->primitive->hold(claim, 0), LK_ESERVER);
		ck_assert_msg(strstr(lk_errmsg(), text) != NULL, "%s", lk_errmsg());
	}
	ck_assert_str_eq(redis_text(redis, "KEYS lk:{refused*"), "");
}

void claims_await_link(struct claims *claims)
{
	EACH (claim, claims)
		ck_assert_msg(WITHIN(BACK_MS, claim->primitive->query(claim) == LK_OK), "%s",
		              claim->name);
}

void claims_release(struct claims *claims)
{
	EACH (claim, claims)
		OK(claim->primitive->release(claim));
}

void claims_expect_newer(struct claims *claims, struct claims *older)
{
	EACH (claim, claims)
		ck_assert_uint_gt(claim->fence, older->of[claim - claims->of].fence);
}

void claims_hold_again(struct claims *claims)
{
	EACH (claim, claims) {
		uint64_t last = claim->fence;
		claim->waits = false;
		ck_assert_msg(WITHIN(BACK_MS, claim->primitive->hold(claim, 1000) == LK_OK), "%s",
		              claim->name);
		ck_assert_uint_gt(claim->fence, last);
		OK(claim->primitive->release(claim));
	}
}

/* ---- Waits ----------------------------------------------------------------------------------- */

void claims_open(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms)
{
	claims_init(claims, set, client, lease_ms);
	EACH (claim, claims)
		OK(claim->primitive->open(claim, true));
}

void claims_start(struct claims *claims, int64_t wait_ms, bool keep)
{
	EACH (claim, claims)
		claim_start(claim, wait_ms, keep);
}

void claims_queue(struct claims *claims, unsigned set, lk_client *client, int64_t lease_ms,
                  bool keep)
{
	long long before[PRIMITIVES];

	claims_open(claims, set, client, lease_ms);
	EACH (claim, claims)
		before[claim - claims->of] = claim->primitive->waiting(claim->name);
	claims_start(claims, LONG_MS, keep);
	EACH (claim, claims)
		ck_assert_msg(WITHIN(BACK_MS, claim->primitive->waiting(claim->name) ==
		                                      before[claim - claims->of] + 1),
		              "%s: not in the queue", claim->name);
}

void claims_join(struct claims *claims, lk_err expected)
{
	EACH (claim, claims) {
		lk_err err = claim_join(claim);
		ck_assert_msg(err == expected, "%s: %s", claim->name, lk_err_name(err));
	}
}

bool claims_all_ended(struct claims *claims)
{
	EACH (claim, claims)
		if (!claim->ended)
			return false;
	return true;
}

bool claims_any_ended(struct claims *claims)
{
	EACH (claim, claims)
		if (claim->ended)
			return true;
	return false;
}

void claims_expect_still_waiting(struct claims *claims, long long clients)
{
	EACH (claim, claims) {
		if (claim->primitive->is_leased)
			continue;
		ck_assert(WITHIN(BACK_MS, claim->primitive->waiting(claim->name) == clients));
		ck_assert(!claim->ended);
	}
}

/* ---- Losses ---------------------------------------------------------------------------------- */

static bool is_lost(struct claim *claim)
{
	return claim->lost.count == (claim->first ? 2 : 1);
}

void claims_expect_unsure(struct claims *claims)
{
	EACH (claim, claims)
		ck_assert(!claim->primitive->is_leased ||
		          WITHIN(2000, claim->primitive->state(claim) == LK_STATE_UNSURE));
}

void claims_expect_lost(struct claims *claims, lk_lost_reason reason, int64_t by_ms)
{
	EACH (claim, claims) {
		if (!claim->primitive->is_leased)
			continue;
		ck_assert_msg(WITHIN(3000, is_lost(claim)), "%s: no loss", claim->name);
		ck_assert(!reason || claim->lost.reason == reason);
		ck_assert_int_le(claim->lost.at_ms, by_ms);
		ck_assert_int_eq(claim->primitive->state(claim), LK_STATE_LOST);
	}
}

void claims_expect_expiry(struct claims *claims)
{
	int64_t until_ms[PRIMITIVES] = {0}, remaining_ms;
	int valid;

	EACH (claim, claims)
		ck_assert_int_eq(claim->lost.count, 0);
	do {
		valid = 0;
		EACH (claim, claims) {
			remaining_ms = claim->primitive->remaining_ms(claim);
			if (!claim->primitive->is_leased || !remaining_ms)
				continue;
			until_ms[claim - claims->of] = now_ms() + remaining_ms;
			valid++;
		}
		nap_ms(1);
	} while (valid);
	EACH (claim, claims) {
		if (!claim->primitive->is_leased)
			continue;
		ck_assert_msg(WITHIN(400, is_lost(claim)), "%s: no loss", claim->name);
		ck_assert_int_eq(claim->lost.reason, LK_LOST_EXPIRED);
		ck_assert_int_ge(claim->lost.at_ms, until_ms[claim - claims->of] - 5);
		ck_assert_int_le(claim->lost.at_ms, until_ms[claim - claims->of] + 50);
	}
}

void claims_release_lost(struct claims *claims)
{
	EACH (claim, claims) {
		if (claim->primitive->is_leased)
			EXPECT(claim->primitive->release(claim), LK_ELOST);
	}
}

void claims_release_absent(struct claims *claims)
{
	EACH (claim, claims) {
		lk_err expected = claim->primitive->absent_err;
		if (claim->primitive->is_leased)
			EXPECT(claim->primitive->release(claim), expected);
		else
			ck_assert(WITHIN(BACK_MS, claim->primitive->release(claim) == expected));
	}
}

/* ---- All of a set ---------------------------------------------------------------------------- */

bool claims_waiting(unsigned set, long long count)
{
	for (int i = 0; i < PRIMITIVES; i++)
		if (set & 1u << i && primitives[i].waiting(primitives[i].name) != count)
			return false;
	return true;
}

bool claims_at_rest(unsigned set)
{
	for (int i = 0; i < PRIMITIVES; i++)
		if (set & 1u << i && !primitives[i].is_at_rest(primitives[i].name))
			return false;
	return true;
}

bool claims_in_use(unsigned set)
{
	for (int i = 0; i < PRIMITIVES; i++)
		if (set & 1u << i && primitives[i].is_at_rest(primitives[i].name))
			return false;
	return true;
}
