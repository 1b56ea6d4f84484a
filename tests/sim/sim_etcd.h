/* SPDX-License-Identifier: MIT
 * A cluster of etcd: the model of its members, what fails there, and each client's session with
 * them.  A link is one connection: letters go both ways, each way in order. */
#ifndef SIM_ETCD_H
#define SIM_ETCD_H

#include "core/core.h"
#include "etcd/endpoints.h"
#include "etcd/latch.h"
#include "etcd/session.h"
#include "etcd_model.h"
#include "sim_plan.h"

#define SIM_ETCD_SENT 512     /* requests of a client without an answer */
#define SIM_ETCD_CALLS 1024   /* calls of a connection that have not ended */
#define SIM_ETCD_TICKETS 1024 /* of all locks and semaphores */
#define SIM_ETCD_BROKEN 128   /* ended by hand, the last ones */
#define SIM_ETCD_OWN 128      /* clients that have counted a latch down, since it was set */
#define SIM_ETCD_STEPS 64     /* of a client, the last ones that it has sent */

struct sim;
struct sim_caller;
struct sim_client;
struct sim_fault;
struct sim_link;
struct sim_name;
struct sim_random;

enum sim_letter_kind {
	/* To the member: */
	SIM_LETTER_CALL,
	SIM_LETTER_KEEP_ALIVE, /* the one message of a stream */
	SIM_LETTER_WATCH,      /* a message of the stream of watches */
	SIM_LETTER_CANCEL,
	SIM_LETTER_PING,
	/* To the client: */
	SIM_LETTER_ANSWER,
	SIM_LETTER_WATCHED,
	SIM_LETTER_CLOSED,
	SIM_LETTER_PONG,
};

struct sim_letter {
	struct sim_letter *next;
	int64_t at_ns;
	enum sim_letter_kind kind;
	enum lk__etcd_method method;
	uint32_t id; /* of the call */
	bool has_message, has_ended;
	int status;
	char text[100];
	size_t len;
	char bytes[];
};

/* One connection. */
struct sim_etcd_link {
	uint64_t connection, watch; /* of the model; watch: 0 = not opened */
	struct sim_letter *out, **out_end, *in, **in_end;
	/* At the member: calls that have arrived. */
	struct sim_etcd_call {
		uint32_t id;
		uint64_t call;
	} calls[SIM_ETCD_CALLS];
	int call_count;
	/* At the client: calls without an answer, in the order of their sending. */
	struct sim_etcd_waiting {
		uint32_t id;
		int64_t sent_ns;
	} waiting[SIM_ETCD_CALLS];
	int waiting_count;
	int64_t heard_ns, pinged_ns; /* the client's clock */
};

struct sim_etcd_client {
	struct lk__etcd_session session;
	struct lk__endpoints endpoints;
	struct lk__pending *sent[SIM_ETCD_SENT];
	int sent_count;
	bool is_broken, leaves; /* its connection has to end; that member is of no use */
	bool is_ending;         /* its leases are revoked: what was sent arrives */
	lk_err err;
	int64_t apart_ns[EM_MEMBERS_MAX]; /* nothing passes between it and that member */
	int handed[SIM_LOCKS];            /* local hand-overs while others are known to wait */
	struct sim_etcd_step {
		int name, step_name; /* step_name: 0 = none */
		uint64_t generation, number;
		uint32_t n;
	} steps[SIM_ETCD_STEPS]; /* by their number */
};

/* A ticket in the store. */
struct sim_etcd_ticket {
	int name, slot, life;
	char nonce[LK__NONCE_SIZE];
	int64_t created, lease;
	/* Of a semaphore: */
	int64_t permits;
	int64_t granted_ns; /* since when it holds them, 0 = it waits */
	bool fits;          /* into the present capacity, with all before it; */
	int64_t unknown_ns; /* ... since when, and its client does not know it */
};

/* What a client has counted of a latch, as the store has it. */
struct sim_etcd_own {
	int slot, life;
	int64_t first, number, sum;
};

struct sim_etcd_latch {
	bool is_there;
	int64_t lease, mod;
	struct lk__etcd_latch_value value;
	struct sim_etcd_own own[SIM_ETCD_OWN];
	int own_count;
	int step_keys;
};

struct sim_etcd_member {
	/* Until when it is down, stopped, frozen, cut off, late; 0 = it is not. */
	int64_t up_ns, awake_ns, thawed_ns, joined_ns, prompt_ns;
};

struct sim_etcd {
	struct etcd_model *model;
	int count;
	struct sim_etcd_member members[EM_MEMBERS_MAX];
	struct sim_etcd_client clients[SIM_CLIENTS];
	/* What the store has: */
	int64_t seen_revision;
	struct sim_etcd_ticket tickets[SIM_ETCD_TICKETS];
	int ticket_count;
	struct lk__etcd_noun nouns[SIM_NAMES];
	struct sim_etcd_latch latches[SIM_NAMES];
	/* ... and had, before its last change: */
	struct sim_etcd_ticket former[SIM_ETCD_TICKETS];
	int former_count;
	struct sim_etcd_latch former_latches[SIM_NAMES];
	int64_t opened_all_ns; /* at the end: when an operator last tried to open all latches */
	char strange[100];     /* a key that is none of those, nor of a client; "" = none */
	int64_t broken[SIM_ETCD_BROKEN]; /* by the revision that created them */
	int broken_count;
	int64_t revoked[SIM_ETCD_BROKEN]; /* leases, perhaps a while later: the last ones */
	int revoked_count;
	/* Of each lock: its first ticket, since when that is not known to its client, and the
	 * fence of the latest hold. */
	struct sim_etcd_head {
		char nonce[LK__NONCE_SIZE];
		int64_t since_ns;
		uint64_t fence;
	} heads[SIM_LOCKS];
	int64_t compact_ns, compact_revision; /* the next regular compaction */
	uint64_t status_call;                 /* of the last dial, */
	bool is_led;                          /* and its answer */
};

