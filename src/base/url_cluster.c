/* SPDX-License-Identifier: MIT
 * The URL of a Redis Cluster: some of its nodes, from which the client learns all others.  They
 * share one user and password. */
#include "url_option.h"

#include "text.h"

#include <stdio.h>

lk_err lk__url_parse_cluster(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	char place[LK__PLACE_SIZE], text[LK__PLACE_SIZE + sizeof(",...")];
	lk_err err = lk__url_check_path(parse, path);

	target->cluster = true;
	if (err == LK_OK)
		err = lk__url_take_userinfo(parse, &authority, false);
	if (err == LK_OK)
		err = lk__url_set_places(parse, authority, LK__SEEDS_MAX, LK__DEFAULT_PORT, "node",
		                         &target->seeds, &target->seed_count);
	if (err != LK_OK)
		return err;
	lk__place_write(place, sizeof(place), target->seeds[0].host, target->seeds[0].port);
	snprintf(text, sizeof(text), "%s%s", place, target->seed_count > 1 ? ",..." : "");
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
	return lk__url_set_db(parse, span_skip(path, path.len > 0));
}
