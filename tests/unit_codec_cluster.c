/* SPDX-License-Identifier: MIT
 * The wire format of a Cluster: names of keys and channels, requests, refusals, the topology. */
#include "redis/codec.h"
#include "redis/conn.h"

#include "base/slot.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT "aaaaaaaaaaaaaaaaaaaaaa"
#define ID_A "0123456789012345678901234567890123456789"
#define ID_B "abcdefabcdefabcdefabcdefabcdefabcdefabcd"

static const struct lk__epoch epoch = {.len = 5, .text = "1 a 1"};

static struct lk__space space_of(bool cluster)
{
	struct lk__space space;

	lk__space_init(&space, "lk", cluster ? 0 : 3, CLIENT);
	if (cluster)
		lk__space_divide(&space);
	return space;
}

/* The words of the commands, with spaces; a script's text or digest is "*", and its end is cut off
 * behind the keys and so many arguments. */
static const char *words_of(const struct lk__buf *bytes, size_t most)
{
	static char text[8192];
	const char *at = bytes->data, *end = at + bytes->len;
	size_t len = 0, count = 0;

	while (at < end) {
		long size;
		if (*at == '*') {
			at = strstr(at, "\r\n") + 2;
			continue;
		}
		size = strtol(at + 1, NULL, 10);
		at = strstr(at, "\r\n") + 2;
		if (count < most)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s",
			                        count ? " " : "",
			                        size == 40 || size > 200 ? 1 : (int)size,
			                        size == 40 || size > 200 ? "*" : at);
		count++;
		at += size + 2;
	}
	return text;
}

static const char *encoded(bool cluster, struct lk__request request, size_t most)
{
	struct lk__space space = space_of(cluster);
	struct lk__buf bytes = {0};
	const char *text;

	request.epoch = &epoch;
	ck_assert(lk__codec_request(&bytes, &space, &request));
	text = words_of(&bytes, most);
	lk__buf_fini(&bytes);
	return text;
}

/* For the name "foo", whose slot is 12182. */
static struct lk__request ask_for(enum lk__request_kind kind, lk_kind noun)
{
	static const struct lk__details details = {.subject = "it", .capacity = 2};

	return (struct lk__request){.kind = (uint8_t)kind,
	                            .noun = (uint8_t)noun,
	                            .name = "foo",
	                            .name_len = 3,
	                            .ticket = {.nonce = "nonce-nonc0",
	                                       .lease_ms = 10000,
	                                       .permits = noun == LK_KIND_SEMAPHORE},
	                            .topic = "topic",
	                            .topic_len = 5,
	                            .details = &details};
}

static const char *tag_of(unsigned slot)
{
	static char tag[LK__TAG_SIZE];

	lk__slot_tag(slot, tag);
	return tag;
}

/* The words, with the tag of foo's slot in the place of each '@'. */
static const char *tagged(const char *words)
{
	static char text[512];
	size_t len = 0;

	for (; *words; words++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%.*s",
		                        *words == '@' ? LK__TAG_SIZE - 1 : 1,
		                        *words == '@' ? tag_of(12182) : words);
	return text;
}

/* ---- Names -------------------------------------------------------------------------------- */

TEST(all_keys_of_a_name_are_in_its_slot)
{
	static const char *const names[] = {"foo", "a{b}c", "%", "\x7f ", "", "a long name: 123"};
	const struct lk__space space = space_of(true);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		unsigned slot = lk__slot_of(names[i], strlen(names[i]));
		struct lk__keys keys;
		char expected[64];
		lk__space_keys(&space, names[i], strlen(names[i]), &keys);
		snprintf(expected, sizeof(expected), "lk:fence:{%s}", tag_of(slot));
		ck_assert_str_eq(keys.fence, expected);
		ck_assert_uint_eq(lk__slot_of(tag_of(slot), 4), slot);
	}
}

