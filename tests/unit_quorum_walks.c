/* SPDX-License-Identifier: MIT
 * Random walks of clients on a quorum: every step of the network is drawn, links are lost, requests
 * come late, servers restart empty, clients stop, clocks differ.  At each step one client at most
 * has a valid hold, and fences grow; at the end everyone is served, and nothing is left. */
#include "harness/random_walk.h"
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#define STEPS 20000

struct walk {
	uint64_t random;
	struct lk__op *op[VQ_CLIENTS]; /* the call of each client, NULL = none */
	int down;                      /* servers that are down */
	int64_t young_until_ns;        /* no further server restarts empty before */
	int calls, faults;
};

static uint32_t draw(struct walk *walk, uint32_t below)
{
	return random_below(&walk->random, below);
}

/* A client without a call acquires, tries, releases or extends. */
static void call(struct walk *walk, int client)
{
	bool holds = vq_hold(client) != NULL;
	struct lk__op *op;

	if (walk->op[client] && !walk->op[client]->done) {
		if (!draw(walk, 100) && walk->op[client]->awaits == LK__FOR_GRANT)
			vq_give_up(client, walk->op[client], LK_ECANCELED);
		return;
	}
	if (vq.client[client].op_count == VQ_OPS)
		return;
	if (!holds)
		op = draw(walk, 4) ? vq_acquire(client) : vq_try(client);
	else if (!draw(walk, 4))
		op = vq_extend(client, VQ_LEASE_MS + (int64_t)draw(walk, 2000));
	else
		op = vq_release(client);
	walk->op[client] = op;
	walk->calls++;
}

static void fault(struct walk *walk, int client, int server)
{
	struct vq_link *link = &vq.client[client].links[server];

	walk->faults++;
	switch (draw(walk, 8)) {
	case 0:
		if (link->message_count)
			link->message_count--;
		break;
	case 1:
		vq.client[client].is_stopped = true;
		break;
	case 2:
		if (walk->down < vq.servers / 2 && !vq.server[server].is_down &&
		    vq.now_ns > walk->young_until_ns) {
			vq_down(server);
			walk->down++;
		}
		break;
	case 3:
		if (!draw(walk, 4) && !vq.server[server].is_down && !walk->down &&
		    vq.now_ns > walk->young_until_ns) {
			vq_restart_empty(server);
			walk->young_until_ns = vq.now_ns + (VQ_LONGEST_MS + 2000) * VQ_MS;
		}
		break;
	default:
		if (link->is_up)
			vq_cut(client, server, draw(walk, 2));
	}
}

/* Links come back, stopped clients wake, servers start again. */
static void mend(struct walk *walk, int client, int server)
{
	vq_join(client, server);
	if (!draw(walk, 4))
		vq.client[client].is_stopped = false;
	if (!draw(walk, 4) && vq.server[server].is_down) {
		vq_up(server);
		walk->down--;
	}
}

static void tick(int client)
{
	if (!vq.client[client].is_stopped)
		lk__core_tick(&vq.client[client].core, vq.now_ns);
}

static void step(struct walk *walk)
{
	int client = (int)draw(walk, (uint32_t)vq.clients);
	int server = (int)draw(walk, (uint32_t)vq.servers);
	uint32_t kind = draw(walk, 100);

	if (kind < 25)
		vq_send(client, server);
	else if (kind < 50)
		vq_execute(client, server);
	else if (kind < 70)
		vq_reply(client, server);
	else if (kind < 82)
		vq_hear(client, server);
	else if (kind < 83)
		vq_run_late(server);
	else if (kind < 93)
		call(walk, client);
	else if (kind < 95)
		mend(walk, client, server);
	else if (kind < 98)
		vq_set_time(vq.now_ns + (int64_t)draw(walk, draw(walk, 5) ? 20 : 800) * VQ_MS);
	else if (!draw(walk, 3))
		fault(walk, client, server);
	for (int i = 0; i < vq.clients; i++)
		tick(i);
	vq_check();
}

/* No more faults: every call ends, each client gets the lock once more, and all is released. */
static void finish(struct walk *walk)
{
	for (int i = 0; i < vq.servers; i++) {
		while (vq_run_late(i))
			;
		if (vq.server[i].is_down)
			vq_up(i);
	}
	for (int i = 0; i < vq.clients; i++) {
		vq.client[i].is_stopped = false;
		for (int j = 0; j < vq.servers; j++)
			vq_join(i, j);
	}
	vq_settle();
	for (int round = 0; round < 2 * vq.clients + 4; round++) {
		for (int i = 0; i < vq.clients; i++)
			if (vq_hold(i))
				vq_release(i);
		vq_pass(VQ_LEASE_MS * 2 + LK__REASK_MAX_MS);
	}
	for (int i = 0; i < vq.clients; i++)
		if (walk->op[i])
			ck_assert_msg(walk->op[i]->done, "client %d waits for ever", i);
	vq_pass(LK__QUEUE_LIFE_MS + VQ_LONGEST_MS);
	for (int i = 0; i < vq.clients; i++) {
		struct lk__op *op = vq_acquire(i);
		vq_pass(VQ_LEASE_MS + 1000);
		vq_done(op, LK_OK);
		op = vq_release(i);
		vq_settle();
		vq_done(op, LK_OK);
	}
	vq_pass(LK__QUEUE_LIFE_MS + 2 * VQ_LEASE_MS);
	vq_end();
}

static void run(uint64_t seed, int servers, int clients)
{
	struct walk walk = {.random = seed};

	vq_start(servers, clients);
	for (int i = 0; i < servers; i++)
		vq_set_clock(i, (int64_t)draw(&walk, 4000000) - 2000000);
	for (int i = 0; i < STEPS; i++)
		step(&walk);
	finish(&walk);
}

static void run_many(int walks, int servers, int clients)
{
	int64_t holds = 0;

	for (int i = 0; i < walks; i++) {
		uint64_t seed = test_seed() + (uint64_t)i * 1000003;
		run(seed, servers, clients);
		holds += vq.holds;
	}
	ck_assert_int_gt(holds, 5 * walks);
}

TEST_LIMIT(walks_on_three_servers, 120)
{
	run_many(12, 3, 3);
}

TEST_LIMIT(walks_on_five_servers, 120)
{
	run_many(6, 5, 4);
}
