/* SPDX-License-Identifier: MIT
 * A wrong variant of the core: a leg is believed until its yield is answered. */
#include "world.h"

static struct model_link *link_of(const struct model_client *client, const struct lk__ticket *leg)
{
	return &client->links[leg->session->index];
}

static void believe(struct model_world *world, struct model_client *client, struct lk__ticket *leg)
{
	struct model_link *link = link_of(client, leg);

	if (!leg->yields && leg->state == LK__HOLDING) {
		link->kept_until_ns = leg->valid_until_ns;
		link->kept_fence = leg->fence;
	} else if (leg->yields && leg->state == LK__ASKING && leg->main.kind == LK__YIELD &&
	           leg->main.state != LK__IDLE && link->kept_until_ns > world->now_ns) {
		leg->state = LK__HOLDING;
		leg->valid_until_ns = link->kept_until_ns;
		leg->fence = leg->last_fence = link->kept_fence;
	}
}

void world_believe(struct model_world *world, struct model_client *client)
{
	for (struct lk__ticket *leg = client->core.all_tickets; leg; leg = leg->next)
		if (leg->is_leg)
			believe(world, client, leg);
}

void world_disbelieve(struct lk__ticket *leg)
{
	if (!leg->yields || leg->state != LK__HOLDING)
		return;
	leg->state = LK__ASKING;
	leg->valid_until_ns = 0;
	leg->fence = leg->last_fence = 0;
}
