/* SPDX-License-Identifier: MIT
 * The plan of a seed: duration, clients, load, and times of faults.  Each seed has only some kinds
 * of faults, and its own load, so that seeds cover different combinations. */
#include "sim_plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- Chance ------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

struct sim_random sim_random_of(uint64_t seed, uint64_t purpose, uint64_t index)
{
	return (struct sim_random){mix(mix(seed + 1) ^ mix(purpose * 1000003 + index + 77))};
}

uint64_t sim_draw(struct sim_random *random, uint64_t below)
{
	return mix(random->state += UINT64_C(0x9e3779b97f4a7c15)) % below;
}

bool sim_percent(struct sim_random *random, unsigned percents)
{
	return sim_draw(random, 100) < percents;
}

int64_t sim_within(struct sim_random *random, int64_t ns)
{
	return (int64_t)sim_draw(random, (uint64_t)(ns / 1000) + 1) * 1000;
}

static int64_t pick(struct sim_random *random, const int64_t choices[4])
{
	return choices[sim_draw(random, 4)];
}

/* ---- Faults ------------------------------------------------------------------------------- */

/* The rate of a kind of fault in the plans that have it, and its longest duration. */
static const struct {
	const char *name;
	int weight;
	int64_t ms;
} kinds[SIM_FAULT_KINDS] = {
	[SIM_CUT] = {"cut", 12, 3000},
	[SIM_STALL] = {"stall", 12, 6000},
	[SIM_CUT_OFF] = {"cut-off", 6, 15000},
	[SIM_CRASH] = {"crash", 8, 5000},
	[SIM_STOP] = {"stop", 12, 15000},
	[SIM_LOSE] = {"lose", 8, 0},
	[SIM_RESTART] = {"restart", 3, 2000},
	[SIM_EMPTY] = {"empty", 2, 1000},
	[SIM_OLD] = {"old", 2, 20000},
	[SIM_FAILOVER] = {"failover", 3, 500},
	[SIM_SNAPSHOT] = {"snapshot", 1, 20000},
	[SIM_EVICT] = {"evict", 6, 0},
	[SIM_FLUSH_ALL] = {"flush", 2, 0},
	[SIM_FORGET] = {"forget", 4, 0},
	[SIM_REFUSE] = {"refuse", 5, 1500},
	[SIM_CLOCK_ON] = {"clock-on", 2, 20000},
	[SIM_CLOCK_BACK] = {"clock-back", 3, 8000},
	[SIM_BREAK] = {"break", 6, 0},
	[SIM_RESIZE] = {"resize", 5, 0},
	[SIM_RESET] = {"reset", 5, 0},
	[SIM_LEAVE] = {"leave", 4, 2000},
	/* For a failover, how far the replica lags. */
	[SIM_SWITCH] = {"switch", 4, 500},
	[SIM_MASTER_KILL] = {"master-kill", 2, 500},
	[SIM_MASTER_STOP] = {"master-stop", 2, 500},
	[SIM_MUTE] = {"mute", 6, 20000},
	[SIM_LIE] = {"lie", 6, 8000},
	[SIM_BLIND] = {"blind", 6, 15000},
	[SIM_SLOT_MOVE] = {"slot-move", 8, 15000},
	[SIM_TAKEOVER] = {"takeover", 3, 0},
	[SIM_NODE_KILL] = {"node-kill", 2, 500},
	[SIM_NODE_STOP] = {"node-stop", 2, 500},
	[SIM_DEAF] = {"deaf", 6, 6000},
	[SIM_HALT] = {"halt", 4, 10000},
	[SIM_SLOW] = {"slow", 4, 10000},
	[SIM_APART] = {"apart", 6, 10000},
	[SIM_ELECT] = {"elect", 4, 0},
	[SIM_FREEZE] = {"freeze", 4, 12000},
	[SIM_COMPACT] = {"compact", 2, 0},
	[SIM_REVOKE] = {"revoke", 2, 0},
};

