/* SPDX-License-Identifier: MIT
 * What the answers to a latch's transactions show: see latch.h. */
#include "latch.h"

#include "../base/text.h"

#include <string.h>

/* ---- Values --------------------------------------------------------------------------------- */

/* The next word of the text, as a number. */
static bool next_number(struct lk__bytes *text, int64_t *number)
{
	const char *at = text->data;
	const char *space = text->len ? memchr(at, ' ', text->len) : NULL;
	size_t len = space ? (size_t)(space - at) : text->len;

	if (!lk__parse_i64(at, len, 0, INT64_MAX, number))
		return false;
	len += space != NULL;
	*text = (struct lk__bytes){at + len, text->len - len};
	return true;
}

bool lk__etcd_latch_value_read(struct lk__etcd_latch_value *value, struct lk__bytes text,
                               int64_t mod)
{
	int64_t generation = mod, opened;
	const char *at = text.data;
	struct lk__bytes rest;

	*value = (struct lk__etcd_latch_value){0};
	if (text.len < 4 || memcmp(at, "1 ", 2) != 0 || (at[2] != 'o' && at[2] != 'c') ||
	    at[3] != ' ')
		return false;
	value->is_open = at[2] == 'o';
	rest = (struct lk__bytes){at + 4, text.len - 4};
	if (!next_number(&rest, &value->initial) ||
	    !next_number(&rest, value->is_open ? &generation : &value->open_ttl_ms) ||
	    (!value->is_open && !next_number(&rest, &opened)))
		return false;
	if (!generation)
		generation = mod;
	value->generation = (uint64_t)generation;
	value->opened = value->is_open ? value->generation : (uint64_t)opened;
	return true;
}

/* ---- Reads ---------------------------------------------------------------------------------- */

struct reading {
	struct lk__pb_list responses;
	struct lk__etcd_latch_seen *seen;
	bool is_good;
};

/* The next range: operations that have written come before all of them. */
static struct lk__etcd_range_answer next_range(struct reading *reading)
{
	struct lk__etcd_op_answer op = {0};

	do {
		if (!lk__pb_next(&reading->responses, &op)) {
			reading->is_good = false;
			break;
		}
	} while (!op.has_range);
	return op.range;
}

static void see_latch(struct reading *reading)
{
	struct lk__etcd_range_answer range = next_range(reading);
	struct lk__etcd_latch_seen *seen = reading->seen;
	struct lk__etcd_kv kv;

	if (!lk__pb_next(&range.kvs, &kv))
		return;
	seen->is_there = true;
	seen->mod = kv.mod_revision;
	seen->lease = kv.lease;
	seen->is_foreign = !lk__etcd_latch_value_read(&seen->value, kv.value, kv.mod_revision);
}

static bool read_sum(struct lk__bytes text, int64_t *number, int64_t *sum)
{
	return next_number(&text, number) && next_number(&text, sum);
}

/* Of all clients. */
static void see_count(struct reading *reading)
{
	struct lk__etcd_range_answer ones = next_range(reading), others = next_range(reading);
	struct lk__etcd_latch_seen *seen = reading->seen;
	int64_t number, sum;
	struct lk__etcd_kv kv;

	seen->total = ones.count;
	while (lk__pb_next(&others.kvs, &kv)) {
		if (!read_sum(kv.value, &number, &sum) || sum > INT64_MAX - seen->total)
			seen->is_foreign = true;
		else
			seen->total += sum;
	}
}

static void see_own(struct reading *reading)
{
	struct lk__etcd_range_answer first = next_range(reading), others = next_range(reading);
	struct lk__etcd_latch_seen *seen = reading->seen;
	int64_t number, sum;
	struct lk__etcd_kv kv;

	if (lk__pb_next(&first.kvs, &kv) && next_number(&kv.value, &number)) {
		seen->own.first = (uint64_t)number;
		seen->first_mod = kv.mod_revision;
	}
	if (lk__pb_next(&others.kvs, &kv) && read_sum(kv.value, &number, &sum)) {
		seen->own.number = (uint64_t)number;
		seen->own.sum = (uint64_t)sum;
		seen->number_mod = kv.mod_revision;
	}
}

static void see_kinds(struct reading *reading)
{
	static const char kinds[] = {LK__ETCD_LOCK, LK__ETCD_SEMAPHORE, LK__ETCD_SEMAPHORE};

	for (size_t i = 0; i < sizeof(kinds); i++)
		if (next_range(reading).count > 0)
			reading->seen->other_kind = kinds[i];
}

bool lk__etcd_latch_see(unsigned reads, const void *answer, size_t len,
                        struct lk__etcd_latch_seen *seen)
{
	struct lk__etcd_txn_answer txn;
	struct reading reading = {.seen = seen, .is_good = true};

	*seen = (struct lk__etcd_latch_seen){0};
	if (!lk__pb_read(&lk__etcd_txn_shape, answer, len, &txn))
		return false;
	seen->succeeded = txn.succeeded;
	seen->revision = txn.header.revision;
	if (txn.succeeded && (reads & LK__ETCD_CHANGES))
		return true;
	reading.responses = txn.responses;
	see_latch(&reading);
	see_count(&reading);
	see_own(&reading);
	if (reads & LK__ETCD_READ_NAME)
		seen->has_name = next_range(&reading).count > 0;
	if (reads & LK__ETCD_READ_KINDS)
		see_kinds(&reading);
	return reading.is_good;
}
