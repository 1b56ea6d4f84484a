/* SPDX-License-Identifier: MIT
 * Faults of a quorum: servers killed and started again, empty or from a file; emptied; stopped; cut
 * off, also in one way only: mostly of a minority at a time, now and then of a majority.  Whoever
 * has lost its memory is young for the longest lease.  At any time one server that runs knows the
 * set: where all forget it, clients would make another one, with the default longest lease. */
#include "chaos/nemesis.h"

#include "harness/process.h"
#include "harness/redis.h"

#include <check.h>
#include <latchkey.h>
#include <string.h>
#include <unistd.h>

#define LINK_MS 1000  /* for the clients to reach a server again */
#define CALM_MS 15000 /* of twice as long */
#define STEP_MIN_MS 300
#define STEP_MAX_MS 1500
#define CLOCK_MAX_MS 2500
#define SPARE(round) (((round)->options->servers - 1) / 2)

static bool has(const struct nemesis_fault *fault, int member)
{
	return fault->members >> member & 1;
}

static bool kills(const struct nemesis_fault *fault)
{
	return fault->kind == NEMESIS_MEMBER_KILL || fault->kind == NEMESIS_MAJORITY_KILL;
}

static bool cuts(const struct nemesis_fault *fault)
{
	return fault->kind == NEMESIS_MEMBER_CUT || fault->kind == NEMESIS_MAJORITY_CUT;
}

static bool forgets(const struct nemesis_fault *fault)
{
	return kills(fault) || fault->kind == NEMESIS_MEMBER_FLUSH;
}

static struct proxy *proxy_of(struct round *round, int side, int member)
{
	return &round->proxies[side * round->options->servers + member];
}

/* ---- clocks ------------------------------------------------------------------------------- */

/* Write its offset, which the server reads. */
static void write_clock(const struct round *round, int member)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/clock%d", round->folder, member);
	/* The server has mapped it: its length must not change. */
	file = fopen(path, round->members[member].pid ? "r+e" : "we");
	if (!file || fwrite(&round->member_clock_ms[member], sizeof(int64_t), 1, file) != 1)
		ck_abort_msg("%s: cannot be written", path);
	fclose(file);
}

static void start_member(struct round *round, int member, const struct server_options *options)
{
	char name[16];

	snprintf(name, sizeof(name), "clock%d", member);
	write_clock(round, member);
	round_clock_begin(round, name);
	if (options)
		server_start(&round->members[member], options);
	else
		server_restart(&round->members[member]);
	round_clock_end();
}

/* Forward, and the clocks of a minority only.  Later losses of memory need clocks that differ by
 * less than three quarters of the longest lease. */
static bool choose_step(struct round *round, struct nemesis_fault *fault)
{
	int moved = 0, member = __builtin_ctz(fault->members);

	fault->step_ms = (int)chaos_between(&round->dice, STEP_MIN_MS, STEP_MAX_MS);
	for (int i = 0; i < round->options->servers; i++)
		moved += i == member || round->member_clock_ms[i];
	return moved <= SPARE(round) &&
	       round->member_clock_ms[member] + fault->step_ms <= CLOCK_MAX_MS;
}

/* ---- choose ------------------------------------------------------------------------------- */

/* Servers that a fault concerns, by itself or by a link. */
static unsigned busy_members(const struct round *round, const struct nemesis_fault *wanted)
{
	unsigned busy = 0;

	for (int i = 0; i < NEMESIS_FAULTS; i++) {
		const struct nemesis_fault *fault = &round->faults[i];
		if (fault->active && fault != wanted)
			busy |= fault->members;
	}
	return busy;
}

static unsigned young_members(const struct round *round)
{
	unsigned young = 0;

	for (int i = 0; i < round->options->servers; i++)
		if (history_now_ns() < round->young_until_ns[i])
			young |= 1u << i;
	return young;
}

static bool knows_set(const struct round *round, int member)
{
	struct redis *redis = redis_open(&round->members[member]);
	bool knows = strstr(redis_text(redis, "GET lk:epoch"), round->member_of[member]) != NULL;

	redis_close(redis);
	return knows;
}

static bool is_remembered(const struct round *round, const struct nemesis_fault *wanted)
{
	unsigned busy = busy_members(round, wanted);

	for (int i = 0; i < round->options->servers; i++)
		if (!has(wanted, i) && !(busy >> i & 1) && knows_set(round, i))
			return true;
	return false;
}

