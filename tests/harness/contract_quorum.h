/* SPDX-License-Identifier: MIT
 * Shorthands for the contracts of the scripts of a quorum's lock: tickets, keys, calls. */
#ifndef CONTRACT_QUORUM_H
#define CONTRACT_QUORUM_H

#include "contract.h"

#define NOW "1700000000000000"
#define MARKER "1 a 1 [set 1/3 60000]"
/* Tickets of one wait each, by their epochs.  A is the oldest, C and D have the same priority. */
#define A_AT "1699999999000000"
#define B_AT "1699999999500000"
#define C_AT "1699999999700000"
#define A(epoch) "q1:a:n1:1000:r:" A_AT ":" #epoch
#define B(epoch) "q1:b:n1:2000:r:" B_AT ":" #epoch
#define C(epoch) "q1:c:n1:8000:f:" C_AT ":" #epoch
#define D(epoch) "q1:d:n1:2000:r:" C_AT ":" #epoch
#define LOCK "lk:{n}"
#define QUEUE "lk:{n}:q"
#define CLASS "17"
#define CHANNELS "lk:c:0:"
#define ASK_WITH(ticket, proposal) "quorum_ask", ticket, "1", proposal, CLASS, CHANNELS, "30000"
#define ASK(ticket) ASK_WITH(ticket, "0")
#define TRY(ticket) "quorum_ask", ticket, "0", "0", CLASS, CHANNELS, "30000"
#define RENEW(ticket, fence, lease, commit) "quorum_renew", ticket, fence, lease, commit, CLASS
#define CLAIM(ticket) RENEW(ticket, "0", "2000", "0")
#define LEAVE_WITH(ticket, proposal)                                                               \
	"quorum_leave", ticket, proposal, CLASS, CHANNELS, "0", "", "30000"
#define LEAVE(ticket) LEAVE_WITH(ticket, "0")
#define HAND LEAVE("")
#define BREAK(ticket) "quorum_leave", ticket, "0", CLASS, CHANNELS, "1", "", "30000"
#define YIELD(ticket, next) "quorum_leave", ticket, "0", CLASS, CHANNELS, "0", next, "30000"
#define TICKETS "ZRANGE", QUEUE, "0", "-1"
#define COUNTER "HGET", "lk:fences", CLASS
/* Without a proposal the fence is D = 5 s before the clock. */
#define LEAST "1699999995000000"

static inline void start(void)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", MARKER);
	contract_epoch(MARKER, "0");
}

#endif
