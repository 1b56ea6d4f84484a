/* SPDX-License-Identifier: MIT
 * Queries: see query.h. */
#include "query.h"

#include <stdio.h>
#include <string.h>

/* ---- Parts ---------------------------------------------------------------------------------- */

static void begin(struct lk__etcd_query *query)
{
	memset(query, 0, offsetof(struct lk__etcd_query, text));
	query->txn.success = query->ops;
}

/* The next free text, for a key; keep() takes it. */
static char *room(struct lk__etcd_query *query)
{
	return query->text + query->used;
}

static struct lk__bytes keep(struct lk__etcd_query *query, size_t len)
{
	struct lk__bytes bytes = {room(query), len};

	query->used += len + 1;
	return bytes;
}

static struct lk__etcd_range *read_range(struct lk__etcd_query *query, struct lk__bytes key,
                                         struct lk__bytes range_end)
{
	struct lk__etcd_range *range = &query->ranges[query->txn.success_count];

	range->key = key;
	range->range_end = range_end;
	query->ops[query->txn.success_count++] = (struct lk__etcd_op){.range = range};
	return range;
}

static void read_queue(struct lk__etcd_query *query, const struct lk__etcd_queue *queue, char kind,
                       int64_t limit)
{
	struct lk__bytes key = keep(query, lk__etcd_queue_key(room(query), queue->prefix, kind,
	                                                      queue->name, queue->name_len));
	struct lk__etcd_range *range;
	struct lk__bytes end;

	memcpy(room(query), key.data, key.len + 1);
	lk__etcd_range_end(room(query), key.len);
	end = keep(query, key.len);
	range = read_range(query, key, end);
	range->order = LK__ETCD_ASCENDING;
	range->by = LK__ETCD_BY_CREATE;
	range->limit = limit;
	range->keys_only = true;
}

static void read_noun(struct lk__etcd_query *query, const struct lk__etcd_queue *queue, char kind)
{
	struct lk__bytes key = keep(query, lk__etcd_noun_key(room(query), queue->prefix, kind,
	                                                     queue->name, queue->name_len));

	read_range(query, key, (struct lk__bytes){0})->count_only = true;
}

/* ---- Holder and waiters --------------------------------------------------------------------- */

void lk__etcd_show(struct lk__etcd_query *query, const struct lk__etcd_queue *queue, int64_t limit)
{
	begin(query);
	read_queue(query, queue, LK__ETCD_LOCK, limit);
	read_noun(query, queue, LK__ETCD_SEMAPHORE);
	read_queue(query, queue, LK__ETCD_SEMAPHORE, 1);
	read_noun(query, queue, LK__ETCD_LATCH);
}

void lk__etcd_show_permits(struct lk__etcd_query *query, const struct lk__etcd_queue *queue)
{
	const struct lk__bytes none = {0};
	struct lk__bytes noun;

	begin(query);
	read_queue(query, queue, LK__ETCD_SEMAPHORE, lk__etcd_capacity_max(queue) + 2);
	query->ranges[0].keys_only = false;
	noun = keep(query, lk__etcd_noun_key(room(query), queue->prefix, LK__ETCD_SEMAPHORE,
	                                     queue->name, queue->name_len));
	read_range(query, noun, none);
	read_queue(query, queue, LK__ETCD_LOCK, 1);
	read_noun(query, queue, LK__ETCD_LATCH);
}

/* ---- Names ---------------------------------------------------------------------------------- */

void lk__etcd_kind(struct lk__etcd_query *query, const struct lk__etcd_queue *queue)
{
	begin(query);
	read_queue(query, queue, LK__ETCD_LOCK, 1);
	read_noun(query, queue, LK__ETCD_SEMAPHORE);
	read_queue(query, queue, LK__ETCD_SEMAPHORE, 1);
	read_noun(query, queue, LK__ETCD_LATCH);
}

/* The keys of all kinds are those between two letters: see keys.h. */
void lk__etcd_list(struct lk__etcd_query *query, const char *prefix, const char *cursor)
{
	bool is_first = strcmp(cursor, "0") == 0;
	struct lk__bytes key, end;
	struct lk__etcd_range *range;

	begin(query);
	key = keep(query, is_first ? (size_t)snprintf(room(query), LK__ETCD_KEY_MAX, "%s/A", prefix)
	                           : (size_t)snprintf(room(query), LK__CURSOR_SIZE, "%s", cursor));
	end = keep(query, (size_t)snprintf(room(query), LK__ETCD_KEY_MAX, "%s/[", prefix));
	range = read_range(query, key, end);
	range->limit = LK__ETCD_NAMES_PAGE;
	range->keys_only = true;
}

/* ---- Details of clients --------------------------------------------------------------------- */

static struct lk__bytes details_key(struct lk__etcd_query *query,
                                    const struct lk__etcd_queue *queue, const char *client,
                                    bool of_name)
{
	return keep(query, lk__etcd_details_key(room(query), queue->prefix, client, queue->name,
	                                        of_name ? queue->name_len : 0));
}

void lk__etcd_introduce(struct lk__etcd_query *query, const struct lk__etcd_queue *queue,
                        const char *details, int64_t lease)
{
	begin(query);
	query->put.key = details_key(query, queue, queue->client, true);
	query->put.value = lk__bytes_of(details);
	query->put.lease = lease;
	query->ops[query->txn.success_count++] = (struct lk__etcd_op){.put = &query->put};
}

void lk__etcd_describe(struct lk__etcd_query *query, const struct lk__etcd_queue *queue,
                       const char *client)
{
	const struct lk__bytes none = {0};

	begin(query);
	read_range(query, details_key(query, queue, client, false), none);
	if (queue->name_len)
		read_range(query, details_key(query, queue, client, true), none);
}
