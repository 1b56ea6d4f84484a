/* SPDX-License-Identifier: MIT
 * A rate whose clients are near and far, in virtual time: a client whose round trip is as long as
 * the window, or longer, gets its share, and wastes no share of another one. */
#include "virtual_fixture.h"

#include <stdio.h>

#define GRANTS_MAX 1000
#define CALLS_MAX 8 /* of a client, in flight */
#define SIDES 4
#define RUN_MS 4000
#define WINDOW_MS 100
/* Grants within one microsecond have consecutive fences. */
#define FENCE_SLACK_US 100

/* A client whose requests, answers and messages take so long each way.  It acquires one permit
 * after the other, none of them to be released. */
struct side {
	struct virt_client *client;
	struct lk__op *waiter;
	int64_t way_ns;
	struct {
		struct virt_call call;
		int64_t run_ns;
		bool ran;
	} calls[CALLS_MAX];
	int call_count, granted;
};

static struct side sides[SIDES];

/* Fences of the store's grants, and of those that callers received. */
static uint64_t given[GRANTS_MAX], used_up[GRANTS_MAX];
static int given_count, used_count;

static bool is_in(const uint64_t *fences, int count, uint64_t fence)
{
	while (count && fences[count - 1] != fence)
		count--;
	return count > 0;
}

/* Record new grants of the store, after each script. */
static void note_given(void)
{
	look();
	for (int i = 0; i < view.hold_count; i++) {
		if (is_in(given, given_count, view.holds[i].fence))
			continue;
		ck_assert_int_lt(given_count, GRANTS_MAX);
		given[given_count++] = view.holds[i].fence;
	}
}

/* A success is one grant of the store, which no other success has. */
static void note_used(struct side *side)
{
	if (!side->waiter || side->waiter->why.err)
		return;
	ck_assert(is_in(given, given_count, side->waiter->fence));
	ck_assert(!is_in(used_up, used_count, side->waiter->fence));
	used_up[used_count++] = side->waiter->fence;
	side->granted++;
}

/* No window, by the time of the grant, which is its fence, has more grants than the capacity. */
static void assert_exact(uint32_t capacity)
{
	for (int i = 0; i < used_count; i++) {
		uint32_t sum = 0;
		for (int j = 0; j < used_count; j++)
			sum += used_up[j] >= used_up[i] &&
			       used_up[j] < used_up[i] + WINDOW_MS * 1000 - FENCE_SLACK_US;
		ck_assert_uint_le(sum, capacity);
	}
}

/* ---- A network with delays ---------------------------------------------------------------- */

static void run_calls(struct side *side)
{
	for (int i = 0; i < side->call_count; i++) {
		if (side->calls[i].ran || side->calls[i].run_ns > w.now_ns)
			continue;
		virt_execute(side->client, &side->calls[i].call);
		side->calls[i].ran = true;
		note_given();
	}
	while (side->call_count && side->calls[0].ran &&
	       side->calls[0].run_ns + side->way_ns <= w.now_ns) {
		struct virt_call call = side->calls[0].call;
		memmove(&side->calls[0], &side->calls[1],
		        sizeof(side->calls[0]) * (size_t)--side->call_count);
		virt_answer(side->client, &call);
	}
}

/* All actions of this client at this moment. */
static void live(struct side *side)
{
	struct virt_client *client = side->client;
	struct virt_call call;

	for (int i = 0; i < 3; i++) {
		lk__core_tick(&client->core, w.now_ns);
		while (client->inbox_count && client->inbox[0].at_ns + side->way_ns <= w.now_ns)
			virt_hear(client);
		while (virt_take(client, &call)) {
			ck_assert_int_lt(side->call_count, CALLS_MAX);
			side->calls[side->call_count].call = call;
			side->calls[side->call_count].ran = false;
			side->calls[side->call_count++].run_ns = w.now_ns + side->way_ns;
		}
		run_calls(side);
	}
	while (lk__core_next_done(&client->core))
		;
}

/* The first two are near, the others that far each way.  All acquire as fast as they can for
 * RUN_MS; then they give up, and time passes until nothing is left. */
static void take_near_and_far(uint32_t capacity, int64_t far_ms)
{
	int64_t end_ns;

	start_fixed_permits(capacity, WINDOW_MS);
	sides[0] = (struct side){.client = a};
	sides[1] = (struct side){.client = b};
	sides[2] = (struct side){.client = c, .way_ns = far_ms * VIRT_MS};
	sides[3] = (struct side){.client = d, .way_ns = far_ms * VIRT_MS};
	end_ns = w.now_ns + RUN_MS * VIRT_MS;
	for (; w.now_ns < end_ns + 20000 * VIRT_MS; later(1)) {
		for (struct side *side = sides; side < sides + SIDES; side++) {
			live(side);
			if (w.now_ns >= end_ns) {
				virt_give_up(side->client, side->waiter, LK_ETIMEDOUT);
			} else if (!side->waiter || side->waiter->done) {
				note_used(side);
				side->waiter = forget_some(side->client, 1);
			}
		}
	}
	for (int i = 0; i < SIDES; i++)
		note_used(&sides[i]);
	assert_exact(capacity);
	printf("round trip %lld ms, window %d ms: %d of %d grants used, near %d and %d, far %d and "
	       "%d\n",
	       (long long)far_ms * 2, WINDOW_MS, used_count, given_count, sides[0].granted,
	       sides[1].granted, sides[2].granted, sides[3].granted);
	end();
}

/* The callers got nine tenths of the permitted rate, each far client at least its share; and almost
 * no grant was wasted without reaching a caller. */
static void assert_used(int capacity, int far_least)
{
	ck_assert_int_ge(used_count, RUN_MS / WINDOW_MS * capacity * 9 / 10);
	ck_assert_int_ge(sides[2].granted, far_least);
	ck_assert_int_ge(sides[3].granted, far_least);
	ck_assert_int_le(given_count - used_count, given_count / 20);
}

TEST(rate_whose_window_is_the_round_trip_is_granted_near_and_far)
{
	take_near_and_far(4, 50);
	assert_used(4, 30);
}

TEST(rate_whose_window_is_shorter_than_the_round_trip_is_granted_near_and_far)
{
	take_near_and_far(3, 73);
	assert_used(3, 15);
}

TEST(rate_whose_window_is_a_third_of_the_round_trip_is_granted_near_and_far)
{
	take_near_and_far(4, 150);
	assert_used(4, 10);
}
