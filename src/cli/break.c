/* SPDX-License-Identifier: MIT
 * The verb break: end the hold of another client. */
#include "look.h"
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <inttypes.h>
#include <string.h>

#define HOLDERS_LISTED 20

/* A semaphore has several holders, and the user named none. */
static void print_holders(const struct look *look, const char *name)
{
	char party[1024];

	say("cannot break \"%s\": %" PRId64 " holders, choose one with --if-holder", name,
	    look->semaphore.holders);
	for (size_t i = 0; i < look->holder_count && i < HOLDERS_LISTED; i++)
		say("  %s  %s, permits: %" PRId64, look->holders[i].party.id,
		    text_party(party, sizeof(party), &look->holders[i].party),
		    look->holders[i].permits);
	if (look->holder_count > HOLDERS_LISTED)
		say("  more: latchkey show");
}

/* Is the holder another program, as on etcd with etcdctl?  Ids of this library's holds have two
 * parts. */
static bool is_foreign(lk_lock *lock)
{
	lk_lock_status status;

	return lk_lock_query(lock, &status) == LK_OK && status.held &&
	       !strchr(status.holder.id, ':');
}

static int report_result(const struct options *options, const char *name, lk_kind kind, lk_err err,
                         bool foreign)
{
	if (err == LK_OK) {
		if (!options->quiet)
			say("%s\"%s\" was broken; the former holder%s may still be working",
			    kind == LK_KIND_SEMAPHORE ? "a hold on " : "", name,
			    foreign ? ", which is not Latchkey and is not notified," : "");
		return 0;
	}
	if (err == LK_EABSENT || err == LK_EMISMATCH) {
		say("cannot break \"%s\": %s", name,
		    err != LK_EMISMATCH         ? "not held"
		    : kind == LK_KIND_SEMAPHORE ? "no hold has this id"
		                                : "the holder is another");
		return STATUS_OTHERWISE;
	}
	say("cannot break \"%s\": %s", name, lk_errmsg());
	return status_of(err);
}

static int break_lock(const struct options *options, const char *name, lk_client *client)
{
	lk_lock *lock;
	lk_err err = lk_lock_open(client, options->name, 0, NULL, &lock);
	bool foreign = err == LK_OK && is_foreign(lock);

	if (err == LK_OK)
		err = lk_lock_break(lock, options->if_holder);
	return report_result(options, name, LK_KIND_LOCK, err, foreign);
}

static int break_semaphore(const struct options *options, const char *name, lk_client *client)
{
	static struct look look;
	lk_semaphore *semaphore;
	lk_semaphore_options any = {0};
	lk_err err = lk_semaphore_open(client, options->name, 0, &any, &semaphore);
	int status;

	if (err == LK_OK)
		err = lk_semaphore_break(semaphore, options->if_holder);
	if (err == LK_EMISMATCH && !options->if_holder &&
	    look_at(&look, client, options->name, 0, true) == LK_OK) {
		print_holders(&look, name);
		status = STATUS_OTHERWISE;
	} else {
		status = report_result(options, name, LK_KIND_SEMAPHORE, err, false);
	}
	look_fini(&look);
	return status;
}

int verb_break(const struct options *options)
{
	char name[NAME_TEXT_SIZE];
	struct store store;
	lk_client *client = NULL;
	lk_kind kind;
	int status;
	lk_err err;

	if (!store_find(&store, options, &status))
		return status;
	text_escape(name, sizeof(name), options->name, strlen(options->name));
	err = store_open(&store, &client);
	if (err == LK_OK)
		err = lk_client_name_kind(client, options->name, 0, &kind);
	if (err != LK_OK) {
		say("cannot break \"%s\": %s", name, store_errmsg(&store));
		status = status_of(err);
	} else if (kind == LK_KIND_SEMAPHORE) {
		status = break_semaphore(options, name, client);
	} else if (kind == LK_KIND_LATCH) {
		say("cannot break \"%s\": a latch has no holder; \"latchkey latch "
		    "down\" counts it down, \"latchkey latch rm\" removes it",
		    name);
		status = STATUS_OTHERWISE;
	} else {
		status = break_lock(options, name, client);
	}
	lk_client_close(client);
	return status;
}
