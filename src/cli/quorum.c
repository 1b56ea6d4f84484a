/* SPDX-License-Identifier: MIT
 * The verb quorum init: make a new quorum of servers that hold nothing yet. */
#include "say.h"
#include "status.h"
#include "store.h"
#include "value.h"
#include "verbs.h"

#include <latchkey.h>

/* Servers that had keys may have had holders. */
static void report_youth(struct store *store)
{
	lk_lock_status status;
	lk_client *client;
	lk_lock *lock;
	char time[32];
	lk_err err;

	if (lk_client_open(store->url, &store->client, &client) != LK_OK)
		return;
	err = lk_lock_open(client, "quorum", 0, NULL, &lock);
	if (err == LK_OK)
		err = lk_lock_query(lock, &status); /* writes nothing */
	if (err == LK_OK && status.grace_ms)
		say("a majority had data, and may have forgotten a holder: nothing is granted for "
		    "%s",
		    text_seconds(time, status.grace_ms));
	if (lk_client_close(client) != LK_OK)
		return;
}

static void report(struct store *store, int64_t longest_ms)
{
	char limit[VALUE_TIME_SIZE];

	say("the servers are a quorum now: no lease may be longer than %s seconds",
	    value_time(limit, longest_ms ? longest_ms : LONGEST_LEASE_MAX_MS));
	report_youth(store);
}

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
			report(&store, options->lease_ms);
		return 0;
	}
	say("cannot make a quorum: %s", store_errmsg(&store));
	return err == LK_EMISMATCH ? STATUS_OTHERWISE : status_of(err);
}
