/* SPDX-License-Identifier: MIT
 * Transactions of a lock: see lock.h. */
#include "lock.h"

#include "../base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- Parts ---------------------------------------------------------------------------------- */

/* The next free text of the recipe, for a key; keep() takes it. */
static char *room(struct lk__etcd_recipe *recipe)
{
	return recipe->text + recipe->used;
}

static struct lk__bytes keep(struct lk__etcd_recipe *recipe, size_t len)
{
	struct lk__bytes bytes = {room(recipe), len};

	recipe->used += len + 1;
	return bytes;
}

static struct lk__bytes queue_key(struct lk__etcd_recipe *recipe,
                                  const struct lk__etcd_queue *queue, char kind)
{
	return keep(recipe, lk__etcd_queue_key(room(recipe), queue->prefix, kind, queue->name,
	                                       queue->name_len));
}

static struct lk__bytes end_of(struct lk__etcd_recipe *recipe, struct lk__bytes key)
{
	memcpy(room(recipe), key.data, key.len + 1);
	lk__etcd_range_end(room(recipe), key.len);
	return keep(recipe, key.len);
}

static struct lk__bytes noun_key(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                                 char kind)
{
	return keep(recipe, lk__etcd_noun_key(room(recipe), queue->prefix, kind, queue->name,
	                                      queue->name_len));
}

static struct lk__bytes ticket_key(struct lk__etcd_recipe *recipe, struct lk__bytes queue,
                                   const char *client, const char *nonce)
{
	return keep(recipe, lk__etcd_ticket_key(room(recipe), queue.data, client, nonce));
}

static struct lk__bytes mailbox_key(struct lk__etcd_recipe *recipe,
                                    const struct lk__etcd_queue *queue, const char *client)
{
	return keep(recipe, lk__etcd_mailbox_key(room(recipe), queue->prefix, client));
}

static void begin(struct lk__etcd_recipe *recipe, enum lk__etcd_task task)
{
	memset(recipe, 0, offsetof(struct lk__etcd_recipe, text));
	recipe->plan.task = task;
	recipe->txn.compares = recipe->compares;
	recipe->txn.success = recipe->success;
	recipe->txn.failure = recipe->failure;
}

static void compare(struct lk__etcd_recipe *recipe, enum lk__etcd_target target,
                    enum lk__etcd_result result, struct lk__bytes key, struct lk__bytes range_end,
                    int64_t number)
{
	recipe->plan.compares = true;
	recipe->compares[recipe->txn.compare_count++] =
		(struct lk__etcd_compare){.result = result,
	                                  .target = target,
	                                  .key = key,
	                                  .range_end = range_end,
	                                  .number = number};
}

static void is_absent(struct lk__etcd_recipe *recipe, struct lk__bytes key,
                      struct lk__bytes range_end)
{
	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL, key, range_end, 0);
}

static struct lk__etcd_range *range(struct lk__etcd_recipe *recipe, struct lk__bytes key,
                                    struct lk__bytes range_end)
{
	struct lk__etcd_range *made = &recipe->ranges[recipe->range_count++];

	made->key = key;
	made->range_end = range_end;
	made->keys_only = true;
	return made;
}

/* The first tickets of the queue. */
static struct lk__etcd_range *first_ones(struct lk__etcd_recipe *recipe, struct lk__bytes key,
                                         struct lk__bytes range_end)
{
	struct lk__etcd_range *made = range(recipe, key, range_end);

	made->order = LK__ETCD_ASCENDING;
	made->by = LK__ETCD_BY_CREATE;
	made->limit = LK__ETCD_SEEN_MAX;
	return made;
}

static void then(struct lk__etcd_recipe *recipe, struct lk__etcd_op op)
{
	recipe->success[recipe->txn.success_count++] = op;
}

static void otherwise(struct lk__etcd_recipe *recipe, struct lk__etcd_op op)
{
	recipe->failure[recipe->txn.failure_count++] = op;
}

/* ---- Asking --------------------------------------------------------------------------------- */

