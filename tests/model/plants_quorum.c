/* SPDX-License-Identifier: MIT
 * The wrong variants of the scripts of a quorum, each with bounds in which the model finds it.
 * Those of src/core/ are planted bugs in tests/mutants, whose killer is unit_model_quorum. */
#include "plants.h"

#define QUORUM(...)                                                                                \
	{                                                                                          \
		.name = "quorum", .kind = LK_KIND_LOCK, .servers = 3, .steps = 255, __VA_ARGS__    \
	}
#define PAIR .clients = 2, .calls = 1
/* No faults: whoever waits is served at once. */
#define CALM .clients = 3, .any_order = 1, .calls = 1
#define WALK                                                                                       \
	.clients = 3, .any_order = 1, .ticks = 8, .stalls = 1, .calls = 2, .cuts = 1, .lates = 1,  \
	.losses = 1, .slows = 1, .faults = 2

const struct model_plant model_quorum_plants[] = {
	{
		.name = "quorum-amnesia-without-youth",
		.what = "a server that has lost its memory votes at once",
		.rule = RULE_SCRIPT,
		.script = "quorum_ask",
		.old = "local young = grace(now, ARGV[8])",
		.new = "local young = 0",
		.bounds = QUORUM(WALK, .restarts = 1),
		.walks = 2000,
	},
	{
		.name = "quorum-memory-not-compared",
		.what = "an ask is granted by a memory that its client does not know",
		.rule = RULE_SCRIPT,
		.script = "quorum_ask",
		.old = "if not is_known(KEYS[4], ARGV[7]) then return {'epoch'} end",
		.new = "",
		.bounds = QUORUM(PAIR, .held = 2, .flushes = 1, .faults = 1),
	},
	{
		.name = "quorum-wanted-never-told",
		.what = "no holder learns that an older ticket waits",
		.rule = RULE_SCRIPT,
		.script = "quorum_ask",
		.old = "if owner and rank == 0 and is_older(ticket, owner) then",
		.new = "if false then",
		.bounds = QUORUM(CALM),
		.walks = 1000,
	},
	{
		.name = "quorum-never-yields",
		.what = "no leg is given back before a majority is reached",
		.rule = RULE_NEVER_YIELDS,
		.bounds = QUORUM(CALM),
		.walks = 1000,
	},
	{
		.name = "quorum-yield-believed",
		.what = "a leg counts until its yield is answered",
		.rule = RULE_YIELD_BELIEVED,
		.bounds = QUORUM(CALM),
		.walks = 2000,
	},
	{
		.name = "quorum-uncommitted",
		.what = "a hold begins with a fence that the counters have not reached",
		.rule = RULE_UNCOMMITTED,
		.bounds = QUORUM(CALM),
		.walks = 2000,
	},
	{
		.name = "quorum-order-of-arrival",
		.what = "the queue is in order of arrival, not of priority",
		.rule = RULE_SCRIPT,
		.script = "quorum_ask",
		.old = "waiting = waiting + change('ZADD', KEYS[2], priority, ticket)",
		.new = "waiting = waiting + "
		       "change('ZADD', KEYS[2], string.format('%d', redis.call('ZCARD', KEYS[2])), "
		       "ticket)",
		.bounds = QUORUM(WALK),
		.walks = 2000,
	},
	{
		.name = "quorum-yield-without-successor",
		.what = "a leg that has yielded does not wait for its next turn",
		.rule = RULE_SCRIPT,
		.script = "quorum_leave",
		.old = "if successor ~= '' and serves and not is_late then",
		.new = "if false then",
		.bounds = QUORUM(PAIR, .yields = 1),
	},
	{
		.name = "quorum-leave-of-one-epoch",
		.what = "a leave ends only the epoch that it names",
		.rule = RULE_SCRIPT,
		.script = "quorum_leave",
		.old = "if held and held <= latest then",
		.new = "if owner == ticket then",
		.bounds = QUORUM(PAIR, .give_ups = 1, .cuts = 1, .lates = 1, .faults = 1),
	},
	{
		.name = "quorum-late-yield-ends-its-successor",
		.what = "a yield that is executed twice ends the epoch that it began",
		.rule = RULE_SCRIPT,
		.script = "quorum_leave",
		.old = "local latest = successor == '' and math.huge or epoch_of(name, ticket)",
		.new = "local latest = math.huge",
		.bounds = QUORUM(WALK),
		.walks = 5000,
	},
	{
		.name = "quorum-commit-not-stored",
		.what = "a commit does not raise the counter",
		.rule = RULE_SCRIPT,
		.script = "quorum_renew",
		.old = "change('HSET', KEYS[3], class, last)",
		.new = "",
		.bounds = QUORUM(WALK),
		.walks = 2000,
	},
	{
		.name = "quorum-fence-beside-the-counter",
		.what = "a grant is not above the counter",
		.rule = RULE_SCRIPT,
		.script = "quorum_ask",
		.old = "change('HSET', KEYS[3], class, fresh)",
		.new = "",
		.bounds = QUORUM(.clients = 2, .calls = 2),
	},
	{
		.name = "quorum-ask-grants-what-is-held",
		.what = "an ask is granted although another client holds the leg",
		.rule = RULE_SCRIPT,
		.script = "quorum_ask",
		.old = "if not owner and not (waiting > 0 and has_older_head(ticket)) then",
		.new = "if not has_older_head(ticket) then",
		.bounds = QUORUM(PAIR, .held = 2),
	},
	{.name = NULL},
};
