/* SPDX-License-Identifier: MIT
 * The nemesis: causes a fault every one to three seconds, at random, from a seed, and ends it
 * later.  Each fault is logged when it begins and when it has ended. */
#include "chaos/nemesis.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#define YOUNG_MS 2000

static const struct {
	const char *name;
	int needs;
	int64_t low_ms, high_ms;
} kinds[] = {
#define NEMESIS_ROW(id, name, needs, low, high) {name, needs, low, high},
	NEMESIS_KINDS(NEMESIS_ROW)
#undef NEMESIS_ROW
};

const char *nemesis_kind_name(int kind)
{
	return kinds[kind].name;
}

static bool is_of_slot(enum nemesis_kind kind)
{
	return kind == NEMESIS_SLOT_MOVE || kind == NEMESIS_SLOT_MIGRATE;
}

static void target_name(const struct nemesis_fault *fault, char *text, size_t size)
{
	if (fault->kind <= NEMESIS_WORKER_STOP)
		snprintf(text, size, "%d", (int)fault->pid);
	else if (fault->kind == NEMESIS_DELETE || is_of_slot(fault->kind))
		snprintf(text, size, "%s", chaos_names[fault->target].name);
	else if (fault->kind >= NEMESIS_DELAY && fault->kind <= NEMESIS_PACKETS_RESET)
		snprintf(text, size, "proxy%d", fault->target);
	else
		snprintf(text, size, "server");
}

static bool is_link(enum nemesis_kind kind)
{
	return kind >= NEMESIS_DELAY && kind <= NEMESIS_PACKETS_RESET;
}

static bool changes_master(enum nemesis_kind kind)
{
	return (kind >= NEMESIS_FAILOVER && kind <= NEMESIS_MASTER_STOP) ||
	       (kind >= NEMESIS_NODE_FAILOVER && kind <= NEMESIS_NODE_STOP);
}

static bool is_of_members(enum nemesis_kind kind)
{
	return kind >= NEMESIS_MEMBER_KILL && kind <= NEMESIS_MAJORITY_CUT;
}

/* A dead sentinel leaves two, which can elect a master.  If a sentinel that leads a failover is
 * killed, the others may need longer than a round for another one. */
static bool are_apart(enum nemesis_kind active, enum nemesis_kind wanted)
{
	return active == NEMESIS_SENTINEL_KILL &&
	       (wanted == NEMESIS_MASTER_KILL || wanted == NEMESIS_MASTER_STOP);
}

/* ---- workers ------------------------------------------------------------------------------ */

static bool worker_begin(struct round *round, struct nemesis_fault *fault)
{
	struct round_worker *worker = &round->workers[fault->target];
	int status;

	if (fault->kind == NEMESIS_WORKER_KILL) {
		worker->killed = true;
		return !kill(worker->pid, SIGKILL);
	}
	kill(worker->pid, SIGSTOP);
	if (waitpid(worker->pid, &status, WUNTRACED) != worker->pid || !WIFSTOPPED(status)) {
		/* It ended just now, and only this process can collect its status. */
		worker->pid = 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			round_complain(round, "worker %d ended with status %#x", (int)fault->pid,
			               (unsigned)status);
		return false;
	}
	worker->stopped = true;
	return true;
}

static void worker_end(struct round *round, struct nemesis_fault *fault)
{
	struct round_worker *worker = &round->workers[fault->target];

	if (worker->pid != fault->pid)
		return;
	worker->stopped = false;
	kill(worker->pid, SIGCONT);
}

/* ---- all ---------------------------------------------------------------------------------- */

/* A line of the log, or one for each server of a quorum. */
static void log_phase(struct round *round, const struct nemesis_fault *fault, const char *phase,
                      const char *words)
{
	char target[32];

	if (fault->members) {
		nemesis_quorum_log(round, fault, phase);
		return;
	}
	target_name(fault, target, sizeof(target));
	round_log(round, kinds[fault->kind].name, target, "%s%s", phase, words);
}

