/* SPDX-License-Identifier: MIT
 * etcd's messages: the bytes of each request, and each answer from bytes, whole and cut anywhere.
 * unit_etcd_protobuf compares them with protobuf-c, by random values. */
#include "etcd/messages.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define B(text) lk__bytes_of(text)

static struct lk__pb_writer writer;
static unsigned char data[1000];

static struct lk__pb_writer *fresh(void)
{
	lk__pb_writer_init(&writer, data, sizeof(data));
	return &writer;
}

static void expect_bytes(const char *bytes, size_t len)
{
	ck_assert(!writer.is_full);
	ck_assert_msg(writer.len == len, "%zu bytes", writer.len);
	ck_assert(!memcmp(data, bytes, len));
}
#define WRITES(bytes) expect_bytes(bytes, sizeof(bytes) - 1)

/* ---- Requests ----------------------------------------------------------------------------- */

TEST(range_is_encoded)
{
	const struct lk__etcd_range range = {
		.key = B("a"),
		.range_end = B("b"),
		.limit = 2,
		.revision = 300,
		.order = LK__ETCD_DESCENDING,
		.by = LK__ETCD_BY_CREATE,
		.serializable = true,
		.keys_only = true,
		.count_only = true,
	};
	const struct lk__etcd_range plain = {.key = B("a")};

	lk__etcd_put_range(fresh(), &range);
	WRITES("\x0a\1a\x12\1b\x18\2\x20\xac\2\x28\2\x30\2\x38\1\x40\1\x48\1");
	lk__etcd_put_range(fresh(), &plain);
	WRITES("\x0a\1a");
}

TEST(put_and_delete_are_encoded)
{
	const struct lk__etcd_put put = {.key = B("a"),
	                                 .value = B("vv"),
	                                 .lease = 5,
	                                 .prev_kv = true,
	                                 .ignore_value = true,
	                                 .ignore_lease = true};
	const struct lk__etcd_delete del = {.key = B("a"), .range_end = B("b"), .prev_kv = true};

	lk__etcd_put_put(fresh(), &put);
	WRITES("\x0a\1a\x12\2vv\x18\5\x20\1\x28\1\x30\1");
	lk__etcd_put_delete(fresh(), &del);
	WRITES("\x0a\1a\x12\1b\x18\1");
}

TEST(txn_is_encoded_with_comparisons_with_zero)
{
	static const struct lk__etcd_put put = {.key = {"k", 1}, .value = {"v", 1}};
	static const struct lk__etcd_range range = {.key = {"k", 1}};
	static const struct lk__etcd_delete del = {.key = {"k", 1}};
	const struct lk__etcd_compare compares[] = {
		{.target = LK__ETCD_CREATE, .key = B("k")},
		{.result = LK__ETCD_LESS,
	         .target = LK__ETCD_CREATE,
	         .key = B("k"),
	         .range_end = B("l"),
	         .number = 9},
		{.target = LK__ETCD_VALUE, .key = B("k"), .value = B("")},
		{.result = LK__ETCD_GREATER, .target = LK__ETCD_VERSION, .key = B("k")},
		{.target = LK__ETCD_LEASE, .key = B("k"), .number = 1},
		{.result = LK__ETCD_NOT_EQUAL, .target = LK__ETCD_MOD, .key = B("k"), .number = 2},
	};
	const struct lk__etcd_op success[] = {{.put = &put}, {.range = &range}};
	const struct lk__etcd_op failure[] = {{.del = &del}};
	const struct lk__etcd_txn txn = {compares, 6, success, 2, failure, 1};

	lk__etcd_put_txn(fresh(), &txn);
	WRITES("\x0a\7\x10\1\x1a\1k\x28\0"
	       "\x0a\x0d\x08\2\x10\1\x1a\1k\x28\x09\x82\4\1l"
	       "\x0a\7\x10\3\x1a\1k\x3a\0"
	       "\x0a\7\x08\1\x1a\1k\x20\0"
	       "\x0a\7\x10\4\x1a\1k\x40\1"
	       "\x0a\x09\x08\3\x10\2\x1a\1k\x30\2"
	       "\x12\x08\x12\6\x0a\1k\x12\1v"
	       "\x12\5\x0a\3\x0a\1k"
	       "\x1a\5\x1a\3\x0a\1k");
}

