/* SPDX-License-Identifier: MIT
 * The server's memory, which the scripts that grant are told: for baselines without Latchkey. */
#ifndef BARE_MARKER_H
#define BARE_MARKER_H

#include "harness/server.h"

struct bare_marker {
	char text[160]; /* as every client finds it */
	char end[24];   /* of a grace of 0, or of a member's youth */
};

/* Find the marker of the server's memory, as a client does when it connects. */
void bare_marker_find(const struct test_server *server, struct bare_marker *marker);
/* The same of a member of a quorum, which has its marker already. */
void bare_marker_of_member(const struct test_server *server, struct bare_marker *marker);

#endif
