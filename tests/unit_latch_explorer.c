/* SPDX-License-Identifier: MIT
 * Latches under everything at once: clients whose threads wait and count down at random while the
 * latch is set, reset, removed and forgotten, over a network with delays and faults, in virtual
 * time and from one seed.  What must hold:
 *
 *   a step that was told to be counted was counted once, one that was told not to never, also later
 *   nobody is released unless the latch was open during the wait
 *   in the end nobody waits, no step is left, and no channel is subscribed
 *
 * A failure prints the seed of its run; LK_SEED set to it starts with that run, LK_TRACE=1 prints
 * its steps, LK_RUNS says how many runs. */
#include "latch_world.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLERS 4 /* a client */
#define CALLS 16  /* under way, a client */
#define LATE 64   /* requests that a network keeps */
#define TIMEOUT_NS (2000 * WORLD_MS)
#define ACTIVITY_NS (15000 * WORLD_MS)
#define ENDING_NS (40000 * WORLD_MS)
#define EVENTS_MAX 60000

enum fault { LINKS = 1, MESSAGES = 2, REFUSALS = 4, FLUSHES = 8 };

struct caller {
	struct lk__waiter *waiter; /* NULL: idle */
	bool steps, absent_is_open;
	int64_t began_ns, next_ns, until_ns;
	bool given_up;
};

struct actor {
	struct world_client *client;
	struct caller callers[CALLERS];
	struct world_call calls[CALLS];
	int call_count;
	bool silent; /* nothing comes through */
	int64_t link_ns, command_ns;
	struct lk__waiter *sender[WORLD_STEPS]; /* whose step had that number */
};

static struct world w;
static struct actor actors[WORLD_CLIENTS];
static struct {
	struct actor *actor;
	struct world_call call;
	int64_t at_ns;
} late[LATE];
static int late_count;
static uint64_t state, seed;
static unsigned faults;
static int64_t delay_max_ms, sick_until_ns, end_ns, set_ns, chaos_ns;
static bool ending, tracing;
static int released, counted, opened, doubted, put_off;

static void complain(const char *what)
{
	ck_abort_msg("seed %llu, faults %u, at %.6f: %s: LK_SEED=%llu LK_RUNS=1",
	             (unsigned long long)seed, faults, (double)w.now_ns / 1e9, what,
	             (unsigned long long)seed);
}

/* ---- Chance ------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
static int64_t draw(int64_t below)
{
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (int64_t)((z ^ (z >> 31)) % (uint64_t)below);
}

static bool percent(int percents)
{
	return draw(100) < percents;
}

static int64_t within_ns(int64_t ms)
{
	return draw(ms * 1000 + 1) * 1000;
}

static int delay_ms(struct world *world)
{
	(void)world;
	return (int)draw(percent(80) ? delay_max_ms / 10 + 1 : delay_max_ms + 1);
}

/* ---- Callers ------------------------------------------------------------------------------ */

static void plan(struct caller *caller)
{
	caller->waiter = NULL;
	caller->next_ns = ending ? LK__NEVER : w.now_ns + within_ns(percent(50) ? 50 : 1500);
}

/* The last handle goes, and another comes: what is not settled yet outlives it. */
static void reopen(struct actor *actor)
{
	for (int i = 0; i < CALLERS; i++)
		if (actor->callers[i].waiter)
			return;
	lk__place_close(&actor->client->core, actor->client->place);
	world_open(actor->client);
}

static void begin(struct actor *actor, struct caller *caller)
{
	if (percent(20))
		reopen(actor);
	if (w.waiter_count == WORLD_WAITERS || actor->client->core.step_number > WORLD_STEPS - 20) {
		caller->next_ns = LK__NEVER;
		return;
	}
	caller->began_ns = w.now_ns;
	caller->given_up = false;
	caller->steps = percent(55);
	caller->absent_is_open = percent(20);
	if (caller->steps) {
		caller->until_ns = w.now_ns + TIMEOUT_NS;
		caller->given_up = true;
		caller->waiter = world_step(actor->client, percent(70) ? 1 : 1 + draw(4),
		                            percent(40) ? 1 + (int)draw(WORLD_NAMES - 1) : 0);
	} else {
		bool only_try = percent(15);
		caller->until_ns = percent(10) ? LK__NEVER : w.now_ns + within_ns(6000);
		if (only_try)
			caller->until_ns = w.now_ns + TIMEOUT_NS;
		caller->given_up = only_try;
		caller->waiter = world_await(actor->client, only_try, caller->absent_is_open);
	}
}

