/* SPDX-License-Identifier: MIT
 * Unusual, wrong or hostile input (V1 to V5, V8, V9 of the fault list): names, numbers, fences, and
 * a server's answers. */
#include "runtime/client.h"
#include "core/core.h"

#include "harness/primitive.h"
#include "harness/watch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- Names -------------------------------------------------------------------------------- */

struct text {
	const char *bytes;
	size_t len;
};
#define TEXT(literal)                                                                              \
	{                                                                                          \
		literal, sizeof(literal) - 1                                                       \
	}

static char long_name[LK_NAME_MAX + 1];

struct found {
	const struct text *names;
	int count, hits[64], strangers;
};

static bool tick_off(void *arg, const char *name, size_t len)
{
	struct found *found = arg;

	for (int i = 0; i < found->count; i++) {
		if (found->names[i].len == len && !memcmp(found->names[i].bytes, name, len)) {
			found->hits[i]++;
			return true;
		}
	}
	found->strangers++;
	return true;
}

/* All can be held at once, by handles of one client, each with keys of one hash tag, and a walk
 * returns exactly these bytes. */
static void hold_all(const struct text *names, int count)
{
	struct found found = {.names = names, .count = count};
	lk_client *client = client_at(server.url);
	const char *key, *end;
	int listed = 0;

	for (int i = 0; i < count; i++) {
		const lk_lock_options options = {.owner = LK_OWNER_HANDLE};
		lk_lock *lock = NULL;
		lk_err err;
		OK(lk_lock_open(client, names[i].bytes, names[i].len, &options, &lock));
		err = lk_lock_acquire(lock, 0, NULL);
		ck_assert_msg(err == LK_OK, "name %d: %s: %s", i, lk_err_name(err), lk_errmsg());
	}
	/* Each key has one opening and one closing brace: one tag, not empty. */
	for (key = redis_text(redis, "KEYS lk:{*}*"); key; key = *end ? end + 1 : NULL) {
		size_t len;
		end = strchrnul(key, '\n');
		len = (size_t)(end - key);
		ck_assert(len > 5 && !memcmp(key, "lk:{", 4) && end[-1] == '}');
		ck_assert_ptr_null(memchr(key + 4, '{', len - 4));
		ck_assert_ptr_null(memchr(key + 4, '}', len - 5));
		listed++;
	}
	ck_assert_int_eq(listed, count);
	OK(lk_client_names(client, tick_off, &found));
	ck_assert_int_eq(found.strangers, 0);
	for (int i = 0; i < count; i++)
		ck_assert_msg(found.hits[i] == 1, "name %d is listed %d times", i, found.hits[i]);
	OK(lk_client_close(client));
	ck_assert_int_eq(redis_size(redis), 1);
}

TEST(v1_any_bytes_are_a_name_of_1_to_512)
{
	const struct text names[] = {
		TEXT("x"),
		TEXT("\0"),
		TEXT("a\0b"),
		TEXT("a\0c"),
		TEXT("\r\n"),
		TEXT("a\r\nDEL b"),
		TEXT("\xff\xfe"),
		TEXT("\xc3\xa4\xe2\x82\xac"),
		TEXT(" "),
		TEXT("two words"),
		TEXT("*"),
		TEXT("[a-z]?"),
		TEXT("\""),
		TEXT("\\"),
		TEXT("'; return 1"),
		TEXT("\x7f\x1b[2J"),
		{long_name, LK_NAME_MAX},
	};
	lk_client *client;
	lk_lock *lock = NULL;

	fault_set_up_proxy();
	memset(long_name, '\xfd', LK_NAME_MAX + 1);
	client = client_at(server.url);
	EXPECT(lk_lock_open(client, "", 0, NULL, &lock), LK_EINVALID);
	EXPECT(lk_lock_open(client, NULL, 0, NULL, &lock), LK_EINVALID);
	EXPECT(lk_lock_open(client, long_name, LK_NAME_MAX + 1, NULL, &lock), LK_EINVALID);
	EXPECT(lk_lock_open(client, long_name, SIZE_MAX, NULL, &lock), LK_EINVALID);
	ck_assert_ptr_null(lock);
	OK(lk_client_close(client));
	hold_all(names, sizeof(names) / sizeof(names[0]));
}

