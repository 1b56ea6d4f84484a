/* SPDX-License-Identifier: MIT
 * Messages that any program may publish, to a client whose tickets are in every state: none crashes
 * it, none that does not match a ticket makes a hold, and those that the codec accepts are within
 * its bounds.  In the input a '@' and a digit stand for the nonce of a ticket, '$' for the client's
 * own id. */
#include "core_world.h"
#include "fuzz.h"
#include "redis/codec.h"

#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 400
#define EXACT_MAX (INT64_C(1) << 53)

static const char id[] = "abcdefghijklmnopqrstuv";

/* A held lock with a waiter, the same of fixed leases during its release, permits held and waited
 * for, a latch with a waiter on its channel. */
static void make_world(struct core_world *world, unsigned choice)
{
	struct lk__answer granted = {.kind = LK__GRANTED, .fence = 7, .store_us = 1000000};
	struct lk__answer queued = {.kind = LK__QUEUED, .arrival = 5, .rank = 1, .left_ms = 1000};
	struct lk__answer shown = {.kind = LK__SHOWN,
	                           .latch_state = LK_LATCH_COUNTING,
	                           .fence = 7,
	                           .next = 8,
	                           .left_ms = -1};

	core_world_init(world);
	core_link(world, true);
	core_acquire(world, CORE_LOCK, 2, false);
	core_acquire(world, CORE_FIXED, 4, false);
	core_acquire_permits(world, 2, false, false);
	core_acquire_permits(world, 1, false, choice & 128);
	core_await(world, false, choice & 1);
	if (choice & 2)
		core_send(world);
	core_answer(world, choice & 4 ? &granted : &queued);
	core_answer(world, choice & 8 ? &granted : &queued);
	core_answer(world, choice & 16 ? &granted : &queued);
	if (choice & 32)
		core_answer(world, &queued);
	while (choice & 64 && world->sent_count)
		core_answer(world, world->sent[0]->kind == LK__LOOK ? &shown : &queued);
	core_channel_event(world, 0);
	core_channel_event(world, choice & 128 ? 2 : 4);
	core_acquire(world, CORE_LOCK, 6, false);
	core_settle(world);
}

/* Copy the line with its marks replaced. */
static size_t fill_in(const struct core_world *world, const char *line, size_t len, char *out,
                      size_t size)
{
	size_t at = 0;

	for (size_t i = 0; i < len && at + LK__CLIENT_ID_SIZE < size; i++) {
		const struct lk__ticket *ticket = world->core.all_tickets;
		if (line[i] == '$') {
			memcpy(out + at, id, LK__CLIENT_ID_SIZE - 1);
			at += LK__CLIENT_ID_SIZE - 1;
		} else if (line[i] == '@' && i + 1 < len && ticket) {
			for (int skip = line[++i] & 7; skip && ticket->next; skip--)
				ticket = ticket->next;
			memcpy(out + at, ticket->nonce, LK__NONCE_SIZE - 1);
			at += LK__NONCE_SIZE - 1;
		} else {
			out[at++] = line[i];
		}
	}
	return at;
}

static void check_message(const struct lk__message *message)
{
	FUZZ_MUST(message->kind <= LK__BROKEN, "kind %d", (int)message->kind);
	FUZZ_MUST(strlen(message->nonce) == LK__NONCE_SIZE - 1 || memchr(message->nonce, 0, 11),
	          "a nonce without an end");
	FUZZ_MUST(message->lease_ms >= 1 && message->lease_ms <= LK_LEASE_MAX_MS, "a lease");
	FUZZ_MUST(message->permits <= LK_PERMITS_MAX, "permits");
	FUZZ_MUST(message->kind != LK__GRANT ||
	                  (message->fence && message->fence <= EXACT_MAX && message->life_ms >= 0 &&
	                   message->life_ms <= LK_LEASE_MAX_MS && message->waiting >= 0 &&
	                   message->store_us >= 0 && message->store_us <= EXACT_MAX),
	          "a grant out of its bounds");
	FUZZ_MUST(message->in_ms >= 0 && message->in_ms <= LK_LEASE_MAX_MS, "a time");
}

static unsigned count_holds(const struct lk__core *core)
{
	unsigned count = 0;

	for (const struct lk__hold *hold = core->all_holds; hold; hold = hold->next)
		count++;
	return count;
}

/* Could the store have sent it, to a ticket that waits? */
static bool may_grant(const struct core_world *world, const struct lk__message *message)
{
	const struct lk__ticket *ticket = lk__ticket_find(&world->core, message->nonce);

	return message->kind == LK__GRANT && ticket && ticket->first_sent_ns &&
	       (ticket->state == LK__ASKING || ticket->state == LK__WAITING) &&
	       ticket->queue->lease_ms == message->lease_ms &&
	       ticket->queue->fixed == message->fixed && ticket->queue->final == message->final &&
	       ticket->queue->permits == message->permits && !message->claim;
}

static void hear(struct core_world *world, const struct lk__space *space, char *text, size_t len)
{
	unsigned before = count_holds(&world->core);
	struct lk__message message;
	bool may;

	if (lk__codec_message(space, text, len, &message)) {
		check_message(&message);
		may = may_grant(world, &message);
		lk__core_message(&world->core, world->now_ns, &message);
		FUZZ_MUST(count_holds(&world->core) <= before + may, "a forged hold: %.*s",
		          (int)len, text);
	}
	if (lk__codec_broadcast(text, len, &message)) {
		FUZZ_MUST(message.kind == LK__OPENED || message.kind == LK__REMOVED, "kind %d",
		          (int)message.kind);
		FUZZ_MUST(message.fence <= EXACT_MAX, "a generation out of its bounds");
		lk__channels_published(&world->session.channels, world->now_ns, CORE_TOPIC,
		                       strlen(CORE_TOPIC), &message);
		FUZZ_MUST(count_holds(&world->core) == before, "a latch's message made a hold");
	}
	core_settle(world);
}

/* The initial state, then messages, one a line; an empty line lets time pass. */
void fuzz_messages(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct core_world world;
	struct lk__space space;
	unsigned choice = fuzz_byte(&input);

	lk__space_init(&space, "lk", 0, id);
	make_world(&world, choice);
	while (input.left) {
		char line[LINE_MAX_BYTES], filled[LINE_MAX_BYTES];
		size_t len = fuzz_line(&input, line, sizeof(line));
		char *exact;
		if (!len) {
			core_send(&world);
			core_later(&world, 300 * CORE_MS);
			core_settle(&world);
			continue;
		}
		len = fill_in(&world, line, len, filled, sizeof(filled));
		/* Allocated with the exact size, so that a sanitizer finds a read of one byte too
		 * many. */
		exact = malloc(len);
		if (!exact)
			abort();
		memcpy(exact, filled, len);
		hear(&world, &space, exact, len);
		free(exact);
	}
	core_world_close(&world);
}
