/* SPDX-License-Identifier: MIT
 * What the answers to a lock's transactions show: see lock.h. */
#include "lock.h"

#include <string.h>

struct reading {
	const struct lk__etcd_plan *plan;
	const struct lk__etcd_queue *queue;
	const char *nonce;
	struct lk__pb_list responses;
	struct lk__etcd_seen *seen;
	bool is_good;
};

/* The response to the next operation. */
static struct lk__etcd_op_answer next(struct reading *reading)
{
	struct lk__etcd_op_answer op = {0};

	if (!lk__pb_next(&reading->responses, &op))
		reading->is_good = false;
	return op;
}

static struct lk__etcd_range_answer next_range(struct reading *reading)
{
	struct lk__etcd_op_answer op = next(reading);

	reading->is_good = reading->is_good && op.has_range;
	return op.range;
}

static void next_put(struct reading *reading)
{
	reading->is_good = next(reading).has_put && reading->is_good;
}

static bool is_mine(const struct reading *reading, const struct lk__etcd_ticket *ticket)
{
	return strcmp(ticket->client, reading->queue->client) == 0 &&
	       strcmp(ticket->nonce, reading->nonce) == 0;
}

/* The next key of the queue, as a ticket. */
static bool next_ticket(struct reading *reading, struct lk__pb_list *kvs,
                        struct lk__etcd_ticket *ticket)
{
	struct lk__etcd_kv kv;

	if (!lk__pb_next(kvs, &kv))
		return false;
	if (kv.key.len < reading->plan->queue_len || kv.create_revision <= 0) {
		reading->is_good = false;
		return false;
	}
	lk__etcd_read_ticket(ticket, kv.key, reading->plan->queue_len);
	ticket->created = kv.create_revision;
	return true;
}

static void see_first_ones(struct reading *reading)
{
	struct lk__etcd_range_answer range = next_range(reading);
	struct lk__etcd_seen *seen = reading->seen;

	while (seen->count < LK__ETCD_SEEN_MAX &&
	       next_ticket(reading, &range.kvs, &seen->first[seen->count]))
		seen->count++;
}

/* The ticket alone, then the first ones. */
static void see_look(struct reading *reading)
{
	struct lk__etcd_range_answer own = next_range(reading);
	struct lk__etcd_seen *seen = reading->seen;
	struct lk__etcd_kv kv;

	if (lk__pb_next(&own.kvs, &kv)) {
		seen->created = kv.create_revision;
		seen->lease = kv.lease;
	}
	see_first_ones(reading);
	while (seen->before < seen->count && seen->first[seen->before].created != seen->created)
		seen->before++;
}

static void see_era(struct reading *reading)
{
	struct lk__etcd_range_answer range = next_range(reading);
	struct lk__etcd_kv kv;

	reading->seen->is_past = !lk__pb_next(&range.kvs, &kv) ||
	                         !lk__bytes_equal(kv.value, lk__bytes_of(reading->queue->era));
}

/* It was put: it is the last one, and then comes the one before it. */
static void see_put(struct reading *reading)
{
	struct lk__etcd_seen *seen = reading->seen;
	struct lk__etcd_range_answer range;
	struct lk__etcd_ticket own;

	next_put(reading);
	range = next_range(reading);
	seen->has_put = true;
	if (!next_ticket(reading, &range.kvs, &own) || !is_mine(reading, &own)) {
		reading->is_good = false;
		return;
	}
	seen->created = own.created;
	seen->before = range.count - 1;
	if (next_ticket(reading, &range.kvs, &seen->first[0]))
		seen->count = 1;
}

static void see_other_kinds(struct reading *reading)
{
	while (reading->is_good && reading->responses.count) {
		struct lk__etcd_range_answer range = next_range(reading);

		if (range.count > 0)
			reading->seen->is_other_kind = true;
	}
}

static void see_leave(struct reading *reading, bool succeeded)
{
	struct lk__etcd_op_answer op = next(reading);

	reading->is_good = reading->is_good && op.has_del;
	reading->seen->had = op.del.deleted > 0;
	if (!reading->plan->compares || !succeeded) {
		see_first_ones(reading);
		return;
	}
	if (reading->plan->serves)
		next_put(reading);
	reading->seen->is_served = true;
}

static void see_break(struct reading *reading, bool succeeded)
{
	reading->seen->is_served = succeeded;
	if (succeeded) {
		reading->is_good = next(reading).has_del && reading->is_good;
		if (reading->plan->serves)
			next_put(reading);
	}
	see_first_ones(reading);
}

static void see(struct reading *reading, bool succeeded)
{
	switch (reading->plan->task) {
	case LK__ETCD_ASK:
	case LK__ETCD_TRY:
		if (succeeded) {
			see_put(reading);
			break;
		}
		see_era(reading);
		see_look(reading);
		see_other_kinds(reading);
		break;
	case LK__ETCD_MOVE:
		reading->seen->has_put = succeeded;
		if (!succeeded)
			see_era(reading);
		break;
	case LK__ETCD_LOOK:
		see_look(reading);
		break;
	case LK__ETCD_LEAVE:
		see_leave(reading, succeeded);
		break;
	case LK__ETCD_SERVE:
		reading->seen->is_served = succeeded;
		if (succeeded)
			next_put(reading);
		else
			see_first_ones(reading);
		break;
	case LK__ETCD_BREAK:
		see_break(reading, succeeded);
		break;
	}
}

bool lk__etcd_see(const struct lk__etcd_plan *plan, const struct lk__etcd_queue *queue,
                  const char *nonce, const void *answer, size_t len, struct lk__etcd_seen *seen)
{
	struct lk__etcd_txn_answer txn;
	struct reading reading = {
		.plan = plan, .queue = queue, .nonce = nonce, .seen = seen, .is_good = true};

	*seen = (struct lk__etcd_seen){0};
	if (!lk__pb_read(&lk__etcd_txn_shape, answer, len, &txn))
		return false;
	seen->term = txn.header.raft_term;
	seen->revision = txn.header.revision;
	reading.responses = txn.responses;
	see(&reading, txn.succeeded);
	return reading.is_good;
}
