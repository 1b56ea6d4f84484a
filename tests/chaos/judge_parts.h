/* SPDX-License-Identifier: MIT
 * Shared by the parts of the judge: the round as calls, holds and faults, and the report of
 * violations. */
#ifndef JUDGE_PARTS_H
#define JUDGE_PARTS_H

#include "chaos/judge.h"

#include <latchkey.h>

#define NEVER INT64_MAX
#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define NONE SIZE_MAX
/* remaining_ms is in whole milliseconds, and is read a little later than the event. */
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
	int64_t end_ns;    /* when it exited by itself, NEVER if it did not */
	int64_t killed_ns; /* when the nemesis killed it, NEVER if it did not */
	char link[16];     /* the link by which it reaches the server, "" = not known */
};

struct client {
	char id[24];
	size_t process;
};

struct call {
	const struct history_record *begin, *end; /* end NULL: it has no recorded return */
	int64_t cancel_ns;    /* when a cancel of this wait had returned, NEVER if none did */
	size_t process, hold; /* hold: NONE, or its index */
	int64_t end_ns;
};

struct hold {
	const struct history_record *asked, *got, *let; /* let: the beginning of its release */
	size_t process;
	uint64_t fence;
	int64_t permits; /* the rest after partial releases */
	int64_t lease_ms;
	int64_t valid_ns; /* the latest valid_until that is known, 0 = none */
	int64_t seen_ns;  /* when it was last seen valid */
	bool shaky;       /* of a quorum, of which a majority failed in its time, perhaps in turn */
	int64_t lost_ns;  /* when its loss was reported, NEVER if it was not */
	int64_t told_ns;  /* when on_lost reported it, NEVER if it did not */
	int64_t taken_ns; /* when its loss was reported before its lease had ended, NEVER if it was
	                   * not
	                   */
	int64_t let_ns;   /* when its release began, NEVER if it did not */
	int64_t gone_ns;  /* when its release returned LK_OK, NEVER if it did not */
	int64_t sure_ns;  /* it was certainly a hold from got to here */
	int64_t free_ns;  /* from here on others could have it, as far as its own process could know
	                   */
	/* Of the first of the holds that were handed over inside the process up to this one. */
	int64_t root_ns;                    /* when it was asked for */
	int64_t root_lease_ms;              /* the longest lease from there on */
	int64_t over_ns;                    /* when its owner found it ended, NEVER if it did not */
	int let_err;                        /* of the release, -1 if it never returned */
	size_t part;                        /* its latest partial release, NONE if there was none */
	size_t same_fence;                  /* another hold of that fence, NONE if there is none */
	const struct history_record *proof; /* of valid_ns */
};

/* Some permits of a hold, for as long as they certainly belonged to it. */
struct part {
	size_t hold, next; /* next: an earlier one of the same hold, or NONE */
	int64_t permits, sure_ns, free_ns;
};

struct fault {
	char kind[24], target[64];
	uint32_t pid; /* 0 = not of a worker */
	size_t name;  /* NONE = not of a name */
	int64_t begin_ns, end_ns;
	bool memory, clock, stop, kill, breaks;
	bool fresh; /* the server was started again: no link lasted */
	bool link;  /* concerns only processes that reach the server by its target */
	int64_t clock_ms;
	int64_t grace_ms; /* nothing new is granted for so long after it; 0 = no grace */
	/* Of one of so many servers of a quorum, 0 = of no quorum. */
	int member, members;
	int64_t down_ns, up_ns; /* certainly it did not vote in between; 0 = not known */
};

/* No majority of a quorum could vote. */
struct silence {
	int64_t from_ns, to_ns;
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
	int members; /* of the quorum, 0 = there is none */
	struct silence *silences;
	size_t silence_count, silence_room;
};

/* Room for one more item; ends the program if memory runs out. */
void *judge_more(void *items, size_t count, size_t *room, size_t size);
void *judge_zeroed(size_t count, size_t size);

