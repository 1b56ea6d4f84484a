/* SPDX-License-Identifier: MIT
 * Whether there is a connection to the store, and if not, since when and why.  Determined without
 * requests: from the attempts to connect and from the client's log.  A quorum is connected while a
 * majority of its servers is: the log does not show it, but is a reason to ask the client. */
#ifndef OUTAGE_H
#define OUTAGE_H

#include <latchkey.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define OUTAGE_WHY_SIZE 480

struct outage {
	pthread_mutex_t mutex;
	bool connected;
	bool met;                  /* there was a connection before */
	bool reported;             /* this outage was reported, or must not be */
	int64_t since_ns;          /* the store may have responded until then */
	int64_t silent_ns;         /* a connection counts as dead after so long a silence */
	char why[OUTAGE_WHY_SIZE]; /* "127.0.0.1:6379: connection refused", "" = not known yet */
	char refusal[OUTAGE_WHY_SIZE]; /* of renewals, "" = none */
	bool quiet, verbose;
	bool warned;    /* of a server that may end leases early; set by the caller: do not warn */
	bool in_quorum; /* these two are set by the caller, after outage_init(): */
	char new[OUTAGE_WHY_SIZE]; /* servers of a quorum that were not connected yet: "a:1, b:2" */
};

/* Start without a connection. */
void outage_init(struct outage *outage, int64_t command_timeout_ms, bool quiet, bool verbose);
/* The client was opened: it has a connection, unless its log has already reported a loss.  Any
 * thread. */
void outage_opened(struct outage *outage);
/* An attempt to connect failed, or a quorum's majority was lost.  Any thread. */
void outage_failed(struct outage *outage, const char *why);
/* There is a connection again.  Any thread. */
void outage_ended(struct outage *outage);
/* The client's log from then on (lk_log_fn, level LK_LOG_INFO); arg is the outage. */
void outage_log(void *arg, lk_log_level level, const char *line);

/* Any thread may call the functions below. */
bool outage_lasts(struct outage *outage);
/* There is no connection, but the store responded less than a command timeout ago. */
bool outage_is_young(struct outage *outage);
/* Copy the reason why there is no connection; "" if unknown. */
const char *outage_why(struct outage *outage, char why[OUTAGE_WHY_SIZE]);
/* The same if there is a connection, of renewals that were refused. */
const char *outage_cause(struct outage *outage, char why[OUTAGE_WHY_SIZE]);
/* Copy the servers of a quorum that were not connected yet; "" if all were, or it is none. */
const char *outage_new(struct outage *outage, char servers[OUTAGE_WHY_SIZE]);
/* When to report the outage, NEVER = not at all. */
int64_t outage_due_ns(struct outage *outage);
/* Write the line "waiting for 127.0.0.1:6379: connection refused"; of a quorum "waiting for a
 * majority: 1 of 3 servers vote, ...". */
void outage_report(struct outage *outage);

#endif
