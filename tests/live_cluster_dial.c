/* SPDX-License-Identifier: MIT
 * The store's side of a real Cluster, without a client: links to its nodes, redirections, channels,
 * the topology. */
#include "redis/cluster.h"

#include "base/os.h"
#include "base/slot.h"

#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/redis.h"
#include "harness/store_link.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define CLIENT STORE_LINK_CLIENT
#define DIAL_MS 5000

static const struct lk__store_ops *const ops = &lk__redis_store;

CLUSTER_SETUP_SHARED(NULL)

/* Its test message has arrived. */
static struct store_link linked(const struct cluster_setup *setup, int node)
{
	struct store_link link = link_to(setup->nodes[node].port, true, "");

	link_dial_ok(&link);
	link_expect(&link, LK__EVENT_NONE, false);
	return link;
}

/* ---- Links ---------------------------------------------------------------------------------- */

static void check_topology(const struct cluster_setup *setup, const struct lk__topology *topology)
{
	struct cluster_view view;

	ck_assert_ptr_nonnull(topology);
	ck_assert_int_eq(topology->count, CLUSTER_MASTERS);
	cluster_setup_view(setup, 0, &view);
	for (int slot = 0; slot < LK__SLOTS; slot++) {
		int owner = view.owner[slot];
		const struct lk__cluster_node *node = &topology->nodes[topology->owner[slot]];
		ck_assert_str_eq(node->id, setup->ids[owner]);
		ck_assert_int_eq(node->place.port, setup->nodes[owner].port);
		ck_assert_str_eq(node->place.host, "127.0.0.1");
	}
}

/* The first slots in the order of the node. */
static void first_slots(const struct cluster_setup *setup, int node, unsigned *slots, int count)
{
	struct cluster_view view;

	cluster_setup_view(setup, node, &view);
	ck_assert_int_eq(lk__slots_first((const uint8_t *)view.owner, (uint8_t)node,
	                                 setup->ids[node], slots, count),
	                 count);
}

/* The link is to that node, and the marker is where the protocol has it. */
static void check_link(const struct cluster_setup *setup, const struct store_link *link, int node)
{
	char key[LK__MARKER_MAX], tag[LK__TAG_SIZE];
	unsigned slot;

	first_slots(setup, node, &slot, 1);
	lk__slot_tag(slot, tag);
	snprintf(key, sizeof(key), "lk:epoch:{%s}:%s", tag, setup->ids[node]);
	ck_assert_str_eq(link_node(link)->marker, key);
	ck_assert_str_eq(cluster_read(setup, "GET", key), link->epoch.text);
	check_topology(setup, link->peer->topology);
}

TEST(link_leads_to_each_master)
{
	const struct cluster_setup *setup = cluster_setup_shared();

	for (int node = 0; node < CLUSTER_MASTERS; node++) {
		struct store_link link = linked(setup, node);
		check_link(setup, &link, node);
		link_end(&link);
	}
}

TEST(plain_url_to_a_node_becomes_that_of_a_cluster)
{
	const struct cluster_setup *setup = cluster_setup_shared();

	for (int node = 0; node < CLUSTER_MASTERS; node++) {
		struct store_link link = link_to(setup->nodes[node].port, false, "");
		struct redis *redis = redis_open(&setup->nodes[node]);
		char topic[LK__TOPIC_MAX];
		link_dial_ok(&link);
		check_link(setup, &link, node);
		ops->topic(link.store, "n", 1, topic);
		ck_assert_str_eq(topic, "lk:l:{n}");
		ck_assert(ops->inbox(link.store, "n", 1, topic));
		ck_assert_str_eq(topic, "lk:c:{n}:" CLIENT);
		/* No marker of a single server: the node's, and a copy. */
		ck_assert_int_eq(redis_int(redis, "DBSIZE"), 2);
		redis_close(redis);
		link_end(&link);
	}
}

TEST(cluster_has_one_database)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = link_to(setup->nodes[0].port, false, "/1");

	ck_assert_int_eq(link_dial(&link), LK_EINVALID);
	ck_assert_ptr_nonnull(strstr(link.why.text, "a Cluster has only database 0"));
	link_end(&link);
}

TEST(replica_is_no_master_and_still_knows_the_topology)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = link_to(setup->nodes[CLUSTER_MASTERS].port, true, "");

	ck_assert_int_eq(link_dial(&link), LK_ECONN);
	ck_assert_ptr_nonnull(strstr(link.why.text, "is a replica"));
	check_topology(setup, link.peer->topology);
	link_end(&link);
}

