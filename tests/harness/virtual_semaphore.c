/* SPDX-License-Identifier: MIT
 * Semaphores in virtual time: see virtual_holds.h. */
#include "virtual_holds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_hold(struct virt_view *view, const char *name, const char *value)
{
	struct virt_ticket *hold = &view->holds[view->hold_count];
	unsigned long long fence;

	if (view->hold_count == VIRT_VIEW_MAX || !virt_parse_ticket(name, hold))
		return;
	if (sscanf(value, "%u %llu", &hold->held, &fence) != 2)
		return;
	hold->fence = fence;
	hold->end_us = -1;
	view->hold_count++;
}

/* An expiry without a hold reads as a hold of no permits and fence 0: the keys disagree. */
static void add_end(struct virt_view *view, const char *name, const char *value)
{
	for (int i = 0; i < view->hold_count; i++) {
		if (!strcmp(view->holds[i].text, name)) {
			view->holds[i].end_us = strtoll(value, NULL, 10);
			return;
		}
	}
	if (view->hold_count < VIRT_VIEW_MAX &&
	    virt_parse_ticket(name, &view->holds[view->hold_count]))
		view->holds[view->hold_count++].end_us = strtoll(value, NULL, 10);
}

static void read_semaphore(struct virt *virt, const char *name, struct virt_view *view)
{
	char *at, *field, *value;

	at = virt_read(virt, "HGETALL", virt_key(name, ""), NULL, NULL, NULL);
	while (virt_next_pair(&at, &field, &value)) {
		view->there = true;
		if (!strcmp(field, "capacity"))
			view->capacity = strtoll(value, NULL, 10);
		else if (!strcmp(field, "used"))
			view->used = strtoll(value, NULL, 10);
		else
			add_hold(view, field, value);
	}
	at = virt_read(virt, "ZRANGE", virt_key(name, ":h"), "0", "-1", "WITHSCORES");
	while (virt_next_pair(&at, &field, &value))
		add_end(view, field, value);
}

const struct virt_noun virt_semaphore = {
	.kind = LK_KIND_SEMAPHORE,
	.acquire = lk__core_acquire_permits,
	.release = lk__core_release_permits,
	.read = read_semaphore,
};