TEST(single_server_has_the_names_that_it_had)
{
	const struct lk__space space = space_of(false);
	char text[LK__TOPIC_MAX];
	struct lk__keys keys;

	lk__space_keys(&space, "foo", 3, &keys);
	ck_assert_str_eq(keys.fence, "lk:fence");
	ck_assert(!lk__space_inbox(&space, "foo", 3, text));
	lk__space_topic(&space, "foo", 3, text);
	ck_assert_str_eq(text, "lk:l:3:{foo}");
	lk__space_client_key(&space, CLIENT, 7, text);
	ck_assert_str_eq(text, "lk:client:" CLIENT);
}

TEST(names_in_a_cluster)
{
	const struct lk__space space = space_of(true);
	char text[LK__TOPIC_MAX];

	ck_assert(lk__space_inbox(&space, "f{o", 3, text));
	ck_assert_str_eq(text, "lk:c:{f%7Bo}:" CLIENT);
	lk__space_topic(&space, "foo", 3, text);
	ck_assert_str_eq(text, "lk:l:{foo}");
	lk__space_client_key(&space, CLIENT, 12182, text);
	ck_assert_str_eq(text, tagged("lk:client:" CLIENT ":{@}"));
	lk__space_slot_channel(&space, 12182, text);
	ck_assert_str_eq(text, tagged("lk:c:{@}:" CLIENT));
	lk__space_marker(&space, 12182, ID_A, text);
	ck_assert_str_eq(text, tagged("lk:epoch:{@}:" ID_A));
}

TEST(longest_names_fit)
{
	struct lk__space space;
	char name[LK_NAME_MAX + 1], key[LK__CHANNEL_MAX], marker[LK__MARKER_MAX];
	char topic[LK__TOPIC_MAX];
	struct lk__keys keys;
	struct lk__request request = ask_for(LK__ASK, LK_KIND_SEMAPHORE);
	struct lk__buf bytes = {0};

	memset(name, '{', sizeof(name));
	lk__space_init(&space, "abcdefghijklmnopqrstuvwxyz123456", 0, CLIENT);
	lk__space_divide(&space);
	lk__space_keys(&space, name, LK_NAME_MAX, &keys);
	ck_assert_uint_lt(strlen(keys.holds), LK__KEY_MAX);
	ck_assert(lk__space_inbox(&space, name, LK_NAME_MAX, topic));
	ck_assert_uint_eq(strlen(topic), 32 + strlen(":c:{}:") + 3 * LK_NAME_MAX + 22);
	lk__space_slot_channel(&space, 16383, key);
	ck_assert_uint_eq(strlen(key), 32 + strlen(":c:{aaaa}:") + 22);
	lk__space_client_key(&space, CLIENT, 16383, key);
	ck_assert_uint_eq(strlen(key), 32 + strlen(":client::{aaaa}") + 22);
	lk__space_marker(&space, 16383, ID_A, marker);
	ck_assert_uint_eq(strlen(marker), 32 + strlen(":epoch:{aaaa}:") + 40);
	request.name = name;
	request.name_len = LK_NAME_MAX;
	request.epoch = &epoch;
	request.arrival = UINT64_C(1) << 62;
	ck_assert(lk__codec_request(&bytes, &space, &request));
	lk__buf_fini(&bytes);
}

/* ---- Requests ----------------------------------------------------------------------------- */

TEST(requests_of_a_cluster_leave_the_marker_out)
{
	struct lk__request request = ask_for(LK__ASK, LK_KIND_LOCK);

	ck_assert_str_eq(encoded(true, request, 6),
	                 tagged("EVALSHA * 3 lk:{foo} lk:{foo}:q lk:fence:{@}"));
	ck_assert_str_eq(encoded(false, request, 7),
	                 "EVALSHA * 4 lk:{foo} lk:{foo}:q lk:fence lk:epoch");
	request.noun = LK_KIND_SEMAPHORE;
	ck_assert_str_eq(encoded(true, request, 7),
	                 tagged("EVALSHA * 4 lk:{foo} lk:{foo}:q lk:fence:{@} lk:{foo}:h"));
	ck_assert_ptr_nonnull(strstr(encoded(true, request, 99), " lk:c:{foo}: "));
	ck_assert_ptr_nonnull(strstr(encoded(false, request, 99), " lk:c:3: "));
	ck_assert_ptr_nonnull(strstr(encoded(true, request, 99), " 1 a 1 0"));
}

