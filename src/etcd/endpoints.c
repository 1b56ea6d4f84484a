/* SPDX-License-Identifier: MIT
 * The order of members, and the pauses between dials.
 *
 *     due --_next--> dialling --_up--> up --_down--> due
 *                    dialling --_failed--> due
 *
 * Within a round, members follow each other without a pause: most often only one of them is down.
 * After a round of failures the pause doubles, up to two seconds; half of it is jitter, so that
 * clients which lost a member together do not return together. */
#include "endpoints.h"

#define MS INT64_C(1000000)
#define BACKOFF_FIRST_NS (50 * MS)
#define BACKOFF_MAX_NS (2000 * MS)
#define LASTED_NS (1000 * MS)

/* A linear congruential generator: what it spreads needs no secret. */
static uint64_t draw(struct lk__endpoints *endpoints, uint64_t below)
{
	endpoints->random =
		endpoints->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (endpoints->random >> 33) % below;
}

void lk__endpoints_init(struct lk__endpoints *endpoints, unsigned count, uint64_t random)
{
	*endpoints = (struct lk__endpoints){.count = (uint8_t)count, .random = random};
	for (unsigned i = 0; i < count; i++) {
		unsigned at = (unsigned)draw(endpoints, i + 1);
		endpoints->order[i] = endpoints->order[at];
		endpoints->order[at] = (uint8_t)i;
	}
}

int lk__endpoints_next(struct lk__endpoints *endpoints, int64_t now_ns)
{
	if (now_ns < endpoints->due_ns)
		return -1;
	endpoints->due_ns = LK__ENDPOINTS_NEVER;
	return endpoints->order[endpoints->next];
}

void lk__endpoints_up(struct lk__endpoints *endpoints, int64_t now_ns)
{
	endpoints->up_ns = now_ns;
}

static void back_off(struct lk__endpoints *endpoints, int64_t now_ns)
{
	int64_t pause_ns = endpoints->backoff_ns * 2;

	if (pause_ns < BACKOFF_FIRST_NS)
		pause_ns = BACKOFF_FIRST_NS;
	if (pause_ns > BACKOFF_MAX_NS)
		pause_ns = BACKOFF_MAX_NS;
	endpoints->backoff_ns = pause_ns;
	endpoints->failed = 0;
	endpoints->due_ns =
		now_ns + pause_ns / 2 + (int64_t)draw(endpoints, (uint64_t)(pause_ns / 2) + 1);
}

/* One more member of this round is of no use. */
void lk__endpoints_failed(struct lk__endpoints *endpoints, int64_t now_ns)
{
	endpoints->next = (uint8_t)((endpoints->next + 1) % endpoints->count);
	endpoints->failed++;
	if (endpoints->failed < endpoints->count)
		endpoints->due_ns = now_ns;
	else
		back_off(endpoints, now_ns);
}

void lk__endpoints_down(struct lk__endpoints *endpoints, int64_t now_ns, bool leave)
{
	const bool lasted = now_ns - endpoints->up_ns >= LASTED_NS;

	if (lasted) {
		endpoints->backoff_ns = 0;
		endpoints->failed = 0;
	}
	/* A member that accepts and closes is of no use, either. */
	if (lasted && !leave)
		endpoints->due_ns = now_ns;
	else
		lk__endpoints_failed(endpoints, now_ns);
}