static void look(struct lk__etcd_recipe *recipe, struct lk__bytes ticket, struct lk__bytes key,
                 struct lk__bytes end, void (*add)(struct lk__etcd_recipe *, struct lk__etcd_op))
{
	add(recipe, (struct lk__etcd_op){.range = range(recipe, ticket, (struct lk__bytes){0})});
	add(recipe, (struct lk__etcd_op){.range = first_ones(recipe, key, end)});
}

/* The name is none of the other kinds; the failure shows it. */
static void is_only_a_lock(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue)
{
	static const char nouns[] = {LK__ETCD_SEMAPHORE, LK__ETCD_LATCH};
	struct lk__bytes none = {0};

	for (size_t i = 0; i < sizeof(nouns); i++) {
		struct lk__bytes key = noun_key(recipe, queue, nouns[i]);
		struct lk__etcd_range *count = range(recipe, key, none);

		is_absent(recipe, key, none);
		count->count_only = true;
		otherwise(recipe, (struct lk__etcd_op){.range = count});
	}
}

static void is_in_its_era(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue)
{
	struct lk__bytes none = {0};
	struct lk__bytes key =
		keep(recipe, lk__etcd_era_key(room(recipe), queue->prefix, queue->client));

	compare(recipe, LK__ETCD_VALUE, LK__ETCD_EQUAL, key, none, 0);
	recipe->compares[recipe->txn.compare_count - 1].value = lk__bytes_of(queue->era);
	otherwise(recipe, (struct lk__etcd_op){.range = range(recipe, key, none)});
	recipe->ranges[recipe->range_count - 1].keys_only = false;
}

static void put(struct lk__etcd_recipe *recipe, struct lk__bytes ticket, int64_t lease,
                int64_t ttl_s, bool fixed)
{
	recipe->put.key = ticket;
	recipe->put.lease = lease;
	snprintf(room(recipe), 2 * LK__DECIMAL_SIZE, "1 %lld %c", (long long)ttl_s,
	         fixed ? 'f' : 'r');
	recipe->put.value = keep(recipe, strlen(room(recipe)));
	then(recipe, (struct lk__etcd_op){.put = &recipe->put});
}

void lk__etcd_ask(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                  const char *nonce, bool only_try, int64_t lease, int64_t ttl_s, bool fixed)
{
	struct lk__bytes key, end, ticket, none = {0};
	struct lk__etcd_range *last;

	begin(recipe, only_try ? LK__ETCD_TRY : LK__ETCD_ASK);
	key = queue_key(recipe, queue, LK__ETCD_LOCK);
	end = end_of(recipe, key);
	ticket = ticket_key(recipe, key, queue->client, nonce);
	recipe->plan.queue_len = key.len;
	if (only_try)
		is_absent(recipe, key, end);
	else
		is_absent(recipe, ticket, none);
	is_in_its_era(recipe, queue);
	look(recipe, ticket, key, end, otherwise);
	is_only_a_lock(recipe, queue);
	put(recipe, ticket, lease, ttl_s, fixed);
	last = range(recipe, key, end);
	last->order = LK__ETCD_DESCENDING;
	last->by = LK__ETCD_BY_CREATE;
	last->limit = 2;
	then(recipe, (struct lk__etcd_op){.range = last});
}

void lk__etcd_move(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce, int64_t created, int64_t lease, int64_t ttl_s, bool fixed)
{
	struct lk__bytes key, ticket, none = {0};

	begin(recipe, LK__ETCD_MOVE);
	key = queue_key(recipe, queue, LK__ETCD_LOCK);
	ticket = ticket_key(recipe, key, queue->client, nonce);
	recipe->plan.queue_len = key.len;
	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL, ticket, none, created);
	is_in_its_era(recipe, queue);
	put(recipe, ticket, lease, ttl_s, fixed);
}

void lk__etcd_look(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce)
{
	struct lk__bytes key, end, ticket;

	begin(recipe, LK__ETCD_LOOK);
	key = queue_key(recipe, queue, LK__ETCD_LOCK);
	end = end_of(recipe, key);
	ticket = ticket_key(recipe, key, queue->client, nonce);
	recipe->plan.queue_len = key.len;
	look(recipe, ticket, key, end, then);
}

