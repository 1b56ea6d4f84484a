/* SPDX-License-Identifier: MIT
 * Load with a judge: see rivals.h. */
#include "rivals.h"

#include "handles.h"
#include "process.h"

#include <stdio.h>
#include <string.h>

#define WAIT_MS 1000
#define HOLD_MS 20
#define LONGER_MS 500 /* after a break of the link, so that others meet this hold */
#define LATE_MS 1000
#define LATE_IN_CLUSTER_MS 500 /* the half of what one dial may take */
#define PAUSE_MS 10            /* after an error */
#define TURNS 8                /* of all, that show that they go on */

/* By the client's clock. */
static bool is_valid(struct rival *rival, uint64_t fence)
{
	lk_hold hold;

	return rival->all->noun->snapshot(rival->handle, fence, &hold) == LK_OK &&
	       hold.remaining_ms > 0;
}

static void enter(struct rival *rival, uint64_t fence)
{
	struct rivals *all = rival->all;

	pthread_mutex_lock(&all->mutex);
	for (struct rival *other = all->of; other < all->of + RIVALS; other++)
		if (other->fence && is_valid(other, other->fence) && is_valid(rival, fence))
			all->overlaps++;
	/* A thread that comes here after its lease has no say. */
	if (is_valid(rival, fence)) {
		all->stale_fences += fence <= all->fence;
		all->fence = fence;
		rival->fence = fence;
		all->holds++;
	}
	pthread_mutex_unlock(&all->mutex);
}

static void leave(struct rival *rival)
{
	pthread_mutex_lock(&rival->all->mutex);
	rival->fence = 0;
	pthread_mutex_unlock(&rival->all->mutex);
}

/* Every other client follows a failover late: without a grace, others are granted meanwhile what it
 * holds. */
static int follow_late(void *arg, const char *host, int port, char host_out[LK_HOST_SIZE],
                       int *port_out)
{
	struct rival *rival = arg;

	(void)host;
	(void)port;
	(void)host_out;
	(void)port_out;
	if (rival->all->started && (rival - rival->all->of) % 2)
		nap_ms(rival->all->late_ms);
	return 0;
}

/* Hold; on, while the link is down and the hold is valid. */
static void stay(struct rival *rival, uint64_t fence)
{
	const struct noun *noun = rival->all->noun;
	bool was_unsure = false;

	nap_ms(HOLD_MS);
	while (noun->state(rival->handle, fence) == LK_STATE_UNSURE) {
		was_unsure = true;
		nap_ms(2);
	}
	if (was_unsure)
		nap_ms(LONGER_MS);
}

static void *run(void *arg)
{
	struct rival *rival = arg;
	const struct noun *noun = rival->all->noun;

	while (!rival->all->stop) {
		uint64_t fence = 0;
		if (noun->acquire(rival->handle, NOUN_ALONE, WAIT_MS, &fence)) {
			nap_ms(PAUSE_MS);
			continue;
		}
		enter(rival, fence);
		stay(rival, fence);
		leave(rival);
		noun->release(rival->handle, fence); /* its error is not the subject */
	}
	return NULL;
}

void rivals_start(struct rivals *rivals, const struct noun *noun, const char *url, int64_t lease_ms)
{
	const struct noun_options options = {.lease_ms = lease_ms, .any_thread = true};
	char name[40];

	memset(rivals, 0, sizeof(*rivals));
	snprintf(name, sizeof(name), "%s of rivals", noun->name);
	rivals->noun = noun;
	rivals->late_ms = strstr(url, "+cluster:") ? LATE_IN_CLUSTER_MS : LATE_MS;
	ck_assert(!pthread_mutex_init(&rivals->mutex, NULL));
	for (struct rival *rival = rivals->of; rival < rivals->of + RIVALS; rival++) {
		rival->all = rivals;
		rival->client = client_with(
			url, &(lk_client_options){.resolve = follow_late, .resolve_arg = rival});
		rival->handle = noun_open(noun, rival->client, name, options);
	}
	rivals->started = true;
	for (struct rival *rival = rivals->of; rival < rivals->of + RIVALS; rival++)
		ck_assert(!pthread_create(&rival->thread, NULL, run, rival));
}

void rivals_go_on(struct rivals *rivals, int64_t ms)
{
	int before = rivals->holds;

	ck_assert_msg(WITHIN(ms, rivals->holds >= before + TURNS), "%s: %d turns in %lld ms",
	              rivals->noun->name, rivals->holds - before, (long long)ms);
}

void rivals_stop(struct rivals *rivals)
{
	rivals->stop = true;
	for (struct rival *rival = rivals->of; rival < rivals->of + RIVALS; rival++)
		pthread_join(rival->thread, NULL);
	for (struct rival *rival = rivals->of; rival < rivals->of + RIVALS; rival++)
		lk_client_close(rival->client);
	pthread_mutex_destroy(&rivals->mutex);
	ck_assert_int_eq(rivals->overlaps, 0);
	ck_assert_int_eq(rivals->stale_fences, 0);
}