/* Its time is over: first for what it wants, then for anything. */
static void give_up(struct actor *actor, struct caller *caller)
{
	if (caller->given_up) {
		lk__core_abandon(&actor->client->core, w.now_ns, caller->waiter);
		return;
	}
	lk__core_give_up(&actor->client->core, w.now_ns, caller->waiter,
	                 percent(70) ? LK_ETIMEDOUT : LK_ECANCELED);
	caller->given_up = true;
	caller->until_ns = w.now_ns + TIMEOUT_NS;
}

static void check_await(const struct caller *caller)
{
	if (caller->waiter->why.err)
		return;
	released++;
	if (w.open_ns < caller->began_ns &&
	    !(caller->absent_is_open && w.absent_ns >= caller->began_ns))
		complain("somebody was released though it was not open");
}

static int times_counted(const struct actor *actor, const struct lk__waiter *waiter)
{
	int times = 0;

	for (int i = 0; i < WORLD_STEPS; i++)
		times += actor->sender[i] == waiter ? actor->client->counted[i] : 0;
	return times;
}

static void check_step(const struct actor *actor, const struct lk__waiter *waiter)
{
	int times = times_counted(actor, waiter);

	if (waiter->why.err == LK_OK && times != (waiter->counted ? 1 : 0))
		complain("a step was not counted as its caller was told");
	else if (waiter->why.err == LK_EUNKNOWN && times > 1)
		complain("a step was counted twice");
	else if (waiter->why.err && waiter->why.err != LK_EUNKNOWN && times)
		complain("a step was counted though its caller was told that it was not");
}

static void settle(struct actor *actor)
{
	while (lk__core_next_done(&actor->client->core))
		;
	for (int i = 0; i < CALLERS; i++) {
		struct caller *caller = &actor->callers[i];
		if (!caller->waiter || !caller->waiter->done)
			continue;
		if (caller->steps) {
			check_step(actor, caller->waiter);
			counted += !caller->waiter->why.err && caller->waiter->counted;
			doubted += caller->waiter->why.err == LK_EUNKNOWN;
		} else {
			check_await(caller);
		}
		plan(caller);
	}
	if (actor->command_ns == LK__NEVER && actor->client->core.channels.line && !actor->silent)
		actor->command_ns = w.now_ns + delay_ms(&w) * WORLD_MS;
}

/* ---- The network -------------------------------------------------------------------------- */

static void send(struct actor *actor)
{
	struct world_call call;

	while (actor->call_count < CALLS && world_take(actor->client, &call)) {
		call.at_ns = w.now_ns + delay_ms(&w) * WORLD_MS;
		if (actor->call_count && call.at_ns < actor->calls[actor->call_count - 1].at_ns)
			call.at_ns = actor->calls[actor->call_count - 1].at_ns;
		if (call.kind == LK__STEP && call.request->latch->steps->waiter)
			actor->sender[call.number] = call.request->latch->steps->waiter;
		actor->calls[actor->call_count++] = call;
	}
}

static void execute(struct actor *actor, struct world_call *call)
{
	if (w.now_ns < sick_until_ns) {
		call->answer = (struct lk__answer){
			.kind = LK__FAILED, .err = LK_ESERVER, .passes = true, .text = "LOADING"};
		call->executed = true;
	} else {
		world_execute(actor->client, call);
	}
	call->at_ns = w.now_ns + delay_ms(&w) * WORLD_MS;
}

static void answer(struct actor *actor)
{
	struct world_call call = actor->calls[0];

	actor->call_count--;
	memmove(&actor->calls[0], &actor->calls[1],
	        sizeof(actor->calls[0]) * (size_t)actor->call_count);
	if ((faults & REFUSALS) && percent(2) && call.answer.kind == LK__FAILED)
		lk__core_resend(&actor->client->core, call.request);
	else
		world_answer(actor->client, &call);
}

/* Of what was sent and not executed the store gets some now, some later, some never. */
static void link_down(struct actor *actor)
{
	for (int i = 0; i < actor->call_count; i++) {
		struct world_call *call = &actor->calls[i];
		if (call->executed || percent(33))
			continue;
		if (percent(50)) {
			world_execute(actor->client, call);
		} else if (late_count < LATE) {
			late[late_count].actor = actor;
			late[late_count].call = *call;
			late[late_count++].at_ns = w.now_ns + within_ns(4000);
		}
	}
	actor->call_count = 0;
	actor->silent = false;
	actor->command_ns = LK__NEVER;
	world_link_down(actor->client);
	actor->link_ns = w.now_ns + within_ns(percent(70) ? 50 : 3000);
}

static void change_link(struct actor *actor)
{
	if (actor->client->core.linked) {
		link_down(actor);
		return;
	}
	actor->link_ns = LK__NEVER;
	world_link_up(actor->client);
}

