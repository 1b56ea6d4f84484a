/* SPDX-License-Identifier: MIT
 * Our codec and protobuf-c, with random values: answers are the same values. */
#include "etcd/random.h"

static unsigned char theirs[SPACE];

static void read_packed(const void *message, const struct lk__pb_shape *shape, void *out)
{
	size_t len = protobuf_c_message_get_packed_size(message);

	ck_assert_uint_le(len, sizeof(theirs));
	protobuf_c_message_pack(message, theirs);
	ck_assert(lk__pb_read(shape, theirs, len, out));
}

static Pc__Header *random_header(void)
{
	static Pc__Header header;

	header = (Pc__Header)PC__HEADER__INIT;
	header.cluster_id = (uint64_t)number();
	header.member_id = (uint64_t)number();
	header.revision = number();
	header.raft_term = (uint64_t)number();
	return &header;
}

static void same_header(const struct lk__etcd_header *ours_header, const Pc__Header *header)
{
	ck_assert(ours_header->cluster_id == header->cluster_id);
	ck_assert(ours_header->member_id == header->member_id);
	ck_assert(ours_header->revision == header->revision);
	ck_assert(ours_header->raft_term == header->raft_term);
}

static Pc__Kv *random_kv(void)
{
	static Pc__Kv kvs[16];
	static unsigned turn;
	Pc__Kv *kv = &kvs[turn++ % 16];

	*kv = (Pc__Kv)PC__KV__INIT;
	kv->key = bytes();
	kv->value = bytes();
	kv->create_revision = number();
	kv->mod_revision = number();
	kv->version = number();
	kv->lease = number();
	return kv;
}

static void same_kv(const struct lk__etcd_kv *ours_kv, const Pc__Kv *kv)
{
	ck_assert(lk__bytes_equal(ours_kv->key, same(kv->key)));
	ck_assert(lk__bytes_equal(ours_kv->value, same(kv->value)));
	ck_assert(ours_kv->create_revision == kv->create_revision);
	ck_assert(ours_kv->mod_revision == kv->mod_revision);
	ck_assert(ours_kv->version == kv->version && ours_kv->lease == kv->lease);
}

static void same_kvs(struct lk__pb_list list, size_t count, Pc__Kv *const *kvs)
{
	struct lk__etcd_kv kv;

	ck_assert_uint_eq(list.count, count);
	for (size_t i = 0; i < count; i++) {
		ck_assert(lk__pb_next(&list, &kv));
		same_kv(&kv, kvs[i]);
	}
	ck_assert(!lk__pb_next(&list, &kv));
}

static void same_text(struct lk__bytes ours_text, ProtobufCBinaryData data)
{
	ck_assert(lk__bytes_equal(ours_text, same(data)));
}

static void same_texts(struct lk__pb_list list, size_t count, const ProtobufCBinaryData *texts)
{
	struct lk__bytes one;

	ck_assert_uint_eq(list.count, count);
	for (size_t i = 0; i < count; i++) {
		ck_assert(lk__pb_next(&list, &one));
		same_text(one, texts[i]);
	}
}

static void random_answers(Pc__RangeAnswer *range, Pc__PutAnswer *put, Pc__DeleteAnswer *del,
                           Pc__Kv *kvs[4])
{
	*range = (Pc__RangeAnswer)PC__RANGE_ANSWER__INIT;
	*put = (Pc__PutAnswer)PC__PUT_ANSWER__INIT;
	*del = (Pc__DeleteAnswer)PC__DELETE_ANSWER__INIT;
	range->header = put->header = del->header = random_header();
	for (int i = 0; i < 4; i++)
		kvs[i] = random_kv();
	range->n_kvs = del->n_prev_kvs = below(5);
	range->kvs = del->prev_kvs = kvs;
	range->more = flag();
	range->count = del->deleted = number();
	put->prev_kv = flag() ? random_kv() : NULL;
}

static void same_range(const struct lk__etcd_range_answer *ours_range, const Pc__RangeAnswer *range)
{
	same_header(&ours_range->header, range->header);
	same_kvs(ours_range->kvs, range->n_kvs, range->kvs);
	ck_assert(ours_range->more == !!range->more && ours_range->count == range->count);
}

static void same_put(const struct lk__etcd_put_answer *ours_put, const Pc__PutAnswer *put)
{
	same_header(&ours_put->header, put->header);
	ck_assert(ours_put->has_prev_kv == !!put->prev_kv);
	if (put->prev_kv)
		same_kv(&ours_put->prev_kv, put->prev_kv);
}

static void same_delete(const struct lk__etcd_delete_answer *ours_delete,
                        const Pc__DeleteAnswer *del)
{
	same_header(&ours_delete->header, del->header);
	same_kvs(ours_delete->prev_kvs, del->n_prev_kvs, del->prev_kvs);
	ck_assert(ours_delete->deleted == del->deleted);
}

