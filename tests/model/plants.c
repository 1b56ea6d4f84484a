/* SPDX-License-Identifier: MIT
 * The wrong variants, each with bounds in which the model finds it. */
#include "plants.h"

#include <string.h>

#define LOCK(...)                                                                                  \
	{                                                                                          \
		.name = "lock", .kind = LK_KIND_LOCK, __VA_ARGS__                                  \
	}
#define SEMAPHORE(...)                                                                             \
	{                                                                                          \
		.name = "semaphore", .kind = LK_KIND_SEMAPHORE, __VA_ARGS__                        \
	}
#define RATE(...)                                                                                  \
	{                                                                                          \
		.name = "rate", .kind = LK_KIND_SEMAPHORE, .fixed = true, __VA_ARGS__              \
	}
#define LATCH(...)                                                                                 \
	{                                                                                          \
		.name = "latch", .kind = LK_KIND_LATCH, __VA_ARGS__                                \
	}

/* Two clients, no faults: enough for most of the wrong variants. */
#define PAIR .clients = 2, .steps = 4, .ticks = 3, .stalls = 2, .calls = 1

const struct model_plant model_plants[] = {
	{
		.name = "leave-without-owner-check",
		.what = "a leave ends the hold of any client",
		.rule = RULE_SCRIPT,
		.script = "lock_leave",
		.old = "granted = held_by(ticket, value)",
		.new = "granted = string.match(value, ' (%d+) ')",
		.bounds = LOCK(.clients = 2, .steps = 3, .ticks = 1, .stalls = 1, .calls = 2,
                               .give_ups = 1),
	},
	{
		.name = "leave-keeps-the-queue",
		.what = "a ticket that leaves stays in the queue",
		.rule = RULE_SCRIPT,
		.script = "lock_leave",
		.old = "change('ZREM', KEYS[2], ticket)",
		.new = "0",
		.bounds = LOCK(PAIR, .give_ups = 1),
	},
	{
		.name = "ask-grants-what-is-held",
		.what = "an ask is granted although another client holds the lock",
		.rule = RULE_SCRIPT,
		.script = "lock_ask",
		.old = "if not owner and (not head or head == ticket)",
		.new = "if (not head or head == ticket)",
		.bounds = LOCK(PAIR),
	},
	{
		.name = "ask-overtakes",
		.what = "an ask is granted although others wait",
		.rule = RULE_SCRIPT,
		.script = "lock_ask",
		.old = "if not owner and (not head or head == ticket)",
		.new = "if not owner",
		.bounds = LOCK(.clients = 3, .steps = 2, .ticks = 3, .stalls = 2, .calls = 1,
                               .crashes = 1, .faults = 1),
	},
	{
		.name = "renew-without-owner-check",
		.what = "a claim is confirmed although another client holds the lock",
		.rule = RULE_SCRIPT,
		.script = "lock_renew",
		.old = "held_by(ARGV[1], value)",
		.new = "string.match(value, ' (%d+) (%d+) ([s%-])$')",
		.bounds = LOCK(.clients = 2, .steps = 5, .ticks = 4, .stalls = 2, .calls = 2),
	},
	{
		.name = "valid-from-the-reply",
		.what = "a hold's validity is counted from the reply, not from the request",
		.rule = RULE_VALID_FROM_REPLY,
		.bounds = LOCK(PAIR),
	},
	{
		.name = "late-answer-holds",
		.what = "a reply that is read after its validity makes a hold",
		.rule = RULE_LATE_ANSWER_HOLDS,
		.bounds = LOCK(PAIR),
	},
	{
		.name = "claim-skipped",
		.what = "a grant that needs a claim is used without one",
		.rule = RULE_CLAIM_SKIPPED,
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 4, .stalls = 2, .calls = 2),
	},
	{
		.name = "never-asks-again",
		.what = "a waiter relies on messages only",
		.rule = RULE_NEVER_ASKS_AGAIN,
		.bounds = LOCK(PAIR, .crashes = 1, .faults = 1),
	},
	{
		.name = "hand-unchecked",
		.what = "the head is served although the lock is not free",
		.rule = RULE_SCRIPT,
		.script = "lock_leave",
		.old = "if value and not granted then return {'left', 0, 0, 0} end",
		.new = "",
		.bounds = LOCK(.clients = 3, .steps = 3, .ticks = 1, .stalls = 1, .calls = 1,
                               .give_ups = 1),
	},
	{
		.name = "ask-cuts-an-extension",
		.what = "an ask cuts an extended lease to the ticket's own",
		.rule = RULE_SCRIPT,
		.script = "lock_ask",
		.old = "left > tonumber(lease) then",
		.new = "left > tonumber(my_lease) then lease = my_lease",
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 3, .stalls = 3, .calls = 1,
                               .extends = 1),
	},
	{
		.name = "valid-from-the-last-queued",
		.what = "a message's validity is counted from the last ask",
		.rule = RULE_VALID_FROM_QUEUED,
		.bounds = LOCK(.clients = 2, .steps = 5, .ticks = 5, .stalls = 4, .calls = 2),
	},
	{
		.name = "late-grant-revives",
		.what = "\"it is yours already\", read after the hold has lapsed, extends it",
		.rule = RULE_LATE_GRANT_REVIVES,
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 4, .stalls = 3, .calls = 1),
	},
	{
		.name = "fence-of-the-message",
		.what = "a claim takes its fence from the message",
		.rule = RULE_FENCE_OF_MESSAGE,
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 3, .stalls = 3, .calls = 2),
	},
	{
		.name = "renewal-shortens",
		.what = "a renewal brings the end of a lease nearer than an extension had put it",
		.rule = RULE_SCRIPT,
		.script = "lock_renew",
		.old = "if left < tonumber(ARGV[3]) then",
		.new = "if true then",
		.bounds = LOCK(.clients = 2, .steps = 3, .ticks = 4, .stalls = 0, .calls = 1,
                               .extends = 1, .cuts = 1, .lates = 1, .faults = 1),
	},
	{
		.name = "loss-not-told",
		.what = "the loss of a hold is not reported",
		.rule = RULE_LOSS_UNTOLD,
		.bounds = LOCK(PAIR),
	},
	{
		.name = "release-is-lost",
		.what = "every release ends with a loss",
		.rule = RULE_RELEASE_LOST,
		.bounds = LOCK(PAIR),
	},
	{
		.name = "release-is-unknown",
		.what = "no release knows its result, although the reply came",
		.rule = RULE_RELEASE_UNKNOWN,
		.bounds = LOCK(PAIR),
	},
	{
		.name = "leave-denies-its-owner",
		.what = "the reply to a release denies the client's own hold",
		.rule = RULE_SCRIPT,
		.script = "lock_leave",
		.old = "mine = granted and 1 or 0",
		.new = "mine = 0",
		.bounds = LOCK(PAIR),
	},
	{
		.name = "extension-is-unknown",
		.what = "no extension knows its result, although the reply came",
		.rule = RULE_EXTEND_UNKNOWN,
		.bounds = LOCK(PAIR, .extends = 1),
	},
	{
		.name = "refused-leave-is-forgotten",
		.what = "a leave that the store refused is not repeated",
		.rule = RULE_LEAVE_FORGOTTEN,
		.bounds = LOCK(PAIR, .give_ups = 1, .refusals = 1, .faults = 1),
	},
	{
		.name = "leave-forgets-used",
		.what = "a release does not free its permits",
		.rule = RULE_SCRIPT,
		.script = "semaphore_leave",
		.old = "used - (permits or 0)",
		.new = "used",
		.bounds = SEMAPHORE(PAIR, .twos = 2),
	},
	{
		.name = "one-permit-too-many",
		.what = "one permit more than the capacity is granted",
		.rule = RULE_SCRIPT,
		.script = "semaphore_ask",
		.old = "(waiting == 0 or head[1] == ticket) and used + permits <= capacity",
		.new = "(waiting == 0 or head[1] == ticket) and used + permits <= capacity + 1",
		.bounds = SEMAPHORE(PAIR, .twos = 2),
	},
	{
		.name = "rate-granted-short",
		.what = "permits that are never released are granted for a claim window only",
		.rule = RULE_SCRIPT,
		.script = "semaphore_leave",
		.old = "local life = old and claim_ms or lease_ms",
		.new = "local life = (old or mode == 'n') and claim_ms or lease_ms",
		.bounds = RATE(.clients = 2, .finals = 1, .steps = 4, .ticks = 3, .calls = 2,
                               .twos = 3),
	},
	{
		.name = "used-grant-is-left",
		.what = "the leave of a ticket whose grant was used ends that grant",
		.rule = RULE_SCRIPT,
		.script = "semaphore_leave",
		.old = "if mine and fence == ARGV[6] then keep = held end",
		.new = "",
		.bounds = RATE(.clients = 2, .finals = 1, .steps = 4, .ticks = 4, .stalls = 2,
                               .calls = 2, .twos = 3),
	},
	{
		.name = "step-sent-again-counts",
		.what = "a step that is sent again is counted again",
		.rule = RULE_SCRIPT,
		.script = "latch_down",
		.old = "if known[1] and tonumber(known[1]) >= tonumber(ARGV[3])",
		.new = "if false",
		.bounds = LATCH(PAIR, .sets = 1, .count = 2, .cuts = 1, .faults = 1),
	},
	{
		.name = "step-under-a-new-number",
		.what = "a step that is sent again has another number",
		.rule = RULE_STEP_RENUMBERED,
		.bounds = LATCH(PAIR, .sets = 1, .count = 2, .cuts = 1, .faults = 1),
	},
	{.name = NULL},
};

const struct model_plant *model_plant(const char *name)
{
	const struct model_plant *plant = model_plants;

	while (plant->name && strcmp(plant->name, name) != 0)
		plant++;
	return plant->name ? plant : NULL;
}

void model_plant_explore(const struct model_plant *plant, struct explore_plan *plan,
                         struct explore_result *result)
{
	*plan = (struct explore_plan){
		.bounds = &plant->bounds,
		.rule = plant->rule,
		.script = plant->script,
		.old = plant->old,
		.new = plant->new,
	};
	explore(plan, result);
}
