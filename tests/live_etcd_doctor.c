/* SPDX-License-Identifier: MIT
 * lk_doctor() on etcd: each finding, on members that were set up to cause it. */
#include "etcd/doctor.h"

#include "harness/etcd_gateway.h"
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG_MS 20000
#define FINDINGS_MAX 40

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static struct {
	int count;
	struct {
		lk_fitness fitness;
		char topic[16], text[600], cure[600];
	} findings[FINDINGS_MAX];
	lk_fitness worst;
} report;

static void keep(void *arg, const lk_finding *finding)
{
	(void)arg;
	ck_assert_int_lt(report.count, FINDINGS_MAX);
	report.findings[report.count].fitness = finding->fitness;
	snprintf(report.findings[report.count].topic, 16, "%s", finding->topic);
	snprintf(report.findings[report.count].text, 600, "%s", finding->text);
	snprintf(report.findings[report.count].cure, 600, "%s", finding->cure);
	for (const char *at = finding->text; *at; at++)
		ck_assert(*at >= 0x20 && *at < 0x7f);
	ck_assert(finding->fitness != LK_FIT || !*finding->cure);
	report.count++;
}

/* The worst finding on the topic. */
static lk_fitness topic_is(const char *topic)
{
	lk_fitness worst = LK_FIT;
	int count = 0;

	for (int i = 0; i < report.count; i++) {
		if (strcmp(report.findings[i].topic, topic) != 0)
			continue;
		count++;
		if (report.findings[i].fitness > worst)
			worst = report.findings[i].fitness;
	}
	ck_assert_msg(count, "nothing about %s", topic);
	return worst;
}

static bool says(const char *topic, lk_fitness fitness, const char *text)
{
	for (int i = 0; i < report.count; i++)
		if (!strcmp(report.findings[i].topic, topic) &&
		    report.findings[i].fitness == fitness && strstr(report.findings[i].text, text))
			return true;
	return false;
}

static bool cures(const char *topic, const char *text)
{
	for (int i = 0; i < report.count; i++)
		if (!strcmp(report.findings[i].topic, topic) &&
		    strstr(report.findings[i].cure, text))
			return true;
	return false;
}

#define CURES(topic_, part_) ck_assert_msg(cures(topic_, part_), "no cure of %s: %s", topic_, part_)

#define SAYS(topic_, fitness_, part_)                                                              \
	ck_assert_msg(says(topic_, fitness_, part_), "not said of %s: %s", topic_, part_)

static void examine(const char *url)
{
	static const char *const topics[] = {"reachable", "version", "leader", "members",
	                                     "latency",   "space",   "rights", "tickets"};
	lk_fitness worst = LK_FIT;

	memset(&report, 0, sizeof(report));
	OK(lk_doctor(url, NULL, keep, NULL, &report.worst));
	for (size_t i = 0; i < sizeof(topics) / sizeof(*topics); i++)
		if (topic_is(topics[i]) > worst)
			worst = topic_is(topics[i]);
	ck_assert_int_eq(report.worst, worst);
}

TEST_LIMIT(member_is_fit_but_for_its_version, 60)
{
	char keys[200];
	bool is_old = strstr(etcd_ctl(&shared, "version"), "3.4.23");

	snprintf(keys, sizeof(keys), "%s", etcd_ctl(&shared, "get --prefix a --keys-only"));
	examine(etcd_url(&shared, "", ""));
	ck_assert_int_eq(topic_is("reachable"), LK_FIT);
	ck_assert_int_eq(topic_is("version"), is_old ? LK_UNFIT : LK_FIT);
	ck_assert_int_eq(topic_is("leader"), LK_FIT);
	SAYS("members", LK_FIT_WARN, "1: if one fails");
	ck_assert_int_eq(topic_is("space"), LK_FIT);
	ck_assert_int_eq(topic_is("rights"), LK_FIT);
	ck_assert_int_eq(topic_is("tickets"), LK_FIT);
	/* It leaves nothing. */
	ck_assert_str_eq(etcd_ctl(&shared, "get --prefix lk/ --keys-only"), "");
	ck_assert_ptr_nonnull(strstr(etcd_ctl(&shared, "lease list"), "found 0 leases"));
}

TEST_LIMIT(member_that_does_not_answer_is_named, 60)
{
	char url[200];

	snprintf(url, sizeof(url), "etcd://127.0.0.1:%d,127.0.0.1:1?connect_timeout=2",
	         shared.nodes[0].port);
	examine(url);
	SAYS("reachable", LK_FIT_WARN, "127.0.0.1:1: connection refused");
	examine("etcd://127.0.0.1:1?connect_timeout=2");
	SAYS("reachable", LK_UNFIT, "127.0.0.1:1: connection refused");
	SAYS("tickets", LK_FIT_WARN, "cannot tell");
}

