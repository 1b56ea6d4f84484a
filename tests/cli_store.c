/* SPDX-License-Identifier: MIT
 * latchkey show, break, local and doctor, and the choice of the store. */
#include "command_server.h"
#include "process.h"
#include "redis.h"
#include "rights.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct command cmd, holder, waiter;

static void hold(const char *name, const char *label)
{
	command_hold(&holder, "lock --label '%s' '%s' sleep 85", label, name);
}

static void wait_behind(const char *name, const char *label, int place)
{
	START(&waiter, "latchkey", "lock", "--label", label, name, "true");
	ck_assert(WITHIN(5000, command_waiting_is(name, place)));
}

TEST(show_names_holder_and_waiters_in_order)
{
	char text[128];
	const char *first, *second;

	begin();
	hold("deploy", "first");
	wait_behind("deploy", "second", 1);
	wait_behind("deploy", "third", 2);
	/* The waiter's description arrives in the background. */
	ck_assert(WITHIN(3000, RUN(&cmd, "latchkey", "show", "deploy") == 0 &&
	                               strstr(cmd.out, "second") && strstr(cmd.out, "third")));
	snprintf(text, sizeof(text), "(pid %d, first)\n", (int)holder.pid);
	ck_assert_ptr_nonnull(strstr(cmd.out, text));
	first = strstr(cmd.out, "      1  ");
	second = strstr(cmd.out, "      2  ");
	ck_assert(first && second && first < second);
	ck_assert(strstr(first, "second") < strstr(first, "third"));
	RUNS(0, &cmd, "latchkey", "show", "--json", "deploy");
	ck_assert(!strncmp(
		cmd.out,
		"{\"name\":\"deploy\",\"kind\":\"lock\",\"held\":true,\"holder\":{\"id\":", 57));
	ck_assert_ptr_nonnull(strstr(cmd.out, "\"waiting\":2,\"waiters\":[{"));
	RUNS(0, &cmd, "latchkey", "show", "nothing");
	ck_assert_ptr_nonnull(strstr(cmd.out, "held by  -\nwaiting  0\n"));
	RUNS(0, &cmd, "latchkey", "show", "--json", "nothing");
	ck_assert_str_eq(cmd.out, "{\"name\":\"nothing\",\"kind\":\"nothing\",\"held\":false,"
	                          "\"holder\":null,\"fence\":null,"
	                          "\"held_seconds\":null,\"lease_left_seconds\":null,"
	                          "\"grace_seconds\":0.000,\"waiting\":0,\"waiters\":[]}\n");
	server_stop(&server);
}

TEST(show_lists_all_names_escaped)
{
	begin();
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_str_eq(cmd.out, "");
	RUNS(0, &cmd, "latchkey", "show", "--json");
	ck_assert_str_eq(cmd.out, "[]\n");
	hold("b\033[31m\"\n", "x\033y");
	hold("a b", "plain");
	RUNS(0, &cmd, "latchkey", "show");
	ck_assert_ptr_nonnull(strstr(cmd.out, "b\\x1b[31m\"\\x0a"));
	ck_assert(strstr(cmd.out, "a b") < strstr(cmd.out, "b\\x1b"));
	ck_assert_ptr_null(strchr(cmd.out, '\033'));
	RUNS(0, &cmd, "latchkey", "show", "--json");
	ck_assert_ptr_nonnull(strstr(cmd.out, "{\"name\":\"b\\\\x1b[31m\\\"\\\\x0a\","));
	server_stop(&server);
}

