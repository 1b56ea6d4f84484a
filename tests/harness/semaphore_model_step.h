/* SPDX-License-Identifier: MIT
 * Between the files of the model of the semaphore's protocol. */
#ifndef SEMAPHORE_MODEL_STEP_H
#define SEMAPHORE_MODEL_STEP_H

#include "semaphore_model.h"

#define STEP_CHOICES 16

/* A step under way: the state it makes, and the choices that it leaves open, in their order. */
struct step {
	struct semaphore_model *model;
	struct semaphore_state *state;
	const struct semaphore_bounds *bounds;
	enum semaphore_rule rule;
	int chosen[STEP_CHOICES], ways[STEP_CHOICES];
	int choices, known; /* made in this run, made in the last one */
	bool no_room;
};

/* One of so many ways to go on. */
int semaphore_step_choose(struct step *step, int ways);

/* semaphore_model_client.c */
/* A request of that ticket is under way: the one that ends it, or the other one. */
bool semaphore_client_asked(const struct semaphore_client *client, int nonce, bool leaving);
bool semaphore_client_at_rest(const struct semaphore_client *client);
void semaphore_client_pursue(struct semaphore_client *client);
void semaphore_client_send(struct step *step, struct semaphore_client *client,
                           struct semaphore_entry entry);
void semaphore_client_ask(struct step *step, struct semaphore_client *client);
void semaphore_client_leave(struct step *step, struct semaphore_client *client,
                            const struct semaphore_leaver *leaver, bool release);
void semaphore_client_clear(struct semaphore_client *client);
void semaphore_client_end(struct step *step, struct semaphore_client *client, bool again,
                          bool hand);
void semaphore_client_begin(struct step *step, int index, bool only_try);
void semaphore_client_answer(struct step *step, int index);
void semaphore_client_message(struct step *step, struct semaphore_client *client);

/* semaphore_model_server.c */
void semaphore_server_execute(struct step *step, int client, struct semaphore_entry *entry);
void semaphore_server_resize(struct step *step, uint8_t capacity);
/* Leases that are over are taken out of the store. */
void semaphore_server_tick(struct step *step);

#endif