const char *sim_fault_name(enum sim_fault_kind kind)
{
	return kinds[kind].name;
}

/* The server does not have the memory, or the process, that it had. */
static bool hurts_memory(enum sim_fault_kind kind)
{
	return kind == SIM_RESTART || kind == SIM_EMPTY || kind == SIM_OLD ||
	       kind == SIM_SNAPSHOT || kind == SIM_FAILOVER || kind == SIM_FLUSH_ALL ||
	       kind == SIM_SWITCH || kind == SIM_MASTER_KILL || kind == SIM_MASTER_STOP ||
	       kind == SIM_TAKEOVER || kind == SIM_NODE_KILL || kind == SIM_NODE_STOP;
}

/* Was the last such fault so recent that its grace may still last? */
static bool is_in_grace(const struct sim_plan *plan, int64_t at_ns)
{
	for (int i = plan->fault_count - 1; i >= 0; i--)
		if (hurts_memory(plan->faults[i].kind))
			return at_ns < plan->faults[i].at_ns + 2 * plan->grace_ms * SIM_MS;
	return false;
}

static void plan_fault(struct sim_plan *plan, struct sim_random *random, uint64_t mix_of_kinds,
                       int64_t at_ns)
{
	struct sim_fault *fault = &plan->faults[plan->fault_count];
	int sum = 0, kind = 0, drawn;

	for (int i = 0; i < SIM_FAULT_KINDS; i++) /* of which the mix has some */
		sum += mix_of_kinds >> i & 1 ? kinds[i].weight : 0;
	drawn = (int)sim_draw(random, (uint64_t)sum);
	for (;; kind++) {
		if (!(mix_of_kinds >> kind & 1))
			continue;
		drawn -= kinds[kind].weight;
		if (drawn < 0)
			break;
	}
	fault->at_ns = at_ns;
	fault->kind = (enum sim_fault_kind)kind;
	fault->target = (int)sim_draw(random, (uint64_t)plan->clients);
	/* Mostly short, sometimes up to the maximum. */
	fault->length_ns =
		sim_within(random, kinds[kind].ms * SIM_MS / (sim_percent(random, 50) ? 20 : 1));
	fault->chance = sim_draw(random, UINT64_MAX);
	/* One grace after the other would leave no time for grants. */
	if (hurts_memory(fault->kind) && is_in_grace(plan, at_ns) && fault->chance % 100 < 90)
		fault->kind = SIM_CUT;
	plan->fault_count++;
}

static void plan_faults(struct sim_plan *plan, struct sim_random *random)
{
	static const int64_t gaps[4] = {SIM_S, 3 * SIM_S, 8 * SIM_S, 15 * SIM_S};
	uint32_t mix_of_kinds = 0;
	int64_t gap_ns = pick(random, gaps), at_ns;
	unsigned share = 20 + (unsigned)sim_draw(random, 60);

	for (int i = 0; i < SIM_PLAIN_KINDS; i++)
		mix_of_kinds |= (uint32_t)sim_percent(random, share) << i;
	if (!mix_of_kinds)
		mix_of_kinds = 1u << SIM_CUT;
	at_ns = SIM_S + sim_within(random, 2 * gap_ns);
	while (at_ns < plan->length_ns && plan->fault_count < SIM_FAULTS) {
		plan_fault(plan, random, mix_of_kinds, at_ns);
		at_ns += sim_within(random, 2 * gap_ns);
	}
}

/* ---- Sentinels ---------------------------------------------------------------------------- */

static int earlier(const void *one, const void *other)
{
	int64_t a = ((const struct sim_fault *)one)->at_ns;
	int64_t b = ((const struct sim_fault *)other)->at_ns;

	return a < b ? -1 : a > b;
}

/* In some plans replicas must confirm each grant, and stop now and then.  The stream is its own, so
 * that all other plans stay as they are. */
