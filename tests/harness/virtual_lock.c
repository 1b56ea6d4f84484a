/* SPDX-License-Identifier: MIT
 * Locks in virtual time: see virtual_holds.h. */
#include "virtual_holds.h"

#include <stdio.h>
#include <stdlib.h>

/* The key is "<ticket> <fence> <lease in force> <s|->", and its expiry that of the lease. */
static void read_lock(struct virt *virt, const char *name, struct virt_view *view)
{
	struct virt_ticket *hold = &view->holds[0];
	unsigned long long fence;
	const char *value = lua_store_text(virt->store, "GET", virt_key(name, ""), NULL);

	if (!virt_parse_ticket(value, hold) || sscanf(value, "%*s %llu", &fence) != 1)
		return;
	view->there = true;
	view->hold_count = 1;
	view->used = hold->held = 1;
	hold->fence = fence;
	value = lua_store_text(virt->store, "PTTL", virt_key(name, ""), NULL);
	hold->end_us = virt_store_us(virt) + strtoll(value, NULL, 10) * 1000;
}

const struct virt_noun virt_lock = {
	.kind = LK_KIND_LOCK,
	.acquire = lk__core_acquire,
	.release = lk__core_release,
	.read = read_lock,
};
