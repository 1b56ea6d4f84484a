/* SPDX-License-Identifier: MIT
 * What the answers to queries show: see query.h. */
#include "query.h"

#include "../base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_LEN (LK__CLIENT_ID_SIZE - 1)
#define FIELD_MAX 192 /* bytes; longer ones are cut */

static bool next_range(struct lk__pb_list *responses, struct lk__etcd_range_answer *range)
{
	struct lk__etcd_op_answer op = {0};

	if (!lk__pb_next(responses, &op) || !op.has_range)
		return false;
	*range = op.range;
	return true;
}

static bool read_txn(const void *answer, size_t len, struct lk__pb_list *responses)
{
	struct lk__etcd_txn_answer txn;

	if (!lk__pb_read(&lk__etcd_txn_shape, answer, len, &txn))
		return false;
	*responses = txn.responses;
	return true;
}

/* ---- Holder and waiters --------------------------------------------------------------------- */

/* The party of a ticket that another program has made is the end of its key. */
static void fill(struct lk__entry *entry, const struct lk__etcd_ticket *ticket,
                 struct lk__bytes key, size_t queue_len)
{
	*entry = (struct lk__entry){.fence = (uint64_t)ticket->created * LK__ETCD_FENCES};
	lk__decimal(entry->id, ticket->created);
	if (!ticket->client[0]) {
		lk__escape(entry->party, sizeof(entry->party), (const char *)key.data + queue_len,
		           key.len - queue_len);
		return;
	}
	memcpy(entry->party, ticket->client, CLIENT_LEN);
	entry->party[CLIENT_LEN] = ':';
	memcpy(entry->party + CLIENT_LEN + 1, ticket->nonce, sizeof(ticket->nonce));
	/* A nonce is used again. */
	lk__mark(entry->party + CLIENT_LEN + LK__NONCE_SIZE, (uint64_t)ticket->created);
}

/* The tickets of the queue, the first of which holds. */
static bool see_tickets(const struct lk__etcd_queue *queue, const char *nonce,
                        const struct lk__etcd_range_answer *range, struct lk__etcd_shown *shown,
                        struct lk__listing *listing)
{
	char queue_key[LK__ETCD_KEY_MAX];
	size_t queue_len = lk__etcd_queue_key(queue_key, queue->prefix, LK__ETCD_LOCK, queue->name,
	                                      queue->name_len);
	struct lk__pb_list kvs = range->kvs;
	struct lk__etcd_ticket ticket;
	struct lk__etcd_kv kv;
	int64_t seen = 0, rank = -1;

	for (; lk__pb_next(&kvs, &kv); seen++) {
		if (kv.key.len < queue_len || kv.create_revision <= 0)
			return false;
		lk__etcd_read_ticket(&ticket, kv.key, queue_len);
		ticket.created = kv.create_revision;
		if (!seen)
			shown->lease = kv.lease;
		if (*nonce && strcmp(ticket.nonce, nonce) == 0 &&
		    strcmp(ticket.client, queue->client) == 0)
			rank = seen - 1;
		if (listing && listing->count < listing->room)
			fill(&listing->entries[listing->count++], &ticket, kv.key, queue_len);
	}
	shown->is_held = seen > 0;
	if (!listing)
		return true;
	listing->store_us = LK__ETCD_LATE_US;
	listing->has_no_clock = true;
	listing->holders = shown->is_held;
	listing->held = listing->count > 0;
	listing->waiting = range->count > 0 ? range->count - 1 : 0;
	listing->rank = *nonce && rank < 0 && range->count > seen ? seen - 1 : rank;
	return true;
}

bool lk__etcd_see_show(const struct lk__etcd_queue *queue, const char *nonce, const void *answer,
                       size_t len, struct lk__etcd_shown *shown, struct lk__listing *listing)
{
	static const char kinds[] = {LK__ETCD_SEMAPHORE, LK__ETCD_SEMAPHORE, LK__ETCD_LATCH};
	struct lk__etcd_range_answer range;
	struct lk__pb_list responses;

	*shown = (struct lk__etcd_shown){0};
	if (!read_txn(answer, len, &responses) || !next_range(&responses, &range) ||
	    !see_tickets(queue, nonce, &range, shown, listing))
		return false;
	for (size_t i = 0; i < sizeof(kinds); i++) {
		if (!next_range(&responses, &range))
			return false;
		if (range.count > 0 && !shown->is_held)
			shown->other_kind = kinds[i];
	}
	return true;
}

