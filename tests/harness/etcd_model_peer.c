/* SPDX-License-Identifier: MIT
 * See etcd_model_peer.h.  Time passes only while a script waits. */
#include "etcd_model_peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS (INT64_C(10) * 1000000000)

static void keep(struct etcd_model_peer *peer, const struct em_output *output)
{
	struct etcd_model_mail *mail = malloc(sizeof(*mail) + output->message.len), **end;

	if (!mail)
		abort();
	*mail = (struct etcd_model_mail){.stream = output->call,
	                                 .status = output->has_ended ? output->status : -1,
	                                 .text = output->text,
	                                 .len = output->message.len};
	if (mail->len)
		memcpy(mail->bytes, output->message.data, mail->len);
	for (end = &peer->mail; *end; end = &(*end)->next)
		;
	*end = mail;
}

static void use(struct etcd_model_peer *peer, struct etcd_model_mail **at)
{
	struct etcd_model_mail *mail = *at;

	free(peer->used);
	*at = mail->next;
	peer->used = mail;
}

/* The first message of that stream or call; NULL when none comes for a long time. */
static const struct etcd_model_mail *await(struct etcd_model_peer *peer, uint64_t call)
{
	int64_t end_ns = peer->now_ns + LIMIT_NS;

	for (;;) {
		struct em_output output;
		struct etcd_model_mail **at = &peer->mail;
		while (em_take(peer->model, &output))
			keep(peer, &output);
		while (*at && (*at)->stream != call)
			at = &(*at)->next;
		if (*at) {
			use(peer, at);
			return peer->used;
		}
		if (em_due_ns(peer->model) > end_ns)
			return NULL;
		peer->now_ns = em_due_ns(peer->model);
		em_tick(peer->model, peer->now_ns);
	}
}

static int result(const struct etcd_model_mail *mail, struct lk__bytes *message, const char **text)
{
	*text = mail ? mail->text : "nothing came";
	if (mail)
		*message = (struct lk__bytes){mail->bytes, mail->len};
	return mail ? mail->status : 0;
}

static int call(void *arg, const char *path, struct lk__bytes request, struct lk__bytes *answer,
                const char **text)
{
	struct etcd_model_peer *peer = arg;

	const struct em_metadata metadata = {.token = peer->token};

	return result(await(peer, em_call(peer->model, peer->connection, path, &metadata, request)),
	              answer, text);
}

static uint64_t *stream_of(struct etcd_model_peer *peer, const char *path)
{
	return &peer->streams[strstr(path, "Watch") != NULL];
}

static void send(void *arg, const char *path, struct lk__bytes request)
{
	struct etcd_model_peer *peer = arg;
	uint64_t *stream = stream_of(peer, path);

	if (!*stream)
		*stream = em_open(peer->model, peer->connection, path,
		                  &(struct em_metadata){.token = peer->token, .has_leader = true});
	em_send(peer->model, *stream, request);
}

static int receive(void *arg, const char *path, struct lk__bytes *message, const char **text)
{
	struct etcd_model_peer *peer = arg;

	return result(await(peer, *stream_of(peer, path)), message, text);
}

static void set_token(void *arg, struct lk__bytes token)
{
	struct etcd_model_peer *peer = arg;

	snprintf(peer->token, sizeof(peer->token), "%.*s", (int)token.len,
	         (const char *)token.data);
	for (int i = 0; i < 2; i++) {
		if (peer->streams[i])
			em_cancel(peer->model, peer->streams[i]);
		peer->streams[i] = 0;
	}
}

void etcd_model_peer_init(struct etcd_model_peer *peer, const struct em_setup *setup, uint64_t seed,
                          int member)
{
	*peer = (struct etcd_model_peer){.peer = {peer, call, send, receive, set_token}};
	peer->now_ns = LIMIT_NS;
	peer->model = em_new(setup, seed, peer->now_ns);
	peer->connection = em_connect(peer->model, member);
}

void etcd_model_peer_fini(struct etcd_model_peer *peer)
{
	free(peer->used);
	while (peer->mail) {
		use(peer, &peer->mail);
		free(peer->used);
		peer->used = NULL;
	}
	em_free(peer->model);
}