static unsigned choose_some(struct round *round, int count)
{
	unsigned some = 0;

	while (__builtin_popcount(some) < count)
		some |= 1u << chaos_between(&round->dice, 0, round->options->servers - 1);
	return some;
}

bool nemesis_quorum_is_calm(const struct round *round)
{
	return (history_now_ns() - round->begun_ns) / (CALM_MS * CHAOS_MS) % 2 &&
	       !round->options->without_grace;
}

bool nemesis_quorum_ready(struct round *round, struct nemesis_fault *fault)
{
	unsigned busy = busy_members(round, fault), all;
	int servers = round->options->servers;
	bool majority = fault->kind >= NEMESIS_MAJORITY_KILL;

	if (fault->target >= 0)
		fault->members = 1u << fault->target % servers; /* a link to it */
	else if (majority)
		fault->members = choose_some(
			round,
			(int)chaos_between(&round->dice, SPARE(round) + 1,
		                           servers - (fault->kind == NEMESIS_MAJORITY_KILL)));
	else
		fault->members = choose_some(round, 1);
	all = fault->members | busy | young_members(round);
	if (fault->members & busy || (forgets(fault) && !is_remembered(round, fault)))
		return false;
	if (fault->kind == NEMESIS_MEMBER_CLOCK)
		return choose_step(round, fault);
	/* Now and then too many at a time: nothing is granted then. */
	return majority || __builtin_popcount(all) <= SPARE(round) ||
	       (!nemesis_quorum_is_calm(round) && chaos_once_in(&round->dice, 6));
}

/* ---- log ---------------------------------------------------------------------------------- */

void nemesis_quorum_log(struct round *round, const struct nemesis_fault *fault, const char *phase)
{
	bool begins = !strcmp(phase, "begin");
	char target[32], words[100];

	for (int i = 0; i < round->options->servers; i++) {
		int used = 0;
		if (!has(fault, i))
			continue;
		*words = 0;
		if (begins)
			used = snprintf(words, sizeof(words), " member=%d/%d", i,
			                round->options->servers);
		if (begins && forgets(fault))
			snprintf(words + used, sizeof(words) - (size_t)used,
			         " memory=lost grace=%d", CHAOS_LONGEST_MS);
		if (begins && fault->step_ms)
			snprintf(words + used, sizeof(words) - (size_t)used, " clock=%d",
			         fault->step_ms);
		snprintf(target, sizeof(target), fault->target < 0 ? "member%d" : "proxy%d",
		         fault->target < 0 ? i : fault->target);
		round_log(round, nemesis_kind_name(fault->kind), target, "%s%s", phase, words);
	}
}

/* ---- begin and end ------------------------------------------------------------------------ */

/* A server that has forgotten, and says that it has not. */
static void vote_at_once(const struct round *round, int member)
{
	struct redis *redis = redis_open(&round->members[member]);
	const char *info = strstr(redis_text(redis, "INFO server"), "run_id:");
	char id[64] = "", marker[200];

	if (info)
		sscanf(info, "run_id:%63[0-9a-f]", id);
	snprintf(marker, sizeof(marker), "1 %s 0 %s", id, round->member_of[member]);
	redis_do(redis, "SET lk:epoch %s", marker);
	redis_close(redis);
}

static void note_loss(struct round *round, int member)
{
	int64_t over_ns = history_now_ns() + (chaos_pause_ms(round->options) + LINK_MS) * CHAOS_MS;

	round->young_until_ns[member] = over_ns;
	if (over_ns > round->grace_over_ns)
		round->grace_over_ns = over_ns;
	round->lost = true;
	if (round->options->without_grace)
		vote_at_once(round, member);
}

static void kill_member(struct round *round, int member)
{
	struct test_server *server = &round->members[member];
	char path[200];

	snprintf(path, sizeof(path), "%s/dump.rdb", server->dir);
	unlink(path);
	/* Some know all when they start again, but could not know it. */
	if (chaos_once_in(&round->dice, 3)) {
		struct redis *redis = redis_open(server);
		redis_do(redis, "SAVE");
		redis_close(redis);
		nap_ms(chaos_between(&round->dice, 0, 20));
	}
	server_kill(server);
}

