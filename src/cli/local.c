/* SPDX-License-Identifier: MIT
 * The verb local: the private server of local:, by hand. */
#include "say.h"
#include "status.h"
#include "verbs.h"

#include <latchkey.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
		printf("server  none is installed: install redis-server or valkey-server\n");
}

int verb_local(const struct options *options)
{
	static const char *const actions[] = {"start", "stop", "look at"};
	lk_local_info info = {0};
	lk_err err = LK_OK;

	switch (options->local) {
	case LOCAL_START:
		err = lk_local_start(&info);
		break;
	case LOCAL_STOP:
		err = lk_local_stop();
		if (err == LK_ENOTHELD) {
			if (!options->quiet)
				say("the server of local: was not running");
			return 0;
		}
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