TEST(looks_and_steps_of_a_latch_in_a_cluster)
{
	struct lk__request request = ask_for(LK__LOOK, LK_KIND_LATCH);

	ck_assert_str_eq(encoded(true, request, 99),
	                 tagged("EVALSHA * 3 lk:{foo} lk:{foo}:s lk:fence:{@}"));
	request.kind = LK__STEP;
	ck_assert_str_eq(encoded(true, request, 5), "EVALSHA * 2 lk:{foo} lk:{foo}:s");
}

TEST(narrow_requests_declare_what_exists_while_it_is_held)
{
	struct lk__request request = ask_for(LK__RENEW, LK_KIND_LOCK);

	request.narrow = true;
	ck_assert_str_eq(encoded(true, request, 5),
	                 "EVALSHA * 1 lk:{foo} 2:" CLIENT ":nonce-nonc0:10000:r");
	request.kind = LK__LEAVE;
	ck_assert_str_eq(encoded(true, request, 4), "EVALSHA * 1 lk:{foo}");
	request.noun = LK_KIND_SEMAPHORE;
	ck_assert_str_eq(encoded(true, request, 5), "EVALSHA * 2 lk:{foo} lk:{foo}:h");
	request.kind = LK__RENEW;
	ck_assert_str_eq(encoded(true, request, 5), "EVALSHA * 2 lk:{foo} lk:{foo}:h");
}

TEST(asking_precedes_the_request)
{
	struct lk__request request = ask_for(LK__RENEW, LK_KIND_LOCK);

	request.asking = true;
	ck_assert_str_eq(encoded(true, request, 5), "ASKING EVALSHA * 3 lk:{foo}");
	request = ask_for(LK__FORGET, LK_KIND_LOCK);
	request.asking = true;
	ck_assert_str_eq(encoded(true, request, 99), tagged("ASKING DEL lk:client:" CLIENT ":{@}"));
}

TEST(marker_of_a_node_is_the_one_of_the_request)
{
	struct lk__request request = {.kind = LK__EPOCH, .marker = "lk:epoch:{aaaa}:id"};
	static const struct lk__details details = {.subject = "1 a 1"};
	static const char *const others[] = {"1 b 2", "1 c 3"};

	ck_assert_str_eq(encoded(true, request, 99), "EVALSHA * 1 lk:epoch:{aaaa}:id 1 a 1 0 0");
	request.vouchers = others;
	request.voucher_count = 2;
	ck_assert_str_eq(encoded(true, request, 99),
	                 "EVALSHA * 1 lk:epoch:{aaaa}:id 1 a 1 0 0 1 b 2 1 c 3");
	request.kind = LK__RECALL;
	ck_assert_str_eq(encoded(true, request, 99), "EVAL * 1 lk:epoch:{aaaa}:id 1 a 1 0 0");
	request.kind = LK__END_GRACE;
	request.details = &details;
	ck_assert_str_eq(encoded(true, request, 99), "EVAL * 1 lk:epoch:{aaaa}:id 1 a 1");
	request.marker = NULL;
	ck_assert_str_eq(encoded(false, request, 99), "EVAL * 1 lk:epoch 1 a 1");
}

