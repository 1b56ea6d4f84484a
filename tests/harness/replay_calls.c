/* SPDX-License-Identifier: MIT
 * Select the script and the arguments of a replay's calls: mostly those of clients that have read
 * the replies, sometimes invalid ones. */
#include "replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHANNELS "lk:c:0:"
#define CLIENT "client-AAAA_AAAAAAAAA" /* after its letter */
#define BIG 2                          /* index of the name with many tickets */
#define MARKER "lk:epoch"
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const no_args[] = {NULL};

static bool chance(struct replay *replay, uint64_t of)
{
	return !replay_draw(replay, of);
}

static const char *pick(struct replay *replay, size_t count, const char *const *words)
{
	return words[replay_draw(replay, count)];
}
#define PICK(replay, ...)                                                                          \
	pick(replay, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), ARGS(__VA_ARGS__))

static const char *number(int64_t value, char text[24])
{
	snprintf(text, 24, "%" PRId64, value);
	return text;
}

/* ---- Names and tickets -------------------------------------------------------------------- */

static void make_ticket(struct replay *replay, struct replay_name *name, bool semaphore, int i)
{
	static const int leases[] = {1, 7, 100, 900, 3000, 6001, 30000, 120000};
	struct replay_ticket *ticket = &name->ticket[semaphore][i];
	int lease = leases[replay_draw(replay, sizeof(leases) / sizeof(*leases))], len;

	ticket->client = (int)replay_draw(replay, REPLAY_CLIENTS);
	ticket->permits = 1 + (int)replay_draw(replay, chance(replay, 3) ? 5 : 1);
	len = snprintf(ticket->text, sizeof(ticket->text), "2:%s:%011d:%d:%c",
	               replay->client[ticket->client], replay->serial++, lease,
	               !chance(replay, 3)               ? 'r'
	               : semaphore && chance(replay, 3) ? 'n'
	                                                : 'f');
	if (semaphore)
		snprintf(ticket->text + len, sizeof(ticket->text) - (size_t)len, ":%d",
		         ticket->permits);
	snprintf(ticket->arrival, sizeof(ticket->arrival), "0");
	snprintf(ticket->fence, sizeof(ticket->fence), "0");
}

static void put_epoch(struct replay_ticket *ticket)
{
	snprintf(ticket->text + ticket->base_len, sizeof(ticket->text) - (size_t)ticket->base_len,
	         "%d", ticket->epoch);
}

static void make_leg(struct replay *replay, struct replay_name *name, int i)
{
	static const int leases[] = {1, 900, 3000, 6001, 30000};
	struct replay_ticket *ticket = &name->ticket[2][i];
	int64_t priority = replay->now_us - (int64_t)replay_draw(replay, 4000000);

	ticket->client = (int)replay_draw(replay, REPLAY_CLIENTS);
	ticket->epoch = chance(replay, 3) ? 9 : 0;
	ticket->base_len =
		snprintf(ticket->text, sizeof(ticket->text), "q1:%s:%011d:%d:%c:%" PRId64 ":",
	                 replay->client[ticket->client], replay->serial++,
	                 leases[replay_draw(replay, sizeof(leases) / sizeof(*leases))],
	                 chance(replay, 3) ? 'f' : 'r', chance(replay, 6) ? 5 : priority);
	snprintf(ticket->fence, sizeof(ticket->fence), "0");
	put_epoch(ticket);
}

