/* SPDX-License-Identifier: MIT
 * The verb show: who holds what, since when, who waits and in which order. */
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITERS_SHOWN 1000

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

static void print_row(const char *name, const lk_lock_status *status)
{
	char holder[1024], since[32], left[32];

	if (status->held)
		printf("%-24s %-36s %8s %8s %7" PRId64 "\n", name,
		       text_party(holder, sizeof(holder), &status->holder),
		       text_duration(since, status->held_ms),
		       text_duration(left, status->lease_left_ms), status->queue_len);
	else
		printf("%-24s %-36s %8s %8s %7" PRId64 "\n", name, "-", "-", "-",
		       status->queue_len);
}

static void print_detail(const char *name, const lk_lock_status *status, const lk_party *waiters,
                         size_t count)
{
	char text[1024], time[32];

	printf("name     %s\n", name);
	if (status->held) {
		printf("held by  %s\n", text_party(text, sizeof(text), &status->holder));
		if (status->holder.user[0])
			printf("user     %s\n", status->holder.user);
		printf("holder   %s\n", status->holder.id);
		printf("for      %s\n", text_duration(time, status->held_ms));
		printf("lease    %s left\n", text_duration(time, status->lease_left_ms));
		printf("fence    %" PRIu64 "\n", status->fence);
	} else {
		printf("held by  nobody\n");
	}
	printf("waiting  %" PRId64 "\n", status->queue_len);
	for (size_t i = 0; i < count; i++)
		printf("%7zu  %s\n", i + 1, text_party(text, sizeof(text), &waiters[i]));
	if (status->queue_len > (int64_t)count && count == WAITERS_SHOWN)
		printf("    ...  and %" PRId64 " more\n", status->queue_len - (int64_t)count);
}

static void json_party(const lk_party *party)
{
	const struct {
		const char *key, *text;
	} fields[] = {
		{"{\"id\":", party->id},       {",\"host\":", party->host},
		{",\"user\":", party->user},   {",\"program\":", party->program},
		{",\"label\":", party->label},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		fputs(fields[i].key, stdout);
		json_string(stdout, fields[i].text);
	}
	printf(",\"pid\":%" PRId64 "}", party->pid);
}

static void json_lock(const char *name, const lk_lock_status *status, const lk_party *waiters,
                      size_t count)
{
	fputs("{\"name\":", stdout);
	json_string(stdout, name);
	printf(",\"held\":%s,\"holder\":", status->held ? "true" : "false");
	if (status->held) {
		json_party(&status->holder);
		printf(",\"fence\":%" PRIu64 ",\"held_seconds\":%" PRId64 ".%03d,"
		       "\"lease_left_seconds\":%" PRId64 ".%03d",
		       status->fence, status->held_ms / 1000, (int)(status->held_ms % 1000),
		       status->lease_left_ms / 1000, (int)(status->lease_left_ms % 1000));
	} else {
		fputs("null,\"fence\":null,\"held_seconds\":null,\"lease_left_seconds\":null",
		      stdout);
	}
	printf(",\"waiting\":%" PRId64 ",\"waiters\":[", status->queue_len);
	for (size_t i = 0; i < count; i++) {
		if (i)
			putchar(',');
		json_party(&waiters[i]);
	}
	fputs("]}", stdout);
}

/* One lock; its waiters, too, if there is room for them. */
static lk_err look(lk_client *client, const struct name *name, lk_lock_status *status,
                   lk_party *waiters, size_t *count)
{
	lk_lock_options options = {.name_len = name->len};
	lk_lock *lock;
	lk_err err = lk_lock_open(client, name->bytes, &options, &lock);

	if (err != LK_OK)
		return err;
	*count = 0;
	err = lk_lock_query(lock, status);
	if (err == LK_OK && waiters && status->queue_len > 0)
		err = lk_lock_waiters(lock, WAITERS_SHOWN, waiters, count);
	lk_lock_close(lock);
	return err;
}

static lk_err show_one(lk_client *client, const struct options *options, lk_party *waiters)
{
	struct name name = {NULL, strlen(options->name)};
	char text[NAME_TEXT_SIZE];
	lk_lock_status status;
	size_t count;
	lk_err err;

	name.bytes = strdup(options->name);
	if (!name.bytes)
		return LK_ENOMEM;
	err = look(client, &name, &status, waiters, &count);
	free(name.bytes);
	if (err != LK_OK)
		return err;
	text_escape(text, sizeof(text), options->name, strlen(options->name));
	if (options->json) {
		json_lock(text, &status, waiters, count);
		putchar('\n');
	} else {
		print_detail(text, &status, waiters, count);
	}
	return LK_OK;
}

static lk_err show_names(lk_client *client, const struct options *options,
                         const struct names *names, lk_party *waiters)
{
	char text[NAME_TEXT_SIZE];
	lk_lock_status status;
	size_t count;
	bool any = false;

	if (options->json)
		putchar('[');
	for (size_t i = 0; i < names->count; i++) {
		lk_err err = look(client, &names->all[i], &status, options->json ? waiters : NULL,
		                  &count);
		if (err == LK_EFOREIGN)
			continue; /* asked for by name it says so */
		if (err != LK_OK)
			return err;
		if (!status.held && !status.queue_len)
			continue; /* released meanwhile */
		text_escape(text, sizeof(text), names->all[i].bytes, names->all[i].len);
		if (options->json) {
			fputs(any ? ",\n" : "", stdout);
			json_lock(text, &status, waiters, count);
		} else {
			if (!any)
				printf("%-24s %-36s %8s %8s %7s\n", "NAME", "HELD BY", "FOR",
				       "LEASE", "WAITING");
			print_row(text, &status);
		}
		any = true;
	}
	if (options->json)
		puts("]");
	else if (!any && !options->quiet)
		say("no lock is held or waited for");
	return LK_OK;
}

static lk_err show_all(lk_client *client, const struct options *options, lk_party *waiters)
{
	struct names names = {NULL, 0, 0, false};
	lk_err err = lk_client_list(client, collect, &names);

	if (err == LK_OK && names.failed)
		err = LK_ENOMEM;
	if (err == LK_OK && names.count > 1)
		qsort(names.all, names.count, sizeof(struct name), compare);
	if (err == LK_OK)
		err = show_names(client, options, &names, waiters);
	else if (err == LK_EAUTH)
		say("cannot tell: grant +scan (%s)", lk_errmsg());
	for (size_t i = 0; i < names.count; i++)
		free(names.all[i].bytes);
	free(names.all);
	return err;
}

int verb_show(const struct options *options)
{
	lk_party *waiters = calloc(WAITERS_SHOWN, sizeof(*waiters));
	lk_client *client = NULL;
	struct store store;
	int status;
	lk_err err;

	if (!store_find(&store, options, &status)) {
		free(waiters);
		return status;
	}
	err = waiters ? lk_client_open(store.url, &store.client, &client) : LK_ENOMEM;
	if (err == LK_OK)
		err = options->name ? show_one(client, options, waiters)
		                    : show_all(client, options, waiters);
	if (err != LK_OK && !(err == LK_EAUTH && client && !options->name))
		say("cannot show: %s", err == LK_ENOMEM ? lk_err_text(err) : lk_errmsg());
	lk_client_close(client);
	free(waiters);
	return status_of(err);
}
