/* SPDX-License-Identifier: MIT
 * A world of the model of etcd for its own tests, with a connection to the first member, and calls
 * whose answers are awaited. */
#ifndef ETCD_MODEL_FIXTURE_H
#define ETCD_MODEL_FIXTURE_H

#include "etcd_model.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
#define KV "/etcdserverpb.KV/"
#define LEASE "/etcdserverpb.Lease/"
#define WATCH "/etcdserverpb.Watch/Watch"
#define KEEP_ALIVE LEASE "LeaseKeepAlive"
#define NONE (-2) /* there is no answer */
#define MAIL 100

static struct {
	struct etcd_model *model;
	int64_t now_ns;
	uint64_t connections[EM_MEMBERS_MAX];
	const char *token;
	struct lk__pb_writer writer;
	unsigned char bytes[30000];
	/* Answers that were not taken yet, and the last one that was. */
	struct mail {
		struct em_output output;
		unsigned char message[1000];
	} mail[MAIL + 1], last;
	int mail_count;
	struct em_output output;
} world;

static inline void start_seeded(const struct em_setup *setup, uint64_t seed)
{
	memset(&world, 0, sizeof(world));
	world.now_ns = 100 * S;
	world.model = em_new(setup, seed, world.now_ns);
	for (int i = 0; i < (setup->members ? setup->members : 1); i++)
		world.connections[i] = em_connect(world.model, i);
}

static inline void start(const struct em_setup *setup)
{
	start_seeded(setup, test_seed());
}

static inline void stop(void)
{
	em_free(world.model);
}

static inline void pass(int64_t ns)
{
	world.now_ns += ns;
	em_tick(world.model, world.now_ns);
}

/* Take the next answer to that call, or of that stream; 0: the next connection that was closed. */
static inline bool took(uint64_t call)
{
	struct em_output output;

	while (em_take(world.model, &output)) {
		struct mail *mail = &world.mail[world.mail_count++];
		ck_assert_int_le(world.mail_count, MAIL);
		ck_assert(output.message.len <= sizeof(mail->message));
		mail->output = output;
		if (output.message.len)
			memcpy(mail->message, output.message.data, output.message.len);
	}
	for (int i = 0; i < world.mail_count; i++) {
		if (world.mail[i].output.call != call)
			continue;
		world.last = world.mail[i];
		world.output = world.last.output;
		world.output.message.data = world.last.message;
		world.mail_count--;
		memmove(&world.mail[i], &world.mail[i + 1],
		        (size_t)(world.mail_count - i) * sizeof(*world.mail));
		return true;
	}
	return false;
}

static inline struct lk__pb_writer *request(void)
{
	lk__pb_writer_init(&world.writer, world.bytes, sizeof(world.bytes));
	return &world.writer;
}

static inline struct lk__bytes written(void)
{
	ck_assert(!world.writer.is_full);
	return (struct lk__bytes){world.writer.data, world.writer.len};
}

static inline uint64_t begin_call(int member, const char *path)
{
	return em_call(world.model, world.connections[member], path,
	               &(struct em_metadata){.token = world.token}, written());
}

/* Call with what was written: the status, NONE = no answer. */
static inline int call(int member, const char *path)
{
	return took(begin_call(member, path)) ? world.output.status : NONE;
}

static inline void read_as(const struct lk__pb_shape *shape, void *out)
{
	ck_assert(world.output.has_message);
	ck_assert(lk__pb_read(shape, world.output.message.data, world.output.message.len, out));
}

/* The last answer has that status and text. */
static inline void refused(int status, const char *text)
{
	ck_assert(world.output.has_ended);
	ck_assert_int_eq(world.output.status, status);
	ck_assert_str_eq(world.output.text, text);
}

/* ---- Keys --------------------------------------------------------------------------------- */

static inline int put_at(int member, const char *key, const char *value, int64_t lease)
{
	const struct lk__etcd_put put = {
		.key = lk__bytes_of(key), .value = lk__bytes_of(value), .lease = lease};

	lk__etcd_put_put(request(), &put);
	return call(member, KV "Put");
}

