/* SPDX-License-Identifier: MIT
 * Broadcast channels: subscribed by the first user, kept for some time after the last one. */
#include "channel.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

bool lk__channels_init(struct lk__channels *channels, void *arg)
{
	*channels = (struct lk__channels){.arg = arg};
	channels->queue_end = &channels->queue;
	channels->sent_end = &channels->sent;
	return lk__table_init(&channels->topics);
}

static struct lk__channel *find(const struct lk__channels *channels, const char *topic, size_t len)
{
	struct lk__node *node = lk__table_first(&channels->topics, lk__hash(topic, len, 2));

	for (; node; node = lk__table_next(node)) {
		struct lk__channel *channel =
			(struct lk__channel *)((char *)node - offsetof(struct lk__channel, node));
		if (channel->len == len && !memcmp(channel->topic, topic, len))
			return channel;
	}
	return NULL;
}

/* ---- Life --------------------------------------------------------------------------------- */

struct lk__channel *lk__channel_new(const char *topic)
{
	size_t len = strlen(topic);
	struct lk__channel *channel = calloc(1, sizeof(*channel) + len + 1);

	if (channel) {
		lk__timer_init(&channel->timer);
		channel->len = (uint16_t)len;
		memcpy(channel->topic, topic, len + 1);
	}
	return channel;
}

struct lk__channel *lk__channel_open(struct lk__channels *channels, struct lk__channel *channel,
                                     const struct lk__channel_events *events, void *owner)
{
	struct lk__channel *known = find(channels, channel->topic, channel->len);

	if (known) {
		free(channel);
		channel = known;
	} else {
		channel->other_next = channels->all;
		if (channels->all)
			channels->all->other_prev = channel;
		channels->all = channel;
		lk__table_add(&channels->topics, &channel->node,
		              lk__hash(channel->topic, channel->len, 2));
	}
	channel->events = events;
	channel->owner = owner;
	return channel;
}

static void free_channel(struct lk__channels *channels, struct lk__channel *channel)
{
	lk__heap_set(&channels->timers, &channel->timer, LK__NEVER);
	lk__table_remove(&channels->topics, &channel->node);
	if (channel->other_prev)
		channel->other_prev->other_next = channel->other_next;
	else
		channels->all = channel->other_next;
	if (channel->other_next)
		channel->other_next->other_prev = channel->other_prev;
	free(channel);
}

void lk__channels_fini(struct lk__channels *channels)
{
	if (!channels->topics.buckets)
		return;
	while (channels->all)
		free_channel(channels, channels->all);
	lk__table_fini(&channels->topics);
}

/* Free it if it has no owner and nothing in flight. */
static void free_if_done(struct lk__channels *channels, struct lk__channel *channel)
{
	if (!channel->owner && channel->state == LK__CHANNEL_OFF)
		free_channel(channels, channel);
}

void lk__channel_close(struct lk__channels *channels, struct lk__channel *channel)
{
	channel->owner = NULL;
	channel->events = NULL;
	free_if_done(channels, channel);
}

/* ---- Commands ----------------------------------------------------------------------------- */

static void enqueue(struct lk__channels *channels, struct lk__channel *channel,
                    enum lk__channel_state state)
{
	channel->state = (uint8_t)state;
	channel->next = NULL;
	*channels->queue_end = channel;
	channels->queue_end = &channel->next;
}

/* The queued command is not needed any more. */
static void take_back(struct lk__channels *channels, struct lk__channel *channel,
                      enum lk__channel_state state)
{
	struct lk__channel **at = &channels->queue;

	while (*at != channel)
		at = &(*at)->next;
	*at = channel->next;
	if (!*at)
		channels->queue_end = at;
	channel->next = NULL;
	channel->state = (uint8_t)state;
}

static void linger(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel)
{
	channel->state = LK__CHANNEL_LINGERING;
	lk__heap_set(&channels->timers, &channel->timer, now_ns + LK__LINGER_MS * MS);
}

void lk__channel_use(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel)
{
	(void)now_ns;
	if (channel->users++)
		return;
	if (channel->state == LK__CHANNEL_OFF && channels->linked) {
		lk__heap_set(&channels->timers, &channel->timer, LK__NEVER);
		enqueue(channels, channel, LK__CHANNEL_ASKED);
	} else if (channel->state == LK__CHANNEL_LINGERING) {
		channel->state = LK__CHANNEL_ON;
		lk__heap_set(&channels->timers, &channel->timer, LK__NEVER);
	} else if (channel->state == LK__CHANNEL_LEAVING && !channel->sent) {
		take_back(channels, channel, LK__CHANNEL_ON);
	}
}

void lk__channel_unuse(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel)
{
	if (--channel->users)
		return;
	if (channel->state == LK__CHANNEL_ASKED && !channel->sent)
		take_back(channels, channel, LK__CHANNEL_OFF);
	else if (channel->state == LK__CHANNEL_ON)
		linger(channels, now_ns, channel);
	else if (channel->state == LK__CHANNEL_OFF)
		lk__heap_set(&channels->timers, &channel->timer, LK__NEVER);
}

bool lk__channel_is_on(const struct lk__channel *channel)
{
	return channel->state == LK__CHANNEL_ON || channel->state == LK__CHANNEL_LINGERING;
}

bool lk__channels_ready(const struct lk__channels *channels)
{
	return channels->queue && !channels->pinged;
}

bool lk__channels_ping(struct lk__channels *channels)
{
	if (channels->sent || channels->pinged)
		return false;
	return channels->pinged = true;
}

void lk__channels_ponged(struct lk__channels *channels)
{
	channels->pinged = false;
}

struct lk__channel *lk__channels_next(struct lk__channels *channels, bool *subscribe)
{
	struct lk__channel *channel = channels->queue;

