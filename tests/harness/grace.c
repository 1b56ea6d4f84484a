/* SPDX-License-Identifier: MIT
 * Tests of the grace: see grace.h. */
#include "grace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void grace_pass(void)
{
	const char *info = strstr(redis_text(redis, "INFO server"), "\nrun_id:");
	char run_id[41], marker[60];

	ck_assert_ptr_nonnull(info);
	ck_assert_int_eq(sscanf(info, "\nrun_id:%40[0-9a-f]", run_id), 1);
	snprintf(marker, sizeof(marker), "1 %s 1", run_id);
	redis_do(redis, "SET lk:epoch %s", marker);
}

void grace_set_up(const struct server_options *options)
{
	fault_set_up(options);
	grace_pass();
}

const char *grace_url(int port, int64_t grace_ms, const char *more)
{
	static char url[200];

	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=%lld%s", port, (long long)grace_ms,
	         more);
	return url;
}

lk_client *grace_client(void)
{
	return client_at(grace_url(server.port, GRACE_MS, ""));
}

int64_t grace_since_us(void)
{
	const char *marker = redis_marker(redis), *since = strrchr(marker, ' ');

	return since ? strtoll(since, NULL, 10) : 0;
}

int64_t grace_now_us(void)
{
	const char *time = redis_text(redis, "TIME");
	long long seconds, us;

	ck_assert_int_eq(sscanf(time, "%lld %lld", &seconds, &us), 2);
	return seconds * 1000000 + us;
}

int64_t grace_left_ms(void)
{
	return GRACE_MS - (grace_now_us() - grace_since_us()) / 1000;
}

void grace_sit_out(struct claims *waits)
{
	ck_assert(WITHIN(BACK_MS, grace_left_ms() > 0)); /* a client has found the loss */
	for (;;) {
		bool ended = claims_any_ended(waits);
		int64_t left_ms = grace_left_ms();
		if (left_ms <= 0)
			return;
		ck_assert_msg(!ended, "a wait ended %lld ms before the end of the grace",
		              (long long)left_ms);
		nap_ms(2);
	}
}

void grace_open_free(struct claims *claims, unsigned set, lk_client *client)
{
	static char names[PRIMITIVES][40];

	claims_init(claims, set, client, LEASE_MS);
	EACH (claim, claims) {
		char *name = names[claim - claims->of];
		snprintf(name, sizeof(names[0]), "free %s", claim->primitive->name);
		claim->name = name;
		OK(claim->primitive->open(claim, true));
	}
}

void grace_expect_busy(unsigned set, lk_client *client)
{
	struct claims other;

	grace_open_free(&other, set, client);
	EACH (claim, &other) {
		EXPECT(claim->primitive->wait(claim, 0), LK_EBUSY);
		ck_assert_msg(strstr(lk_errmsg(), "the server may have forgotten a holder"), "%s",
		              lk_errmsg());
		OK(claim->primitive->noun->close(claim->handle));
	}
}