TEST_LIMIT(ticket_without_a_lease_is_named, 60)
{
	lk_client *client = client_at(etcd_url(&shared, "", ""));
	lk_lock *lock = lock_leased(client, "alive", 60000);

	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	examine(etcd_url(&shared, "", ""));
	SAYS("tickets", LK_FIT, "1, each under a lease");
	etcd_ctl(&shared, "put lk/L/stuck%%20one/abc 1");
	etcd_ctl(&shared, "put lk/S/stuck/abc 1");
	etcd_ctl(&shared, "put lk/Sstuck 1"); /* these two may be for ever */
	etcd_ctl(&shared, "put lk/D/stuck/1/a 1");
	examine(etcd_url(&shared, "", ""));
	SAYS("tickets", LK_FIT_WARN,
	     "2 without a lease that lives, the first is "
	     "lk/L/stuck%20one/abc: ");
	CURES("tickets", "etcdctl del 'lk/L/stuck%20one/abc', unless its owner lives");
	etcd_ctl(&shared, "del --prefix lk/L/stuck");
	etcd_ctl(&shared, "del lk/S/stuck/abc");
	etcd_ctl(&shared, "put lk/L/it\\'s/abc 1");
	examine(etcd_url(&shared, "", ""));
	SAYS("tickets", LK_FIT_WARN, "1 without a lease");
	CURES("tickets", "etcdctl del KEY, unless its owner lives");
	etcd_ctl(&shared, "del --prefix lk/L/it");
	examine(etcd_url(&shared, "", ""));
	SAYS("tickets", LK_FIT, "1, each under a lease");
	etcd_ctl(&shared, "del --prefix lk/");
	OK(lk_client_close(client));
}

/* As 3.5 shows it after a crash in a revocation (etcd #14019): the key is there, its lease is not.
 */
static void forget_leases(const char *path, struct lk__buf *answer)
{
	struct lk__etcd_time_to_live_answer real;
	struct lk__pb_writer writer;
	char bytes[64];

	if (!strstr(path, "LeaseTimeToLive"))
		return;
	ck_assert(lk__pb_read(&lk__etcd_time_to_live_shape, answer->data, answer->len, &real));
	ck_assert_int_ge(real.ttl_s, 0);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__pb_put_number(&writer, 2, (uint64_t)real.id);
	lk__pb_put_number(&writer, 3, UINT64_MAX);
	answer->len = 0;
	ck_assert(lk__grpc_append(answer, writer.data, writer.len));
}

