/* SPDX-License-Identifier: MIT
 * The judge of a round under chaos: reads the records of the processes, the nemesis and the
 * server's monitor, and reports broken promises.  Of the library it uses only the promises.
 *
 * A round is a folder:
 *
 *   <pid>.history   records, see history.h
 *   names.txt       "<index> <lock|semaphore|rate|latch> <lease ms> <capacity> <name>" each; the
 *                   lease of a rate is its window, the capacity of a latch 0
 *   nemesis.log     "<ns> <kind> <target> begin|end|at [word...]", times as in histories; "at" is a
 *                   moment.  Target: a pid, a name, or a part that all workers depend on
 * ("server"). Special kinds: "kill" (of a pid: it is no crash), "stop" (of a pid: it could not
 * run), "break" (of a name: its hold was broken), "restart..." (of the server: no link lasted).
 * Words: "memory=lost" (the server forgot all, or its target if that is a name), "memory=old" (it
 * has an older copy), "clock=<ms>" (its clock was set by so much), "grace=<ms>" (it has a new
 * memory: for so long afterwards the workers' clients are granted nothing new).
 *                   Of a quorum: "member=<i>/<n>", of its server i of n: a fault of a
 * minority excuses nothing.  Lines with the phases "down" and "up" say between which times that
 * server certainly did not vote; with "grace=<ms>" also for so long after "up", or, without one,
 * after its beginning.
 *                   "# <ns> worker <pid> <target>" means that this process, from its start,
 *                   reaches the server only by that target: its faults concern no other
 *   monitor.log     "<ns> <a line of MONITOR>", and "<ns> gap" where lines are missing
 *   final.txt       "<name> <available> <capacity> <queued>", after the round
 *
 * The last two may be missing. */
#ifndef JUDGE_H
#define JUDGE_H

#include "chaos/history.h"
#include "promises/promises.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What it checks: the promises, and two conditions of a verdict. */
enum judge_check {
	JUDGE_LOAD = PROMISES, /* enough load for a verdict */
	JUDGE_HISTORY,         /* records that contradict each other */
	JUDGE_CHECKS
};

struct judge_input {
	struct history_list history;
	/* The files' text; NULL = missing.  Reading changes the monitor's. */
	const char *names, *nemesis, *final;
	char *monitor;
	size_t monitor_len;
};

struct judge_options {
	double min_rate;       /* pairs a second outside faults; fewer are too little load */
	int min_faults;        /* faults that must have happened */
	int64_t slack_ms;      /* tolerance beyond the bounds for a loaded machine */
	int64_t quiet_wake_ms; /* longest wake-up without faults */
	int64_t command_ms;    /* the workers' command timeout */
	int64_t ask_ms;        /* the longest time between two asks of a waiter */
	int64_t claim_ms;      /* the claim window */
	int evidence;          /* violations of a check that are printed in full */
};

extern const struct judge_options judge_defaults;

struct judge_verdict {
	int violations, of[JUDGE_CHECKS];
	int64_t pairs, grants, waits, openings, faults, excused, canaries_excused, handovers;
	int64_t passed_over, reclaimed, taken_excused, lost, killed, unknown, quiet_grants;
	/* How often a check was applied outside the excuse of a fault. */
	int64_t passed_over_judged, vain_judged, ends_judged, losses_judged, overs_judged,
		cancels_judged;
	/* The most hand-overs in a row, and the most while another process certainly waited. */
	int64_t handovers_row, handovers_known;
	int64_t quiet_max_ns, quiet_p999_ns, fault_max_ns; /* wake-ups */
	int64_t windows, window_ops, windows_skipped;      /* searched for an order */
	int64_t records, monitor_lines;
	/* Of a quorum: quiet grants while a server failed; how long nothing could be granted. */
	int64_t minority_grants, silent_ns;
	double seconds, rate;
};

/* Judge a round and write the report.  False: the input cannot be read (the report has the
 * reason). */
bool judge_round(struct judge_input *input, const struct judge_options *options,
                 struct judge_verdict *verdict, FILE *report);

/* check: enum promise, or enum judge_check. */
const char *judge_check_name(int check);

#endif