static void plan_replicas(struct sim_plan *plan)
{
	static const int64_t gaps[4] = {4 * SIM_S, 8 * SIM_S, 15 * SIM_S, 30 * SIM_S};
	struct sim_random random = sim_random_of(plan->seed, 10, 0);
	int64_t gap_ns = pick(&random, gaps), at_ns = SIM_S + sim_within(&random, 2 * gap_ns);

	if (!sim_percent(&random, 40))
		return;
	plan->replicas = 1 + (uint32_t)sim_draw(&random, SIM_PLACES - 1);
	for (; at_ns < plan->length_ns && plan->fault_count < SIM_FAULTS;
	     at_ns += sim_within(&random, 2 * gap_ns))
		plan_fault(plan, &random, 1u << SIM_DEAF, at_ns);
}

void sim_plan_sentinels(struct sim_plan *plan)
{
	static const int64_t gaps[4] = {2 * SIM_S, 4 * SIM_S, 8 * SIM_S, 12 * SIM_S};
	struct sim_random random = sim_random_of(plan->seed, 8, 0);
	int64_t gap_ns = pick(&random, gaps), at_ns = SIM_S + sim_within(&random, 20 * SIM_S);
	uint64_t failovers = 7u << SIM_SWITCH, wrong = 7u << SIM_MUTE;
	unsigned share = 10 + (unsigned)sim_draw(&random, 40);

	if (plan->sentinels || plan->cluster || plan->quorum || !plan->fault_count)
		return;
	plan->sentinels = true;
	plan->grace_ms = pick(&random, (const int64_t[]){13000, 13000, 13000, 8000});
	/* A plain failover leaves the address as it is: here it is a killed master. */
	for (int i = 0; i < plan->fault_count; i++)
		if (plan->faults[i].kind == SIM_FAILOVER)
			plan->faults[i].kind = SIM_MASTER_KILL;
	/* Leave places: each loss of memory has a grace. */
	for (; at_ns < plan->length_ns && plan->fault_count < SIM_FAULTS;
	     at_ns += sim_within(&random, 2 * gap_ns))
		plan_fault(plan, &random, sim_percent(&random, share) ? failovers : wrong, at_ns);
	plan_replicas(plan);
	qsort(plan->faults, (size_t)plan->fault_count, sizeof(*plan->faults), earlier);
}

/* ---- A Cluster ---------------------------------------------------------------------------- */

static bool is_of_cluster(enum sim_fault_kind kind)
{
	return kind < SIM_PLAIN_KINDS && !hurts_memory(kind) && kind != SIM_EVICT &&
	       kind != SIM_CLOCK_ON && kind != SIM_CLOCK_BACK;
}

void sim_plan_cluster(struct sim_plan *plan)
{
	static const int64_t gaps[4] = {2 * SIM_S, 4 * SIM_S, 8 * SIM_S, 12 * SIM_S};
	struct sim_random random = sim_random_of(plan->seed, 13, 0);
	int64_t gap_ns = pick(&random, gaps), at_ns = SIM_S + sim_within(&random, 10 * SIM_S);
	unsigned share = 5 + (unsigned)sim_draw(&random, 25);

	if (plan->cluster || plan->quorum || !plan->fault_count)
		return;
	plan->cluster = true;
	plan->sentinels = false;
	plan->replicas = 0;
	plan->graceless = 0;
	for (int i = 0; i < plan->fault_count; i++)
		if (!is_of_cluster(plan->faults[i].kind)) {
			plan->faults[i].kind = SIM_SLOT_MOVE;
			plan->faults[i].length_ns %= 3 * SIM_S;
		}
	for (; at_ns < plan->length_ns && plan->fault_count < SIM_FAULTS;
	     at_ns += sim_within(&random, 2 * gap_ns))
		plan_fault(plan, &random,
		           sim_percent(&random, share) ? 7u << SIM_TAKEOVER : 1u << SIM_SLOT_MOVE,
		           at_ns);
	qsort(plan->faults, (size_t)plan->fault_count, sizeof(*plan->faults), earlier);
}

/* ---- A quorum ----------------------------------------------------------------------------- */