TEST(leases_are_encoded)
{
	const struct lk__etcd_lease_grant grant = {.ttl_s = 5, .id = 7};

	lk__etcd_put_lease_grant(fresh(), &grant);
	WRITES("\x08\5\x10\7");
	lk__etcd_put_lease_revoke(fresh(), -1);
	WRITES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\1");
	lk__etcd_put_keep_alive(fresh(), 200);
	WRITES("\x08\xc8\1");
}

TEST(watches_are_encoded)
{
	const struct lk__etcd_watch_create create = {
		.key = B("a"),
		.range_end = B("b"),
		.start_revision = 4,
		.watch_id = 3,
		.progress_notify = true,
		.no_put = true,
		.no_delete = true,
		.prev_kv = true,
		.fragment = true,
	};
	const struct lk__etcd_watch_create no_put = {.key = B("a"), .no_put = true};

	lk__etcd_put_watch_create(fresh(), &create);
	WRITES("\x0a\x14\x0a\1a\x12\1b\x18\4\x20\1\x2a\2\0\1\x30\1\x38\3\x40\1");
	lk__etcd_put_watch_create(fresh(), &no_put);
	WRITES("\x0a\6\x0a\1a\x2a\1\0");
	lk__etcd_put_watch_cancel(fresh(), 0);
	WRITES("\x12\0");
	lk__etcd_put_watch_cancel(fresh(), 3);
	WRITES("\x12\2\x08\3");
}

TEST(server_is_asked)
{
	const struct lk__etcd_authenticate authenticate = {B("root"), B("pw")};

	lk__etcd_put_authenticate(fresh(), &authenticate);
	WRITES("\x0a\4root\x12\2pw");
	lk__etcd_put_member_list(fresh(), true);
	WRITES("\x08\1");
	lk__etcd_put_member_list(fresh(), false);
	WRITES("");
}

/* ---- Answers ------------------------------------------------------------------------------ */

#define HEADER "\x0a\x08\x08\1\x10\2\x18\3\x20\4"
#define KV "\x0a\1k\x10\5\x18\6\x20\7\x2a\1v\x30\x08"

static void expect_header(const struct lk__etcd_header *header)
{
	ck_assert(header->cluster_id == 1 && header->member_id == 2 && header->revision == 3 &&
	          header->raft_term == 4);
}

static void expect_kv(const struct lk__etcd_kv *kv)
{
	ck_assert(lk__bytes_equal(kv->key, B("k")) && lk__bytes_equal(kv->value, B("v")));
	ck_assert(kv->create_revision == 5 && kv->mod_revision == 6 && kv->version == 7 &&
	          kv->lease == 8);
}

/* Read it, and every beginning of it, from memory of the exact size: that is refused, or ends
 * between two fields. */
static void expect_read(const struct lk__pb_shape *shape, const char *bytes, size_t len, void *out,
                        size_t fields)
{
	size_t whole = 0;

	for (size_t cut = 0; cut < len; cut++) {
		char *exact = malloc(cut + !cut);
		memcpy(exact, bytes, cut);
		whole += lk__pb_read(shape, exact, cut, out);
		free(exact);
	}
	ck_assert_uint_eq(whole, fields);
	ck_assert(lk__pb_read(shape, bytes, len, out));
}
#define READS(shape, bytes, out, fields)                                                           \
	expect_read(&(shape), bytes, sizeof(bytes) - 1, out, fields)

