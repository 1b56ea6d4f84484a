/* SPDX-License-Identifier: MIT
 * The parts of the store on etcd against real servers: messages, gRPC and sockets of the library,
 * driven by the test's own thread. */
#include "harness/etcd_link.h"
#include "harness/etcd_server.h"
#include "harness/process.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define B(text) lk__bytes_of(text)
#define IS(bytes, chars)                                                                           \
	ck_assert_msg(lk__bytes_equal(bytes, B(chars)), "%.*s is not %s", (int)(bytes).len,        \
	              (const char *)(bytes).data, chars)

/* One node for all tests that need no other. */
static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

static struct etcd_link conn;

static void connect_to(const struct etcd_servers *servers, int node)
{
	lk_err err;

	memset(&conn, 0, sizeof(conn));
	err = etcd_link_open(&conn, servers->nodes[node].port);
	ck_assert_msg(err == LK_OK, "%s", conn.why.text);
}

static int64_t put(const char *key, const char *value, int64_t lease)
{
	const struct lk__etcd_put request = {.key = B(key), .value = B(value), .lease = lease};
	struct lk__etcd_put_answer answer;

	lk__etcd_put_put(etcd_message(&conn), &request);
	etcd_ask(&conn, ETCD_KV "Put", &lk__etcd_put_shape, &answer);
	ck_assert(answer.header.revision > 0 && answer.header.raft_term > 0);
	return answer.header.revision;
}

static struct lk__etcd_range_answer get(const struct lk__etcd_range *range)
{
	struct lk__etcd_range_answer answer;

	lk__etcd_put_range(etcd_message(&conn), range);
	etcd_ask(&conn, ETCD_KV "Range", &lk__etcd_range_shape, &answer);
	return answer;
}

/* How many keys there are of that name. */
static int64_t count(const char *key)
{
	const struct lk__etcd_range range = {.key = B(key), .count_only = true};

	return get(&range).count;
}

/* ---- Keys ----------------------------------------------------------------------------------- */

TEST_LIMIT(keys_are_put_read_and_deleted, 60)
{
	const struct lk__etcd_range range = {.key = B("keys/"),
	                                     .range_end = B("keys0"),
	                                     .order = LK__ETCD_DESCENDING,
	                                     .by = LK__ETCD_BY_CREATE,
	                                     .limit = 2};
	const struct lk__etcd_delete del = {.key = B("keys/"), .range_end = B("keys0")};
	struct lk__etcd_range_answer answer;
	struct lk__etcd_delete_answer deleted;
	struct lk__etcd_kv kv;
	int64_t third;

	connect_to(&shared, 0);
	put("keys/c", "1", 0);
	put("keys/b", "2", 0);
	third = put("keys/a", "3", 0);
	answer = get(&range);
	ck_assert(answer.more && answer.count == 3 && answer.kvs.count == 2);
	ck_assert(lk__pb_next(&answer.kvs, &kv));
	IS(kv.key, "keys/a");
	IS(kv.value, "3");
	ck_assert(kv.create_revision == third && kv.mod_revision == third && kv.version == 1);
	ck_assert(lk__pb_next(&answer.kvs, &kv));
	IS(kv.key, "keys/b");
	lk__etcd_put_delete(etcd_message(&conn), &del);
	etcd_ask(&conn, ETCD_KV "DeleteRange", &lk__etcd_delete_shape, &deleted);
	ck_assert_int_eq(deleted.deleted, 3);
	etcd_link_close(&conn);
}

TEST_LIMIT(txn_compares_and_does_one_of_two_lists, 60)
{
	const struct lk__etcd_compare absent = {.target = LK__ETCD_CREATE, .key = B("txn/a")};
	const struct lk__etcd_put mine = {.key = B("txn/a"), .value = B("mine")};
	const struct lk__etcd_range all = {.key = B("txn/"), .range_end = B("txn0")};
	const struct lk__etcd_delete del = {.key = B("txn/a")};
	const struct lk__etcd_op success[] = {{.put = &mine}, {.range = &all}};
	const struct lk__etcd_op failure[] = {{.range = &all}, {.del = &del}};
	const struct lk__etcd_txn txn = {&absent, 1, success, 2, failure, 2};
	struct lk__etcd_txn_answer answer;
	struct lk__etcd_op_answer op;
	struct lk__etcd_kv kv;

	connect_to(&shared, 0);
	lk__etcd_put_txn(etcd_message(&conn), &txn);
	etcd_ask(&conn, ETCD_KV "Txn", &lk__etcd_txn_shape, &answer);
	ck_assert(answer.succeeded && answer.responses.count == 2);
	ck_assert(lk__pb_next(&answer.responses, &op) && op.has_put);
	ck_assert(lk__pb_next(&answer.responses, &op) && op.has_range && op.range.kvs.count == 1);
	ck_assert(lk__pb_next(&op.range.kvs, &kv));
	IS(kv.value, "mine");
	lk__etcd_put_txn(etcd_message(&conn), &txn);
	etcd_ask(&conn, ETCD_KV "Txn", &lk__etcd_txn_shape, &answer);
	ck_assert(!answer.succeeded && answer.responses.count == 2);
	ck_assert(lk__pb_next(&answer.responses, &op) && op.has_range && op.range.count == 1);
	ck_assert(lk__pb_next(&answer.responses, &op) && op.has_del && op.del.deleted == 1);
	ck_assert_int_eq(count("txn/a"), 0);
	etcd_link_close(&conn);
}

