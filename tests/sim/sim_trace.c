/* SPDX-License-Identifier: MIT
 * The events of a run as text.  Only a run that is printed writes it. */
#include "sim.h"

#include <stdarg.h>
#include <string.h>

void sim_trace(struct sim *sim, const struct sim_client *client, const char *fmt, ...)
{
	va_list args;

	if (!sim->trace)
		return;
	fprintf(sim->trace, "%11.6f ", (double)(sim->now_ns - SIM_START_NS) / 1e9);
	if (client)
		fprintf(sim->trace, "c%02d.%d ", client->slot, client->life);
	va_start(args, fmt);
	vfprintf(sim->trace, fmt, args);
	va_end(args);
	fputc('\n', sim->trace);
}

/* In one line. */
const char *sim_flat(const char *bytes, size_t len)
{
	static char text[100];
	size_t i;

	for (i = 0; i < len && i < sizeof(text) - 1; i++)
		text[i] = bytes[i] < ' ' ? ' ' : bytes[i];
	text[i] = '\0';
	return text;
}

const char *sim_call_name(const struct sim_call *call)
{
	static const char *const words[] = {
		"ask",  "leave", "hand",    "yield", "renew",   "shrink",
		"look", "step",  "reclaim", "epoch", "confirm",
	};

	if (call->kind == SIM_PING)
		return "PING";
	if (call->kind == SIM_QUESTION)
		return "a question";
	return words[call->kind];
}

static void trace_ticket(struct sim *sim, const struct store_ticket *ticket)
{
	fprintf(sim->trace, " c%02d.%d:%.4s", sim_slot_of(ticket), sim_life_of(ticket),
	        ticket->nonce);
	if (ticket->permits)
		fprintf(sim->trace, "x%u", ticket->held ? ticket->held : ticket->permits);
}

void sim_trace_name(struct sim *sim, const struct sim_name *name)
{
	const struct store_view *view = &name->view;

	if (!sim->trace)
		return;
	fprintf(sim->trace, "%11s   %s", "", name->text);
	if (sim->plan->quorum)
		fprintf(sim->trace, " at member %d", sim->quorum.runs_at);
	if (name->kind == LK_KIND_LATCH) {
		fprintf(sim->trace, ": generation %llu, %lld of %lld left\n",
		        (unsigned long long)view->generation, (long long)view->count,
		        (long long)view->initial);
		return;
	}
	if (name->kind == LK_KIND_SEMAPHORE)
		fprintf(sim->trace, " %lld/%lld", (long long)view->used, (long long)view->capacity);
	fprintf(sim->trace, ": held");
	for (int i = 0; i < view->hold_count; i++) {
		trace_ticket(sim, &view->holds[i]);
		fprintf(sim->trace, " fence %llu for %.3f s",
		        (unsigned long long)view->holds[i].fence % 1000000000000,
		        (double)(view->holds[i].end_us - sim_server_us(sim)) / 1e6);
	}
	fprintf(sim->trace, " | waiting");
	for (int i = 0; i < view->queued; i++)
		trace_ticket(sim, &view->queue[i]);
	fputc('\n', sim->trace);
}