TEST(v2_names_with_braces_have_one_tag_and_never_collide)
{
	static const struct text names[] = {
		TEXT("a"),        TEXT("a}"),       TEXT("a}b{c}"), TEXT("}x"),       TEXT("{"),
		TEXT("}"),        TEXT("{}"),       TEXT("{}x"),    TEXT("{a}"),      TEXT("a:q"),
		TEXT("a}:q"),     TEXT("{a}:q"),    TEXT(":q"),     TEXT("%"),        TEXT("%7B"),
		TEXT("%7b"),      TEXT("%7Ba%7D"),  TEXT("%257B"),  TEXT("a%7D%3Aq"), TEXT("fence"),
		TEXT("a} lk:{b"), TEXT("client:x"), TEXT("%7D:q"),  TEXT("a%00"),     TEXT("a\0"),
	};

	fault_set_up_proxy();
	hold_all(names, sizeof(names) / sizeof(names[0]));
}

/* ---- Numbers ------------------------------------------------------------------------------ */

TEST(v3_times_out_of_range_are_refused_before_anything_is_sent)
{
	static const int64_t wrong_leases[] = {-1,        1,        99, LK_LEASE_MAX_MS + 1,
	                                       INT64_MAX, INT64_MIN};
	static const int64_t wrong_waits[] = {-2, INT64_MIN};
	lk_client *client;
	lk_lock *lock = NULL, *held;
	int64_t sent;

	fault_set_up_proxy();
	client = client_at(proxy.url);
	held = hold_watched(client, "a", 0);
	nap_ms(50);
	sent = proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER];
	for (size_t i = 0; i < sizeof(wrong_leases) / sizeof(wrong_leases[0]); i++) {
		const lk_lock_options options = {.lease_ms = wrong_leases[i]};
		EXPECT(lk_lock_open(client, "b", 0, &options, &lock), LK_EINVALID);
		ck_assert_ptr_null(lock);
		EXPECT(lk_lock_extend(held, wrong_leases[i]), LK_EINVALID);
	}
	EXPECT(lk_lock_extend(held, 0), LK_EINVALID);
	EXPECT(lk_lock_open(client, "b", 0, &(lk_lock_options){.max_hold_ms = -1}, &lock),
	       LK_EINVALID);
	EXPECT(lk_lock_open(client, "b", 0, &(lk_lock_options){.max_hold_ms = INT64_MAX}, &lock),
	       LK_EINVALID);
	EXPECT(lk_lock_open(client, "b", 0, &(lk_lock_options){.reserved = {1}}, &lock),
	       LK_EINVALID);
	for (size_t i = 0; i < sizeof(wrong_waits) / sizeof(wrong_waits[0]); i++)
		EXPECT(lk_lock_acquire(held, wrong_waits[i], NULL), LK_EINVALID);
	ck_assert_int_eq(proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_SERVER], sent);
	ck_assert_uint_eq(hold_of(held).count, 1);
	/* The ends of the ranges are accepted, and so is the longest wait. */
	OK(lk_lock_open(client, "b", 0, &(lk_lock_options){.lease_ms = LK_LEASE_MAX_MS}, &lock));
	OK(lk_lock_acquire(lock, INT64_MAX, NULL));
	ck_assert_int_gt(hold_of(lock).remaining_ms, LK_LEASE_MAX_MS / 2);
	OK(lk_lock_open(client, "c", 0, &(lk_lock_options){.lease_ms = LK_LEASE_MIN_MS}, &lock));
	OK(lk_lock_acquire(lock, 0, NULL));
	nap_ms(300);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	OK(lk_client_close(client));
}

static const char *const bad_fences[] = {
	"9007199254740991",
	"9007199254740992",
	"9223372036854775807",
	"9223372036854775808",
	"18446744073709551615",
	"99999999999999999999999",
	"-1",
	"-9007199254740991",
	"abc",
	"1e3",
	" 12",
	"12 ",
	"0x10",
	"1.5",
	"nan",
	"+7",
};

