/* SPDX-License-Identifier: MIT
 * Broadcast channels and their users: the state machine behind SUBSCRIBE and UNSUBSCRIBE.  As in
 * core.h nothing here blocks or reads a clock, and no event can fail for lack of memory.
 *
 * A channel has one owner and any number of users.  The first user subscribes it; after the last
 * one it lingers, so that a loop of waits does not flap.  A channel has at most one command in
 * flight; later changes of its use are evaluated when the reply arrives, so no reply can be taken
 * for that of another command. */
#ifndef LK__CHANNEL_H
#define LK__CHANNEL_H

#include "../base/error.h"
#include "heap.h"
#include "request.h"
#include "table.h"

#define LK__LINGER_MS 5000 /* how long a channel without users stays subscribed */
#define LK__PUT_OFF_MS 100 /* delay after a transient error */

enum lk__channel_state {
	LK__CHANNEL_OFF,       /* its timer: when to subscribe again */
	LK__CHANNEL_ASKED,     /* SUBSCRIBE is queued or in flight */
	LK__CHANNEL_ON,        /* confirmed */
	LK__CHANNEL_LINGERING, /* confirmed, without users */
	LK__CHANNEL_LEAVING,   /* UNSUBSCRIBE is queued or in flight */
};

struct lk__channel;

/* The owner's callbacks.  arg is from lk__channels_init(). */
struct lk__channel_events {
	/* Subscribed: every message from now on arrives. */
	void (*on)(struct lk__channel *channel, void *arg, int64_t now_ns);
	/* The store refused the subscription; the callback must remove all users. */
	void (*refused)(struct lk__channel *channel, void *arg, int64_t now_ns,
	                const struct lk__why *why);
	void (*message)(struct lk__channel *channel, void *arg, int64_t now_ns,
	                const struct lk__message *message);
	/* The server ended the subscription, since the topic's slot has moved: it is asked for
	 * again.  Messages may have been missed. */
	void (*off)(struct lk__channel *channel, void *arg, int64_t now_ns);
};

struct lk__channel {
	struct lk__timer timer;         /* first: a due timer is its channel */
	struct lk__node node;           /* by topic */
	struct lk__channel *next;       /* in the queue, or in flight */
	struct lk__channel *other_next; /* list of all */
	struct lk__channel *other_prev;
	const struct lk__channel_events *events;
	void *owner; /* NULL: it only lingers */
	uint32_t users;
	uint8_t state; /* enum lk__channel_state */
	bool sent;     /* its command is in flight */
	uint16_t len;
	char topic[]; /* as the store names it, NUL-terminated */
};

struct lk__channels {
	struct lk__table topics;
	struct lk__heap timers;
	struct lk__channel *all;
	struct lk__channel *queue, **queue_end; /* commands to send */
	struct lk__channel *sent, **sent_end;   /* commands in flight */
	void *arg;
	bool linked;
	bool pinged; /* a PING is in flight */
};

bool lk__channels_init(struct lk__channels *channels, void *arg);
/* Frees the rest, in any state. */
void lk__channels_fini(struct lk__channels *channels);

/* NULL when out of memory. */
struct lk__channel *lk__channel_new(const char *topic);
/* The channel of that topic; frees the argument if there is one already. */
struct lk__channel *lk__channel_open(struct lk__channels *channels, struct lk__channel *channel,
                                     const struct lk__channel_events *events, void *owner);
/* Remove the owner, which has no users left; the channel still lingers. */
void lk__channel_close(struct lk__channels *channels, struct lk__channel *channel);
void lk__channel_use(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel);
void lk__channel_unuse(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel);
/* Is it confirmed, whether used or lingering? */
bool lk__channel_is_on(const struct lk__channel *channel);

/* Can a command be sent now? */
bool lk__channels_ready(const struct lk__channels *channels);
/* Request a PING on this connection: true if it must be sent.  Not while a command is in flight,
 * whose reply shows the same; and no command is sent while a PING is in flight, so that an error
 * reply can be attributed to one of the two. */
bool lk__channels_ping(struct lk__channels *channels);
/* The reply to PING arrived, or PING could not be sent. */
void lk__channels_ponged(struct lk__channels *channels);
/* The next command to send, in order; it is then in flight.  NULL if none. */
struct lk__channel *lk__channels_next(struct lk__channels *channels, bool *subscribe);
/* A reply to a command: its kind and topic; or a subscription that the server ended. */
void lk__channels_confirmed(struct lk__channels *channels, int64_t now_ns, bool subscribed,
                            const char *topic, size_t len);
/* An error reply to the oldest command in flight. */
void lk__channels_refused(struct lk__channels *channels, int64_t now_ns, const struct lk__why *why);
/* The error was transient: SUBSCRIBE is sent again later. */
void lk__channels_put_off(struct lk__channels *channels, int64_t now_ns);
void lk__channels_published(struct lk__channels *channels, int64_t now_ns, const char *topic,
                            size_t len, const struct lk__message *message);
void lk__channels_link_up(struct lk__channels *channels, int64_t now_ns);
void lk__channels_link_down(struct lk__channels *channels);
void lk__channels_tick(struct lk__channels *channels, int64_t now_ns);
/* When to tick next, LK__NEVER. */
int64_t lk__channels_due(const struct lk__channels *channels);

#endif
