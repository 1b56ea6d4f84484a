/* SPDX-License-Identifier: MIT
 * The promises, and which proof checks each of them. */
#include "promises.h"

#include <stdio.h>

/* Why a proof does not check a promise. */
#define ANY_REPLY "its store replies anything"
#define NO_RECORD "no record of a process shows it"
#define ONE_PROOF "one proof is enough"
#define NO_LINKS "its links have no time"

const char *const promise_proofs[PROOFS] = {"sim", "model", "fuzz", "chaos"};

/* The columns: sim, model, fuzz, chaos. */
const struct promise_row promise_table[PROMISES] = {
	[PROMISE_EXCLUSION] = {"exclusion",
                               "two holds of a lock are never valid at once",
                               {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_CANARY] = {"canary",
                            "a holder meets no other one in what the lock guards",
                            {"exclusion", "exclusion", ANY_REPLY, NULL}},
	[PROMISE_PERMITS] = {"permits",
                             "never are more permits valid than the capacity",
                             {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_RATE] = {"rate",
                          "no window of a rate has more grants than its capacity",
                          {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_FENCE] = {"fence",
                           "fences grow, and none is issued twice",
                           {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_FIFO] = {"fifo",
                          "waiters are granted FIFO, and a live one is not skipped",
                          {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_HAND_OVERS] = {"hand-overs",
                                "threads of one process do not starve others that wait",
                                {NULL, "a client has one thread", ANY_REPLY, NULL}},
	[PROMISE_WAKE_UP] = {"wake-up",
                             "nothing that is free is left ungranted while a client waits",
                             {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_SERVED] = {"served",
                            "a script that frees permits serves the queue, or asks for it",
                            {NULL, NULL, ANY_REPLY, "wake-up"}},
	[PROMISE_LOSS] = {"loss",
                          "a loss is reported by the end of the lease, and is final",
                          {NULL, NULL, NULL, NULL}},
	[PROMISE_REVIVAL] = {"revival",
                             "a hold that has lapsed is never valid again",
                             {NULL, NULL, "loss", "loss"}},
	[PROMISE_VALIDITY] = {"validity",
                              "the store keeps a hold for as long as its client believes in it",
                              {NULL, NULL, ANY_REPLY, NO_RECORD}},
	[PROMISE_GRANT] = {"grant",
                           "an acquired hold is valid, and is the grant of the store",
                           {NULL, NULL, ANY_REPLY, NO_RECORD}},
	[PROMISE_OWNER] = {"owner",
                           "only its own leave, its expiry or an operator ends a hold",
                           {NULL, NULL, ANY_REPLY, "exclusion"}},
	[PROMISE_LEASE] = {"lease",
                           "no request brings the end of a lease nearer",
                           {NULL, NULL, ANY_REPLY, "exclusion"}},
	[PROMISE_ZOMBIE] = {"zombie",
                            "no request of a ticket is sent after its leave",
                            {NULL, "rest", NULL, NULL}},
	[PROMISE_STEP] = {"step", "a latch counts each step once", {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_OPENING] = {"opening",
                             "a latch opens once a generation, at its last step",
                             {NULL, NULL, ANY_REPLY, "step"}},
	[PROMISE_AWAIT] = {"await",
                           "a wait for a latch returns once that is open, and not before",
                           {NULL, NULL, ANY_REPLY, NULL}},
	[PROMISE_DEADLINE] = {"deadline",
                              "a call ends by its wait plus one command timeout",
                              {NULL, NULL, NULL, NULL}},
	[PROMISE_RESULT] = {"result",
                            "a call reports a result only where that is certain, and once",
                            {NULL, NULL, NULL, "order"}},
	[PROMISE_ORDER] = {"order",
                           "one order of all calls explains each result",
                           {"result", "result", ANY_REPLY, NULL}},
	[PROMISE_REST] = {"rest",
                          "nothing is left after a confirmed end",
                          {NULL, NULL, NULL, NULL}},
	[PROMISE_STATE] = {"state",
                           "tickets, holds and calls of a client agree with each other",
                           {NULL, NULL, NULL, NO_RECORD}},
	[PROMISE_PROGRESS] = {"progress",
                              "each ticket has a pending request or a timer",
                              {NULL, NULL, NULL, NO_RECORD}},
	[PROMISE_LINK] = {"link",
                          "a client notices a dead link in time, and dials another one",
                          {NULL, NO_LINKS, NO_LINKS, "wake-up"}},
	[PROMISE_SCRIPT] = {"script",
                            "no script fails, and its replies and messages can be read",
                            {NULL, NULL, "fuzz_scripts() has its own rules", NO_RECORD}},
	[PROMISE_COUNTERS] = {"counters",
                              "a client's counters match the results of its calls",
                              {NULL, ONE_PROOF, ONE_PROOF, ONE_PROOF}},
	[PROMISE_CRASH] = {"crash",
                           "a process that is not killed ends by itself",
                           {"it has no processes", "it has no processes", "a crash ends it", NULL}},
};

const char *promise_broken(enum promise promise, const char *wrong)
{
	static char texts[PROMISES][400];

	if (!wrong)
		return NULL;
	snprintf(texts[promise], sizeof(texts[promise]), "%s (%s): %s", promise_table[promise].id,
	         promise_table[promise].sentence, wrong);
	return texts[promise];
}
