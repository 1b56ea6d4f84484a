/* SPDX-License-Identifier: MIT
 * The state of a name of any kind, and its output for people. */
#include "look.h"

#include "say.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_COLUMNS 24

static lk_err look_lock(struct look *look, lk_client *client, const char *name, size_t len,
                        bool all)
{
	lk_lock *lock;
	lk_err err;

	if (all && !look->parties)
		look->parties = calloc(LOOK_MAX, sizeof(*look->parties));
	if (all && !look->parties)
		return LK_ENOMEM;
	err = lk_lock_open(client, name, len, NULL, &lock);
	if (err != LK_OK)
		return err;
	err = lk_lock_query(lock, &look->lock);
	if (err == LK_OK && all && look->lock.queue_len > 0)
		err = lk_lock_waiters(lock, LOOK_MAX, look->parties, &look->waiter_count);
	lk_lock_close(lock);
	return err;
}

static lk_err look_semaphore(struct look *look, lk_client *client, const char *name, size_t len,
                             bool all)
{
	lk_semaphore *semaphore;
	lk_err err;

	if (all && !look->holders)
		look->holders = calloc(LOOK_MAX, sizeof(*look->holders));
	if (all && !look->waiters)
		look->waiters = calloc(LOOK_MAX, sizeof(*look->waiters));
	if (all && (!look->holders || !look->waiters))
		return LK_ENOMEM;
	err = lk_semaphore_open(client, name, len, NULL, &semaphore);
	if (err != LK_OK)
		return err;
	err = lk_semaphore_query(semaphore, &look->semaphore);
	if (err == LK_OK && all && look->semaphore.holders > 0)
		err = lk_semaphore_holders(semaphore, LOOK_MAX, look->holders, &look->holder_count);
	if (err == LK_OK && all && look->semaphore.queue_len > 0)
		err = lk_semaphore_waiters(semaphore, LOOK_MAX, look->waiters, &look->waiter_count);
	lk_semaphore_close(semaphore);
	return err;
}

static lk_err look_latch(struct look *look, lk_client *client, const char *name, size_t len)
{
	lk_latch *latch;
	lk_err err = lk_latch_open(client, name, len, NULL, &latch);

	if (err != LK_OK)
		return err;
	err = lk_latch_query(latch, &look->latch);
	lk_latch_close(latch);
	return err;
}

/* Query the name, whose kind is known. */
static lk_err look_kind(struct look *look, lk_client *client, const char *name, size_t name_len,
                        bool all)
{
	lk_err err;

	switch (look->kind) {
	case LK_KIND_SEMAPHORE:
		err = look_semaphore(look, client, name, name_len, all);
		break;
	case LK_KIND_LATCH:
		return look_latch(look, client, name, name_len);
	default:
		return look_lock(look, client, name, name_len, all);
	}
	if (err != LK_EABSENT)
		return err;
	/* It ended between the two requests. */
	look->kind = LK_KIND_NONE;
	memset(&look->lock, 0, sizeof(look->lock));
	return LK_OK;
}

lk_err look_at(struct look *look, lk_client *client, const char *name, size_t name_len, bool all)
{
	lk_err err = lk_client_name_kind(client, name, name_len, &look->kind);

	look->holder_count = look->waiter_count = 0;
	if (err == LK_OK)
		err = look_kind(look, client, name, name_len, all);
	if (err == LK_OK && lk_client_name_server(client, name, name_len, &look->server) != LK_OK)
		memset(&look->server, 0, sizeof(look->server));
	return err;
}

void look_fini(struct look *look)
{
	free(look->parties);
	free(look->holders);
	free(look->waiters);
	memset(look, 0, sizeof(*look));
}

static void print_ttl(const char *title, int64_t ttl_ms)
{
	char time[32];

	if (ttl_ms < 0)
		printf("%s no end\n", title);
	else
		printf("%s %s left\n", title, text_duration(time, ttl_ms));
}

static void print_grace(int64_t grace_ms, bool in_quorum)
{
	char time[32];

	if (!grace_ms)
		return;
	text_seconds(time, grace_ms);
	if (in_quorum)
		printf("young    nothing is granted for %s: too many servers are new or have lost "
		       "their memory\n",
		       time);
	else
		printf("grace    nothing is granted for %s: the server may have forgotten a "
		       "holder\n",
		       time);
}

static void print_rest(int64_t all, size_t listed)
{
	if (all > (int64_t)listed && listed == LOOK_MAX)
		printf("    ...  and %" PRId64 " more\n", all - (int64_t)listed);
}

