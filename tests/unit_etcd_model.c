/* SPDX-License-Identifier: MIT
 * The model of etcd by itself: keys, transactions, watches, users, faults of calls.  What comes
 * back was recorded from etcd 3.4.23; live_etcd_model compares all scripts with a server. */
#include "etcd_model_fixture.h"
#include "etcd_model_peer.h"

#include <stdio.h>

static const struct em_setup plain = {0};

/* ---- Scripts ------------------------------------------------------------------------------ */

static char *transcript(const char *const *lines, uint64_t seed)
{
	struct etcd_model_peer peer;
	char *text;

	etcd_model_peer_init(&peer, &plain, seed, 0);
	text = etcd_script_run(&peer.peer, lines);
	etcd_model_peer_fini(&peer);
	return text;
}

/* Lines up to a NULL, then what they answer. */
static void answers(const char *const *lines, const char *expected)
{
	char *text = transcript(lines, test_seed());

	ck_assert_str_eq(text, expected);
	free(text);
}
#define ANSWERS(expected, ...) answers((const char *const[]){__VA_ARGS__, NULL}, expected)

TEST(keys_have_revisions)
{
	ANSWERS("put a 1: +1\n"
	        "put a 2 prev: +2 a=1 (+1 +1 1)\n"
	        "get a: +2 count 1 a=2 (+1 +2 2)\n"
	        "del a: +3 deleted 1\n"
	        "del a: +3 deleted 0\n"
	        "put a 3: +4\n"
	        "get a: +4 count 1 a=3 (+4 +4 1)\n"
	        "get a rev=+2: +4 count 1 a=2 (+1 +2 2)\n"
	        "get a rev=+3: +4 count 0\n"
	        "get a rev=+5: 11 etcdserver: mvcc: required revision is a future revision\n",
	        "put a 1", "put a 2 prev", "get a", "del a", "del a", "put a 3", "get a",
	        "get a rev=+2", "get a rev=+3", "get a rev=+5");
}

TEST(ranges_have_order_and_limit)
{
	ANSWERS("txn then put b 1 ; put a 1: then +1 | +1 | +1\n"
	        "put c 1: +2\n"
	        "get a.. by=create desc limit=1: +2 count 3 more c=1 (+2 +2 1)\n"
	        "get a.. by=create limit=2: +2 count 3 more a=1 (+1 +1 1) b=1 (+1 +1 1)\n"
	        "get a..c count: +2 count 2\n"
	        "get b.. keys: +2 count 2 b= (+1 +1 1) c= (+2 +2 1)\n",
	        "txn then put b 1 ; put a 1", "put c 1", "get a.. by=create desc limit=1",
	        "get a.. by=create limit=2", "get a..c count", "get b.. keys");
}

TEST(transactions_compare_and_see_their_own_writes)
{
	ANSWERS("txn if create a = 0 then put a 1 ; get a: then +1 | +1 | +1 count 1 a=1 (+1 +1 "
	        "1)\n"
	        "txn if create a = 0 then put a 1 else del a ; get a: else +2 | +2 deleted 1 | +2 "
	        "count 0\n"
	        "txn if create a.. = 0 then put a 1: then +3 | +3\n"
	        "txn if value b = - then put b 1: else +3\n"
	        "txn then put a 1 ; put a 2: 3 etcdserver: duplicate key given in txn request\n"
	        "txn then del a..c ; put b 2: 3 etcdserver: duplicate key given in txn request\n"
	        "fill 129: 3 etcdserver: too many operations in txn request\n",
	        "txn if create a = 0 then put a 1 ; get a",
	        "txn if create a = 0 then put a 1 else del a ; get a",
	        "txn if create a.. = 0 then put a 1", "txn if value b = - then put b 1",
	        "txn then put a 1 ; put a 2", "txn then del a..c ; put b 2", "fill 129");
}

TEST(compaction_forgets_what_was_before)
{
	ANSWERS("put a 1: +1\nput a 2: +2\ndel b: +2 deleted 0\ncompact +2: +2\n"
	        "get a rev=+1: 11 etcdserver: mvcc: required revision has been compacted\n"
	        "get a rev=+2: +2 count 1 a=2 (+1 +2 2)\n"
	        "compact +2: 11 etcdserver: mvcc: required revision has been compacted\n"
	        "compact +3: 11 etcdserver: mvcc: required revision is a future revision\n"
	        "watch 3 a rev=+1: sent\n"
	        "receive 2: \n  watch 3 +2 created\n  watch 3 0 cancelled compacted +2\n",
	        "put a 1", "put a 2", "del b", "compact +2", "get a rev=+1", "get a rev=+2",
	        "compact +2", "compact +3", "watch 3 a rev=+1", "receive 2");
}

