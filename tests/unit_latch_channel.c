/* SPDX-License-Identifier: MIT
 * The subscription manager in virtual time: when it subscribes and unsubscribes, and that no late
 * reply is matched to another command. */
#include "core/channel.h"
#include "test.h"

#include <string.h>

#define MS INT64_C(1000000)

static struct lk__channels channels;
static struct lk__channel *c;
static int64_t now_ns = 1000 * MS;
static int heard_on, heard_refused, heard_messages;
static int owner; /* anything */
static int heard_off;

static void on(struct lk__channel *channel, void *arg, int64_t at_ns)
{
	ck_assert_ptr_eq(channel->owner, &owner);
	ck_assert_ptr_eq(arg, &owner);
	ck_assert_int_eq(at_ns, now_ns);
	heard_on++;
}

static void refused(struct lk__channel *channel, void *arg, int64_t at_ns,
                    const struct lk__why *why)
{
	(void)arg;
	ck_assert_int_eq(why->err, LK_EAUTH);
	heard_refused++;
	lk__channel_unuse(&channels, at_ns, channel);
}

static void message(struct lk__channel *channel, void *arg, int64_t at_ns,
                    const struct lk__message *said)
{
	(void)channel, (void)arg, (void)at_ns;
	ck_assert_int_eq(said->kind, LK__OPENED);
	heard_messages++;
}

static void off(struct lk__channel *channel, void *arg, int64_t at_ns)
{
	(void)channel, (void)arg, (void)at_ns;
	heard_off++;
}

static const struct lk__channel_events events = {on, refused, message, off};

static void start(void)
{
	ck_assert(lk__channels_init(&channels, &owner));
	lk__channels_link_up(&channels, now_ns);
	c = lk__channel_open(&channels, lk__channel_new("one"), &events, &owner);
}

static void later(int64_t ms)
{
	now_ns += ms * MS;
	lk__channels_tick(&channels, now_ns);
}

/* Take the only command to send. */
static void sends(bool subscribe)
{
	bool is_subscribe;

	ck_assert(lk__channels_next(&channels, &is_subscribe) == c);
	ck_assert_int_eq(is_subscribe, subscribe);
	ck_assert(!lk__channels_next(&channels, &is_subscribe));
}

static void sends_nothing(void)
{
	bool subscribe;

	ck_assert(!lk__channels_next(&channels, &subscribe));
}

static void confirm(bool subscribed)
{
	lk__channels_confirmed(&channels, now_ns, subscribed, "one", 3);
}

static void use(void)
{
	lk__channel_use(&channels, now_ns, c);
}

static void unuse(void)
{
	lk__channel_unuse(&channels, now_ns, c);
}

static void end(void)
{
	lk__channels_fini(&channels);
}

TEST(channel_is_subscribed_once_for_all_users)
{
	start();
	sends_nothing();
	for (int i = 0; i < 1000; i++)
		use();
	sends(true);
	use();
	confirm(true);
	use();
	sends_nothing();
	ck_assert_int_eq(heard_on, 1);
	ck_assert(lk__channel_is_on(c));
	end();
}

TEST(channel_is_left_late_and_used_again_at_once)
{
	start();
	use();
	sends(true);
	confirm(true);
	for (int i = 0; i < 100; i++) {
		unuse();
		ck_assert(lk__channel_is_on(c));
		later(LK__LINGER_MS - 1);
		use();
		sends_nothing();
	}
	ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
	unuse();
	ck_assert_int_eq(lk__channels_due(&channels), now_ns + LK__LINGER_MS * MS);
	later(LK__LINGER_MS);
	sends(false);
	confirm(false);
	ck_assert(!lk__channel_is_on(c));
	sends_nothing();
	use();
	sends(true);
	end();
}

TEST(channel_stays_as_long_as_it_has_a_user)
{
	start();
	use();
	use();
	sends(true);
	confirm(true);
	unuse();
	later(LK__LINGER_MS);
	sends_nothing();
	unuse();
	later(LK__LINGER_MS);
	sends(false);
	end();
}

