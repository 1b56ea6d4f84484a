/* SPDX-License-Identifier: MIT
 * lk_doctor(): each finding, on a server that was set up to cause it. */
#include <latchkey.h>

#include "redis/doctor.h"
#include "scripts.h"

#include "handles.h"
#include "peer.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Helpers ------------------------------------------------------------------------------ */

static const char *const topics[] = {"reachable", "version",  "latency", "eviction", "persistence",
                                     "memory",    "replicas", "rights",  "clock",    "patterns"};
#define TOPIC_COUNT (sizeof(topics) / sizeof(topics[0]))
#define FINDINGS_MAX 32

struct report {
	size_t count;
	struct {
		lk_fitness fitness;
		char topic[16];
		char text[1100];
		char cure[1100];
	} findings[FINDINGS_MAX];
	lk_fitness worst;
};

static void keep(void *arg, const lk_finding *finding)
{
	struct report *report = arg;

	ck_assert_uint_lt(report->count, FINDINGS_MAX);
	report->findings[report->count].fitness = finding->fitness;
	snprintf(report->findings[report->count].topic, 16, "%s", finding->topic);
	snprintf(report->findings[report->count].text, 1100, "%s", finding->text);
	snprintf(report->findings[report->count].cure, 1100, "%s", finding->cure);
	for (const char *at = finding->text; *at; at++)
		ck_assert(*at >= 0x20 && *at < 0x7f);
	report->count++;
}

/* The report, in static memory.  It has every topic, and worst is the worst of them. */
static const struct report *examine(const char *url)
{
	static struct report report;
	lk_fitness worst = LK_FIT;

	memset(&report, 0, sizeof(report));
	OK(lk_doctor(url, NULL, keep, &report, &report.worst));
	for (size_t i = 0; i < report.count; i++)
		if (report.findings[i].fitness > worst)
			worst = report.findings[i].fitness;
	ck_assert_int_eq(report.worst, worst);
	for (size_t t = 0; t < TOPIC_COUNT; t++) {
		bool there = false;
		for (size_t i = 0; i < report.count; i++)
			there = there || !strcmp(report.findings[i].topic, topics[t]);
		ck_assert_msg(there, "nothing about %s", topics[t]);
	}
	return &report;
}

static void print_report(const struct report *report)
{
	for (size_t i = 0; i < report->count; i++)
		printf("  %d %s: %s [%s]\n", report->findings[i].fitness, report->findings[i].topic,
		       report->findings[i].text, report->findings[i].cure);
}

/* The topic has a finding of this fitness, with these words in its text and in its cure. */
static void expect(const struct report *report, const char *topic, lk_fitness fitness,
                   const char *text, const char *cure)
{
	for (size_t i = 0; i < report->count; i++)
		if (!strcmp(report->findings[i].topic, topic) &&
		    report->findings[i].fitness == fitness &&
		    strstr(report->findings[i].text, text) &&
		    strstr(report->findings[i].cure, cure))
			return;
	print_report(report);
	ck_abort_msg("no finding %d %s: %s [%s]", fitness, topic, text, cure);
}

static void start_with(struct test_server *server, const char *const *args)
{
	struct server_options options = {.args = args};

	server_start(server, &options);
}

/* A URL for user ann, password x. */
static const char *ann_at(const struct test_server *server)
{
	static char url[100];

	snprintf(url, sizeof(url), "redis://ann:x@127.0.0.1:%d", server->port);
	return url;
}

/* Give the user ann exactly these rights. */
static void grant(struct redis *redis, const char *rules)
{
	char line[700];

	snprintf(line, sizeof(line), "ACL SETUSER ann reset on >x %s", rules);
	redis_do(redis, line);
}

/* ---- Fit, unreachable --------------------------------------------------------------------- */

