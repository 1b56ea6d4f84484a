/* SPDX-License-Identifier: MIT
 * The verb doctor: is this server fit for locks? */
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <stdio.h>

static void print_finding(void *arg, const lk_finding *finding)
{
	static const char *const words[] = {"ok", "warning", "unfit"};
	const struct options *options = arg;

	if (options->quiet && finding->fitness == LK_FIT)
		return;
	printf("%-8s %-12s %s\n", words[finding->fitness], finding->topic, finding->text);
	if (finding->cure[0])
		printf("%-21s cure: %s\n", "", finding->cure);
	fflush(stdout);
}

/* The library examines the URL it gets; only the command knows that the user named no store. */
static void judge_default(struct options *options, lk_fitness *worst)
{
	const lk_finding finding = {
		.fitness = LK_FIT_WARN,
		.topic = "store",
		.text = "no store is named: local: does not lock between machines",
		.cure = "set LATCHKEY_URL (local: if that is meant); LATCHKEY_NO_LOCAL=1, or the "
			"word none in /etc/latchkey/url, forbids the default",
	};

	print_finding(options, &finding);
	if (*worst < LK_FIT_WARN)
		*worst = LK_FIT_WARN;
}

int verb_doctor(const struct options *options)
{
	static const char *const verdicts[] = {"fit for locks", "fit for locks, with warnings",
	                                       "not fit for locks"};
	struct options copy = *options;
	lk_fitness worst;
	struct store store;
	lk_err err;
	int status;

	if (!store_find(&store, options, &status))
		return status;
	err = lk_doctor(store.url, &store.client, print_finding, &copy, &worst);
	store_judge(&store, err);
	if (err != LK_OK) {
		say("cannot examine the store: %s", store_errmsg(&store));
		return status_of(err);
	}
	if (store.by_default)
		judge_default(&copy, &worst);
	if (!options->quiet)
		printf("%s\n", verdicts[worst]);
	return (int)worst;
}