static void change_latch(void)
{
	set_ns = w.now_ns + within_ns(percent(50) ? 300 : 3000);
	if (percent(15))
		world_remove(&w);
	else
		world_set(&w, percent(5) ? 0 : 1 + draw(12), percent(25));
}

static void chaos(void)
{
	struct actor *actor = &actors[draw(w.client_count)];
	unsigned fault = 1u << draw(4) & faults;

	chaos_ns = w.now_ns + within_ns(600);
	if (fault == LINKS && actor->client->core.linked && actor->link_ns == LK__NEVER) {
		if (percent(60)) {
			link_down(actor);
		} else {
			actor->silent = true;
			actor->link_ns = w.now_ns + within_ns(2000);
		}
	} else if (fault == MESSAGES && actor->client->inbox_count &&
	           actor->client->inbox[actor->client->inbox_count - 1].kind >= WORLD_OPENED) {
		actor->client->inbox_count--;
	} else if (fault == REFUSALS) {
		sick_until_ns = w.now_ns + within_ns(400);
	} else if (fault == FLUSHES && percent(20)) {
		world_flush(&w);
	}
}

/* ---- A run -------------------------------------------------------------------------------- */

struct next {
	enum {
		NOTHING,
		EXECUTE,
		ANSWER,
		HEAR,
		TICK,
		LINK,
		COMMAND,
		CALL,
		GIVE_UP,
		SET,
		CHAOS
	} what;
	int64_t at_ns;
	int ties;
	struct actor *actor;
	int index;
};

static void consider(struct next *next, int what, int64_t at_ns, struct actor *actor, int index)
{
	if (at_ns == LK__NEVER)
		return;
	if (at_ns < w.now_ns)
		at_ns = w.now_ns;
	if (next->what != NOTHING && at_ns > next->at_ns)
		return;
	if (next->what != NOTHING && at_ns == next->at_ns) {
		if (draw(++next->ties))
			return;
	} else {
		next->ties = 1;
	}
	next->what = what;
	next->at_ns = at_ns;
	next->actor = actor;
	next->index = index;
}

static void consider_actor(struct next *next, struct actor *actor)
{
	struct world_client *client = actor->client;
	int i = 0;

	if (!actor->silent) {
		while (i < actor->call_count && actor->calls[i].executed)
			i++;
		if (i < actor->call_count)
			consider(next, EXECUTE, actor->calls[i].at_ns, actor, i);
		if (actor->call_count && actor->calls[0].executed)
			consider(next, ANSWER, actor->calls[0].at_ns, actor, 0);
		if (client->inbox_count)
			consider(next, HEAR, client->inbox[0].at_ns, actor, 0);
		consider(next, COMMAND, actor->command_ns, actor, 0);
	}
	consider(next, TICK, lk__core_due(&client->core), actor, 0);
	consider(next, LINK, actor->link_ns, actor, 0);
	for (i = 0; i < CALLERS; i++) {
		struct caller *caller = &actor->callers[i];
		if (caller->waiter)
			consider(next, GIVE_UP, caller->until_ns, actor, i);
		else
			consider(next, CALL, caller->next_ns, actor, i);
	}
}

static void happen(const struct next *next)
{
	struct actor *actor = next->actor;

	switch (next->what) {
	case EXECUTE:
		if (actor)
			execute(actor, &actor->calls[next->index]);
		else
			world_execute(late[next->index].actor->client, &late[next->index].call);
		if (!actor)
			late[next->index] = late[--late_count];
		break;
	case ANSWER:
		answer(actor);
		break;
	case HEAR:
		world_hear(actor->client);
		break;
	case TICK:
		world_tick(actor->client);
		break;
	case LINK:
		change_link(actor);
		break;
	case COMMAND:
		w.busy = w.now_ns < sick_until_ns;
		world_command(actor->client);
		put_off += w.busy;
		actor->command_ns = LK__NEVER;
		break;
	case CALL:
		begin(actor, &actor->callers[next->index]);
		break;
	case GIVE_UP:
		give_up(actor, &actor->callers[next->index]);
		break;
	case SET:
		change_latch();
		break;
	default:
		chaos();
	}
}

static void trace(const struct next *next)
{
	static const char *const words[] = {"nothing", "execute", "answer",  "hear", "tick", "link",
	                                    "command", "call",    "give up", "set",  "chaos"};

	printf("%.6f %s", (double)w.now_ns / 1e9, words[next->what]);
	if (next->actor)
		printf(" client %d %d", next->actor->client->id, next->index);
	printf(": generation %llu count %lld opened %llu\n", (unsigned long long)w.generation,
	       (long long)w.count, (unsigned long long)w.opened);
}

