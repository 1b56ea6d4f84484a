/* SPDX-License-Identifier: MIT
 * Transactions of a lock and of a semaphore: see lock.h. */
#include "lock.h"

#include "../base/text.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MAX ((size_t)3 << 20)
#define TICKET_MAX 128 /* of an answer, without the queue's key */

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
	recipe->plan.kind = LK__ETCD_LOCK;
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

/* The name is none of another kind; the failure shows it. */
static void has_no(struct lk__etcd_recipe *recipe, struct lk__bytes key, struct lk__bytes end)
{
	struct lk__etcd_range *count = range(recipe, key, end);

	is_absent(recipe, key, end);
	count->count_only = true;
	otherwise(recipe, (struct lk__etcd_op){.range = count});
}

/* Nor one of a semaphore whose key has ended before its tickets. */
static void is_only_a_lock(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue)
{
	static const char nouns[] = {LK__ETCD_SEMAPHORE, LK__ETCD_LATCH};
	struct lk__bytes tickets;

	for (size_t i = 0; i < sizeof(nouns); i++)
		has_no(recipe, noun_key(recipe, queue, nouns[i]), (struct lk__bytes){0});
	tickets = queue_key(recipe, queue, LK__ETCD_SEMAPHORE);
	has_no(recipe, tickets, end_of(recipe, tickets));
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

static void put(struct lk__etcd_recipe *recipe, struct lk__bytes ticket,
                const struct lk__etcd_terms *terms)
{
	char *text = room(recipe);

	recipe->put.key = ticket;
	recipe->put.lease = terms->lease;
	snprintf(text, 2 * LK__DECIMAL_SIZE, "1 %lld %c", (long long)terms->ttl_s,
	         terms->fixed ? 'f' : 'r');
	if (terms->permits)
		snprintf(text + strlen(text), LK__DECIMAL_SIZE, " %u", (unsigned)terms->permits);
	recipe->put.value = keep(recipe, strlen(text));
	then(recipe, (struct lk__etcd_op){.put = &recipe->put});
}

void lk__etcd_ask(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                  const char *nonce, bool only_try, const struct lk__etcd_terms *terms)
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
	put(recipe, ticket, terms);
	last = range(recipe, key, end);
	last->order = LK__ETCD_DESCENDING;
	last->by = LK__ETCD_BY_CREATE;
	last->limit = 2;
	then(recipe, (struct lk__etcd_op){.range = last});
}

void lk__etcd_move(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                   const char *nonce, int64_t created, const struct lk__etcd_terms *terms)
{
	struct lk__bytes key, ticket, none = {0};

	begin(recipe, LK__ETCD_MOVE);
	key = queue_key(recipe, queue, queue->kind);
	ticket = ticket_key(recipe, key, queue->client, nonce);
	recipe->plan.queue_len = key.len;
	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL, ticket, none, created);
	is_in_its_era(recipe, queue);
	put(recipe, ticket, terms);
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

/* ---- Semaphores ----------------------------------------------------------------------------- */

int64_t lk__etcd_capacity_max(const struct lk__etcd_queue *queue)
{
	char key[LK__ETCD_KEY_MAX];
	size_t len =
		lk__etcd_queue_key(key, queue->prefix, queue->kind, queue->name, queue->name_len);
	int64_t max = (int64_t)(ANSWER_MAX / (len + TICKET_MAX));

	return max < LK__ETCD_CAPACITY_MAX ? max : LK__ETCD_CAPACITY_MAX;
}

int64_t lk__etcd_limit(const struct lk__etcd_queue *queue, const struct lk__etcd_noun *noun)
{
	int64_t max = lk__etcd_capacity_max(queue);

	return (noun->granted_to || noun->capacity > max ? max : noun->capacity) + 2;
}

/* Begin with the ranges of the queue: its key; the end is kept after it. */
static struct lk__bytes begin_permits(struct lk__etcd_recipe *recipe,
                                      const struct lk__etcd_queue *queue, enum lk__etcd_task task)
{
	struct lk__bytes key;

	begin(recipe, task);
	key = queue_key(recipe, queue, LK__ETCD_SEMAPHORE);
	recipe->plan.kind = LK__ETCD_SEMAPHORE;
	recipe->plan.queue_len = key.len;
	return key;
}

/* The queue with its permits, and the semaphore. */
static void read_queue(struct lk__etcd_recipe *recipe, struct lk__bytes key, struct lk__bytes end,
                       int64_t limit, void (*add)(struct lk__etcd_recipe *, struct lk__etcd_op))
{
	struct lk__etcd_range *tickets = first_ones(recipe, key, end);

	tickets->keys_only = false;
	tickets->limit = limit;
	add(recipe, (struct lk__etcd_op){.range = tickets});
}

static void read_noun(struct lk__etcd_recipe *recipe, struct lk__bytes noun,
                      void (*add)(struct lk__etcd_recipe *, struct lk__etcd_op))
{
	struct lk__etcd_range *made = range(recipe, noun, (struct lk__bytes){0});

	made->keys_only = false;
	add(recipe, (struct lk__etcd_op){.range = made});
}

void lk__etcd_ask_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                          const char *nonce, const struct lk__etcd_noun *noun, int64_t since,
                          const struct lk__etcd_terms *terms)
{
	struct lk__bytes key = begin_permits(recipe, queue, since ? LK__ETCD_TRY : LK__ETCD_ASK);
	struct lk__bytes end = end_of(recipe, key), none = {0};
	struct lk__bytes ticket = ticket_key(recipe, key, queue->client, nonce);
	struct lk__bytes semaphore = noun_key(recipe, queue, LK__ETCD_SEMAPHORE);
	int64_t limit = lk__etcd_limit(queue, noun);

	if (since)
		compare(recipe, LK__ETCD_MOD, LK__ETCD_LESS, key, end, since + 1);
	is_absent(recipe, ticket, none);
	compare(recipe, LK__ETCD_MOD, LK__ETCD_EQUAL, semaphore, none, noun->mod);
	is_in_its_era(recipe, queue);
	otherwise(recipe, (struct lk__etcd_op){.range = range(recipe, ticket, none)});
	read_queue(recipe, key, end, limit, otherwise);
	read_noun(recipe, semaphore, otherwise);
	put(recipe, ticket, terms);
	read_queue(recipe, key, end, limit, then);
}

