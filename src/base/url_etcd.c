/* SPDX-License-Identifier: MIT
 * The URL of etcd: members of its cluster, of which one at a time is used.  They share one user and
 * one password. */
#include "url_option.h"

#include "text.h"

#include <stdio.h>

#define DEFAULT_ETCD_PORT 2379

lk_err lk__url_parse_etcd(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	char place[LK__PLACE_SIZE], text[LK__PLACE_SIZE + sizeof(",...")];
	lk_err err = lk__url_check_path(parse, path);

	target->etcd = true;
	target->grace_ms = 0;
	if (err == LK_OK)
		err = lk__url_take_userinfo(parse, &authority, false);
	if (err == LK_OK)
		err = lk__url_set_places(parse, authority, LK__SEEDS_MAX, DEFAULT_ETCD_PORT,
		                         "member", &target->seeds, &target->seed_count);
	if (err != LK_OK)
		return err;
	if (path.len > 1)
		return WRONG(parse, "path: etcd has no databases (write ?prefix=NAME)");
	lk__place_write(place, sizeof(place), target->seeds[0].host, target->seeds[0].port);
	snprintf(text, sizeof(text), "%s%s", place, target->seed_count > 1 ? ",..." : "");
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
	return LK_OK;
}

/* Options that only make sense together, also if they come from a program.  Those that mean
 * something on Redis only are refused where they are read, whatever their values. */
lk_err lk__options_check_etcd(struct parse *parse)
{
	const struct lk__target *target = parse->target;

	if (!target->etcd)
		return LK_OK;
	if (target->password && !target->user)
		return WRONG(parse, "user: missing (etcd has no password without a user)");
	return LK_OK;
}