TEST_OF(v4_damaged_or_used_up_fence_counter_grants_nothing, EVERY, 20)
{
	struct claims claims;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&claims, set, client, 0);
	claims_release(&claims);
	for (size_t i = 0; i < sizeof(bad_fences) / sizeof(bad_fences[0]); i++) {
		redis_do(redis, "SET lk:fence %s", bad_fences[i]);
		EACH (claim, &claims) {
			lk_err err = claim->primitive->hold(claim, i % 2 ? 300 : 0);
			ck_assert_msg(err == LK_ESERVER &&
			                      strstr(lk_errmsg(), "the fence counter is"),
			              "%s: %s: %s: %s", claim->name, bad_fences[i],
			              lk_err_name(err), lk_errmsg());
			ck_assert(claim->primitive->is_at_rest(claim->name));
		}
		ck_assert_str_eq(redis_text(redis, "GET lk:fence"), bad_fences[i]);
	}
	/* The last possible one of a lock; the others keep some in reserve. */
	claims.set = set & LOCK;
	redis_do(redis, "SET lk:fence 9007199254740989");
	EACH (claim, &claims) {
		OK(claim->primitive->hold(claim, 0));
		ck_assert_uint_eq(claim->fence, UINT64_C(9007199254740990));
		OK(claim->primitive->release(claim));
		EXPECT(claim->primitive->hold(claim, 0), LK_ESERVER);
	}
	OK(lk_client_close(client));
}

TEST_OF(v4_fence_counter_damaged_while_held_keeps_holds_and_ends_waits, LEASED, 20)
{
	struct claims held, waits;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, 600);
	claims_queue(&waits, set, client_at(server.url), 600, false);
	redis_do(redis, "SET lk:fence abc");
	claims_stay_held(&held, 500); /* renewals need no counter */
	claims_release(&held);
	claims_join(&waits, LK_ESERVER);
	ck_assert_str_eq(redis_text(redis, "GET lk:fence"), "abc");
	ck_assert(WITHIN(2000, claims_at_rest(set)));
	OK(lk_client_close(client));
}