TEST(answers_about_keys_are_the_same_values)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__RangeAnswer range;
		Pc__PutAnswer put;
		Pc__DeleteAnswer del;
		Pc__Kv *kvs[4];
		struct lk__etcd_range_answer our_range;
		struct lk__etcd_put_answer our_put;
		struct lk__etcd_delete_answer our_delete;
		random_answers(&range, &put, &del, kvs);
		read_packed(&range, &lk__etcd_range_shape, &our_range);
		same_range(&our_range, &range);
		read_packed(&put, &lk__etcd_put_shape, &our_put);
		same_put(&our_put, &put);
		read_packed(&del, &lk__etcd_delete_shape, &our_delete);
		same_delete(&our_delete, &del);
	}
}

TEST(answers_of_txns_are_the_same_values)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__RangeAnswer range;
		Pc__PutAnswer put;
		Pc__DeleteAnswer del;
		Pc__Kv *kvs[4];
		Pc__OpAnswer ops[6], *list[6];
		Pc__TxnAnswer txn = PC__TXN_ANSWER__INIT;
		struct lk__etcd_txn_answer our_txn;
		struct lk__etcd_op_answer op;
		random_answers(&range, &put, &del, kvs);
		txn.header = range.header;
		txn.succeeded = flag();
		txn.responses = list;
		txn.n_responses = below(7);
		for (size_t i = 0; i < txn.n_responses; i++) {
			list[i] = &ops[i];
			ops[i] = (Pc__OpAnswer)PC__OP_ANSWER__INIT;
			ops[i].op_case = (Pc__OpAnswer__OpCase)(1 + below(3));
			if (ops[i].op_case == PC__OP_ANSWER__OP_RANGE)
				ops[i].range = &range;
			else if (ops[i].op_case == PC__OP_ANSWER__OP_PUT)
				ops[i].put = &put;
			else
				ops[i].del = &del;
		}
		read_packed(&txn, &lk__etcd_txn_shape, &our_txn);
		same_header(&our_txn.header, txn.header);
		ck_assert(our_txn.succeeded == !!txn.succeeded);
		ck_assert_uint_eq(our_txn.responses.count, txn.n_responses);
		for (size_t i = 0; i < txn.n_responses; i++) {
			ck_assert(lk__pb_next(&our_txn.responses, &op));
			ck_assert_int_eq(op.has_range + 2 * op.has_put + 3 * op.has_del,
			                 ops[i].op_case);
			if (op.has_range)
				same_range(&op.range, &range);
			else if (op.has_put)
				same_put(&op.put, &put);
			else
				same_delete(&op.del, &del);
		}
	}
}

TEST(answers_about_leases_are_the_same_values)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__LeaseGrantAnswer grant = PC__LEASE_GRANT_ANSWER__INIT;
		Pc__KeepAliveAnswer alive = PC__KEEP_ALIVE_ANSWER__INIT;
		Pc__HeaderAnswer revoke = PC__HEADER_ANSWER__INIT;
		struct lk__etcd_lease_grant_answer our_grant;
		struct lk__etcd_keep_alive_answer our_alive;
		struct lk__etcd_lease_revoke_answer our_revoke;
		grant.header = alive.header = revoke.header = random_header();
		grant.id = alive.id = number();
		grant.ttl = alive.ttl = number();
		grant.error = bytes();
		read_packed(&grant, &lk__etcd_lease_grant_shape, &our_grant);
		same_header(&our_grant.header, grant.header);
		ck_assert(our_grant.id == grant.id && our_grant.ttl_s == grant.ttl);
		same_text(our_grant.error, grant.error);
		read_packed(&alive, &lk__etcd_keep_alive_shape, &our_alive);
		same_header(&our_alive.header, grant.header);
		ck_assert(our_alive.id == grant.id && our_alive.ttl_s == grant.ttl);
		read_packed(&revoke, &lk__etcd_lease_revoke_shape, &our_revoke);
		same_header(&our_revoke.header, grant.header);
	}
}

