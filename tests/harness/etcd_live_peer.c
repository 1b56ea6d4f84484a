/* SPDX-License-Identifier: MIT
 * See etcd_live_peer.h. */
#include "etcd_live_peer.h"

#include "base/os.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep(struct etcd_live_peer *peer)
{
	const struct lk__h2_event *event = &peer->link.event;
	struct etcd_live_mail *mail, **end;

	ck_assert_msg(event->kind <= LK__H2_ENDED, "the connection ends: %s",
	              event->why ? event->why->text : "the server is draining");
	mail = calloc(1, sizeof(*mail) + event->message.len);
	ck_assert_ptr_nonnull(mail);
	mail->id = event->id;
	mail->status = event->kind == LK__H2_MESSAGE ? -1 : event->status;
	snprintf(mail->text, sizeof(mail->text), "%s", event->text ? event->text : "");
	mail->len = event->message.len;
	if (mail->len)
		memcpy(mail->bytes, event->message.data, mail->len);
	for (end = &peer->mail; *end; end = &(*end)->next)
		;
	*end = mail;
}

/* The first event of that call or stream. */
static int await(struct etcd_live_peer *peer, uint32_t id, struct lk__bytes *message,
                 const char **text)
{
	struct etcd_live_mail **at = &peer->mail;

	for (;;) {
		while (*at && (*at)->id != id)
			at = &(*at)->next;
		if (*at)
			break;
		ck_assert_msg(etcd_next(&peer->link, ETCD_WAIT_MS), "nothing came");
		keep(peer);
	}
	free(peer->used);
	peer->used = *at;
	*at = peer->used->next;
	*message = (struct lk__bytes){peer->used->bytes, peer->used->len};
	*text = peer->used->text;
	return peer->used->status;
}

static int call(void *arg, const char *path, struct lk__bytes request, struct lk__bytes *answer,
                const char **text)
{
	struct etcd_live_peer *peer = arg;
	uint32_t id;

	ck_assert_int_eq(lk__h2_call(peer->link.h2, path, request,
	                             lk__now_ns() + ETCD_WAIT_MS * LK__MS, &id),
	                 LK_OK);
	return await(peer, id, answer, text);
}

static uint32_t *stream_of(struct etcd_live_peer *peer, const char *path)
{
	return &peer->streams[strstr(path, "Watch") != NULL];
}

static void send_to(void *arg, const char *path, struct lk__bytes request)
{
	struct etcd_live_peer *peer = arg;
	uint32_t *stream = stream_of(peer, path);

	if (!*stream)
		*stream = etcd_open(&peer->link, path);
	ck_assert_int_eq(lk__h2_send(peer->link.h2, *stream, request), LK_OK);
}

static int receive(void *arg, const char *path, struct lk__bytes *message, const char **text)
{
	struct etcd_live_peer *peer = arg;

	return await(peer, *stream_of(peer, path), message, text);
}

static void set_token(void *arg, struct lk__bytes token)
{
	struct etcd_live_peer *peer = arg;

	ck_assert_int_eq(lk__h2_set_token(peer->link.h2, token), LK_OK);
	for (int i = 0; i < 2; i++) {
		if (peer->streams[i])
			lk__h2_cancel(peer->link.h2, peer->streams[i]);
		peer->streams[i] = 0;
	}
}

void etcd_live_peer_init(struct etcd_live_peer *peer, int port)
{
	memset(peer, 0, sizeof(*peer));
	peer->peer = (struct etcd_peer){peer, call, send_to, receive, set_token};
	ck_assert_int_eq(etcd_link_open(&peer->link, port), LK_OK);
}

void etcd_live_peer_fini(struct etcd_live_peer *peer)
{
	free(peer->used);
	while (peer->mail) {
		peer->used = peer->mail;
		peer->mail = peer->used->next;
		free(peer->used);
	}
	etcd_link_close(&peer->link);
}