TEST(doctor_finds_a_durable_server_fit_and_leaves_nothing_there)
{
	struct server_options options = {.appendonly = true};
	const struct report *report;
	struct test_server server;
	struct redis *redis;

	server_start(&server, &options);
	redis = redis_open(&server);
	redis_do(redis, "SET lk:fence 12345");
	*strchr(server.url, '?') = '\0'; /* with a grace */
	report = examine(server.url);
	if (report->worst != LK_FIT)
		print_report(report);
	ck_assert_int_eq(report->worst, LK_FIT);
	ck_assert_uint_eq(report->count, TOPIC_COUNT + 1); /* the clock's deviation, and its rate */
	for (size_t i = 0; i < report->count; i++)
		ck_assert_str_eq(report->findings[i].cure, "");
	ck_assert_str_eq(redis_text(redis, "KEYS *"), "lk:fence");
	ck_assert_str_eq(redis_text(redis, "GET lk:fence"), "12345");
	ck_assert_int_eq(redis_int(redis, "TTL lk:fence"), -1);
	ck_assert_int_eq(redis_info(redis, "number_of_cached_scripts"), 0);
	ck_assert(WITHIN(1000, redis_info(redis, "connected_clients") == 1));
	redis_close(redis);
	server_stop(&server);
}

TEST(doctor_without_a_callback_tells_the_worst)
{
	struct test_server server;
	lk_fitness worst = LK_UNFIT;

	server_start(&server, NULL);
	OK(lk_doctor(server.url, NULL, NULL, NULL, &worst));
	ck_assert_int_eq(worst, LK_FIT_WARN);
	server_stop(&server);
}

TEST(doctor_refuses_a_wrong_url)
{
	lk_fitness worst = LK_FIT;

	EXPECT(lk_doctor("http://x", NULL, NULL, NULL, &worst), LK_EINVALID);
	ck_assert_str_ne(lk_errmsg(), "");
}

TEST(unreachable_server_is_a_finding)
{
	const struct report *report;
	char url[64], text[100];

	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port_pick());
	snprintf(text, sizeof(text), "%s: connection refused", url + 8);
	report = examine(url);
	expect(report, "reachable", LK_UNFIT, text, "start the server");
	for (size_t i = 1; i < TOPIC_COUNT; i++)
		expect(report, topics[i], LK_FIT_WARN, "cannot tell", "");
}

TEST(refused_credentials_are_a_finding)
{
	struct test_server server;
	char url[100];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis://ann:hidden@127.0.0.1:%d", server.port);
	expect(examine(url), "reachable", LK_UNFIT, "WRONGPASS", "a user and a password");
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d/99", server.port);
	expect(examine(url), "reachable", LK_UNFIT, "DB index", "the URL's database");
	server_stop(&server);
}

static void greet_then_silence(int fd, void *arg)
{
	char bytes[1024];

	(void)arg;
	peer_read(fd, bytes, sizeof(bytes));
	peer_send(fd, "+OK\r\n", 5);
	while (peer_read(fd, bytes, sizeof(bytes)))
		continue;
}

TEST(server_that_stops_answering_ends_the_examination_after_one_time_out)
{
	const struct report *report;
	struct peer peer;
	char url[100];
	int64_t start = now_ms();

	peer_start(&peer, greet_then_silence, NULL);
	snprintf(url, sizeof(url), "%s&command_timeout=300", peer.url);
	report = examine(url);
	ck_assert_int_ge(now_ms() - start, 299);
	ck_assert_int_le(now_ms() - start, 1500);
	expect(report, "version", LK_UNFIT, "stopped responding", "find out why");
	expect(report, "rights", LK_FIT_WARN, "cannot tell: the connection was lost", "");
	peer_stop(&peer);
}

/* ---- Version ------------------------------------------------------------------------------ */

struct disguise {
	int port; /* of the real server */
	struct {
		const char *before; /* the text that it reports */
		const char *after;  /* the text that the client receives: of the same length */
	} text[2];
};

