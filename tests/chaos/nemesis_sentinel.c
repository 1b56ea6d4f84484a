/* SPDX-License-Identifier: MIT
 * Faults of a service of Sentinel: planned failovers; the master, replicas and sentinels killed and
 * stopped. */
#include "chaos/nemesis.h"

#include "harness/process.h"
#include "harness/redis.h"

#include <string.h>

#define SETTLE_MS (2 * SETUP_DOWN_AFTER_MS)
#define AGREE_MS 40000 /* a failed election is repeated after twice the failover's timeout */

#define LAG_MS 700
/* Of a fault of both replicas. */
#define BOTH SETUP_SERVERS

/* Any server but the master, or any sentinel. */
static int target_of(struct round *round, enum nemesis_kind kind)
{
	int other = (int)chaos_between(&round->dice, 1, SETUP_SERVERS - 1);

	if (kind == NEMESIS_REPLICA_STOP && round->options->replicas &&
	    chaos_once_in(&round->dice, 2))
		return BOTH;
	if (kind == NEMESIS_REPLICA_KILL || kind == NEMESIS_REPLICA_STOP)
		return (round->master + other) % SETUP_SERVERS;
	if (kind == NEMESIS_SENTINEL_KILL || kind == NEMESIS_SENTINEL_STOP)
		return (int)chaos_between(&round->dice, 0, SETUP_SENTINELS - 1);
	return round->master;
}

/* False if a failover is in progress. */
static bool ask_failover(const struct round *round)
{
	const struct test_server *sentinels = round->service.sentinels;
	/* At most one is killed. */
	struct redis *redis = redis_open(&sentinels[sentinels[0].pid ? 0 : 1]);
	bool begun = !strcmp(redis_text(redis, "SENTINEL FAILOVER " SETUP_SERVICE), "OK");

	redis_close(redis);
	return begun;
}

/* A failover may have happened after the end of the fault that caused it. */
static bool find_master(struct round *round)
{
	int master = sentinel_setup_master(&round->service);

	if (master < 0 || !round->service.servers[master].pid ||
	    !sentinel_setup_is_master(&round->service, master))
		return false;
	round->master = master;
	round->server = round->service.servers[master];
	return true;
}

bool nemesis_sentinel_ready(struct round *round, enum nemesis_kind kind)
{
	struct redis *redis;
	bool ready;

	if (!find_master(round))
		return false;
	redis = redis_open(&round->server);
	ready = kind > NEMESIS_MASTER_STOP ||
	        strstr(redis_text(redis, "INFO replication"), "state=online") != NULL;
	redis_close(redis);
	return ready;
}

static void stop_replicas(struct round *round, struct nemesis_fault *fault)
{
	for (int i = 0; i < SETUP_SERVERS; i++)
		if (i == fault->target || (fault->target == BOTH && i != round->master))
			server_pause(&round->service.servers[i]);
}

static void resume_replicas(struct round *round, const struct nemesis_fault *fault)
{
	for (int i = 0; i < SETUP_SERVERS; i++)
		if (i == fault->target || (fault->target == BOTH && round->service.servers[i].pid))
			server_resume(&round->service.servers[i]);
}

/* The replicas receive nothing more, as behind a cut: what the master does until it dies is lost,
 * but must not have counted. */
static void kill_master(struct round *round, struct nemesis_fault *fault)
{
	struct nemesis_fault lag = {.kind = NEMESIS_REPLICA_STOP, .target = BOTH};
	bool lags = round->options->replicas && !chaos_once_in(&round->dice, 3);
	struct redis *redis;

	if (lags) {
		stop_replicas(round, &lag);
		redis = redis_open(&round->server);
		redis_text(redis, "CLIENT KILL TYPE replica");
		redis_close(redis);
		nap_ms(LAG_MS);
	}
	server_kill(&round->service.servers[fault->target]);
	if (lags)
		resume_replicas(round, &lag);
}

bool nemesis_sentinel_begin(struct round *round, struct nemesis_fault *fault)
{
	struct sentinel_setup *service = &round->service;
	int target = target_of(round, fault->kind);

	fault->target = target;
	switch (fault->kind) {
	case NEMESIS_FAILOVER:
		return ask_failover(round);
	case NEMESIS_MASTER_KILL:
		kill_master(round, fault);
		return true;
	case NEMESIS_MASTER_STOP:
		server_pause(&service->servers[target]);
		return true;
	case NEMESIS_REPLICA_KILL:
		server_kill(&service->servers[target]);
		return true;
	case NEMESIS_REPLICA_STOP:
		stop_replicas(round, fault);
		return true;
	case NEMESIS_SENTINEL_KILL:
		server_kill(&service->sentinels[target]);
		return true;
	case NEMESIS_SENTINEL_STOP:
		server_pause(&service->sentinels[target]);
		return true;
	default:
		return false;
	}
}

static void await_agreement(struct round *round, bool changes)
{
	int old = round->master;

	if (!WITHIN(AGREE_MS, find_master(round) && (!changes || round->master != old)))
		round_complain(round, "the sentinels do not agree on a master");
	else
		round_note(round, "master", round->master);
}

static bool has_replicas(struct round *round)
{
	struct redis *redis;
	const char *info;
	int count = 0;

	if (!find_master(round))
		return false;
	redis = redis_open(&round->server);
	info = redis_text(redis, "INFO replication");
	for (; (info = strstr(info, "state=online")) != NULL; info++)
		count++;
	redis_close(redis);
	return count == SETUP_SERVERS - 1;
}

void nemesis_sentinel_settle(struct round *round)
{
	/* An election may have begun. */
	nap_ms(SETTLE_MS);
	await_agreement(round, false);
}

void nemesis_sentinel_heal(struct round *round)
{
	nemesis_sentinel_settle(round);
	if (round->options->replicas && !WITHIN(AGREE_MS, has_replicas(round)))
		round_complain(round, "the master has not got its replicas back");
}

void nemesis_sentinel_end(struct round *round, struct nemesis_fault *fault)
{
	struct sentinel_setup *service = &round->service;
	int target = fault->target;

	switch (fault->kind) {
	case NEMESIS_MASTER_KILL:
		await_agreement(round, true);
		server_restart(&service->servers[target]);
		break;
	case NEMESIS_FAILOVER:
		await_agreement(round, true);
		break;
	case NEMESIS_MASTER_STOP:
		server_resume(&service->servers[target]);
		nemesis_sentinel_settle(round);
		break;
	case NEMESIS_REPLICA_KILL:
		server_restart(&service->servers[target]);
		return;
	case NEMESIS_REPLICA_STOP:
		resume_replicas(round, fault);
		return;
	case NEMESIS_SENTINEL_KILL:
		sentinel_setup_restart(service, target);
		return;
	default:
		server_resume(&service->sentinels[target]);
		return;
	}
	round->grace_over_ns =
		history_now_ns() + (chaos_pause_ms(round->options) + 1000) * CHAOS_MS;
}
