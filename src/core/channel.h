/* SPDX-License-Identifier: MIT
 * Broadcast channels and who wants them: the state machine behind SUBSCRIBE and UNSUBSCRIBE.  As
 * in core.h nothing here blocks or reads a clock, and no event can fail for want of memory.
 *
 * A channel has one owner and any number of users.  The first user subscribes it; after the last
 * one it lingers, so that a loop of waits does not flap.  At most one command of a channel is under
 * way: what was wanted meanwhile is looked at when its reply has come, so no reply can be taken for
 * that of another command. */
#ifndef LK__CHANNEL_H
#define LK__CHANNEL_H

#include "../base/error.h"
#include "heap.h"
#include "request.h"
#include "table.h"

#define LK__LINGER_MS 5000 /* a channel without users is kept this long */
#define LK__PUT_OFF_MS 100 /* after an error that passes */

enum lk__channel_state {
	LK__CHANNEL_OFF,       /* its timer: when to ask again */
	LK__CHANNEL_ASKED,     /* SUBSCRIBE is queued or in flight */
	LK__CHANNEL_ON,        /* confirmed */
	LK__CHANNEL_LINGERING, /* confirmed, and nobody uses it */
	LK__CHANNEL_LEAVING,   /* UNSUBSCRIBE is queued or in flight */
};

struct lk__channel;

/* What an owner hears.  arg is what lk__channels_init() was given. */
struct lk__channel_events {
	/* Every message from now on comes. */
	void (*on)(struct lk__channel *channel, void *arg, int64_t now_ns);
	/* The store will not have it; the users are gone when this returns. */
	void (*refused)(struct lk__channel *channel, void *arg, int64_t now_ns,
	                const struct lk__why *why);
	void (*message)(struct lk__channel *channel, void *arg, int64_t now_ns,
	                const struct lk__message *message);
};

struct lk__channel {
	struct lk__timer timer;         /* first: a due timer is its channel */
	struct lk__node node;           /* by topic */
	struct lk__channel *next;       /* in the queue, or in flight */
	struct lk__channel *other_next; /* all of them */
	struct lk__channel *other_prev;
	const struct lk__channel_events *events;
	void *owner; /* NULL: it only lingers */
	uint32_t users;
	uint8_t state; /* enum lk__channel_state */
	bool sent;     /* its command is in flight */
	uint16_t len;
	char topic[]; /* as the store knows it, NUL-ended */
};

struct lk__channels {
	struct lk__table topics;
	struct lk__heap timers;
	struct lk__channel *all;
	struct lk__channel *queue, **queue_end; /* commands to send */
	struct lk__channel *sent, **sent_end;   /* commands in flight */
	void *arg;
	bool linked;
	bool pinged; /* a PING has no reply yet */
};

bool lk__channels_init(struct lk__channels *channels, void *arg);
/* Frees what is left, whatever it was. */
void lk__channels_fini(struct lk__channels *channels);

/* NULL when out of memory. */
struct lk__channel *lk__channel_new(const char *topic);
/* The channel of that topic: the given one is taken or freed. */
struct lk__channel *lk__channel_open(struct lk__channels *channels, struct lk__channel *channel,
                                     const struct lk__channel_events *events, void *owner);
/* The owner goes, without users; the channel still lingers. */
void lk__channel_close(struct lk__channels *channels, struct lk__channel *channel);
void lk__channel_use(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel);
void lk__channel_unuse(struct lk__channels *channels, int64_t now_ns, struct lk__channel *channel);
/* It is confirmed, whether used or lingering. */
bool lk__channel_is_on(const struct lk__channel *channel);

/* A command can be sent now. */
bool lk__channels_ready(const struct lk__channels *channels);
/* Ask for a sign of life on this connection: true when PING is to be sent.  Not while a command is
 * in flight, whose reply is as good a sign; and no command is sent while a PING has no reply, so
 * that an error reply surely belongs to the one or to the other. */
bool lk__channels_ping(struct lk__channels *channels);
/* The reply to PING came, or it could not be sent. */
void lk__channels_ponged(struct lk__channels *channels);
/* The next command to send, in order; in flight from now on.  NULL if none. */
struct lk__channel *lk__channels_next(struct lk__channels *channels, bool *subscribe);
/* A reply to a command: its kind and topic. */
void lk__channels_confirmed(struct lk__channels *channels, int64_t now_ns, bool subscribed,
                            const char *topic, size_t len);
/* An error reply to the command that has been in flight the longest. */
void lk__channels_refused(struct lk__channels *channels, int64_t now_ns, const struct lk__why *why);
/* That one will succeed later: SUBSCRIBE is sent again then. */
void lk__channels_put_off(struct lk__channels *channels, int64_t now_ns);
void lk__channels_published(struct lk__channels *channels, int64_t now_ns, const char *topic,
                            size_t len, const struct lk__message *message);
void lk__channels_link_up(struct lk__channels *channels, int64_t now_ns);
void lk__channels_link_down(struct lk__channels *channels);
void lk__channels_tick(struct lk__channels *channels, int64_t now_ns);
/* When to tick next, LK__NEVER. */
int64_t lk__channels_due(const struct lk__channels *channels);

#endif