/* Forward bytes in both directions, with texts of the server replaced. */
static void disguised(int fd, void *arg)
{
	static char bytes[1 << 17];
	const struct disguise *disguise = arg;
	struct sockaddr_in address = {.sin_family = AF_INET};
	int server = socket(AF_INET, SOCK_STREAM, 0);
	size_t len = 1;

	address.sin_port = htons((uint16_t)disguise->port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert(!connect(server, (struct sockaddr *)&address, sizeof(address)));
	while (len) {
		struct pollfd fds[2] = {{.fd = fd, .events = POLLIN},
		                        {.fd = server, .events = POLLIN}};
		bool from_server;
		if (poll(fds, 2, -1) < 1)
			continue;
		from_server = !fds[0].revents;
		len = peer_read(from_server ? server : fd, bytes, sizeof(bytes) - 1);
		bytes[len] = 0;
		for (int i = 0; from_server && i < 2; i++) {
			char *at = strstr(bytes, disguise->text[i].before);
			if (at)
				memcpy(at, disguise->text[i].after,
				       strlen(disguise->text[i].after));
		}
		peer_send(from_server ? fd : server, bytes, len);
	}
	close(server);
}

TEST(version_is_judged)
{
	static const struct {
		char major_minor[5];
		bool is_valkey;
		lk_fitness fitness;
		const char *text, *cure;
	} cases[] = {
		{"4.0.", false, LK_UNFIT, "Redis 4.0.", "install version 6.2"},
		{"6.0.", false, LK_FIT_WARN, "Redis 6.0.", "install version 6.2"},
		{"6.2.", false, LK_FIT, "Redis 6.2.", ""},
		{"9.1.", false, LK_FIT, "Redis 9.1.", ""},
		{"x\x1b[1", false, LK_UNFIT, "Redis x\\x1b[1", ""},
		{"7.2.", true, LK_FIT, "Valkey ", ""},
	};
	struct test_server server;
	struct redis *redis;
	char before[24] = "redis_version:", after[24] = "redis_version:";
	const char *at;

	server_start(&server, NULL);
	redis = redis_open(&server);
	at = strstr(redis_text(redis, "INFO server"), before);
	ck_assert_ptr_nonnull(at);
	memcpy(before + 14, at + 14, 4);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/* Valkey reports its own version beside the Redis version that it is like. */
		bool is_valkey = cases[i].is_valkey;
		struct disguise disguise = {
			server.port,
			{{before, after},
		         {is_valkey ? "redis_git_sha1:00000000" : "valkey_version:",
		          is_valkey ? "valkey_version:8.1.1.99" : "another_server:"}}};
		struct peer peer;
		memcpy(after + 14, cases[i].major_minor, 4);
		peer_start(&peer, disguised, &disguise);
		expect(examine(peer.url), "version", cases[i].fitness, cases[i].text,
		       cases[i].cure);
		peer_stop(&peer);
	}
	redis_close(redis);
	server_stop(&server);
}

/* ---- Latency, eviction, persistence, replicas ---------------------------------------------- */

TEST(latency_of_a_far_server_is_warned_of)
{
	struct proxy_fault far = {.delay_ms = 70};
	const struct report *report;
	struct test_server server;
	struct proxy proxy;

	server_start(&server, NULL);
	expect(examine(server.url), "latency", LK_FIT, "ms a round trip", "");
	proxy_start(&proxy, &server);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &far);
	report = examine(proxy.url);
	expect(report, "latency", LK_FIT_WARN, "ms a round trip", "a nearer or less busy server");
	expect(report, "clock", LK_FIT, "within", "");
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	proxy_stop(&proxy);
	server_stop(&server);
}

TEST(eviction_that_takes_locks_is_unfit)
{
	static const char *const policies[] = {"allkeys-lru",  "allkeys-lfu",  "allkeys-random",
	                                       "volatile-lru", "volatile-lfu", "volatile-random",
	                                       "volatile-ttl"};
	static const char *const args[] = {"--maxmemory", "100mb", NULL};
	struct test_server server;
	struct redis *redis;

	start_with(&server, args);
	redis = redis_open(&server);
	expect(examine(server.url), "eviction", LK_FIT, "refuses new locks", "");
	redis_do(redis, "CONFIG SET maxmemory 1");
	expect(examine(server.url), "eviction", LK_UNFIT, "is full (1 bytes)",
	       "CONFIG SET maxmemory BYTES");
	redis_do(redis, "CONFIG SET maxmemory 100mb");
	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		redis_do(redis, "CONFIG SET maxmemory-policy %s", policies[i]);
		expect(examine(server.url), "eviction", LK_UNFIT, policies[i],
		       "CONFIG SET maxmemory-policy noeviction");
	}
	redis_do(redis, "CONFIG SET maxmemory 0");
	expect(examine(server.url), "eviction", LK_FIT_WARN, "volatile-ttl",
	       "CONFIG SET maxmemory-policy noeviction");
	redis_close(redis);
	server_stop(&server);
}

