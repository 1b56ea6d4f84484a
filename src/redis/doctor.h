/* SPDX-License-Identifier: MIT
 * One examination of one server, shared by the files that examine. */
#ifndef LK__DOCTOR_H
#define LK__DOCTOR_H

#include "../core/request.h"
#include "conn.h"

#define LK__DOCTOR_FIELD 128

/* What one sentinel says about the service. */
struct lk__surveyed {
	char text[200];  /* its own address, escaped */
	bool is_reached; /* else: why */
	bool knows;      /* it names place; else it knows no such service */
	struct lk__place place;
	struct lk__why why;
	struct lk__why refusal; /* of SENTINEL MASTER; LK_OK: these four are known */
	int64_t quorum, others, replicas, down_after_ms;
	char services[LK__DOCTOR_FIELD]; /* that it knows, escaped; "" = not asked, or refused */
	struct lk__why too_few; /* it reaches too few others to replace the master; LK_OK = no */
};

struct lk__survey {
	struct lk__surveyed sentinels[LK__SENTINELS_MAX];
	int count;
	int leader;        /* names what most of them name, -1 = none names anything */
	bool is_disagreed; /* some name another place than the leader */
};

#define LK__DOCTOR_NODES 256

/* A node of a Cluster. */
struct lk__doctor_node {
	struct lk__place place;
	char id[LK__NODE_ID_SIZE];
	char text[200]; /* its address, escaped */
	bool is_replica;
	unsigned slot; /* that has its marker */
};

struct lk__doctor_cluster {
	int count, masters; /* the masters are the first ones */
	int alone;          /* masters without a replica */
	struct lk__doctor_node nodes[LK__DOCTOR_NODES];
	int uncovered, first_uncovered; /* slots without a master */
	int64_t timeout_ms;             /* the longest cluster-node-timeout, 0 = not known */
	bool is_coverage_required;
	bool nodes_refused; /* a user may not run CLUSTER NODES */
	bool slots_refused; /* nor CLUSTER SLOTS, which clients need */
	void *findings;     /* that are reported together */
	int finding_count;
};

struct lk__doctor {
	struct lk__target *target;
	struct lk__conn *conn;
	struct lk__tls_shared tls;
	lk_finding_fn *fn; /* may be NULL */
	void *arg;
	lk_fitness worst;
	char user[128];      /* escaped */
	struct lk__why lost; /* why the connection ended; LK_OK while it is usable */
	bool loss_reported;
	struct lk__survey *survey;          /* NULL without Sentinel */
	char service[200];                  /* escaped */
	struct lk__doctor_cluster *cluster; /* NULL without a Cluster */
	struct lk__doctor_node *node;       /* that is examined now, NULL = none of a Cluster */
	lk_resolve_fn *resolve;             /* of the options, may be NULL */
	void *resolve_arg;
	struct lk__resp *info; /* reply to INFO: may be an error, NULL = none arrived */
};

/* lk_doctor() for servers of Redis. */
lk_err lk__doctor_examine(struct lk__target *target, const lk_client_options *options,
                          lk_finding_fn *fn, void *arg, lk_fitness *worst, struct lk__why *why);

