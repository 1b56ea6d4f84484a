/* SPDX-License-Identifier: MIT
 * The state machine with a store that replies anything at any time: it stays consistent, every call
 * ends, and closing the client leaves nothing behind. */
#include "core_world.h"

static void forge(struct core_world *world, struct fuzz_input *input)
{
	const struct lk__ticket *ticket = world->core.all_tickets;
	struct lk__message message = {.kind = (enum lk__message_kind)fuzz_below(input, 4)};
	const struct lk__wait_queue *queue;
	unsigned choice = fuzz_byte(input);

	for (unsigned i = choice % 4; i && ticket && ticket->next; i--)
		ticket = ticket->next;
	if (!ticket)
		return;
	for (int i = 0; i < LK__NONCE_SIZE; i++)
		message.nonce[i] = ticket->nonce[i];
	queue = ticket->queue;
	message.lease_ms = choice & 16 || !queue ? 777 : queue->lease_ms;
	message.fixed = queue && queue->fixed;
	message.final = queue && queue->final;
	message.permits = queue ? queue->permits : 0;
	message.fence = 1 + fuzz_bits(input, 2);
	message.life_ms = choice & 32 ? LK_LEASE_MAX_MS : fuzz_bits(input, 2);
	message.claim = choice & 64;
	message.waiting = choice & 128;
	message.store_us = (int64_t)fuzz_bits(input, 3);
	message.in_ms = choice & 32 ? LK_LEASE_MAX_MS : (int64_t)fuzz_byte(input);
	lk__core_message(&world->core, world->now_ns, &message);
}

static void tell_latch(struct core_world *world, struct fuzz_input *input)
{
	struct lk__message message = {
		.kind = fuzz_below(input, 2) ? LK__OPENED : LK__REMOVED,
		.fence = fuzz_bits(input, 2),
	};

	lk__channels_published(&world->session.channels, world->now_ns, CORE_TOPIC,
	                       sizeof(CORE_TOPIC) - 1, &message);
}

/* The store does not have its script. */
static void resend(struct core_world *world)
{
	struct lk__pending *request = core_take_sent(world);

	if (request)
		lk__core_resend(&world->core, request);
}

static void answer(struct core_world *world, struct fuzz_input *input)
{
	struct lk__answer answer;

	if (fuzz_below(input, 4) == 3 && world->sent_count)
		core_good_answer(world, world->sent[0], &answer);
	else
		core_any_answer(input, &answer);
	core_answer(world, &answer);
}

static void event(struct core_world *world, struct fuzz_input *input)
{
	struct lk__hold *lost;
	unsigned choice;

	switch (fuzz_below(input, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		core_call_event(world, input);
		break;
	case 5:
	case 6:
	case 7:
		core_send(world);
		answer(world, input);
		break;
	case 8:
		answer(world, input);
		break;
	case 9:
		forge(world, input);
		break;
	case 10:
		tell_latch(world, input);
		break;
	case 11:
		core_channel_event(world, fuzz_byte(input));
		break;
	case 12:
		core_later(world, (int64_t)fuzz_byte(input) * 20 * CORE_MS);
		break;
	case 13:
		choice = fuzz_below(input, 8);
		if (choice == 7)
			core_forget(world);
		core_link(world, choice & 1);
		break;
	case 14:
		core_send(world);
		resend(world);
		break;
	default:
		if (fuzz_below(input, 2))
			core_send(world);
		else if ((lost = lk__core_next_lost(&world->core)))
			lk__core_loss_reported(lost);
	}
}

/* The input: events, one after the other.  If it has an odd length, a replica must confirm grants.
 */
void fuzz_answers(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct core_world world;

	core_world_init(&world);
	lk__session_need_replicas(&world.session, size & 1);
	core_link(&world, true);
	while (input.left) {
		event(&world, &input);
		core_settle(&world);
	}
	core_world_close(&world);
}
