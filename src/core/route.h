/* SPDX-License-Identifier: MIT
 * A Cluster: which link leads to the server that has a name, and the client's inbox for a name.
 *
 *   slot      one of 16384 parts of all names; each belongs to one server at a time
 *   route     the owner of each slot, as far as this client knows
 *   redirect  the answer of a server that does not have the slot: nothing was done
 *   inbox     the sharded channel on which this client gets messages about one name
 *
 * As in core.h nothing here blocks or reads a clock.  Without a route (core->route is NULL) every
 * name stays on the link that it was opened with, and messages come without an inbox. */
#ifndef LK__ROUTE_H
#define LK__ROUTE_H

#include "../base/slot.h"
#include "channel.h"
#include "request.h"

#define LK__NO_LINK 0xff
#define LK__HOPS_MAX 5 /* redirections of one request before a pause */
#define LK__HOPS_PAUSE_NS INT64_C(100000000)

struct lk__core;
struct lk__latch;
struct lk__name;
struct lk__pending;
struct lk__session;
struct lk__ticket;

struct lk__route {
	uint8_t owner[LK__SLOTS]; /* index of a link, LK__NO_OWNER */
};

struct lk__inbox {
	struct lk__channel *channel;   /* NULL until it is needed */
	struct lk__channels *channels; /* of the link where it is */
	uint16_t slot;                 /* of the name */
	bool is_refused;               /* the last subscription was */
	char topic[];
};

/* A redirect's text, "<slot> <host>:<port>". */
struct lk__redirect {
	unsigned slot;
	struct lk__place place; /* host "" = the one that answered */
};
bool lk__redirect_parse(const char *text, struct lk__redirect *redirect);

/* ---- Events ------------------------------------------------------------------------------- */

/* The store is a Cluster: from now on names have routes.  False when out of memory.  Before any
 * name is opened. */
bool lk__core_use_route(struct lk__core *core);
/* The link for a name; NULL without a link. */
struct lk__session *lk__core_route(const struct lk__core *core, const char *name, size_t len);
/* Does that link's server have any names?  Always true without a route. */
bool lk__core_has_slots(const struct lk__core *core, const struct lk__session *session);
/* A server answered the request: the slot belongs to the server of that link now.  The request,
 * which was not run, is sent there. */
void lk__core_moved(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                    unsigned slot, struct lk__session *session);
/* A server answered the request: ask the server of that link, this time only. */
void lk__core_asked(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                    struct lk__session *session);
/* The slot belongs to the server of that link. */
void lk__core_slot_moved(struct lk__core *core, int64_t now_ns, unsigned slot,
                         struct lk__session *session);
/* The owners of all slots, by the index of the link. */
void lk__core_topology(struct lk__core *core, int64_t now_ns, const uint8_t owner[LK__SLOTS]);
/* The link was dialled in vain: requests that were to be sent there once go where they belong. */
void lk__core_link_unreached(struct lk__core *core, struct lk__session *session, int64_t now_ns);
/* The topology that arrived last, NULL = none; the caller frees it. */
struct lk__topology *lk__core_take_topology(struct lk__core *core, struct lk__session **from);

/* NULL when out of memory. */
struct lk__inbox *lk__inbox_new(const char *topic);

/* ---- Between the core's files ---------------------------------------------------------------- */

/* Give a new name its slot and its link; without a route that link. */
void lk__route_name(const struct lk__core *core, struct lk__session *session,
                    struct lk__name *name);
/* Ask the server of that link for the topology, unless a question has no answer yet. */
void lk__topology_ask(struct lk__core *core, struct lk__session *session);
/* Is it an answer of a server that has the name, not one that stands for too many redirects? */
bool lk__answer_ends_hops(const struct lk__answer *answer);
/* The request is sent again: after a pause its redirects count anew. */
void lk__hops_pause(struct lk__pending *request, int64_t now_ns);
/* Was the request sent to a server that the ticket does not belong to any more?  Then its answer
 * makes nothing. */
bool lk__pending_is_late(const struct lk__pending *request, const struct lk__session *session);
/* Does the answer to a ticket's request make nothing, since it is late, or since its server had
 * lost its memory?  Then the request is as unknown as after a lost connection. */
bool lk__pending_makes_nothing(const struct lk__pending *request, const struct lk__ticket *ticket);

/* Give the name an inbox; frees the argument if there is one already.  NULL is a no-op. */
void lk__inbox_open(struct lk__name *name, struct lk__inbox *inbox);
/* Let the ticket use the inbox of its name.  False if it is out of memory: try again. */
bool lk__inbox_use(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__inbox_unuse(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* An ask that only tried found it held: wait, as soon as messages arrive. */
void lk__inbox_await(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* Do messages about the ticket's name arrive?  Always true without a route. */
bool lk__inbox_is_on(const struct lk__core *core, const struct lk__ticket *ticket);
/* The name leaves its link: its tickets use the inbox no more. */
void lk__inbox_close(struct lk__core *core, struct lk__name *name);

#endif