static void print_lock(const struct look *look)
{
	const lk_lock_status *lock = &look->lock;
	char text[1024], time[32];

	if (lock->held) {
		printf("held by  %s\n", text_party(text, sizeof(text), &lock->holder));
		if (lock->holder.user[0])
			printf("user     %s\n", lock->holder.user);
		printf("holder   %s\n", lock->holder.id);
		printf("for      %s\n", text_duration(time, lock->held_ms));
		printf("lease    %s left\n", text_duration(time, lock->lease_left_ms));
		printf("fence    %" PRIu64 "\n", lock->fence);
	} else {
		printf("held by  -\n");
	}
	print_grace(lock->grace_ms, look->server.in_quorum);
	printf("waiting  %" PRId64 "\n", lock->queue_len);
	for (size_t i = 0; i < look->waiter_count; i++)
		printf("%7zu  %s\n", i + 1, text_party(text, sizeof(text), &look->parties[i]));
	print_rest(lock->queue_len, look->waiter_count);
}

static void print_permits(size_t place, const lk_ticket *permits)
{
	char text[1024];

	printf("%7zu  %s, %" PRId64 " permit%s\n", place,
	       text_party(text, sizeof(text), &permits->party), permits->permits,
	       permits->permits == 1 ? "" : "s");
}

static void print_semaphore(const struct look *look)
{
	const lk_semaphore_status *semaphore = &look->semaphore;
	char since[32], left[32];

	printf("permits  %" PRId64 "\n", semaphore->capacity);
	printf("free     %" PRId64 "\n", semaphore->available > 0 ? semaphore->available : 0);
	print_ttl("memory  ", semaphore->ttl_ms);
	printf("holders  %" PRId64 "\n", semaphore->holders);
	for (size_t i = 0; i < look->holder_count; i++) {
		const lk_ticket *holder = &look->holders[i];
		print_permits(i + 1, holder);
		printf("         for %s, lease %s left, fence %" PRIu64 "\n",
		       text_duration(since, holder->held_ms),
		       text_duration(left, holder->lease_left_ms), holder->fence);
		printf("         holder %s\n", holder->party.id);
	}
	print_rest(semaphore->holders, look->holder_count);
	print_grace(semaphore->grace_ms, false);
	printf("waiting  %" PRId64 "\n", semaphore->queue_len);
	for (size_t i = 0; i < look->waiter_count; i++)
		print_permits(i + 1, &look->waiters[i]);
	print_rest(semaphore->queue_len, look->waiter_count);
}

static void print_latch(const lk_latch_status *latch)
{
	printf("state    %s\n", lk_latch_state_name(latch->state));
	if (latch->state == LK_LATCH_ABSENT)
		return;
	printf("remain   %" PRId64 " of %" PRId64 "\n", latch->count, latch->initial);
	printf("made     generation %" PRIu64 "\n", latch->generation);
	print_ttl("memory  ", latch->ttl_ms);
}

void look_print(const struct look *look, const char *name)
{
	printf("name     %s\nkind     %s\n", name, lk_kind_name(look->kind));
	if (look->server.service[0])
		printf("service  %s at %s\n", look->server.service, look->server.address);
	else if (look->server.in_cluster)
		printf("node     %s\n", look->server.address);
	switch (look->kind) {
	case LK_KIND_SEMAPHORE:
		print_semaphore(look);
		break;
	case LK_KIND_LATCH:
		print_latch(&look->latch);
		break;
	default:
		print_lock(look);
		break;
	}
}

void look_row(const struct look *look, const char *name)
{
	char holder[1024] = "-", since[32] = "-", left[32] = "-", waiting[32] = "-";
	size_t len;

	if (!look) {
		printf("%-*s %-9s %-36s %8s %8s %7s\n", NAME_COLUMNS, "NAME", "KIND", "HELD BY",
		       "FOR", "LEASE", "WAITING");
		return;
	}
	switch (look->kind) {
	case LK_KIND_SEMAPHORE:
		snprintf(holder, sizeof(holder),
		         "%" PRId64 " holder%s, %" PRId64 " of %" PRId64 " free",
		         look->semaphore.holders, look->semaphore.holders == 1 ? "" : "s",
		         look->semaphore.available > 0 ? look->semaphore.available : 0,
		         look->semaphore.capacity);
		snprintf(waiting, sizeof(waiting), "%" PRId64, look->semaphore.queue_len);
		break;
	case LK_KIND_LATCH:
		snprintf(holder, sizeof(holder), "%s, %" PRId64 " of %" PRId64 " remain",
		         lk_latch_state_name(look->latch.state), look->latch.count,
		         look->latch.initial);
		break;
	default:
		if (look->lock.held) {
			text_party(holder, sizeof(holder), &look->lock.holder);
			text_duration(since, look->lock.held_ms);
			text_duration(left, look->lock.lease_left_ms);
		}
		snprintf(waiting, sizeof(waiting), "%" PRId64, look->lock.queue_len);
		break;
	}
	/* printf() would count bytes. */
	len = text_columns(name);
	printf("%s%*s %-9s %-36s %8s %8s %7s\n", name,
	       len < NAME_COLUMNS ? NAME_COLUMNS - (int)len : 0, "", lk_kind_name(look->kind),
	       holder, since, left, waiting);
}