/* Report a finding.  text and cure must already be escaped. */
void lk__doctor_report(struct lk__doctor *doctor, lk_fitness fitness, const char *topic,
                       const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Send a command; returns its reply, which may be an error, or NULL when the connection is lost. */
struct lk__resp *lk__doctor_call(struct lk__doctor *doctor, int argc, const char *const *argv);
/* Does resp allow a finding on the topic?  If not, report why not; rule: the right that it
 * needs. */
bool lk__doctor_usable(struct lk__doctor *doctor, const char *topic, const char *rule,
                       const struct lk__resp *resp);

/* A field of INFO, escaped; "" when it is absent. */
void lk__doctor_info(const struct lk__doctor *doctor, const char *name,
                     char value[LK__DOCTOR_FIELD]);
/* The value of one setting, escaped; false when it is reported as "cannot tell". */
bool lk__doctor_config(struct lk__doctor *doctor, const char *topic, const char *name,
                       char value[LK__DOCTOR_FIELD]);

/* A number in INFO, 0 when it is absent. */
int64_t lk__doctor_info_number(const struct lk__doctor *doctor, const char *name);

/* ---- doctor_sentinel.c -------------------------------------------------------------------- */

/* Ask every sentinel, each for at most a command timeout, and fill in doctor->survey. */
void lk__doctor_survey(struct lk__doctor *doctor);
/* The place that most sentinels name.  LK_OK, or why there is none. */
lk_err lk__doctor_master(const struct lk__doctor *doctor, struct lk__place *place,
                         struct lk__why *why);
/* Topic "sentinels". */
void lk__doctor_sentinels(struct lk__doctor *doctor);

/* ---- doctor_failover.c -------------------------------------------------------------------- */

/* How many replicas the master and the sentinels know, 0 = none, or nothing says. */
int64_t lk__doctor_all_replicas(const struct lk__doctor *doctor);
/* Topics "topology" and "failover". */
void lk__doctor_failover(struct lk__doctor *doctor);

/* Are there enough replicas for the setting min-replicas-to-write of a Cluster's master? */
void lk__doctor_min_replicas(struct lk__doctor *doctor);
/* Topic "topology" of one master: its replicas. */
void lk__doctor_topology(struct lk__doctor *doctor);

/* ---- doctor_cluster.c --------------------------------------------------------------------- */

/* Does the connection, by a plain URL, lead to a node? */
bool lk__doctor_is_cluster(struct lk__doctor *doctor);
/* Find the nodes by the URL's hosts, or by the connection, and examine them.  Ends the connection.
 * An error: why none of these hosts names the nodes; the others are reported. */
lk_err lk__doctor_cluster(struct lk__doctor *doctor, struct lk__why *why);
/* Keep a finding about doctor->node, to be reported with the same of other nodes.  False when out
 * of memory. */
bool lk__doctor_collect(struct lk__doctor *doctor, const lk_finding *finding);
/* Report what was collected, of so many nodes of that kind. */
void lk__doctor_report_collected(struct lk__doctor *doctor, const char *kind, int nodes);
/* End the connection to a node. */
void lk__doctor_hang_up(struct lk__doctor *doctor);
/* In doctor.c: the topics of a single server that matter for a node of a Cluster. */
void lk__doctor_node_topics(struct lk__doctor *doctor, bool is_master);

/* ---- doctor_quorum.c ---------------------------------------------------------------------- */

/* Examine the servers of a quorum, which are nodes here, and topic "quorum". */
lk_err lk__doctor_quorum(struct lk__doctor *doctor, struct lk__why *why);

/* ---- doctor_memory.c ---------------------------------------------------------------------- */

/* Topic "memory". */
void lk__doctor_memory(struct lk__doctor *doctor);

/* ---- doctor_clock.c ----------------------------------------------------------------------- */

/* Topic "clock".  Takes at most a second, or three round trips if these take longer. */
void lk__doctor_clock(struct lk__doctor *doctor);

/* Parse the reply to TIME.  False when it is another one. */
bool lk__doctor_time(const struct lk__resp *resp, int64_t *us);

/* The server read its clock between these two moments, CLOCK_BOOTTIME of this machine. */
struct lk__clock_reading {
	int64_t sent_ns, received_ns;
	int64_t server_us;
};

/* The speed of the server's clock relative to ours: at least low, at most high; 1 = equal.  If low
 * is more than high, no constant speed explains the readings. */
struct lk__clock_rate {
	double low, high;
};

#define LK__CLOCK_RATE_MAX 1e9    /* unknown: from the negative of it */
#define LK__CLOCK_FASTEST 1.01    /* tolerated by the margin of a lease */
#define LK__CLOCK_ERROR_MAX 0.003 /* above it the speed is unknown */

enum lk__clock_verdict {
	LK__CLOCK_FITS,
	LK__CLOCK_FAST,     /* certainly faster than the margin tolerates */
	LK__CLOCK_DOUBTFUL, /* perhaps faster */
	LK__CLOCK_UNKNOWN,  /* the error is too large */
	LK__CLOCK_UNEVEN,   /* one of the clocks was set during the readings */
};

/* Estimate from readings in their order, each sent after the one before was received. */
struct lk__clock_rate lk__clock_rate(const struct lk__clock_reading *readings, size_t count);
/* Half the distance between the bounds. */
double lk__clock_error(const struct lk__clock_rate *rate);
enum lk__clock_verdict lk__clock_judge(const struct lk__clock_rate *rate);

/* ---- doctor_rights.c ---------------------------------------------------------------------- */

/* Topic "rights".  Leaves the connection in subscriber mode: run it last. */
void lk__doctor_rights(struct lk__doctor *doctor);
/* The rules that are tried, one a command; NULL past the last. */
const char *lk__doctor_rule(size_t index, bool *needed);

#endif
