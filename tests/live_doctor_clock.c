/* SPDX-License-Identifier: MIT
 * The server's clock: what latchkey doctor reports for a wrong clock or a wrong rate, and that
 * leases tolerate the fastest rate that it calls fit.  A library that is preloaded into the server
 * changes its clock. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/server_clock.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define TRIES 5
#define TEXT_SIZE 2048

static struct test_server server;
static struct redis *redis;

static void begin(void)
{
	server_clock_begin();
	server_start(&server, NULL);
	server_clock_end();
	redis = redis_open(&server);
}

static void finish(void)
{
	redis_close(redis);
	server_stop(&server);
}

/* The findings on the clock, a line each: "FITNESS text [cure]". */
static void keep(void *arg, const lk_finding *finding)
{
	char *text = arg;
	size_t len = strlen(text);

	if (!strcmp(finding->topic, "clock"))
		snprintf(text + len, TEXT_SIZE - len, "%d %s [%s]\n", finding->fitness,
		         finding->text, finding->cure);
}

static const char *examine(const char *url)
{
	static char text[TEXT_SIZE];

	text[0] = '\0';
	OK(lk_doctor(url, NULL, keep, text, NULL));
	return text;
}

/* The doctor reports it.  On a busy machine round trips are long, and the doctor reports that it
 * cannot measure; then run it again. */
static void expect(const char *url, const char *begin_of_a_line)
{
	const char *text = "";

	for (int i = 0; i < TRIES; i++) {
		const char *at;

		text = examine(url);
		at = strstr(text, begin_of_a_line);
		if (at && (at == text || at[-1] == '\n'))
			return;
	}
	ck_abort_msg("no line begins with \"%s\":\n%s", begin_of_a_line, text);
}

TEST(clock_that_is_wrong_is_warned_of)
{
	begin();
	expect(server.url, "0 the server's is this machine's, within 0.");
	server_clock_move(5000, 0);
	expect(server.url, "1 the server's is 5.0 s ahead of this machine's");
	ck_assert_ptr_nonnull(strstr(examine(server.url), "[set both clocks right (NTP)]"));
	server_clock_move(-90000, 0);
	expect(server.url, "1 the server's is 90.0 s behind this machine's");
	finish();
}

/* The clock runs faster by this rate, and the doctor measures and judges it correctly. */
static void expect_speed(int64_t ppm, lk_fitness fitness)
{
	double percent = ppm < 0 ? -(double)ppm / 1e4 : (double)ppm / 1e4, found;
	const char *text = "", *at;
	char begin_of_a_line[40], word[8];

	snprintf(begin_of_a_line, sizeof(begin_of_a_line), "%d the server's runs ", fitness);
	server_clock_move(0, ppm);
	for (int i = 0; i < TRIES; i++) {
		text = examine(server.url);
		at = strstr(text, begin_of_a_line);
		if (at && sscanf(at + strlen(begin_of_a_line), "%lf %% %7s", &found, word) == 2 &&
		    (!ppm || !strcmp(word, ppm < 0 ? "slower" : "faster")) &&
		    found >= percent - 0.3 && found <= percent + 0.3)
			return;
	}
	ck_abort_msg("%lld ppm, found:\n%s", (long long)ppm, text);
}

TEST_LIMIT(clock_that_runs_too_fast_is_unfit, 60)
{
	begin();
	expect_speed(0, LK_FIT);
	expect_speed(5000, LK_FIT);
	expect_speed(10000, LK_FIT_WARN);
	expect_speed(20000, LK_UNFIT);
	ck_assert_ptr_nonnull(strstr(examine(server.url), "maxslewrate"));
	/* With a slow clock leases last longer: no hold ends too early. */
	expect_speed(-20000, LK_FIT);
	finish();
}

/* It takes readings for a second at most: here no more than 1,000 / 70. */
TEST(speed_behind_long_round_trips_cannot_be_told)
{
	struct proxy_fault far = {.delay_ms = 70};
	struct proxy proxy;
	long long calls = -1;

	begin();
	proxy_start(&proxy, &server);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &far);
	expect(proxy.url, "1 cannot tell how fast the server's runs: round trips of 7");
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	ck_assert_int_eq(sscanf(strstr(redis_text(redis, "INFO commandstats"), "cmdstat_time:"),
	                        "cmdstat_time:calls=%lld", &calls),
	                 1);
	/* One more request tests the right to it. */
	ck_assert_int_ge(calls, 3);
	ck_assert_int_le(calls, TRIES * (1000 / 70 + 1 + 1));
	proxy_stop(&proxy);
	finish();
}

static int64_t server_time_us(void)
{
	long long seconds, us;
	const char *text = redis_text(redis, "TIME");

	ck_assert_msg(sscanf(text, "%lld%*[^0-9]%lld", &seconds, &us) == 2, "%s", text);
	return seconds * 1000000 + us;
}

/* A hold that is not renewed expires for its holder before the server grants the lock again, even
 * by a clock at the fastest rate that the margin allows for. */
TEST(s24_server_clock_that_is_one_percent_fast_makes_no_overlap)
{
	const lk_lock_options options = {.fixed = true, .lease_ms = 3000};
	lk_client *client, *other;
	lk_lock *first, *next;
	int64_t start_us, start_ms;
	lk_err err;

	begin();
	client = client_at(server.url);
	other = client_at(server.url);
	first = lock_with(client, "a", &options);
	next = lock_named(other, "a");
	server_clock_move(0, 10000);
	start_us = server_time_us();
	start_ms = now_ms();
	OK(lk_lock_acquire(first, 0, NULL));
	while ((err = lk_lock_acquire(next, 0, NULL)) == LK_EBUSY)
		continue;
	ck_assert_int_eq(err, LK_OK);
	ck_assert(!lk_lock_is_mine(first));
	ck_assert_int_eq(lk_lock_state(first), LK_STATE_LOST);
	/* The clock did run that fast. */
	ck_assert_int_ge((server_time_us() - start_us) / 1000, (now_ms() - start_ms) * 1005 / 1000);
	OK(lk_lock_release(next));
	OK(lk_client_close(other));
	OK(lk_client_close(client));
	finish();
}
