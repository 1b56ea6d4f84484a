/* SPDX-License-Identifier: MIT
 * Between the files of the model of the lock protocol. */
#ifndef LOCK_STEP_H
#define LOCK_STEP_H

#include "lock_model.h"

/* A step under way: the state it makes, and the choices that it leaves open. */
struct step {
	struct lock_model *model;
	struct lock_state *state;
	const struct lock_bounds *bounds;
	enum lock_rule rule;
	int choice, choices; /* one choice a step at most */
	bool no_room;
};

/* One of so many ways to go on. */
static inline int choose(struct step *step, int choices)
{
	step->choices = choices;
	return step->choice;
}

static inline bool same(const struct model_ref *ref, int client, int nonce)
{
	return ref->client == client && ref->nonce == nonce;
}

/* lock_server.c */
int lock_server_find(const struct lock_state *state, int client, int nonce);
void lock_server_free(struct lock_state *state);
void lock_server_execute(struct step *step, int client, struct model_entry *entry);

#endif