/* The bytes of a name, and its form in a UTF-8 locale.  NULL: unchanged. */
static const struct {
	const char *name, *shown;
} spellings[] = {
	{"b\u00fcro \u20ac", NULL},
	{"\u65e5\u672c\U0001f600", NULL},
	{"\u05e9\u05dc\u05d5\u05dd", NULL},
	{"\u0e17\u0e35\u0e48", NULL}, /* two marks on one letter */
	{"cafe\u0301", NULL},
	{"a\\b\033", "a\\x5cb\\x1b"},
	{"\u0301a", "\\xcc\\x81a"}, /* a mark without a letter */
	{"a \u0301", "a \\xcc\\x81"},
	{"\n\u0301", "\\x0a\\xcc\\x81"},
	{"z\u0301\u0301\u0301\u0301", "z\u0301\u0301\u0301\\xcc\\x81"},
	{"a\xc2\x9b"
         "31m",
         "a\\xc2\\x9b31m"}, /* C1: an escape sequence to some terminals */
	{"a\u202eb", "a\\xe2\\x80\\xaeb"},
	{"a\u2066b", "a\\xe2\\x81\\xa6b"},
	{"a\u061cb", "a\\xd8\\x9cb"},
	{"a\u200bb", "a\\xe2\\x80\\x8bb"},
	{"a\u200db", "a\\xe2\\x80\\x8db"},
	{"a\ufe0fb", "a\\xef\\xb8\\x8fb"},
	{"\ufeff"
         "a",
         "\\xef\\xbb\\xbfa"},
	{"a\xc2\xad"
         "b",
         "a\\xc2\\xadb"},
	{"a\xc2\xa0"
         "b",
         "a\\xc2\\xa0b"}, /* would look like another name */
	{"a\u3000b", "a\\xe3\\x80\\x80b"},
	{"a\u2028b", "a\\xe2\\x80\\xa8b"},
	{"a\U000e0041b", "a\\xf3\\xa0\\x81\\x81b"},
	{"a\xff", "a\\xff"},
	{"\xc0\xaf", "\\xc0\\xaf"},
	{"\xed\xa0\x80", "\\xed\\xa0\\x80"},
	{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
	{"\xe2\x82", "\\xe2\\x82"},
	{"\xe2\x82"
         "b",
         "\\xe2\\x82"
         "b"},
};
#define SPELLINGS (sizeof(spellings) / sizeof(spellings[0]))

static bool is_ascii(const char *text)
{
	for (; *text; text++)
		if (*(const unsigned char *)text >= 0x80)
			return false;
	return true;
}

TEST(names_are_shown_as_they_are_in_a_utf8_locale_if_they_can_be_seen)
{
	begin();
	for (size_t i = 0; i < SPELLINGS; i++) {
		const char *name = spellings[i].name;
		const char *shown = spellings[i].shown ? spellings[i].shown : name;
		char line[128];

		setenv("LC_ALL", "C.UTF-8", 1);
		RUNS(0, &cmd, "latchkey", "show", name);
		snprintf(line, sizeof(line), "name     %s\n", shown);
		ck_assert_msg(!strncmp(cmd.out, line, strlen(line)), "%zu: %s", i, cmd.out);
		RUNS(1, &cmd, "latchkey", "latch", "down", name);
		snprintf(line, sizeof(line), "latchkey: cannot count down \"%s\": ", shown);
		ck_assert_msg(!strncmp(cmd.err, line, strlen(line)), "%zu: %s", i, cmd.err);
		/* The JSON is the same in every locale. */
		RUNS(0, &cmd, "latchkey", "show", "--json", name);
		ck_assert_msg(is_ascii(cmd.out), "%zu: %s", i, cmd.out);
		RUNS(0, &cmd, "latchkey", "latch", "show", "--json", name);
		ck_assert_msg(is_ascii(cmd.out), "%zu: %s", i, cmd.out);
		setenv("LC_ALL", "C", 1);
		RUNS(0, &cmd, "latchkey", "show", name);
		ck_assert_msg(is_ascii(cmd.out), "%zu: %s", i, cmd.out);
		RUNS(1, &cmd, "latchkey", "latch", "down", name);
		ck_assert_msg(is_ascii(cmd.err), "%zu: %s", i, cmd.err);
	}
	server_stop(&server);
}

TEST(table_is_aligned_by_columns)
{
	const char *wide, *plain;

	begin();
	setenv("LC_ALL", "C.UTF-8", 1);
	RUNS(0, &cmd, "latchkey", "latch", "set", "\u65e5\u672ce\u0301", "3");
	RUNS(0, &cmd, "latchkey", "latch", "set", "plain", "3");
	RUNS(0, &cmd, "latchkey", "show");
	plain = strstr(cmd.out, "\nplain                    latch ");
	wide = strstr(cmd.out, "\n\u65e5\u672ce\u0301                    latch ");
	ck_assert_msg(plain && wide, "%s", cmd.out);
	RUNS(0, &cmd, "latchkey", "show", "--json");
	ck_assert(is_ascii(cmd.out));
	server_stop(&server);
}

TEST(show_tells_the_right_it_lacks)
{
	struct redis *redis;
	char url[100];

	begin();
	redis = redis_open(&server);
	redis_do(redis, "ACL SETUSER job on >word ~* &* +@all -scan");
	snprintf(url, sizeof(url), "redis://job:word@127.0.0.1:%d?grace=0", server.port);
	setenv("LATCHKEY_URL", url, 1);
	RUNS(69, &cmd, "latchkey", "show");
	ck_assert_ptr_nonnull(strstr(cmd.err, "cannot list names: grant +scan"));
	RUNS(0, &cmd, "latchkey", "show", "a");
	redis_do(redis, "ACL SETUSER job +scan -info");
	RUN(&cmd, "latchkey", "doctor");
	ck_assert_int_le(WEXITSTATUS(cmd.status), 2);
	ck_assert_ptr_nonnull(strstr(cmd.out, "cannot tell"));
	ck_assert_ptr_nonnull(strstr(cmd.out, "+info"));
	redis_close(redis);
	server_stop(&server);
}

TEST(what_others_see_holds_no_argument)
{
	begin();
	START(&holder, "latchkey", "lock", "a", "sh", "-c", "sleep 84; : secret");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 1));
	ck_assert(WITHIN(3000, RUN(&cmd, "latchkey", "show", "--json", "a") == 0 &&
	                               strstr(cmd.out, "\"label\":\"sh\"")));
	ck_assert_ptr_null(strstr(cmd.out, "secret"));
	server_stop(&server);
}