static bool step(int64_t until_ns)
{
	struct next next = {.what = NOTHING};

	for (int i = 0; i < w.client_count; i++)
		consider_actor(&next, &actors[i]);
	for (int i = 0; i < late_count; i++)
		consider(&next, EXECUTE, late[i].at_ns, NULL, i);
	if (!ending) {
		consider(&next, SET, set_ns, NULL, 0);
		if (faults)
			consider(&next, CHAOS, chaos_ns, NULL, 0);
	}
	if (next.what == NOTHING || next.at_ns > until_ns) {
		world_until(&w, until_ns);
		return false;
	}
	world_until(&w, next.at_ns);
	happen(&next);
	if (tracing)
		trace(&next);
	for (int i = 0; i < w.client_count; i++) {
		settle(&actors[i]);
		send(&actors[i]);
	}
	if (w.generation && w.count != (w.initial > w.sum ? w.initial - w.sum : 0))
		complain("the count is not what was set less what was counted");
	return true;
}

static void check_end(void)
{
	for (int i = 0; i < w.client_count; i++) {
		struct actor *actor = &actors[i];
		for (int j = 0; j < CALLERS; j++)
			if (actor->callers[j].waiter)
				complain("somebody still waits");
		if (lk__core_busy(&actor->client->core))
			complain("something is left");
		if (actor->client->subscribed)
			complain("a channel is still subscribed");
		for (int j = 0; j < WORLD_STEPS; j++)
			if (actor->sender[j] && actor->sender[j]->done)
				check_step(actor, actor->sender[j]);
	}
}

static void run(uint64_t with_seed, unsigned with_faults)
{
	int events = 0;

	state = seed = with_seed;
	faults = with_faults;
	ending = false;
	late_count = 0;
	sick_until_ns = 0;
	memset(actors, 0, sizeof(actors));
	world_init(&w, 2 + (int)draw(WORLD_CLIENTS - 1));
	w.delay_ms = delay_ms;
	w.open_ttl_ms = percent(50) ? 1000 : 20000;
	delay_max_ms = faults && percent(30) ? 700 : 20;
	set_ns = chaos_ns = w.now_ns;
	end_ns = w.now_ns + ACTIVITY_NS;
	for (int i = 0; i < w.client_count; i++) {
		actors[i].client = &w.clients[i];
		actors[i].link_ns = actors[i].command_ns = LK__NEVER;
		for (int j = 0; j < CALLERS; j++)
			plan(&actors[i].callers[j]);
	}
	while (step(end_ns) && events++ < EVENTS_MAX)
		;
	opened += w.published;
	ending = true;
	sick_until_ns = 0;
	while (step(w.now_ns + 5000 * WORLD_MS) && events++ < EVENTS_MAX)
		;
	world_set(&w, 0, true); /* for those who wait without end */
	w.ends_ns = LK__NEVER;
	end_ns = w.now_ns + ENDING_NS;
	while (step(end_ns))
		if (events++ > 2 * EVENTS_MAX)
			complain("it has no end");
	if (!w.full)
		check_end();
	world_fini(&w);
}

static void explore(unsigned with_faults)
{
	const char *text = getenv("LK_RUNS");
	int runs = text ? atoi(text) : 60;

	tracing = getenv("LK_TRACE") != NULL;
	for (int i = 0; i < runs; i++)
		run(test_seed() + (unsigned)i, with_faults);
	if (text)
		printf("faults %u: %d runs, %d released, %d counted, %d opened, %d in doubt\n",
		       with_faults, runs, released, counted, opened, doubted);
	if (runs < 20)
		return;
	/* Else they have explored nothing. */
	ck_assert_int_gt(released, 10 * runs);
	ck_assert_int_gt(counted, 10 * runs);
	ck_assert_int_gt(opened, runs);
	if (with_faults & LINKS)
		ck_assert_int_gt(doubted, 0);
	if (with_faults & REFUSALS)
		ck_assert_int_gt(put_off, 0);
}

TEST_LIMIT(delays_alone_break_nothing, 300)
{
	explore(0);
}

TEST_LIMIT(broken_links_break_nothing, 300)
{
	explore(LINKS);
}

TEST_LIMIT(lost_messages_break_nothing, 300)
{
	explore(MESSAGES);
}

TEST_LIMIT(refusals_and_flushes_break_nothing, 300)
{
	explore(REFUSALS | FLUSHES);
}

TEST_LIMIT(everything_at_once_breaks_nothing, 300)
{
	explore(LINKS | MESSAGES | REFUSALS | FLUSHES);
}
