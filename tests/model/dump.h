/* SPDX-License-Identifier: MIT
 * Shared by the files that write the canonical form of a state: see dump.c. */
#ifndef MODEL_DUMP_H
#define MODEL_DUMP_H

#include "world.h"

#define FORM_MAX 16000
#define SLOTS_MAX 800
#define NONCES_MAX 120
#define NONCE_LEN (LK__NONCE_SIZE - 1)
#define GAP_MAX 6    /* of two numbers in a row, of those that clients compute with */
#define FAR_MS 40000 /* more than any explored value */
#define FENCES 0
#define ARRIVALS 1

struct form {
	const struct model_world *world;
	const struct model_server *server; /* whose clock and marker are read */
	size_t len;
	uint8_t place[MODEL_CLIENTS]; /* of each client in the sorted order */
	struct {
		size_t at;
		uint64_t value;
	} slots[2][SLOTS_MAX];
	size_t slot_count[2];
	struct {
		int client;
		char text[NONCE_LEN];
	} nonces[NONCES_MAX];
	size_t nonce_count;
	uint8_t bytes[FORM_MAX];
};

void form_put(struct form *form, int64_t value);
void form_put_wide(struct form *form, int64_t value);
/* Its rank, once all are known. */
void form_put_number(struct form *form, int class, uint64_t value);
void form_put_nonce(struct form *form, int client, const char *nonce);
/* Ticks until then; ticks since then, up to a limit from which on more make no difference. */
void form_put_due(struct form *form, int64_t due_ns);
void form_put_age(struct form *form, int64_t at_ns, int64_t most_ms);
/* The same of a moment of the store's clock. */
void form_put_store_age(struct form *form, int64_t at_us);
/* The place of the client's call in a list, 0 = it is not in there. */
int form_where_of(const struct model_client *client, const struct lk__op *list);
void form_put_call(struct form *form, int index, const struct model_call *call);
void form_put_item(struct form *form, int index, const struct model_item *item);
void form_put_hold(struct form *form, const struct model_client *client);
/* The rest of the bounds. */
void form_put_bounds(struct form *form);
void form_begin(struct form *form, const struct model_world *world);
uint64_t form_hash(struct form *form);
/* All of a quorum (dump_quorum.c); the marker of a member, as one client or the server has it. */
void form_put_quorum(struct form *form, const struct model_world *world, bool with_bounds);
void form_put_member(struct form *form, const char *marker);
/* Of a memory, "" if there is none. */
void form_put_marker(struct form *form, const char *marker);
int64_t form_least(int64_t a, int64_t b);
/* All of the store (dump_keys.c). */
void form_put_keys(struct form *form);

#endif