TEST(answers_of_watches_are_the_same_values)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__WatchAnswer watch = PC__WATCH_ANSWER__INIT;
		Pc__Event events[4], *list[4];
		struct lk__etcd_watch_answer our_watch;
		struct lk__etcd_event event;
		watch.header = random_header();
		watch.watch_id = number();
		watch.created = flag();
		watch.canceled = flag();
		watch.compact_revision = number();
		watch.cancel_reason = bytes();
		watch.fragment = flag();
		watch.n_events = below(5);
		watch.events = list;
		for (size_t i = 0; i < watch.n_events; i++) {
			list[i] = &events[i];
			events[i] = (Pc__Event)PC__EVENT__INIT;
			events[i].type = (Pc__Event__Type)below(2);
			events[i].kv = random_kv();
			events[i].prev_kv = flag() ? random_kv() : NULL;
		}
		read_packed(&watch, &lk__etcd_watch_shape, &our_watch);
		same_header(&our_watch.header, watch.header);
		ck_assert(our_watch.watch_id == watch.watch_id);
		ck_assert(our_watch.created == !!watch.created);
		ck_assert(our_watch.canceled == !!watch.canceled);
		ck_assert(our_watch.fragment == !!watch.fragment);
		ck_assert(our_watch.compact_revision == watch.compact_revision);
		same_text(our_watch.cancel_reason, watch.cancel_reason);
		ck_assert_uint_eq(our_watch.events.count, watch.n_events);
		for (size_t i = 0; i < watch.n_events; i++) {
			ck_assert(lk__pb_next(&our_watch.events, &event));
			ck_assert(event.type == (uint32_t)events[i].type);
			same_kv(&event.kv, events[i].kv);
			ck_assert(event.has_prev_kv == !!events[i].prev_kv);
			if (event.has_prev_kv)
				same_kv(&event.prev_kv, events[i].prev_kv);
		}
	}
}

static void check_status(void)
{
	Pc__StatusAnswer status = PC__STATUS_ANSWER__INIT;
	ProtobufCBinaryData errors[3] = {bytes(), bytes(), bytes()};
	struct lk__etcd_status_answer our;

	status.header = random_header();
	status.version = bytes();
	status.db_size = number();
	status.leader = (uint64_t)number();
	status.raft_index = (uint64_t)number();
	status.raft_term = (uint64_t)number();
	status.raft_applied_index = (uint64_t)number();
	status.n_errors = below(4);
	status.errors = errors;
	status.db_size_in_use = number();
	status.is_learner = flag();
	read_packed(&status, &lk__etcd_status_shape, &our);
	same_header(&our.header, status.header);
	same_text(our.version, status.version);
	ck_assert(our.db_size == status.db_size && our.leader == status.leader);
	ck_assert(our.raft_index == status.raft_index && our.raft_term == status.raft_term);
	ck_assert(our.raft_applied_index == status.raft_applied_index);
	same_texts(our.errors, status.n_errors, errors);
	ck_assert(our.db_size_in_use == status.db_size_in_use);
	ck_assert(our.is_learner == !!status.is_learner);
}

static void check_members(void)
{
	Pc__MemberListAnswer members = PC__MEMBER_LIST_ANSWER__INIT;
	Pc__Member member = PC__MEMBER__INIT, *list[] = {&member, &member};
	ProtobufCBinaryData urls[3] = {bytes(), bytes(), bytes()};
	struct lk__etcd_member_list_answer our;
	struct lk__etcd_member ours_member;

	member.id = (uint64_t)number();
	member.name = bytes();
	member.n_peer_urls = below(4);
	member.n_client_urls = below(4);
	member.peer_urls = member.client_urls = urls;
	member.is_learner = flag();
	members.header = random_header();
	members.n_members = below(3);
	members.members = list;
	read_packed(&members, &lk__etcd_member_list_shape, &our);
	same_header(&our.header, members.header);
	ck_assert_uint_eq(our.members.count, members.n_members);
	while (lk__pb_next(&our.members, &ours_member)) {
		ck_assert(ours_member.id == member.id);
		same_text(ours_member.name, member.name);
		same_texts(ours_member.peer_urls, member.n_peer_urls, urls);
		same_texts(ours_member.client_urls, member.n_client_urls, urls);
		ck_assert(ours_member.is_learner == !!member.is_learner);
	}
}

static void check_alarms(void)
{
	Pc__AlarmAnswer alarms = PC__ALARM_ANSWER__INIT;
	Pc__Alarm alarm = PC__ALARM__INIT, *list[] = {&alarm, &alarm};
	struct lk__etcd_alarm_answer our;
	struct lk__etcd_alarm ours_alarm;

	alarm.member_id = (uint64_t)number();
	alarm.type = (Pc__Alarm__Type)below(3);
	alarms.header = random_header();
	alarms.n_alarms = below(3);
	alarms.alarms = list;
	read_packed(&alarms, &lk__etcd_alarm_shape, &our);
	same_header(&our.header, alarms.header);
	ck_assert_uint_eq(our.alarms.count, alarms.n_alarms);
	while (lk__pb_next(&our.alarms, &ours_alarm))
		ck_assert(ours_alarm.member_id == alarm.member_id &&
		          ours_alarm.type == (uint32_t)alarm.type);
}

TEST(answers_about_the_server_are_the_same_values)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__AuthenticateAnswer authenticate = PC__AUTHENTICATE_ANSWER__INIT;
		struct lk__etcd_authenticate_answer our_authenticate;
		check_status();
		check_members();
		check_alarms();
		authenticate.header = random_header();
		authenticate.token = bytes();
		read_packed(&authenticate, &lk__etcd_authenticate_shape, &our_authenticate);
		same_text(our_authenticate.token, authenticate.token);
	}
}