void replay_calls_init(struct replay *replay)
{
	/* One name has room for runs that reach their limits. */
	static const int tickets[REPLAY_NAMES] = {6, 9, REPLAY_TICKETS, 7, 5};
	static const int capacity[REPLAY_NAMES] = {1, 3, 45, 2, 1};
	static const enum replay_kind kind[REPLAY_NAMES] = {REPLAY_LOCK, REPLAY_SEMAPHORE,
	                                                    REPLAY_SEMAPHORE, REPLAY_LATCH,
	                                                    REPLAY_LEG};

	for (int i = 0; i < REPLAY_CLIENTS; i++) {
		snprintf(replay->client[i], sizeof(replay->client[i]), "%c" CLIENT, 'a' + i);
		snprintf(replay->client_key[i], REPLAY_KEY, "lk:client:%c" CLIENT, 'a' + i);
	}
	for (int i = 0; i < REPLAY_NAMES; i++) {
		struct replay_name *name = &replay->name[i];
		char c = (char)('k' + i);
		name->kind = kind[i];
		name->tickets = tickets[i];
		name->capacity = capacity[i];
		snprintf(name->main, REPLAY_KEY, "lk:{%c}", c);
		snprintf(name->queue, REPLAY_KEY, "lk:{%c}:q", c);
		snprintf(name->holds, REPLAY_KEY, "lk:{%c}:h", c);
		snprintf(name->memory, REPLAY_KEY, "lk:{%c}:s", c);
		snprintf(name->topic, REPLAY_KEY, "lk:l:0:{%c}", c);
		for (int j = 0; j < name->tickets; j++) {
			make_ticket(replay, name, false, j);
			make_ticket(replay, name, true, j);
			make_leg(replay, name, j);
		}
	}
}

/* Update the ticket from the reply. */
static void learn(struct replay *replay, struct replay_ticket *ticket)
{
	char word[16], value[24];

	replay_answer(replay, 0, word, sizeof(word));
	replay_answer(replay, 1, value, sizeof(value));
	if (!strcmp(word, "queued"))
		snprintf(ticket->arrival, sizeof(ticket->arrival), "%s", value);
	else if (!strcmp(word, "granted") || !strcmp(word, "held"))
		snprintf(ticket->fence, sizeof(ticket->fence), "%s", value);
}

/* A fence that a client may have: of the grant, a later one, 0, or nonsense. */
static const char *last_fence(struct replay *replay, const struct replay_ticket *ticket,
                              char text[24])
{
	int64_t fence = strtoll(ticket->fence, NULL, 10);

	switch (replay_draw(replay, 6)) {
	case 0:
		return "0";
	case 1:
		return number(fence + (int64_t)replay_draw(replay, 5000000), text);
	default:
		return ticket->fence;
	}
}

/* ---- The server's memory ------------------------------------------------------------------ */

/* A client that connects, or one whose marker is another one. */
static void find_marker(struct replay *replay)
{
	const char *set = PICK(replay, "s 1/3 60000", "s 1/3 60000", "t 2/3 4000", "", NULL, "x");
	const char *const flush[] = {"FLUSHALL"};
	bool is_new = set && chance(replay, 30);
	char word[16];

	/* A server that is new in a set is empty; expired keys may still count on one side. */
	if (is_new)
		replay_command(replay, 1, flush);
	replay_script(replay, &lk__script_epoch_set, (const char *const[]){MARKER},
	              ARGS(chance(replay, 4) ? PICK(replay, "", "", "1 a+0b 5", "1 - 7", "x")
	                                     : replay->marker,
	                   chance(replay, 2) ? "0" : replay->process,
	                   chance(replay, 4) ? "3" : "0", set, is_new ? "1" : "0"));
	if (!strcmp(replay_answer(replay, 0, word, sizeof(word)), "epoch"))
		replay_answer(replay, 1, replay->marker, sizeof(replay->marker));
}

/* An operator ends the grace. */
static void end_grace(struct replay *replay)
{
	char marker[sizeof(replay->marker)];

	replay_script(replay, &lk__script_epoch_end, (const char *const[]){MARKER},
	              ARGS(chance(replay, 3) ? PICK(replay, "", "1 - 7") : replay->marker));
	if (*replay_answer(replay, 1, marker, sizeof(marker)))
		snprintf(replay->marker, sizeof(replay->marker), "%s", marker);
}

