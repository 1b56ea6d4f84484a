/* SPDX-License-Identifier: MIT
 * Is there a connection to the store, and if not, since when and why?  Known without asking: from
 * the attempts to connect and from the client's log. */
#ifndef OUTAGE_H
#define OUTAGE_H

#include <latchkey.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define OUTAGE_WHY_SIZE 400

struct outage {
	pthread_mutex_t mutex;
	bool connected;
	bool met;                  /* there was a connection before */
	bool reported;             /* the line of this outage was written, or is unwanted */
	int64_t since_ns;          /* until then the store may have answered */
	int64_t silent_ns;         /* so long it had been silent when a connection counts as dead */
	char why[OUTAGE_WHY_SIZE]; /* "127.0.0.1:6379: connection refused", "" = not known yet */
	bool quiet, verbose;
};

/* Begin without a connection. */
void outage_init(struct outage *outage, int64_t command_timeout_ms, bool quiet, bool verbose);
/* The client was opened: it has a connection, unless its log has reported a loss by now.  Any
 * thread. */
void outage_opened(struct outage *outage);
/* An attempt to connect failed.  Any thread. */
void outage_failed(struct outage *outage, const char *why);
/* The log of the client from then on (lk_log_fn, level LK_LOG_INFO); arg is the outage. */
void outage_log(void *arg, lk_log_level level, const char *line);

/* The questions below are for any thread. */
bool outage_lasts(struct outage *outage);
/* There is no connection, and the store answered less than a command timeout ago. */
bool outage_is_young(struct outage *outage);
/* Copy why there is no connection; "" when that is not known. */
const char *outage_why(struct outage *outage, char why[OUTAGE_WHY_SIZE]);
/* When to report the outage, NEVER = not at all. */
int64_t outage_due_ns(struct outage *outage);
/* Write the line "waiting for 127.0.0.1:6379: connection refused". */
void outage_report(struct outage *outage);

#endif