/* 32 calls at once, answered in any order. */
static void call_32_times(void)
{
	bool seen[64] = {false};
	uint32_t first = 0;

	for (int i = 0; i < 32; i++) {
		char key[20];
		struct lk__etcd_put request;
		uint32_t id;
		snprintf(key, sizeof(key), "flight/%d", i);
		request = (struct lk__etcd_put){.key = B(key), .value = B(key)};
		lk__etcd_put_put(etcd_message(&conn), &request);
		id = etcd_call(&conn, ETCD_KV "Put");
		first = i ? first : id;
	}
	ck_assert_uint_eq(lk__h2_count(conn.h2), 32);
	for (int i = 0; i < 32; i++) {
		struct lk__etcd_put_answer answer;
		ck_assert(etcd_next(&conn, ETCD_WAIT_MS));
		ck_assert_msg(!conn.event.status, "%s", conn.event.text);
		ck_assert(!seen[conn.event.id - first]);
		seen[conn.event.id - first] = true;
		ck_assert(lk__pb_read(&lk__etcd_put_shape, conn.event.message.data,
		                      conn.event.message.len, &answer));
	}
	ck_assert_uint_eq(lk__h2_count(conn.h2), 0);
	ck_assert_int_eq(count("flight/31"), 1);
}

TEST_LIMIT(thirty_two_calls_are_in_flight_at_once, 60)
{
	connect_to(&shared, 0);
	call_32_times();
	etcd_link_close(&conn);
}

TEST_LIMIT(calls_above_the_limit_of_the_server_wait, 120)
{
	struct etcd_servers servers = {.args = {"--max-concurrent-streams", "4"}};

	etcd_start(&servers, 1);
	connect_to(&servers, 0);
	call_32_times();
	etcd_link_close(&conn);
	etcd_stop(&servers);
}

/* The clock runs fast: what is sent each ten seconds, comes each few milliseconds. */
TEST_LIMIT(server_ends_connections_that_ping_too_often, 60)
{
	uint32_t stream;

	connect_to(&shared, 0);
	stream = etcd_open(&conn, ETCD_WATCH);
	for (int i = 0; i < 500 && !etcd_next(&conn, 20); i++)
		conn.ahead_ns += INT64_C(10000000000);
	ck_assert_msg(conn.event.kind == LK__H2_ENDED || conn.event.kind == LK__H2_DRAINING,
	              "event %d", conn.event.kind);
	while (conn.event.kind != LK__H2_DEAD) {
		if (conn.event.kind == LK__H2_ENDED)
			ck_assert(conn.event.id == stream && conn.event.status);
		ck_assert(etcd_next(&conn, ETCD_WAIT_MS));
	}
	ck_assert_msg(strstr(conn.event.why->text, "too_many_pings") != NULL, "%s",
	              conn.event.why->text);
	etcd_link_close(&conn);
}

/* ---- Leases --------------------------------------------------------------------------------- */

static int64_t grant(int64_t ttl_s, int64_t *granted_s)
{
	const struct lk__etcd_lease_grant request = {.ttl_s = ttl_s};
	struct lk__etcd_lease_grant_answer answer;

	lk__etcd_put_lease_grant(etcd_message(&conn), &request);
	etcd_ask(&conn, ETCD_LEASE "LeaseGrant", &lk__etcd_lease_grant_shape, &answer);
	*granted_s = answer.ttl_s;
	return answer.id;
}