TEST(range_answer_is_decoded)
{
	struct lk__etcd_range_answer answer;
	struct lk__etcd_kv kv;

	READS(lk__etcd_range_shape, HEADER "\x12\x0e" KV "\x12\x0e" KV "\x18\1\x20\x09", &answer,
	      5);
	expect_header(&answer.header);
	ck_assert(answer.more && answer.count == 9 && answer.kvs.count == 2);
	for (int i = 0; i < 2; i++) {
		ck_assert(lk__pb_next(&answer.kvs, &kv));
		expect_kv(&kv);
	}
	ck_assert(!lk__pb_next(&answer.kvs, &kv));
}

TEST(put_and_delete_answers_are_decoded)
{
	struct lk__etcd_put_answer put;
	struct lk__etcd_delete_answer del;
	struct lk__etcd_kv kv;

	READS(lk__etcd_put_shape, HEADER "\x12\x0e" KV, &put, 2);
	expect_header(&put.header);
	ck_assert(put.has_prev_kv);
	expect_kv(&put.prev_kv);
	READS(lk__etcd_put_shape, HEADER, &put, 1);
	ck_assert(!put.has_prev_kv);
	READS(lk__etcd_delete_shape, HEADER "\x10\3\x1a\x0e" KV, &del, 3);
	expect_header(&del.header);
	ck_assert(del.deleted == 3 && lk__pb_next(&del.prev_kvs, &kv));
	expect_kv(&kv);
}

TEST(txn_answer_is_decoded)
{
	struct lk__etcd_txn_answer answer;
	struct lk__etcd_op_answer op;
	struct lk__etcd_kv kv;

	/* A Range with one key, a Put, a Delete, and a Txn, which is skipped. */
	READS(lk__etcd_txn_shape,
	      HEADER "\x10\1"
	             "\x1a\x1c\x0a\x1a" HEADER "\x12\x0e" KV "\x1a\x02\x12\x00"
	             "\x1a\x04\x1a\x02\x10\x02"
	             "\x1a\x04\x22\x02\x10\x01",
	      &answer, 6);
	expect_header(&answer.header);
	ck_assert(answer.succeeded && answer.responses.count == 4);
	ck_assert(lk__pb_next(&answer.responses, &op));
	ck_assert(op.has_range && !op.has_put && !op.has_del && op.range.kvs.count == 1);
	expect_header(&op.range.header);
	ck_assert(lk__pb_next(&op.range.kvs, &kv));
	expect_kv(&kv);
	ck_assert(lk__pb_next(&answer.responses, &op) && op.has_put && !op.has_range);
	ck_assert(lk__pb_next(&answer.responses, &op) && op.has_del && op.del.deleted == 2);
	ck_assert(lk__pb_next(&answer.responses, &op));
	ck_assert(!op.has_range && !op.has_put && !op.has_del);
	ck_assert(!lk__pb_next(&answer.responses, &op));
}

TEST(lease_answers_are_decoded)
{
	struct lk__etcd_lease_grant_answer grant;
	struct lk__etcd_lease_revoke_answer revoke;
	struct lk__etcd_keep_alive_answer alive;
	struct lk__etcd_time_to_live_answer left;

	READS(lk__etcd_lease_grant_shape, HEADER "\x10\7\x18\2\x22\2no", &grant, 4);
	expect_header(&grant.header);
	ck_assert(grant.id == 7 && grant.ttl_s == 2 && lk__bytes_equal(grant.error, B("no")));
	READS(lk__etcd_lease_revoke_shape, HEADER, &revoke, 1);
	expect_header(&revoke.header);
	READS(lk__etcd_keep_alive_shape, HEADER "\x10\7\x18\4", &alive, 3);
	expect_header(&alive.header);
	ck_assert(alive.id == 7 && alive.ttl_s == 4);
	READS(lk__etcd_time_to_live_shape, HEADER "\x10\7\x18\3\x20\4", &left, 4);
	expect_header(&left.header);
	ck_assert(left.id == 7 && left.ttl_s == 3 && left.granted_s == 4);
}