TEST(break_takes_the_lock)
{
	char id[64];
	const char *at;

	begin();
	RUNS(1, &cmd, "latchkey", "break", "a");
	ck_assert_str_eq(cmd.err, "latchkey: cannot break \"a\": not held\n");
	hold("a", "holder");
	RUNS(1, &cmd, "latchkey", "break", "--if-holder", "AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAA",
	     "a");
	ck_assert_ptr_nonnull(strstr(cmd.err, "the holder is another"));
	RUNS(0, &cmd, "latchkey", "show", "a");
	at = strstr(cmd.out, "holder   ");
	ck_assert_ptr_nonnull(at);
	snprintf(id, sizeof(id), "%.*s", (int)strcspn(at + 9, "\n"), at + 9);
	RUNS(0, &cmd, "latchkey", "break", "--if-holder", id, "a");
	ck_assert(command_wait(&holder, 5000));
	ck_assert_int_eq(WEXITSTATUS(holder.status), 79);
	RUNS(0, &cmd, "latchkey", "lock", "-n", "a", "true");
	server_stop(&server);
}

TEST(local_starts_once_and_stops)
{
	struct command two[2];
	char first[64];

	command_setup(NULL);
	RUNS(1, &cmd, "latchkey", "local", "status");
	ck_assert_ptr_nonnull(strstr(cmd.out, "not running\nsocket  "));
	/* Two concurrent starts: one server, both use it. */
	for (int i = 0; i < 2; i++)
		START(&two[i], "latchkey", "lock", "a", "-c", "latchkey local status | head -1");
	for (int i = 0; i < 2; i++) {
		ck_assert(command_wait(&two[i], 10000));
		ck_assert_int_eq(WEXITSTATUS(two[i].status), 0);
	}
	ck_assert_str_eq(two[0].out, two[1].out);
	snprintf(first, sizeof(first), "%.60s", two[0].out);
	ck_assert(!strncmp(first, "running, pid ", 13));
	/* The same server with an empty environment. */
	ck_assert_int_eq(shell("env -i LATCHKEY_LOCAL_DIR=$LATCHKEY_LOCAL_DIR %s lock a "
	                       "%s local status | head -1 >%s",
	                       command_path(), command_path(), command_file("env")),
	                 0);
	ck_assert_str_eq(command_read("env"), first);
	RUNS(0, &cmd, "latchkey", "local", "start");
	ck_assert(!strncmp(cmd.out, first, strlen(first)));
	RUNS(0, &cmd, "latchkey", "local", "stop");
	RUNS(1, &cmd, "latchkey", "local", "status");
	RUNS(0, &cmd, "latchkey", "local", "stop");
	ck_assert_ptr_nonnull(strstr(cmd.err, "not running"));
}