bool lk__etcd_see_holder(const struct lk__etcd_queue *queue, const void *answer, size_t len,
                         struct lk__bytes *key, struct lk__etcd_ticket *holder)
{
	char queue_key[LK__ETCD_KEY_MAX];
	size_t queue_len = lk__etcd_queue_key(queue_key, queue->prefix, LK__ETCD_LOCK, queue->name,
	                                      queue->name_len);
	struct lk__etcd_range_answer range;
	struct lk__pb_list responses;
	struct lk__etcd_kv kv;

	if (!read_txn(answer, len, &responses) || !next_range(&responses, &range) ||
	    !lk__pb_next(&range.kvs, &kv) || kv.key.len < queue_len)
		return false;
	lk__etcd_read_ticket(holder, kv.key, queue_len);
	holder->created = kv.create_revision;
	*key = kv.key;
	return true;
}

static void note_lease(struct lk__etcd_shown_permits *shown, int64_t lease)
{
	size_t i = 0;

	while (i < shown->time_count && shown->times[i].lease != lease)
		i++;
	if (lease && i == shown->time_count && i < LK__ETCD_TIMES_MAX)
		shown->times[shown->time_count++].lease = lease;
}

static int64_t left_of(const struct lk__etcd_shown_permits *shown, int64_t lease)
{
	for (size_t i = 0; i < shown->time_count; i++)
		if (shown->times[i].lease == lease)
			return shown->times[i].left_ms;
	return 0;
}

static void add_entry(const struct lk__etcd_wanted *wanted, const struct lk__etcd_walk *walk,
                      struct lk__etcd_shown_permits *shown, struct lk__listing *listing)
{
	struct lk__entry entry;
	size_t waits = listing->count - listing->held;

	if (listing->count >= listing->room ||
	    (walk->is_granted ? listing->held >= wanted->holders : waits >= wanted->waiters))
		return;
	fill(&entry, &walk->ticket, walk->kv.key, walk->queue_len);
	if (walk->is_granted && wanted->only && strcmp(wanted->only, entry.party) != 0)
		return;
	if (walk->ticket.client[0])
		snprintf(entry.id, sizeof(entry.id), "%s%s %lld", walk->ticket.client,
		         walk->ticket.nonce, (long long)walk->ticket.created);
	entry.permits = walk->permits;
	if (walk->is_granted) {
		note_lease(shown, walk->kv.lease);
		entry.left_ms = left_of(shown, walk->kv.lease);
		listing->held++;
	} else {
		entry.fence = 0;
	}
	listing->entries[listing->count++] = entry;
}

/* The noun's lease is kept for longer than its time to live. */
static void see_size(struct lk__listing *listing, const struct lk__etcd_noun *noun, int64_t left_ms)
{
	listing->store_us = LK__ETCD_LATE_US;
	listing->has_no_clock = true;
	listing->capacity = noun->capacity;
	listing->ttl_ms = left_ms && left_ms < noun->ttl_ms ? left_ms : noun->ttl_ms;
	listing->rank = -1;
}

bool lk__etcd_see_permits(const struct lk__etcd_queue *queue, const struct lk__etcd_wanted *wanted,
                          const void *answer, size_t len, struct lk__etcd_shown_permits *shown,
                          struct lk__listing *listing)
{
	char queue_key[LK__ETCD_KEY_MAX];
	struct lk__etcd_range_answer tickets, noun_range, lock, latch;
	struct lk__etcd_walk walk = {0};
	struct lk__etcd_noun noun = {0};
	struct lk__pb_list responses;
	struct lk__etcd_kv kv;