static void flush_member(struct round *round, int member)
{
	struct redis *redis = redis_open(&round->members[member]);

	redis_do(redis, "FLUSHALL SYNC");
	redis_close(redis);
	note_loss(round, member);
}

static void move_clock(struct round *round, int member, int64_t step_ms)
{
	round->member_clock_ms[member] += step_ms;
	write_clock(round, member);
}

/* For all clients, in one way or in both. */
static void cut_member(struct round *round, int member, int way)
{
	const struct proxy_fault drop = {.drop = true};

	for (int side = 0; side < CHAOS_SIDES; side++)
		for (int link = 0; link < PROXY_LINKS; link++)
			for (int i = 0; i < PROXY_WAYS; i++)
				if (way == i || way == PROXY_WAYS)
					proxy_set(proxy_of(round, side, member),
					          (enum proxy_link)link, (enum proxy_way)i, &drop);
}

/* No network delivers bytes after it lost some: close these connections. */
static void join_member(struct round *round, int member)
{
	for (int side = 0; side < CHAOS_SIDES; side++) {
		struct proxy *proxy = proxy_of(round, side, member);
		proxy_refuse(proxy, true);
		proxy_cut(proxy, PROXY_COMMANDS, false);
		proxy_cut(proxy, PROXY_MESSAGES, false);
		proxy_heal(proxy);
	}
}

bool nemesis_quorum_begin(struct round *round, struct nemesis_fault *fault)
{
	int way = (int)chaos_between(&round->dice, 0, PROXY_WAYS);

	for (int i = 0; i < round->options->servers; i++) {
		if (!has(fault, i))
			continue;
		if (kills(fault))
			kill_member(round, i);
		else if (cuts(fault))
			cut_member(round, i, way);
		else if (fault->kind == NEMESIS_MEMBER_FLUSH)
			flush_member(round, i);
		else if (fault->kind == NEMESIS_MEMBER_CLOCK)
			move_clock(round, i, fault->step_ms);
		else
			server_pause(&round->members[i]);
	}
	return true;
}

void nemesis_quorum_end(struct round *round, struct nemesis_fault *fault)
{
	for (int i = 0; i < round->options->servers; i++) {
		if (!has(fault, i))
			continue;
		if (cuts(fault)) {
			join_member(round, i);
		} else if (kills(fault)) {
			start_member(round, i, NULL);
			note_loss(round, i);
		} else {
			server_resume(&round->members[i]);
		}
	}
}

/* ---- start and stop ----------------------------------------------------------------------- */

static void read_set(struct round *round, int member)
{
	struct redis *redis = redis_open(&round->members[member]);

	if (sscanf(redis_text(redis, "GET lk:epoch"), "1 %*s %*d %79[^\n]",
	           round->member_of[member]) != 1)
		round_complain(round, "server %d has no marker", member);
	redis_close(redis);
}

static void add_port(char *url, size_t size, int member, int port)
{
	size_t len = strlen(url);

	snprintf(url + len, size - len, "%s127.0.0.1:%d", member ? "," : "redis+quorum://", port);
}

bool nemesis_quorum_start(struct round *round)
{
	const struct server_options options = {.grace = true};
	int servers = round->options->servers;

	for (int i = 0; i < servers; i++) {
		start_member(round, i, &options);
		add_port(round->url, sizeof(round->url), i, round->members[i].port);
	}
	if (lk_quorum_begin(round->url, NULL, CHAOS_LONGEST_MS)) {
		round_complain(round, "no quorum: %s", lk_errmsg());
		return false;
	}
	for (int i = 0; i < servers; i++)
		read_set(round, i);
	for (int side = 0; side < CHAOS_SIDES; side++) {
		for (int i = 0; i < servers; i++) {
			struct proxy *proxy = proxy_of(round, side, i);
			proxy_start(proxy, &round->members[i]);
			round->proxy_count++;
			add_port(round->sides[side], sizeof(round->sides[side]), i, proxy->port);
		}
	}
	return true;
}

void nemesis_quorum_stop(struct round *round)
{
	for (int i = 0; i < round->options->servers; i++) {
		if (round->result->bad)
			shell("cp %s/redis.log %s/member%d.log 2>/dev/null", round->members[i].dir,
			      round->folder, i);
		server_stop(&round->members[i]);
	}
}
