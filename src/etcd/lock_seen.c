/* SPDX-License-Identifier: MIT
 * What the answers to transactions of a lock and of a semaphore show: see lock.h. */
#include "lock.h"

#include "../base/text.h"

#include <string.h>

struct reading {
	const struct lk__etcd_plan *plan;
	const struct lk__etcd_queue *queue;
	const char *nonce;
	const struct lk__etcd_noun *noun;
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
	default:
		reading->is_good = false;
		break;
	}
}

/* ---- Semaphores ----------------------------------------------------------------------------- */

int64_t lk__etcd_read_permits(struct lk__bytes value)
{
	const char *text = value.data;
	size_t at = value.len;
	int64_t permits;

	while (at && text[at - 1] != ' ')
		at--;
	if (!value.len || *text != '1' || !at ||
	    !lk__parse_i64(text + at, value.len - at, 1, LK_PERMITS_MAX, &permits))
		return LK_PERMITS_MAX;
	return permits;
}

bool lk__etcd_read_noun(struct lk__etcd_noun *noun, const struct lk__etcd_kv *kv)
{
	int64_t *const parts[] = {&noun->capacity, &noun->ttl_ms, &noun->granted_to};
	const char *at = kv->value.data, *end = at + kv->value.len;

	*noun = (struct lk__etcd_noun){.mod = kv->mod_revision, .lease = kv->lease};
	if (!kv->value.len || *at++ != '1')
		return false;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		const char *next;
		if (at == end || *at++ != ' ')
			return false;
		next = memchr(at, ' ', (size_t)(end - at));
		if (!next)
			next = end;
		if (!lk__parse_i64(at, (size_t)(next - at), i < 2, INT64_MAX / 4, parts[i]))
			return false;
		at = next;
	}
	return noun->capacity <= LK_PERMITS_MAX;
}

bool lk__etcd_walk(struct lk__etcd_walk *walk)
{
	if (!lk__pb_next(&walk->kvs, &walk->kv) || walk->kv.key.len < walk->queue_len)
		return false;
	lk__etcd_read_ticket(&walk->ticket, walk->kv.key, walk->queue_len);
	walk->ticket.created = walk->kv.create_revision;
	walk->permits = lk__etcd_read_permits(walk->kv.value);
	walk->sum += walk->permits;
	walk->is_granted = walk->sum <= walk->capacity || walk->ticket.created <= walk->granted_to;
	return true;
}

/* What the tickets that were read mean with the semaphore that is known. */
static void count(struct reading *reading, const struct lk__etcd_range_answer *range,
                  const struct lk__etcd_noun *noun)
{
	struct lk__etcd_seen *seen = reading->seen;
	struct lk__etcd_walk walk = {.kvs = range->kvs,
	                             .capacity = noun->capacity,
	                             .granted_to = noun->granted_to,
	                             .queue_len = reading->plan->queue_len};

	seen->queue = range->kvs;
	while (lk__etcd_walk(&walk)) {
		bool is_before = !seen->created || walk.ticket.created < seen->created;

		if (walk.is_granted)
			seen->granted_to = walk.ticket.created;
		if (walk.ticket.created == seen->created)
			seen->is_granted = walk.is_granted;
		if (!is_before)
			continue;
		seen->before++;
		seen->rank += !walk.is_granted;
		seen->first[0] = walk.ticket;
		seen->count = 1;
	}
	seen->used = walk.sum;
	seen->is_short = range->more && walk.is_granted;
	seen->is_first = seen->created && !seen->is_granted && !seen->rank && !seen->is_short;
	/* The one just before it may not have been read. */
	if (range->more && seen->created > walk.ticket.created && seen->before < range->count - 1)
		seen->count = 0;
}

static void see_noun(struct reading *reading)
{
	struct lk__etcd_range_answer range = next_range(reading);
	struct lk__etcd_kv kv;

	if (!lk__pb_next(&range.kvs, &kv) || lk__etcd_read_noun(&reading->seen->noun, &kv))
		return;
	reading->seen->noun = (struct lk__etcd_noun){0};
	reading->seen->is_other_kind = true;
}

