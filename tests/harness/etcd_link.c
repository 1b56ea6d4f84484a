/* SPDX-License-Identifier: MIT
 * A connection of the library's parts to a real etcd. */
#include "etcd_link.h"

#include "base/os.h"
#include "net/dial.h"
#include "process.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CALL_NS (ETCD_WAIT_MS * LK__MS)

/* The time, as the connection sees it. */
static int64_t time_of(const struct etcd_link *link)
{
	return lk__now_ns() + link->ahead_ns;
}

static lk_err dial(void *arg, const struct lk__address *address, int64_t deadline_ns,
                   struct lk__why *why)
{
	struct etcd_link *link = arg;
	lk_err err =
		lk__socket_connect(&link->target, address, deadline_ns, -1, &link->socket, why);

	if (err || !link->target.tls)
		return err;
	err = lk__secure_start(&link->socket, &link->shared, &link->target, deadline_ns, -1, why);
	if (err)
		lk__socket_close(&link->socket);
	return err;
}

lk_err etcd_link_open(struct etcd_link *link, int port)
{
	static char host[] = "127.0.0.1";
	struct lk__h2_options options = {.authority = link->target.text,
	                                 .tls = link->target.tls,
	                                 .ping_timeout_ns = CALL_NS};
	lk_err err;

	link->target.host = host;
	link->target.port = port;
	link->target.keepalive_ms = 10000;
	snprintf(link->target.text, sizeof(link->target.text), "127.0.0.1:%d", port);
	if (link->target.tls) {
		link->target.tls_protocol = "h2";
		err = lk__tls_load(&link->shared, &link->target, &link->why);
		if (err)
			return err;
	}
	err = lk__dial_each(&link->target, lk__now_ns() + CALL_NS, -1, dial, link, NULL,
	                    &link->why);
	if (err)
		return err;
	link->h2 = lk__h2_new(&options, lk__now_ns());
	ck_assert_ptr_nonnull(link->h2);
	return LK_OK;
}

void etcd_link_close(struct etcd_link *link)
{
	if (link->h2)
		lk__socket_close(&link->socket);
	lk__h2_free(link->h2);
	lk__tls_unload(&link->shared);
	lk__buf_fini(&link->out);
	lk__buf_fini(&link->answer);
	link->h2 = NULL;
}

struct lk__pb_writer *etcd_message(struct etcd_link *link)
{
	lk__pb_writer_init(&link->writer, link->request, sizeof(link->request));
	return &link->writer;
}

static struct lk__bytes written(const struct etcd_link *link)
{
	ck_assert(!link->writer.is_full);
	return (struct lk__bytes){link->request, link->writer.len};
}

uint32_t etcd_call(struct etcd_link *link, const char *path)
{
	int64_t deadline_ns = time_of(link) + (link->call_ms ? link->call_ms * LK__MS : CALL_NS);
	uint32_t id;

	ck_assert_int_eq(lk__h2_call(link->h2, path, written(link), deadline_ns, &id), LK_OK);
	return id;
}

uint32_t etcd_open(struct etcd_link *link, const char *path)
{
	uint32_t id;

	ck_assert_int_eq(lk__h2_open(link->h2, path, &id), LK_OK);
	return id;
}

void etcd_send(struct etcd_link *link, uint32_t stream)
{
	ck_assert_int_eq(lk__h2_send(link->h2, stream, written(link)), LK_OK);
}

/* Write what can be written. */
static void write_some(struct etcd_link *link)
{
	lk__h2_write(link->h2, &link->out);
	while (link->written < link->out.len) {
		int64_t taken = lk__socket_write(&link->socket, link->out.data + link->written,
		                                 link->out.len - link->written, &link->why);
		if (taken < 0)
			lk__h2_lost(link->h2, &link->why);
		if (taken <= 0)
			return;
		link->written += (size_t)taken;
	}
	link->out.len = link->written = 0;
}

static void read_some(struct etcd_link *link)
{
	char bytes[20000];
	int64_t got = lk__socket_read(&link->socket, false, bytes, sizeof(bytes), &link->why);

	if (got > 0)
		lk__h2_feed(link->h2, bytes, (size_t)got, time_of(link));
	else if (got < 0)
		lk__h2_lost(link->h2, &link->why);
}

bool etcd_next(struct etcd_link *link, int64_t ms)
{
	const int64_t end_ns = lk__now_ns() + ms * LK__MS;

	for (;;) {
		int64_t wake_ns = lk__h2_due_ns(link->h2) - link->ahead_ns;
		short events = POLLIN;
		if (lk__h2_next(link->h2, &link->event))
			return true;
		write_some(link);
		if (link->written < link->out.len)
			events |= POLLOUT;
		if (lk__now_ns() >= end_ns)
			return false;
		if (!lk__socket_has_more(&link->socket))
			lk__poll2(link->socket.fd, events, -1, wake_ns < end_ns ? wake_ns : end_ns);
		read_some(link);
		lk__h2_tick(link->h2, time_of(link));
	}
}

/* The answer to the request is the next event: copy it. */
static void await_answer(struct etcd_link *link, const char *path)
{
	uint32_t id = etcd_call(link, path);

	ck_assert_msg(etcd_next(link, ETCD_WAIT_MS + 1000), "%s: no answer", path);
	ck_assert_msg(link->event.kind == LK__H2_ANSWER && link->event.id == id, "%s: event %d: %s",
	              path, link->event.kind, link->event.text);
	snprintf(link->text, sizeof(link->text), "%s", link->event.text);
	link->answer.len = 0;
	ck_assert(
		lk__grpc_append(&link->answer, link->event.message.data, link->event.message.len));
}

void etcd_ask(struct etcd_link *link, const char *path, const struct lk__pb_shape *shape,
              void *answer)
{
	await_answer(link, path);
	ck_assert_msg(lk__etcd_judge(&link->event).meaning == LK__ETCD_DONE, "%s: %d %s", path,
	              link->event.status, link->text);
	ck_assert_msg(lk__pb_read(shape, link->answer.data, link->answer.len, answer),
	              "%s: the answer is malformed", path);
}

enum lk__etcd_meaning etcd_ask_in_vain(struct etcd_link *link, const char *path)
{
	await_answer(link, path);
	return lk__etcd_judge(&link->event).meaning;
}

void etcd_hear(struct etcd_link *link, uint32_t stream, const struct lk__pb_shape *shape,
               void *message)
{
	ck_assert_msg(etcd_next(link, ETCD_WAIT_MS), "no message");
	ck_assert_msg(link->event.kind == LK__H2_MESSAGE && link->event.id == stream,
	              "event %d: %s", link->event.kind, link->event.text);
	ck_assert(lk__pb_read(shape, link->event.message.data, link->event.message.len, message));
}
