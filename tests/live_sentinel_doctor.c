/* SPDX-License-Identifier: MIT
 * lk_doctor() on a service of Sentinel: its sentinels, its replicas and what a failover does, on a
 * real set-up; and with made-up sentinels that refuse, as those of managed services do. */
#include "harness/fake_sentinel.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/sentinel_setup.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define TEXT_SIZE 16384

static struct sentinel_setup setup;
static char text[TEXT_SIZE]; /* a line for each finding: "FITNESS topic: text [cure]" */

static void keep(void *arg, const lk_finding *finding)
{
	size_t len = strlen(text);

	(void)arg;
	snprintf(text + len, TEXT_SIZE - len, "%d %s: %s [%s]\n", finding->fitness, finding->topic,
	         finding->text, finding->cure);
}

static void examine(const char *url, const char *query)
{
	char whole[300];

	snprintf(whole, sizeof(whole), "%s%s", url, query);
	text[0] = '\0';
	OK(lk_doctor(whole, NULL, keep, NULL, NULL));
}

/* Is there a line that begins so and has that part? */
static bool has(const char *begins, const char *part)
{
	for (char *at = text; *at; at += strcspn(at, "\n") + 1) {
		char line[2400];
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (!strncmp(line, begins, strlen(begins)) && strstr(line, part))
			return true;
	}
	return false;
}

static void expect(const char *begins, const char *part)
{
	ck_assert_msg(has(begins, part), "no \"%s...%s\" in:\n%s", begins, part, text);
}

static void expect_none(const char *part)
{
	ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in:\n%s", part, text);
}

/* On the server or sentinel. */
static void run(const struct test_server *server, const char *command)
{
	struct redis *redis = redis_open(server);
	char reply[200];

	snprintf(reply, sizeof(reply), "%s", redis_text(redis, command));
	redis_close(redis);
	ck_assert_str_eq(reply, "OK");
}

static void run_at_sentinels(const char *command)
{
	for (int i = 0; i < SETUP_SENTINELS; i++)
		run(&setup.sentinels[i], command);
}

static void start(void)
{
	static const char *const args[] = {"--min-replicas-to-write", "1", "--min-replicas-max-lag",
	                                   "2", NULL};

	sentinel_setup_start(&setup,
	                     &(struct sentinel_setup_options){.down_after_ms = 3000, .args = args});
}

