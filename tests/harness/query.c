/* SPDX-License-Identifier: MIT
 * Operators and other clients: see query.h. */
#include "query.h"

#include "find_epoch.h"

#include <stdlib.h>
#include <string.h>

static int64_t operators_grace_ms;
static struct lua_store *memory_of_node; /* NULL = the store is no part of a Cluster */

void query_cluster(struct lua_store *memory)
{
	memory_of_node = memory;
}

void query_grace(int64_t grace_ms)
{
	operators_grace_ms = grace_ms;
}

static struct lk__request request(enum lk__request_kind kind, lk_kind noun, const char *name,
                                  const struct lk__details *details, const struct lk__epoch *epoch)
{
	return (struct lk__request){
		.kind = (uint8_t)kind,
		.noun = (uint8_t)noun,
		.name = name,
		.name_len = (uint16_t)strlen(name),
		.details = details,
		.epoch = epoch,
	};
}

void query_append(struct lk__buf *bytes, const struct lk__space *space, enum lk__request_kind kind,
                  lk_kind noun, const char *name, const struct lk__details *details)
{
	static const struct lk__epoch none; /* no query of a client depends on it */
	const struct lk__request query = request(kind, noun, name, details, &none);

	if (!lk__codec_query(bytes, space, &query))
		abort();
}

struct lk__answer query_run(struct lua_store *store, enum lk__request_kind kind, lk_kind noun,
                            const char *name, const struct lk__details *details)
{
	struct lk__epoch epoch = {0};
	const struct lk__request query = request(kind, noun, name, details, &epoch);
	struct lk__buf bytes = {0}, reply = {0};
	struct lk__answer answer;
	struct lk__space space;
	struct lk__resp *resp;
	struct lk__why why;

	lk__space_init(&space, "lk", 0, "operator_AAAAAAAAAAAAA");
	space.grace_ms = operators_grace_ms;
	if (memory_of_node)
		lk__space_divide(&space);
	find_epoch(memory_of_node ? memory_of_node : store, &space, &epoch);
	if (!lk__codec_query(&bytes, &space, &query))
		abort();
	lua_store_run(store, bytes.data, bytes.len, &reply);
	resp = lua_store_parse(&reply);
	lk__codec_query_answer(resp, "the store", &space, &query, NULL, &answer, &why);
	answer.text = NULL;
	lk__resp_free(resp);
	lk__buf_fini(&bytes);
	lk__buf_fini(&reply);
	return answer;
}

void query_break(struct lua_store *store, lk_kind noun, const char *name, const char *ticket)
{
	struct lk__details details = {.subject = ticket};
	struct lk__answer answer;

	do {
		answer = query_run(store, LK__BREAK, noun, name, &details);
		details.subject = "";
	} while (answer.kind == LK__LEFT && answer.more);
}

struct lk__answer query_size(struct lua_store *store, const char *name, bool must_exist,
                             int64_t capacity, int64_t ttl_ms)
{
	const struct lk__details details = {
		.must_exist = must_exist,
		.capacity = capacity,
		.ttl_ms = ttl_ms,
	};
	struct lk__answer answer = query_run(store, LK__SIZE, LK_KIND_SEMAPHORE, name, &details);

	if (answer.kind == LK__SIZED && answer.more)
		query_break(store, LK_KIND_SEMAPHORE, name, "");
	return answer;
}