/* Two thousand million calls would take too long: the count begins near its end. */
TEST(v5_lock_is_re_entered_up_to_its_limit)
{
	const uint32_t most = 2147483647;
	lk_client *client;
	lk_lock *lock;

	fault_set_up_proxy();
	client = client_at(server.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	lock->handle.queue->hold->count = most - 1;
	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert_uint_eq(hold_of(lock).count, most);
	for (int i = 0; i < 2; i++) {
		EXPECT(lk_lock_acquire(lock, i ? LK_FOREVER : 0, NULL), LK_ELIMIT);
		ck_assert_uint_eq(hold_of(lock).count, most);
	}
	OK(lk_lock_release(lock));
	ck_assert_uint_eq(hold_of(lock).count, most - 1);
	lock->handle.queue->hold->count = 1;
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
	OK(lk_client_close(client));
}

/* ---- Hostile servers ---------------------------------------------------------------------- */

static char deep[4 * 10000 + 1];
static char endless[60001];

/* Answers that no script of that primitive gives, and bytes that are no answer. */
static const struct lie {
	unsigned set;
	const char *bytes;
} lies[] = {
	{LOCK, "+OK\r\n"},
	{LEASED, ":1\r\n"},
	{LEASED, "$-1\r\n"},
	{LOCK, "*-1\r\n"},
	{LOCK, "*0\r\n"},
	{LOCK, "$3\r\nabc\r\n"},
	{LOCK, "*1\r\n$7\r\ngranted\r\n"},
	{LOCK, "*4\r\n$7\r\ngranted\r\n$3\r\nabc\r\n$1\r\n1\r\n:0\r\n"},
	{LOCK, "*4\r\n$7\r\ngranted\r\n$20\r\n99999999999999999999\r\n$1\r\n1\r\n:0\r\n"},
	{LOCK, "*4\r\n$7\r\ngranted\r\n*1\r\n:1\r\n$1\r\n1\r\n:0\r\n"},
	{LOCK, "*5\r\n$6\r\nqueued\r\n$2\r\n-1\r\n:-5\r\n:-1\r\n$1\r\n9\r\n"},
	{LOCK, "*2\r\n$7\r\nnothing\r\n$1\r\n1\r\n"},
	{LOCK, "*3\r\n$7\r\nforeign\r\n:1\r\n:2\r\n"},
	{LEASED, "*2147483647\r\n"},
	{LOCK, "*2147483648\r\n"},
	{LOCK, "*-2\r\n"},
	{LOCK, "*1000000\r\n:1\r\n"},
	{LOCK, "$2147483647\r\nx"},
	{LOCK, "$9223372036854775807\r\n"},
	{LOCK, "$-2\r\n"},
	{LOCK, ":99999999999999999999999\r\n"},
	{LOCK, "HTTP/1.1 400 Bad Request\r\n\r\n"},
	{LOCK, "\x16\x03\x01\x02"},
	{LOCK, "\r\n\r\n"},
	{LOCK, "%1\r\n+a\r\n+b\r\n"},
	{LOCK, deep},
	{LOCK, endless},
	{SEMAPHORE, "*5\r\n$7\r\ngranted\r\n$3\r\nabc\r\n$1\r\n1\r\n:0\r\n:0\r\n"},
	{SEMAPHORE,
         "*5\r\n$7\r\ngranted\r\n$20\r\n99999999999999999999\r\n$1\r\n1\r\n:0\r\n:0\r\n"},
	{SEMAPHORE, "*5\r\n$6\r\nqueued\r\n$2\r\n-1\r\n:-5\r\n:-1\r\n:0\r\n"},
	{SEMAPHORE, "*2\r\n$5\r\nlimit\r\n$3\r\nabc\r\n"},
	{SEMAPHORE, "*2\r\n$5\r\nlimit\r\n*0\r\n"},
	{SEMAPHORE, "*1\r\n$4\r\nbusy\r\n"},
};

static void fill_lies(void)
{
	for (size_t i = 0; i + 4 < sizeof(deep); i += 4)
		memcpy(deep + i, "*1\r\n", 4);
	memset(endless, '+', sizeof(endless) - 1);
}

TEST_EACH(v8_garbage_for_an_answer_is_an_error_and_costs_a_connection, LEASED, 60)
{
	struct claims claims;
	lk_client *client;
	int64_t size_kb, told = 0;

	fill_lies();
	fault_set_up_proxy();
	client = far_client(300);
	claims_warm_up(set, client);
	claims_open(&claims, set, client, 500);
	size_kb = proc_size_kb(0);
	EACH (claim, &claims) {
		claim->waits = true;
		for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
			lk_err err;
			if (!(lies[i].set & set))
				continue;
			nap_ms(20); /* the introduction on a new link is over */
			proxy_lie(&proxy, PROXY_COMMANDS, lies[i].bytes, strlen(lies[i].bytes));
			err = claim->primitive->wait(claim, 0);
			ck_assert_int_eq(proxy_count(&proxy).lies, ++told);
			/* It may have repeated the ask on a new link, and got a true answer. */
			ck_assert_msg(err == LK_EUNKNOWN || err == LK_ESERVER || err == LK_ECONN ||
			                      err == LK_EFOREIGN ||
			                      (!err && claim->primitive->is_held(claim)),
			              "lie %d: %s: %s", (int)i, lk_err_name(err), lk_errmsg());
			if (!err)
				OK(claim->primitive->release(claim));
			ck_assert_int_lt(proc_size_kb(0) - size_kb, 512 * 1024);
			/* And it continues, with new links that carry none of the garbage. */
			ck_assert_msg(WITHIN(5000, claim->primitive->wait(claim, 2000) == LK_OK),
			              "after lie %d", (int)i);
			ck_assert_int_gt(claim->primitive->remaining_ms(claim), 0);
			OK(claim->primitive->release(claim));
			ck_assert_msg(WITHIN(5000, claims_at_rest(set)), "after lie %d", (int)i);
		}
	}
	ck_assert_int_gt(proxy_count(&proxy).connections, set & LOCK ? told : 2);
	OK(lk_client_close(client));
}

static const char *const message_lies[] = {
	"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\ngrant\r\n",
	"*3\r\n$7\r\nmessage\r\n$-1\r\n$-1\r\n",
	("*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n"
         "$48\r\ngrant 2:x:AAAAAAAAAAA:500:r 18446744073709551616\r\n"),
	"*3\r\n:1\r\n:2\r\n:3\r\n",
	"+PONG\r\n",
	"-ERR go away\r\n",
	"*2147483647\r\n",
	"garbage\r\n",
	"*3\r\n$12\r\npunsubscribe\r\n$-1\r\n:0\r\n",
};

