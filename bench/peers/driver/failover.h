/* SPDX-License-Identifier: MIT
 * The works "failover" and "cluster": a service of Sentinel, or a Cluster, loses a master while
 * workers contend for a lock.  ../README.md describes the run and the lines that contestants write.
 */
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
	BLOW_PLANNED, /* SENTINEL FAILOVER, CLUSTER FAILOVER */
	BLOW_NONE,    /* it runs on; and its requests are counted for a while */
	BLOWS
};

/* What loses its master; each process that watches a run has one of its own. */
struct service {
	const char *work; /* "failover", "cluster" */
	enum blow blows[BLOWS];
	int blow_count;
	const char *planned;        /* the command */
	const char *(*start)(void); /* returns the ports for `peer run` */
	void (*prepare)(enum blow); /* before the long hold begins */
	void (*strike)(enum blow);  /* when it has been granted */
	void (*stop)(void);
	const struct test_server *master; /* once it has started */
};
extern const struct service service_sentinel, service_cluster;

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
	const struct service *service;
	enum blow blow;
	double seconds;
	int64_t requests; /* that the master got from counted_ns on, for COUNTED_MS; BLOW_NONE */
	int64_t counted_ns, uncounted_ns;
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
	int stuck;                 /* waiters */
	int64_t requests, counted; /* requests to the master, and the grants of that time */
	int64_t failed_calls; /* acquisitions and releases that ended with an error, from the blow
	                         on */
	int64_t fewest, most; /* grants of a worker after the blow, in a round */
};

void failover_judge(struct failover_run *run, struct failover_figures *figures);

/* Print what the columns mean. */
void failover_explain(void);
struct json_t;
/* Print one table; also append its rows to the list, unless it is NULL. */
void failover_table(const struct service *service, enum blow blow, int rounds, double seconds,
                    const struct contestant *contestants, const struct failover_figures *of,
                    int count, struct json_t *rows);
/* Run all contestants that have this work, all at once, each on a service of its own; true if
 * there was a figure. */
bool failover_compare(const struct service *service, const struct contestant *contestants,
                      int count, int rounds, double seconds, struct json_t *rows);

#endif
