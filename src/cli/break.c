/* SPDX-License-Identifier: MIT
 * The verb break: take a lock from its holder. */
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <string.h>

static int tell(const struct options *options, lk_err err)
{
	char name[NAME_TEXT_SIZE];

	text_escape(name, sizeof(name), options->name, strlen(options->name));
	if (err == LK_OK) {
		if (!options->quiet)
			say("\"%s\" was taken from its holder, who may still be at work", name);
		return 0;
	}
	if (err == LK_ENOTHELD || err == LK_EMISMATCH) {
		say("cannot break \"%s\": %s", name,
		    err == LK_ENOTHELD ? "nobody holds it" : "another holds it");
		return STATUS_OTHERWISE;
	}
	say("cannot break \"%s\": %s", name, lk_errmsg());
	return status_of(err);
}

int verb_break(const struct options *options)
{
	struct store store;
	lk_client *client = NULL;
	lk_lock *lock;
	int status;
	lk_err err;

	if (!store_find(&store, options, &status))
		return status;
	err = lk_client_open(store.url, &store.client, &client);
	if (err == LK_OK)
		err = lk_lock_open(client, options->name, NULL, &lock);
	if (err == LK_OK)
		err = lk_lock_break(lock, options->if_holder);
	status = tell(options, err);
	lk_client_close(client);
	return status;
}