static bool is_held(const char *name)
{
	return RUN(&cmd, "latchkey", "show", name) == 0;
}

/* A stop is done even while others hold something, with a message.  Their clients start the server
 * again, and reclaim their holds; a latch is lost. */
TEST(local_stop_says_what_was_in_use)
{
	static const char message[] = "latchkey: local: server was stopped in use: locks "
				      "held 1, permits and turns in use 2, latches counting 1\n";
	struct command two;

	command_setup(NULL);
	START(&holder, "latchkey", "lock", "--lease", "4", "a", "sleep", "85");
	START(&two, "latchkey", "sem", "--lease", "4", "--permits", "3", "-k", "2", "s", "sleep",
	      "85");
	ck_assert(WITHIN(5000, command_count_of("sleep") == 2));
	for (int quiet = 0; quiet < 2; quiet++) {
		RUNS(0, &cmd, "latchkey", "latch", "set", "l", "3");
		RUNS(0, &cmd, "latchkey", "latch", "set", "open", "0");
		RUNS(0, &cmd, "latchkey", "local", "stop", quiet ? "-q" : "-v");
		ck_assert_str_eq(cmd.out, "");
		ck_assert_str_eq(cmd.err, quiet ? "" : message);
		ck_assert(WITHIN(5000, is_held("a") && is_held("s")));
		ck_assert_int_eq(command_count_of("sleep"), 2);
	}
	ck_assert_int_eq(command_signal_of("sleep", SIGTERM), 2);
	ck_assert(command_wait(&holder, 5000) && command_wait(&two, 5000));
	ck_assert_int_eq(WEXITSTATUS(holder.status), 128 + SIGTERM);
	ck_assert_int_eq(WEXITSTATUS(two.status), 128 + SIGTERM);
	RUNS(0, &cmd, "latchkey", "local", "stop");
	ck_assert_str_eq(cmd.err, "");
	/* The server of that stop was one that may have forgotten a holder. */
	RUNS(75, &cmd, "latchkey", "lock", "-n", "a", "true");
	RUNS(0, &cmd, "latchkey", "lock", "--url", "local:?grace=0", "a", "true");
	RUNS(0, &cmd, "latchkey", "local", "stop");
}

/* With nothing in use, the next use does not wait. */
TEST(local_stop_of_an_idle_server_causes_no_wait)
{
	command_setup(NULL);
	for (int round = 0; round < 3; round++) {
		RUNS(0, &cmd, "latchkey", "lock", "-n", "a", "true");
		RUNS(0, &cmd, "latchkey", "sem", "-n", "--permits", "3", "s", "true");
		RUNS(0, &cmd, "latchkey", "local", "stop");
		ck_assert_str_eq(cmd.err, "");
	}
}

TEST(local_server_keeps_no_descriptor_of_its_starter)
{
	command_setup(NULL);
	/* Otherwise a reader of the command's output would wait for the server's end. */
	ck_assert_int_eq(shell("test \"$(latchkey local start | head -1 | cut -c1-7)\" = running"),
	                 0);
	ck_assert_int_eq(
		shell("exec 9>%s; latchkey lock a true; latchkey local status >/dev/null && "
	              "pid=$(latchkey local status | sed -n 's/.*pid //p') && "
	              "! ls -l /proc/$pid/fd | grep -q %s",
	              command_file("nine"), command_file("nine")),
		0);
	RUNS(0, &cmd, "latchkey", "local", "stop");
}