TEST(node_without_slots_is_no_master)
{
	const struct server_options options = {.cluster = true};
	struct test_server server;
	struct store_link link;

	server_start(&server, &options);
	link = link_to(server.port, true, "");
	ck_assert_int_eq(link_dial(&link), LK_ECONN);
	ck_assert_ptr_nonnull(strstr(link.why.text, "has no slots"));
	ck_assert_ptr_null(link.peer);
	link_end(&link);
	server_stop(&server);
}

TEST(single_server_is_not_in_a_cluster)
{
	struct test_server server;
	struct store_link link;

	server_start(&server, NULL);
	link = link_to(server.port, true, "");
	ck_assert_int_eq(link_dial(&link), LK_EINVALID);
	ck_assert_ptr_nonnull(strstr(link.why.text, "not in a Cluster"));
	link_end(&link);
	server_stop(&server);
}

TEST(node_finds_itself_without_the_right_to_myid)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct redis *redis = redis_open(&setup->nodes[1]);
	struct store_link link;

	redis_do(redis, "ACL SETUSER default -cluster|myid");
	link = linked(setup, 1);
	check_link(setup, &link, 1);
	redis_do(redis, "ACL SETUSER default +@all");
	redis_close(redis);
	link_end(&link);
}

TEST(look_asks_any_node)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	static struct lk__topology topology;

	for (int node = 0; node < CLUSTER_NODES; node++) {
		struct store_link link = link_to(setup->nodes[node].port, true, "");
		struct lk__tls_shared tls = {0};
		lk_err err = lk__cluster_look(&link.target, &tls, lk__now_ns() + DIAL_MS * LK__MS,
		                              -1, &topology, &link.why);
		ck_assert_msg(!err, "%s", link.why.text);
		check_topology(setup, &topology);
		link_forget(&link.target);
	}
}

/* An interrupted resharding leaves slots as they are. */
TEST(link_does_without_slots_that_migrate)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link;
	unsigned slots[3];

	first_slots(setup, 0, slots, 3);
	cluster_slot_open(setup, (int)slots[0], 1);
	cluster_slot_open(setup, (int)slots[1], 1);
	link = linked(setup, 0);
	ck_assert_uint_eq(link_node(&link)->base, slots[2]);
	ck_assert_str_eq(cluster_read(setup, "GET", link_node(&link)->marker), link.epoch.text);
	link_end(&link);
	cluster_slot_undo(setup, (int)slots[0], 1);
	cluster_slot_undo(setup, (int)slots[1], 1);
}

/* ---- Requests ------------------------------------------------------------------------------- */

/* A name of a slot that the node owns. */
static const char *name_at(const struct cluster_setup *setup, int node)
{
	static char name[16];
	char key[32];

	for (int i = 0;; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		snprintf(key, sizeof(key), "{%s}", name);
		if (cluster_slot_owner(setup, key) == node)
			return name;
	}
}

static void check_place(const struct cluster_setup *setup, const struct lk__answer *answer,
                        const char *name, int node)
{
	char place[64];

	snprintf(place, sizeof(place), "%u 127.0.0.1:%d", lk__slot_of(name, strlen(name)),
	         setup->nodes[node].port);
	ck_assert_str_eq(answer->text, place);
}

TEST(requests_to_another_node_are_redirected)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);
	const char *name = name_at(setup, 1);
	struct lk__answer answer;

	answer = link_answer(&link, link_request(LK__ASK, name), NULL);
	ck_assert_int_eq(answer.kind, LK__MOVED);
	check_place(setup, &answer, name, 1);
	answer = link_answer(&link, link_request(LK__KIND, name), NULL);
	ck_assert_int_eq(answer.kind, LK__MOVED);
	name = name_at(setup, 0);
	ck_assert_int_eq(link_answer(&link, link_request(LK__ASK, name), NULL).kind, LK__GRANTED);
	answer = link_answer(&link, link_request(LK__KIND, name), NULL);
	ck_assert_int_eq(answer.kind, LK__IS);
	ck_assert_int_eq(answer.noun, LK_KIND_LOCK);
	ck_assert_int_eq(link_answer(&link, link_request(LK__LEAVE, name), NULL).kind, LK__LEFT);
	link_end(&link);
}