TEST_LIMIT(lease_is_kept_alive_and_revoked, 60)
{
	struct lk__etcd_lease_revoke_answer revoked;
	struct lk__etcd_keep_alive_answer alive;
	int64_t id, ttl_s;
	uint32_t stream;

	connect_to(&shared, 0);
	id = grant(1, &ttl_s);
	ck_assert_int_eq(ttl_s, 2); /* the least that this server grants */
	lk__etcd_put_lease_revoke(etcd_message(&conn), id);
	etcd_ask(&conn, ETCD_LEASE "LeaseRevoke", &lk__etcd_lease_revoke_shape, &revoked);
	id = grant(60, &ttl_s);
	ck_assert(id && ttl_s == 60);
	put("lease/a", "1", id);
	stream = etcd_open(&conn, ETCD_LEASE "LeaseKeepAlive");
	for (int i = 0; i < 3; i++) {
		lk__etcd_put_keep_alive(etcd_message(&conn), id);
		etcd_send(&conn, stream);
		etcd_hear(&conn, stream, &lk__etcd_keep_alive_shape, &alive);
		ck_assert(alive.id == id && alive.ttl_s == 60);
	}
	ck_assert_int_eq(count("lease/a"), 1);
	lk__etcd_put_lease_revoke(etcd_message(&conn), id);
	etcd_ask(&conn, ETCD_LEASE "LeaseRevoke", &lk__etcd_lease_revoke_shape, &revoked);
	ck_assert(revoked.header.revision > 0);
	ck_assert_int_eq(count("lease/a"), 0);
	lk__etcd_put_keep_alive(etcd_message(&conn), id);
	etcd_send(&conn, stream);
	etcd_hear(&conn, stream, &lk__etcd_keep_alive_shape, &alive);
	ck_assert(alive.id == id && alive.ttl_s == 0);
	lk__etcd_put_lease_revoke(etcd_message(&conn), id);
	ck_assert_int_eq(etcd_ask_in_vain(&conn, ETCD_LEASE "LeaseRevoke"), LK__ETCD_NO_LEASE);
	etcd_link_close(&conn);
}

/* ---- Watches -------------------------------------------------------------------------------- */

/* The next event of the only watch, from another connection's doing. */
static void expect_event(uint32_t stream, uint32_t type, const char *key)
{
	struct lk__etcd_watch_answer answer;
	struct lk__etcd_event event;

	etcd_hear(&conn, stream, &lk__etcd_watch_shape, &answer);
	ck_assert(!answer.created && !answer.canceled && answer.events.count == 1);
	ck_assert(lk__pb_next(&answer.events, &event));
	ck_assert_uint_eq(event.type, type);
	IS(event.kv.key, key);
}

TEST_LIMIT(watch_reports_what_happens_until_it_is_cancelled, 60)
{
	const struct lk__etcd_watch_create create = {
		.key = B("watch/"), .range_end = B("watch0"), .watch_id = 7};
	struct lk__etcd_watch_answer answer;
	uint32_t stream;

	connect_to(&shared, 0);
	stream = etcd_open(&conn, ETCD_WATCH);
	lk__etcd_put_watch_create(etcd_message(&conn), &create);
	etcd_send(&conn, stream);
	etcd_hear(&conn, stream, &lk__etcd_watch_shape, &answer);
	ck_assert(answer.created && !answer.canceled && answer.watch_id == 7);
	etcd_ctl(&shared, "put watch/a 1");
	expect_event(stream, LK__ETCD_EVENT_PUT, "watch/a");
	etcd_ctl(&shared, "put other/a 1");
	etcd_ctl(&shared, "del watch/a");
	expect_event(stream, LK__ETCD_EVENT_DELETE, "watch/a");
	lk__etcd_put_watch_cancel(etcd_message(&conn), 7);
	etcd_send(&conn, stream);
	etcd_hear(&conn, stream, &lk__etcd_watch_shape, &answer);
	ck_assert(answer.canceled && answer.watch_id == 7);
	etcd_link_close(&conn);
}

TEST_LIMIT(watch_of_a_compacted_revision_is_cancelled, 60)
{
	const struct lk__etcd_watch_create create = {.key = B("old"), .start_revision = 1};
	struct lk__etcd_watch_answer answer;
	int64_t revision;
	uint32_t stream;

	connect_to(&shared, 0);
	put("old", "1", 0);
	revision = put("old", "2", 0);
	etcd_ctl(&shared, "compact %lld", (long long)revision);
	stream = etcd_open(&conn, ETCD_WATCH);
	lk__etcd_put_watch_create(etcd_message(&conn), &create);
	etcd_send(&conn, stream);
	do {
		etcd_hear(&conn, stream, &lk__etcd_watch_shape, &answer);
	} while (!answer.canceled);
	ck_assert(answer.compact_revision == revision);
	etcd_link_close(&conn);
}