static inline void put(const char *key, const char *value)
{
	ck_assert_int_eq(put_at(0, key, value, 0), 0);
}

static inline int64_t term_of_put(int member)
{
	struct lk__etcd_put_answer answer;

	ck_assert_int_eq(put_at(member, "term", "", 0), 0);
	read_as(&lk__etcd_put_shape, &answer);
	return (int64_t)answer.header.raft_term;
}

static inline int del_at(int member, const char *key)
{
	const struct lk__etcd_delete del = {.key = lk__bytes_of(key)};

	lk__etcd_put_delete(request(), &del);
	return call(member, KV "DeleteRange");
}

static inline struct lk__pb_writer *range_of(const char *key, int64_t revision, bool serializable)
{
	const struct lk__etcd_range range = {
		.key = lk__bytes_of(key), .revision = revision, .serializable = serializable};

	lk__etcd_put_range(request(), &range);
	return &world.writer;
}

/* The value of a key at that member; "" = not there; NULL = no answer, or an error. */
static inline const char *get_at(int member, const char *key, int64_t revision, bool serializable)
{
	static char value[100];
	struct lk__etcd_range_answer answer;
	struct lk__etcd_kv kv;

	range_of(key, revision, serializable);
	if (call(member, KV "Range") != 0)
		return NULL;
	read_as(&lk__etcd_range_shape, &answer);
	if (!lk__pb_next(&answer.kvs, &kv))
		return "";
	ck_assert(kv.value.len < sizeof(value));
	memcpy(value, kv.value.data, kv.value.len);
	value[kv.value.len] = '\0';
	return value;
}

static inline const char *get(const char *key)
{
	const char *value = get_at(0, key, 0, false);

	ck_assert(value != NULL);
	return value;
}

/* ---- Leases ------------------------------------------------------------------------------- */

static inline int64_t grant(int64_t ttl_s)
{
	const struct lk__etcd_lease_grant grant = {.ttl_s = ttl_s};
	struct lk__etcd_lease_grant_answer answer;

	lk__etcd_put_lease_grant(request(), &grant);
	ck_assert_int_eq(call(0, LEASE "LeaseGrant"), 0);
	read_as(&lk__etcd_lease_grant_shape, &answer);
	return answer.id;
}

static inline uint64_t open_stream(int member, const char *path)
{
	return em_open(world.model, world.connections[member], path,
	               &(struct em_metadata){.token = world.token, .has_leader = true});
}

static inline void send_alive(uint64_t stream, int64_t lease)
{
	lk__etcd_put_keep_alive(request(), lease);
	em_send(world.model, stream, written());
}

/* The time to live of its answer. */
static inline int64_t ttl_answered(void)
{
	struct lk__etcd_keep_alive_answer answer;

	read_as(&lk__etcd_keep_alive_shape, &answer);
	return answer.ttl_s;
}

/* A keep-alive, -1 = no answer. */
static inline int64_t keep_alive(uint64_t stream, int64_t lease)
{
	send_alive(stream, lease);
	return took(stream) ? ttl_answered() : -1;
}

/* ---- Watches ------------------------------------------------------------------------------ */

static inline uint64_t watch_at(int member, const char *key, int64_t revision)
{
	const struct lk__etcd_watch_create create = {.key = lk__bytes_of(key),
	                                             .start_revision = revision};
	uint64_t stream = open_stream(member, WATCH);
	struct lk__etcd_watch_answer answer;

	lk__etcd_put_watch_create(request(), &create);
	em_send(world.model, stream, written());
	ck_assert(took(stream));
	read_as(&lk__etcd_watch_shape, &answer);
	ck_assert(answer.created);
	return stream;
}

/* The next events of the stream: how many; the last one's revision. */
static inline size_t events(uint64_t stream, int64_t *revision)
{
	struct lk__etcd_watch_answer answer;
	struct lk__etcd_event event;
	size_t count = 0;

	if (!took(stream))
		return 0;
	read_as(&lk__etcd_watch_shape, &answer);
	for (; lk__pb_next(&answer.events, &event); count++)
		*revision = event.kv.mod_revision;
	return count;
}

#endif
