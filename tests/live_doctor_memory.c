/* SPDX-License-Identifier: MIT
 * lk_doctor() on the server's memory: its marker, the grace, and what would hide a loss. */
#include <latchkey.h>

#include "handles.h"
#include "process.h"
#include "redis.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define TEXT_SIZE 8192

static struct test_server server;
static struct redis *redis;

static void begin(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
}

static void finish(void)
{
	redis_close(redis);
	server_stop(&server);
}

/* The findings on the memory, a line each: "FITNESS text [cure]". */
static void keep(void *arg, const lk_finding *finding)
{
	char *text = arg;
	size_t len = strlen(text);

	if (!strcmp(finding->topic, "memory"))
		snprintf(text + len, TEXT_SIZE - len, "%d %s [%s]\n", finding->fitness,
		         finding->text, finding->cure);
}

/* Examine with that grace; user: "ann:x@" or "". */
static const char *examine(const char *user, int grace_ms)
{
	static char text[TEXT_SIZE];
	char url[100];

	snprintf(url, sizeof(url), "redis://%s127.0.0.1:%d?grace=%d", user, server.port, grace_ms);
	text[0] = '\0';
	OK(lk_doctor(url, NULL, keep, text, NULL));
	return text;
}

static void expect(const char *text, const char *begins, const char *ends)
{
	const char *at = strstr(text, begins);
	char tail[200];

	snprintf(tail, sizeof(tail), "%s\n", ends);
	ck_assert_msg(at && (at == text || at[-1] == '\n') && strstr(at, tail),
	              "no line begins with \"%s\" and ends with \"%s\":\n%s", begins, ends, text);
}

/* A client with that grace connects and leaves. */
static void connect_once(int grace_ms)
{
	lk_client_options options = {.grace_ms = grace_ms};
	lk_client *client;

	OK(lk_client_open(server.url, &options, &client));
	OK(lk_client_close(client));
}

TEST(memory_is_examined_without_a_change)
{
	begin();
	expect(examine("", 10000),
	       "0 no client has connected yet; after a loss nothing is granted "
	       "for 10.0 s",
	       "[]");
	ck_assert_str_eq(redis_text(redis, "KEYS *"), "");
	connect_once(10000);
	expect(examine("", 60000), "1 in its grace (id ",
	       "[wait; if nothing can be held: latchkey grace end]");
	nap_ms(200);
	expect(examine("", 100), "0 whole for ", "[]");
	ck_assert_ptr_nonnull(
		strstr(examine("", 100), "after a loss nothing is granted for 0.1 s"));
	finish();
}

TEST(memory_without_a_grace_is_warned_of)
{
	begin();
	expect(examine("", 0), "1 no grace: ", "[remove grace=0, which is meant for tests]");
	finish();
}

TEST(memory_of_an_earlier_run_is_warned_of)
{
	begin();
	redis_do(redis, "SET lk:epoch %s", "1 0123456789012345678901234567890123456789 1000");
	expect(examine("", 10000), "1 of an earlier run of this server, or of another one: ", "[]");
	finish();
}

TEST(memory_whose_grace_was_ended_is_fit)
{
	lk_client_options options = {.grace_ms = 60000};
	lk_client *client;

	begin();
	OK(lk_client_open(server.url, &options, &client));
	expect(examine("", 60000), "1 in its grace", "grace end]");
	OK(lk_client_end_grace(client, NULL));
	expect(examine("", 60000), "0 whole for ", "[]");
	OK(lk_client_close(client));
	finish();
}

TEST(memory_with_a_foreign_marker_is_unfit)
{
	begin();
	redis_do(redis, "SET lk:epoch mine");
	expect(examine("", 10000), "2 lk:epoch is not a marker of this protocol: ",
	       "[delete the key lk:epoch, or use another prefix]");
	redis_do(redis, "DEL lk:epoch");
	redis_do(redis, "RPUSH lk:epoch mine");
	expect(examine("", 10000), "2 lk:epoch is not a marker of this protocol: ",
	       "[delete the key lk:epoch, or use another prefix]");
	finish();
}

TEST(backlog_that_is_freed_within_the_grace_is_unfit)
{
	begin();
	redis_do(redis, "CONFIG SET repl-backlog-ttl 10");
	expect(examine("", 10000), "2 repl-backlog-ttl is 10 s, ",
	       "[CONFIG SET repl-backlog-ttl 3600]");
	ck_assert_ptr_null(strstr(examine("", 9000), "backlog"));
	redis_do(redis, "CONFIG SET repl-backlog-ttl 0");
	ck_assert_ptr_null(strstr(examine("", 10000), "backlog"));
	finish();
}

TEST(memory_without_info_says_what_goes_unnoticed)
{
	begin();
	redis_do(redis, "ACL SETUSER ann on >x ~lk:* &lk:* +@all -info -config");
	expect(examine("ann:x@", 10000),
	       "1 cannot tell: grant +info; without it clients do not "
	       "notice a server that has lost a part of its memory",
	       "[ACL SETUSER ann +info]");
	expect(examine("ann:x@", 10000), "1 cannot tell: grant +config|get",
	       "[ACL SETUSER ann +config|get]");
	finish();
}