/* ---- The server ----------------------------------------------------------------------------- */

TEST_LIMIT(server_tells_about_itself, 60)
{
	struct lk__etcd_status_answer status;
	struct lk__etcd_member_list_answer members;
	struct lk__etcd_member member;
	struct lk__etcd_alarm_answer alarms;

	connect_to(&shared, 0);
	etcd_message(&conn);
	etcd_ask(&conn, "/etcdserverpb.Maintenance/Status", &lk__etcd_status_shape, &status);
	ck_assert(status.version.len >= 5 && !memcmp(status.version.data, "3.", 2));
	ck_assert(status.leader == status.header.member_id && status.db_size > 0);
	ck_assert(status.raft_term > 0 && !status.is_learner && !status.errors.count);
	lk__etcd_put_member_list(etcd_message(&conn), false);
	etcd_ask(&conn, "/etcdserverpb.Cluster/MemberList", &lk__etcd_member_list_shape, &members);
	ck_assert(members.members.count == 1 && lk__pb_next(&members.members, &member));
	IS(member.name, "n0");
	ck_assert(member.client_urls.count == 1 && member.peer_urls.count == 1);
	etcd_message(&conn);
	etcd_ask(&conn, "/etcdserverpb.Maintenance/Alarm", &lk__etcd_alarm_shape, &alarms);
	ck_assert_uint_eq(alarms.alarms.count, 0);
	etcd_link_close(&conn);
}

TEST_LIMIT(errors_are_those_of_the_table, 60)
{
	const struct lk__etcd_put request = {.key = B("e"), .lease = 4711};
	const struct lk__etcd_put twice = {.key = B("e")};
	const struct lk__etcd_op ops[] = {{.put = &twice}, {.put = &twice}};
	const struct lk__etcd_txn txn = {.success = ops, .success_count = 2};
	const struct lk__etcd_range future = {.key = B("e"), .revision = INT64_C(1) << 40};
	const struct lk__etcd_range nothing = {.limit = 1};

	connect_to(&shared, 0);
	lk__etcd_put_put(etcd_message(&conn), &request);
	ck_assert_int_eq(etcd_ask_in_vain(&conn, ETCD_KV "Put"), LK__ETCD_NO_LEASE);
	lk__etcd_put_txn(etcd_message(&conn), &txn);
	ck_assert_int_eq(etcd_ask_in_vain(&conn, ETCD_KV "Txn"), LK__ETCD_REFUSED);
	ck_assert_str_eq(conn.text, "etcdserver: duplicate key given in txn request");
	lk__etcd_put_range(etcd_message(&conn), &future);
	ck_assert_int_eq(etcd_ask_in_vain(&conn, ETCD_KV "Range"), LK__ETCD_FUTURE);
	lk__etcd_put_range(etcd_message(&conn), &nothing);
	ck_assert_int_eq(etcd_ask_in_vain(&conn, ETCD_KV "Range"), LK__ETCD_REFUSED);
	ck_assert_int_eq(etcd_ask_in_vain(&conn, "/no.Service/Call"), LK__ETCD_REFUSED);
	/* The connection is none the worse. */
	ck_assert_int_eq(count("e"), 0);
	etcd_link_close(&conn);
}

/* ---- Tokens --------------------------------------------------------------------------------- */

static enum lk__etcd_meaning log_in(const char *password)
{
	const struct lk__etcd_authenticate request = {B("root"), B(password)};
	struct lk__etcd_authenticate_answer answer;
	enum lk__etcd_meaning meaning;

	ck_assert_int_eq(lk__h2_set_token(conn.h2, (struct lk__bytes){0}), LK_OK);
	lk__etcd_put_authenticate(etcd_message(&conn), &request);
	meaning = etcd_ask_in_vain(&conn, "/etcdserverpb.Auth/Authenticate");
	if (meaning)
		return meaning;
	ck_assert(lk__pb_read(&lk__etcd_authenticate_shape, conn.answer.data, conn.answer.len,
	                      &answer));
	ck_assert(answer.token.len > 0);
	ck_assert_int_eq(lk__h2_set_token(conn.h2, answer.token), LK_OK);
	return meaning;
}

static enum lk__etcd_meaning try_to_put(void)
{
	const struct lk__etcd_put request = {.key = B("a"), .value = B("1")};

