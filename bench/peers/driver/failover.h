/* SPDX-License-Identifier: MIT
 * The work "failover": a service of Sentinel loses its master while workers contend for a lock.
 * ../README.md describes the run and the lines that contestants write. */
#ifndef FAILOVER_H
#define FAILOVER_H

#include "driver.h"

#define FAILOVER_WORKERS 8 /* they contend for one lock by short holds */
#define FAILOVER_HOLDER                                                                            \
	FAILOVER_WORKERS /* it holds another lock for long, from before the blow                   \
	                  */
#define FAILOVER_RIVAL (FAILOVER_WORKERS + 1) /* it waits for that lock */
#define FAILOVER_ALL (FAILOVER_WORKERS + 2)
#define FAILOVER_EVENTS_MAX 200000
#define FAILOVER_STUCK_S 30 /* a wait of this length after the blow is one of a stuck waiter */

/* What happens to the master. */
enum blow {
	BLOW_KILL,    /* kill -9 */
	BLOW_LAG,     /* kill -9, and what it executed just before reached no replica */
	BLOW_PLANNED, /* SENTINEL FAILOVER */
	BLOWS
};

enum event_kind { EVENT_ASKED, EVENT_GRANTED, EVENT_ENDED, EVENT_RELEASED, EVENT_FAILED };
enum release { RELEASE_OK, RELEASE_LOST, RELEASE_FAILED };

struct event {
	int64_t ns;
	size_t order; /* in which they were read */
	int worker;
	enum event_kind kind;
	enum release release; /* of EVENT_RELEASED */
};

/* One run, in memory that the process shares which watches it. */
struct failover_run {
	const struct contestant *contestant;
	enum blow blow;
	double seconds;
	const char *problem; /* NULL = there are figures */
	int64_t struck_ns, end_ns;
	size_t count;
	struct event events[FAILOVER_EVENTS_MAX];
};

/* The end of the long hold. */
enum long_hold {
	LONG_REFUSED, /* not granted before the blow */
	LONG_KEPT,
	LONG_REPORTED, /* lost, and its holder learned of that before the rival was granted */
	LONG_DOUBLED,  /* the rival was granted while the holder had no report of a loss */
	LONG_ENDS
};

/* The results of a contestant, over all rounds. */
struct failover_figures {
	int rounds, failures;
	double no_grant_s[ROUNDS_MAX]; /* the longest time without a grant, from the blow on */
	int64_t overlaps;              /* grants while another hold had not ended */
	int long_holds[LONG_ENDS];
	int stuck;            /* waiters */
	int64_t failed_calls; /* acquisitions and releases that ended with an error, from the blow
	                         on */
	int64_t fewest, most; /* grants of a worker after the blow, in a round */
};

void failover_judge(struct failover_run *run, struct failover_figures *figures);

/* Print what the columns mean. */
void failover_explain(void);
struct json_t;
/* Print one table; also append its rows to the list, unless it is NULL. */
void failover_table(enum blow blow, int rounds, double seconds,
                    const struct contestant *contestants, const struct failover_figures *of,
                    int count, struct json_t *rows);
/* Run all contestants that have this work, all at once, each on a service of its own; true if
 * there was a figure. */
bool failover_compare(const struct contestant *contestants, int count, int rounds, double seconds,
                      struct json_t *rows);

#endif
