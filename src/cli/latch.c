/* SPDX-License-Identifier: MIT
 * The verbs latch set, reset, down, wait, show and rm. */
#include "acquire.h"
#include "look.h"
#include "say.h"
#include "signals.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct latch {
	const struct options *options;
	char name[NAME_TEXT_SIZE]; /* for messages */
	struct store store;
	lk_client *client;
	lk_latch *handle;
};

/* False after an error, which is reported: *status is the exit status. */
static bool latch_open(struct latch *latch, const struct options *options, const char *does,
                       int *status)
{
	lk_latch_options settings = {0};
	lk_err err;

	latch->options = options;
	text_escape(latch->name, sizeof(latch->name), options->name, strlen(options->name));
	if (!store_find(&latch->store, options, status))
		return false;
	settings.counting_ttl_ms = options->ttl_ms;
	settings.open_ttl_ms = options->open_ttl_ms;
	err = store_open(&latch->store, &latch->client);
	if (err == LK_OK)
		err = lk_latch_open(latch->client, options->name, 0, &settings, &latch->handle);
	if (err == LK_OK)
		return true;
	say("cannot %s \"%s\": %s", does, latch->name, store_errmsg(&latch->store));
	lk_client_close(latch->client);
	*status = status_of(err);
	return false;
}

static int report_error(const struct latch *latch, const char *does, lk_err err)
{
	if (err != LK_OK)
		say("cannot %s \"%s\": %s", does, latch->name,
		    err == LK_EABSENT ? "no such latch" : lk_errmsg());
	return status_of(err);
}

int verb_latch_set(const struct options *options)
{
	static struct latch latch;
	bool reset = options->verb == VERB_LATCH_RESET;
	const char *does = reset ? "reset" : "set";
	lk_latch_state was;
	int status;
	lk_err err;

	if (!latch_open(&latch, options, does, &status))
		return status;
	err = reset ? lk_latch_reset(latch.handle, options->count, &was)
	            : lk_latch_set(latch.handle, options->count, &was);
	if (err == LK_EMISMATCH) {
		status = STATUS_BUSY;
		if (!options->quiet)
			say("cannot set \"%s\": %s", latch.name, lk_errmsg());
	} else {
		status = report_error(&latch, does, err);
	}
	/* "absent" would look like the outcome. */
	if (err == LK_OK && !options->quiet && was != LK_LATCH_ABSENT)
		printf("%s\n", lk_latch_state_name(was));
	lk_client_close(latch.client);
	return status;
}

int verb_latch_down(const struct options *options)
{
	static struct latch latch;
	lk_latch_step step;
	int status;
	lk_err err;

	if (!latch_open(&latch, options, "count down", &status))
		return status;
	err = lk_latch_down(latch.handle, options->count, options->step, 0, &step);
	status = report_error(&latch, "count down", err);
	if (err == LK_OK && !options->quiet)
		printf("%" PRId64 "\n", step.remaining);
	if (err == LK_OK && options->verbose && !step.counted)
		say("\"%s\" was open, or this step had been counted before", latch.name);
	lk_client_close(latch.client);
	return status;
}

int verb_latch_rm(const struct options *options)
{
	static struct latch latch;
	int status;

	if (!latch_open(&latch, options, "remove", &status))
		return status;
	status = report_error(&latch, "remove", lk_latch_remove(latch.handle));
	lk_client_close(latch.client);
	return status;
}

int verb_latch_show(const struct options *options)
{
	static struct latch latch;
	struct look look = {.kind = LK_KIND_LATCH};
	int status;
	lk_err err;

	if (!latch_open(&latch, options, "show", &status))
		return status;
	err = lk_latch_query(latch.handle, &look.latch);
	status = report_error(&latch, "show", err);
	if (err == LK_OK && options->json) {
		look_json(&look, text_ascii(latch.name, sizeof(latch.name), options->name,
		                            strlen(options->name)));
		putchar('\n');
	} else if (err == LK_OK) {
		look_print(&look, latch.name);
	}
	lk_client_close(latch.client);
	return status;
}

static int report_not_open(const struct acquire *acquire)
{
	const struct options *options = acquire->hold.options;
	char name[NAME_TEXT_SIZE];
	int status = status_of(acquire->err);

	text_escape(name, sizeof(name), options->name, strlen(options->name));
	if (status != STATUS_BUSY) {
		say("cannot wait for \"%s\": %s", name, acquire->message);
		return status;
	}
	if (!options->quiet)
		say("latch \"%s\" is not open", name);
	return options->busy_status;
}

int verb_latch_wait(const struct options *options)
{
	static struct store store;
	static struct acquire acquire;
	int status = 0;

	if (!store_find(&store, options, &status))
		return status;
	if (!signals_take()) {
		say("cannot start: %s", strerror(errno));
		return STATUS_SYSTEM;
	}
	acquire.store = &store;
	acquire.hold.options = options;
	acquire_run(&acquire, NULL, NULL);
	if (!acquire.signal)
		status = acquire.err == LK_OK ? 0 : report_not_open(&acquire);
	acquire_close(&acquire);
	if (acquire.signal)
		signals_die(acquire.signal, false);
	return status;
}