/* LK__KIND declares two keys, of which one exists. */
TEST(slot_that_migrates_divides_or_redirects)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link source = linked(setup, 0), target = linked(setup, 1);
	struct redis *redis = redis_open(&setup->nodes[0]);
	struct lk__request ask;
	struct lk__answer answer;
	char name[16];
	int slot;

	snprintf(name, sizeof(name), "%s", name_at(setup, 0));
	slot = (int)lk__slot_of(name, strlen(name));
	redis_do(redis, "SET lk:{%s} text", name); /* it is foreign */
	ask = link_request(LK__KIND, name);
	ck_assert_int_eq(link_answer(&source, ask, NULL).err, LK_EFOREIGN);
	cluster_slot_open(setup, slot, 1);
	answer = link_answer(&source, ask, NULL);
	ck_assert_int_eq(answer.kind, LK__FAILED);
	ck_assert(answer.divided && answer.retryable && !answer.ambiguous);
	cluster_slot_move_keys(setup, slot, 1, CLUSTER_ALL_KEYS);
	answer = link_answer(&source, ask, NULL);
	ck_assert_int_eq(answer.kind, LK__ASKED);
	check_place(setup, &answer, name, 1);
	answer = link_answer(&target, ask, NULL);
	ck_assert_int_eq(answer.kind, LK__MOVED);
	check_place(setup, &answer, name, 0);
	ask.asking = true;
	answer = link_answer(&target, ask, NULL);
	ck_assert(answer.kind == LK__FAILED && answer.divided);
	/* One key, which is there. */
	ask = link_request(LK__RENEW, name);
	ask.asking = ask.narrow = true;
	ask.fence = 1;
	ck_assert_int_eq(link_answer(&target, ask, NULL).kind, LK__GONE);
	cluster_slot_close(setup, slot, 1);
	ck_assert_int_eq(link_answer(&target, link_request(LK__KIND, name), NULL).err, LK_EFOREIGN);
	redis_close(redis);
	link_end(&source);
	link_end(&target);
}

/* A free lock has no queue, so its full requests fail for as long as its slot migrates. */
static void hold_while_the_slot_migrates(lk_kind noun)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link source = linked(setup, 0), target = linked(setup, 1);
	struct lk__request ask, renew, leave;
	struct lk__answer answer;
	char name[16];
	int slot;

	snprintf(name, sizeof(name), "%s", name_at(setup, 0));
	slot = (int)lk__slot_of(name, strlen(name));
	ask = link_request(LK__ASK, name);
	ask.noun = (uint8_t)noun;
	ask.capacity = 2;
	ask.ttl_ms = 10000;
	ask.ticket.permits = noun == LK_KIND_SEMAPHORE;
	renew = leave = ask;
	renew.kind = LK__RENEW;
	leave.kind = LK__LEAVE;
	answer = link_answer(&source, ask, NULL);
	ck_assert_int_eq(answer.kind, LK__GRANTED);
	renew.fence = answer.fence;
	cluster_slot_open(setup, slot, 1);
	ck_assert(link_answer(&source, renew, NULL).divided);
	ck_assert(link_answer(&source, leave, NULL).divided);
	renew.narrow = leave.narrow = true;
	answer = link_answer(&source, renew, NULL);
	ck_assert_int_eq(answer.kind, LK__KEPT);
	ck_assert_int_eq(answer.waiting, 1);
	cluster_slot_move_keys(setup, slot, 1, CLUSTER_ALL_KEYS);
	ck_assert_int_eq(link_answer(&source, renew, NULL).kind, LK__ASKED);
	renew.asking = leave.asking = true;
	ck_assert_int_eq(link_answer(&target, renew, NULL).kind, LK__KEPT);
	answer = link_answer(&target, leave, NULL);
	ck_assert_int_eq(answer.kind, LK__LEFT);
	ck_assert(answer.mine && answer.more);
	cluster_slot_close(setup, slot, 1);
	leave.narrow = leave.asking = false;
	answer = link_answer(&target, leave, NULL);
	ck_assert_int_eq(answer.kind, LK__LEFT);
	ck_assert(!answer.mine && !answer.more);
	link_end(&source);
	link_end(&target);
}

TEST(lock_is_renewed_and_released_while_its_slot_migrates)
{
	hold_while_the_slot_migrates(LK_KIND_LOCK);
}

