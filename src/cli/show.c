/* SPDX-License-Identifier: MIT
 * The verb show: holders and waiters, since when and in which order. */
#include "look.h"
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name {
	char *bytes;
	size_t len;
};

struct names {
	struct name *all;
	size_t count;
	size_t room;
	bool failed;
};

static bool collect(void *arg, const char *name, size_t len)
{
	struct names *names = arg;
	char *bytes;

	if (names->count == names->room) {
		size_t room = names->room ? 2 * names->room : 64;
		struct name *all = realloc(names->all, room * sizeof(*all));
		if (!all) {
			names->failed = true;
			return false;
		}
		names->all = all;
		names->room = room;
	}
	bytes = malloc(len + 1);
	if (!bytes) {
		names->failed = true;
		return false;
	}
	memcpy(bytes, name, len);
	names->all[names->count].bytes = bytes;
	names->all[names->count++].len = len;
	return true;
}

static int compare(const void *a, const void *b)
{
	const struct name *one = a, *other = b;
	int order = memcmp(one->bytes, other->bytes, one->len < other->len ? one->len : other->len);

	return order ? order : (one->len > other->len) - (one->len < other->len);
}

static lk_err show_one(lk_client *client, const struct options *options, struct look *look)
{
	char text[NAME_TEXT_SIZE];
	lk_err err = look_at(look, client, options->name, 0, true);

	if (err != LK_OK)
		return err;
	if (options->json) {
		look_json(look,
		          text_ascii(text, sizeof(text), options->name, strlen(options->name)));
		putchar('\n');
	} else {
		look_print(look,
		           text_escape(text, sizeof(text), options->name, strlen(options->name)));
	}
	return LK_OK;
}

/* Was it released or removed since the names were listed? */
static bool is_over(const struct look *look)
{
	return look->kind == LK_KIND_NONE ||
	       (look->kind == LK_KIND_LOCK && !look->lock.held && !look->lock.queue_len) ||
	       (look->kind == LK_KIND_LATCH && look->latch.state == LK_LATCH_ABSENT);
}

/* Names that are out of reach, while their slots move to another node of a Cluster: the others are
 * shown. */
struct unshown {
	size_t count;
	char first[NAME_TEXT_SIZE], why[512];
};

static void note_unshown(struct unshown *unshown, const struct name *name)
{
	if (unshown->count++)
		return;
	text_escape(unshown->first, sizeof(unshown->first), name->bytes, name->len);
	snprintf(unshown->why, sizeof(unshown->why), "%s", lk_errmsg());
}

static void say_unshown(const struct unshown *unshown)
{
	if (unshown->count > 1)
		say("cannot show %s and %zu more now: %s", unshown->first, unshown->count - 1,
		    unshown->why);
	else if (unshown->count)
		say("cannot show %s now: %s", unshown->first, unshown->why);
}

static lk_err show_names(lk_client *client, const struct options *options,
                         const struct names *names, struct look *look)
{
	char text[NAME_TEXT_SIZE];
	struct unshown unshown = {.count = 0};
	bool any = false;

	if (options->json)
		putchar('[');
	for (size_t i = 0; i < names->count; i++) {
		const struct name *name = &names->all[i];
		lk_err err = look_at(look, client, name->bytes, name->len, options->json);
		if (err == LK_EFOREIGN)
			continue; /* show NAME reports it */
		if (err == LK_EAGAIN) {
			note_unshown(&unshown, name);
			continue;
		}
		if (err != LK_OK)
			return err;
		if (is_over(look))
			continue;
		if (options->json) {
			fputs(any ? ",\n" : "", stdout);
			look_json(look, text_ascii(text, sizeof(text), name->bytes, name->len));
		} else {
			if (!any)
				look_row(NULL, NULL);
			look_row(look, text_escape(text, sizeof(text), name->bytes, name->len));
		}
		any = true;
	}
	if (options->json)
		puts("]");
	if (!any && unshown.count)
		return LK_EAGAIN;
	if (!any && !options->json && !options->quiet)
		say("no lock is held or waited for, and no semaphore or latch exists");
	say_unshown(&unshown);
	return LK_OK;
}

/* An empty list may mean that the server has forgotten holders. */
static void say_grace(lk_client *client)
{
	lk_memory memory;
	char grace[160];

	if (lk_client_memory(client, &memory) == LK_OK && memory.grace_ms)
		say("%s", text_grace(grace, sizeof(grace), memory.grace_ms, false));
}

static void say_master(lk_client *client)
{
	lk_server server;

	if (lk_client_server(client, &server) == LK_OK && server.service[0])
		say("service %s at %s", server.service, server.address);
}

static lk_err show_all(lk_client *client, const struct options *options, struct look *look)
{
	struct names names = {NULL, 0, 0, false};
	lk_err err = lk_client_names(client, collect, &names);

	if (err == LK_OK && names.failed)
		err = LK_ENOMEM;
	if (err == LK_OK && !options->quiet && !options->json) {
		say_master(client);
		say_grace(client);
	}
	if (err == LK_OK && names.count > 1)
		qsort(names.all, names.count, sizeof(struct name), compare);
	if (err == LK_OK)
		err = show_names(client, options, &names, look);
	else if (err == LK_EAUTH)
		say(strstr(lk_errmsg(), "scan") ? "cannot list names: grant +scan (%s)"
		                                : "cannot list names: %s",
		    lk_errmsg());
	for (size_t i = 0; i < names.count; i++)
		free(names.all[i].bytes);
	free(names.all);
	return err;
}

int verb_show(const struct options *options)
{
	static struct look look;
	lk_client *client = NULL;
	struct store store;
	int status;
	lk_err err;

	if (!store_find(&store, options, &status))
		return status;
	err = store_open(&store, &client);
	if (err == LK_OK)
		err = options->name ? show_one(client, options, &look)
		                    : show_all(client, options, &look);
	if (err != LK_OK && !(err == LK_EAUTH && client && !options->name))
		say("cannot show: %s", err == LK_ENOMEM ? lk_err_text(err) : store_errmsg(&store));
	lk_client_close(client);
	look_fini(&look);
	return status_of(err);
}