TEST(missing_persistence_is_warned_of)
{
	struct test_server server;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	expect(examine(server.url), "persistence", LK_FIT_WARN, "nothing is saved",
	       "CONFIG SET appendonly yes");
	redis_do(redis, "CONFIG SET save %s", "60 100");
	expect(examine(server.url), "persistence", LK_FIT_WARN, "snapshots only (save 60 100)",
	       "CONFIG SET appendonly yes");
	redis_do(redis, "CONFIG SET appendonly yes");
	expect(examine(server.url), "persistence", LK_FIT, "append-only file", "");
	redis_close(redis);
	server_stop(&server);
}

TEST(replicas_are_warned_of_and_a_replica_is_unfit)
{
	struct test_server master, replica;
	char port[16], text[64];
	const char *args[] = {"--replicaof", "127.0.0.1", port, NULL};
	struct redis *redis;

	server_start(&master, NULL);
	snprintf(port, sizeof(port), "%d", master.port);
	expect(examine(master.url), "replicas", LK_FIT, "a master without replicas", "");
	start_with(&replica, args);
	redis = redis_open(&master);
	ck_assert(WITHIN(10000, redis_info(redis, "connected_slaves") == 1));
	expect(examine(master.url), "replicas", LK_FIT_WARN, "1: a failover", "smaller fences");
	snprintf(text, sizeof(text), "its master: 127.0.0.1:%s, or redis+sentinel://", port);
	expect(examine(replica.url), "replicas", LK_UNFIT, "a replica", text);
	redis_close(redis);
	server_stop(&replica);
	server_stop(&master);
}

TEST(node_of_a_cluster_without_slots_is_unfit)
{
	static const char *const args[] = {"--cluster-enabled", "yes", NULL};
	struct test_server server;

	start_with(&server, args);
	expect(examine(server.url), "reachable", LK_UNFIT, "no node of the Cluster has slots", "");
	server_stop(&server);
}

/* ---- Rights ------------------------------------------------------------------------------- */

TEST(each_missing_command_is_named_with_its_cure)
{
	struct test_server server;
	struct redis *redis;
	const char *rule;
	bool needed;
	int count = 0;

	server_start(&server, NULL);
	redis = redis_open(&server);
	for (size_t i = 0; (rule = lk__doctor_rule(i, &needed)); i++) {
		char rules[100], cure[100], url[120];
		snprintf(rules, sizeof(rules), "~lk:* &lk:* +@all -%s", rule + 1);
		snprintf(cure, sizeof(cure), "ACL SETUSER ann %s", rule);
		grant(redis, rules);
		snprintf(url, sizeof(url), "%s?replicas=1", ann_at(&server)); /* needs +wait */
		expect(examine(url), "rights", needed ? LK_UNFIT : LK_FIT_WARN, rule, cure);
		count++;
	}
	ck_assert_int_ge(count, 22);
	ck_assert_str_eq(redis_text(redis, "KEYS *"), "");
	redis_close(redis);
	server_stop(&server);
}

TEST(all_that_is_missing_is_in_one_cure)
{
	const struct report *report;
	struct test_server server;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	grant(redis, "~lk:* &lk:* +@all -zadd -zrem -scan -client|setname");
	report = examine(ann_at(&server));
	expect(report, "rights", LK_UNFIT, "+zadd +zrem", "ACL SETUSER ann +zadd +zrem");
	expect(report, "rights", LK_FIT_WARN, "+scan +client|setname",
	       "ACL SETUSER ann +scan +client|setname");
	redis_close(redis);
	server_stop(&server);
}

/* The cures work: a user without any right is fit after a few rounds of them. */
TEST(cures_of_missing_rights_cure)
{
	struct test_server server;
	struct redis *redis;
	bool cured = false;

	server_start(&server, NULL);
	redis = redis_open(&server);
	grant(redis, "resetkeys resetchannels nocommands");
	for (int round = 0; round < 8 && !cured; round++) {
		const struct report *report = examine(ann_at(&server));
		cured = true;
		for (size_t i = 0; i < report->count; i++)
			if (!strncmp(report->findings[i].cure, "ACL SETUSER ann ", 16)) {
				redis_do(redis, report->findings[i].cure);
				cured = false;
			}
	}
	ck_assert(cured);
	expect(examine(ann_at(&server)), "rights", LK_FIT, "every command", "");
	ck_assert_ptr_null(strstr(redis_text(redis, "ACL LIST"), "+@all ~"));
	redis_close(redis);
	server_stop(&server);
}

