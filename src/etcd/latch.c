/* SPDX-License-Identifier: MIT
 * Transactions of a latch: see latch.h. */
#include "latch.h"

#include "../base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct lk__bytes none;

/* ---- Parts ---------------------------------------------------------------------------------- */

/* The next free text of the recipe; keep() takes it. */
static char *room(struct lk__etcd_latch_recipe *recipe)
{
	return recipe->text + recipe->used;
}

static struct lk__bytes keep(struct lk__etcd_latch_recipe *recipe, size_t len)
{
	struct lk__bytes bytes = {room(recipe), len};

	recipe->used += len + 1;
	return bytes;
}

static struct lk__bytes latch_key(struct lk__etcd_latch_recipe *recipe,
                                  const struct lk__etcd_queue *queue)
{
	return keep(recipe, lk__etcd_noun_key(room(recipe), queue->prefix, LK__ETCD_LATCH,
	                                      queue->name, queue->name_len));
}

static struct lk__bytes steps_key(struct lk__etcd_latch_recipe *recipe,
                                  const struct lk__etcd_queue *queue)
{
	return keep(recipe, lk__etcd_queue_key(room(recipe), queue->prefix, LK__ETCD_LATCH,
	                                       queue->name, queue->name_len));
}

static struct lk__bytes step_key(struct lk__etcd_latch_recipe *recipe, struct lk__bytes steps,
                                 char kind, const char *name, size_t len)
{
	return keep(recipe, lk__etcd_step_key(room(recipe), steps.data, kind, name, len));
}

static struct lk__bytes end_of(struct lk__etcd_latch_recipe *recipe, struct lk__bytes key)
{
	memcpy(room(recipe), key.data, key.len + 1);
	lk__etcd_range_end(room(recipe), key.len);
	return keep(recipe, key.len);
}

static void begin(struct lk__etcd_latch_recipe *recipe, unsigned reads)
{
	memset(recipe, 0, offsetof(struct lk__etcd_latch_recipe, text));
	recipe->reads = reads;
	recipe->txn.compares = recipe->compares;
	recipe->txn.success = recipe->success;
	recipe->txn.failure = recipe->failure;
}

static struct lk__etcd_compare *compare(struct lk__etcd_latch_recipe *recipe,
                                        enum lk__etcd_target target, struct lk__bytes key,
                                        int64_t number)
{
	struct lk__etcd_compare *made = &recipe->compares[recipe->txn.compare_count++];

	*made = (struct lk__etcd_compare){.target = target, .key = key, .number = number};
	return made;
}

static void then(struct lk__etcd_latch_recipe *recipe, struct lk__etcd_op op)
{
	recipe->success[recipe->txn.success_count++] = op;
}

static struct lk__etcd_range *range(struct lk__etcd_latch_recipe *recipe, struct lk__bytes key,
                                    struct lk__bytes range_end)
{
	struct lk__etcd_range *made = &recipe->ranges[recipe->range_count++];

	made->key = key;
	made->range_end = range_end;
	return made;
}

static void count(struct lk__etcd_latch_recipe *recipe, struct lk__bytes key,
                  struct lk__bytes range_end)
{
	range(recipe, key, range_end)->count_only = true;
}

/* ---- Reading -------------------------------------------------------------------------------- */

/* In the order in which latch_seen.c expects them. */
static void read_all(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                     struct lk__bytes latch, struct lk__bytes steps)
{
	struct lk__bytes ones = step_key(recipe, steps, '1', "", 0);
	struct lk__bytes others = step_key(recipe, steps, 'c', "", 0);
	size_t len = strlen(queue->client);

	range(recipe, latch, none);
	count(recipe, ones, end_of(recipe, ones));
	range(recipe, others, end_of(recipe, others));
	range(recipe, step_key(recipe, steps, '1', queue->client, len), none);
	range(recipe, step_key(recipe, steps, 'c', queue->client, len), none);
}

static void read_kinds(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue)
{
	static const char kinds[] = {LK__ETCD_LOCK, LK__ETCD_SEMAPHORE};

	for (size_t i = 0; i < sizeof(kinds); i++) {
		struct lk__bytes key =
			keep(recipe, lk__etcd_queue_key(room(recipe), queue->prefix, kinds[i],
		                                        queue->name, queue->name_len));
		count(recipe, key, end_of(recipe, key));
	}
	count(recipe,
	      keep(recipe, lk__etcd_noun_key(room(recipe), queue->prefix, LK__ETCD_SEMAPHORE,
	                                     queue->name, queue->name_len)),
	      none);
}

/* All that is read, as the operations of the failure, or of the success. */
static void show(struct lk__etcd_latch_recipe *recipe, bool succeeds)
{
	for (unsigned i = 0; i < recipe->range_count; i++) {
		const struct lk__etcd_op op = {.range = &recipe->ranges[i]};

		if (succeeds)
			then(recipe, op);
		else
			recipe->failure[recipe->txn.failure_count++] = op;
	}
}

void lk__etcd_latch_read(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue)
{
	struct lk__bytes latch, steps;

	begin(recipe, LK__ETCD_READ_KINDS);
	latch = latch_key(recipe, queue);
	steps = steps_key(recipe, queue);
	read_all(recipe, queue, latch, steps);
	read_kinds(recipe, queue);
	show(recipe, true);
}