TEST(command_that_was_not_sent_yet_is_dequeued)
{
	start();
	use();
	unuse();
	sends_nothing();
	use();
	sends(true);
	confirm(true);
	unuse();
	later(LK__LINGER_MS);
	use(); /* UNSUBSCRIBE is queued */
	sends_nothing();
	ck_assert(lk__channel_is_on(c));
	end();
}

TEST(user_of_a_channel_that_is_left_gets_a_new_subscription)
{
	start();
	use();
	sends(true);
	confirm(true);
	unuse();
	later(LK__LINGER_MS);
	sends(false);
	use();
	sends_nothing(); /* one command at a time */
	confirm(true);   /* an old one: not requested now */
	ck_assert(!lk__channel_is_on(c));
	ck_assert_int_eq(heard_on, 1);
	confirm(false);
	ck_assert_int_eq(heard_on, 1);
	sends(true);
	confirm(false); /* no reply to this command */
	ck_assert(!lk__channel_is_on(c));
	confirm(true);
	ck_assert_int_eq(heard_on, 2);
	end();
}

TEST(last_user_may_end_before_the_confirmation)
{
	start();
	use();
	sends(true);
	unuse();
	confirm(true);
	ck_assert_int_eq(heard_on, 0);
	later(LK__LINGER_MS);
	sends(false);
	confirm(false);
	sends_nothing();
	end();
}

TEST(new_connection_subscribes_every_channel_in_use)
{
	bool subscribe;
	struct lk__channel *d;

	start();
	d = lk__channel_open(&channels, lk__channel_new("two"), &events, &owner);
	use();
	lk__channel_use(&channels, now_ns, d);
	ck_assert(lk__channels_next(&channels, &subscribe) != NULL);
	lk__channels_link_down(&channels);
	sends_nothing();
	confirm(true); /* of the lost connection */
	ck_assert_int_eq(heard_on, 0);
	lk__channels_link_up(&channels, now_ns);
	for (int i = 0; i < 2; i++)
		ck_assert(lk__channels_next(&channels, &subscribe) && subscribe);
	sends_nothing();
	end();
}

TEST(link_may_drop_in_every_state)
{
	for (int steps = 0; steps < 6; steps++) {
		start();
		use();
		if (steps > 0)
			sends(true);
		if (steps > 1)
			confirm(true);
		if (steps > 2)
			unuse();
		if (steps > 3)
			later(LK__LINGER_MS);
		if (steps > 4)
			sends(false);
		lk__channels_link_down(&channels);
		ck_assert(!lk__channel_is_on(c));
		ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
		lk__channels_link_up(&channels, now_ns);
		if (steps > 2) {
			sends_nothing();
			use();
		}
		sends(true);
		confirm(true);
		ck_assert(lk__channel_is_on(c));
		end();
	}
}

TEST(refusal_is_reported_and_the_next_user_tries_again)
{
	const struct lk__why why = {.err = LK_EAUTH, .text = "NOPERM"};

	start();
	lk__channels_refused(&channels, now_ns, &why); /* of no command */
	use();
	sends(true);
	lk__channels_refused(&channels, now_ns, &why);
	ck_assert_int_eq(heard_refused, 1);
	ck_assert_int_eq(c->users, 0);
	use();
	sends(true);
	confirm(true);
	ck_assert_int_eq(heard_on, 1);
	/* A channel that cannot be left stays subscribed. */
	unuse();
	later(LK__LINGER_MS);
	sends(false);
	lk__channels_refused(&channels, now_ns, &why);
	ck_assert(lk__channel_is_on(c));
	later(10 * LK__LINGER_MS);
	sends_nothing();
	end();
}

TEST(channel_lingers_for_the_next_owner)
{
	const struct lk__message said = {.kind = LK__OPENED};

	start();
	use();
	sends(true);
	confirm(true);
	unuse();
	lk__channel_close(&channels, c);
	lk__channels_published(&channels, now_ns, "one", 3, &said);
	ck_assert_int_eq(heard_messages, 0);
	ck_assert(lk__channel_open(&channels, lk__channel_new("one"), &events, &owner) == c);
	use();
	sends_nothing();
	lk__channels_published(&channels, now_ns, "one", 3, &said);
	lk__channels_published(&channels, now_ns, "on", 2, &said);
	ck_assert_int_eq(heard_messages, 1);
	unuse();
	lk__channel_close(&channels, c);
	later(LK__LINGER_MS);
	sends(false);
	confirm(false);
	ck_assert_ptr_null(channels.all);
	end();
}

