/* SPDX-License-Identifier: MIT
 * Shorthands for the contracts of a semaphore's scripts: tickets, keys, calls. */
#ifndef CONTRACT_SEMAPHORE_H
#define CONTRACT_SEMAPHORE_H

#include "contract.h"

#define A "2:a:n1:1000:r:1"
#define B "2:b:n1:2000:r:2"
#define C "2:c:n1:8000:f:1"
#define D "2:d:n1:2000:r:1"
#define E "2:e:n1:2000:r:1"
#define N "2:n:n1:8000:n:1"
#define BIG "2:b:n2:2000:r:3"
#define STATE "lk:{n}"
#define QUEUE "lk:{n}:q"
#define ENDS "lk:{n}:h"
#define REST "lk:c:0:", "2", "60000", "30000", "21000"
#define ASK(ticket) "semaphore_ask", ticket, "1", "0", REST
#define TRY(ticket) "semaphore_ask", ticket, "0", "0", REST
#define LEAVE(ticket) "semaphore_leave", ticket, "0", "lk:c:0:", "0", "21000"
#define KEEP(ticket, permits) "semaphore_leave", ticket, permits, "lk:c:0:", "0", "21000"
#define RENEW(ticket, lease) "semaphore_renew", ticket, "0", lease
#define OPEN(capacity) "semaphore_set", "open", capacity, "60000", "lk:c:0:", "21000"
#define RESIZE(capacity) "semaphore_set", "resize", capacity, "60000", "lk:c:0:", "21000"
#define SHOW "semaphore_show", "", "9", "9"
#define ALL_QUEUE "ZRANGE", QUEUE, "0", "-1", "WITHSCORES"
#define ALL_ENDS "ZRANGE", ENDS, "0", "-1", "WITHSCORES"

#endif