	if (!read_txn(answer, len, &responses) || !next_range(&responses, &tickets) ||
	    !next_range(&responses, &noun_range) || !next_range(&responses, &lock) ||
	    !next_range(&responses, &latch))
		return false;
	shown->is_there = lk__pb_next(&noun_range.kvs, &kv) && lk__etcd_read_noun(&noun, &kv);
	shown->is_other_kind = !shown->is_there && (lock.count > 0 || latch.count > 0);
	note_lease(shown, noun.lease);
	walk.kvs = tickets.kvs;
	walk.capacity = noun.capacity;
	walk.granted_to = noun.granted_to;
	walk.queue_len = lk__etcd_queue_key(queue_key, queue->prefix, LK__ETCD_SEMAPHORE,
	                                    queue->name, queue->name_len);
	see_size(listing, &noun, left_of(shown, noun.lease));
	while (lk__etcd_walk(&walk)) {
		if (*wanted->nonce && strcmp(walk.ticket.nonce, wanted->nonce) == 0 &&
		    strcmp(walk.ticket.client, queue->client) == 0 && !walk.is_granted)
			listing->rank = listing->waiting;
		if (walk.is_granted) {
			listing->holders++;
			listing->used += walk.permits;
		} else {
			listing->waiting++;
		}
		add_entry(wanted, &walk, shown, listing);
	}
	listing->waiting = tickets.count - listing->holders;
	return true;
}

bool lk__etcd_read_entry_id(struct lk__etcd_ticket *ticket, const char *id)
{
	const size_t len = CLIENT_LEN + LK__NONCE_SIZE - 1;

	if (!id || strlen(id) < len + 2 || id[len] != ' ')
		return false;
	lk__etcd_read_ticket(ticket, (struct lk__bytes){id, len}, 0);
	return ticket->client[0] &&
	       lk__parse_i64(id + len + 1, strlen(id) - len - 1, 1, INT64_MAX, &ticket->created);
}

/* ---- Names ---------------------------------------------------------------------------------- */

bool lk__etcd_see_kind(const void *answer, size_t len, lk_kind *kind)
{
	static const lk_kind kinds[] = {LK_KIND_LOCK, LK_KIND_SEMAPHORE, LK_KIND_SEMAPHORE,
	                                LK_KIND_LATCH};
	struct lk__etcd_range_answer range;
	struct lk__pb_list responses;

	*kind = LK_KIND_NONE;
	if (!read_txn(answer, len, &responses))
		return false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!next_range(&responses, &range))
			return false;
		if (range.count > 0 && *kind == LK_KIND_NONE)
			*kind = kinds[i];
	}
	return true;
}

/* Add the name that is encoded there, unless it was added last.  False when out of memory. */
static bool add_name(struct lk__names *names, const char *text, size_t len)
{
	struct lk__listed_name *name = malloc(sizeof(*name) + len + 1);
	const struct lk__listed_name *last = names->count ? names->list[names->count - 1] : NULL;

	if (!name || !lk__names_grow(names)) {
		free(name);
		return false;
	}
	if (lk__etcd_read_name(name->bytes, &name->len, text, len) &&
	    (!last || last->len != name->len || memcmp(last->bytes, name->bytes, name->len) != 0))
		names->list[names->count++] = name;
	else
		free(name);
	return true;
}

/* Let the cursor be the next key that can be one of ours: after a ticket, the end of its queue,
 * which may be long; otherwise the key with the least byte that a name has.  What no key of ours
 * has is skipped. */
static void advance(struct lk__names *names, struct lk__bytes key, size_t head, size_t queue_len)
{
	char before[LK__CURSOR_SIZE];
	size_t len = queue_len ? queue_len : key.len;
	bool is_first = strcmp(names->cursor, "0") == 0;
	const char *text = key.data;

	memcpy(before, names->cursor, sizeof(before));
	for (size_t i = head; i < len; i++) {
		if ((unsigned char)text[i] <= ' ' || i == LK__ETCD_KEY_MAX) {
			len = i;
			queue_len = 0;
		}
	}
	memcpy(names->cursor, text, len);
	if (queue_len)
		lk__etcd_range_end(names->cursor, len);
	else
		names->cursor[len++] = '!';
	names->cursor[len] = '\0';
	if (!is_first && strcmp(names->cursor, before) <= 0)
		memcpy(names->cursor, "0", 2);
}

lk_err lk__etcd_see_list(const char *prefix, const void *answer, size_t len,
                         struct lk__names *names)
{
	size_t head = strlen(prefix) + 2; /* prefix, '/', kind */
	struct lk__etcd_range_answer range;
	struct lk__pb_list responses;
	struct lk__etcd_kv kv = {0};
	size_t queue_len = 0;