/* ---- Transient errors --------------------------------------------------------------------- */

TEST(subscription_that_is_put_off_is_sent_again)
{
	start();
	use();
	sends(true);
	lk__channels_put_off(&channels, now_ns);
	ck_assert_int_eq(heard_refused, 0);
	sends_nothing();
	ck_assert_int_eq(lk__channels_due(&channels), now_ns + LK__PUT_OFF_MS * MS);
	later(LK__PUT_OFF_MS - 1);
	sends_nothing();
	later(1);
	sends(true);
	confirm(true);
	ck_assert_int_eq(heard_on, 1);
	ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
	end();
}

TEST(subscription_that_is_put_off_ends_with_its_users_and_with_the_link)
{
	start();
	use();
	sends(true);
	lk__channels_put_off(&channels, now_ns);
	unuse();
	ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
	later(LK__PUT_OFF_MS);
	sends_nothing();
	use(); /* another command does not wait for the pause */
	sends(true);
	lk__channels_put_off(&channels, now_ns);
	lk__channels_link_down(&channels);
	ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
	lk__channels_link_up(&channels, now_ns);
	sends(true);
	lk__channels_put_off(&channels, now_ns);
	lk__channels_put_off(&channels, now_ns); /* not requested */
	unuse();
	lk__channel_close(&channels, c);
	ck_assert_ptr_null(channels.all);
	end();
}

TEST(subscription_without_users_is_not_put_off)
{
	start();
	use();
	sends(true);
	unuse();
	lk__channels_put_off(&channels, now_ns);
	ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
	lk__channel_close(&channels, c);
	ck_assert_ptr_null(channels.all);
	end();
}

TEST(unsubscription_that_is_put_off_is_sent_again_unless_it_is_used)
{
	start();
	use();
	sends(true);
	confirm(true);
	unuse();
	later(LK__LINGER_MS);
	sends(false);
	lk__channels_put_off(&channels, now_ns);
	ck_assert(lk__channel_is_on(c));
	later(LK__LINGER_MS);
	sends(false);
	use();
	lk__channels_put_off(&channels, now_ns);
	ck_assert(lk__channel_is_on(c));
	ck_assert_int_eq(heard_on, 2);
	later(LK__LINGER_MS);
	sends_nothing();
	end();
}

TEST(asks_again_when_the_server_ends_a_subscription)
{
	bool subscribe;

	start();
	lk__channel_use(&channels, now_ns, c);
	ck_assert_ptr_eq(lk__channels_next(&channels, &subscribe), c);
	lk__channels_confirmed(&channels, now_ns, true, "one", 3);
	ck_assert(lk__channel_is_on(c));
	lk__channels_confirmed(&channels, now_ns, false, "two", 3);
	ck_assert(lk__channel_is_on(c));
	lk__channels_confirmed(&channels, now_ns, false, "one", 3);
	ck_assert_int_eq(heard_off, 1);
	ck_assert_ptr_eq(lk__channels_next(&channels, &subscribe), c);
	ck_assert(subscribe);
	lk__channels_confirmed(&channels, now_ns, false, "one", 3); /* it came twice */
	ck_assert_int_eq(heard_off, 1);
	lk__channels_confirmed(&channels, now_ns, true, "one", 3);
	ck_assert(lk__channel_is_on(c));
	lk__channels_fini(&channels);
}

TEST(forgets_a_lingering_channel_that_the_server_ended)
{
	bool subscribe;

	start();
	lk__channel_use(&channels, now_ns, c);
	ck_assert_ptr_eq(lk__channels_next(&channels, &subscribe), c);
	lk__channels_confirmed(&channels, now_ns, true, "one", 3);
	lk__channel_unuse(&channels, now_ns, c);
	lk__channel_close(&channels, c);
	lk__channels_confirmed(&channels, now_ns, false, "one", 3);
	ck_assert_ptr_null(channels.all);
	ck_assert_int_eq(lk__channels_due(&channels), LK__NEVER);
	lk__channels_fini(&channels);
}