TEST(leases_have_their_keys)
{
	ANSWERS("grant L1 1: +0 L1 ttl 2\n"
	        "grant L1 1: 9 etcdserver: lease already exists\n"
	        "put a 1 lease=L1: +1\nput b 1 lease=L1: +2\nput a 2: +3\n"
	        "put c 1 lease=L2: 5 etcdserver: requested lease not found\n"
	        "alive L1: +3 L1 ttl 2\nalive L2: +3 L2 ttl 0\n"
	        "revoke L1: +4\nrevoke L1: 5 etcdserver: requested lease not found\n"
	        "get a..: +4 count 1 a=2 (+1 +3 2)\n",
	        "grant L1 1", "grant L1 1", "put a 1 lease=L1", "put b 1 lease=L1", "put a 2",
	        "put c 1 lease=L2", "alive L1", "alive L2", "revoke L1", "revoke L1", "get a..");
}

TEST(watches_see_each_change_once_and_in_order)
{
	ANSWERS("put a 1: +1\nput a 2: +2\nwatch 7 a.. rev=+1: sent\n"
	        "receive 2: \n  watch 7 +2 created\n  watch 7 +2 put a=1 (+1 +1 1) put a=2 (+1 +2 "
	        "2)\n"
	        "txn then put b 1 ; del a: then +3 | +3 | +3 deleted 1\n"
	        "receive 1: \n  watch 7 +3 put b=1 (+3 +3 1) delete a= (0 +3 0)\n"
	        "unwatch 7: sent\nreceive 1: \n  watch 7 +3 cancelled\n",
	        "put a 1", "put a 2", "watch 7 a.. rev=+1", "receive 2", "txn then put b 1 ; del a",
	        "receive 1", "unwatch 7", "receive 1");
}

TEST(all_scripts_answer_alike_with_each_seed)
{
	for (const struct etcd_script *script = etcd_scripts; script->name; script++) {
		char *one = transcript(script->lines, test_seed());
		char *other = transcript(script->lines, test_seed() + 1);
		ck_assert_msg(!strcmp(one, other), "%s:\n%s\n%s", script->name, one, other);
		ck_assert_msg(!strstr(one, "nothing came"), "%s:\n%s", script->name, one);
		ck_assert_msg(!strstr(one, "malformed"), "%s:\n%s", script->name, one);
		free(one);
		free(other);
	}
}

/* ---- Watches in time ---------------------------------------------------------------------- */

TEST(watch_from_now_gets_events_at_once_and_one_from_the_past_late)
{
	uint64_t synced, unsynced;
	int64_t revision;

	start(&plain);
	put("a", "1");
	synced = watch_at(0, "a", 0);
	put("a", "2");
	ck_assert_uint_eq(events(synced, &revision), 1);
	ck_assert_int_eq(revision, 3);
	unsynced = watch_at(0, "a", 2);
	ck_assert_uint_eq(events(unsynced, &revision), 0);
	pass(100 * MS);
	ck_assert_uint_eq(events(unsynced, &revision), 2);
	ck_assert_int_eq(revision, 3);
	put("a", "3");
	ck_assert_uint_eq(events(unsynced, &revision), 1);
	ck_assert_int_eq(revision, 4);
	stop();
}

TEST(event_comes_before_its_revision_can_be_read)
{
	const struct em_setup early = {.early_ns = 2 * MS};

	start(&early);
	put("a", "1");
	pass(2 * MS);
	put("a", "2");
	ck_assert(get_at(0, "a", 3, true) == NULL);
	refused(11, "etcdserver: mvcc: required revision is a future revision");
	ck_assert_str_eq(get_at(0, "a", 0, true), "1");
	ck_assert_str_eq(get_at(0, "a", 3, false), "2");
	pass(2 * MS);
	ck_assert_str_eq(get_at(0, "a", 3, true), "2");
	stop();
}

/* ---- The server --------------------------------------------------------------------------- */