static bool is_of_quorum(enum sim_fault_kind kind, bool has_clocks)
{
	if (kind == SIM_CLOCK_ON || kind == SIM_CLOCK_BACK)
		return has_clocks;
	return kind < SIM_PLAIN_KINDS && kind != SIM_SNAPSHOT && kind != SIM_FAILOVER &&
	       kind != SIM_EVICT && kind != SIM_RESIZE && kind != SIM_RESET;
}

void sim_plan_quorum(struct sim_plan *plan)
{
	static const int64_t gaps[4] = {3 * SIM_S, 6 * SIM_S, 12 * SIM_S, 20 * SIM_S};
	struct sim_random random = sim_random_of(plan->seed, 14, 0);
	int64_t gap_ns = pick(&random, gaps), at_ns = SIM_S + sim_within(&random, 10 * SIM_S);
	bool has_clocks = sim_percent(&random, 30), is_calm = !plan->fault_count;

	if (plan->quorum)
		return;
	plan->quorum = plan->seed / 8 % 2 ? 5 : 3;
	plan->sentinels = plan->cluster = false;
	plan->replicas = plan->graceless = 0;
	plan->names &= (1u << SIM_LOCKS) - 1;
	for (int i = 0; i < plan->fault_count; i++)
		if (!is_of_quorum(plan->faults[i].kind, has_clocks))
			plan->faults[i].kind = SIM_HALT + plan->faults[i].chance / 7 % 3;
	for (; !is_calm && at_ns < plan->length_ns && plan->fault_count < SIM_FAULTS;
	     at_ns += sim_within(&random, 2 * gap_ns))
		plan_fault(plan, &random,
		           UINT64_C(7) << SIM_HALT | 1u << SIM_RESTART | 1u << SIM_EMPTY |
		                   1u << SIM_OLD | 1u << SIM_FLUSH_ALL,
		           at_ns);
	qsort(plan->faults, (size_t)plan->fault_count, sizeof(*plan->faults), earlier);
}

/* ---- etcd --------------------------------------------------------------------------------- */

static bool is_of_etcd(enum sim_fault_kind kind)
{
	return kind == SIM_CUT || kind == SIM_STALL || kind == SIM_CUT_OFF || kind == SIM_CRASH ||
	       kind == SIM_STOP || kind == SIM_RESTART || kind == SIM_REFUSE || kind == SIM_BREAK ||
	       kind == SIM_RESIZE || kind == SIM_RESET || kind == SIM_LEAVE;
}

void sim_plan_etcd(struct sim_plan *plan)
{
	static const enum sim_fault_kind others[] = {SIM_HALT,   SIM_SLOW,    SIM_APART, SIM_ELECT,
	                                             SIM_FREEZE, SIM_COMPACT, SIM_REVOKE};
	static const int64_t gaps[4] = {4 * SIM_S, 8 * SIM_S, 15 * SIM_S, 25 * SIM_S};
	struct sim_random random = sim_random_of(plan->seed, 17, 0);
	int64_t gap_ns = pick(&random, gaps), at_ns = SIM_S + sim_within(&random, 10 * SIM_S);
	bool is_calm = !plan->fault_count;

	if (plan->etcd)
		return;
	plan->etcd = plan->seed / 8 % 2 ? 5 : 3;
	plan->sentinels = plan->cluster = false;
	plan->quorum = 0;
	plan->replicas = plan->graceless = 0;
	plan->names &= ~(1u << SIM_RATE);
	for (int i = 0; i < plan->fault_count; i++)
		if (!is_of_etcd(plan->faults[i].kind))
			plan->faults[i].kind = others[plan->faults[i].chance / 7 % 7];
	for (; !is_calm && at_ns < plan->length_ns && plan->fault_count < SIM_FAULTS;
	     at_ns += sim_within(&random, 2 * gap_ns))
		plan_fault(plan, &random,
		           UINT64_C(7) << SIM_HALT | UINT64_C(3) << SIM_ELECT | 1u << SIM_RESTART,
		           at_ns);
	qsort(plan->faults, (size_t)plan->fault_count, sizeof(*plan->faults), earlier);
}