void lk__etcd_latch_past(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                         int64_t revision)
{
	struct lk__bytes latch, steps;

	begin(recipe, 0);
	latch = latch_key(recipe, queue);
	steps = steps_key(recipe, queue);
	read_all(recipe, queue, latch, steps);
	for (unsigned i = 0; i < recipe->range_count; i++)
		recipe->ranges[i].revision = revision;
	show(recipe, true);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static void put(struct lk__etcd_latch_recipe *recipe, struct lk__bytes key, int64_t lease,
                struct lk__bytes value)
{
	struct lk__etcd_put *made = &recipe->puts[recipe->put_count++];

	*made = (struct lk__etcd_put){.key = key, .value = value, .lease = lease};
	then(recipe, (struct lk__etcd_op){.put = made});
}

static struct lk__bytes sum_text(struct lk__etcd_latch_recipe *recipe,
                                 const struct lk__etcd_own_steps *own)
{
	return keep(recipe, (size_t)snprintf(room(recipe), 2 * LK__DECIMAL_SIZE,
	                                     "%" PRIu64 " %" PRIu64, own->number, own->sum));
}

struct lk__etcd_own_steps lk__etcd_latch_step(struct lk__etcd_latch_recipe *recipe,
                                              const struct lk__etcd_queue *queue,
                                              const struct lk__etcd_step *step,
                                              const struct lk__etcd_own_steps *own, int64_t lease)
{
	struct lk__etcd_own_steps after = *own;
	struct lk__bytes latch, steps, name = none, first, other;

	begin(recipe, step->len ? LK__ETCD_READ_NAME : 0);
	latch = latch_key(recipe, queue);
	steps = steps_key(recipe, queue);
	read_all(recipe, queue, latch, steps);
	first = recipe->ranges[3].key;
	other = recipe->ranges[4].key;
	compare(recipe, LK__ETCD_MOD, latch, (int64_t)step->generation);
	if (own->number)
		compare(recipe, LK__ETCD_VALUE, other, 0)->value = sum_text(recipe, own);
	else
		compare(recipe, LK__ETCD_CREATE, other, 0);
	if (!own->first)
		compare(recipe, LK__ETCD_CREATE, first, 0);
	if (step->n == 1 && !own->first && !own->number) {
		after.first = step->number;
		put(recipe, first, lease,
		    keep(recipe, lk__decimal(room(recipe), (int64_t)step->number)));
	} else {
		after.number = step->number;
		after.sum += step->n;
		put(recipe, other, lease, sum_text(recipe, &after));
	}
	if (step->len) {
		name = step_key(recipe, steps, 'n', step->name, step->len);
		compare(recipe, LK__ETCD_CREATE, name, 0);
		put(recipe, name, lease, lk__bytes_of("1"));
		count(recipe, name, none);
	}
	show(recipe, true);
	show(recipe, false);
	return after;
}

/* ---- Changes -------------------------------------------------------------------------------- */

static void del(struct lk__etcd_latch_recipe *recipe, struct lk__bytes key,
                struct lk__bytes range_end)
{
	struct lk__etcd_delete *made = &recipe->dels[recipe->del_count++];

	*made = (struct lk__etcd_delete){.key = key, .range_end = range_end};
	then(recipe, (struct lk__etcd_op){.del = made});
}

/* The latch is as it was read, and so are its steps.  etcd compares each key of the range. */
static struct lk__bytes change(struct lk__etcd_latch_recipe *recipe,
                               const struct lk__etcd_queue *queue, int64_t mod, int64_t read)
{
	struct lk__bytes latch, steps, end;
	struct lk__etcd_compare *unchanged;

	begin(recipe, LK__ETCD_READ_KINDS | LK__ETCD_CHANGES);
	latch = latch_key(recipe, queue);
	steps = steps_key(recipe, queue);
	end = end_of(recipe, steps);
	read_all(recipe, queue, latch, steps);
	read_kinds(recipe, queue);
	show(recipe, false);
	compare(recipe, LK__ETCD_MOD, latch, mod);
	if (read) {
		unchanged = compare(recipe, LK__ETCD_MOD, steps, read + 1);
		unchanged->result = LK__ETCD_LESS;
		unchanged->range_end = end;
	}
	del(recipe, steps, end);
	return latch;
}

/* The name is none of the other kinds; see read_kinds(). */
static void is_only_a_latch(struct lk__etcd_latch_recipe *recipe)
{
	for (unsigned i = 5; i < recipe->range_count; i++)
		compare(recipe, LK__ETCD_CREATE, recipe->ranges[i].key, 0)->range_end =
			recipe->ranges[i].range_end;
}

void lk__etcd_latch_put(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                        const struct lk__etcd_latch_value *value, int64_t lease, int64_t mod,
                        int64_t read)
{
	struct lk__bytes latch = change(recipe, queue, mod, read);
	int len;

	if (!mod)
		is_only_a_latch(recipe);
	if (value->is_open)
		len = snprintf(room(recipe), 4 * LK__DECIMAL_SIZE, "1 o %" PRId64 " %" PRIu64,
		               value->initial, value->generation);
	else
		len = snprintf(room(recipe), 4 * LK__DECIMAL_SIZE,
		               "1 c %" PRId64 " %" PRId64 " %" PRIu64, value->initial,
		               value->open_ttl_ms, value->opened);
	put(recipe, latch, lease, keep(recipe, (size_t)len));
}

void lk__etcd_latch_remove(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                           int64_t mod, int64_t read)
{
	del(recipe, change(recipe, queue, mod, read), none);
}