TEST_LIMIT(healthy_service_is_fit, 40)
{
	char place[100];

	start();
	examine(setup.url, "");
	snprintf(place, sizeof(place), "127.0.0.1:%d", setup.servers[0].port);
	expect("0 sentinels: 3, quorum 2, and all 3 of the URL name ", place);
	expect("0 topology: master main at ", place);
	expect("0 topology: ", "2 replicas: 127.0.0.1:");
	expect("0 failover: a master that is cut off refuses locks after 2 s", "");
	expect("0 failover: if the master crashes, it is replaced after about 6 s", "10.0 s");
	expect("0 replicas: 2: after a failover holders take", "");
	for (int fitness = 1; fitness <= 2; fitness++)
		for (int i = 0; i < 4; i++) {
			static const char *const topics[] = {"sentinels", "topology", "failover",
			                                     "replicas"};
			char begins[40];
			snprintf(begins, sizeof(begins), "%d %s", fitness, topics[i]);
			ck_assert_msg(!has(begins, ""), "%s", text);
		}
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(plain_url_of_a_sentinel_is_unfit, 40)
{
	char plain[60];

	start();
	snprintf(plain, sizeof(plain), "redis://127.0.0.1:%d", setup.sentinels[0].port);
	examine(plain, "");
	expect("2 reachable: ", "is a sentinel [write redis+sentinel://127.0.0.1:");
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1); /* nothing else */
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(settings_of_servers_are_compared_with_those_of_sentinels, 60)
{
	start();
	run(&setup.servers[0], "CONFIG SET min-replicas-max-lag 3");
	examine(setup.url, "?grace=5000");
	expect("1 failover: min-replicas-max-lag is 3 s, down-after-milliseconds 3000", "[CONFIG");
	expect("1 failover: a grace of 5000 ms covers leases that are 3 s shorter", "[remove");
	run(&setup.servers[0], "CONFIG SET min-replicas-to-write 2");
	examine(setup.url, "?grace=3000");
	expect("1 failover: min-replicas-to-write is 2 of 2", "[add a replica]");
	expect("2 failover: a grace of 3000 ms covers no lease", "[remove");
	run(&setup.servers[0], "CONFIG SET min-replicas-to-write 3");
	examine(setup.url, "?grace=0");
	expect("2 failover: min-replicas-to-write is 3, but 2 replicas are in sync", "[start");
	expect("2 failover: no grace", "[remove grace=0");
	run(&setup.servers[0], "CONFIG SET min-replicas-to-write 0");
	run(&setup.sentinels[0], "SENTINEL SET main down-after-milliseconds 30000");
	examine(setup.url, "");
	expect("1 failover: min-replicas-to-write is 0", "min-replicas-max-lag 2, and the same");
	expect("1 failover: if the master crashes, it is replaced after about 33 s",
	       "SENTINEL SET main down-after-milliseconds 3000;");
	expect("1 sentinels: they differ in their settings", "[compare SENTINEL MASTER");
	sentinel_setup_stop(&setup);
}

/* With all of them, nothing counts that a master grants while it is cut off. */
TEST_LIMIT(replicas_that_confirm_grants_are_enough_if_they_are_all, 60)
{
	start();
	run(&setup.servers[0], "CONFIG SET min-replicas-to-write 0");
	examine(setup.url, "?replicas=2");
	expect("0 failover: all 2 replicas confirm each grant: a master that is cut off from one ",
	       "grants no locks");
	expect_none("1 failover");
	expect("0 replicas: all 2 confirm each grant", "");
	examine(setup.url, "?replicas=1");
	expect("1 failover: min-replicas-to-write is 0", "or replicas=2 in the URL");
	expect("0 replicas: 1 of 2 confirm each grant", "");
	run(&setup.servers[0], "CONFIG SET min-replicas-to-write 1");
	run(&setup.servers[0], "CONFIG SET min-replicas-max-lag 3");
	examine(setup.url, "?replicas=2");
	expect("0 failover: all 2 replicas confirm", "");
	expect_none("1 failover");
	examine(setup.url, "?replicas=2&grace=0");
	expect("2 failover: no grace: a master that restarts with older data", "");
	examine(setup.url, "?replicas=1");
	expect("1 failover: min-replicas-max-lag is 3 s", "");
	/* The one that is gone may come back, and lead. */
	server_kill(&setup.servers[2]);
	run(&setup.servers[0], "CONFIG SET min-replicas-to-write 0");
	examine(setup.url, "?replicas=1");
	expect("1 failover: min-replicas-to-write is 0", "");
	expect("0 replicas: 1 of 2 confirm each grant", "");
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(sentinels_that_cannot_decide_are_unfit, 60)
{
	char one[100];

	start();
	run_at_sentinels("SENTINEL SET main quorum 1");
	snprintf(one, sizeof(one), "redis+sentinel://127.0.0.1:%d/main", setup.sentinels[0].port);
	examine(one, "");
	expect("1 sentinels: the quorum is 1 of 3", "SENTINEL SET main quorum 2]");
	expect("1 sentinels: the URL names 1 of 3", "[name at least 3");
	run_at_sentinels("SENTINEL SET main quorum 4");
	examine(one, "");
	expect("2 sentinels: the quorum is 4 of 3", "SENTINEL SET main quorum 2]");
	run_at_sentinels("SENTINEL SET main quorum 2");
	snprintf(one, sizeof(one), "redis+sentinel://127.0.0.1:%d/mymaster",
	         setup.sentinels[0].port);
	examine(one, "");
	expect("1 sentinels: sentinel 127.0.0.1:", "knows no such service, but main [let it");
	server_kill(&setup.sentinels[1]);
	examine(setup.url, "");
	expect("1 sentinels: 127.0.0.1:", "connection refused [start it");
	server_kill(&setup.sentinels[2]);
	ck_assert(WITHIN(15000, (examine(setup.url, ""), has("2 sentinels: ", "NOQUORUM"))));
	expect("2 sentinels: the master would not be replaced: NOQUORUM", "[start the others]");
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(replicas_that_do_not_follow_are_warned_of, 60)
{
	start();
	server_pause(&setup.servers[1]);
	ck_assert(WITHIN(15000, (examine(setup.url, ""), has("1 topology: ", "nothing for"))));
	expect("1 topology: replica 127.0.0.1:", "has confirmed nothing for ");
	server_kill(&setup.servers[2]);
	examine(setup.url, "");
	expect("1 topology: the sentinels know 2 replicas, 1 are connected", "SENTINEL RESET");
	sentinel_setup_stop(&setup);
}

/* ---- Made-up sentinels -------------------------------------------------------------------- */

#define FAKES 3

static struct fake_sentinel fakes[FAKES];
static struct test_server server;
static char url[200];

#define PAIR(name, name_len, value) "$" #name_len "\r\n" name "\r\n$1\r\n" value "\r\n"
#define FACTS(others)                                                                              \
	"*8\r\n" PAIR("quorum", 6, "1") PAIR("num-other-sentinels", 19, others)                    \
		PAIR("num-slaves", 10, "0") PAIR("down-after-milliseconds", 23, "5")

static void start_fakes(const char *const *args)
{
	server_start(&server, &(struct server_options){.args = args});
	for (int i = 0; i < FAKES; i++)
		fake_sentinel_start(&fakes[i], 0, server.port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/s",
	         fakes[0].port, fakes[1].port, fakes[2].port);
}

static void stop_fakes(void)
{
	for (int i = 0; i < FAKES; i++)
		fake_sentinel_stop(&fakes[i]);
	server_stop(&server);
}

TEST(refused_commands_leave_what_cannot_be_told)
{
	static const char *const args[] = {"--rename-command", "CONFIG", "", NULL};
	char user[300];

	start_fakes(args);
	examine(url, "");
	expect("1 sentinels: cannot tell how many there are, and their quorum", "MASTER");
	expect("1 failover: cannot tell if leases outlast a failover", "[let a sentinel");
	/* INFO shows it without CONFIG. */
	expect("1 failover: min-replicas-to-write is 0", "max-lag 10, and the same");
	expect("1 topology: master s at 127.0.0.1:", "has no replica");
	for (int i = 0; i < FAKES; i++)
		fakes[i].facts = "-NOPERM this user has no permissions\r\n";
	run(&server, "ACL SETUSER ann on >x ~* &* +@all -info");
	snprintf(user, sizeof(user), "redis+sentinel://ann:x@%s", strstr(url, "127"));
	examine(user, "");
	expect("1 sentinels: cannot tell", "ACL SETUSER default +sentinel|master");
	expect("1 topology: cannot tell how long replicas have been silent", "[grant +info]");
	expect("1 failover: cannot tell: ", "CONFIG");
	run(&server, "ACL SETUSER ann -role");
	examine(user, "");
	expect("1 topology: cannot tell: neither INFO nor ROLE shows the replicas",
	       "[grant +info]");
	stop_fakes();
}

TEST(few_and_contradicting_sentinels_are_reported)
{
	char first[100];

	start_fakes(NULL);
	for (int i = 0; i < FAKES; i++)
		fakes[i].facts = FACTS("0");
	examine(url, "");
	expect("2 sentinels: only 1: cut off from a working master", "[run at least 3");
	for (int i = 0; i < FAKES; i++)
		fakes[i].facts = FACTS("1");
	fake_sentinel_name(&fakes[0], "127.0.0.1", 1);
	examine(url, "");
	expect("1 sentinels: only 2: if one fails", "[run at least 3");
	/* The first one is outvoted. */
	snprintf(first, sizeof(first), "s at 127.0.0.1:%d answers", server.port);
	expect("0 reachable: ", first);
	expect("2 sentinels: they do not agree: ", "names 127.0.0.1:1 [examine again");
	fakes[1].unaware = true;
	examine(url, "");
	expect("1 sentinels: sentinel 127.0.0.1:", "knows no such service [let it monitor");
	stop_fakes();
}

TEST(service_without_a_master_has_every_topic)
{
	start_fakes(NULL);
	for (int i = 0; i < FAKES; i++)
		fakes[i].unaware = true;
	examine(url, "");
	expect("2 reachable: s: sentinel 127.0.0.1:", "knows no such service");
	expect("2 sentinels: none of 3 names a master", "");
	expect("1 topology: cannot tell", "");
	expect("1 failover: cannot tell", "");
	expect_none("tls:");
	stop_fakes();
}

TEST(replica_that_sentinels_name_is_unfit)
{
	start_fakes(NULL);
	run(&server, "ACL SETUSER ann on >x ~* &* +@all");
	run(&server, "REPLICAOF 127.0.0.1 1");
	examine(url, "");
	expect("2 topology: ", "has the role \"slave\"");
	stop_fakes();
}
