/* SPDX-License-Identifier: MIT
 * Our codec and protobuf-c, with random values: requests are the same bytes.
 * tests/etcd/messages.proto describes the messages to protobuf-c. */
#include "etcd/random.h"

static unsigned char ours[SPACE], theirs[SPACE];

static struct lk__pb_writer writer;

static struct lk__pb_writer *fresh(void)
{
	lk__pb_writer_init(&writer, ours, sizeof(ours));
	return &writer;
}

static void expect_same(const void *message)
{
	size_t len = protobuf_c_message_get_packed_size(message);

	ck_assert_uint_le(len, sizeof(theirs));
	protobuf_c_message_pack(message, theirs);
	ck_assert(!writer.is_full);
	ck_assert_uint_eq(writer.len, len);
	ck_assert(!memcmp(ours, theirs, len));
}

static void random_range(Pc__Range *a, struct lk__etcd_range *b)
{
	*a = (Pc__Range)PC__RANGE__INIT;
	a->key = bytes();
	a->range_end = bytes();
	a->limit = number();
	a->revision = number();
	a->order = (Pc__Range__Order)below(3);
	a->by = (Pc__Range__By)below(5);
	a->serializable = flag();
	a->keys_only = flag();
	a->count_only = flag();
	*b = (struct lk__etcd_range){
		.key = same(a->key),
		.range_end = same(a->range_end),
		.limit = a->limit,
		.revision = a->revision,
		.order = (enum lk__etcd_order)a->order,
		.by = (enum lk__etcd_by)a->by,
		.serializable = a->serializable,
		.keys_only = a->keys_only,
		.count_only = a->count_only,
	};
}

static void random_put(Pc__Put *a, struct lk__etcd_put *b)
{
	*a = (Pc__Put)PC__PUT__INIT;
	a->key = bytes();
	a->value = bytes();
	a->lease = number();
	a->prev_kv = flag();
	a->ignore_value = flag();
	a->ignore_lease = flag();
	*b = (struct lk__etcd_put){same(a->key), same(a->value),  a->lease,
	                           a->prev_kv,   a->ignore_value, a->ignore_lease};
}

static void random_delete(Pc__Delete *a, struct lk__etcd_delete *b)
{
	*a = (Pc__Delete)PC__DELETE__INIT;
	a->key = bytes();
	a->range_end = bytes();
	a->prev_kv = flag();
	*b = (struct lk__etcd_delete){same(a->key), same(a->range_end), a->prev_kv};
}

static void random_compare(Pc__Compare *a, struct lk__etcd_compare *b)
{
	*a = (Pc__Compare)PC__COMPARE__INIT;
	a->result = (Pc__Compare__Result)below(4);
	a->target = (Pc__Compare__Target)below(5);
	a->key = bytes();
	a->range_end = bytes();
	*b = (struct lk__etcd_compare){
		.result = (enum lk__etcd_result)a->result,
		.target = (enum lk__etcd_target)a->target,
		.key = same(a->key),
		.range_end = same(a->range_end),
	};
	a->with_case = (Pc__Compare__WithCase)(4 + a->target);
	if (a->target == PC__COMPARE__TARGET__VALUE) {
		a->value = bytes();
		b->value = same(a->value);
	} else {
		a->version = b->number = number();
	}
}

struct ops {
	Pc__Op ops[4], *list[4];
	Pc__Range ranges[4];
	Pc__Put puts[4];
	Pc__Delete deletes[4];
	struct lk__etcd_op our_ops[4];
	struct lk__etcd_range our_ranges[4];
	struct lk__etcd_put our_puts[4];
	struct lk__etcd_delete our_deletes[4];
	size_t count;
};

static void random_ops(struct ops *ops)
{
	ops->count = below(5);
	for (size_t i = 0; i < ops->count; i++) {
		ops->list[i] = &ops->ops[i];
		ops->ops[i] = (Pc__Op)PC__OP__INIT;
		ops->ops[i].op_case = (Pc__Op__OpCase)(1 + below(3));
		ops->our_ops[i] = (struct lk__etcd_op){0};
		random_range(&ops->ranges[i], &ops->our_ranges[i]);
		random_put(&ops->puts[i], &ops->our_puts[i]);
		random_delete(&ops->deletes[i], &ops->our_deletes[i]);
		if (ops->ops[i].op_case == PC__OP__OP_RANGE) {
			ops->ops[i].range = &ops->ranges[i];
			ops->our_ops[i].range = &ops->our_ranges[i];
		} else if (ops->ops[i].op_case == PC__OP__OP_PUT) {
			ops->ops[i].put = &ops->puts[i];
			ops->our_ops[i].put = &ops->our_puts[i];
		} else {
			ops->ops[i].del = &ops->deletes[i];
			ops->our_ops[i].del = &ops->our_deletes[i];
		}
	}
}

