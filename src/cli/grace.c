/* SPDX-License-Identifier: MIT
 * The verb grace: show the grace of the server's memory, and end it. */
#include "say.h"
#include "status.h"
#include "store.h"
#include "verbs.h"

#include <latchkey.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_memory(const lk_memory *memory)
{
	char id[4 * sizeof(memory->id)], time[32];

	printf("memory   %s\n", text_escape(id, sizeof(id), memory->id, strlen(memory->id)));
	if (memory->since_us)
		printf("for      %s\n", text_duration(time, memory->age_ms));
	if (memory->grace_ms)
		printf("grace    %s left\n", text_seconds(time, memory->grace_ms));
	else
		printf("grace    %s\n", memory->since_us ? "none" : "ended by hand, or not needed");
	if (memory->is_partial)
		printf("INFO     refused: a lost part of the memory is not noticed\n");
}

static void json_memory(const lk_memory *memory)
{
	fputs("{\"memory\":", stdout);
	json_string(stdout, memory->id);
	printf(",\"since_us\":%" PRId64 ",\"grace_seconds\":%" PRId64 ".%03d,\"partial\":%s}\n",
	       memory->since_us, memory->grace_ms / 1000, (int)(memory->grace_ms % 1000),
	       memory->is_partial ? "true" : "false");
}

/* True if the person at the terminal agrees. */
static bool agrees(const lk_memory *memory)
{
	char answer[16] = "", time[32];

	fprintf(stderr,
	        "The grace has %s left.  If it ends now, a hold that its client has not taken "
	        "back\n"
	        "yet is refused and lost, and another client may be granted it while the former\n"
	        "holder still works.  End it? [y/N] ",
	        text_seconds(time, memory->grace_ms));
	fflush(stderr);
	return fgets(answer, sizeof(answer), stdin) && (*answer == 'y' || *answer == 'Y');
}

/* *status: if there is no error, the exit status. */
static lk_err end_grace(const struct options *options, lk_client *client, const lk_memory *memory,
                        int *status)
{
	lk_err err = LK_EABSENT;

	*status = 0;
	if (memory->grace_ms && !options->yes && !agrees(memory)) {
		*status = STATUS_OTHERWISE;
		return LK_OK;
	}
	if (memory->grace_ms)
		err = lk_client_end_grace(client, memory);
	if (err != LK_OK && err != LK_EABSENT)
		return err;
	if (!options->quiet)
		say(err == LK_OK ? "the grace was ended"
		                 : "there is no grace, or it is over (grace= in the URL)");
	return LK_OK;
}

int verb_grace(const struct options *options)
{
	lk_client *client = NULL;
	struct store store;
	lk_memory memory;
	int status;
	lk_err err;

	if (options->ends_grace && !options->yes && !isatty(STDIN_FILENO)) {
		say("grace end: asks on a terminal only; without one, give --yes");
		return STATUS_USAGE;
	}
	if (!store_find(&store, options, &status))
		return status;
	err = store_open(&store, &client);
	if (err == LK_OK)
		err = lk_client_memory(client, &memory);
	status = 0;
	if (err == LK_OK && options->ends_grace)
		err = end_grace(options, client, &memory, &status);
	else if (err == LK_OK && options->json)
		json_memory(&memory);
	else if (err == LK_OK)
		print_memory(&memory);
	if (err != LK_OK) {
		say("cannot %s the grace: %s", options->ends_grace ? "end" : "show",
		    store_errmsg(&store));
		status = err == LK_EMISMATCH ? STATUS_OTHERWISE : status_of(err);
	}
	lk_client_close(client);
	return status;
}
