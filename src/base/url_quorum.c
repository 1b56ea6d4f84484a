/* SPDX-License-Identifier: MIT
 * The URL of a quorum: all of its independent servers, of which a majority decides.  They share one
 * user, one password and one database. */
#include "url_option.h"

#include "text.h"

#include <stdio.h>

lk_err lk__url_parse_quorum(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	char place[LK__PLACE_SIZE], text[LK__PLACE_SIZE + sizeof(",...")];
	lk_err err = lk__url_check_path(parse, path);

	target->quorum = true;
	target->grace_ms = 0;
	if (err == LK_OK)
		err = lk__url_take_userinfo(parse, &authority, false);
	if (err == LK_OK)
		err = lk__url_set_places(parse, authority, LK__MEMBERS_MAX, LK__DEFAULT_PORT,
		                         "server", &target->members, &target->member_count);
	if (err == LK_OK && target->member_count % 2 == 0)
		err = WRONG(parse,
		            "host: %d servers bear no more failures than %d: must be an odd number",
		            target->member_count, target->member_count - 1);
	if (err != LK_OK)
		return err;
	lk__place_write(place, sizeof(place), target->members[0].host, target->members[0].port);
	snprintf(text, sizeof(text), "%s%s", place, target->member_count > 1 ? ",..." : "");
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
	return lk__url_set_db(parse, span_skip(path, path.len > 0));
}