TEST(watch_answer_is_decoded)
{
	struct lk__etcd_watch_answer answer;
	struct lk__etcd_event event;

	READS(lk__etcd_watch_shape,
	      HEADER "\x10\5\x18\1\x20\1\x28\6\x32\3why\x38\1"
	             "\x5a\x10\x12\x0e" KV "\x5a\x22\x08\1\x12\x0e" KV "\x1a\x0e" KV,
	      &answer, 9);
	expect_header(&answer.header);
	ck_assert(answer.watch_id == 5 && answer.created && answer.canceled && answer.fragment);
	ck_assert(answer.compact_revision == 6 && lk__bytes_equal(answer.cancel_reason, B("why")));
	ck_assert(answer.events.count == 2 && lk__pb_next(&answer.events, &event));
	ck_assert(event.type == LK__ETCD_EVENT_PUT && !event.has_prev_kv);
	expect_kv(&event.kv);
	ck_assert(lk__pb_next(&answer.events, &event));
	ck_assert(event.type == LK__ETCD_EVENT_DELETE && event.has_prev_kv);
	expect_kv(&event.prev_kv);
}

TEST(answers_about_the_server_are_decoded)
{
	struct lk__etcd_status_answer status;
	struct lk__etcd_authenticate_answer authenticate;
	struct lk__etcd_member_list_answer members;
	struct lk__etcd_member member;
	struct lk__etcd_alarm_answer alarms;
	struct lk__etcd_alarm alarm;
	struct lk__bytes text;

	READS(lk__etcd_status_shape,
	      HEADER "\x12\5"
	             "3.5.9\x18\1\x20\2\x28\3\x30\4\x38\5\x42\1a\x42\1b\x48\6\x50\1",
	      &status, 11);
	ck_assert(lk__bytes_equal(status.version, B("3.5.9")) && status.db_size == 1);
	ck_assert(status.leader == 2 && status.raft_index == 3 && status.raft_term == 4);
	ck_assert(status.raft_applied_index == 5 && status.db_size_in_use == 6);
	ck_assert(status.is_learner && status.errors.count == 2);
	ck_assert(lk__pb_next(&status.errors, &text) && lk__pb_next(&status.errors, &text));
	ck_assert(lk__bytes_equal(text, B("b")));
	READS(lk__etcd_authenticate_shape, HEADER "\x12\3tok", &authenticate, 2);
	ck_assert(lk__bytes_equal(authenticate.token, B("tok")));
	READS(lk__etcd_member_list_shape, HEADER "\x12\x0d\x08\x09\x12\1n\x1a\1p\x22\1c\x28\1",
	      &members, 2);
	ck_assert(lk__pb_next(&members.members, &member));
	ck_assert(member.id == 9 && member.is_learner && lk__bytes_equal(member.name, B("n")));
	ck_assert(lk__pb_next(&member.client_urls, &text) && lk__bytes_equal(text, B("c")));
	ck_assert(lk__pb_next(&member.peer_urls, &text) && lk__bytes_equal(text, B("p")));
	READS(lk__etcd_alarm_shape, HEADER "\x12\4\x08\2\x10\1", &alarms, 2);
	ck_assert(lk__pb_next(&alarms.alarms, &alarm));
	ck_assert(alarm.member_id == 2 && alarm.type == LK__ETCD_ALARM_NOSPACE);
}

TEST(malformed_part_refuses_the_whole_answer)
{
	struct lk__etcd_txn_answer txn;
	struct lk__etcd_watch_answer watch;

	/* A key's number as bytes, three messages deep; an event with a length too large. */
	ck_assert(!lk__pb_read(&lk__etcd_txn_shape, "\x1a\x06\x0a\x04\x12\x02\x12\x00", 8, &txn));
	ck_assert(lk__pb_read(&lk__etcd_txn_shape, "\x1a\x06\x0a\x04\x12\x02\x0a\x00", 8, &txn));
	ck_assert(!lk__pb_read(&lk__etcd_watch_shape, "\x5a\x04\x12\x03\x10\x01", 6, &watch));
}
