/* SPDX-License-Identifier: MIT
 * Names in the store: what each stands for, and which there are. */
#include "question.h"
#include "scripts.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT "500"

static const char *const kinds[] = {"nothing", "lock", "semaphore", "latch"};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* ---- Kinds -------------------------------------------------------------------------------- */

const char *lk_kind_name(lk_kind kind)
{
	return (size_t)kind < KINDS ? kinds[kind] : "unknown";
}

static lk_err ask_kind(struct lk_client *client, const char *name, size_t len, lk_kind *kind)
{
	struct lk__keys keys;
	const char *args[2] = {keys.main, keys.queue};
	struct lk__resp *resp;
	lk_err err;

	lk__space_keys(&client->space, name, len, &keys);
	if ((err = lk__question_script(client, &lk__script_name_kind, 2, args, &resp)))
		return err;
	for (size_t i = 0; i < KINDS; i++) {
		if (!lk__resp_says(resp, kinds[i]))
			continue;
		*kind = (lk_kind)i;
		lk__resp_free(resp);
		return LK_OK;
	}
	return lk__question_odd(client, resp);
}

lk_err lk_client_kind(lk_client *client, const char *name, size_t name_len, lk_kind *kind)
{
	size_t len = name_len || !name ? name_len : strlen(name);
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) || (err = lk__refuse_null(name, "name")) ||
	    (err = lk__refuse_null(kind, "kind")))
		return err;
	if (len < 1 || len > LK_NAME_MAX)
		return lk__failf(LK_EINVALID, "name: 1 to %d bytes, not %zu", LK_NAME_MAX, len);
	if ((err = lk__client_enter(client)))
		return err;
	err = ask_kind(client, name, len, kind);
	lk__wire_finish(client);
	lk__client_leave(client);
	return err;
}

/* ---- List --------------------------------------------------------------------------------- */

struct entry {
	size_t len;
	char bytes[];
};

struct names {
	struct entry **list;
	size_t count, cap;
};

static int compare(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
	int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

	return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* prefix:{name} or prefix:{name}:q; other keys, of which a name has none alone, are passed over. */
static bool add_key(struct names *names, const struct lk__space *space, const struct lk__resp *key)
{
	size_t head = strlen(space->prefix) + 2;
	struct entry *entry;
	const char *end;

	if (key->type != LK__RESP_STRING || key->len < head + 2 ||
	    !(end = memchr(key->str, '}', key->len)) || (size_t)(end - key->str) < head)
		return true;
	if (strcmp(end + 1, "") != 0 && strcmp(end + 1, ":q") != 0)
		return true;
	if (names->count == names->cap) {
		size_t cap = names->cap ? names->cap * 2 : 64;
		struct entry **list = realloc(names->list, cap * sizeof(*list));
		if (!list)
			return false;
		names->list = list;
		names->cap = cap;
	}
	entry = malloc(sizeof(*entry) + key->len + 1);
	if (!entry)
		return false;
	if (!lk__name_decode(entry->bytes, &entry->len, key->str + head,
	                     (size_t)(end - key->str) - head)) {
		free(entry);
		return true;
	}
	names->list[names->count++] = entry;
	return true;
}

static lk_err scan(struct lk_client *client, struct names *names)
{
	char cursor[32] = "0", pattern[48];
	const char *argv[6] = {"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT};

	snprintf(pattern, sizeof(pattern), "%s:{*}*", client->space.prefix);
	do {
		struct lk__buf buf = {0};
		struct lk__resp *resp;
		const struct lk__resp *keys;
		lk_err err =
			lk__question(client, &buf, lk__resp_command(&buf, 6, argv, NULL), &resp);

		if (err)
			return err;
		if (resp->type != LK__RESP_ARRAY || resp->len != 2 ||
		    resp->elements[0]->type != LK__RESP_STRING ||
		    resp->elements[1]->type != LK__RESP_ARRAY) {
			lk__resp_free(resp);
			return lk__failf(LK_ESERVER, "%s: answered SCAN with something else",
			                 client->target.text);
		}
		keys = resp->elements[1];
		for (size_t i = 0; i < keys->len && !err; i++)
			if (!add_key(names, &client->space, keys->elements[i]))
				err = lk__failf(LK_ENOMEM, "out of memory");
		snprintf(cursor, sizeof(cursor), "%s", resp->elements[0]->str);
		lk__resp_free(resp);
		if (err)
			return err;
	} while (strcmp(cursor, "0") != 0);
	return LK_OK;
}

lk_err lk_client_list(lk_client *client, lk_name_fn *fn, void *arg)
{
	struct names names = {0};
	bool go_on = true;
	lk_err err = lk__refuse_null(client, "client");

	if (!err && !fn)
		err = lk__failf(LK_EINVALID, "fn: must not be NULL");
	if (err || (err = lk__client_enter(client)))
		return err;
	err = scan(client, &names);
	lk__client_leave(client);
	if (!err && names.count)
		qsort(names.list, names.count, sizeof(*names.list), compare);
	for (size_t i = 0; i < names.count; i++) {
		struct entry *entry = names.list[i];
		if (!err && go_on && (i == 0 || compare(&names.list[i - 1], &names.list[i]) != 0))
			go_on = fn(arg, entry->bytes, entry->len);
	}
	for (size_t i = 0; i < names.count; i++)
		free(names.list[i]);
	free(names.list);
	return err;
}