TEST(doctor_statuses)
{
	struct redis *redis;

	begin();
	ck_assert_int_le(RUN(&cmd, "latchkey", "doctor"), 1);
	ck_assert_ptr_nonnull(strstr(cmd.out, "ok       reachable"));
	ck_assert_ptr_nonnull(strstr(cmd.out, "fit for locks"));
	redis = redis_open(&server);
	redis_do(redis, "CONFIG SET maxmemory-policy allkeys-lru");
	redis_do(redis, "CONFIG SET maxmemory 100mb");
	redis_close(redis);
	RUNS(2, &cmd, "latchkey", "doctor");
	ck_assert_ptr_nonnull(strstr(cmd.out, "unfit    eviction"));
	ck_assert_ptr_nonnull(strstr(cmd.out, "cure: "));
	RUNS(2, &cmd, "latchkey", "doctor", "-q");
	ck_assert_ptr_null(strstr(cmd.out, "ok  "));
	server_stop(&server);
	RUNS(2, &cmd, "latchkey", "doctor");
	ck_assert_ptr_nonnull(strstr(cmd.out, "unfit    reachable"));
}

/* /etc/latchkey belongs to the system: the test uses a mount namespace with this directory as its
 * /etc, and this line in latchkey/url. */
static void make_etc(const char *line)
{
	ck_assert(!mkdir(command_file("etc"), 0755));
	ck_assert(!mkdir(command_file("etc/latchkey"), 0755));
	ck_assert_int_eq(shell("cp -L /etc/passwd /etc/group /etc/hosts /etc/nsswitch.conf "
	                       "/etc/ld.so.cache %s 2>/dev/null; echo '%s' >%s",
	                       command_file("etc"), line, command_file("etc/latchkey/url")),
	                 0);
}

TEST(store_is_chosen_by_option_environment_file)
{
	static struct test_server second;
	char line[128];

	NEEDS_MOUNTS;
	begin();
	server_start(&second, NULL);
	snprintf(line, sizeof(line), "  %s  ", second.url);
	make_etc(line);
	/* Held in the second store: a command that finds it busy used that store. */
	command_hold(&holder, "lock --url '%s' a sleep 83", second.url);
	ck_assert_int_eq(shell("unshare %s --mount sh -c 'mount --bind %s /etc && "
	                       "latchkey lock -n a true && "
	                       "unset LATCHKEY_URL && ! latchkey lock -nq a true && "
	                       "! LATCHKEY_URL= latchkey lock -nq a true && "
	                       "latchkey lock -n --url %s a true && "
	                       "{ : >/etc/latchkey/url; latchkey lock -n a true; } && "
	                       "latchkey local stop && rm /etc/latchkey/url && mkdir "
	                       "/etc/latchkey/url && ! latchkey lock a true 2>%s'",
	                       unshare_right(), command_file("etc"), server.url,
	                       command_file("err")),
	                 0);
	ck_assert_ptr_nonnull(strstr(command_read("err"), "cannot read /etc/latchkey/url"));
	server_stop(&second);
	server_stop(&server);
}

/* Run a command in the test's /etc, without LATCHKEY_URL unless it sets the variable itself. */
static int in_etc(const char *words)
{
	return shell("unshare %s --mount sh -c 'mount --bind %s /etc && unset LATCHKEY_URL && "
	             "%s' >%s 2>%s",
	             unshare_right(), command_file("etc"), words, command_file("out"),
	             command_file("err"));
}

/* By the word in the file, or by the variable: no lock is acquired, and the message names the
 * setting. */