static void fault_end(struct round *round, struct nemesis_fault *fault)
{
	if (is_of_members(fault->kind))
		log_phase(round, fault, "up", "");
	if (fault->kind == NEMESIS_WORKER_STOP)
		worker_end(round, fault);
	else if (is_link(fault->kind))
		nemesis_network_end(round, fault);
	else if (is_of_members(fault->kind))
		nemesis_quorum_end(round, fault);
	else if (fault->kind >= NEMESIS_ETCD_KILL)
		nemesis_etcd_end(round, fault);
	else if (fault->kind >= NEMESIS_SLOT_MOVE)
		nemesis_cluster_end(round, fault);
	else if (fault->kind >= NEMESIS_FAILOVER)
		nemesis_sentinel_end(round, fault);
	else
		nemesis_server_end(round, fault);
	log_phase(round, fault, "end", "");
	fault->active = false;
}

/* At most one fault at a time of each link, and of the server. */
static bool is_taken(const struct round *round, const struct nemesis_fault *wanted)
{
	for (int i = 0; i < NEMESIS_FAULTS; i++) {
		const struct nemesis_fault *fault = &round->faults[i];
		if (!fault->active || fault == wanted || fault->kind <= NEMESIS_WORKER_STOP ||
		    are_apart(fault->kind, wanted->kind))
			continue;
		if (is_link(fault->kind) == is_link(wanted->kind) &&
		    (!is_link(fault->kind) || fault->target == wanted->target))
			return true;
	}
	return false;
}

static bool is_allowed(const struct round *round, enum nemesis_kind kind)
{
	int needs = kinds[kind].needs;

	if (round->options->quorum)
		return (needs & NEEDS_QUORUM &&
		        (!(needs & NEEDS_CLOCK) || round->options->moves_clock)) ||
		       kind <= NEMESIS_WORKER_STOP || (is_link(kind) && !(needs & NEEDS_NAMESPACE));
	if (round->options->etcd)
		return needs & NEEDS_ETCD || kind <= NEMESIS_WORKER_STOP;
	if (chaos_has_service(round->options))
		return needs & (round->options->sentinel ? NEEDS_SENTINEL : NEEDS_CLUSTER) ||
		       kind <= NEMESIS_WORKER_STOP;
	return !(needs & (NEEDS_SENTINEL | NEEDS_CLUSTER | NEEDS_QUORUM | NEEDS_ETCD)) &&
	       !(needs & NEEDS_KEEPS && round->options->loses) &&
	       !(needs & NEEDS_LOSES && !round->options->loses) &&
	       !(needs & NEEDS_CLOCK && !round->options->moves_clock) &&
	       !(needs & NEEDS_DELETES && !round->options->deletes) &&
	       !(needs & NEEDS_NAMESPACE && !round->result->in_namespace);
}

/* The server has another memory afterwards, though it may have the same content. */
static bool begins_memory(enum nemesis_kind kind)
{
	return kind == NEMESIS_FLUSH_ALL || kind == NEMESIS_RESTART_EMPTY ||
	       kind == NEMESIS_RESTART_OLD || kind == NEMESIS_RESTART || changes_master(kind);
}

/* Further words for the judge. */
static void words_of(const struct round *round, enum nemesis_kind kind, char *text, size_t size)
{
	bool loses = kind == NEMESIS_DELETE || kind == NEMESIS_FLUSH_ALL ||
	             kind == NEMESIS_RESTART_EMPTY || kind == NEMESIS_NODE_RESTART;
	/* A replica may lag. */
	bool is_old = kind == NEMESIS_RESTART_OLD || (changes_master(kind) && !loses);
	const char *memory = is_old ? " memory=old" : loses ? " memory=lost" : "";
	int used = snprintf(text, size, "%s", memory);

	if (begins_memory(kind))
		snprintf(text + used, size - (size_t)used, " grace=%lld",
		         (long long)round->options->grace_ms);
}