/* ---- The plan ----------------------------------------------------------------------------- */

/* All want one lock, all the time, and each process has as many threads as possible: then a lock is
 * handed over inside a process while other clients wait. */
static void plan_crowd(struct sim_plan *plan, struct sim_random *random)
{
	plan->crowd = true;
	plan->names = 1u << sim_draw(random, 3);
	plan->threads = SIM_THREADS;
	plan->idle_ns = SIM_MS / 10;
	plan->hold_ns = 2 * SIM_MS;
	plan->delay_ns = sim_percent(random, 50) ? SIM_MS : 2 * SIM_MS;
	plan->release_percent = 95;
}

/* Most plans have the library's default.  A few have a client without a grace: those say nothing
 * about exclusion after a loss of memory. */
static void plan_grace(struct sim_plan *plan)
{
	struct sim_random random = sim_random_of(plan->seed, 7, 0);

	plan->grace_ms = pick(&random, (const int64_t[]){10000, 10000, 10000, 3000});
	if (sim_percent(&random, 8))
		plan->graceless = 1 + (uint32_t)sim_draw(&random, (1u << SIM_CLIENTS) - 1);
}

void sim_plan_make(struct sim_plan *plan, uint64_t seed, int64_t length_ns)
{
	struct sim_random random = sim_random_of(seed, 1, 0);

	memset(plan, 0, sizeof(*plan));
	plan->seed = seed;
	plan->length_ns = length_ns;
	plan_grace(plan);
	plan->clients = 12 + (int)sim_draw(&random, SIM_CLIENTS - 11);
	plan->delay_ns =
		pick(&random, (const int64_t[]){SIM_MS, 2 * SIM_MS, 10 * SIM_MS, 80 * SIM_MS});
	plan->idle_ns = pick(
		&random, (const int64_t[]){50 * SIM_MS, 200 * SIM_MS, 600 * SIM_MS, 1500 * SIM_MS});
	plan->hold_ns = pick(&random,
	                     (const int64_t[]){2 * SIM_MS, 15 * SIM_MS, 60 * SIM_MS, 300 * SIM_MS});
	plan->release_percent = sim_percent(&random, 70) ? 75 : 40;
	plan->forget_percent = sim_percent(&random, 50) ? 80 : 20;
	plan->fixed_percent = sim_percent(&random, 50) ? 50 : 15;
	plan->capacity = (uint32_t)pick(&random, (const int64_t[]){2, 4, 7, 12});
	plan->threads = 2 + (int)sim_draw(&random, SIM_THREADS - 1);
	plan->names = (1u << SIM_NAMES) - 1;
	for (int i = 0; i < SIM_NAMES; i++)
		if (sim_percent(&random, 25))
			plan->names &= ~(1u << i);
	/* One lock and one pool at least: a rate alone grants little, and latches grant nothing. */
	if (!(plan->names & 7))
		plan->names |= 1u << sim_draw(&random, 3);
	if (!(plan->names & 0x18))
		plan->names |= 8u << sim_draw(&random, 2);
	if (seed % 8 == 4)
		plan_crowd(plan, &random);
	/* A calm plan, in which no failure is excused by a fault. */
	if (seed % 8)
		plan_faults(plan, &random);
	if (seed % 8 == 2)
		sim_plan_sentinels(plan);
	if (seed % 8 == 6)
		sim_plan_cluster(plan);
	if (seed % 8 == 7)
		sim_plan_quorum(plan);
	if (seed % 16 == 5)
		sim_plan_etcd(plan);
}

