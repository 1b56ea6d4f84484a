/* SPDX-License-Identifier: MIT
 * Clients of a lock and of a semaphore on etcd, and members that fail, at random:
 * harness/virtual_etcd.h.  At no time two clients have a valid hold of the lock, nor more permits
 * are held than there are; fences grow, and in the end everybody gets what it waits for. */
#include "harness/random_walk.h"
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include <stdio.h>

#define STEPS 400
#define WALKS 60

static uint64_t state;

static unsigned below(unsigned limit)
{
	return random_below(&state, limit);
}

/* The call of each client, NULL = none. */
static struct lk__op *calls[VE_CLIENTS];

/* ---- A semaphore ---- */

#define CAPACITY 4

static bool of_permits;
static struct lk__wait_queue *handles[VE_CLIENTS][2]; /* renewed and fixed */
static uint64_t holds[VE_CLIENTS];                    /* the fence of each client's, 0 = none */
static uint64_t grants;

static void count_permits(void)
{
	int64_t sum = 0;

	for (int i = 0; i < ve.clients; i++)
		sum += ve_permits(i);
	ck_assert_msg(sum <= CAPACITY, "%lld permits are held", (long long)sum);
}

static void open_permits(void)
{
	for (int i = 0; i < ve.clients; i++) {
		holds[i] = 0;
		handles[i][0] = ve_open_permits(i, CAPACITY, VE_LEASE_MS, false);
		handles[i][1] = ve_open_permits(i, CAPACITY, VE_LEASE_MS, true);
	}
	ve.also = count_permits;
}

static const struct lk__hold *permits_of(int i)
{
	return holds[i] ? lk__core_hold(handles[i][0]->name, holds[i]) : NULL;
}

/* What a call has come to. */
static void note_permits(int i)
{
	if (calls[i] && calls[i]->done && calls[i]->acquires && !calls[i]->why.err) {
		holds[i] = calls[i]->fence;
		grants++;
	}
	if (calls[i] && calls[i]->done)
		calls[i] = NULL;
	if (!permits_of(i))
		holds[i] = 0;
}

static void use_permits(int i)
{
	const struct lk__hold *hold = permits_of(i);

	if (hold && !hold->lost && hold->count > 1 && below(3) == 0)
		calls[i] = ve_release_permits(i, handles[i][0], holds[i], 1);
	else if (hold && !hold->lost && below(4) == 0)
		calls[i] = ve_extend_permits(i, handles[i][0], holds[i], 1000 + below(20000));
	else if (hold)
		calls[i] = ve_release_permits(i, handles[i][0], holds[i], 0);
	else
		calls[i] = ve_acquire_permits(i, handles[i][below(4) == 0], 1 + below(CAPACITY),
		                              below(5) == 0);
}

/* ---- What happens ---- */

static void client_does(int i)
{
	if (ve.client[i].is_stopped || ve.client[i].op_count > VE_OPS - 4)
		return;
	if (calls[i] && !calls[i]->done) {
		if (below(4) == 0)
			ve_give_up(i, calls[i], LK_ETIMEDOUT);
		return;
	}
	if (of_permits) {
		note_permits(i);
		use_permits(i);
		return;
	}
	calls[i] = NULL;
	if (ve_state(i) == LK_STATE_HELD && below(4) == 0)
		calls[i] = ve_extend(i, 1000 + below(20000));
	else if (ve_state(i) != LK_STATE_NONE)
		calls[i] = ve_release(i);
	else
		calls[i] = below(5) ? ve_acquire(i) : ve_try(i);
}