TEST_LIMIT(ticket_whose_lease_is_gone_is_named, 60)
{
	lk_client *client = client_at(etcd_url(&shared, "", ""));
	lk_lock *lock = lock_leased(client, "orphan", 60000);
	struct etcd_gateway gateway;
	char url[80];

	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	etcd_gateway_start(&gateway, shared.nodes[0].port, forget_leases);
	snprintf(url, sizeof(url), "etcd://127.0.0.1:%d", gateway.port);
	examine(url);
	etcd_gateway_stop(&gateway);
	SAYS("tickets", LK_FIT_WARN, "1 without a lease that lives, the first is lk/L/orphan/");
	CURES("tickets", "etcdctl del 'lk/L/orphan/");
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

static long long revision(void)
{
	const char *at = strstr(etcd_ctl(&shared, "get compact -w json"), "\"revision\":");

	ck_assert_ptr_nonnull(at);
	return atoll(at + strlen("\"revision\":"));
}

TEST_LIMIT(revisions_that_are_not_compacted_are_a_risk, 60)
{
	for (int i = 0; i < 12; i++)
		etcd_ctl(&shared, "put compact %d", i);
	lk__etcd_revisions_max = 10;
	examine(etcd_url(&shared, "", ""));
	SAYS("space", LK_FIT_WARN, "more than 10 revisions");
	etcd_ctl(&shared, "compact %lld", revision() - 3);
	examine(etcd_url(&shared, "", ""));
	ck_assert_int_eq(topic_is("space"), LK_FIT);
}

TEST_LIMIT(full_member_is_unfit, 120)
{
	struct etcd_servers servers = {.args = {"--quota-backend-bytes", "1048576", NULL}};
	bool has_quota, was_close = false;

	etcd_start(&servers, 1);
	has_quota = strstr(etcd_ctl(&servers, "version"), " 3.6.");

	examine(etcd_url(&servers, "", ""));
	ck_assert_int_ne(topic_is("space"), LK_UNFIT);
	for (int i = 0; i < 20 && !says("space", LK_UNFIT, "no space is left"); i++) {
		was_close |= says("space", LK_UNFIT, " of 1.0 MiB are used: at the limit ");
		etcd_ctl(&servers,
		         "put big$$ $(head -c 100000 /dev/zero | tr '\\0' x) 2>&1 || true");
		examine(etcd_url(&servers, "", ""));
	}
	SAYS("space", LK_UNFIT, "no space is left");
	ck_assert_int_eq(was_close, has_quota); /* only 3.6 reports it */
	etcd_stop(&servers);
}

TEST_LIMIT(missing_rights_are_named, 120)
{
	struct etcd_servers servers = {.args = {NULL}};

	etcd_start(&servers, 1);
	etcd_ctl(&servers, "user add root:r");
	etcd_ctl(&servers, "role add root");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "user add u:p");
	etcd_ctl(&servers, "role add some");
	etcd_ctl(&servers, "role grant-permission --prefix=true some readwrite lk/L/");
	etcd_ctl(&servers, "user grant-role u some");
	etcd_ctl(&servers, "user add all:p");
	etcd_ctl(&servers, "role add whole");
	etcd_ctl(&servers, "role grant-permission --prefix=true whole readwrite lk/");
	etcd_ctl(&servers, "user grant-role all whole");
	etcd_ctl(&servers, "user add reader:p");
	etcd_ctl(&servers, "role add look");
	etcd_ctl(&servers, "role grant-permission --prefix=true look read lk/");
	etcd_ctl(&servers, "user grant-role reader look");
	etcd_ctl(&servers, "auth enable");
	examine(etcd_url(&servers, "u:p@", ""));
	SAYS("rights", LK_UNFIT, "mailboxes: ");
	SAYS("rights", LK_UNFIT, "the kinds of names: ");
	SAYS("rights", LK_FIT_WARN, "details of clients: ");
	ck_assert(!says("rights", LK_UNFIT, "tickets of locks"));
	examine(etcd_url(&servers, "all:p@", ""));
	ck_assert_int_eq(topic_is("rights"), LK_FIT);
	examine(etcd_url(&servers, "reader:p@", ""));
	SAYS("rights", LK_UNFIT, "tickets of locks: ");
	ck_assert(!says("rights", LK_UNFIT, "the kinds of names"));
	examine(etcd_url(&servers, "u:wrong@", ""));
	ck_assert_int_eq(topic_is("reachable"), LK_UNFIT);
	etcd_stop(&servers);
}

/* 3.4 shows its status to all, newer ones to users. */
TEST_LIMIT(missing_user_is_demanded, 120)
{
	struct etcd_servers servers = {.args = {"--bcrypt-cost", "4", NULL}};
	const char *topic = "reachable";

	etcd_start(&servers, 1);
	examine(etcd_url(&servers, "u:p@", ""));
	SAYS("reachable", LK_UNFIT, "authentication is not enabled");
	CURES("reachable", "leave user and password out of the URL");
	etcd_ctl(&servers, "user add root:r");
	etcd_ctl(&servers, "role add root");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "auth enable");
	examine(etcd_url(&servers, "", ""));
	if (topic_is("reachable") == LK_FIT)
		topic = "rights";
	SAYS(topic, LK_UNFIT, "user name is empty");
	CURES(topic, "name a user and a password (etcd://USER:PASSWORD@HOST), or use etcds:// with "
	             "a client certificate");
	ck_assert(!cures(topic, "grant-permission"));
	examine(etcd_url(&servers, "root:wrong@", ""));
	CURES("reachable", "use a user and a password that the members accept");
	etcd_stop(&servers);
}

TEST_LIMIT(member_without_a_leader_is_unfit, 120)
{
	struct etcd_servers servers = {.args = {NULL}};
	int64_t end_ms = now_ms() + 60000;

	etcd_start(&servers, 3);
	examine(etcd_url(&servers, "", ""));
	SAYS("members", LK_FIT, "3: 1 may fail");
	SAYS("leader", LK_FIT, " leads");
	etcd_kill(&servers, 1);
	etcd_kill(&servers, 2);
	do {
		examine(etcd_url(&servers, "", "?connect_timeout=5&command_timeout=2"));
	} while (!says("leader", LK_UNFIT, "has no leader") && now_ms() < end_ms);
	SAYS("leader", LK_UNFIT, "has no leader");
	SAYS("reachable", LK_FIT_WARN, "connection refused");
	etcd_stop(&servers);
}
