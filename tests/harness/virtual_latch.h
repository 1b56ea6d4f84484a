/* SPDX-License-Identifier: MIT
 * Latches in virtual time: calls, by the handle client->queue, and changes from outside. */
#ifndef VIRTUAL_LATCH_H
#define VIRTUAL_LATCH_H

#include "core/latch.h"
#include "virtual.h"

struct lk__wait_queue *virt_open_latch(struct virt_client *client, const char *name);
struct lk__op *virt_await(struct virt_client *client, bool only_try, bool absent_is_open);
/* name: of the step, NULL = none. */
struct lk__op *virt_down(struct virt_client *client, uint32_t n, const char *name);
/* Start a new generation of client->queue, in whatever state it is. */
void virt_set_latch(struct virt_client *client, int64_t count, int64_t open_ttl_ms,
                    int64_t counting_ttl_ms);
void virt_remove_latch(struct virt_client *client);
/* The remaining steps in the store, -1 = there is no latch. */
int64_t virt_latch_count(const struct virt_client *client);

#endif
