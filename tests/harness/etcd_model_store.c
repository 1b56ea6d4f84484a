/* SPDX-License-Identifier: MIT
 * The keys of the model of etcd, with their history: see etcd_model.h.  Records are ordered by
 * revision and linked to the one before of their key; a list of all keys is ordered by name. */
#include "etcd_model_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Arrays that grow -------------------------------------------------------------------------
 */

static void grow(struct em_vec *vec, size_t count)
{
	if (count <= vec->room)
		return;
	vec->room = count * 2 + 16;
	vec->data = realloc(vec->data, vec->room * vec->size);
	if (!vec->data)
		abort();
}

void *em_vec_add(struct em_vec *vec)
{
	char *element;

	grow(vec, vec->count + 1);
	element = (char *)vec->data + vec->count++ * vec->size;
	memset(element, 0, vec->size);
	return element;
}

void em_vec_remove(struct em_vec *vec, size_t index)
{
	char *at = (char *)vec->data + index * vec->size;

	vec->count--;
	memmove(at, at + vec->size, (vec->count - index) * vec->size);
}

void em_vec_copy(struct em_vec *vec)
{
	const void *data = vec->data;

	vec->data = NULL;
	vec->room = 0;
	grow(vec, vec->count);
	if (vec->count)
		memcpy(vec->data, data, vec->count * vec->size);
}

size_t em_vec_append(struct em_vec *vec, const void *data, size_t len)
{
	size_t at = vec->count;

	grow(vec, at + len);
	if (len)
		memcpy((char *)vec->data + at, data, len);
	vec->count += len;
	return at;
}

/* ---- Bytes ------------------------------------------------------------------------------------
 */

int em_bytes_order(struct lk__bytes one, struct lk__bytes other)
{
	size_t len = one.len < other.len ? one.len : other.len;
	int order = len ? memcmp(one.data, other.data, len) : 0;

	return order ? order : (one.len > other.len) - (one.len < other.len);
}

static bool is_zero(struct lk__bytes end)
{
	return end.len == 1 && *(const char *)end.data == '\0';
}

bool em_in_range(struct lk__bytes key, struct lk__bytes from, struct lk__bytes end)
{
	if (!end.len)
		return lk__bytes_equal(key, from);
	return em_bytes_order(key, from) >= 0 && (is_zero(end) || em_bytes_order(key, end) < 0);
}

/* ---- The store --------------------------------------------------------------------------------
 */

void em_store_init(struct em_store *store)
{
	*store = (struct em_store){.bytes.size = 1,
	                           .records.size = sizeof(struct em_record),
	                           .keys.size = sizeof(size_t),
	                           .found.size = sizeof(size_t),
	                           .revision = 1,
	                           .compacted = -1};
}

void em_store_copy(struct em_store *store)
{
	em_vec_copy(&store->bytes);
	em_vec_copy(&store->records);
	em_vec_copy(&store->keys);
	em_vec_copy(&store->found);
}

void em_store_fini(struct em_store *store)
{
	free(store->bytes.data);
	free(store->records.data);
	free(store->keys.data);
	free(store->found.data);
}

struct lk__bytes em_store_bytes(const struct em_store *store, struct em_span span)
{
	return (struct lk__bytes){EM_AT(store->bytes, unsigned char, span.at), span.len};
}

int64_t em_store_read_revision(const struct em_store *store)
{
	return store->revision + store->has_changed;
}

static struct em_record *record_at(const struct em_store *store, size_t index)
{
	return EM_AT(store->records, struct em_record, index);
}

static struct em_record *last_of(const struct em_store *store, size_t key)
{
	return record_at(store, *EM_AT(store->keys, size_t, key));
}