	if (!read_txn(answer, len, &responses) || !next_range(&responses, &range))
		return LK_ESERVER;
	while (lk__pb_next(&range.kvs, &kv)) {
		const char *text = kv.key.data, *end = text + kv.key.len, *name, *slash;

		queue_len = 0;
		if (kv.key.len <= head)
			continue;
		name = text + head;
		if (*name == '/') {
			name++;
			slash = memchr(name, '/', (size_t)(end - name));
			if (!slash)
				continue;
			queue_len = (size_t)(slash + 1 - text);
			end = slash;
		}
		if (end > name && !add_name(names, name, (size_t)(end - name)))
			return LK_ENOMEM;
	}
	if (range.more && kv.key.len)
		advance(names, kv.key, head, queue_len);
	else
		memcpy(names->cursor, "0", 2);
	return LK_OK;
}

/* ---- Details of clients --------------------------------------------------------------------- */

static size_t put_field(char *text, size_t pos, const char *key, const char *value)
{
	size_t len = strlen(value);

	text[pos++] = ' ';
	while (*key)
		text[pos++] = *key++;
	return pos + lk__name_encode(text + pos, value, len < FIELD_MAX ? len : FIELD_MAX);
}

size_t lk__etcd_details_write(char text[LK__ETCD_DETAILS_MAX], const struct lk__details *details)
{
	const char *const fields[][2] = {
		{"host=", details->host},
		{"user=", details->user},
		{"program=", details->program},
		{"label=", details->label},
	};
	char pid[LK__DECIMAL_SIZE];
	size_t pos = 1;

	text[0] = '1';
	text[1] = '\0';
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (fields[i][1])
			pos = put_field(text, pos, fields[i][0], fields[i][1]);
	if (details->pid) {
		lk__decimal(pid, details->pid);
		pos = put_field(text, pos, "pid=", pid);
	}
	return pos;
}

/* The field of that key, escaped; out stays if there is none. */
static void read_field(char *out, size_t size, struct lk__bytes text, const char *key)
{
	const char *at = text.data, *end = at + text.len;
	size_t key_len = strlen(key), value_len;
	char value[3 * FIELD_MAX + 1];

	while ((at = memchr(at, ' ', (size_t)(end - at)))) {
		const char *next;
		at++;
		next = memchr(at, ' ', (size_t)(end - at));
		value_len = (size_t)((next ? next : end) - at);
		if (value_len < key_len || memcmp(at, key, key_len) != 0 ||
		    value_len - key_len >= sizeof(value))
			continue;
		if (lk__name_decode(value, &value_len, at + key_len, value_len - key_len))
			lk__escape(out, size, value, value_len);
		return;
	}
}

static void read_details(lk_party *party, struct lk__bytes text)
{
	char pid[LK__DECIMAL_SIZE] = "";

	if (!text.len || *(const char *)text.data != '1')
		return; /* of a newer version */
	read_field(party->host, sizeof(party->host), text, "host=");
	read_field(party->user, sizeof(party->user), text, "user=");
	read_field(party->program, sizeof(party->program), text, "program=");
	read_field(party->label, sizeof(party->label), text, "label=");
	read_field(pid, sizeof(pid), text, "pid=");
	lk__parse_i64(pid, strlen(pid), 0, INT64_MAX, &party->pid);
}

void lk__etcd_see_describe(const void *answer, size_t len, lk_party *party)
{
	struct lk__etcd_range_answer range;
	struct lk__pb_list responses;
	struct lk__etcd_kv kv;

	if (!read_txn(answer, len, &responses))
		return;
	while (next_range(&responses, &range)) /* the label of the name comes last */
		if (lk__pb_next(&range.kvs, &kv))
			read_details(party, kv.value);
}

bool lk__etcd_client_of(char client[LK__CLIENT_ID_SIZE], const char *party)
{
	if (strlen(party) != CLIENT_LEN + LK__NONCE_SIZE + LK__MARK_SIZE - 1 ||
	    party[CLIENT_LEN] != ':')
		return false;
	memcpy(client, party, CLIENT_LEN);
	client[CLIENT_LEN] = '\0';
	return true;
}
