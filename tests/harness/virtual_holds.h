/* SPDX-License-Identifier: MIT
 * Locks and semaphores in virtual time, handled alike: calls, the store's keys, changes from
 * outside.  What differs is one struct virt_noun each. */
#ifndef VIRTUAL_HOLDS_H
#define VIRTUAL_HOLDS_H

#include "virtual.h"

#define VIRT_VIEW_MAX 128
#define VIRT_TTL_MS 3600000 /* how long the keys of an idle semaphore are kept, by default */

/* The parts of a ticket. */
struct virt_ticket {
	char text[LK__TICKET_MAX];
	char nonce[LK__NONCE_SIZE];
	int client;
	int64_t lease_ms;
	bool fixed, final;
	uint32_t permits;
	/* Of a hold: its permits (1 for a lock), fence and expiry. */
	uint32_t held;
	uint64_t fence;
	int64_t end_us;
};

/* The raw keys of a name, including expired leases. */
struct virt_view {
	bool there;
	int64_t capacity, used;
	struct virt_ticket holds[VIRT_VIEW_MAX];
	int hold_count;
	struct virt_ticket queue[VIRT_VIEW_MAX];
	int queued;
};

struct virt_noun {
	lk_kind kind;
	void (*acquire)(struct lk__core *core, int64_t now_ns, struct lk__op *op);
	void (*release)(struct lk__core *core, int64_t now_ns, struct lk__op *op);
	/* Read capacity, use and holds into an empty view. */
	void (*read)(struct virt *virt, const char *name, struct virt_view *view);
};

extern const struct virt_noun virt_lock, virt_semaphore;

/* ---- Callers ------------------------------------------------------------------------------ */

/* A handle; for a semaphore that has to be created, set its capacity. */
struct lk__wait_queue *virt_open(struct virt_client *client, const struct virt_noun *noun,
                                 const char *name, int64_t lease_ms, bool fixed);

/* ---- From outside ------------------------------------------------------------------------- */

/* The name's key with that suffix: "", ":q" for the queue, ":h" for the ends of a semaphore. */
const char *virt_key(const char *name, const char *suffix);
void virt_look(struct virt *virt, const struct virt_noun *noun, const char *name,
               struct virt_view *view);
/* ---- For a noun's file -------------------------------------------------------------------- */

#define VIRT_TEXT_MAX 32768

/* The reply's text, to be taken apart by virt_next_pair(); valid until the next call. */
char *virt_read(struct virt *virt, const char *command, const char *key, const char *from,
                const char *to, const char *option);
/* The next two lines of a reply; false at its end. */
bool virt_next_pair(char **at, char **name, char **value);
/* Parse 1:<client>:<nonce>:<lease>:<mode>, for permits with :<permits>. */
bool virt_parse_ticket(const char *text, struct virt_ticket *ticket);

#endif