TEST(queries_in_a_cluster)
{
	struct lk__request query = ask_for(LK__BREAK, LK_KIND_LOCK);

	ck_assert_str_eq(encoded(true, query, 99),
	                 tagged("EVAL * 3 lk:{foo} lk:{foo}:q lk:fence:{@} it 0 lk:c:{foo}: 1 "
	                        "1 a 1 0"));
	query.noun = LK_KIND_SEMAPHORE;
	ck_assert_str_eq(encoded(true, query, 99),
	                 tagged("EVAL * 4 lk:{foo} lk:{foo}:q lk:fence:{@} lk:{foo}:h it 0 "
	                        "lk:c:{foo}: 1 21000 1 a 1 0"));
	query.kind = LK__SIZE;
	ck_assert_str_eq(encoded(true, query, 99),
	                 tagged("EVAL * 4 lk:{foo} lk:{foo}:q lk:fence:{@} lk:{foo}:h open 2 0 "
	                        "lk:c:{foo}: 21000 1 a 1 0"));
	query.kind = LK__SET;
	ck_assert_ptr_nonnull(strstr(encoded(true, query, 99), " lk:l:{foo}"));
	query.kind = LK__DESCRIBE;
	ck_assert_str_eq(encoded(true, query, 2), tagged("HMGET lk:client:it:{@}"));
	query.kind = LK__INTRODUCE;
	ck_assert_str_eq(encoded(true, query, 4), tagged("EVAL * 1 lk:client:" CLIENT ":{@}"));
	query.kind = LK__TOPOLOGY;
	ck_assert_str_eq(encoded(true, query, 99), "CLUSTER SLOTS");
}

/* ---- Answers ------------------------------------------------------------------------------ */

static struct lk__resp *parse(const char *bytes)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	struct lk__resp *resp;
	struct lk__why why;

	ck_assert(!lk__resp_feed(reader, bytes, strlen(bytes), &why));
	ck_assert_msg(!lk__resp_next(reader, &resp, &why), "%s", why.text);
	ck_assert_ptr_nonnull(resp);
	lk__resp_reader_free(reader);
	return resp;
}

/* The answer to a request, and the same to a query. */
static struct lk__answer answer_of(const char *bytes)
{
	static struct lk__why why;
	struct lk__request query = ask_for(LK__DESCRIBE, LK_KIND_LOCK);
	const struct lk__space space = space_of(true);
	struct lk__resp *resp = parse(bytes);
	struct lk__answer answer, of_query;

	lk__codec_query_answer(resp, "server", &space, &query, NULL, &of_query, &why);
	if (of_query.kind == LK__LISTED) { /* it hides what is not a redirection */
		query.kind = LK__KIND;
		lk__codec_query_answer(resp, "server", &space, &query, NULL, &of_query, &why);
	}
	lk__codec_answer(resp, "server", &answer, &why);
	lk__resp_free(resp);
	ck_assert_int_eq(answer.kind, of_query.kind);
	ck_assert_int_eq(answer.divided, of_query.divided);
	ck_assert_int_eq(answer.ambiguous, of_query.ambiguous);
	return answer;
}

TEST(redirections_name_the_slot_and_the_node)
{
	struct lk__answer answer = answer_of("-MOVED 3999 127.0.0.1:6381\r\n");

	ck_assert_int_eq(answer.kind, LK__MOVED);
	ck_assert_str_eq(answer.text, "3999 127.0.0.1:6381");
	ck_assert(answer.retryable && !answer.ambiguous && !answer.divided);
	answer = answer_of("-ASK 3999 :6381\r\n");
	ck_assert_int_eq(answer.kind, LK__ASKED);
	ck_assert_str_eq(answer.text, "3999 :6381");
	ck_assert_int_eq(answer_of("-MOVED \r\n").kind, LK__FAILED);
	ck_assert_int_eq(answer_of("-MOVEDLY 1 b:2\r\n").kind, LK__FAILED);
}

TEST(divided_slot_did_nothing)
{
	static const char *const texts[] = {
		"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
		"-ERR Script attempted to access a non local key in a cluster node script: f_1, on "
		"@user_script:1.\r\n",
		"-ERR Unable to execute command 'get' in script because undeclared keys were "
		"accessed during rehashing of the slot script: f_1, on @user_script:1.\r\n",
	};
	struct lk__answer answer;

	for (size_t i = 0; i < 3; i++) {
		answer = answer_of(texts[i]);
		ck_assert_int_eq(answer.kind, LK__FAILED);
		ck_assert_int_eq(answer.err, LK_EAGAIN);
		ck_assert(answer.divided && answer.retryable && !answer.ambiguous);
	}
	answer = answer_of("-TORN ERR Script attempted to access a non local key in a cluster "
	                   "node\r\n");
	ck_assert(!answer.divided && answer.ambiguous && !answer.retryable);
}