TEST(requests_about_keys_are_the_same_bytes)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__Range range;
		Pc__Put put;
		Pc__Delete del;
		struct lk__etcd_range our_range;
		struct lk__etcd_put our_put;
		struct lk__etcd_delete our_delete;
		random_range(&range, &our_range);
		lk__etcd_put_range(fresh(), &our_range);
		expect_same(&range);
		random_put(&put, &our_put);
		lk__etcd_put_put(fresh(), &our_put);
		expect_same(&put);
		random_delete(&del, &our_delete);
		lk__etcd_put_delete(fresh(), &our_delete);
		expect_same(&del);
	}
}

TEST(txns_are_the_same_bytes)
{
	static struct ops success, failure;

	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__Txn txn = PC__TXN__INIT;
		Pc__Compare compares[4], *list[4];
		struct lk__etcd_compare our_compares[4];
		struct lk__etcd_txn our_txn = {our_compares,    below(5), success.our_ops, 0,
		                               failure.our_ops, 0};
		for (size_t i = 0; i < our_txn.compare_count; i++) {
			random_compare(&compares[i], &our_compares[i]);
			list[i] = &compares[i];
		}
		random_ops(&success);
		random_ops(&failure);
		txn.n_compares = our_txn.compare_count;
		txn.compares = list;
		txn.n_success = our_txn.success_count = success.count;
		txn.success = success.list;
		txn.n_failure = our_txn.failure_count = failure.count;
		txn.failure = failure.list;
		lk__etcd_put_txn(fresh(), &our_txn);
		expect_same(&txn);
	}
}

static void check_watches(void)
{
	Pc__WatchCreate create = PC__WATCH_CREATE__INIT;
	Pc__WatchCancel cancel = PC__WATCH_CANCEL__INIT;
	Pc__Watch watch = PC__WATCH__INIT;
	Pc__WatchCreate__Filter filters[2];
	struct lk__etcd_watch_create ours_create = {.no_put = flag(), .no_delete = flag()};

	create.key = bytes();
	create.range_end = bytes();
	create.start_revision = ours_create.start_revision = number();
	create.progress_notify = ours_create.progress_notify = flag();
	create.prev_kv = ours_create.prev_kv = flag();
	create.watch_id = ours_create.watch_id = number();
	create.fragment = ours_create.fragment = flag();
	create.filters = filters;
	if (ours_create.no_put)
		filters[create.n_filters++] = PC__WATCH_CREATE__FILTER__NO_PUT;
	if (ours_create.no_delete)
		filters[create.n_filters++] = PC__WATCH_CREATE__FILTER__NO_DELETE;
	ours_create.key = same(create.key);
	ours_create.range_end = same(create.range_end);
	watch.request_case = PC__WATCH__REQUEST_CREATE;
	watch.create = &create;
	lk__etcd_put_watch_create(fresh(), &ours_create);
	expect_same(&watch);

	cancel.watch_id = number();
	watch.request_case = PC__WATCH__REQUEST_CANCEL;
	watch.cancel = &cancel;
	lk__etcd_put_watch_cancel(fresh(), cancel.watch_id);
	expect_same(&watch);
}

TEST(other_requests_are_the_same_bytes)
{
	begin();
	for (int round = 0; round < ROUNDS; round++) {
		Pc__LeaseGrant grant = PC__LEASE_GRANT__INIT;
		Pc__LeaseId id = PC__LEASE_ID__INIT;
		Pc__Authenticate authenticate = PC__AUTHENTICATE__INIT;
		struct lk__etcd_lease_grant our_grant;
		struct lk__etcd_authenticate our_authenticate;
		grant.ttl = number();
		grant.id = number();
		our_grant = (struct lk__etcd_lease_grant){grant.ttl, grant.id};
		lk__etcd_put_lease_grant(fresh(), &our_grant);
		expect_same(&grant);
		id.id = number();
		lk__etcd_put_lease_revoke(fresh(), id.id);
		expect_same(&id);
		lk__etcd_put_keep_alive(fresh(), id.id);
		expect_same(&id);
		authenticate.name = bytes();
		authenticate.password = bytes();
		our_authenticate = (struct lk__etcd_authenticate){same(authenticate.name),
		                                                  same(authenticate.password)};
		lk__etcd_put_authenticate(fresh(), &our_authenticate);
		expect_same(&authenticate);
		check_watches();
	}
}