/* The first of the keys that is not before that name. */
static size_t first_key(const struct em_store *store, struct lk__bytes name)
{
	size_t low = 0, high = store->keys.count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (em_bytes_order(em_store_bytes(store, last_of(store, middle)->key), name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct em_record *em_store_as_of(const struct em_store *store, struct em_record *record,
                                 int64_t revision)
{
	while (record->mod > revision && record->previous)
		record = record_at(store, record->previous - 1);
	return record->mod > revision || !record->version ? NULL : record;
}

size_t em_store_scan(struct em_store *store, struct lk__bytes key, struct lk__bytes end,
                     int64_t revision)
{
	store->found.count = 0;
	for (size_t i = first_key(store, key); i < store->keys.count; i++) {
		struct em_record *record = last_of(store, i);
		if (!em_in_range(em_store_bytes(store, record->key), key, end))
			break;
		record = em_store_as_of(store, record, revision);
		if (record)
			*(size_t *)em_vec_add(&store->found) =
				(size_t)(record - record_at(store, 0));
	}
	return store->found.count;
}

struct em_record *em_store_found(const struct em_store *store, size_t index)
{
	return record_at(store, *EM_AT(store->found, size_t, index));
}

struct em_record *em_store_find(const struct em_store *store, struct lk__bytes key,
                                int64_t revision)
{
	size_t at = first_key(store, key);

	if (at == store->keys.count ||
	    !lk__bytes_equal(em_store_bytes(store, last_of(store, at)->key), key))
		return NULL;
	return em_store_as_of(store, last_of(store, at), revision);
}

/* ---- Changes ----------------------------------------------------------------------------------
 */

static struct em_span keep(struct em_store *store, struct lk__bytes bytes)
{
	size_t at = em_vec_append(&store->bytes, bytes.data, bytes.len);

	return (struct em_span){at, bytes.len};
}

/* A record of the coming revision, which is its key's last one. */
static struct em_record *add_record(struct em_store *store, size_t key)
{
	size_t *last = EM_AT(store->keys, size_t, key);
	struct em_record *record = em_vec_add(&store->records);

	if (*last != SIZE_MAX) {
		record->key = record_at(store, *last)->key;
		record->previous = *last + 1;
	}
	record->mod = store->revision + 1;
	*last = store->records.count - 1;
	store->has_changed = true;
	return record;
}

struct em_record *em_store_put(struct em_store *store, struct lk__bytes key, struct lk__bytes value,
                               int64_t lease)
{
	size_t at = first_key(store, key);
	bool is_known = at < store->keys.count &&
	                lk__bytes_equal(em_store_bytes(store, last_of(store, at)->key), key);
	struct em_record *record, *before;

	if (!is_known) {
		size_t *keys;
		em_vec_add(&store->keys);
		keys = store->keys.data;
		memmove(keys + at + 1, keys + at, (store->keys.count - 1 - at) * sizeof(*keys));
		keys[at] = SIZE_MAX;
	}
	record = add_record(store, at);
	if (!is_known)
		record->key = keep(store, key);
	record->value = keep(store, value);
	record->lease = lease;
	before = record->previous ? record_at(store, record->previous - 1) : NULL;
	record->create = before && before->version ? before->create : record->mod;
	record->version = before ? before->version + 1 : 1;
	return record;
}

void em_store_delete(struct em_store *store, const struct em_record *record)
{
	add_record(store, first_key(store, em_store_bytes(store, record->key)));
}

bool em_store_commit(struct em_store *store)
{
	bool has_changed = store->has_changed;

	store->revision += has_changed;
	store->has_changed = false;
	return has_changed;
}

size_t em_store_since(const struct em_store *store, int64_t revision)
{
	size_t low = 0, high = store->records.count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (record_at(store, middle)->mod < revision)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* ---- Compaction -------------------------------------------------------------------------------
 */

/* Is the record what reads at the revision, or later, may still need? */
static bool is_needed(const struct em_record *record, const struct em_record *next,
                      int64_t revision)
{
	if (record->mod > revision)
		return true;
	return record->version && !(next && next->mod <= revision);
}

void em_store_compact(struct em_store *store, int64_t revision)
{
	struct em_store fresh;
	size_t count = store->records.count;
	/* Of each record: the one after it of its key, then its place in the new store; plus 1. */
	size_t *next = calloc(count + 1, 2 * sizeof(*next)), *places = next + count + 1;

	if (!next)
		abort();
	em_store_init(&fresh);
	for (size_t i = 0; i < count; i++)
		if (record_at(store, i)->previous)
			next[record_at(store, i)->previous - 1] = i + 1;
	for (size_t i = 0; i < count; i++) {
		const struct em_record *old = record_at(store, i);
		struct em_record *record;
		if (!is_needed(old, next[i] ? record_at(store, next[i] - 1) : NULL, revision))
			continue;
		record = em_vec_add(&fresh.records);
		*record = *old;
		record->previous = old->previous ? places[old->previous - 1] : 0;
		record->key = record->previous ? record_at(&fresh, record->previous - 1)->key
		                               : keep(&fresh, em_store_bytes(store, old->key));
		record->value = keep(&fresh, em_store_bytes(store, old->value));
		places[i] = fresh.records.count;
	}
	EM_EACH(size_t, last, store->keys)
	{
		if (places[*last])
			*(size_t *)em_vec_add(&fresh.keys) = places[*last] - 1;
	}
	fresh.revision = store->revision;
	fresh.compacted = revision;
	free(next);
	em_store_fini(store);
	*store = fresh;
}