/* The address of this key's value; NONE for a new key. */
size_t *judge_map_at(struct judge_map *map, uint64_t one, uint64_t two);
void judge_map_free(struct judge_map *map);

/* Count a violation (check: enum promise, or enum judge_check), and print it with up to two records
 * as proof. */
void judge_accuse(struct judge *judge, int check, const struct history_record *one,
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
void judge_read_members(struct judge *judge); /* after the faults */
size_t judge_find_name(const struct judge *judge, const char *text, size_t len);
size_t judge_find_client(const struct judge *judge, const char *id, size_t len);

/* ---- faults ------------------------------------------------------------------------------------
 */

/* Does the fault concern this process (NONE = any) and name (NONE = any)? */
bool judge_concerns(const struct judge *judge, const struct fault *fault, size_t process,
                    size_t name);
/* Was there one that concerns them between from and to, or that ended less than after_ns before? */
bool judge_faulty(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                  size_t process, size_t name);
/* The sum of their lengths inside from..to, and the number that began there. */
int64_t judge_fault_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t process,
                       size_t name, int *count);
/* How long the process was stopped between from and to. */
int64_t judge_stopped_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t process);
/* The end of the fault, and of the grace that began with it. */
int64_t judge_over_ns(const struct fault *fault);
/* How much of the time between from and to was in the grace after a loss of the memory. */
int64_t judge_grace_ns(const struct judge *judge, int64_t from_ns, int64_t to_ns);
/* The store may grant to others at once what it had granted of this name: the memory was lost and
 * no grace protects the holds, or the clock was set, or the hold was broken. */
bool judge_disturbs(const struct judge *judge, const struct fault *fault, size_t name);
/* Until when that may show: for after_ns, and longer if holds were reclaimed in the meantime. */
int64_t judge_disturbed_until(const struct judge *judge, const struct fault *fault,
                              int64_t after_ns);
/* There was one of these between from and to, or it showed until then. */
bool judge_excused(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                   size_t name);
/* The store may have granted to others at that moment what this hold certainly still had: one of
 * these happened in between, and the hold lasted no longer than a lease that was renewed just
 * before. */
bool judge_is_stale(const struct judge *judge, const struct hold *hold, int64_t at_ns);
/* The server's clock was set, or its memory was lost and no grace protects the holds. */
bool judge_upset(const struct judge *judge, int64_t from_ns, int64_t to_ns, int64_t after_ns,
                 size_t name);
bool judge_forgot(const struct judge *judge, int64_t from_ns, int64_t to_ns, size_t name);
bool judge_clock_back(const struct judge *judge, int64_t to_ns);

/* Its process may have lost that hold of a quorum just before it recorded so: nobody saw it valid
 * from then on, and its servers had failed. */
bool judge_may_be_over(const struct judge *judge, uint32_t pid, size_t name, int64_t at_ns);
/* A server of the quorum failed then. */
bool judge_lacks_member(const struct judge *judge, int64_t at_ns);

/* ---- checks ------------------------------------------------------------------------------------
 */

void judge_check_holds(struct judge *judge);  /* exclusion, canary, permits, rate */
void judge_check_fences(struct judge *judge); /* fences */
void judge_check_loss(struct judge *judge);   /* loss, owner */
void judge_check_wakeups(struct judge *judge);
void judge_check_calls(struct judge *judge); /* hang, crash, load, final */
void judge_check_latches(struct judge *judge);
void judge_check_quorum(struct judge *judge);  /* exclusion, renewal */
void judge_check_monitor(struct judge *judge); /* fifo, handovers, permits, zombie */
void judge_check_order(struct judge *judge);   /* linearizable */

/* The holds of a name, sorted: by grant (fence, if there is one) or by asked. */
struct judge_list {
	struct hold **items;
	size_t count;
};

struct judge_list judge_holds_of(const struct judge *judge, size_t name);

#endif
