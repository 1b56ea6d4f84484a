/* SPDX-License-Identifier: MIT
 * From a member's place to a connection that the session can use: dial, TLS, HTTP/2, log in, and
 * ask the member how it is.  And the end of one. */
#include "etcd_store.h"

#include "messages.h"
#include "status.h"

#include "../base/os.h"
#include "../net/dial.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 8192
#define CALL_BYTES 4096 /* of a log-in */

/* ---- One call ------------------------------------------------------------------------------- */

static lk_err write_all(struct lk__etcd_peer *peer, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why)
{
	struct lk__buf buf = {0};
	lk_err err = LK_OK;
	size_t sent;

	lk__h2_write(peer->h2, &buf);
	if (buf.len)
		err = lk__socket_send(&peer->socket, deadline_ns, cancel_fd, buf.data, buf.len,
		                      &sent, why);
	for (size_t i = 0; i < buf.len; i++)
		((volatile char *)buf.data)[i] = 0; /* it held the password */
	lk__buf_fini(&buf);
	return err;
}

static lk_err read_some(struct lk__etcd_peer *peer, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why)
{
	struct lk__why inner = {0};
	char bytes[READ_BYTES];
	int64_t got;
	int ready = 1;

	if (!lk__socket_has_more(&peer->socket))
		ready = lk__poll2(peer->socket.fd, POLLIN, cancel_fd, deadline_ns);
	if (ready & 2)
		return lk__why_about(why, LK_ECONN, peer->socket.text, "canceled");
	if (!ready)
		return lk__why_about(why, LK_ECONN, peer->socket.text, "no response in time");
	got = lk__socket_read(&peer->socket, false, bytes, sizeof(bytes), why);
	if (got > 0)
		lk__h2_feed(peer->h2, bytes, (size_t)got, lk__now_ns());
	peer->has_read = peer->has_read || got > 0;
	if (got < 0 && !peer->has_read && !peer->socket.secure)
		lk__why_set(&inner, why->err, "%s (if its port is for TLS, write etcds://)",
		            why->text);
	if (got < 0 && inner.text[0])
		*why = inner;
	return got < 0 ? why->err : LK_OK;
}

lk_err lk__etcd_await(struct lk__etcd_peer *peer, const char *path, struct lk__bytes message,
                      int64_t deadline_ns, int cancel_fd, struct lk__h2_event *event,
                      struct lk__why *why)
{
	uint32_t id;
	lk_err err = lk__h2_call(peer->h2, path, message, deadline_ns, &id);

	if (err)
		return lk__why_about(why, err, peer->socket.text, "cannot begin a call");
	while (!(err = write_all(peer, deadline_ns, cancel_fd, why)) &&
	       !(err = read_some(peer, deadline_ns, cancel_fd, why))) {
		while (lk__h2_next(peer->h2, event)) {
			if (event->kind == LK__H2_ANSWER && event->id == id)
				return LK_OK;
			if (event->kind == LK__H2_DEAD)
				return lk__why_about(why, event->why->err, peer->socket.text, "%s",
				                     event->why->text);
		}
	}
	return err;
}

/* The error of a call, which the member has refused. */
static lk_err refused(const struct lk__etcd_peer *peer, const struct lk__h2_event *event,
                      struct lk__why *why)
{
	struct lk__etcd_verdict verdict = lk__etcd_judge(event);
	bool is_denied = verdict.meaning == LK__ETCD_DENIED || verdict.meaning == LK__ETCD_LOGIN;
	lk_err err = is_denied                             ? LK_EAUTH
	             : verdict.meaning == LK__ETCD_REFUSED ? LK_ESERVER
	                                                   : LK_ECONN;

	return lk__why_about(why, err, peer->socket.text, "%s%s", event->text,
	                     lk__etcd_cure(event->text));
}

/* ---- The set-up ----------------------------------------------------------------------------- */