TEST(cluster_that_is_down_did_nothing)
{
	static const char *const texts[] = {
		"-CLUSTERDOWN Hash slot not served\r\n",
		"-MASTERDOWN Link with MASTER is down\r\n",
		"-LOADING Redis is loading the dataset in memory\r\n",
		"-READONLY You can't write against a read only replica.\r\n",
		"-NOREPLICAS Not enough good replicas to write.\r\n",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct lk__answer answer = answer_of(texts[i]);
		ck_assert_int_eq(answer.kind, LK__FAILED);
		ck_assert(answer.retryable && !answer.ambiguous && !answer.divided);
	}
}

/* ---- Topology ----------------------------------------------------------------------------- */

#define NODE(host, port, id) "*4\r\n" host ":" #port "\r\n$40\r\n" id "\r\n*0\r\n"
#define HOST_A "$9\r\n127.0.0.1\r\n"
#define HOST_B "$9\r\nlocalhost\r\n"
#define RANGE(first, last, count) "*" #count "\r\n:" #first "\r\n:" #last "\r\n"

static struct lk__topology topology;

static struct lk__answer topology_of(const char *bytes)
{
	static struct lk__why why;
	const struct lk__request query = {.kind = LK__TOPOLOGY};
	const struct lk__space space = space_of(true);
	struct lk__resp *resp = parse(bytes);
	struct lk__answer answer;

	lk__codec_query_answer(resp, "server", &space, &query, &topology, &answer, &why);
	lk__resp_free(resp);
	return answer;
}

TEST(topology_has_the_masters_and_their_slots)
{
	ck_assert_int_eq(
		topology_of(
			"*3\r\n" RANGE(0, 99, 4) NODE(HOST_A, 7001, ID_A) NODE(HOST_A, 7003, ID_B)
				RANGE(200, 16383, 3) "*3\r\n" HOST_B ":7002\r\n$40\r\n" ID_B
						     "\r\n" RANGE(150, 150, 3)
							     NODE(HOST_A, 7001, ID_A))
			.kind,
		LK__LISTED);
	ck_assert_int_eq(topology.count, 2);
	ck_assert_str_eq(topology.nodes[0].id, ID_A);
	ck_assert_str_eq(topology.nodes[0].place.host, "127.0.0.1");
	ck_assert_int_eq(topology.nodes[0].place.port, 7001);
	ck_assert_str_eq(topology.nodes[1].id, ID_B);
	ck_assert_str_eq(topology.nodes[1].place.host, "localhost");
	ck_assert_int_eq(topology.nodes[1].place.port, 7002);
	ck_assert_int_eq(topology.owner[0], 0);
	ck_assert_int_eq(topology.owner[99], 0);
	ck_assert_int_eq(topology.owner[100], LK__NO_OWNER);
	ck_assert_int_eq(topology.owner[149], LK__NO_OWNER);
	ck_assert_int_eq(topology.owner[150], 0);
	ck_assert_int_eq(topology.owner[199], LK__NO_OWNER);
	ck_assert_int_eq(topology.owner[200], 1);
	ck_assert_int_eq(topology.owner[16383], 1);
	ck_assert_int_eq(topology_of("*0\r\n").kind, LK__LISTED);
	ck_assert_int_eq(topology.count, 0);
}

TEST(node_without_a_host_is_where_the_question_went)
{
	ck_assert_int_eq(topology_of("*2\r\n" RANGE(0, 9, 3) NODE("$-1\r\n", 7001, ID_A)
	                                     RANGE(10, 11, 3) NODE("$0\r\n\r\n", 7002, ID_B))
	                         .kind,
	                 LK__LISTED);
	ck_assert_str_eq(topology.nodes[0].place.host, "");
	ck_assert_str_eq(topology.nodes[1].place.host, "");
}

