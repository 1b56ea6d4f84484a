/* SPDX-License-Identifier: MIT
 * At rest: after all workers have ended, each name can be acquired within a lease, and the store
 * has only keys that are meant to last. */
#include "chaos/rounds.h"

#include "harness/process.h"
#include "harness/redis.h"

#include <stdlib.h>
#include <string.h>

/* An unclaimed grant expires with its lease; each step of the clock may have moved the expiry. */
#define REST_MS (CHAOS_LEASE_MAX_MS + 1000)
#define CLIENT_TTL_MS 60000

static int64_t limit_ms(const struct round *round)
{
	return REST_MS + (round->options->loses ? round->options->grace_ms + 1000 : 0);
}

static void final_write(const struct round *round, int name, int64_t available, int64_t capacity,
                        int64_t queued)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/final.txt", round->folder);
	file = fopen(path, "ae");
	if (!file)
		return;
	fprintf(file, "%s %lld %lld %lld\n", chaos_names[name].name, (long long)available,
	        (long long)capacity, (long long)queued);
	fclose(file);
}

static void have_lock(struct round *round, lk_client *client, int name)
{
	lk_lock_status status;
	lk_lock *lock;
	lk_err err = lk_lock_open(client, chaos_names[name].name, 0, NULL, &lock);

	if (!err)
		err = lk_lock_acquire(lock, limit_ms(round), NULL);
	if (err)
		round_complain(round, "at rest, lock %s: %s", chaos_names[name].name, lk_errmsg());
	else if (lk_lock_release(lock))
		round_complain(round, "at rest, release of %s: %s", chaos_names[name].name,
		               lk_errmsg());
	else if (!lk_lock_query(lock, &status))
		final_write(round, name, !status.held, 1, status.queue_len);
}

static bool all_free(lk_semaphore *semaphore, lk_semaphore_status *status)
{
	lk_err err = lk_semaphore_query(semaphore, status);

	return err == LK_EABSENT || (!err && status->available == status->capacity &&
	                             !status->holders && !status->queue_len);
}

static void have_permits(struct round *round, lk_client *client, int name)
{
	const struct chaos_name *about = &chaos_names[name];
	lk_semaphore_options options = {.capacity = about->capacity};
	lk_semaphore_status status = {0};
	lk_semaphore *semaphore;
	uint64_t hold;
	lk_err err = lk_semaphore_open(client, about->name, 0, &options, &semaphore);

	if (!err)
		err = lk_semaphore_acquire(semaphore, about->capacity, limit_ms(round), &hold);
	if (err) {
		round_complain(round, "at rest, all of %s: %s", about->name, lk_errmsg());
		return;
	}
	if (lk_semaphore_release(semaphore, hold))
		round_complain(round, "at rest, release of %s: %s", about->name, lk_errmsg());
	if (!WITHIN(2000, all_free(semaphore, &status)))
		round_complain(round, "at rest, %s has %lld of %lld, %lld holds, %lld waits",
		               about->name, (long long)status.available, (long long)status.capacity,
		               (long long)status.holders, (long long)status.queue_len);
	final_write(round, name, status.available, status.capacity, status.queue_len);
}

/* Meant to last: the counter; the marker of the memory; a semaphore; a latch and its memory; a dead
 * client's card for a minute. */
static bool may_last(struct redis *redis, const char *key)
{
	for (int i = 0; i < CHAOS_NAMES; i++) {
		size_t len = strlen(chaos_names[i].name);
		const char *rest = key + strlen("lk:{") + len;
		bool memory;
		if (strncmp(key, "lk:{", 4) != 0 || strncmp(key + 4, chaos_names[i].name, len) != 0)
			continue;
		memory = chaos_names[i].sort == CHAOS_LATCH && !strcmp(rest, "}:s");
		return memory || (chaos_names[i].sort != CHAOS_LOCK && !strcmp(rest, "}"));
	}
	if (!strncmp(key, "lk:client:", 10)) {
		long long ttl_ms = redis_int(redis, "PTTL %s", key);
		return ttl_ms != -1 && ttl_ms <= CLIENT_TTL_MS + 10000;
	}
	return !strcmp(key, "lk:fence") || !strcmp(key, "lk:fences") || !strcmp(key, "lk:epoch") ||
	       !strncmp(key, "lk:fence:{", 10) || !strncmp(key, "lk:epoch:{", 10);
}

/* The first key that must not be there, NULL = none. */
static const char *left_over(struct redis *redis, char *keys, size_t size)
{
	char *at = keys, *next;

	snprintf(keys, size, "%s", redis_text(redis, "KEYS *"));
	for (; at && *at; at = next) {
		next = strchr(at, '\n');
		if (next)
			*next++ = 0;
		if (!may_last(redis, at))
			return at;
	}
	return NULL;
}

static void check_keys(struct round *round, const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	char keys[16384];

	if (!WITHIN(limit_ms(round), !left_over(redis, keys, sizeof(keys))))
		round_complain(round, "at rest, %s is left", left_over(redis, keys, sizeof(keys)));
	redis_close(redis);
}

void round_check_rest(struct round *round)
{
	char url[330];
	lk_client *client;

	if (chaos_has_service(round->options))
		snprintf(url, sizeof(url), "%s", round->url);
	else
		snprintf(url, sizeof(url), "%s%s", round->server.unix_url, round->query);
	if (lk_client_open(url, NULL, &client)) {
		round_complain(round, "at rest, no client: %s", lk_errmsg());
		return;
	}
	for (int i = 0; i < CHAOS_NAMES_ALL; i++) {
		if (!chaos_has_name(round->options->quorum, round->options->etcd, i))
			continue;
		if (chaos_names[i].sort == CHAOS_LOCK)
			have_lock(round, client, i);
		else if (chaos_names[i].sort != CHAOS_LATCH)
			have_permits(round, client, i);
	}
	lk_client_close(client);
	if (round->options->etcd) {
		if (!WITHIN(limit_ms(round) + CHAOS_ETCD_LEASE_MS, nemesis_etcd_is_clear()))
			round_complain(round, "at rest, a ticket is left in etcd");
		return;
	}
	if (!round->options->cluster && !round->options->quorum)
		check_keys(round, &round->server);
	for (int i = 0; i < round->options->servers && round->options->quorum; i++)
		check_keys(round, &round->members[i]);
	for (int i = 0; i < CLUSTER_NODES && round->options->cluster; i++)
		if (cluster_setup_is_master(&round->cluster, i))
			check_keys(round, &round->cluster.nodes[i]);
}