static lk_err log_in(struct lk__etcd_peer *peer, const struct lk__target *target,
                     int64_t deadline_ns, int cancel_fd, struct lk__why *why)
{
	const struct lk__etcd_authenticate request = {lk__bytes_of(target->user),
	                                              lk__bytes_of(target->password)};
	struct lk__etcd_authenticate_answer answer;
	struct lk__pb_writer writer;
	struct lk__h2_event event;
	char bytes[CALL_BYTES];
	lk_err err;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_authenticate(&writer, &request);
	if (writer.is_full)
		return lk__why_set(why, LK_EINVALID, "password: too long");
	err = lk__etcd_await(peer, "/etcdserverpb.Auth/Authenticate",
	                     (struct lk__bytes){bytes, writer.len}, deadline_ns, cancel_fd, &event,
	                     why);
	for (size_t i = 0; i < sizeof(bytes); i++)
		((volatile char *)bytes)[i] = 0;
	if (err)
		return err;
	if (lk__etcd_judge(&event).meaning)
		return refused(peer, &event, why);
	if (!lk__pb_read(&lk__etcd_authenticate_shape, event.message.data, event.message.len,
	                 &answer) ||
	    !answer.token.len)
		return lk__why_about(why, LK_ESERVER, peer->socket.text, "malformed answer");
	err = lk__h2_set_token(peer->h2, answer.token);
	return err ? lk__why_about(why, err, peer->socket.text, "cannot use the token") : LK_OK;
}

/* Are this member and those that were used of one cluster?  Their locks do not exclude each other
 * otherwise. */
static lk_err check_cluster(struct lk__etcd_peer *peer, uint64_t cluster_id, struct lk__why *why)
{
	struct lk__etcd *etcd = peer->etcd;

	if (!etcd->cluster_id) {
		etcd->cluster_id = cluster_id;
		snprintf(etcd->first_used, sizeof(etcd->first_used), "%.*s", LK__PLACE_SIZE - 1,
		         peer->socket.text);
	}
	if (cluster_id == etcd->cluster_id)
		return LK_OK;
	return lk__why_about(why, LK_EMISMATCH, peer->socket.text,
	                     "of another cluster than %s (correct the URL; if a backup was "
	                     "restored as a new cluster, open the client again)",
	                     etcd->first_used);
}

static lk_err check(struct lk__etcd_peer *peer, int64_t deadline_ns, int cancel_fd,
                    struct lk__why *why)
{
	struct lk__etcd_status_answer status;
	struct lk__h2_event event;
	char version[32];
	lk_err err = lk__etcd_await(peer, "/etcdserverpb.Maintenance/Status", (struct lk__bytes){0},
	                            deadline_ns, cancel_fd, &event, why);

	if (err)
		return err;
	if (lk__etcd_judge(&event).meaning)
		return refused(peer, &event, why);
	if (!lk__pb_read(&lk__etcd_status_shape, event.message.data, event.message.len, &status))
		return lk__why_about(why, LK_ESERVER, peer->socket.text, "malformed answer");
	if (status.is_learner || !status.leader)
		return lk__why_about(why, LK_ECONN, peer->socket.text, "%s",
		                     status.is_learner ? "a learner" : "no leader");
	err = check_cluster(peer, status.header.cluster_id, why);
	if (err)
		return err;
	snprintf(version, sizeof(version), "%.*s", (int)status.version.len,
	         (const char *)status.version.data);
	if (lk__etcd_is_old(version)) {
		struct lk__why text;
		lk__why_about(&text, LK_OK, peer->socket.text,
		              "etcd %s may end a renewed lease early after its leader stood still: "
		              "install 3.5.13 or later (of 3.4: 3.4.31 or later)",
		              version);
		snprintf(peer->warning, sizeof(peer->warning), "%.199s", text.text);
		peer->peer.warning = peer->warning;
	}
	return LK_OK;
}

static bool begin(struct lk__etcd_peer *peer, const struct lk__target *target)
{
	char authority[LK__PLACE_SIZE];
	const struct lk__h2_options options = {.authority = authority,
	                                       .tls = target->tls,
	                                       .ping_timeout_ns = target->command_timeout_ns};

	lk__place_write(authority, sizeof(authority), target->host, target->port);
	peer->h2 = lk__h2_new(&options, lk__now_ns());
	return peer->h2;
}