TEST(permits_are_renewed_and_released_while_their_slot_migrates)
{
	hold_while_the_slot_migrates(LK_KIND_SEMAPHORE);
}

TEST(marker_is_in_the_next_slot_when_its_own_has_moved)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	static struct lk__topology topology;
	struct store_link link = linked(setup, 0);
	const struct lk__request ask = {.kind = LK__EPOCH};
	struct lk__answer answer;
	unsigned slots[2];

	first_slots(setup, 0, slots, 2);
	ck_assert_int_eq(link_answer(&link, ask, NULL).kind, LK__MEMORY);
	cluster_slot_move(setup, (int)slots[0], 1);
	ck_assert_int_eq(link_answer(&link, ask, NULL).kind, LK__MOVED);
	ck_assert_int_eq(
		link_answer(&link, (struct lk__request){.kind = LK__TOPOLOGY}, &topology).kind,
		LK__LISTED);
	check_topology(setup, &topology);
	ck_assert_uint_eq(link_node(&link)->base, slots[1]);
	answer = link_answer(&link, ask, NULL);
	ck_assert_int_eq(answer.kind, LK__MEMORY);
	ck_assert_str_eq(cluster_read(setup, "GET", link_node(&link)->marker), answer.epoch.text);
	link_end(&link);
}

/* The node was flushed once, so the statistics say nothing of the time before. */
static struct lk__epoch flushed_node(const struct cluster_setup *setup)
{
	struct redis *redis = redis_open(&setup->nodes[0]);
	struct store_link link;
	struct lk__epoch epoch;

	redis_do(redis, "FLUSHALL");
	redis_close(redis);
	link = linked(setup, 0);
	epoch = link.epoch;
	link_end(&link);
	return epoch;
}

static void expect_memory(const struct cluster_setup *setup, const char *marker)
{
	struct store_link link = linked(setup, 0);

	ck_assert_str_eq(link.epoch.text, marker);
	link_end(&link);
}

/* Slots are moved one after the other, in the order that would move markers the most. */
TEST_LIMIT(new_client_finds_the_memory_whatever_slots_have_moved, 40)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	const struct lk__epoch epoch = flushed_node(setup);
	unsigned slots[6];

	ck_assert_ptr_nonnull(strchr(epoch.text, '-'));
	first_slots(setup, 0, slots, 6);
	for (int i = 0; i < 6; i++) {
		cluster_slot_move(setup, (int)slots[i], 1);
		expect_memory(setup, epoch.text);
	}
	/* They return: each is the first of its node again, with the marker that it had. */
	for (int i = 6; i-- > 0;) {
		cluster_slot_move(setup, (int)slots[i], 0);
		expect_memory(setup, epoch.text);
	}
}

/* No client has seen that node with it. */
TEST(new_first_slot_of_a_node_is_no_loss)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct lk__epoch epoch;
	unsigned slots[2];

	first_slots(setup, 0, slots, 2);
	cluster_slot_move(setup, (int)slots[0], 1);
	cluster_slot_move(setup, (int)slots[1], 1);
	epoch = flushed_node(setup);
	cluster_slot_move(setup, (int)slots[0], 0);
	cluster_slot_move(setup, (int)slots[1], 0);
	expect_memory(setup, epoch.text);
}

TEST(marker_of_before_a_flush_that_returns_does_not_count)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);
	struct lk__epoch before = link.epoch, flushed;
	unsigned slot;

	first_slots(setup, 0, &slot, 1);
	link_end(&link);
	cluster_slot_move(setup, (int)slot, 1);
	flushed = flushed_node(setup);
	ck_assert_str_ne(flushed.text, before.text);
	cluster_slot_move(setup, (int)slot, 0);
	expect_memory(setup, flushed.text);
}

/* ---- Messages ------------------------------------------------------------------------------- */

