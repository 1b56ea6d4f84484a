/* SPDX-License-Identifier: MIT
 * The Redis in memory against a real one: random calls of the scripts with the same arguments on
 * both, and after each the same reply and the same keys.  What the scripts take for the time is an
 * argument here; keys live by the real clock on both. */
#include "lua_store.h"
#include "redis.h"
#include "scripts.h"
#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALLS 12000
#define WORDS 20 /* of one call, at most */
#define TICKETS 7
#define CLOSE_MS 3000 /* between two looks at the time a key has left */
#define TEXT_MAX 32768

static struct test_server server;
static struct redis *redis;
static struct lua_store *store;
static uint64_t random_state;
static int64_t now_us = INT64_C(1700000000000000);

static uint64_t draw(uint64_t below)
{
	uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % below;
}

/* ---- One call on both --------------------------------------------------------------------- */

/* Every other client hears. */
static int publish(void *arg, const char *channel, const char *text, size_t len)
{
	(void)arg;
	(void)text;
	(void)len;
	return channel[strlen("lk:c:0:")] % 2 == 0;
}

static const char *ask_redis(int argc, const char *const *argv)
{
	char fmt[3 * WORDS + 1] = "";
	const char *w[WORDS];

	for (int i = 0; i < WORDS; i++)
		w[i] = i < argc ? argv[i] : "";
	for (int i = 0; i < argc; i++)
		snprintf(fmt + 3 * i, 4, "%%s ");
	return redis_text(redis, fmt, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9],
	                  w[10], w[11], w[12], w[13], w[14], w[15], w[16], w[17], w[18], w[19]);
}

static const char *ask_store(int argc, const char *const *argv)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	lua_store_set_time(store, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	return lua_store_ask(store, argc, argv, NULL);
}

/* Where an error was raised is not compared. */
static size_t length(const char *line, size_t len)
{
	const char *where = line[0] == '-' ? memmem(line, len, " script: ", 9) : NULL;

	return where ? (size_t)(where - line) : len;
}

/* Line by line; the line of a time that is left may differ by a little. */
static void compare(const char *what, const char *one, const char *other, int time_line)
{
	const char *left = one, *right = other;

	for (int line = 0;; line++) {
		size_t left_len = strcspn(left, "\n"), right_len = strcspn(right, "\n");
		bool good = length(left, left_len) == length(right, right_len) &&
		            !memcmp(left, right, length(left, left_len));
		if (!good && line == time_line)
			good = llabs(strtoll(left, NULL, 10) - strtoll(right, NULL, 10)) < CLOSE_MS;
		ck_assert_msg(good, "%s: the server answers\n%s\nand the store\n%s", what, one,
		              other);
		left += left_len;
		right += right_len;
		if (!*left || !*right)
			break;
		left++;
		right++;
	}
	ck_assert_msg(*left == *right, "%s: the server answers\n%s\nand the store\n%s", what, one,
	              other);
}

/* Returns the answer; what tells of the call if it fails. */
static const char *both(const char *what, int time_line, int argc, const char *const *argv)
{
	static char answer[TEXT_MAX];

	snprintf(answer, sizeof(answer), "%s", ask_redis(argc, argv));
	compare(what, answer, ask_store(argc, argv), time_line);
	return answer;
}

static const char *plain(const char *a, const char *b, const char *c, const char *d)
{
	const char *argv[] = {a, b, c, d};
	char what[100];

	snprintf(what, sizeof(what), "%s %s %s", a, b, c ? c : "");
	return both(what, strcmp(a, "PTTL") ? -1 : 0, d ? 4 : c ? 3 : 2, argv);
}

/* ---- The scripts -------------------------------------------------------------------------- */

/* The text with another source of time. */
static const char *text_of(const struct lk__script *script)
{
	static const char from[] = "redis.call('TIME')", to[] = "{ARGV[#ARGV-1],ARGV[#ARGV]}";
	static char texts[64][TEXT_MAX];
	static const struct lk__script *known[64];
	const char *at = strstr(script->text, from);
	int index = 0;

	while (known[index] && known[index] != script)
		index++;
	if (known[index])
		return texts[index];
	known[index] = script;
	if (!at)
		snprintf(texts[index], TEXT_MAX, "%s", script->text);
	else
		snprintf(texts[index], TEXT_MAX, "%.*s%s%s", (int)(at - script->text), script->text,
		         to, at + strlen(from));
	ck_assert_ptr_null(strstr(texts[index], from));
	return texts[index];
}

