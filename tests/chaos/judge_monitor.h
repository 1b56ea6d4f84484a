/* SPDX-License-Identifier: MIT
 * Shared by the reader of the monitor's lines and the checks that use them. */
#ifndef JUDGE_MONITOR_H
#define JUDGE_MONITOR_H

#include "chaos/judge_parts.h"

#include "scripts.h"

#define MONITOR_WORDS 24
#define MONITOR_REMOVED 64

struct monitor_line {
	int64_t at_ns;     /* when the recorder read it: later than it ran */
	int64_t server_us; /* on the server's clock */
	uint64_t from;     /* its connection, hashed */
	bool in_script, gap;
	char *words[MONITOR_WORDS];
	size_t lens[MONITOR_WORDS];
	int count;
};

struct ticket {
	char text[64];
	uint64_t client;
	size_t process; /* NONE: of a client without a history */
	uint64_t fence; /* of a semaphore's hold */
	int64_t permits, ends_us;
	int64_t left_ns;    /* when its own leave ran, 0 = it has not */
	uint64_t left_from; /* and on which connection that was sent */
	bool told;          /* a zombie is reported once */
};

/* An entry of a queue. */
struct waiting {
	size_t ticket;
	int64_t score;
};

/* Since then a waiter of another client has been there; 0 = none, or not known. */
struct mark {
	int64_t at_ns, since_ns;
};

struct grant {
	uint64_t fence;
	int64_t at_ns;
};

/* The state of a name in the store. */
struct place {
	size_t owner; /* of a lock */
	uint64_t fence;
	int64_t capacity, queue_over_us; /* 0 = not known; it does not expire */
	struct waiting *queue;           /* unordered */
	size_t queue_count, queue_room;
	size_t *holds; /* of a semaphore: tickets */
	size_t hold_count, hold_room;
	struct mark *marks;
	size_t mark_count, mark_room;
	struct grant *grants;
	size_t grant_count, grant_room;
};

struct run {
	const struct lk__script *script;
	size_t name, ticket, granted; /* permits, last; NONE = none */
	uint64_t fence;               /* of that */
	bool is_leave, is_ask, is_renew, is_reclaim, ends, breaks;
	int64_t at_ns;
	uint64_t from;
	struct {
		size_t ticket;
		int64_t score, at_ns;
		bool granted;
	} removed[MONITOR_REMOVED];
	size_t removed_count;
};

struct monitor {
	struct judge *judge;
	struct place *places;
	struct ticket *tickets;
	size_t ticket_count, ticket_room;
	struct judge_map known; /* hashes of a ticket: its index */
	struct run run;
	int64_t gap_ns; /* of the last gap, 0 = none */
	/* The server's memory, as far as it is known: since when, on its clock (0 = not known), and
	 * the mark of holds that were reclaimed in it. */
	int64_t since_us;
	char mark[120];
	int64_t grace_ms; /* of the workers' clients, 0 = none */
};

/* A script was called for this ticket. */
void monitor_asked(struct monitor *monitor, size_t ticket, const struct monitor_line *line);
/* A script wrote for this ticket. */
void monitor_used(struct monitor *monitor, size_t ticket, const struct monitor_line *line);
void monitor_granted(struct monitor *monitor, size_t name, size_t ticket, uint64_t fence,
                     const struct monitor_line *line);
void monitor_ends(struct monitor *monitor, size_t name, size_t ticket, int64_t ends_us,
                  const struct monitor_line *line);
void monitor_dropped(struct monitor *monitor, size_t name, size_t ticket,
                     const struct monitor_line *line);
void monitor_queued(struct monitor *monitor, struct place *place, size_t ticket, int64_t score,
                    int64_t at_ns);
/* Its score, -1 if it was missing. */
int64_t monitor_unqueued(struct monitor *monitor, struct place *place, size_t ticket,
                         int64_t at_ns);
/* After a run that granted permits, which may have removed the hold before them later. */
void monitor_check_room(struct monitor *monitor);
/* A new memory: nothing new is granted in its grace. */
void monitor_epoch(struct monitor *monitor, const char *marker);
/* A grant to this ticket; value: of the lock, "" of a semaphore. */
void monitor_check_grace(struct monitor *monitor, size_t name, size_t ticket, uint64_t fence,
                         const char *value, const struct monitor_line *line);
void monitor_passed_over(struct monitor *monitor, size_t name, size_t ticket, int64_t at_ns);
void monitor_expire(struct monitor *monitor, struct place *place, const struct monitor_line *line);
/* Forget all that is known of a name (NONE = of all). */
void monitor_forget(struct monitor *monitor, size_t name, int64_t at_ns);
void monitor_forget_key(struct monitor *monitor, size_t name, const char *rest, int64_t at_ns);
void monitor_check_handovers(struct monitor *monitor);
void monitor_free(struct monitor *monitor);

#endif