/* The marker that a client sends. */
static const char *marker(struct replay *replay)
{
	return chance(replay, 40) ? PICK(replay, "", "1 a+0b 1700000000000000", "1 - 7")
	                          : replay->marker;
}

/* The end of the grace that a client sends. */
static const char *grace_end(struct replay *replay, char text[24])
{
	switch (replay_draw(replay, 9)) {
	case 0:
		return number(replay->now_us + (int64_t)replay_draw(replay, 12000000), text);
	case 1:
		return number(replay->now_us + (int64_t)replay_draw(replay, 2), text);
	default:
		return "1700000000000000";
	}
}

/* The fence of a hold that a client takes back: of its grant, or a recent one. */
static const char *grant_fence(struct replay *replay, const struct replay_ticket *ticket,
                               char text[24])
{
	if (strcmp(ticket->fence, "0") != 0 && !chance(replay, 4))
		return ticket->fence;
	return number(replay->now_us - (int64_t)replay_draw(replay, 9000000), text);
}

static const char *queue_life(struct replay *replay)
{
	return chance(replay, 15) ? PICK(replay, "5", "400") : "30000";
}

/* ---- Locks -------------------------------------------------------------------------------- */

static void call_lock(struct replay *replay, struct replay_name *name)
{
	const char *const keys[] = {name->main, name->queue, "lk:fence", MARKER};
	int i = (int)replay_draw(replay, (uint64_t)name->tickets);
	struct replay_ticket *ticket = &name->ticket[0][i];
	const char *share = chance(replay, 2) ? "s" : "-";
	char text[24], end[24], fence[24];

	switch (replay_draw(replay, 10)) {
	case 0:
	case 1:
	case 2:
		replay_script(replay, &lk__script_lock_ask, keys,
		              ARGS(ticket->text, chance(replay, 5) ? "0" : "1",
		                   chance(replay, 4) ? "0" : ticket->arrival, CHANNELS, share,
		                   queue_life(replay), marker(replay), grace_end(replay, end)));
		learn(replay, ticket);
		break;
	case 3:
	case 4:
	case 5:
		replay_script(replay, &lk__script_lock_leave, keys,
		              ARGS(chance(replay, 5) ? "" : ticket->text,
		                   last_fence(replay, ticket, text), CHANNELS,
		                   PICK(replay, "0", "0", "1"), marker(replay),
		                   grace_end(replay, end)));
		if (!chance(replay, 8))
			make_ticket(replay, name, false, i);
		break;
	case 6:
	case 7:
		replay_script(replay, &lk__script_lock_renew, keys,
		              ARGS(ticket->text, chance(replay, 3) ? "0" : ticket->fence,
		                   PICK(replay, "1", "100", "3000", "30000", "120000"),
		                   last_fence(replay, ticket, text), share, marker(replay),
		                   grace_end(replay, end)));
		learn(replay, ticket);
		break;
	case 8:
		replay_script(replay, &lk__script_lock_reclaim, keys,
		              ARGS(ticket->text, grant_fence(replay, ticket, fence),
		                   PICK(replay, "1", "100", "3000", "30000"),
		                   last_fence(replay, ticket, text), share, marker(replay),
		                   grace_end(replay, end)));
		learn(replay, ticket);
		break;
	default:
		replay_script(replay, &lk__script_lock_show, keys,
		              ARGS(chance(replay, 3) ? "" : ticket->text,
		                   PICK(replay, "0", "1", "3", "50")));
	}
}

/* ---- Locks of a quorum -------------------------------------------------------------------- */

#define CLASS "7"

/* The fence that a client proposes. */
static const char *proposal(struct replay *replay, char text[24])
{
	return number(replay->now_us - 7000000 + (int64_t)replay_draw(replay, 14000000), text);
}