TEST(messages_come_by_the_channels_of_names)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);
	struct redis *redis = redis_open(&setup->nodes[0]);
	const char *name = name_at(setup, 0);
	char inbox[LK__TOPIC_MAX], topic[LK__TOPIC_MAX];
	struct lk__event event = {0};
	void *reply;

	ck_assert(ops->inbox(link.store, name, strlen(name), inbox));
	ops->topic(link.store, name, strlen(name), topic);
	link_subscribe(&link, inbox, true);
	link_expect(&link, LK__EVENT_CONFIRMED, true);
	link_subscribe(&link, topic, true);
	link_expect(&link, LK__EVENT_CONFIRMED, true);
	ck_assert_int_eq(redis_int(redis, "SPUBLISH %s %s", inbox,
	                           "again\x20"
	                           "2:" CLIENT ":nonce-nonc0:10000:r\x20"
	                           "7"),
	                 1);
	reply = link_next_event(&link, &event);
	ck_assert_int_eq(event.kind, LK__EVENT_MESSAGE);
	ck_assert_int_eq(event.message.kind, LK__REASK);
	ck_assert_int_eq(event.message.in_ms, 7);
	ops->discard(reply);
	ck_assert_int_eq(redis_int(redis, "SPUBLISH %s %s", topic, "open 5"), 1);
	reply = link_next_event(&link, &event);
	ck_assert_int_eq(event.kind, LK__EVENT_PUBLISHED);
	ck_assert_int_eq(event.message.kind, LK__OPENED);
	ck_assert(event.topic_len == strlen(topic) && !strcmp(event.topic, topic));
	ops->discard(reply);
	link_subscribe(&link, topic, false);
	link_expect(&link, LK__EVENT_CONFIRMED, false);
	redis_close(redis);
	link_end(&link);
}

/* The script publishes it in the shard of the name. */
TEST(released_lock_is_granted_by_message)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);
	const char *name = name_at(setup, 0);
	struct lk__request first = link_request(LK__ASK, name), second = first;
	char inbox[LK__TOPIC_MAX];
	struct lk__event event = {0};
	void *reply;

	memcpy(second.ticket.nonce, "nonce-nonc1", sizeof(second.ticket.nonce));
	ck_assert(ops->inbox(link.store, name, strlen(name), inbox));
	link_subscribe(&link, inbox, true);
	link_expect(&link, LK__EVENT_CONFIRMED, true);
	ck_assert_int_eq(link_answer(&link, first, NULL).kind, LK__GRANTED);
	ck_assert_int_eq(link_answer(&link, second, NULL).kind, LK__QUEUED);
	first.kind = LK__LEAVE;
	ck_assert_int_eq(link_answer(&link, first, NULL).kind, LK__LEFT);
	reply = link_next_event(&link, &event);
	ck_assert_int_eq(event.kind, LK__EVENT_MESSAGE);
	ck_assert_int_eq(event.message.kind, LK__GRANT);
	ck_assert_str_eq(event.message.nonce, "nonce-nonc1");
	ops->discard(reply);
	link_end(&link);
}

TEST(channel_at_another_node_is_redirected)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);
	const char *name = name_at(setup, 1);
	char topic[LK__TOPIC_MAX], place[64];
	struct lk__event event = {0};
	void *reply;

	ops->topic(link.store, name, strlen(name), topic);
	link_subscribe(&link, topic, true);
	reply = link_next_event(&link, &event);
	ck_assert_int_eq(event.kind, LK__EVENT_MOVED);
	snprintf(place, sizeof(place), "%u 127.0.0.1:%d", lk__slot_of(name, strlen(name)),
	         setup->nodes[1].port);
	ck_assert_str_eq(event.why.text, place);
	/* It is not the response to a PING, which comes behind it. */
	ops->event(link.peer, reply, true, &event);
	ck_assert_int_eq(event.kind, LK__EVENT_MOVED);
	ops->discard(reply);
	link_end(&link);
}

TEST(channel_of_a_slot_that_moved_ends)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);
	char name[16], topic[LK__TOPIC_MAX];

	snprintf(name, sizeof(name), "%s", name_at(setup, 0));
	ops->topic(link.store, name, strlen(name), topic);
	link_subscribe(&link, topic, true);
	link_expect(&link, LK__EVENT_CONFIRMED, true);
	cluster_slot_move(setup, (int)lk__slot_of(name, strlen(name)), 1);
	link_expect(&link, LK__EVENT_CONFIRMED, false);
	link_end(&link);
}

/* The channel that the link was tested with is of no use to others. */
TEST(end_of_the_test_channel_is_ignored)
{
	const struct cluster_setup *setup = cluster_setup_shared();
	struct store_link link = linked(setup, 0);

	cluster_slot_move(setup, (int)link_node(&link)->base, 1);
	link_expect(&link, LK__EVENT_NONE, false);
	link_end(&link);
}
