/* SPDX-License-Identifier: MIT
 * Lanes that cut a link after each byte. */
#include "lanes.h"

#include <stdio.h>

#define LANES (TSAN ? 16 : 32)
#define BYTES_MAX 1000 /* no exchange here is longer */
#define LEASE_MS 5000
#define FIXED_MS 8000

static struct lane lanes[LANES];
static const struct proxy_fault none;

int64_t lane_arm(struct lane *lane, int k)
{
	struct proxy_fault cut = {.cut_after = k ? k : -1, .cut_gently = k % 2};
	int64_t cuts = proxy_count(&lane->proxy).cuts;

	proxy_set(&lane->proxy, lane->cut->link, lane->cut->way, &cut);
	return cuts; /* the cut may have happened by now */
}

bool lane_disarm(struct lane *lane, int64_t cuts_before)
{
	proxy_set(&lane->proxy, lane->cut->link, lane->cut->way, &none);
	return proxy_count(&lane->proxy).cuts > cuts_before;
}

static int every(const struct cut *cut)
{
	return cut->every ? cut->every : 1;
}

static void *lane_thread(void *arg)
{
	struct lane *lane = arg;
	struct claim *mine = &lane->mine;
	int k = lane->number * every(lane->cut);

	redis = redis_open(&server);
	OK(mine->primitive->hold(mine, 0));
	OK(mine->primitive->release(mine));
	mine->first = 0;
	mine->waits = true;
	nap_ms(100); /* the client has introduced itself */
	while (lane->cut->step(lane, k)) {
		k += LANES * every(lane->cut);
		ck_assert_int_lt(k, BYTES_MAX);
		/* Without a link, the next step would send no request. */
		ck_assert(WITHIN(BACK_MS, mine->primitive->query(mine) == LK_OK));
	}
	lane->end = k;
	redis_close(redis);
	return NULL;
}

static void open_lane(struct lane *lane, int row)
{
	const lk_client_options options = {.command_timeout_ms = 1500};

	lane->far = client_with(lane->proxy.url, &options);
	lane->near = client_at(server.url);
	claim_init(&lane->mine, row, lane->far, lane->name, lane->cut->fixed ? FIXED_MS : LEASE_MS);
	claim_init(&lane->theirs, row, lane->near, lane->name, LEASE_MS);
	lane->mine.fixed = lane->cut->fixed;
	OK(lane->mine.primitive->open(&lane->mine, true));
	OK(lane->theirs.primitive->open(&lane->theirs, true));
	pthread_create(&lane->thread, NULL, lane_thread, lane);
}

void cut_everywhere(const struct cut *cut)
{
	int bytes = BYTES_MAX, row = 0;
	int64_t cuts = 0;

	while (cut->set != 1u << row)
		row++;
	fault_set_up(NULL);
	for (int i = 0; i < LANES; i++) {
		lanes[i] = (struct lane){.number = i, .cut = cut};
		snprintf(lanes[i].name, sizeof(lanes[i].name), "%s%d", primitives[row].name, i);
		proxy_start(&lanes[i].proxy, &server);
	}
	for (int i = 0; i < LANES; i++)
		open_lane(&lanes[i], row);
	for (int i = 0; i < LANES; i++) {
		pthread_join(lanes[i].thread, NULL);
		bytes = lanes[i].end < bytes ? lanes[i].end : bytes;
		cuts += proxy_count(&lanes[i].proxy).cuts;
	}
	printf("%d bytes, %lld cuts\n", bytes, (long long)cuts);
	ck_assert_int_ge(bytes, cut->least);
	ck_assert_int_ge(cuts, LANES / 4);
	for (int i = 0; i < LANES; i++) {
		OK(lk_client_close(lanes[i].far));
		OK(lk_client_close(lanes[i].near));
	}
	/* Only the fence counter is left, and what stays at rest. */
	if (primitives[row].is_leased)
		ck_assert_int_eq(redis_size(redis),
		                 1 + LANES * primitives[row].noun->rest_keys);
}