	lk__etcd_put_put(etcd_message(&conn), &request);
	return etcd_ask_in_vain(&conn, ETCD_KV "Put");
}

TEST_LIMIT(token_expires_and_is_renewed, 120)
{
	struct etcd_servers servers = {.args = {"--auth-token-ttl", "1"}};

	etcd_start(&servers, 1);
	etcd_ctl(&servers, "user add root:secret");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "auth enable");
	connect_to(&servers, 0);
	ck_assert_int_eq(try_to_put(), LK__ETCD_DENIED);
	ck_assert_int_eq(log_in("wrong"), LK__ETCD_DENIED);
	ck_assert_int_eq(log_in("secret"), LK__ETCD_DONE);
	ck_assert_int_eq(try_to_put(), LK__ETCD_DONE);
	/* The server looks each second. */
	nap_ms(3000);
	ck_assert_int_eq(try_to_put(), LK__ETCD_LOGIN);
	ck_assert_str_eq(conn.text, "etcdserver: invalid auth token");
	ck_assert_int_eq(log_in("secret"), LK__ETCD_DONE);
	ck_assert_int_eq(try_to_put(), LK__ETCD_DONE);
	etcd_link_close(&conn);
	etcd_stop(&servers);
}

/* ---- Three nodes ---------------------------------------------------------------------------- */

/* Does a watch stand?  On a loaded machine a member may be without a leader for a moment. */
static bool try_to_watch(uint32_t *stream)
{
	const struct lk__etcd_watch_create create = {.key = B("a")};

	*stream = etcd_open(&conn, ETCD_WATCH);
	lk__etcd_put_watch_create(etcd_message(&conn), &create);
	etcd_send(&conn, *stream);
	return etcd_next(&conn, ETCD_WAIT_MS) && conn.event.kind == LK__H2_MESSAGE;
}

TEST_LIMIT(member_without_a_leader_ends_streams_and_promises_nothing, 300)
{
	const struct lk__etcd_range stale = {.key = B("a"), .serializable = true};
	struct etcd_servers servers = {.args = {NULL}};
	uint32_t stream;

	etcd_start(&servers, 3);
	connect_to(&servers, 0);
	ck_assert(WITHIN(60000, try_to_put() == LK__ETCD_DONE));
	etcd_link_close(&conn);
	/* A write at one member is read at another one. */
	connect_to(&servers, 2);
	ck_assert(WITHIN(60000, get(&stale).count == 1));
	ck_assert(WITHIN(60000, try_to_watch(&stream)));
	etcd_kill(&servers, 0);
	etcd_kill(&servers, 1);
	ck_assert(etcd_next(&conn, 60000));
	ck_assert_msg(conn.event.kind == LK__H2_ENDED && conn.event.id == stream, "event %d",
	              conn.event.kind);
	ck_assert_str_eq(conn.event.text, "etcdserver: no leader");
	ck_assert(lk__etcd_judge(&conn.event).elsewhere);
	/* It answers from its memory, but writes nothing. */
	ck_assert_int_eq(get(&stale).count, 1);
	conn.call_ms = 500;
	ck_assert_int_eq(try_to_put(), LK__ETCD_AMBIGUOUS);
	conn.call_ms = 0;
	etcd_restart(&servers, 0);
	ck_assert(WITHIN(60000, try_to_put() == LK__ETCD_DONE));
	etcd_link_close(&conn);
	etcd_stop(&servers);
}

TEST_LIMIT(server_that_dies_leaves_calls_ambiguous, 60)
{
	struct etcd_servers servers = {.args = {NULL}};
	const struct lk__etcd_put request = {.key = B("a")};
	uint32_t id;

	etcd_start(&servers, 1);
	connect_to(&servers, 0);
	put("a", "1", 0);
	etcd_pause(&servers, 0);
	lk__etcd_put_put(etcd_message(&conn), &request);
	id = etcd_call(&conn, ETCD_KV "Put");
	ck_assert(!etcd_next(&conn, 100));
	etcd_kill(&servers, 0);
	ck_assert(etcd_next(&conn, ETCD_WAIT_MS));
	ck_assert(conn.event.kind == LK__H2_ANSWER && conn.event.id == id);
	ck_assert_int_eq(conn.event.fate, LK__H2_LOST);
	ck_assert(etcd_next(&conn, 0) && conn.event.kind == LK__H2_DEAD);
	ck_assert_int_eq(conn.event.why->err, LK_ECONN);
	etcd_link_close(&conn);
	etcd_stop(&servers);
}
