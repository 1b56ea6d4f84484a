/* SPDX-License-Identifier: MIT
 * The store in Redis: the names in a reply to SCAN. */
#include "../base/text.h"
#include "codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Add the name in prefix:{name} or prefix:{name}:q; skips other keys, which never exist without one
 * of these.  False when out of memory. */
static bool add_name(struct lk__names *names, const struct lk__space *space,
                     const struct lk__resp *key)
{
	size_t head = strlen(space->prefix) + 2;
	struct lk__listed_name *name;
	const char *end;

	if (key->type != LK__RESP_STRING || key->len < head + 2 ||
	    !(end = memchr(key->str, '}', key->len)) || (size_t)(end - key->str) < head)
		return true;
	if (strcmp(end + 1, "") != 0 && strcmp(end + 1, ":q") != 0)
		return true;
	if (!lk__names_grow(names) || !(name = malloc(sizeof(*name) + key->len + 1)))
		return false;
	if (lk__name_decode(name->bytes, &name->len, key->str + head,
	                    (size_t)(end - key->str) - head))
		names->list[names->count++] = name;
	else
		free(name);
	return true;
}

lk_err lk__codec_names(const struct lk__resp *resp, const struct lk__space *space,
                       struct lk__names *names)
{
	const struct lk__resp *keys;

	if (resp->type != LK__RESP_ARRAY || resp->len != 2 ||
	    resp->elements[0]->type != LK__RESP_STRING || resp->elements[1]->type != LK__RESP_ARRAY)
		return LK_ESERVER;
	keys = resp->elements[1];
	for (size_t i = 0; i < keys->len; i++)
		if (!add_name(names, space, keys->elements[i]))
			return LK_ENOMEM;
	snprintf(names->cursor, sizeof(names->cursor), "%s", resp->elements[0]->str);
	return LK_OK;
}