static void leave_leg(struct replay *replay, struct replay_name *name, const char *const *keys,
                      int i)
{
	struct replay_ticket *ticket = &name->ticket[2][i];
	char text[24], end[24];

	replay_script(replay, &lk__script_quorum_leave, keys,
	              ARGS(chance(replay, 5) ? "" : ticket->text, proposal(replay, text), CLASS,
	                   CHANNELS, PICK(replay, "0", "0", "1"), "", queue_life(replay),
	                   marker(replay), grace_end(replay, end)));
	if (!chance(replay, 8))
		make_leg(replay, name, i);
}

static void yield_leg(struct replay *replay, struct replay_name *name, const char *const *keys,
                      int i)
{
	struct replay_ticket *ticket = &name->ticket[2][i];
	char text[24], end[24], before[sizeof(ticket->text)];

	snprintf(before, sizeof(before), "%s", ticket->text);
	ticket->epoch++;
	put_epoch(ticket);
	replay_script(replay, &lk__script_quorum_leave, keys,
	              ARGS(before, proposal(replay, text), CLASS, CHANNELS, "0", ticket->text,
	                   queue_life(replay), marker(replay), grace_end(replay, end)));
	if (chance(replay, 4)) {
		ticket->epoch--;
		put_epoch(ticket);
	}
}

static void call_leg(struct replay *replay, struct replay_name *name)
{
	const char *const keys[] = {name->main, name->queue, "lk:fences", MARKER};
	int i = (int)replay_draw(replay, (uint64_t)name->tickets);
	struct replay_ticket *ticket = &name->ticket[2][i];
	char text[24], end[24];

	switch (replay_draw(replay, 9)) {
	case 0:
	case 1:
	case 2:
		replay_script(replay, &lk__script_quorum_ask, keys,
		              ARGS(ticket->text, chance(replay, 5) ? "0" : "1",
		                   proposal(replay, text), CLASS, CHANNELS, queue_life(replay),
		                   marker(replay), grace_end(replay, end)));
		learn(replay, ticket);
		break;
	case 3:
	case 4:
		leave_leg(replay, name, keys, i);
		break;
	case 5:
		yield_leg(replay, name, keys, i);
		break;
	case 6:
	case 7:
		replay_script(replay, &lk__script_quorum_renew, keys,
		              ARGS(ticket->text, chance(replay, 3) ? "0" : ticket->fence,
		                   PICK(replay, "0", "1", "100", "3000", "30000"),
		                   last_fence(replay, ticket, text), CLASS, marker(replay),
		                   grace_end(replay, end)));
		learn(replay, ticket);
		break;
	default:
		replay_script(replay, &lk__script_lock_show, keys,
		              ARGS(chance(replay, 3) ? "" : ticket->text,
		                   PICK(replay, "0", "1", "3", "50")));
	}
}

/* ---- Semaphores --------------------------------------------------------------------------- */

static void ask_permits(struct replay *replay, struct replay_name *name, const char *const *keys,
                        struct replay_ticket *ticket, const char *patience)
{
	char capacity[24], end[24];

	number(chance(replay, 9) ? 1 + (int64_t)replay_draw(replay, 6) : name->capacity, capacity);
	replay_script(replay, &lk__script_semaphore_ask, keys,
	              ARGS(ticket->text, chance(replay, 5) ? "0" : "1",
	                   chance(replay, 4) ? "0" : ticket->arrival, CHANNELS, capacity,
	                   PICK(replay, "3600000", "3600000", "2000", "1"), queue_life(replay),
	                   patience, marker(replay), grace_end(replay, end)));
	learn(replay, ticket);
}

static void show_permits(struct replay *replay, const char *const *keys,
                         const struct replay_ticket *ticket)
{
	const char *wanted = chance(replay, 3) ? "" : ticket->text;
	const char *holds = PICK(replay, "0", "1", "50");

	replay_script(replay, &lk__script_semaphore_show, keys,
	              chance(replay, 4)
	                      ? ARGS(wanted, holds, "2",
	                             chance(replay, 5) ? "" : replay->client[ticket->client])
	                      : ARGS(wanted, holds, PICK(replay, "0", "3", "100")));
}