/* Arguments after the keys, NULL at the end; the time is added. */
static const char *run(const struct lk__script *script, bool semaphore, int time_line,
                       const char *const *args)
{
	static const char *const keys[2][4] = {{"lk:{l}", "lk:{l}:q", "lk:fence", ""},
	                                       {"lk:{s}", "lk:{s}:q", "lk:fence", "lk:{s}:h"}};
	const char *argv[WORDS] = {"EVAL", text_of(script)};
	char what[400], count[8], seconds[24], rest[24];
	int argc = 3;
	size_t len;

	snprintf(count, sizeof(count), "%d", script->keys);
	snprintf(seconds, sizeof(seconds), "%lld", (long long)(now_us / 1000000));
	snprintf(rest, sizeof(rest), "%lld", (long long)(now_us % 1000000));
	len = (size_t)snprintf(what, sizeof(what), "%s at %lld", script->name, (long long)now_us);
	argv[2] = count;
	for (int i = 0; i < script->keys; i++)
		argv[argc++] = keys[semaphore][i];
	for (; *args; args++) {
		if (len < sizeof(what))
			len += (size_t)snprintf(what + len, sizeof(what) - len, " %s", *args);
		argv[argc++] = *args;
	}
	argv[argc++] = seconds;
	argv[argc++] = rest;
	return both(what, time_line, argc, argv);
}

/* A ticket, and what its client knows of it. */
static struct {
	char text[80];
	char arrival[24], fence[24];
} tickets[2][TICKETS]; /* of a lock, of the semaphore */

static void make_ticket(bool semaphore, int i)
{
	static int serial;
	int len = snprintf(tickets[semaphore][i].text, sizeof(tickets[semaphore][i].text),
	                   "1:%cclient_AAAAAAAAAAAAAA:%011d:%d:%c", 'a' + (int)draw(4), serial++,
	                   /* A lock's lease is a key's life, and must not end here. */
	                   semaphore ? 100 + (int)draw(5000) : 3600000, draw(3) ? 'r' : 'f');

	if (semaphore)
		snprintf(tickets[semaphore][i].text + len,
		         sizeof(tickets[semaphore][i].text) - (size_t)len, ":%d", 1 + (int)draw(4));
	snprintf(tickets[semaphore][i].arrival, sizeof(tickets[0][0].arrival), "0");
	snprintf(tickets[semaphore][i].fence, sizeof(tickets[0][0].fence), "0");
}

/* What the answer says of the ticket. */
static void learn(bool semaphore, int i, const char *answer)
{
	char word[16], number[24];

	if (sscanf(answer, "%15[a-z]\n%23[0-9]", word, number) != 2)
		return;
	if (!strcmp(word, "queued"))
		memcpy(tickets[semaphore][i].arrival, number, sizeof(number));
	else if (!strcmp(word, "granted") || !strcmp(word, "held"))
		memcpy(tickets[semaphore][i].fence, number, sizeof(number));
}

static const char *digit(uint64_t below)
{
	static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

	return digits[draw(below)];
}

static void call_semaphore(int i)
{
	const char *ticket = tickets[1][i].text, *fence = draw(3) ? tickets[1][i].fence : "0";
	const char *kept = draw(2) ? "0" : digit(4), *lease = draw(2) ? "500" : "3000";

	switch (draw(10)) {
	case 0:
	case 1:
	case 2:
	case 3:
		learn(true, i,
		      run(&lk__script_semaphore_ask, true, -1,
		          (const char *const[]){ticket, draw(4) ? "1" : "0",
		                                draw(4) ? tickets[1][i].arrival : "0", "lk:c:0:",
		                                "5", "3600000", "3600000", "21000", NULL}));
		break;
	case 4:
	case 5:
		run(&lk__script_semaphore_leave, true, -1,
		    (const char *const[]){draw(6) ? ticket : "", kept, "lk:c:0:", digit(2), "21000",
		                          NULL});
		if (!strcmp(kept, "0"))
			make_ticket(true, i);
		break;
	case 6:
	case 7:
		learn(true, i,
		      run(&lk__script_semaphore_renew, true, -1,
		          (const char *const[]){ticket, fence, lease, NULL}));
		break;
	case 8:
		run(&lk__script_semaphore_set, true, -1,
		    (const char *const[]){draw(2) ? "open" : "resize", draw(2) ? "5" : digit(9),
		                          "3600000", "lk:c:0:", "21000", NULL});
		break;
	default:
		run(&lk__script_semaphore_show, true, 5,
		    (const char *const[]){draw(2) ? ticket : "", "50", digit(9), NULL});
	}
}

