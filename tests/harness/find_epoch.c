/* SPDX-License-Identifier: MIT
 * The marker of a memory: see find_epoch.h. */
#include "find_epoch.h"

#include <stdlib.h>

static struct lk__resp *ask(struct lua_store *store, const struct lk__space *space,
                            const struct lk__epoch *epoch, bool by_text)
{
	const struct lk__request request = {.kind = LK__EPOCH, .by_text = by_text, .epoch = epoch};
	struct lk__buf bytes = {0}, reply = {0};
	struct lk__resp *resp;

	if (!lk__codec_request(&bytes, space, &request))
		abort();
	lua_store_run(store, bytes.data, bytes.len, &reply);
	resp = lua_store_parse(&reply);
	lk__buf_fini(&bytes);
	lk__buf_fini(&reply);
	return resp;
}

void find_epoch(struct lua_store *store, const struct lk__space *space, struct lk__epoch *epoch)
{
	struct lk__resp *resp = ask(store, space, epoch, false);
	struct lk__epoch found = {0};

	if (lk__codec_unknown_script(resp)) {
		lk__resp_free(resp);
		resp = ask(store, space, epoch, true);
	}
	if (!lk__codec_epoch(resp, &found))
		abort();
	lk__resp_free(resp);
	*epoch = found;
}

void link_up(struct lua_store *store, const struct lk__space *space, struct lk__core *core,
             struct lk__session *session, int64_t now_ns)
{
	struct lk__epoch epoch = session->epoch;

	find_epoch(store, space, &epoch);
	lk__core_memory(core, session, now_ns, &epoch);
	lk__core_link_up(core, session, now_ns);
}