static void call_semaphore(struct replay *replay, struct replay_name *name)
{
	const char *const keys[] = {name->main, name->queue, "lk:fence", name->holds, MARKER};
	int i = (int)replay_draw(replay, (uint64_t)name->tickets);
	struct replay_ticket *ticket = &name->ticket[1][i];
	const char *patience = PICK(replay, "21000", "21000", "500", "0");
	const char *keep = PICK(replay, "0", "0", "0", "1", "2", "7");
	char capacity[24], end[24], fence[24];

	switch (replay_draw(replay, 13)) {
	case 0:
	case 1:
	case 2:
	case 3:
	case 4:
		ask_permits(replay, name, keys, ticket, patience);
		break;
	case 5:
	case 6:
	case 7:
		replay_script(replay, &lk__script_semaphore_leave, keys,
		              ARGS(chance(replay, 5) ? "" : ticket->text, keep, CHANNELS,
		                   PICK(replay, "0", "0", "1"), patience, marker(replay),
		                   grace_end(replay, end),
		                   chance(replay, 12) ? ticket->fence : "0"));
		if (!strcmp(keep, "0") && !chance(replay, 8))
			make_ticket(replay, name, true, i);
		break;
	case 8:
	case 9:
		replay_script(replay, &lk__script_semaphore_renew, keys,
		              ARGS(ticket->text, chance(replay, 3) ? "0" : ticket->fence,
		                   PICK(replay, "1", "100", "3000", "30000", "120000"),
		                   marker(replay), grace_end(replay, end)));
		learn(replay, ticket);
		break;
	case 10:
		number(chance(replay, 3) ? (int64_t)replay_draw(replay, 9) : name->capacity,
		       capacity);
		replay_script(replay, &lk__script_semaphore_set, keys,
		              ARGS(PICK(replay, "open", "open", "resize"), capacity,
		                   PICK(replay, "3600000", "3600000", "2000", "1"), CHANNELS,
		                   patience, marker(replay), grace_end(replay, end)));
		break;
	case 11:
		number(name->capacity, capacity);
		replay_script(replay, &lk__script_semaphore_reclaim, keys,
		              ARGS(ticket->text, grant_fence(replay, ticket, fence),
		                   PICK(replay, "1", "100", "3000", "30000"),
		                   PICK(replay, "1", "1", "2", "5"), capacity,
		                   PICK(replay, "3600000", "2000"), marker(replay),
		                   grace_end(replay, end)));
		learn(replay, ticket);
		break;
	default:
		show_permits(replay, keys, ticket);
	}
}

/* ---- Latches ------------------------------------------------------------------------------ */

static void count_down(struct replay *replay, struct replay_name *name)
{
	int client = (int)replay_draw(replay, REPLAY_CLIENTS);
	char generation[24], step[24];

	/* A generation: current, past, or impossible. */
	snprintf(generation, sizeof(generation), "%s",
	         replay_peek(replay, "HGET", name->main, "gen"));
	if (generation[0] == '-' || !generation[0] || chance(replay, 12))
		snprintf(generation, sizeof(generation), "%s",
		         PICK(replay, "0", "1700000000000001", "7", "x"));
	if (!chance(replay, 4))
		replay->step[client]++;
	number(replay->step[client], step);
	replay_script(
		replay, &lk__script_latch_down, (const char *const[]){name->main, name->memory},
		ARGS(generation, replay->client[client], step, PICK(replay, "1", "1", "2", "9"),
	             PICK(replay, "", "", "x", "y", "a name", "1:"), name->topic));
}