TEST(node_with_an_unknown_name_is_at_its_address)
{
	ck_assert_int_eq(
		topology_of("*1\r\n" RANGE(0, 9, 3) "*4\r\n$1\r\n?\r\n:7001\r\n$40\r\n" ID_A
	                                            "\r\n*2\r\n$2\r\nip\r\n" HOST_A)
			.kind,
		LK__LISTED);
	ck_assert_str_eq(topology.nodes[0].place.host, "127.0.0.1");
}

TEST(malformed_topology_is_refused)
{
	static const char *const replies[] = {
		"+OK\r\n",
		":1\r\n",
		"*1\r\n:1\r\n",
		"*1\r\n*0\r\n",
		"*1\r\n*2\r\n:0\r\n:1\r\n",
		"*1\r\n*3\r\n:0\r\n:1\r\n*0\r\n",
		"*1\r\n*3\r\n:0\r\n:1\r\n$1\r\na\r\n",
		"*1\r\n" RANGE(0, 16384, 3) NODE(HOST_A, 7001, ID_A),
		"*1\r\n" RANGE(5, 4, 3) NODE(HOST_A, 7001, ID_A),
		"*1\r\n" RANGE(-1, 4, 3) NODE(HOST_A, 7001, ID_A),
		"*1\r\n" RANGE(0, 4, 3) NODE(HOST_A, 0, ID_A),
		"*1\r\n" RANGE(0, 4, 3) NODE(HOST_A, 65536, ID_A),
		"*1\r\n" RANGE(0, 4, 3) NODE("$3\r\na b\r\n", 7001, ID_A),
		"*1\r\n" RANGE(0, 4, 3) NODE("$1\r\n?\r\n", 7001, ID_A),
		"*1\r\n" RANGE(0, 4, 3) "*3\r\n" HOST_A ":7001\r\n$3\r\nabc\r\n",
		"-ERR This instance has cluster support disabled\r\n",
	};

	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		struct lk__answer answer = topology_of(replies[i]);
		ck_assert_msg(answer.kind == LK__FAILED && answer.err == LK_ESERVER, "%s",
		              replies[i]);
	}
}

static char *many_masters(int count)
{
	static char bytes[LK__NODES_MAX * 128];
	size_t len = (size_t)snprintf(bytes, sizeof(bytes), "*%d\r\n", count);

	for (int i = 0; i < count; i++)
		len += (size_t)snprintf(
			bytes + len, sizeof(bytes) - len,
			"*3\r\n:%d\r\n:%d\r\n*3\r\n$1\r\na\r\n:1\r\n$40\r\n%040d\r\n", i, i, i);
	return bytes;
}

TEST(number_of_masters_is_limited)
{
	struct lk__answer answer = topology_of(many_masters(LK__NODES_MAX));

	ck_assert_int_eq(answer.kind, LK__LISTED);
	ck_assert_int_eq(topology.count, LK__NODES_MAX);
	ck_assert_int_eq(topology.owner[LK__NODES_MAX - 1], LK__NODES_MAX - 1);
	answer = topology_of(many_masters(LK__NODES_MAX + 1));
	ck_assert_int_eq(answer.kind, LK__FAILED);
	ck_assert_int_eq(answer.err, LK_ELIMIT);
}

TEST(replicas_are_found_by_id_or_place)
{
	struct lk__resp *resp =
		parse("*1\r\n" RANGE(0, 99, 4) NODE(HOST_A, 7001, ID_A) NODE(HOST_A, 7003, ID_B));
	struct lk__place place = {.host = "127.0.0.1", .port = 7003};

	ck_assert(lk__codec_has_replica(resp, ID_B, &place));
	ck_assert(!lk__codec_has_replica(resp, ID_A, &place));
	ck_assert(lk__codec_has_replica(resp, NULL, &place));
	place.port = 7001;
	ck_assert(!lk__codec_has_replica(resp, NULL, &place));
	lk__resp_free(resp);
}
