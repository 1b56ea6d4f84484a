/* SPDX-License-Identifier: MIT
 * Clients of a lock on etcd and all their possible next actions: the shipped core and sessions, the
 * bytes of their calls, and the model of etcd with three members.
 *
 *   etcd.c        the clients, their connections
 *   etcd_actions.c    the actions
 *   etcd_form.c   a state's canonical form
 *   etcd_check.c  the promises in each state, and at its end
 *   plants_etcd.c bounds, and wrong variants
 *
 * Both clients have used the lock before: they have leases, eras and mailboxes.  Then their calls,
 * the arrival of each call and answer, faults, and ticks of time come in any order.  A timer runs
 * in the tick when it is due, unless its client is stalled. */
#ifndef MODEL_ETCD_H
#define MODEL_ETCD_H

#include "world.h"

#include "etcd/session_parts.h"
#include "etcd_model_parts.h"

#define ETCD_CLIENTS 2
#define ETCD_LETTERS 24
#define ETCD_SENT 8
#define ETCD_BROKEN 4
#define ETCD_TIMEOUT_MS 5000
#define ETCD_MS INT64_C(1000000)

/* A message of a call or a stream, either way. */
struct etcd_letter {
	uint32_t id; /* of the session's call, 0 = of the watches */
	uint8_t method;
	bool has_message, has_ended, is_closed;
	int status;
	char text[64];
	struct lk__buf bytes;
};

struct etcd_queue {
	struct etcd_letter letters[ETCD_LETTERS];
	int count;
};

struct etcd_end {
	uint64_t connection, watch; /* of the model, 0 = none */
	int member;
	struct etcd_queue out;
	struct {
		uint32_t id;
		uint64_t call;
		int64_t sent_ns;
	} calls[ETCD_LETTERS];
	int call_count;
};

struct etcd_client {
	struct lk__core core;
	struct lk__session link;
	struct lk__etcd_session session;
	struct etcd_end end;  /* its connection */
	struct etcd_end past; /* one that it has lost: what was sent may still arrive */
	struct etcd_queue in;
	struct lk__pending *sent[ETCD_SENT];
	int sent_count;
	struct lk__wait_queue *queue;
	struct lk__op *waiter; /* its call, NULL = none */
	uint8_t verb, begun;
	bool alive, gave_up, is_broken, was_valid;
	uint64_t told, lapsed;
	char id[LK__CLIENT_ID_SIZE];
};

struct model_etcd {
	struct model_world *world;
	struct etcd_model *model;
	struct etcd_client clients[ETCD_CLIENTS];
	uint64_t fence; /* of the latest hold */
	uint8_t hurt;   /* the member that is stopped or frozen, plus 1; 0 = none */
	char broken[ETCD_BROKEN][LK__NONCE_SIZE]; /* tickets of leases that were revoked by hand */
	int broken_count;
};

/* etcd.c */
void etcd_begin_world(struct model_world *world);
/* keeps: what was sent and has not arrived may still arrive. */
void etcd_went_down(struct model_etcd *etcd, struct etcd_client *client, bool keeps);
void etcd_drop_end(struct model_etcd *etcd, struct etcd_end *end);
void etcd_link_up(struct model_etcd *etcd, struct etcd_client *client, int member);
/* Take what the members have answered. */
void etcd_pump(struct model_etcd *etcd);
/* The first letter of that connection arrives; the client reads its first one. */
void etcd_arrive(struct model_etcd *etcd, struct etcd_end *end);
void etcd_read_letter(struct model_etcd *etcd, struct etcd_client *client);
/* Complete calls; the same, after doing all that is due. */
void etcd_take_out(struct model_etcd *etcd, struct etcd_client *client);
void etcd_turn(struct model_etcd *etcd, struct etcd_client *client);

/* etcd_actions.c */
int etcd_actions(const struct model_world *world, uint16_t actions[MODEL_ACTIONS]);
void etcd_do(struct model_world *world, enum model_verb verb, int client, int member);
/* For the end: no more faults, all that was sent arrives, and holds are released. */
void etcd_mend(struct model_etcd *etcd);
void etcd_deliver(struct model_etcd *etcd);
void etcd_pass(struct model_etcd *etcd, int64_t ns);
void etcd_call_of(struct model_etcd *etcd, int client, enum model_verb verb);
struct lk__hold *etcd_hold(const struct etcd_client *client);
/* An operator has ended it. */
bool etcd_is_broken(const struct model_etcd *etcd, const struct lk__hold *hold);

/* etcd_form.c */
uint64_t etcd_hash(const struct model_world *world, bool with_bounds);

/* etcd_check.c */
const char *etcd_wrong(struct model_world *world);
bool etcd_quiet(const struct model_world *world);
const char *etcd_finish(struct model_world *world, int64_t *longest);
void etcd_print(const struct model_world *world);

#endif