static void call_latch(struct replay *replay, struct replay_name *name)
{
	switch (replay_draw(replay, 12)) {
	case 0:
	case 1:
		replay_script(
			replay, &lk__script_latch_set,
			(const char *const[]){name->main, name->memory, "lk:fence", name->queue},
			ARGS(PICK(replay, "0", "1", "2", "5", "1000000"), PICK(replay, "0", "1"),
		             PICK(replay, "1", "700", "30000", "3600000"),
		             PICK(replay, "0", "0", "1", "900", "60000"), name->topic));
		break;
	case 2:
		replay_script(replay, &lk__script_latch_remove,
		              (const char *const[]){name->main, name->memory, name->queue},
		              ARGS(name->topic));
		break;
	case 3:
	case 4:
	case 5:
		replay_script(replay, &lk__script_latch_show,
		              (const char *const[]){name->main, name->memory, "lk:fence"}, no_args);
		break;
	default:
		count_down(replay, name);
	}
}

/* ---- The rest ----------------------------------------------------------------------------- */

static void call_client(struct replay *replay)
{
	int client = (int)replay_draw(replay, REPLAY_CLIENTS);
	const char *const key[] = {replay->client_key[client]};
	char channel[80];

	snprintf(channel, sizeof(channel), CHANNELS "%s", replay->client[client]);
	if (chance(replay, 2))
		replay_script(replay, &lk__script_link_probe, key, ARGS(channel));
	else if (chance(replay, 3))
		replay_script(replay, &lk__script_client_set, key,
		              ARGS(PICK(replay, "1", "60000", "0", "x", "-5"), "label", "a\r\nb"));
	else
		replay_script(replay, &lk__script_client_set, key,
		              ARGS("60000", "host", "h", "pid", "17", "label:lk:{k}", "two words"));
}

void replay_crowd(struct replay *replay)
{
	struct replay_name *name = &replay->name[BIG];
	const char *const keys[] = {name->main, name->queue, "lk:fence",
	                            name->kind == REPLAY_SEMAPHORE ? name->holds : MARKER, MARKER};
	char end[24];

	for (int i = 0; i < name->tickets && name->kind < REPLAY_LATCH; i++) {
		if (name->kind == REPLAY_SEMAPHORE)
			ask_permits(replay, name, keys, &name->ticket[1][i], "21000");
		else
			replay_script(replay, &lk__script_lock_ask, keys,
			              ARGS(name->ticket[0][i].text, "1", "0", CHANNELS, "-",
			                   "30000", marker(replay), grace_end(replay, end)));
	}
}

void replay_call(struct replay *replay)
{
	/* The name with many tickets needs more calls. */
	struct replay_name *name =
		&replay->name[chance(replay, 3) ? BIG : replay_draw(replay, REPLAY_NAMES)];
	/* Sometimes the name is used as another kind. */
	enum replay_kind kind = chance(replay, 25)
	                                ? (enum replay_kind)replay_draw(replay, REPLAY_KINDS)
	                                : name->kind;
	char word[16];

	if (chance(replay, 30)) {
		replay_script(replay, &lk__script_name_kind,
		              (const char *const[]){name->main, name->queue}, no_args);
	} else if (chance(replay, 40)) {
		call_client(replay);
	} else if (chance(replay, 80)) {
		end_grace(replay);
	} else {
		/* Sometimes delete the name and start with another kind. */
		if (chance(replay, 3000)) {
			name->kind = (enum replay_kind)replay_draw(replay, REPLAY_KINDS);
			name->capacity = name == &replay->name[BIG] && chance(replay, 2) ? 45 : 3;
		}
		if (kind == REPLAY_LOCK)
			call_lock(replay, name);
		else if (kind == REPLAY_SEMAPHORE)
			call_semaphore(replay, name);
		else if (kind == REPLAY_LEG)
			call_leg(replay, name);
		else
			call_latch(replay, name);
		if (chance(replay, 40) ||
		    !strcmp(replay_answer(replay, 0, word, sizeof(word)), "epoch"))
			find_marker(replay);
	}
}
