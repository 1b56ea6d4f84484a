/* SPDX-License-Identifier: MIT
 * Shared by the files that write the canonical form of a state: see dump.c. */
#ifndef MODEL_DUMP_H
#define MODEL_DUMP_H

#include "world.h"

#define FORM_MAX 16000
#define SLOTS_MAX 400
#define NONCES_MAX 120
#define NONCE_LEN (LK__NONCE_SIZE - 1)
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
/* Of a memory, "" if there is none. */
void form_put_marker(struct form *form, const char *marker);
int64_t form_least(int64_t a, int64_t b);
/* All of the store (dump_keys.c). */
void form_put_keys(struct form *form);

#endif