static bool target_choose(struct round *round, struct nemesis_fault *fault)
{
	const struct round_worker *worker;

	if (is_link(fault->kind))
		fault->target = (int)chaos_between(&round->dice, 0, round->proxy_count - 1);
	if (fault->kind == NEMESIS_DELETE)
		fault->target = (int)chaos_between(&round->dice, 0, CHAOS_NAMES - 1);
	if (fault->kind == NEMESIS_RESTART_OLD && !round->saved)
		return false;
	if (round->options->quorum && fault->kind > NEMESIS_WORKER_STOP)
		return nemesis_quorum_ready(round, fault);
	/* If each grace began another one, nothing new would ever be granted. */
	if (begins_memory(fault->kind) && history_now_ns() < round->grace_over_ns &&
	    !chaos_once_in(&round->dice, 4))
		return false;
	if (fault->kind >= NEMESIS_ETCD_KILL)
		return !is_taken(round, fault);
	if (fault->kind >= NEMESIS_SLOT_MOVE)
		return !is_taken(round, fault) && nemesis_cluster_ready(round, fault);
	if (fault->kind >= NEMESIS_FAILOVER)
		return !is_taken(round, fault) && nemesis_sentinel_ready(round, fault->kind);
	if (fault->kind > NEMESIS_WORKER_STOP)
		return !is_taken(round, fault);
	fault->target = (int)chaos_between(&round->dice, 0, CHAOS_WORKERS - 1);
	worker = &round->workers[fault->target];
	fault->pid = worker->pid;
	return worker->pid && !worker->stopped && !worker->killed;
}

static enum nemesis_kind sentinel_kind_choose(struct round *round)
{
	/* Then grants that must be confirmed fall short. */
	if (round->options->replicas && chaos_once_in(&round->dice, 3))
		return NEMESIS_REPLICA_STOP;
	if (!round->lost || chaos_once_in(&round->dice, 2))
		return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_FAILOVER,
		                                        NEMESIS_MASTER_STOP);
	if (chaos_once_in(&round->dice, 2))
		return (enum nemesis_kind)chaos_between(&round->dice, 0, NEMESIS_WORKER_STOP);
	return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_REPLICA_KILL,
	                                        NEMESIS_SENTINEL_STOP);
}

static enum nemesis_kind cluster_kind_choose(struct round *round)
{
	/* That loses most: what a grace is for. */
	if (round->options->without_grace && chaos_once_in(&round->dice, 2))
		return NEMESIS_NODE_TAKEOVER;
	if (!round->lost)
		return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_NODE_FAILOVER,
		                                        NEMESIS_NODE_STOP);
	if (chaos_once_in(&round->dice, 3))
		return (enum nemesis_kind)chaos_between(&round->dice, 0, NEMESIS_WORKER_STOP);
	return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_SLOT_MOVE, NEMESIS_NODE_STOP);
}

static enum nemesis_kind quorum_kind_choose(struct round *round)
{
	/* That loses most: what the youth of a server is for. */
	if (round->options->without_grace && chaos_once_in(&round->dice, 2))
		return NEMESIS_MAJORITY_KILL;
	if (!round->lost)
		return NEMESIS_MEMBER_KILL;
	if (!nemesis_quorum_is_calm(round) && chaos_once_in(&round->dice, 6))
		return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_MAJORITY_KILL,
		                                        NEMESIS_MAJORITY_CUT);
	if (!nemesis_quorum_is_calm(round) && chaos_once_in(&round->dice, 3))
		return (enum nemesis_kind)chaos_between(&round->dice, 0, NEMESIS_WORKER_STOP);
	if (chaos_once_in(&round->dice, 3))
		return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_DELAY,
		                                        NEMESIS_BLACK_HOLE);
	return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_MEMBER_KILL,
	                                        NEMESIS_MEMBER_CLOCK);
}

static enum nemesis_kind etcd_kind_choose(struct round *round)
{
	if (chaos_once_in(&round->dice, 2))
		return (enum nemesis_kind)chaos_between(&round->dice, 0, NEMESIS_WORKER_STOP);
	return (enum nemesis_kind)chaos_between(&round->dice, NEMESIS_ETCD_KILL,
	                                        NEMESIS_ETCD_MAJORITY);
}

static enum nemesis_kind kind_choose(struct round *round)
{
	bool loses = round->options->loses;
	/* Every other fault is one that only this kind of round has. */
	bool special = loses && chaos_once_in(&round->dice, 2);
	enum nemesis_kind kind = (enum nemesis_kind)chaos_between(
		&round->dice, special ? NEMESIS_FLUSH_ALL : 0, NEMESIS_CLOCK);

