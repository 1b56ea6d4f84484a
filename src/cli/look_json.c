/* SPDX-License-Identifier: MIT
 * The state of a name, for scripts.  Members are added, never renamed or removed. */
#include "look.h"

#include "say.h"

#include <inttypes.h>
#include <stdio.h>

/* ,"key":1.234; ,"key":null for a time without an end. */
static void json_seconds(const char *key, int64_t ms)
{
	if (ms < 0)
		printf(",\"%s\":null", key);
	else
		printf(",\"%s\":%" PRId64 ".%03d", key, ms / 1000, (int)(ms % 1000));
}

/* Leaves the object open for further members. */
static void json_party(const lk_party *party)
{
	const struct {
		const char *key, *text;
	} fields[] = {
		{"{\"id\":", party->id},       {",\"host\":", party->host},
		{",\"user\":", party->user},   {",\"program\":", party->program},
		{",\"label\":", party->label},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		fputs(fields[i].key, stdout);
		json_string(stdout, fields[i].text);
	}
	printf(",\"pid\":%" PRId64, party->pid);
}

static void json_lock(const struct look *look)
{
	const lk_lock_status *lock = &look->lock;

	printf(",\"held\":%s,\"holder\":", lock->held ? "true" : "false");
	if (lock->held) {
		json_party(&lock->holder);
		printf("},\"fence\":%" PRIu64, lock->fence);
		json_seconds("held_seconds", lock->held_ms);
		json_seconds("lease_left_seconds", lock->lease_left_ms);
	} else {
		fputs("null,\"fence\":null,\"held_seconds\":null,\"lease_left_seconds\":null",
		      stdout);
	}
	json_seconds("grace_seconds", lock->grace_ms);
	printf(",\"waiting\":%" PRId64 ",\"waiters\":[", lock->queue_len);
	for (size_t i = 0; i < look->waiter_count; i++) {
		if (i)
			putchar(',');
		json_party(&look->parties[i]);
		putchar('}');
	}
	putchar(']');
}

static void json_semaphore(const struct look *look)
{
	const lk_semaphore_status *semaphore = &look->semaphore;

	printf(",\"capacity\":%" PRId64 ",\"available\":%" PRId64, semaphore->capacity,
	       semaphore->available);
	json_seconds("ttl_seconds", semaphore->ttl_ms);
	json_seconds("grace_seconds", semaphore->grace_ms);
	printf(",\"holding\":%" PRId64 ",\"holders\":[", semaphore->holders);
	for (size_t i = 0; i < look->holder_count; i++) {
		const lk_ticket *holder = &look->holders[i];
		if (i)
			putchar(',');
		json_party(&holder->party);
		printf(",\"permits\":%" PRId64 ",\"fence\":%" PRIu64, holder->permits,
		       holder->fence);
		json_seconds("held_seconds", holder->held_ms);
		json_seconds("lease_left_seconds", holder->lease_left_ms);
		putchar('}');
	}
	printf("],\"waiting\":%" PRId64 ",\"waiters\":[", semaphore->queue_len);
	for (size_t i = 0; i < look->waiter_count; i++) {
		if (i)
			putchar(',');
		json_party(&look->waiters[i].party);
		printf(",\"permits\":%" PRId64 "}", look->waiters[i].permits);
	}
	putchar(']');
}

static void json_latch(const lk_latch_status *latch)
{
	fputs(",\"state\":", stdout);
	json_string(stdout, lk_latch_state_name(latch->state));
	printf(",\"count\":%" PRId64 ",\"initial\":%" PRId64 ",\"generation\":%" PRIu64,
	       latch->count, latch->initial, latch->generation);
	json_seconds("ttl_seconds", latch->ttl_ms);
}

void look_json(const struct look *look, const char *name)
{
	fputs("{\"name\":", stdout);
	json_string(stdout, name);
	fputs(",\"kind\":", stdout);
	json_string(stdout, lk_kind_name(look->kind));
	switch (look->kind) {
	case LK_KIND_SEMAPHORE:
		json_semaphore(look);
		break;
	case LK_KIND_LATCH:
		json_latch(&look->latch);
		break;
	default:
		json_lock(look);
		break;
	}
	if (look->server.service[0]) {
		fputs(",\"service\":", stdout);
		json_string(stdout, look->server.service);
		fputs(",\"master\":", stdout);
		json_string(stdout, look->server.address);
	} else if (look->server.in_cluster) {
		fputs(",\"node\":", stdout);
		json_string(stdout, look->server.address);
	}
	putchar('}');
}
