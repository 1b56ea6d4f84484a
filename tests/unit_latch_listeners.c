/* SPDX-License-Identifier: MIT
 * Several listeners on one channel, in virtual time: when one leaves, the others still receive. */
#include "latch_world.h"
#include "test.h"

static struct world w;
static struct world_client *const a = &w.clients[0];
static struct world_client *const b = &w.clients[1];

TEST(channel_stays_as_long_as_anybody_waits)
{
	struct lk__op *first, *second, *step;
	int looks;

	world_init(&w, 2);
	world_set(&w, 1, false);
	first = world_await(a, false, false);
	second = world_await(a, false, false);
	world_settle(&w);
	ck_assert(a->subscribed);
	lk__core_give_up(&a->core, w.now_ns, first, LK_ECANCELED);
	ck_assert(first->done);
	world_pass(&w, LK__LINGER_MS + 1000);
	ck_assert(a->subscribed);
	ck_assert_int_eq(a->unsubscribes, 0);
	/* Completed by the message, not by a look of its own. */
	looks = a->looks;
	step = world_step(b, 1, 0);
	world_settle(&w);
	ck_assert(step->done && second->done);
	ck_assert_int_eq(second->why.err, LK_OK);
	ck_assert_int_eq(a->looks, looks);
	world_pass(&w, LK__LINGER_MS + 1000);
	ck_assert(!a->subscribed);
	world_fini(&w);
}

static void nothing_heard(struct lk__channel *channel, void *arg, int64_t now_ns)
{
	(void)channel;
	(void)arg;
	(void)now_ns;
}

TEST(channel_stays_as_long_as_it_has_a_user)
{
	static const struct lk__channel_events events = {.on = nothing_heard};
	struct lk__channels channels;
	struct lk__channel *channel = lk__channel_new("one");
	int64_t now_ns = WORLD_MS;
	bool subscribe;
	int owner;

	ck_assert(lk__channels_init(&channels, NULL));
	lk__channels_link_up(&channels, now_ns);
	channel = lk__channel_open(&channels, channel, &events, &owner);
	lk__channel_use(&channels, now_ns, channel);
	lk__channel_use(&channels, now_ns, channel);
	ck_assert(lk__channels_next(&channels, &subscribe) == channel);
	lk__channels_confirmed(&channels, now_ns, true, "one", 3);
	lk__channel_unuse(&channels, now_ns, channel);
	now_ns += (LK__LINGER_MS + 1000) * WORLD_MS;
	lk__channels_tick(&channels, now_ns);
	ck_assert_ptr_null(lk__channels_next(&channels, &subscribe));
	lk__channel_unuse(&channels, now_ns, channel);
	now_ns += (LK__LINGER_MS + 1000) * WORLD_MS;
	lk__channels_tick(&channels, now_ns);
	ck_assert(lk__channels_next(&channels, &subscribe) == channel);
	ck_assert(!subscribe);
	lk__channels_fini(&channels);
}