/* ---- Serving -------------------------------------------------------------------------------- */

/* If the mailbox is there, write it. */
static void put_letter(struct lk__etcd_recipe *recipe, struct lk__bytes mailbox,
                       const struct lk__etcd_letter *letter)
{
	compare(recipe, LK__ETCD_VERSION, LK__ETCD_GREATER, mailbox, (struct lk__bytes){0}, 0);
	recipe->plan.serves = true;
	recipe->put.key = mailbox;
	recipe->put.ignore_lease = true;
	recipe->put.value = keep(recipe, lk__etcd_letter_write(room(recipe), letter));
	then(recipe, (struct lk__etcd_op){.put = &recipe->put});
}

/* If the first of them waits still, and has a mailbox: write that it is granted. */
static void serve(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                  struct lk__bytes key, const struct lk__etcd_ticket *next, unsigned count)
{
	struct lk__bytes none = {0}, mailbox = mailbox_key(recipe, queue, next->client);
	struct lk__etcd_letter letter = {.kind = LK__LETTER_GRANT, .created = next->created};

	memcpy(letter.nonce, next->nonce, sizeof(letter.nonce));
	for (unsigned i = 1; i < count && next[i].client[0]; i++)
		letter.next[letter.count++] = next[i];
	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL,
	        ticket_key(recipe, key, next->client, next->nonce), none, next->created);
	put_letter(recipe, mailbox, &letter);
}

void lk__etcd_leave(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                    const char *nonce, int64_t created, const struct lk__etcd_ticket *next,
                    unsigned count)
{
	struct lk__bytes key, end;
	struct lk__etcd_op leave = {.del = &recipe->del};

	begin(recipe, LK__ETCD_LEAVE);
	key = queue_key(recipe, queue, LK__ETCD_LOCK);
	end = end_of(recipe, key);
	recipe->plan.queue_len = key.len;
	recipe->del.key = ticket_key(recipe, key, queue->client, nonce);
	then(recipe, leave);
	otherwise(recipe, leave);
	otherwise(recipe, (struct lk__etcd_op){.range = first_ones(recipe, key, end)});
	if (count && next->client[0])
		serve(recipe, queue, key, next, count);
	else if (created) /* none is later: etcd compares each key of the range */
		compare(recipe, LK__ETCD_CREATE, LK__ETCD_LESS, key, end, created + 1);
	else
		then(recipe, (struct lk__etcd_op){.range = &recipe->ranges[0]});
}

void lk__etcd_serve(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                    const struct lk__etcd_ticket *next, unsigned count)
{
	struct lk__bytes key, end;

	begin(recipe, LK__ETCD_SERVE);
	key = queue_key(recipe, queue, LK__ETCD_LOCK);
	end = end_of(recipe, key);
	recipe->plan.queue_len = key.len;
	otherwise(recipe, (struct lk__etcd_op){.range = first_ones(recipe, key, end)});
	serve(recipe, queue, key, next, count);
}

void lk__etcd_break_hold(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                         struct lk__bytes key, const struct lk__etcd_ticket *holder)
{
	struct lk__etcd_letter letter = {.kind = LK__LETTER_BROKEN, .created = holder->created};
	struct lk__bytes all, end, none = {0};
	struct lk__etcd_range *left;

	begin(recipe, LK__ETCD_BREAK);
	all = queue_key(recipe, queue, LK__ETCD_LOCK);
	end = end_of(recipe, all);
	recipe->plan.queue_len = all.len;
	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL, key, none, holder->created);
	recipe->del.key = key;
	then(recipe, (struct lk__etcd_op){.del = &recipe->del});
	if (holder->client[0]) {
		memcpy(letter.nonce, holder->nonce, sizeof(letter.nonce));
		put_letter(recipe, mailbox_key(recipe, queue, holder->client), &letter);
	}
	left = first_ones(recipe, all, end);
	then(recipe, (struct lk__etcd_op){.range = left});
	otherwise(recipe, (struct lk__etcd_op){.range = left});
}