TEST(server_tells_about_itself)
{
	const struct em_setup three = {.members = 3, .version = "3.5.13"};
	struct lk__etcd_status_answer status;
	struct lk__etcd_member_list_answer list;
	struct lk__etcd_alarm_answer alarms;
	struct lk__etcd_alarm alarm;

	start(&three);
	request();
	ck_assert_int_eq(call(1, "/etcdserverpb.Maintenance/Status"), 0);
	read_as(&lk__etcd_status_shape, &status);
	ck_assert(lk__bytes_equal(status.version, lk__bytes_of("3.5.13")));
	ck_assert_uint_eq(status.leader, 1);
	ck_assert_uint_eq(status.header.member_id, 2);
	ck_assert_uint_eq(status.raft_term, em_term(world.model));
	ck_assert_uint_eq(status.errors.count, 0);
	request();
	ck_assert_int_eq(call(1, "/etcdserverpb.Cluster/MemberList"), 0);
	read_as(&lk__etcd_member_list_shape, &list);
	ck_assert_uint_eq(list.members.count, 3);
	request();
	ck_assert_int_eq(call(1, "/etcdserverpb.Maintenance/Alarm"), 0);
	read_as(&lk__etcd_alarm_shape, &alarms);
	ck_assert_uint_eq(alarms.alarms.count, 0);
	em_set_full(world.model, true);
	request();
	ck_assert_int_eq(call(1, "/etcdserverpb.Maintenance/Alarm"), 0);
	read_as(&lk__etcd_alarm_shape, &alarms);
	ck_assert(lk__pb_next(&alarms.alarms, &alarm));
	ck_assert_uint_eq(alarm.type, LK__ETCD_ALARM_NOSPACE);
	ck_assert_int_eq(call(0, "/etcdserverpb.KV/Unknown"), 12);
	stop();
}

TEST(full_store_deletes_and_keeps_alive)
{
	const struct lk__etcd_lease_grant more = {.ttl_s = 5};
	uint64_t stream;
	int64_t lease;

	start(&plain);
	lease = grant(5);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	em_set_full(world.model, true);
	ck_assert_int_eq(put_at(0, "b", "1", 0), 8);
	refused(8, "etcdserver: mvcc: database space exceeded");
	lk__etcd_put_lease_grant(request(), &more);
	ck_assert_int_eq(call(0, LEASE "LeaseGrant"), 8);
	stream = open_stream(0, KEEP_ALIVE);
	ck_assert_int_eq(keep_alive(stream, lease), 5);
	ck_assert_str_eq(get("a"), "1");
	ck_assert_int_eq(del_at(0, "a"), 0);
	em_set_full(world.model, false);
	put("b", "1");
	stop();
}

/* ---- Users -------------------------------------------------------------------------------- */

static char token[40];

static int log_in(const char *password)
{
	const struct lk__etcd_authenticate authenticate = {lk__bytes_of("u"),
	                                                   lk__bytes_of(password)};
	struct lk__etcd_authenticate_answer answer;
	int status;

	lk__etcd_put_authenticate(request(), &authenticate);
	status = call(0, "/etcdserverpb.Auth/Authenticate");
	if (status)
		return status;
	read_as(&lk__etcd_authenticate_shape, &answer);
	snprintf(token, sizeof(token), "%.*s", (int)answer.token.len,
	         (const char *)answer.token.data);
	world.token = token;
	return 0;
}

TEST(users_have_tokens_that_end)
{
	const struct em_setup users = {
		.is_3_4 = true, .user = "u", .password = "p", .token_ttl_ms = 2000};

	start(&users);
	ck_assert_int_eq(put_at(0, "a", "1", 0), 3);
	refused(3, "etcdserver: user name is empty");
	ck_assert_int_eq(log_in("q"), 3);
	refused(3, "etcdserver: authentication failed, invalid user ID or password");
	ck_assert_int_eq(log_in("p"), 0);
	for (int i = 0; i < 4; i++) {
		put("a", "1"); /* each use prolongs it */
		pass(1500 * MS);
	}
	pass(S);
	ck_assert_int_eq(put_at(0, "a", "1", 0), 16);
	refused(16, "etcdserver: invalid auth token");
	ck_assert_int_eq(log_in("p"), 16); /* with the token that has ended */
	world.token = NULL;
	ck_assert_int_eq(log_in("p"), 0);
	put("a", "1");
	em_deny(world.model, "lk/c/");
	put("lk/d", "1");
	ck_assert_int_eq(put_at(0, "lk/c/x", "1", 0), 7);
	refused(7, "etcdserver: permission denied");
	em_deny(world.model, NULL);
	put("lk/c/x", "1");
	em_expire_tokens(world.model);
	ck_assert_int_eq(put_at(0, "a", "1", 0), 16);
	stop();
}