/* sim_etcd.c: the members */
void sim_etcd_init(struct sim *sim);
void sim_etcd_fini(struct sim *sim);
void sim_etcd_set_time(struct sim *sim);
/* When the members, or what was sent to them over connections that have ended, do something. */
int64_t sim_etcd_world_due(const struct sim *sim);
void sim_etcd_happen(struct sim *sim);
/* False if it is none of the members. */
bool sim_etcd_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random);
void sim_etcd_heal(struct sim *sim);
/* Can that member serve?  Is the client's way to it open? */
bool sim_etcd_is_well(const struct sim *sim, int place);
bool sim_etcd_reaches(const struct sim_client *client, int place);
/* Do what another program does, over a connection of its own to any member; false: none serves. */
bool sim_etcd_operate(struct sim *sim, const char *path, struct lk__bytes message);
/* Send what the model has answered. */
void sim_etcd_pump(struct sim *sim);

/* sim_etcd_link.c: connections */
struct sim_etcd_link *sim_etcd_link_new(void);
void sim_etcd_link_free(struct sim *sim, struct sim_link *link);
/* The client has closed its end: a part of what it has sent still arrives. */
void sim_etcd_link_cut(struct sim_link *link);
/* Until when that takes. */
int64_t sim_etcd_link_until_ns(const struct sim_link *link);
int64_t sim_etcd_link_first(const struct sim_link *link, bool is_out);
void sim_etcd_link_serve(struct sim_link *link);
/* The client sends that; its id and method are for the caller. */
struct sim_letter *sim_etcd_send(struct sim_client *client, enum sim_letter_kind kind,
                                 const void *bytes, size_t len);
void sim_etcd_execute(struct sim_client *client);
void sim_etcd_reply(struct sim_client *client);

/* sim_etcd_client.c: sessions */
struct sim_etcd_client *sim_etcd_of(const struct sim_client *client);
void sim_etcd_start(struct sim_client *client);
void sim_etcd_free(struct sim_client *client);
void sim_etcd_probe(struct sim_client *client);
void sim_etcd_dial_failed(struct sim_client *client);
void sim_etcd_up(struct sim_client *client);
void sim_etcd_down(struct sim_client *client);
/* The client closes in order. */
void sim_etcd_end(struct sim_client *client);
void sim_etcd_flush(struct sim_client *client);
/* Do what is due, and hand over what has come for the core; false if that is nothing. */
bool sim_etcd_turn(struct sim_client *client);
/* By the client's clock. */
int64_t sim_etcd_due(const struct sim_client *client);
int64_t sim_etcd_oldest_ns(const struct sim_client *client);
void sim_etcd_heard(struct sim_client *client, const struct sim_letter *letter);

/* sim_etcd_asks.c: queries of clients, and operators that change latches */
void sim_etcd_ask(struct sim_caller *caller, enum lk__request_kind kind,
                  const struct lk__details *details);
void sim_etcd_asked(struct sim_caller *caller, lk_err err);
/* The fault is one that a client's command makes. */
void sim_etcd_command(struct sim *sim, const struct sim_fault *fault, struct sim_random *random);
/* At the end of the run, no latch keeps a caller waiting. */
void sim_etcd_open_all(struct sim *sim);

/* sim_check_etcd.c: the promises */
void sim_etcd_look(struct sim *sim);
/* An operator ends that ticket; or all under that lease, of which there may be more until then. */
void sim_etcd_break(struct sim *sim, int64_t created);
void sim_etcd_revoke(struct sim *sim, int64_t lease);
bool sim_etcd_is_fine(const struct sim_client *client, int64_t for_ns);
void sim_etcd_check_backed(struct sim_client *client, const struct lk__hold *hold);
void sim_etcd_check_made(struct sim_caller *caller, const struct lk__hold *hold);
void sim_etcd_check_lost(const struct sim_client *client, const struct lk__hold *hold);
void sim_etcd_check_names(struct sim *sim);
int sim_etcd_number(const char *digits, int count);
bool sim_etcd_is_ended(const struct sim *sim, const struct lk__hold *hold);
const struct sim_etcd_ticket *sim_etcd_find(const struct sim *sim, const char *nonce);
/* The client of the ticket, NULL if that process has ended. */
struct sim_client *sim_etcd_client_of(struct sim *sim, const struct sim_etcd_ticket *ticket);
bool sim_etcd_is_known(const struct sim_client *client, const char *nonce);
/* For so long the client of a ticket that is granted may not know it. */
int64_t sim_etcd_wake_ns(const struct sim *sim);
void sim_etcd_check_rest(struct sim *sim);
void sim_etcd_check_end(struct sim *sim);

/* sim_check_etcd_permits.c */
void sim_etcd_look_permits(struct sim *sim);
void sim_etcd_check_permits(struct sim *sim, const struct sim_name *name);

/* sim_check_etcd_latch.c */
/* A key below lk/D: false if it is no latch's. */
bool sim_etcd_read_latch(struct sim_etcd *etcd, const struct lk__etcd_kv *kv);
void sim_etcd_look_latches(struct sim *sim);
/* The client sends a step. */
void sim_etcd_note_step(struct sim_client *client, const struct lk__latch *latch);

#endif