	if (!lk__channels_ready(channels))
		return NULL;
	channels->queue = channel->next;
	if (!channels->queue)
		channels->queue_end = &channels->queue;
	channel->next = NULL;
	channel->sent = true;
	*channels->sent_end = channel;
	channels->sent_end = &channel->next;
	*subscribe = channel->state == LK__CHANNEL_ASKED;
	return channel;
}

/* ---- Replies ------------------------------------------------------------------------------ */

/* The oldest command in flight has its reply. */
static struct lk__channel *answered(struct lk__channels *channels)
{
	struct lk__channel *channel = channels->sent;

	channels->sent = channel->next;
	if (!channels->sent)
		channels->sent_end = &channels->sent;
	channel->next = NULL;
	channel->sent = false;
	return channel;
}

/* It is subscribed: for its users, or for a while without any. */
static void stays(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel)
{
	if (!channel->users) {
		linger(channels, now_ns, channel);
		return;
	}
	channel->state = LK__CHANNEL_ON;
	if (channel->events)
		channel->events->on(channel, channels->arg, now_ns);
}

/* The server ended a subscription by itself. */
static void dropped(struct lk__channels *channels, int64_t now_ns, const char *topic, size_t len)
{
	struct lk__channel *channel = find(channels, topic, len);

	if (!channel || channel->sent || !lk__channel_is_on(channel))
		return;
	lk__heap_set(&channels->timers, &channel->timer, LK__NEVER);
	channel->state = LK__CHANNEL_OFF;
	if (!channel->users || !channel->events) {
		free_if_done(channels, channel);
		return;
	}
	enqueue(channels, channel, LK__CHANNEL_ASKED);
	channel->events->off(channel, channels->arg, now_ns);
}

void lk__channels_confirmed(struct lk__channels *channels, int64_t now_ns, bool subscribed,
                            const char *topic, size_t len)
{
	struct lk__channel *channel = channels->sent;

	if (!channel || channel->len != len || memcmp(channel->topic, topic, len) != 0 ||
	    subscribed != (channel->state == LK__CHANNEL_ASKED)) {
		if (!subscribed)
			dropped(channels, now_ns, topic, len); /* not the reply to our command */
		return;
	}
	answered(channels);
	if (!subscribed) {
		channel->state = LK__CHANNEL_OFF;
		if (channel->users)
			enqueue(channels, channel, LK__CHANNEL_ASKED);
		else
			free_if_done(channels, channel);
		return;
	}
	stays(channels, now_ns, channel);
}

void lk__channels_refused(struct lk__channels *channels, int64_t now_ns, const struct lk__why *why)
{
	struct lk__channel *channel;

	if (!channels->sent)
		return;
	channel = answered(channels);
	if (channel->state == LK__CHANNEL_LEAVING) {
		/* It stays subscribed as long as the connection, without harm. */
		if (channel->users)
			stays(channels, now_ns, channel);
		else
			channel->state = LK__CHANNEL_LINGERING;
		return;
	}
	channel->state = LK__CHANNEL_OFF;
	if (channel->users && channel->events)
		channel->events->refused(channel, channels->arg, now_ns, why);
	else
		free_if_done(channels, channel);
}

void lk__channels_put_off(struct lk__channels *channels, int64_t now_ns)
{
	struct lk__channel *channel;

	if (!channels->sent)
		return;
	channel = answered(channels);
	if (channel->state == LK__CHANNEL_LEAVING) {
		stays(channels, now_ns, channel);
		return;
	}
	channel->state = LK__CHANNEL_OFF;
	if (channel->users)
		lk__heap_set(&channels->timers, &channel->timer, now_ns + LK__PUT_OFF_MS * MS);
	else
		free_if_done(channels, channel);
}

void lk__channels_published(struct lk__channels *channels, int64_t now_ns, const char *topic,
                            size_t len, const struct lk__message *message)
{
	struct lk__channel *channel = find(channels, topic, len);

	if (channel && channel->events)
		channel->events->message(channel, channels->arg, now_ns, message);
}

/* ---- The link, and the clock -------------------------------------------------------------- */

void lk__channels_link_up(struct lk__channels *channels, int64_t now_ns)
{
	struct lk__channel *channel;

	(void)now_ns;
	channels->linked = true;
	for (channel = channels->all; channel; channel = channel->other_next)
		if (channel->users && channel->state == LK__CHANNEL_OFF)
			enqueue(channels, channel, LK__CHANNEL_ASKED);
}

void lk__channels_link_down(struct lk__channels *channels)
{
	struct lk__channel *channel = channels->all, *next;

	channels->linked = channels->pinged = false;
	channels->queue = channels->sent = NULL;
	channels->queue_end = &channels->queue;
	channels->sent_end = &channels->sent;
	for (; channel; channel = next) {
		next = channel->other_next;
		channel->state = LK__CHANNEL_OFF;
		channel->sent = false;
		channel->next = NULL;
		lk__heap_set(&channels->timers, &channel->timer, LK__NEVER);
		free_if_done(channels, channel);
	}
}

void lk__channels_tick(struct lk__channels *channels, int64_t now_ns)
{
	struct lk__timer *timer;

	while ((timer = lk__heap_first(&channels->timers)) && timer->due_ns <= now_ns) {
		struct lk__channel *channel = (struct lk__channel *)timer;
		lk__heap_set(&channels->timers, timer, LK__NEVER);
		enqueue(channels, channel,
		        channel->state == LK__CHANNEL_OFF ? LK__CHANNEL_ASKED
		                                          : LK__CHANNEL_LEAVING);
	}
}

int64_t lk__channels_due(const struct lk__channels *channels)
{
	const struct lk__timer *first = lk__heap_first(&channels->timers);

	return first ? first->due_ns : LK__NEVER;
}
