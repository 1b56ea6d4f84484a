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
		.old = "granted, _, _, mark = held_by(ticket, value)",
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
		.old = "if not owner and young == 0 and (not head or head == ticket)",
		.new = "if young == 0 and (not head or head == ticket)",
		.bounds = LOCK(PAIR),
	},
	{
		.name = "ask-overtakes",
		.what = "an ask is granted although others wait",
		.rule = RULE_SCRIPT,
		.script = "lock_ask",
		.old = "if not owner and young == 0 and (not head or head == ticket)",
		.new = "if not owner and young == 0",
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
		.old = "if mine and fence == ARGV[8] then keep = held end",
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
	{
		.name = "no-grace",
		.what = "a server that has lost its memory grants at once",
		.rule = RULE_NO_GRACE,
		.bounds = LOCK(.clients = 2, .steps = 3, .ticks = 2, .calls = 1, .flushes = 1,
                               .faults = 1),
	},
	{
		.name = "marker-not-compared",
		.what = "an ask is granted by a memory that its client does not know",
		.rule = RULE_SCRIPT,
		.script = "lock_ask",
		.old = "if not is_known(KEYS[4], ARGV[7]) then return {'epoch'} end",
		.new = "",
		.bounds = LOCK(.clients = 2, .steps = 3, .ticks = 2, .calls = 1, .flushes = 1,
                               .faults = 1),
	},
	{
		.name = "missing-marker-is-a-start",
		.what = "without a marker, the memory is whole since the process began",
		.rule = RULE_SCRIPT,
		.script = "epoch_set",
		.old = "not marker and (flushed or known)",
		.new = "false",
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 2, .calls = 1, .flushes = 1,
                               .faults = 1),
	},
	{
		.name = "forgotten-leave-serves",
		.what = "in the grace, the leave of a hold of an earlier memory serves the queue",
		.rule = RULE_SCRIPT,
		.script = "lock_leave",
		.old = "if young and mark ~= mark_of(ARGV[5]) then",
		.new = "if false then",
		.bounds = LOCK(.clients = 2, .steps = 5, .ticks = 1, .calls = 2, .abandons = 1,
                               .promotions = 1, .copies = 1, .faults = 1),
	},
	{
		.name = "ask-of-an-earlier-memory",
		.what = "in the grace, an ask is granted that an earlier memory had granted",
		.rule = RULE_SCRIPT,
		.script = "lock_ask",
		.old = "(young == 0 or mark == mark_of(ARGV[7]))",
		.new = "true",
		.bounds = LOCK(.clients = 2, .steps = 2, .ticks = 3, .stalls = 3, .calls = 1,
                               .promotions = 1, .copies = 1, .behind = 2, .faults = 1),
	},
	{
		.name = "smaller-fence-wins",
		.what = "a reclaim takes the lock only from a later holder",
		.rule = RULE_SCRIPT,
		.script = "lock_reclaim",
		.old = "other - fence >= 0",
		.new = "other - fence <= 0",
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 2, .calls = 1, .restarts = 1,
                               .copies = 1, .faults = 1),
	},
	{
		.name = "late-reclaim-takes",
		.what = "a reclaim after the grace takes the lock from another holder",
		.rule = RULE_SCRIPT,
		.script = "lock_reclaim",
		.old = "if grace(now, ARGV[7]) == 0 then return {'gone'} end",
		.new = "",
		.bounds = LOCK(.clients = 2, .steps = 2, .ticks = 2, .stalls = 2, .calls = 1,
                               .promotions = 1, .copies = 1, .behind = 3, .faults = 1),
	},
	{
		.name = "reclaim-above-capacity",
		.what = "more permits are taken back than there are",
		.rule = RULE_SCRIPT,
		.script = "semaphore_reclaim",
		.old = "local free = capacity - used + (held or 0)",
		.new = "local free = permits",
		.bounds = SEMAPHORE(.clients = 2, .steps = 4, .ticks = 1, .calls = 1, .twos = 1,
                                    .restarts = 1, .copies = 1, .faults = 1),
	},
	{
		.name = "stale-permits-stay",
		.what = "permits that only an older copy has leave no room for a reclaim",
		.rule = RULE_SCRIPT,
		.script = "semaphore_reclaim",
		.old = "(is_over or its_permits and is_stale(other, its_fence, its_mark))",
		.new = "is_over",
		.bounds = SEMAPHORE(.clients = 2, .steps = 3, .calls = 2, .twos = 1,
                                    .promotions = 1, .copies = 1, .faults = 1),
	},
	{
		.name = "reclaimed-permits-give-way",
		.what = "a reclaim takes permits from a hold that was reclaimed before",
		.rule = RULE_SCRIPT,
		.script = "semaphore_reclaim",
		.old = "its_mark ~= mark and ",
		.new = "",
		.bounds = SEMAPHORE(.clients = 2, .steps = 4, .calls = 2, .promotions = 1,
                                    .copies = 1, .faults = 1),
	},
	{
		.name = "permits-for-an-unknown-memory",
		.what = "an ask for permits is granted by a memory that its client does not know",
		.rule = RULE_SCRIPT,
		.script = "semaphore_ask",
		.old = "not is_known(KEYS[5], ARGV[9])",
		.new = "false",
		.bounds = SEMAPHORE(.clients = 2, .steps = 3, .ticks = 2, .calls = 1, .twos = 2,
                                    .flushes = 1, .faults = 1),
	},
	{
		.name = "permits-served-in-the-grace",
		.what = "in the grace, a release of permits serves the queue",
		.rule = RULE_SCRIPT,
		.script = "semaphore_leave",
		.old = "if known and grace(now, ARGV[7]) == 0 then",
		.new = "if known then",
		.bounds = SEMAPHORE(.clients = 3, .steps = 2, .calls = 1, .twos = 1, .restarts = 1,
                                    .faults = 1),
	},
	{
		.name = "wait-elsewhere",
		.what = "replicas are asked on a connection that did not write the grant",
		.rule = RULE_WAIT_ELSEWHERE,
		.bounds = LOCK(.clients = 2, .steps = 3, .calls = 1, .replicas = 1, .promotions = 1,
                               .faults = 1),
	},
	{
		.name = "message-uncounted",
		.what = "a grant by message is used although no replica has confirmed it",
		.rule = RULE_MESSAGE_UNCOUNTED,
		.bounds = LOCK(.clients = 2, .steps = 4, .calls = 1, .replicas = 1, .promotions = 1,
                               .faults = 1),
	},
	{
		.name = "renewal-uncounted",
		.what = "a renewal extends the hold although no replica has confirmed it",
		.rule = RULE_RENEWAL_UNCOUNTED,
		.bounds = LOCK(.clients = 2, .steps = 4, .ticks = 2, .calls = 1, .replicas = 1,
                               .shorts = 1, .promotions = 1, .faults = 1),
	},
	{
		.name = "one-confirmation-of-two",
		.what = "a grant counts although only one replica of two has confirmed it",
		.rule = RULE_ONE_IS_ENOUGH,
		.bounds = LOCK(.clients = 2, .steps = 3, .calls = 1, .replicas = 2, .second = 1,
                               .shorts = 1, .promotions = 1, .faults = 1),
	},
	{
		.name = "older-replica-promoted",
		.what = "one replica of two confirms a grant, and the other one is promoted",
		.rule = RULE_OLDER_PROMOTED,
		.bounds = LOCK(.clients = 2, .steps = 3, .calls = 1, .replicas = 1, .second = 1,
                               .better = 1, .promotions = 1, .faults = 1),
	},
	{.name = NULL},
};

static const struct model_plant *find(const struct model_plant *plant, const char *name)
{
	while (plant->name && strcmp(plant->name, name) != 0)
		plant++;
	return plant->name ? plant : NULL;
}

const struct model_plant *model_plant(const char *name)
{
	const struct model_plant *plant = find(model_plants, name);

	if (!plant)
		plant = find(model_quorum_plants, name);
	return plant ? plant : find(model_etcd_plants, name);
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
		.walks = plant->walks,
		.seed = 1,
	};
	if (plant->walks)
		explore_walk(plan, result);
	else
		explore(plan, result);
}
