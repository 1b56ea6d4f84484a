/* SPDX-License-Identifier: MIT
 * A quorum's scripts without Latchkey: sent to all servers at once, until a majority has answered.
 * No queue, no fence in common, no renewal, no deadline. */
#ifndef BASELINE_QUORUM_H
#define BASELINE_QUORUM_H

#include "bench.h"

struct ballot;

enum ballot_kind { BALLOT_ASK, BALLOT_LEAVE, BALLOT_PING };

/* Connect to the members of a quorum.  ports: where they are reached, NULL = at their own. */
struct ballot *ballot_open(const struct test_server *servers, const int *ports, int count,
                           const char *name, int index);
void ballot_close(void *ballot);
/* Send the request to all servers; wait until that many of them have answered it. */
void ballot_send(struct ballot *ballot, enum ballot_kind kind);
void ballot_await(struct ballot *ballot, int answers);
/* Send, and wait for the majority. */
void ballot_acquire(void *ballot);
void ballot_release(void *ballot);
void ballot_ping(void *ballot);
void ballot_pair(void *ballot);

#endif