/* The ticket alone, if any is meant, the queue, the semaphore, and whether there is a lock. */
static void see_permits(struct reading *reading, bool has_own)
{
	struct lk__etcd_range_answer tickets;
	struct lk__etcd_seen *seen = reading->seen;
	struct lk__etcd_kv kv;

	if (has_own) {
		struct lk__etcd_range_answer own = next_range(reading);
		if (lk__pb_next(&own.kvs, &kv)) {
			seen->created = kv.create_revision;
			seen->lease = kv.lease;
		}
	}
	tickets = next_range(reading);
	see_noun(reading);
	count(reading, &tickets, &seen->noun);
	see_other_kinds(reading);
}

static void see_deleted(struct reading *reading)
{
	struct lk__etcd_op_answer op = next(reading);
	struct lk__etcd_kv kv;

	reading->is_good = reading->is_good && op.has_del;
	reading->seen->had = op.del.deleted > 0;
	if (lk__pb_next(&op.del.prev_kvs, &kv)) {
		reading->seen->created = kv.create_revision;
		reading->seen->gone = lk__etcd_read_permits(kv.value);
	}
}

static void see_asked_permits(struct reading *reading, bool succeeded)
{
	struct lk__etcd_range_answer tickets;

	if (!succeeded) {
		see_era(reading);
		see_permits(reading, true);
		return;
	}
	next_put(reading);
	reading->seen->has_put = true;
	reading->seen->created = reading->seen->revision;
	tickets = next_range(reading);
	count(reading, &tickets, reading->noun);
}

static void see_of_semaphore(struct reading *reading, bool succeeded)
{
	struct lk__etcd_range_answer tickets;

	reading->seen->is_served = succeeded;
	switch (reading->plan->task) {
	case LK__ETCD_ASK:
	case LK__ETCD_TRY:
		see_asked_permits(reading, succeeded);
		break;
	case LK__ETCD_LOOK:
		see_permits(reading, true);
		break;
	case LK__ETCD_LEAVE:
		see_deleted(reading);
		see_permits(reading, false);
		break;
	case LK__ETCD_SHRINK:
		reading->seen->has_put = succeeded;
		if (!succeeded) {
			see_era(reading);
			break;
		}
		next_put(reading);
		see_permits(reading, false);
		break;
	case LK__ETCD_SIZE:
		reading->seen->has_put = succeeded;
		if (!succeeded) {
			see_noun(reading);
			see_other_kinds(reading);
			break;
		}
		next_put(reading);
		tickets = next_range(reading);
		count(reading, &tickets, reading->noun);
		break;
	case LK__ETCD_BREAK:
		if (!succeeded) {
			reading->seen->had = next_range(reading).count > 0;
			break;
		}
		see_deleted(reading);
		if (reading->plan->serves)
			next_put(reading);
		see_permits(reading, false);
		break;
	default:
		reading->is_good = false;
		break;
	}
}

bool lk__etcd_see(const struct lk__etcd_plan *plan, const struct lk__etcd_queue *queue,
                  const char *nonce, const struct lk__etcd_noun *noun, const void *answer,
                  size_t len, struct lk__etcd_seen *seen)
{
	struct lk__etcd_txn_answer txn;
	struct reading reading = {.plan = plan,
	                          .queue = queue,
	                          .nonce = nonce,
	                          .noun = noun,
	                          .seen = seen,
	                          .is_good = true};

	*seen = (struct lk__etcd_seen){0};
	if (!lk__pb_read(&lk__etcd_txn_shape, answer, len, &txn))
		return false;
	seen->term = txn.header.raft_term;
	seen->revision = txn.header.revision;
	reading.responses = txn.responses;
	if (plan->kind == LK__ETCD_SEMAPHORE && plan->task != LK__ETCD_MOVE)
		see_of_semaphore(&reading, txn.succeeded);
	else
		see(&reading, txn.succeeded);
	return reading.is_good;
}