TEST_OF(v8_garbage_for_a_message_grants_nothing_and_loses_no_wait, LEASED, 60)
{
	const int count = sizeof(message_lies) / sizeof(message_lies[0]);
	lk_client *client, *near;
	struct claims held, waits;

	fault_set_up_proxy();
	client = far_client(500);
	near = client_at(server.url);
	for (int i = 0; i < count; i++) {
		claims_hold_later(&held, set, near, 700);
		claims_queue(&waits, set, client, 700, true);
		proxy_lie(&proxy, PROXY_MESSAGES, message_lies[i], strlen(message_lies[i]));
		/* A message that the proxy can replace. */
		redis_do(redis, "PUBLISH lk:c:0:%s hello", lk_client_id(client));
		ck_assert(WITHIN(2000, proxy_count(&proxy).lies == i + 1));
		nap_ms(50);
		ck_assert_msg(!claims_any_ended(&waits), "message lie %d", i);
		claims_release(&held);
		claims_join(&waits, LK_OK);
		claims_release(&waits);
		ck_assert(claims_at_rest(set));
	}
	OK(lk_client_close(client));
	OK(lk_client_close(near));
}

TEST(v8_forged_grants_do_not_match)
{
	struct waiter waiter;
	lk_client *client, *near;
	lk_lock *held, *lock;
	lk_party party;
	size_t count;
	char forged[300];

	fault_set_up_proxy();
	client = client_at(server.url);
	near = client_at(server.url);
	held = hold_watched(near, "a", 5000);
	lock = lock_of_handle(client, "a", 5000);
	waiter_start(&waiter, lock, 10000, true);
	ck_assert(WITHIN(5000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	OK(lk_lock_waiters(held, 1, &party, &count));
	ck_assert_uint_eq(count, 1);
	snprintf(forged, sizeof(forged), "grant 2:%s:AAAAAAAAAAA:5000:r 12345 5000 0 0 1",
	         lk_client_id(client));
	redis_do(redis, "PUBLISH lk:c:0:%s %s", lk_client_id(client), forged);
	snprintf(forged, sizeof(forged), "grant 2:%s:5000:r 0 5000 0 0 1", party.id);
	redis_do(redis, "PUBLISH lk:c:0:%s %s", lk_client_id(client), forged);
	nap_ms(100);
	ck_assert(!waiter.ended);
	stays_held(held, 100);
	OK(lk_lock_release(held));
	OK(waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, 12345);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	OK(lk_client_close(near));
}

/* ---- Hostile text ------------------------------------------------------------------------- */

static bool is_printable(const char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			return false;
	return true;
}

static atomic_int log_lines;

static void check_line(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	ck_assert_msg(is_printable(line), "a line of the log is not escaped");
	log_lines++;
}

TEST(v9_text_of_others_is_escaped_everywhere)
{
	static const char hostile[] = "-ERR \x1b]0;owned\x07 \x1b[2J\xff evil\r\n";
	const lk_client_options options = {.log = check_line, .log_level = LK_LOG_DEBUG};
	lk_client *client;
	lk_lock *lock;
	lk_lock_status status;
	lk_party party;

	fault_set_up_proxy();
	client = client_with(proxy.url, &options);
	lock = lock_named(client, "a\x1b[31m\n");
	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
	nap_ms(50);
	proxy_lie(&proxy, PROXY_COMMANDS, hostile, sizeof(hostile) - 1);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_ESERVER);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "evil"));
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "\\x1b"));
	ck_assert_msg(is_printable(lk_errmsg()), "not escaped");
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 500, NULL) == LK_OK));
	/* The descriptions of other clients. */
	redis_do(redis, "HSET lk:client:%s host %b user %b program %b label %b pid %s",
	         lk_client_id(client), "\x1b[31mhost", (size_t)9, "u\0ser", (size_t)5,
	         "\r\nprogram", (size_t)9,
	         "\x9b"
	         "1mlabel",
	         (size_t)8, "-5x");
	OK(lk_lock_query(lock, &status));
	party = status.holder;
	ck_assert(is_printable(party.host) && is_printable(party.user));
	ck_assert(is_printable(party.program) && is_printable(party.label));
	ck_assert_str_eq(party.host, "\\x1b[31mhost");
	ck_assert_str_eq(party.user, "u\\x00ser");
	ck_assert_int_eq(party.pid, 0);
	/* The name of a foreign key, in an error and in the log. */
	OK(lk_lock_release(lock));
	redis_do(redis, "SET %b planted", "lk:{a%1B[31m%0A}", (size_t)16);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EFOREIGN);
	ck_assert(is_printable(lk_errmsg()));
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	ck_assert(WITHIN(5000, lk_lock_query(lock, &status) != LK_ECONN));
	ck_assert(WITHIN(5000, log_lines > 0)); /* a thread of the client writes the lines */
	OK(lk_client_close(client));
}
