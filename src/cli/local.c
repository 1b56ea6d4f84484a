/* SPDX-License-Identifier: MIT
 * The verb local: start, stop and show the private server of local:. */
#include "look.h"
#include "say.h"
#include "status.h"
#include "verbs.h"

#include <latchkey.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAMES_MAX 1000 /* limit of the count before a stop */

static const char *safe(char *out, size_t size, const char *text)
{
	return text_escape(out, size, text, strlen(text));
}

static void print_info(const lk_local_info *info)
{
	char path[4 * sizeof(info->socket_path)], server[4 * sizeof(info->server_path)];

	if (info->running)
		printf("running, pid %" PRId64 "\n", info->pid);
	else
		printf("not running\n");
	printf("socket  %s\n", safe(path, sizeof(path), info->socket_path));
	if (info->server_path[0])
		printf("server  %s\n", safe(server, sizeof(server), info->server_path));
	else
		printf("server  none (install redis-server or valkey-server)\n");
}

struct usage {
	lk_client *client;
	int names;
	int64_t locks, permits, latches; /* permits: and turns of a rate */
};

static bool count_name(void *arg, const char *name, size_t len)
{
	struct usage *usage = arg;
	struct look look = {0};

	lk_err err = look_at(&look, usage->client, name, len, false);

	if (err == LK_EFOREIGN)
		return true;
	if (err != LK_OK)
		return false; /* each further name would cost a command timeout */
	usage->locks += look.kind == LK_KIND_LOCK && look.lock.held;
	if (look.kind == LK_KIND_SEMAPHORE)
		usage->permits += look.semaphore.capacity - look.semaphore.available;
	usage->latches += look.kind == LK_KIND_LATCH && look.latch.state == LK_LATCH_COUNTING;
	return ++usage->names < NAMES_MAX;
}

/* Count the holds and latches that a stop will end.  A server that does not respond is stopped all
 * the same. */
static void count_usage(struct usage *usage)
{
	lk_client_options options = {.connect_timeout_ms = 1000, .command_timeout_ms = 1000};
	lk_local_info info;

	memset(usage, 0, sizeof(*usage));
	/* Connecting would start a server that is not running. */
	if (lk_local_status(&info) != LK_OK || !info.running ||
	    lk_client_open("local:", &options, &usage->client) != LK_OK)
		return;
	if (lk_client_names(usage->client, count_name, usage) != LK_OK)
		usage->names = 0;
	lk_client_close(usage->client);
}

static lk_err stop(const struct options *options)
{
	struct usage usage;
	lk_err err;

	if (!options->quiet)
		count_usage(&usage);
	err = lk_local_stop();
	if (err == LK_OK && !options->quiet && (usage.locks || usage.permits || usage.latches))
		say("local: server was stopped in use: locks held %" PRId64
		    ", permits and turns in use %" PRId64 ", latches counting %" PRId64 "%s",
		    usage.locks, usage.permits, usage.latches,
		    usage.names == NAMES_MAX ? ", or more" : "");
	if (err == LK_EABSENT) {
		if (!options->quiet)
			say("local: server was not running");
		err = LK_OK;
	}
	return err;
}

int verb_local(const struct options *options)
{
	static const char *const actions[] = {"start", "stop", "query"};
	lk_local_info info = {0};
	lk_err err = LK_OK;

	switch (options->local) {
	case LOCAL_START:
		err = lk_local_start(&info);
		break;
	case LOCAL_STOP:
		err = stop(options);
		break;
	case LOCAL_STATUS:
		err = lk_local_status(&info);
		break;
	}
	if (err != LK_OK) {
		say("cannot %s the server of local: %s", actions[options->local], lk_errmsg());
		return status_of(err);
	}
	if (options->local != LOCAL_STOP && !options->quiet)
		print_info(&info);
	return options->local == LOCAL_STATUS && !info.running ? STATUS_OTHERWISE : 0;
}
