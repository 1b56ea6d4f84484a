/* SPDX-License-Identifier: MIT
 * The promises, and which proof checks each of them. */
#include "promises.h"

#include <stdio.h>

const char *const promise_proofs[PROOFS] = {"sim", "model", "fuzz", "chaos"};

#define YES NULL
#define ANY_REPLY "its store replies anything"
#define NO_RECORD "no record of a process shows it"
#define ONE_PROOF "one proof is enough"
#define NO_LINKS "its links have no time"
#define NO_PROCESS "it has no processes"

const struct promise_row promise_table[PROMISES] = {
#define PROMISE(name, id, sentence, ...) {id, sentence, {__VA_ARGS__}},
#include "promises.def"
#undef PROMISE
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