void sim_plan_text(const struct sim_plan *plan, char text[SIM_PLAN_TEXT])
{
	const char *comma = "";
	size_t len;

	len = (size_t)snprintf(text, SIM_PLAN_TEXT,
	                       "length=%lld,clients=%x,names=%x,keep=", (long long)plan->length_ns,
	                       plan->clients_out, plan->names_out);
	for (int i = 0; i < plan->fault_count && len + 16 < SIM_PLAN_TEXT; i++) {
		if (plan->faults[i].out)
			continue;
		len += (size_t)snprintf(text + len, SIM_PLAN_TEXT - len, "%s%d", comma, i);
		comma = "+";
	}
}

bool sim_plan_cut(struct sim_plan *plan, const char *text)
{
	long long length_ns;
	int used = 0;

	if (sscanf(text, "length=%lld,clients=%x,names=%x,keep=%n", &length_ns, &plan->clients_out,
	           &plan->names_out, &used) < 3 ||
	    !used)
		return false;
	plan->length_ns = length_ns;
	for (int i = 0; i < plan->fault_count; i++)
		plan->faults[i].out = true;
	for (text += used; *text;) {
		char *end;
		long index = strtol(text, &end, 10);
		if (end == text || index < 0 || index >= plan->fault_count)
			return false;
		plan->faults[index].out = false;
		text = *end ? end + 1 : end;
	}
	return true;
}

/* ---- Sums --------------------------------------------------------------------------------- */

#define CLIENTS_MIN 10
#define GRANTS_MIN 10 /* a second */
#define FAULTS_MIN 1  /* a minute */
/* With sentinels some clients are always between two servers, and over a quorum a grant takes
 * longer: so much less is enough. */
#define FOLLOWING_LESS 0.7

bool sim_tally_is_full(const struct sim_tally *tally)
{
	double granting =
		tally->seconds - tally->grace_seconds - FOLLOWING_LESS * tally->following_seconds;
	long long faults = 0;

	for (int i = 0; i < SIM_FAULT_KINDS; i++)
		faults += tally->faults[i];
	return tally->client_seconds >= CLIENTS_MIN * tally->seconds &&
	       (double)(tally->grants + tally->handed_over) >= GRANTS_MIN * granting &&
	       (double)faults >= FAULTS_MIN * tally->seconds / 60;
}

void sim_tally_add(struct sim_tally *sum, const struct sim_tally *tally)
{
	sum->seconds += tally->seconds;
	sum->client_seconds += tally->client_seconds;
	sum->grace_seconds += tally->grace_seconds;
	sum->following_seconds += tally->following_seconds;
	sum->steps += tally->steps;
	sum->scripts += tally->scripts;
	sum->grants += tally->grants;
	sum->forgot += tally->forgot;
	sum->handed_over += tally->handed_over;
	sum->waits += tally->waits;
	sum->losses += tally->losses;
	sum->openings += tally->openings;
	sum->counted += tally->counted;
	sum->released += tally->released;
	sum->unknown += tally->unknown;
	sum->reclaimed += tally->reclaimed;
	sum->cuts += tally->cuts;
	sum->stale += tally->stale;
	sum->stale_grants += tally->stale_grants;
	sum->uncovered += tally->uncovered;
	sum->stale_dual += tally->stale_dual;
	sum->moved += tally->moved;
	sum->asked += tally->asked;
	sum->divided += tally->divided;
	sum->counts += tally->counts;
	sum->short_counts += tally->short_counts;
	sum->unconfirmed += tally->unconfirmed;
	sum->kept += tally->kept;
	sum->fences_again += tally->fences_again;
	sum->late_openings += tally->late_openings;
	sum->leaves_refused += tally->leaves_refused;
	sum->requests += tally->requests;
	sum->legs += tally->legs;
	sum->yields += tally->yields;
	sum->early += tally->early;
	sum->overlaps += tally->overlaps;
	if (tally->longest_grant_ms > sum->longest_grant_ms)
		sum->longest_grant_ms = tally->longest_grant_ms;
	if (tally->longest_idle_ms > sum->longest_idle_ms)
		sum->longest_idle_ms = tally->longest_idle_ms;
	for (int i = 0; i < SIM_FAULT_KINDS; i++)
		sum->faults[i] += tally->faults[i];
}