/* ---- Dials ---------------------------------------------------------------------------------- */

struct dial {
	struct lk__etcd *etcd;
	const struct lk__target *target;
	int cancel_fd;
	bool accepts_any; /* member, whatever its status */
	struct lk__etcd_peer *peer;
};

static lk_err dial_address(void *context, const struct lk__address *address, int64_t deadline_ns,
                           struct lk__why *why)
{
	struct dial *dial = context;
	const struct lk__target *target = dial->target;
	struct lk__etcd_peer *peer = calloc(1, sizeof(*peer));
	lk_err err;

	if (!peer)
		return lk__why_about(why, LK_ENOMEM, target->text, "out of memory");
	peer->etcd = dial->etcd;
	peer->socket.fd = -1;
	err = lk__socket_connect(target, address, deadline_ns, dial->cancel_fd, &peer->socket, why);
	if (!err && target->tls)
		err = lk__secure_start(&peer->socket, &dial->etcd->tls, target, deadline_ns,
		                       dial->cancel_fd, why);
	if (!err && !begin(peer, target))
		err = lk__why_about(why, LK_ENOMEM, target->text, "out of memory");
	if (!err && target->user && target->password)
		err = log_in(peer, target, deadline_ns, dial->cancel_fd, why);
	if (!err && !dial->accepts_any)
		err = check(peer, deadline_ns, dial->cancel_fd, why);
	if (err) {
		lk__etcd_free(peer);
		return err;
	}
	if (target->tls)
		lk__tls_remember(&dial->etcd->tls, peer->socket.secure->tls);
	dial->peer = peer;
	return LK_OK;
}

static lk_err dial_member(struct dial *dial, int64_t deadline_ns, struct lk__why *why)
{
	struct lk__tls_shared *tls = &dial->etcd->tls;
	struct lk__why inner;

	if (dial->target->tls && lk__tls_load(tls, dial->target, &inner))
		return lk__why_about(why, inner.err, dial->target->text, "%s", inner.text);
	return lk__dial_each(dial->target, deadline_ns, dial->cancel_fd, dial_address, dial, NULL,
	                     why);
}

lk_err lk__etcd_connect(struct lk__etcd *etcd, const struct lk__target *target, int64_t deadline_ns,
                        int cancel_fd, struct lk__etcd_peer **peer, struct lk__why *why)
{
	struct dial dial = {.etcd = etcd, .target = target, .cancel_fd = cancel_fd};
	lk_err err = dial_member(&dial, deadline_ns, why);

	*peer = dial.peer;
	return err;
}

lk_err lk__etcd_reach(struct lk__etcd *etcd, const struct lk__target *target, int64_t deadline_ns,
                      struct lk__etcd_peer **peer, struct lk__why *why)
{
	struct dial dial = {.etcd = etcd, .target = target, .cancel_fd = -1, .accepts_any = true};
	lk_err err = dial_member(&dial, deadline_ns, why);

	*peer = dial.peer;
	return err;
}

/* ---- The end -------------------------------------------------------------------------------- */

void lk__etcd_finish(struct lk__etcd_peer *peer, int64_t deadline_ns)
{
	struct lk__h2_event event;
	struct lk__why why;

	while (peer->sent && !peer->is_broken) {
		if (write_all(peer, deadline_ns, -1, &why) ||
		    read_some(peer, deadline_ns, -1, &why))
			return;
		while (lk__h2_next(peer->h2, &event)) {
			struct lk__etcd_sent **at = &peer->sent, *sent;
			while (*at && (*at)->id != event.id)
				at = &(*at)->next;
			sent = *at;
			if (sent)
				*at = sent->next;
			free(sent);
			if (event.kind == LK__H2_DEAD)
				return;
		}
	}
}

void lk__etcd_free(struct lk__etcd_peer *peer)
{
	while (peer->sent) {
		struct lk__etcd_sent *sent = peer->sent;
		peer->sent = sent->next;
		free(sent);
	}
	lk__h2_free(peer->h2);
	if (peer->socket.fd >= 0)
		lk__socket_close(&peer->socket);
	free(peer);
}
