/* SPDX-License-Identifier: MIT
 * Latches in the virtual world of virtual_etcd.h: the latch "gate", of which each client has a
 * handle. */
#ifndef VIRTUAL_ETCD_LATCH_H
#define VIRTUAL_ETCD_LATCH_H

#include "core/latch.h"
#include "core/query.h"
#include "virtual_etcd.h"

struct lk__event;

/* An event of a topic, for the core. */
void vel_told(struct ve_client *client, const struct lk__event *event);
/* ve_start(), and the handles. */
void vel_start(const struct em_setup *setup, int clients);

struct lk__op *vel_await(int client, bool only_try, bool absent_is_open);
/* name: of the step, NULL = none. */
struct lk__op *vel_down(int client, uint32_t n, const char *name);
/* Count, and expect that so many remain, and whether it counted. */
void vel_downs(int client, uint32_t n, const char *name, int64_t remaining, bool counted);

/* Queries; NULL: it has no answer yet.  They are freed with the world. */
struct vel_query {
	struct lk__op *op;
	struct lk__query *query;
};
struct vel_query vel_begin(int client, enum lk__request_kind kind, int64_t count, bool anew,
                           int64_t open_ttl_ms, int64_t counting_ttl_ms);
/* Let it end; the answer, which has failed if the call has. */
struct lk__answer vel_end(int client, struct vel_query *query);
/* Both. */
struct lk__answer vel_set(int client, int64_t count, bool anew, int64_t open_ttl_ms,
                          int64_t counting_ttl_ms);
struct lk__answer vel_remove(int client);
struct lk__answer vel_show(int client);

/* Reset it by client 0; expect that it is so. */
#define VEL_OPEN_MS 60000
void vel_make(int64_t count);
void vel_is(lk_latch_state state, int64_t remaining);
/* The keys of all latches and their steps. */
int vel_keys(void);
/* Await it while it is not open. */
struct lk__op *vel_waits(int client, bool absent_is_open);

#endif
