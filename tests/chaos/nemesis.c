/* SPDX-License-Identifier: MIT
 * The nemesis: causes a fault every one to three seconds, at random, from a seed, and ends it
 * later.  Each fault is logged when it begins and when it has ended. */
#include "chaos/nemesis.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

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

static void target_name(const struct nemesis_fault *fault, char *text, size_t size)
{
	if (fault->kind <= NEMESIS_WORKER_STOP)
		snprintf(text, size, "%d", (int)fault->pid);
	else if (fault->kind == NEMESIS_DELETE)
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

static void fault_end(struct round *round, struct nemesis_fault *fault)
{
	char target[32];

	if (fault->kind == NEMESIS_WORKER_STOP)
		worker_end(round, fault);
	else if (is_link(fault->kind))
		nemesis_network_end(round, fault);
	else
		nemesis_server_end(round, fault);
	target_name(fault, target, sizeof(target));
	round_log(round, kinds[fault->kind].name, target, "end");
	fault->active = false;
}

/* At most one fault at a time of each link, and of the server. */
static bool is_taken(const struct round *round, const struct nemesis_fault *wanted)
{
	for (int i = 0; i < NEMESIS_FAULTS; i++) {
		const struct nemesis_fault *fault = &round->faults[i];
		if (!fault->active || fault == wanted || fault->kind <= NEMESIS_WORKER_STOP)
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

	return !(needs & NEEDS_KEEPS && round->options->loses) &&
	       !(needs & NEEDS_LOSES && !round->options->loses) &&
	       !(needs & NEEDS_CLOCK && !round->options->moves_clock) &&
	       !(needs & NEEDS_NAMESPACE && !round->result->in_namespace);
}

/* Further words for the judge. */
static const char *words_of(enum nemesis_kind kind)
{
	switch (kind) {
	case NEMESIS_FLUSH_ALL:
	case NEMESIS_DELETE:
	case NEMESIS_RESTART_EMPTY:
	case NEMESIS_RESTART_OLD:
		return " memory=lost";
	default:
		return "";
	}
}

static bool target_choose(struct round *round, struct nemesis_fault *fault)
{
	const struct round_worker *worker;

	if (is_link(fault->kind))
		fault->target = (int)chaos_between(&round->dice, 0, CHAOS_PROXIES - 1);
	if (fault->kind == NEMESIS_DELETE)
		fault->target = (int)chaos_between(&round->dice, 0, CHAOS_NAMES - 1);
	if (fault->kind == NEMESIS_RESTART_OLD && !round->saved)
		return false;
	if (fault->kind > NEMESIS_WORKER_STOP)
		return !is_taken(round, fault);
	fault->target = (int)chaos_between(&round->dice, 0, CHAOS_WORKERS - 1);
	worker = &round->workers[fault->target];
	fault->pid = worker->pid;
	return worker->pid && !worker->stopped && !worker->killed;
}

/* Logged before it is caused: its effects must not be seen before the log has it. */
static bool fault_begin(struct round *round, struct nemesis_fault *fault)
{
	/* Every third fault is one that only this kind of round has. */
	bool special = round->options->loses && chaos_once_in(&round->dice, 3);
	enum nemesis_kind kind = (enum nemesis_kind)chaos_between(
		&round->dice, special ? NEMESIS_FLUSH_ALL : 0, NEMESIS_COUNT - 1);
	int64_t ms = chaos_between(&round->dice, kinds[kind].low_ms, kinds[kind].high_ms);
	char target[32];
	bool begun;

	*fault = (struct nemesis_fault){.kind = kind, .target = -1};
	if (!is_allowed(round, kind) || !target_choose(round, fault))
		return false;
	target_name(fault, target, sizeof(target));
	if (kind == NEMESIS_WORKER_KILL)
		round_log(round, "kill", target, "at");
	else if (kind != NEMESIS_CLOCK)
		round_log(round, kinds[kind].name, target, "begin%s", words_of(kind));
	if (kind <= NEMESIS_WORKER_STOP)
		begun = worker_begin(round, fault);
	else if (is_link(kind))
		begun = nemesis_network_begin(round, fault, ms);
	else
		begun = nemesis_server_begin(round, fault, ms);
	if (kind != NEMESIS_WORKER_KILL && kind != NEMESIS_CLOCK && !(begun && ms))
		round_log(round, kinds[kind].name, target, "end");
	if (!begun)
		return false;
	round->result->faults[kind]++;
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
	for (int tries = 0; tries < 20 && !fault_begin(round, room); tries++)
		continue;
	round->next_ns = history_now_ns() + chaos_between(&round->dice, 200, 1800) * CHAOS_MS;
}

void nemesis_heal(struct round *round)
{
	for (int i = 0; i < NEMESIS_FAULTS; i++)
		if (round->faults[i].active)
			fault_end(round, &round->faults[i]);
}