TEST(default_store_can_be_forbidden)
{
	static const char *const by_variable[] = {"LATCHKEY_NO_LOCAL=1", "LATCHKEY_NO_LOCAL=yes"};
	static const char *const refused[] = {"lock -nq a true", "rate --limit 1 --per 1 a",
	                                      "latch show a", "show", "doctor -q"};
	char words[256];

	NEEDS_MOUNTS;
	begin();
	make_etc("none");
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		snprintf(words, sizeof(words), "latchkey %s", refused[i]);
		ck_assert_int_eq(in_etc(words), 64);
		ck_assert_str_eq(command_read("out"), "");
		ck_assert_ptr_nonnull(strstr(command_read("err"), "latchkey: no store is named"));
		ck_assert_ptr_nonnull(strstr(command_read("err"), "LATCHKEY_URL"));
		ck_assert_ptr_nonnull(strstr(command_read("err"), "\"none\" in /etc/latchkey/url"));
	}
	/* Every explicit store works, including local:. */
	ck_assert_int_eq(in_etc("latchkey lock -n --url local: a true && "
	                        "LATCHKEY_URL=local: latchkey lock -n a true && "
	                        "latchkey local status && latchkey local stop"),
	                 0);
	snprintf(words, sizeof(words), "latchkey lock -n --url %s a true", server.url);
	ck_assert_int_eq(in_etc(words), 0);

	for (size_t i = 0; i < sizeof(by_variable) / sizeof(by_variable[0]); i++) {
		snprintf(words, sizeof(words), ": >/etc/latchkey/url; %s latchkey lock -nq a true",
		         by_variable[i]);
		ck_assert_int_eq(in_etc(words), 64);
		ck_assert_ptr_nonnull(strstr(command_read("err"), "LATCHKEY_NO_LOCAL forbids"));
	}
	ck_assert_int_eq(in_etc("echo local: >/etc/latchkey/url; "
	                        "LATCHKEY_NO_LOCAL=1 latchkey lock -n a true && "
	                        "latchkey local stop"),
	                 0);
	/* A variable set to 0, or empty, counts as unset. */
	ck_assert_int_eq(in_etc("rm /etc/latchkey/url; "
	                        "LATCHKEY_NO_LOCAL=0 latchkey lock -n a true && "
	                        "LATCHKEY_NO_LOCAL= latchkey lock -n a true && "
	                        "latchkey local stop"),
	                 0);
	server_stop(&server);
}

TEST(doctor_says_that_no_store_is_named)
{
	NEEDS_MOUNTS;
	begin();
	make_etc("");
	ck_assert_int_eq(in_etc("latchkey doctor"), 1);
	ck_assert_ptr_nonnull(strstr(command_read("out"), "warning  store"));
	ck_assert_ptr_nonnull(strstr(command_read("out"), "LATCHKEY_NO_LOCAL=1"));
	ck_assert_ptr_nonnull(strstr(command_read("out"), "fit for locks, with warnings"));
	ck_assert_int_eq(in_etc("LATCHKEY_URL=local: latchkey doctor; latchkey local stop"), 0);
	ck_assert_ptr_null(strstr(command_read("out"), "warning  store"));
	server_stop(&server);
}

/* Every verb that uses a store. */
static const char *const asking[] = {
	"lock a true",
	"sem --permits 2 a true",
	"rate --limit 2 --per 1 a",
	"latch set a 1",
	"latch down a",
	"latch wait -n a",
	"latch show a",
	"latch rm a",
	"show",
	"show a",
	"break a",
	"doctor",
};
#define ASKING (sizeof(asking) / sizeof(asking[0]))

static void assert_blames(const char *line, const char *origin, const char *fault)
{
	char expected[128];

	snprintf(expected, sizeof(expected), ": %s: %s", origin, fault);
	ck_assert_msg(RUN(&cmd, "sh", "-c", line) == 64, "%s: status %x", line, cmd.status);
	ck_assert_msg(strstr(cmd.err, expected) != NULL, "%s: %s", line, cmd.err);
	ck_assert_msg(!strstr(cmd.err, "s3cret"), "%s: %s", line, cmd.err);
}