	if (round->options->sentinel)
		return sentinel_kind_choose(round);
	if (round->options->cluster)
		return cluster_kind_choose(round);
	if (round->options->quorum)
		return quorum_kind_choose(round);
	if (round->options->etcd)
		return etcd_kind_choose(round);
	/* A short round has few faults. */
	if (loses && !round->lost)
		return special ? NEMESIS_FLUSH_ALL : NEMESIS_RESTART_EMPTY;
	/* Some copies are so young that their holders are still there, others are old. */
	if (round->saved && history_now_ns() < round->saved_ns + YOUNG_MS * CHAOS_MS &&
	    chaos_once_in(&round->dice, 2))
		return NEMESIS_RESTART_OLD;
	if (round->saved && kind == NEMESIS_SAVE && !chaos_once_in(&round->dice, 3))
		return NEMESIS_RESTART_OLD;
	return kind;
}

/* Logged before it is caused: its effects must not be seen before the log has it. */
static bool fault_begin(struct round *round, struct nemesis_fault *fault)
{
	enum nemesis_kind kind = kind_choose(round);
	int64_t ms = chaos_between(&round->dice, kinds[kind].low_ms, kinds[kind].high_ms);
	char words[64];
	bool begun;

	*fault = (struct nemesis_fault){.kind = kind, .target = -1};
	if (!is_allowed(round, kind) || !target_choose(round, fault))
		return false;
	words_of(round, kind, words, sizeof(words));
	if (kind != NEMESIS_CLOCK)
		log_phase(round, fault, kind == NEMESIS_WORKER_KILL ? "at" : "begin", words);
	if (kind <= NEMESIS_WORKER_STOP)
		begun = worker_begin(round, fault);
	else if (is_link(kind))
		begun = nemesis_network_begin(round, fault, ms);
	else if (is_of_members(kind))
		begun = nemesis_quorum_begin(round, fault);
	else if (kind >= NEMESIS_ETCD_KILL)
		begun = nemesis_etcd_begin(round, fault);
	else if (kind >= NEMESIS_SLOT_MOVE)
		begun = nemesis_cluster_begin(round, fault);
	else if (kind >= NEMESIS_FAILOVER)
		begun = nemesis_sentinel_begin(round, fault);
	else
		begun = nemesis_server_begin(round, fault, ms);
	if (begun && is_of_members(kind))
		log_phase(round, fault, "down", "");
	if (kind != NEMESIS_WORKER_KILL && kind != NEMESIS_CLOCK && !(begun && ms))
		log_phase(round, fault, "end", "");
	if (!begun)
		return false;
	round->result->faults[kind]++;
	if (begins_memory(kind)) {
		round->lost = true;
		/* The server's uptime, by which clients know its start, is in whole seconds. */
		round->grace_over_ns =
			history_now_ns() + (chaos_pause_ms(round->options) + 1000) * CHAOS_MS;
	}
	fault->active = ms > 0;
	fault->ends_ns = history_now_ns() + ms * CHAOS_MS;
	return true;
}

void nemesis_step(struct round *round)
{
	int64_t now_ns = history_now_ns();
	struct nemesis_fault *room = NULL;

	for (int i = 0; i < NEMESIS_FAULTS; i++) {
		struct nemesis_fault *fault = &round->faults[i];
		if (fault->active && fault->ends_ns <= now_ns)
			fault_end(round, fault);
		if (!fault->active)
			room = fault;
	}
	if (now_ns < round->next_ns || !room)
		return;
	if (round->options->etcd && round->options->without_grace)
		nemesis_etcd_plant(round);
	for (int tries = 0; tries < 20 && !fault_begin(round, room); tries++)
		continue;
	round->next_ns = history_now_ns() + chaos_between(&round->dice, 200, 1800) * CHAOS_MS;
}

void nemesis_heal(struct round *round)
{
	for (int i = 0; i < NEMESIS_FAULTS; i++)
		if (round->faults[i].active)
			fault_end(round, &round->faults[i]);
	if (round->options->sentinel)
		nemesis_sentinel_heal(round);
	if (round->options->cluster)
		nemesis_cluster_settle(round);
}