void lk__etcd_look_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                           const char *nonce, int64_t limit)
{
	struct lk__bytes key = begin_permits(recipe, queue, LK__ETCD_LOOK);
	struct lk__bytes end = end_of(recipe, key), none = {0};
	struct lk__bytes ticket = ticket_key(recipe, key, queue->client, nonce);
	struct lk__bytes lock;

	then(recipe, (struct lk__etcd_op){.range = range(recipe, ticket, none)});
	read_queue(recipe, key, end, limit, then);
	read_noun(recipe, noun_key(recipe, queue, LK__ETCD_SEMAPHORE), then);
	if (*nonce)
		return;
	lock = queue_key(recipe, queue, LK__ETCD_LOCK);
	then(recipe, (struct lk__etcd_op){.range = range(recipe, lock, end_of(recipe, lock))});
	recipe->ranges[recipe->range_count - 1].count_only = true;
	lock = noun_key(recipe, queue, LK__ETCD_LATCH);
	then(recipe, (struct lk__etcd_op){.range = range(recipe, lock, none)});
	recipe->ranges[recipe->range_count - 1].count_only = true;
}

void lk__etcd_leave_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                            const char *nonce, int64_t limit)
{
	struct lk__bytes key = begin_permits(recipe, queue, LK__ETCD_LEAVE);
	struct lk__bytes end = end_of(recipe, key);

	recipe->del.key = ticket_key(recipe, key, queue->client, nonce);
	recipe->del.prev_kv = true;
	then(recipe, (struct lk__etcd_op){.del = &recipe->del});
	read_queue(recipe, key, end, limit, then);
	read_noun(recipe, noun_key(recipe, queue, LK__ETCD_SEMAPHORE), then);
}

void lk__etcd_shrink(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                     const char *nonce, int64_t created, const struct lk__etcd_terms *terms,
                     int64_t limit)
{
	struct lk__bytes key = begin_permits(recipe, queue, LK__ETCD_SHRINK);
	struct lk__bytes end = end_of(recipe, key), none = {0};
	struct lk__bytes ticket = ticket_key(recipe, key, queue->client, nonce);

	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL, ticket, none, created);
	is_in_its_era(recipe, queue);
	put(recipe, ticket, terms);
	recipe->put.lease = 0;
	recipe->put.ignore_lease = true;
	read_queue(recipe, key, end, limit, then);
	read_noun(recipe, noun_key(recipe, queue, LK__ETCD_SEMAPHORE), then);
}

void lk__etcd_size(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue, int64_t mod,
                   const struct lk__etcd_noun *noun, int64_t limit)
{
	struct lk__bytes key = begin_permits(recipe, queue, LK__ETCD_SIZE);
	struct lk__bytes end = end_of(recipe, key), none = {0};
	struct lk__bytes semaphore = noun_key(recipe, queue, LK__ETCD_SEMAPHORE), lock;
	char *text;

	compare(recipe, LK__ETCD_MOD, LK__ETCD_EQUAL, semaphore, none, mod);
	read_noun(recipe, semaphore, otherwise);
	if (!mod) {
		lock = queue_key(recipe, queue, LK__ETCD_LOCK);
		has_no(recipe, lock, end_of(recipe, lock));
		has_no(recipe, noun_key(recipe, queue, LK__ETCD_LATCH), none);
	}
	text = room(recipe);
	snprintf(text, 4 * LK__DECIMAL_SIZE, "1 %lld %lld %lld", (long long)noun->capacity,
	         (long long)noun->ttl_ms, (long long)noun->granted_to);
	recipe->put = (struct lk__etcd_put){.key = semaphore,
	                                    .value = keep(recipe, strlen(text)),
	                                    .lease = noun->lease,
	                                    .ignore_lease = noun->lease == 0};
	then(recipe, (struct lk__etcd_op){.put = &recipe->put});
	read_queue(recipe, key, end, limit, then);
}

void lk__etcd_break_permits(struct lk__etcd_recipe *recipe, const struct lk__etcd_queue *queue,
                            const struct lk__etcd_ticket *holder, bool is_mute, int64_t limit)
{
	struct lk__etcd_letter letter = {.kind = LK__LETTER_BROKEN, .created = holder->created};
	struct lk__bytes key = begin_permits(recipe, queue, LK__ETCD_BREAK);
	struct lk__bytes end = end_of(recipe, key), none = {0};

	recipe->del.key = ticket_key(recipe, key, holder->client, holder->nonce);
	recipe->del.prev_kv = true;
	compare(recipe, LK__ETCD_CREATE, LK__ETCD_EQUAL, recipe->del.key, none, holder->created);
	then(recipe, (struct lk__etcd_op){.del = &recipe->del});
	otherwise(recipe, (struct lk__etcd_op){.range = range(recipe, recipe->del.key, none)});
	if (!is_mute) {
		memcpy(letter.nonce, holder->nonce, sizeof(letter.nonce));
		put_letter(recipe, mailbox_key(recipe, queue, holder->client), &letter);
	}
	read_queue(recipe, key, end, limit, then);
	read_noun(recipe, noun_key(recipe, queue, LK__ETCD_SEMAPHORE), then);
}
