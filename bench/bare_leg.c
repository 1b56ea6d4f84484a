/* SPDX-License-Identifier: MIT
 * See bare_leg.h. */
#include "bare_leg.h"

#include "bare_marker.h"
#include "base/slot.h"

#include <stdio.h>
#include <string.h>

#define CLASSES 1024 /* of names: a counter of fences each */
#define SUCCESSOR 12 /* the word of a leave that makes it a yield */

/* See src/redis/codec_quorum.c: the same words in the same order. */
void bare_leg_format(const struct test_server *server, const char *name, const char *ticket,
                     struct command *ask, struct command *leave, struct command *yield)
{
	char main_key[160], queue[160], class[8];
	struct bare_marker marker;
	const char *ask_words[] = {"EVALSHA",  lk__script_quorum_ask.sha1,
	                           "4",        main_key,
	                           queue,      "lk:fences",
	                           "lk:epoch", ticket,
	                           "1",        "1700000000000000",
	                           class,      "lk:c:0:",
	                           "30000",    marker.text,
	                           marker.end};
	const char *leave_words[] = {"EVALSHA",
	                             lk__script_quorum_leave.sha1,
	                             "4",
	                             main_key,
	                             queue,
	                             "lk:fences",
	                             "lk:epoch",
	                             ticket,
	                             "1700000000000000",
	                             class,
	                             "lk:c:0:",
	                             "0",
	                             "",
	                             "30000",
	                             marker.text,
	                             marker.end};
	const int leave_count = sizeof(leave_words) / sizeof(leave_words[0]);

	snprintf(main_key, sizeof(main_key), "lk:{%s}", name);
	snprintf(queue, sizeof(queue), "lk:{%s}:q", name);
	snprintf(class, sizeof(class), "%d", lk__slot_of(name, strlen(name)) % CLASSES);
	bare_marker_of_member(server, &marker);
	*ask = bare_format(sizeof(ask_words) / sizeof(ask_words[0]), ask_words);
	*leave = bare_format(leave_count, leave_words);
	leave_words[SUCCESSOR] = ticket;
	if (yield)
		*yield = bare_format(leave_count, leave_words);
}