TEST(missing_keys_and_channels_are_named_with_their_cure)
{
	struct test_server server;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	grant(redis, "~other:* &* +@all");
	expect(examine(ann_at(&server)), "rights", LK_UNFIT, "~lk:*", "ACL SETUSER ann ~lk:*");
	grant(redis, "~lk:{* ~lk:client:* &* +@all"); /* the fences do not */
	expect(examine(ann_at(&server)), "rights", LK_UNFIT, "~lk:*", "ACL SETUSER ann ~lk:*");
	grant(redis, "~lk:* resetchannels &other:* +@all");
	expect(examine(ann_at(&server)), "rights", LK_UNFIT, "&lk:c:*", "ACL SETUSER ann &lk:c:*");
	ck_assert_str_eq(redis_text(redis, "KEYS *"), "");
	redis_close(redis);
	server_stop(&server);
}

TEST(renamed_command_is_named)
{
	static const char *const args[] = {"--rename-command", "ZSCORE", "hidden", NULL};
	struct test_server server;

	start_with(&server, args);
	expect(examine(server.url), "rights", LK_UNFIT, "zscore", "rename-command");
	server_stop(&server);
}

/* The list of rights is complete: it has each command in the scripts. */
TEST(rights_cover_every_command_of_the_scripts)
{
	int calls = 0;

	for (size_t i = 0; lk__scripts[i]; i++)
		for (const char *at = lk__scripts[i]->text; (at = strstr(at, "call('")); calls++) {
			char rule[32] = "+";
			const char *have;
			bool needed = false, found = false;
			at += 6;
			for (size_t n = 1; n < 31 && at[n - 1] != '\''; n++)
				rule[n] = at[n - 1];
			for (size_t r = 0; !found && (have = lk__doctor_rule(r, &needed)); r++)
				found = !strcasecmp(have, rule);
			/* Descriptions of clients may be refused, and INFO; other requests may
			 * not. */
			needed = needed || lk__scripts[i] == &lk__script_client_set ||
			         !strcmp(rule, "+INFO");
			ck_assert_msg(found && needed, "%s uses %s", lk__scripts[i]->name, rule);
		}
	ck_assert_int_gt(calls, 20);
}

TEST(topics_that_need_a_right_say_which)
{
	const struct report *report;
	struct test_server server;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	grant(redis, "~lk:* &lk:* +@all -info -pubsub");
	report = examine(ann_at(&server));
	for (size_t i = 0; i < TOPIC_COUNT; i++) {
		bool by_info =
			strstr("version eviction persistence memory replicas", topics[i]) != NULL;
		if (by_info)
			expect(report, topics[i], LK_FIT_WARN, "cannot tell: grant +info",
			       "ACL SETUSER ann +info");
	}
	expect(report, "patterns", LK_FIT_WARN, "cannot tell: grant +pubsub",
	       "ACL SETUSER ann +pubsub");
	expect(report, "rights", LK_FIT_WARN, "can do without: +info", "ACL SETUSER ann +info");
	grant(redis, "~lk:* &lk:* +@all -config -ping -time");
	report = examine(ann_at(&server));
	expect(report, "persistence", LK_FIT_WARN, "cannot tell: grant +config|get",
	       "ACL SETUSER ann +config|get");
	expect(report, "latency", LK_FIT_WARN, "cannot tell: grant +ping", "ACL SETUSER ann +ping");
	expect(report, "clock", LK_FIT_WARN, "cannot tell: grant +time", "ACL SETUSER ann +time");
	redis_close(redis);
	server_stop(&server);
}

/* ---- Patterns ----------------------------------------------------------------------------- */

TEST(pattern_subscriber_is_warned_of)
{
	struct test_server server;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	expect(examine(server.url), "patterns", LK_FIT, "no subscriptions", "");
	redis_do(redis, "PSUBSCRIBE lk:*");
	expect(examine(server.url), "patterns", LK_FIT_WARN, "1 subscriptions by pattern",
	       "CLIENT LIST TYPE pubsub");
	redis_close(redis);
	server_stop(&server);
}