TEST(bad_url_names_where_it_came_from)
{
	char line[1024], *url;

	command_setup("redis://job:s3cret@127.0.0.1:99999");
	for (size_t i = 0; i < ASKING; i++) {
		snprintf(line, sizeof(line), "latchkey %s", asking[i]);
		assert_blames(line, "LATCHKEY_URL", "port: must be 1 to 65535");
		snprintf(line, sizeof(line), "latchkey --url redi://s3cret@127.0.0.1 %s",
		         asking[i]);
		assert_blames(line, "--url", "scheme: must be redis://");
	}
	setenv("LATCHKEY_URL", "redis://job@127.0.0.1:1", 1);
	assert_blames("latchkey show a", "LATCHKEY_URL", "password: missing");
	url = malloc(5001);
	memset(url, 'x', 5000);
	url[5000] = 0;
	setenv("LATCHKEY_URL", url, 1);
	assert_blames("latchkey show a", "LATCHKEY_URL", "longer than");
	free(url);
	/* The message names the variable only for errors of the URL. */
	setenv("LATCHKEY_URL", "redis://127.0.0.1:1", 1);
	RUNS(69, &cmd, "latchkey", "show", "a");
	ck_assert_ptr_null(strstr(cmd.err, "LATCHKEY_URL"));
	unsetenv("LATCHKEY_URL");
	NEEDS_MOUNTS;
	ck_assert(!mkdir(command_file("etc"), 0755));
	ck_assert(!mkdir(command_file("etc/latchkey"), 0755));
	ck_assert_int_eq(shell("cp -L /etc/ld.so.cache %s 2>/dev/null; "
	                       "echo redis://:s3cret@127.0.0.1:99999 >%s",
	                       command_file("etc"), command_file("etc/latchkey/url")),
	                 0);
	for (size_t i = 0; i < ASKING; i++) {
		snprintf(line, sizeof(line),
		         "unshare %s --mount sh -c 'mount --bind %s /etc && latchkey %s'",
		         unshare_right(), command_file("etc"), asking[i]);
		assert_blames(line, "/etc/latchkey/url", "port: must be 1 to 65535");
	}
}

TEST(password_file_that_has_none_is_refused_at_once)
{
	int64_t start_ms;

	begin();
	start_ms = now_ms();
	ck_assert_int_eq(shell("mkfifo %s && LATCHKEY_PASSWORD_FILE=%s latchkey lock -n a true",
	                       command_file("fifo"), command_file("fifo")),
	                 64);
	ck_assert_int_eq(shell(": >%s && LATCHKEY_PASSWORD_FILE=%s latchkey lock -n a true",
	                       command_file("empty"), command_file("empty")),
	                 64);
	ck_assert_int_le(now_ms() - start_ms, 5000);
}

/* Lost output must not look like an empty answer, for any verb. */
TEST(full_output_is_said_by_every_verb_that_prints)
{
	static const char *const lines[] = {
		"help",
		"--help",
		"help lock",
		"--version",
		"show",
		"show a",
		"show --json",
		"show --json a",
		"show l",
		"latch show l",
		"latch reset l 3",
		"latch down l",
		"latch show --json l",
		"doctor",
		"local status",
		"local start",
	};

	begin();
	hold("a", "x");
	RUNS(0, &cmd, "latchkey", "latch", "set", "l", "5");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char line[128];
		int status;
		snprintf(line, sizeof(line), "latchkey %s >/dev/full", lines[i]);
		status = RUN(&cmd, "sh", "-c", line);
		ck_assert_msg(status == 71, "%s: status %d", line, status);
		ck_assert_msg(!strcmp(cmd.err, "latchkey: cannot write the output: No space left "
		                               "on device\n"),
		              "%s: %s", line, cmd.err);
	}
	/* The step was counted nevertheless. */
	RUNS(0, &cmd, "latchkey", "show", "l");
	ck_assert_ptr_nonnull(strstr(cmd.out, "remain   2 of 3"));
	RUNS(0, &cmd, "latchkey", "local", "stop");
	server_stop(&server);
}