static void network_does(int members)
{
	static const enum em_fault faults[] = {EM_LOSE_ANSWER,   EM_CUT_BEFORE, EM_CUT_AFTER,
	                                       EM_TIME_OUT_DONE, EM_TOO_MANY,   EM_CHANGED};
	int i = (int)below((unsigned)ve.clients), member = (int)below((unsigned)members);

	switch (below(10)) {
	case 0:
		ve_cut(i);
		break;
	case 1:
	case 2:
	case 3:
		if (!ve.client[i].is_stopped)
			ve_join(i, member);
		break;
	case 4:
		em_elect(ve.model, member);
		break;
	case 5:
		em_freeze(ve.model, member, below(3) == 0);
		break;
	case 6:
		em_cut(ve.model, member, below(3) == 0);
		break;
	case 7:
		em_lag(ve.model, member, below(3) == 0);
		break;
	case 8:
		ve.client[i].is_stopped = below(3) == 0;
		break;
	default:
		em_fault(ve.model, faults[below(sizeof(faults) / sizeof(*faults))], NULL,
		         (int)below(3));
		break;
	}
}

static void mend(int members)
{
	for (int i = 0; i < members; i++) {
		em_freeze(ve.model, i, false);
		em_cut(ve.model, i, false);
		em_lag(ve.model, i, false);
	}
	ve_pass(5000);
	if (em_leader(ve.model) < 0)
		em_elect(ve.model, 0);
	for (int i = 0; i < ve.clients; i++)
		ve.client[i].is_stopped = false;
	for (int i = 0; i < ve.clients; i++)
		ve_join(i, i % members);
	ve_pass(1000);
}

/* Faults that waited may still cut connections. */
static void join_those_without(void)
{
	for (int i = 0; i < ve.clients; i++)
		if (!ve.client[i].connection)
			ve_join(i, 0);
}

static bool has_something(int i)
{
	if (of_permits)
		note_permits(i);
	return of_permits ? permits_of(i) != NULL : ve_state(i) != LK_STATE_NONE;
}

static bool is_at_rest(void)
{
	for (int i = 0; i < ve.clients; i++)
		if (has_something(i) || (calls[i] && !calls[i]->done))
			return false;
	return true;
}

static struct lk__op *release(int i)
{
	return of_permits ? ve_release_permits(i, handles[i][0], holds[i], 0) : ve_release(i);
}

/* How many holds there were before the mending. */
static int walk(uint64_t seed, int clients, int members)
{
	const struct em_setup setup = {.members = members};
	int count;

	state = seed;
	ve_start(&setup, clients);
	for (int i = 0; i < clients; i++)
		calls[i] = NULL;
	grants = 0;
	if (of_permits)
		open_permits();
	for (int step = 0; step < STEPS; step++) {
		if (below(3))
			client_does((int)below((unsigned)clients));
		else
			network_does(members);
		ve_pass(below(4) ? below(50) : below(3000));
	}
	count = of_permits ? (int)grants : ve.holds;
	mend(members);
	for (int i = 0; i < 300 && !is_at_rest(); i++) {
		join_those_without();
		for (int j = 0; j < clients; j++)
			if ((!calls[j] || calls[j]->done) && has_something(j))
				calls[j] = release(j);
		ve_pass(1000);
	}
	ck_assert_msg(is_at_rest(), "somebody waits for ever");
	for (int i = 0; i < 40; i++) {
		join_those_without();
		ve_pass(1000);
	}
	ve_end();
	return count;
}

static void walks(int clients, int members)
{
	int all = 0;

	for (int i = 0; i < WALKS; i++) {
		uint64_t seed = test_seed() + (uint64_t)i;
		all += walk(seed, clients, members);
	}
	printf("%d holds in %d walks\n", all, WALKS);
	ck_assert_int_gt(all, WALKS);
}

TEST_LIMIT(two_clients_of_one_member, 120)
{
	walks(2, 1);
}

TEST_LIMIT(three_clients_of_three_members, 120)
{
	walks(3, 3);
}

TEST_LIMIT(six_clients_of_five_members, 120)
{
	walks(6, 5);
}

TEST_LIMIT(permits_of_three_clients_of_one_member, 120)
{
	of_permits = true;
	walks(3, 1);
}

TEST_LIMIT(permits_of_six_clients_of_three_members, 120)
{
	of_permits = true;
	walks(6, 3);
}