static void call_lock(int i)
{
	const char *ticket = tickets[0][i].text, *fence = draw(3) ? tickets[0][i].fence : "0";
	const char *share = draw(2) ? "s" : "-";

	switch (draw(8)) {
	case 0:
	case 1:
	case 2:
		learn(false, i,
		      run(&lk__script_lock_ask, false, 3,
		          (const char *const[]){ticket, draw(4) ? "1" : "0",
		                                draw(4) ? tickets[0][i].arrival : "0",
		                                "lk:c:0:", share, "3600000", NULL}));
		break;
	case 3:
	case 4:
		run(&lk__script_lock_leave, false, -1,
		    (const char *const[]){draw(6) ? ticket : "", fence, "lk:c:0:", digit(2), NULL});
		make_ticket(false, i);
		break;
	case 5:
	case 6:
		learn(false, i,
		      run(&lk__script_lock_renew, false, -1,
		          (const char *const[]){ticket, fence, draw(2) ? "3600000" : "7200000",
		                                draw(2) ? fence : "0", share, NULL}));
		break;
	default:
		run(&lk__script_lock_show, false, 2,
		    (const char *const[]){draw(2) ? ticket : "", digit(9), NULL});
	}
}

/* A hand that meddles, an eviction, an operator. */
static void meddle(void)
{
	static const char *const keys[] = {"lk:{s}", "lk:{s}:q", "lk:{s}:h",
	                                   "lk:{l}", "lk:{l}:q", "lk:fence"};
	static const char *const values[] = {
		"x", "2:next", "", "9007199254740990", "12345678901234567890", "1700000009000000"};
	const char *key = keys[draw(6)];

	switch (draw(8)) {
	case 0:
		plain("SET", key, values[draw(6)], NULL);
		break;
	case 1:
		plain("DEL", key, NULL, NULL);
		plain("ZADD", key, "5", draw(2) ? "foreign" : "2:next");
		break;
	case 2:
		plain("DEL", key, NULL, NULL);
		plain("HSET", key, "kind", draw(2) ? "1:latch" : "2:semaphore");
		break;
	case 3:
		now_us -= (int64_t)draw(10000000);
		return;
	default:
		plain("DEL", key, NULL, NULL);
		return;
	}
	/* As somebody meets it; then it is gone. */
	for (int i = 0; i < 4; i++) {
		call_semaphore((int)draw(TICKETS));
		call_lock((int)draw(TICKETS));
		run(&lk__script_name_kind, draw(2), -1, (const char *const[]){NULL});
	}
	plain("DEL", key, NULL, NULL);
}

static void compare_keys(bool semaphore)
{
	const char *main_key = semaphore ? "lk:{s}" : "lk:{l}";
	const char *queue = semaphore ? "lk:{s}:q" : "lk:{l}:q";

	plain("GET", "lk:fence", NULL, NULL);
	plain("PTTL", "lk:fence", NULL, NULL);
	plain("PTTL", main_key, NULL, NULL);
	plain("PTTL", queue, NULL, NULL);
	plain(semaphore ? "HGETALL" : "GET", main_key, NULL, NULL);
	both("the queue", -1, 5, (const char *const[]){"ZRANGE", queue, "0", "-1", "WITHSCORES"});
	if (!semaphore)
		return;
	plain("PTTL", "lk:{s}:h", NULL, NULL);
	both("the ends", -1, 5,
	     (const char *const[]){"ZRANGE", "lk:{s}:h", "0", "-1", "WITHSCORES"});
}

TEST_LIMIT(scripts_do_the_same_in_memory_as_on_a_server, 120)
{
	struct redis *subscriber;

	random_state = test_seed();
	server_start(&server, NULL);
	redis = redis_open(&server);
	subscriber = redis_open(&server);
	redis_do(subscriber, "SUBSCRIBE lk:c:0:bclient_AAAAAAAAAAAAAA "
	                     "lk:c:0:dclient_AAAAAAAAAAAAAA");
	store = lua_store_new(publish, NULL);
	for (int i = 0; i < TICKETS; i++) {
		make_ticket(false, i);
		make_ticket(true, i);
	}
	for (int i = 0; i < CALLS; i++) {
		bool semaphore = draw(3) > 0;
		now_us += (int64_t)draw(draw(4) ? 20000 : 1000000);
		if (!draw(40))
			meddle();
		if (semaphore)
			call_semaphore((int)draw(TICKETS));
		else
			call_lock((int)draw(TICKETS));
		compare_keys(semaphore);
	}
	lua_store_free(store);
	redis_close(subscriber);
	redis_close(redis);
	server_stop(&server);
}
