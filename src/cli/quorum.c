/* SPDX-License-Identifier: MIT
 * The verb quorum init: make a new quorum of servers that hold nothing yet. */
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

int verb_quorum(const struct options *options)
{
	struct store store;
	int status;
	lk_err err;

	if (!store_find(&store, options, &status))
		return status;
	err = lk_quorum_begin(store.url, &store.client, options->lease_ms);
	store_judge(&store, err);
	if (err == LK_OK) {
		if (!options->quiet)
			say("the servers are a quorum now");
		return 0;
	}
	say("cannot make a quorum: %s", store_errmsg(&store));
	return err == LK_EMISMATCH ? STATUS_OTHERWISE : status_of(err);
}
