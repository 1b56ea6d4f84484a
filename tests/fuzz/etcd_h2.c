/* SPDX-License-Identifier: MIT
 * Any bytes as those of an etcd server, with any calls and times between them: each call ends once,
 * the texts are printable, and nothing comes after the end of the connection.  Cut into pieces, the
 * same bytes have the same effect. */
#include "etcd/h2.h"
#include "fuzz.h"

#include "built_with.h"

#if LK__ETCD

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MAX 64
#define MS INT64_C(1000000)
#define START_NS (INT64_C(1) << 40)

struct world {
	struct lk__h2 *h2;
	int64_t now_ns;
	uint32_t open[CALLS_MAX]; /* ids of what has not ended */
	bool is_stream[CALLS_MAX];
	unsigned open_count, begun;
	bool is_dead;
	FILE *events; /* as text, NULL = not kept */
	struct lk__buf sent;
};

static void world_open(struct world *world, FILE *events)
{
	const struct lk__h2_options options = {.authority = "h:1", .ping_timeout_ns = 1000 * MS};

	*world = (struct world){.now_ns = START_NS, .events = events};
	world->h2 = lk__h2_new(&options, world->now_ns);
	if (!world->h2)
		abort();
}

static void world_close(struct world *world)
{
	FUZZ_MUST(lk__h2_count(world->h2) == world->open_count, "calls were lost");
	lk__h2_free(world->h2);
	lk__buf_fini(&world->sent);
}

static void forget(struct world *world, unsigned at)
{
	world->open_count--;
	world->open[at] = world->open[world->open_count];
	world->is_stream[at] = world->is_stream[world->open_count];
}

static void check_event(struct world *world, const struct lk__h2_event *event)
{
	unsigned at = 0;

	FUZZ_MUST(!world->is_dead, "an event after the last one");
	FUZZ_MUST(event->text && fuzz_is_plain(event->text), "a text that is not plain");
	FUZZ_MUST(event->message.len <= LK__GRPC_MESSAGE_MAX, "a message of %zu bytes",
	          event->message.len);
	if (event->kind == LK__H2_DEAD) {
		FUZZ_MUST(event->why->err && event->why->text[0] && fuzz_is_plain(event->why->text),
		          "dead without a reason");
		FUZZ_MUST(!world->open_count, "dead with open calls");
		world->is_dead = true;
	}
	if (event->kind == LK__H2_DEAD || event->kind == LK__H2_DRAINING)
		return;
	while (at < world->open_count && world->open[at] != event->id)
		at++;
	FUZZ_MUST(at < world->open_count, "an event of a call that has ended");
	FUZZ_MUST(world->is_stream[at] == (event->kind != LK__H2_ANSWER), "kind %d", event->kind);
	if (event->kind == LK__H2_MESSAGE)
		return;
	FUZZ_MUST(event->status >= 0 && event->status <= LK__GRPC_UNAUTHENTICATED, "status %d",
	          event->status);
	FUZZ_MUST(event->status || event->fate == LK__H2_ANSWERED, "a success of our own");
	forget(world, at);
}

static void take_events(struct world *world)
{
	struct lk__h2_event event;

	while (lk__h2_next(world->h2, &event)) {
		check_event(world, &event);
		/* This one is the last of those that are there. */
		if (!world->events || event.kind == LK__H2_DRAINING)
			continue;
		fprintf(world->events, "%d %d %u %d %s ", event.kind, event.fate, event.id,
		        event.status, event.text);
		if (event.message.len)
			fwrite(event.message.data, 1, event.message.len, world->events);
		fputc('\n', world->events);
	}
}

static void write_out(struct world *world)
{
	world->sent.len = 0;
	lk__h2_write(world->h2, &world->sent);
	take_events(world);
}

static void feed(struct world *world, const uint8_t *bytes, size_t len)
{
	char *exact = malloc(len + !len);

	if (!exact)
		abort();
	memcpy(exact, bytes, len);
	lk__h2_feed(world->h2, exact, len, world->now_ns);
	free(exact);
	take_events(world);
}

static void begin(struct world *world, bool is_stream)
{
	const struct lk__bytes message = {"message", 7};
	uint32_t id;
	lk_err err;

	if (world->begun == CALLS_MAX)
		return;
	err = is_stream ? lk__h2_open(world->h2, "/t.T/s", &id)
	                : lk__h2_call(world->h2, "/t.T/c", message, world->now_ns + 3000 * MS, &id);
	FUZZ_MUST(!err || err == LK_ECONN, "begin: %s", lk_err_name(err));
	if (err)
		return;
	world->begun++;
	world->open[world->open_count] = id;
	world->is_stream[world->open_count++] = is_stream;
	if (is_stream)
		(void)lk__h2_send(world->h2, id, message);
}

static void cancel(struct world *world, unsigned choice)
{
	if (!world->open_count)
		return;
	choice %= world->open_count;
	lk__h2_cancel(world->h2, world->open[choice]);
	forget(world, choice);
}

/* Two calls and a stream, then the bytes in pieces of that size. */
static char *converse(const uint8_t *data, size_t size, size_t step)
{
	struct world world;
	size_t len;
	char *text = NULL;
	FILE *events = open_memstream(&text, &len);
	static const uint8_t settings[9] = {0, 0, 0, 4};

	if (!events)
		abort();
	world_open(&world, events);
	begin(&world, false);
	begin(&world, true);
	begin(&world, false);
	/* Until its SETTINGS come, a server gets one request. */
	write_out(&world);
	feed(&world, settings, sizeof(settings));
	write_out(&world);
	for (size_t at = 0; at < size; at += step)
		feed(&world, data + at, size - at < step ? size - at : step);
	write_out(&world);
	world_close(&world);
	fclose(events);
	return text;
}

/* A byte chooses what happens next: most often, up to 127 bytes of the server arrive. */
static void act(struct world *world, struct fuzz_input *input)
{
	unsigned choice = fuzz_byte(input);
	size_t len = choice & 127;

	if (choice < 128) {
		if (len > input->left)
			len = input->left;
		feed(world, input->at, len);
		input->at += len;
		input->left -= len;
	} else if (choice < 160) {
		begin(world, choice & 1);
	} else if (choice < 176) {
		cancel(world, choice & 15);
	} else if (choice < 240) {
		world->now_ns += (int64_t)(choice & 63) * 400 * MS;
		lk__h2_tick(world->h2, world->now_ns);
		take_events(world);
		FUZZ_MUST(lk__h2_due_ns(world->h2) > world->now_ns, "due at once, again");
	} else if (choice < 255) {
		write_out(world);
	} else {
		lk__h2_lost(world->h2, &(struct lk__why){LK_ECONN, "lost"});
		take_events(world);
	}
}

/* The first byte chooses between the two uses. */
void fuzz_etcd_h2(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct world world;

	if (fuzz_byte(&input) & 1) {
		char *whole = converse(input.at, input.left, input.left + 1);
		char *pieces = converse(input.at, input.left, 1);
		FUZZ_MUST(!strcmp(whole, pieces), "in pieces:\n%s\nat once:\n%s", pieces, whole);
		free(whole);
		free(pieces);
		return;
	}
	world_open(&world, NULL);
	while (input.left)
		act(&world, &input);
	world_close(&world);
}

#endif
