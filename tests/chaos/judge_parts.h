/* SPDX-License-Identifier: MIT
 * What the parts of the judge share: the round as calls, holds and faults, and how to accuse. */
#ifndef JUDGE_PARTS_H
#define JUDGE_PARTS_H

#include "chaos/judge.h"

#include <latchkey.h>

#define NEVER INT64_MAX
#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define NONE SIZE_MAX
/* remaining_ms is whole milliseconds, and is asked a little later than what it tells of. */
#define JUDGE_CLOSE_NS (5 * MS)

enum name_kind { NAME_LOCK, NAME_SEMAPHORE, NAME_RATE, NAME_LATCH };

struct name {
	char text[128];
	enum name_kind kind;
	int64_t lease_ms, capacity;
	bool known;
};

struct process {
	uint32_t pid;
	int64_t start_ns, last_ns;
	int64_t close_ns;  /* when it began to close its last client, NEVER if it did not */
	int64_t end_ns;    /* of its own, NEVER if it did not */
	int64_t killed_ns; /* by the nemesis, NEVER if not */
	char link[16];     /* by what it reaches the server, "" = not known */
};

struct client {
	char id[24];
	size_t process;
};

struct call {
	const struct history_record *begin, *end; /* end NULL: nobody saw it return */
	int64_t cancel_ns;    /* a cancel of this wait had returned, NEVER if none did */
	size_t process, hold; /* hold: NONE, or its index */
	int64_t end_ns;
};

struct hold {
	const struct history_record *asked, *got, *let; /* let: the beginning of its release */
	size_t process;
	uint64_t fence;
	int64_t permits; /* what remains after partial releases */
	int64_t lease_ms;
	int64_t valid_ns; /* the latest valid_until that is known, 0 = none */
	int64_t lost_ns;  /* when its loss was told, NEVER if not */
	int64_t told_ns;  /* when by on_lost, NEVER if not */
	int64_t let_ns;   /* release begun, NEVER if not */
	int64_t gone_ns;  /* release returned LK_OK, NEVER if not */
	int64_t sure_ns;  /* it was surely a hold from got to here */
	int64_t free_ns;  /* from here on others could have it, as far as its own process knew */
	/* Of the first of those that were handed on inside the process up to this one. */
	int64_t root_ns;                    /* it was asked for */
	int64_t root_lease_ms;              /* the longest lease from there on */
	int64_t over_ns;                    /* its owner looked and it was over, NEVER if not */
	int let_err;                        /* of the release, -1 if it never returned */
	size_t part;                        /* its latest partial release, NONE if there was none */
	size_t same_fence;                  /* another hold of that fence, NONE if there is none */
	const struct history_record *proof; /* of valid_ns */
};

/* Some permits of a hold, for as long as they surely were its own. */
struct part {
	size_t hold, next; /* next: an earlier one of the same hold, or NONE */
	int64_t permits, sure_ns, free_ns;
};

struct fault {
	char kind[24], target[64];
	uint32_t pid; /* 0 = no worker's */
	size_t name;  /* NONE = no name's */
	int64_t begin_ns, end_ns;
	bool memory, clock, stop, kill, breaks;
	bool link; /* of those processes only that reach the server by its target */
	int64_t clock_ms;
};

/* A hash of numbers to numbers. */
struct judge_map {
	struct judge_pair {
		uint64_t one, two;
		size_t value;
		bool used;
	} * pairs;
	size_t room, count;
};

struct judge {
	const struct judge_input *input;
	const struct judge_options *options;
	struct judge_verdict *verdict;
	FILE *report;
	int64_t begin_ns, end_ns; /* of the records */
	struct name *names;
	size_t name_count;
	struct process *processes;
	size_t process_count, process_room;
	struct client *clients;
	size_t client_count, client_room;
	struct call *calls;
	size_t call_count, call_room;
	struct hold *holds;
	size_t hold_count, hold_room;
	struct part *parts;
	size_t part_count, part_room;
	struct judge_map owners; /* name, fence: index of the hold */
	struct fault *faults;    /* by their beginning */
	size_t fault_count, fault_room;
};

/* Room for one item more; ends the program when there is no memory. */
void *judge_more(void *items, size_t count, size_t *room, size_t size);
void *judge_zeroed(size_t count, size_t size);

/* Where the value of this key is, new ones being NONE. */
size_t *judge_map_at(struct judge_map *map, uint64_t one, uint64_t two);
void judge_map_free(struct judge_map *map);

/* Count a violation, and print it with up to two records that prove it. */
void judge_accuse(struct judge *judge, enum judge_check check, const struct history_record *one,
                  const struct history_record *two, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* Since the first record, in seconds. */
double judge_clock(const struct judge *judge, int64_t at_ns);
const char *judge_name(const struct judge *judge, size_t name);

/* ---- reading -----------------------------------------------------------------------------------
 */

bool judge_read_names(struct judge *judge);
bool judge_read_faults(struct judge *judge);
void judge_read_calls(struct judge *judge);
size_t judge_find_name(const struct judge *judge, const char *text, size_t len);
size_t judge_find_client(const struct judge *judge, const char *id, size_t len);

/* ---- faults ------------------------------------------------------------------------------------
 */

/* The fault concerns this process (NONE = any) and name (NONE = any). */
bool judge_concerns(const struct judge *judge, const struct fault *fault, size_t process,
                    size_t name);
/* There was one that concerns them between from and to, or ended less than after_ns before. */
bool judge_faulty(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                  size_t process, size_t name);
/* The sum of their lengths inside from..to, and how many began there. */
int64_t judge_fault_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t process,
                       size_t name, int *count);
/* How long the process was stopped between from and to. */
int64_t judge_stopped_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t process);
/* The store forgot this name, or its clock was moved, or the holder was told to go. */
bool judge_excused(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t name);
/* The store may have given to others at that moment what this hold surely still had: one of these
 * happened in between, and the hold lasted no longer than a lease that was renewed just before. */
bool judge_is_stale(const struct judge *judge, const struct hold *hold, int64_t at_ns);
/* The server's memory or clock was changed. */
bool judge_upset(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                 size_t name);
bool judge_forgot(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t name);
bool judge_clock_back(const struct judge *judge, int64_t to_ns);

/* ---- checks ------------------------------------------------------------------------------------
 */

void judge_check_holds(struct judge *judge);  /* exclusion, canary, permits, rate */
void judge_check_fences(struct judge *judge); /* fences */
void judge_check_loss(struct judge *judge);   /* loss */
void judge_check_wakeups(struct judge *judge);
void judge_check_calls(struct judge *judge); /* hang, crash, load, final */
void judge_check_latches(struct judge *judge);
void judge_check_monitor(struct judge *judge); /* fifo, handovers, permits, zombie */
void judge_check_order(struct judge *judge);   /* linearizable */

/* The holds of a name, sorted: by grant (fence, where there is one) or by asked. */
struct judge_list {
	struct hold **items;
	size_t count;
};

struct judge_list judge_holds_of(const struct judge *judge, size_t name);

#endif
