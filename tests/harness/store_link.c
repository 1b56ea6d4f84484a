/* SPDX-License-Identifier: MIT
 * Links of the store in Redis without a client: see store_link.h. */
#include "store_link.h"

#include "base/os.h"

#include "test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define DIAL_MS 5000
#define ANSWER_MS 5000

static const struct lk__store_ops *const ops = &lk__redis_store;

struct store_link link_to(int port, bool cluster, const char *path)
{
	struct store_link link = {.peer = NULL};
	char url[80];

	snprintf(url, sizeof(url), "redis%s://127.0.0.1:%d%s?grace=0", cluster ? "+cluster" : "",
	         port, path);
	ck_assert_msg(!lk__target_parse(url, NULL, &link.target, &link.why), "%s", link.why.text);
	if (cluster) { /* as a client aims it at a node */
		link.target.host = link.target.seeds[0].host;
		link.target.port = link.target.seeds[0].port;
	}
	return link;
}

struct store_link link_to_member(int port)
{
	struct store_link link = {.peer = NULL};
	char url[80];

	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d", port);
	ck_assert_msg(!lk__target_parse(url, NULL, &link.target, &link.why), "%s", link.why.text);
	link.target.host = link.target.members[0].host;
	link.target.port = link.target.members[0].port;
	return link;
}

lk_err link_dial(struct store_link *link)
{
	if (!link->store)
		link->store = ops->create(&link->target, STORE_LINK_CLIENT);
	ck_assert_ptr_nonnull(link->store);
	return ops->dial(link->store, 0, &link->target, lk__now_ns() + DIAL_MS * LK__MS, -1,
	                 &link->epoch, &link->peer, &link->why);
}

void link_dial_ok(struct store_link *link)
{
	lk_err err = link_dial(link);

	ck_assert_msg(!err, "%s: %s", lk_err_name(err), link->why.text);
	ck_assert_ptr_nonnull(link->peer);
}

/* The seeds, or the members, own the host. */
void link_forget(struct lk__target *target)
{
	if (target->cluster || target->quorum)
		target->host = NULL;
	lk__target_fini(target);
}

void link_end(struct store_link *link)
{
	if (link->peer)
		ops->close(link->peer);
	ops->destroy(link->store);
	link_forget(&link->target);
}

const struct lk__member *link_node(const struct store_link *link)
{
	return &((const struct lk__redis_peer *)link->peer)->node;
}

static void send_bytes(struct store_link *link, enum lk__side side, struct lk__buf *bytes)
{
	ck_assert_int_eq(ops->write(link->peer, side, bytes->data, bytes->len, &link->why),
	                 (int64_t)bytes->len);
	lk__buf_fini(bytes);
}

/* The next reply on that side; NULL if none comes. */
static void *next_reply(struct store_link *link, enum lk__side side)
{
	int64_t until_ns = lk__now_ns() + ANSWER_MS * LK__MS;
	void *reply = NULL;
	lk_err err = LK_OK;

	while (!ops->parse(link->peer, side, &reply, 1, &err, &link->why) &&
	       lk__now_ns() < until_ns) {
		ck_assert_int_eq(err, LK_OK);
		lk__poll2(ops->fd(link->peer, side), POLLIN, -1, until_ns);
		ck_assert_int_ge(ops->read(link->peer, side, false, &link->why), 0);
	}
	return reply;
}

/* Send a request, and its script's text if the server wants it. */
struct lk__answer link_answer(struct store_link *link, struct lk__request request, void *into)
{
	struct lk__answer answer;
	bool is_known;

	request.epoch = &link->epoch;
	((struct lk__redis *)link->store)->target = &link->target; /* it may have been copied */
	do {
		struct lk__buf bytes = {0};
		void *reply;
		ck_assert(ops->encode(link->peer, &request, &bytes));
		send_bytes(link, LK__RESPONSES, &bytes);
		reply = next_reply(link, LK__RESPONSES);
		if (request.asking) { /* the reply to ASKING */
			ck_assert_str_eq(((struct lk__resp *)reply)->str, "OK");
			ops->discard(reply);
			reply = next_reply(link, LK__RESPONSES);
		}
		ck_assert_ptr_nonnull(reply);
		is_known =
			ops->answer(link->peer, reply, lk__is_query(request.kind) ? &request : NULL,
		                    into, &answer, &link->why);
		ck_assert(is_known || !request.by_text);
		request.by_text = true;
	} while (!is_known);
	return answer;
}

struct lk__request link_request(enum lk__request_kind kind, const char *name)
{
	return (struct lk__request){.kind = (uint8_t)kind,
	                            .noun = LK_KIND_LOCK,
	                            .name = name,
	                            .name_len = (uint16_t)strlen(name),
	                            .lease_ms = 10000,
	                            .ticket = {.nonce = "nonce-nonc0", .lease_ms = 10000}};
}

void link_subscribe(struct store_link *link, const char *topic, bool on)
{
	struct lk__buf bytes = {0};

	ck_assert(ops->subscribe(link->peer, topic, on, &bytes));
	send_bytes(link, LK__MESSAGES, &bytes);
}

/* The next event, whose reply the caller discards. */
void *link_next_event(struct store_link *link, struct lk__event *event)
{
	void *reply = next_reply(link, LK__MESSAGES);

	ck_assert_ptr_nonnull(reply);
	ops->event(link->peer, reply, false, event);
	return reply;
}

void link_expect(struct store_link *link, enum lk__event_kind kind, bool subscribed)
{
	struct lk__event event = {0};
	void *reply = link_next_event(link, &event);

	ck_assert_int_eq(event.kind, kind);
	ck_assert_int_eq(event.subscribed, subscribed);
	ops->discard(reply);
}
