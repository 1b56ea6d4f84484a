/* SPDX-License-Identifier: MIT
 * Between a session and one connection: its calls go out as calls and streams of gRPC, and their
 * ends come back.
 *
 * A call whose end is unknown breaks the connection, since only another era excludes that it is
 * executed later; so does a token that has expired, because a dial logs in. */
#include "etcd_store.h"

#include "status.h"

#include "../base/os.h"

#include <stdlib.h>

static const char *const paths[] = {
	[LK__ETCD_CALL_TXN] = "/etcdserverpb.KV/Txn",
	[LK__ETCD_CALL_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
	[LK__ETCD_CALL_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
	[LK__ETCD_CALL_TIME_TO_LIVE] = "/etcdserverpb.Lease/LeaseTimeToLive",
	[LK__ETCD_CALL_KEEP_ALIVE] = "/etcdserverpb.Lease/LeaseKeepAlive",
};

void lk__etcd_break(struct lk__etcd_peer *peer, bool leave, const struct lk__why *why)
{
	if (peer->is_broken)
		return;
	peer->is_broken = true;
	peer->leave = leave;
	peer->why = *why;
}

static void break_by(struct lk__etcd_peer *peer, bool leave, lk_err err, const char *text)
{
	struct lk__why why;

	lk__why_about(&why, err, peer->socket.text, "%s", text);
	lk__etcd_break(peer, leave, &why);
}

/* ---- Out ------------------------------------------------------------------------------------ */

static lk_err begin(struct lk__etcd_peer *peer, struct lk__etcd_sent *sent,
                    enum lk__etcd_method method, struct lk__bytes message)
{
	lk_err err;

	if (!sent->is_stream)
		return lk__h2_call(peer->h2, paths[method], message, sent->deadline_ns, &sent->id);
	err = lk__h2_open(peer->h2, paths[method], &sent->id);
	if (err)
		return err;
	err = lk__h2_send(peer->h2, sent->id, message);
	if (err)
		lk__h2_cancel(peer->h2, sent->id);
	return err;
}

/* On a connection that has to end, all calls are as good as sent: their end is unknown. */
static bool is_over(struct lk__etcd_peer *peer, lk_err err)
{
	if (err == LK_ECONN)
		break_by(peer, false, LK_ECONN, "the server takes no more calls");
	return peer->is_broken;
}

static bool call(void *arg, uint32_t id, enum lk__etcd_method method, const void *message,
                 size_t len)
{
	const struct lk__etcd *etcd = arg;
	struct lk__etcd_peer *peer = etcd->peer;
	struct lk__etcd_sent *sent;
	lk_err err;

	if (!peer || peer->is_broken)
		return true;
	sent = calloc(1, sizeof(*sent));
	if (!sent)
		return false;
	sent->call = id;
	sent->is_stream = method == LK__ETCD_CALL_KEEP_ALIVE;
	sent->deadline_ns = lk__now_ns() + etcd->target->command_timeout_ns;
	err = begin(peer, sent, method, (struct lk__bytes){message, len});
	if (err) {
		free(sent);
		return is_over(peer, err);
	}
	sent->next = peer->sent;
	peer->sent = sent;
	return true;
}

static bool watch(void *arg, const void *message, size_t len)
{
	const struct lk__etcd *etcd = arg;
	struct lk__etcd_peer *peer = etcd->peer;
	lk_err err = LK_OK;

	if (!peer || peer->is_broken)
		return true;
	if (!peer->watch)
		err = lk__h2_open(peer->h2, "/etcdserverpb.Watch/Watch", &peer->watch);
	if (!err)
		err = lk__h2_send(peer->h2, peer->watch, (struct lk__bytes){message, len});
	return !err || is_over(peer, err);
}

struct lk__etcd_wire lk__etcd_wire_of(struct lk__etcd *etcd)
{
	return (struct lk__etcd_wire){etcd, call, watch};
}

/* ---- In ------------------------------------------------------------------------------------- */

/* Forget the call with that id of h2; false if there is none. */
static bool forget(struct lk__etcd_peer *peer, uint32_t id, uint32_t *call_id)
{
	struct lk__etcd_sent **at = &peer->sent, *sent;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	sent = *at;
	if (!sent)
		return false;
	*at = sent->next;
	*call_id = sent->call;
	free(sent);
	return true;
}

/* A call, or a stream without its answer, has ended. */
static void ended(struct lk__etcd_peer *peer, int64_t now_ns, const struct lk__h2_event *event)
{
	struct lk__etcd_verdict verdict = lk__etcd_judge(event);
	struct lk__etcd_outcome outcome;
	uint32_t id;

	if (event->id == peer->watch) {
		peer->watch = 0;
		break_by(peer, verdict.elsewhere, LK_ECONN,
		         event->text[0] ? event->text : "the watch has ended");
	} else if (!forget(peer, event->id, &id)) {
		return;
	} else if (!lk__etcd_outcome_of(event, &outcome)) {
		break_by(peer, verdict.elsewhere, LK_EUNKNOWN, event->text);
	} else if (verdict.meaning == LK__ETCD_LOGIN || verdict.elsewhere) {
		break_by(peer, verdict.elsewhere, LK_ECONN, event->text);
	} else {
		lk__etcd_session_outcome(&peer->etcd->session, now_ns, id, &outcome);
	}
}

static void heard(struct lk__etcd_peer *peer, int64_t now_ns, const struct lk__h2_event *event)
{
	struct lk__etcd_session *session = &peer->etcd->session;
	const struct lk__bytes *message = &event->message;
	const struct lk__etcd_outcome outcome = {.message = message->data, .len = message->len};
	uint32_t id;

	if (event->id == peer->watch) {
		if (!lk__etcd_session_watched(session, now_ns, message->data, message->len))
			break_by(peer, true, LK_ESERVER, "malformed message of a watch");
	} else if (forget(peer, event->id, &id)) {
		lk__etcd_session_outcome(session, now_ns, id, &outcome);
		lk__h2_cancel(peer->h2, event->id);
	}
}

void lk__etcd_take(struct lk__etcd_peer *peer, int64_t now_ns)
{
	struct lk__h2_event event;

	while (!peer->is_broken && lk__h2_next(peer->h2, &event)) {
		switch (event.kind) {
		case LK__H2_MESSAGE:
			heard(peer, now_ns, &event);
			break;
		case LK__H2_ANSWER:
		case LK__H2_ENDED:
			ended(peer, now_ns, &event);
			break;
		case LK__H2_DRAINING:
			break_by(peer, true, LK_ECONN, "the server is going away");
			break;
		case LK__H2_DEAD:
			break_by(peer, true, event.why->err, event.why->text);
			break;
		}
	}
}

/* ---- Time ----------------------------------------------------------------------------------- */

int64_t lk__etcd_sent_due_ns(const struct lk__etcd_peer *peer)
{
	int64_t due_ns = LK__H2_NEVER;

	for (const struct lk__etcd_sent *sent = peer->sent; sent; sent = sent->next)
		if (sent->is_stream && sent->deadline_ns < due_ns)
			due_ns = sent->deadline_ns;
	return due_ns;
}

void lk__etcd_sent_tick(struct lk__etcd_peer *peer, int64_t now_ns)
{
	if (lk__etcd_sent_due_ns(peer) <= now_ns)
		break_by(peer, true, LK_EUNKNOWN, "no response to a keep-alive in time");
}