/* ---- Faults of calls ---------------------------------------------------------------------- */

/* A Put of that value meets the fault: its status. */
static int put_with(enum em_fault fault, const char *value)
{
	em_fault(world.model, fault, KV "Put", 0);
	return put_at(0, "a", value, 0);
}

TEST(calls_meet_faults)
{
	start(&plain);
	put("a", "0");
	ck_assert_int_eq(put_with(EM_LOSE_REQUEST, "1"), NONE);
	ck_assert_str_eq(get("a"), "0");
	ck_assert_int_eq(put_with(EM_LOSE_ANSWER, "2"), NONE);
	ck_assert_str_eq(get("a"), "2");
	ck_assert_int_eq(put_with(EM_TIME_OUT, "3"), 14);
	refused(14, "etcdserver: request timed out");
	ck_assert_str_eq(get("a"), "2");
	ck_assert_int_eq(put_with(EM_TIME_OUT_DONE, "4"), 14);
	ck_assert_str_eq(get("a"), "4");
	ck_assert_int_eq(put_with(EM_TOO_MANY, "5"), 8);
	refused(8, "etcdserver: too many requests");
	ck_assert_int_eq(put_with(EM_NO_LEADER, "5"), 14);
	refused(14, "etcdserver: no leader");
	ck_assert_int_eq(put_with(EM_CHANGED, "5"), 14);
	refused(14, "etcdserver: leader changed");
	ck_assert_int_eq(put_with(EM_BAD_TOKEN, "5"), 16);
	ck_assert_str_eq(get("a"), "4");
	em_fault(world.model, EM_TOO_MANY, KV "Put", 1);
	put("a", "6");
	ck_assert_int_eq(em_faults_left(world.model), 1);
	ck_assert_int_eq(put_at(0, "a", "7", 0), 8);
	ck_assert_int_eq(em_faults_left(world.model), 0);
	stop();
}

/* The server closes the connection: that is the next answer, and the last one of it. */
static void was_closed(void)
{
	ck_assert(took(0));
	ck_assert_uint_eq(world.output.connection, world.connections[0]);
	world.connections[0] = em_connect(world.model, 0);
}

TEST(connections_are_cut)
{
	uint64_t stream;

	start(&plain);
	stream = watch_at(0, "a", 0);
	em_fault(world.model, EM_CUT_BEFORE, NULL, 0);
	lk__etcd_put_put(request(), &(struct lk__etcd_put){.key = lk__bytes_of("a")});
	begin_call(0, KV "Put");
	was_closed();
	ck_assert_str_eq(get("a"), "");
	ck_assert_int_eq(em_revision(world.model), 1);
	em_fault(world.model, EM_CUT_AFTER, NULL, 0);
	lk__etcd_put_put(request(), &(struct lk__etcd_put){.key = lk__bytes_of("a")});
	begin_call(0, KV "Put");
	was_closed();
	ck_assert_int_eq(em_revision(world.model), 2);
	put("a", "1");
	ck_assert(!took(stream));
	stop();
}

/* ---- Copies ------------------------------------------------------------------------------- */

static void show_key(void *arg, const struct lk__etcd_kv *kv)
{
	fprintf(arg, "%.*s=%.*s (%lld %lld %lld)\n", (int)kv->key.len, (const char *)kv->key.data,
	        (int)kv->value.len, (const char *)kv->value.data, (long long)kv->create_revision,
	        (long long)kv->mod_revision, (long long)kv->version);
}

static char *keys_of(const struct etcd_model *model)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert(out != NULL);
	em_each_key(model, show_key, out);
	fclose(out);
	return text;
}

TEST(copy_goes_on_alike)
{
	struct etcd_model *copy;
	char *one, *other;

	start(&plain);
	put("b", "1");
	put("a", "1");
	ck_assert_int_eq(put_at(0, "c", "1", grant(2)), 0);
	watch_at(0, "a", 1);
	copy = em_copy(world.model);
	for (int i = 0; i < 2; i++) {
		struct etcd_model *model = world.model;
		pass(3 * S);
		put("a", "2");
		world.model = copy;
		world.now_ns -= 3 * S;
		copy = model;
	}
	one = keys_of(world.model);
	other = keys_of(copy);
	ck_assert_str_eq(one, "a=2 (3 6 2)\nb=1 (2 2 1)\n");
	ck_assert_str_eq(other, one);
	free(one);
	free(other);
	em_free(copy);
	stop();
}
