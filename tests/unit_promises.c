/* SPDX-License-Identifier: MIT
 * The table of promises agrees with the sources of the proofs; and each promise can be broken. */
#include "promises/promises.h"
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SOURCES_MAX (1 << 19)

/* ---- The table ---------------------------------------------------------------------------- */

/* The text of all C files of a folder of the tests. */
static void read_sources(const char *folder, char *text)
{
	struct dirent *entry;
	char path[400];
	size_t len = 0;
	DIR *files;

	snprintf(path, sizeof(path), "tests/%s", folder);
	files = opendir(path);
	ck_assert_msg(files != NULL, "no folder %s", path);
	while ((entry = readdir(files))) {
		const char *dot = strrchr(entry->d_name, '.');
		FILE *file;
		if (!dot || strcmp(dot, ".c") != 0)
			continue;
		snprintf(path, sizeof(path), "tests/%s/%s", folder, entry->d_name);
		file = fopen(path, "r");
		ck_assert_msg(file != NULL, "cannot read %s", path);
		len += fread(text + len, 1, SOURCES_MAX - len, file);
		ck_assert_uint_lt(len, SOURCES_MAX);
		fclose(file);
	}
	closedir(files);
	text[len] = '\0';
}

/* As a word; or as the beginning of one. */
static bool has(const char *text, const char *word, bool whole)
{
	size_t len = strlen(word);

	for (const char *at = text; (at = strstr(at, word)); at += len)
		if (!whole || (!isalnum((unsigned char)at[len]) && at[len] != '_'))
			return true;
	return false;
}

/* "hand-overs" is PROMISE_HAND_OVERS, and promise_hand_overs() states it. */
static void names_of(const char *id, char constant[64], char function[64])
{
	snprintf(constant, 64, "PROMISE_%s", id);
	snprintf(function, 64, "promise_%s", id);
	for (int i = 0; i < 64 && constant[i]; i++) {
		constant[i] = constant[i] == '-' ? '_' : (char)toupper((unsigned char)constant[i]);
		function[i] = function[i] == '-' ? '_' : function[i];
	}
}

TEST(each_promise_has_an_id_and_a_sentence)
{
	for (int i = 0; i < PROMISES; i++) {
		const struct promise_row *row = &promise_table[i];
		ck_assert_msg(row->id && *row->id && row->sentence && *row->sentence, "row %d", i);
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(row->id, promise_table[j].id);
	}
	ck_assert_ptr_null(promise_broken(PROMISE_EXCLUSION, NULL));
	ck_assert_str_eq(promise_broken(PROMISE_EXCLUSION, "two"),
	                 "exclusion (two holds of a lock are never valid at once): two");
}

/* A promise is checked where the table says so, and not elsewhere; at least one proof checks it.
 * Of simulator, model and fuzzer, those that check it call its function; a promise of one of them
 * alone may do without. */
TEST(table_lists_what_the_proofs_check)
{
	static char sources[PROOFS][SOURCES_MAX];

	for (int proof = 0; proof < PROOFS; proof++)
		read_sources(promise_proofs[proof], sources[proof]);
	for (int i = 0; i < PROMISES; i++) {
		const struct promise_row *row = &promise_table[i];
		char constant[64], function[64];
		int checked = 0, virtual = 0;
		names_of(row->id, constant, function);
		for (int proof = 0; proof < PROOFS; proof++) {
			bool checks = !row->unchecked[proof];
			ck_assert_msg(has(sources[proof], constant, true) == checks,
			              "tests/%s %s %s, and the table says otherwise",
			              promise_proofs[proof], checks ? "does not check" : "checks",
			              row->id);
			checked += checks;
			virtual += checks && proof != PROOF_CHAOS;
		}
		ck_assert_msg(checked > 0, "nothing checks %s", row->id);
		for (int proof = 0; proof<PROOFS &&virtual> 1; proof++)
			ck_assert_msg(proof == PROOF_CHAOS || row->unchecked[proof] ||
			                      has(sources[proof], function, false),
			              "tests/%s does not call %s()", promise_proofs[proof],
			              function);
	}
}

/* A proof that does not check a promise may refer to another promise, which it checks. */
TEST(reason_that_is_a_promise_is_checked)
{
	for (int i = 0; i < PROMISES; i++)
		for (int proof = 0; proof < PROOFS; proof++)
			for (int j = 0; j < PROMISES && promise_table[i].unchecked[proof]; j++)
				ck_assert_msg(strcmp(promise_table[i].unchecked[proof],
				                     promise_table[j].id) != 0 ||
				                      !promise_table[j].unchecked[proof],
				              "%s: tests/%s does not check %s either",
				              promise_table[i].id, promise_proofs[proof],
				              promise_table[j].id);
}

/* ---- The functions ------------------------------------------------------------------------ */

#define KEPT(wrong) ck_assert_ptr_null(wrong)
#define BROKEN(wrong) ck_assert_ptr_nonnull(wrong)

TEST(more_than_the_capacity_is_found)
{
	/* Until an end, but not at it. */
	const struct promise_use uses[] = {{10, 20, 2}, {15, 25, 1}, {20, 30, 3}};

	ck_assert_int_eq(promise_used(uses, 3, 9), 0);
	ck_assert_int_eq(promise_used(uses, 3, 10), 2);
	ck_assert_int_eq(promise_used(uses, 3, 19), 3);
	ck_assert_int_eq(promise_used(uses, 3, 20), 4);
	KEPT(promise_exclusion(1));
	BROKEN(promise_exclusion(2));
	KEPT(promise_permits(3, 3));
	BROKEN(promise_permits(4, 3));
	KEPT(promise_rate(3, 3));
	BROKEN(promise_rate(4, 3));
}

TEST(fence_that_is_not_new_is_found)
{
	KEPT(promise_fence(7, 8));
	BROKEN(promise_fence(7, 7));
	BROKEN(promise_fence(7, 6));
}

TEST(overtaken_waiter_is_found)
{
	struct promise_waiter queue[] = {{"a", 5, true}, {"b", 7, true}};

	KEPT(promise_fifo(queue, 2, "a", 5));
	BROKEN(promise_fifo(queue, 2, "b", 7));
	BROKEN(promise_fifo(queue, 2, "c", INT64_MAX));
	KEPT(promise_fifo(queue, 2, "c", 4));
	/* At the same time the text decides, as in the store. */
	BROKEN(promise_fifo(queue, 2, "c", 5));
	KEPT(promise_fifo(queue, 2, "A", 5));
	queue[0].waits = false;
	KEPT(promise_fifo(queue, 2, "b", 7));
}

/* What a script does to a semaphore, call by call. */
TEST(script_that_does_wrong_is_found)
{
	static struct store_view before, after;
	struct lk__answer answer = {.kind = LK__LEFT};
	struct promise_run run = {&before, &after, LK__LEAVE, "a", 0, 1, 1000, &answer, false, 9};
	struct store_ticket *was = &before.holds[0], *is = &after.holds[0];

	before = after = (struct store_view){.there = true, .capacity = 3, .used = 2};
	before.hold_count = after.hold_count = 1;
	*was = *is = (struct store_ticket){
		.text = "a", .permits = 2, .held = 2, .fence = 7, .end_us = 5000, .force_ms = 5};
	KEPT(promise_permits_kept(&after));
	KEPT(promise_permits_moved(&run));
	KEPT(promise_lease(was, is, run.now_us));
	is->end_us--;
	BROKEN(promise_lease(was, is, run.now_us));
	was->end_us = 7000; /* beyond a lease from now: the clock was set back */
	KEPT(promise_lease(was, is, run.now_us));
	KEPT(promise_owner(&run, was));
	run.ticket = "b";
	BROKEN(promise_owner(&run, was));
	run.kind = LK__RECLAIM;
	BROKEN(promise_owner(&run, was));
	run.in_grace = true;
	KEPT(promise_owner(&run, was));
	was->mark = 9;
	BROKEN(promise_owner(&run, was));
	was->mark = 8;
	KEPT(promise_owner(&run, was));
	was->final = true;
	BROKEN(promise_owner(&run, was));
	was->final = run.in_grace = false;
	run.kind = LK__LEAVE;
	was->end_us = 1000;
	KEPT(promise_owner(&run, was));
	is->held = 1;
	BROKEN(promise_permits_kept(&after));
	BROKEN(promise_permits_moved(&run));
	after.used = 1;
	KEPT(promise_permits_kept(&after));
	run.kind = LK__SHRINK;
	run.ticket = "a";
	KEPT(promise_permits_moved(&run));
	is->fence = 8;
	BROKEN(promise_permits_moved(&run));
	is->held = 2;
	after.used = 4;
	BROKEN(promise_permits_moved(&run));
	after.used = 2;
	after.queued = 1;
	after.queue[0] = (struct store_ticket){.text = "c", .permits = 1, .arrival_us = 9};
	BROKEN(promise_served(&run));
	answer.more = true;
	KEPT(promise_served(&run));
	run.kind = LK__ASK;
	run.ticket = "c";
	KEPT(promise_fifo_place(&run));
	run.arrival_us = 8;
	BROKEN(promise_fifo_place(&run));
	run.arrival_us = 0;
	after.queue[after.queued++] = (struct store_ticket){.text = "d", .arrival_us = 10};
	BROKEN(promise_fifo_place(&run));
}

TEST(event_that_is_late_is_found)
{
	KEPT(promise_deadline(7, 7));
	BROKEN(promise_deadline(7, 8));
	KEPT(promise_wake_up(7, 7));
	BROKEN(promise_wake_up(7, 8));
	KEPT(promise_hand_overs(16));
	BROKEN(promise_hand_overs(17));
}

TEST(hold_that_is_believed_in_too_long_is_found)
{
	struct lk__ticket ticket = {.valid_until_ns = 100};
	struct lk__hold hold = {
		.ticket = &ticket, .fence = 7, .count = 1, .max_until_ns = LK__NEVER};
	uint64_t lapsed = 0;

	KEPT(promise_validity(true, 7, 7));
	BROKEN(promise_validity(true, 6, 7));
	BROKEN(promise_validity(false, 8, 7));
	KEPT(promise_grant(&hold, 99, 1));
	BROKEN(promise_grant(&hold, 99, 2));
	BROKEN(promise_grant(&hold, 100, 1));
	BROKEN(promise_grant(NULL, 99, 1));
	KEPT(promise_revival(&hold, 99, &lapsed));
	KEPT(promise_revival(&hold, 100, &lapsed));
	ticket.valid_until_ns = 200;
	BROKEN(promise_revival(&hold, 101, &lapsed));
	hold.fence = 8;
	KEPT(promise_revival(&hold, 101, &lapsed));
}

TEST(request_after_its_leave_is_found)
{
	static struct promise_leaves leaves;
	struct lk__wait_queue queue = {0};
	struct lk__ticket ticket = {.queue = &queue, .nonce = "0123456789"};
	struct lk__pending request = {.ticket = &ticket, .kind = LK__ASK};

	KEPT(promise_zombie(&leaves, &request));
	request.kind = LK__RENEW;
	BROKEN(promise_zombie(&leaves, &request));
	request.claim = true;
	KEPT(promise_zombie(&leaves, &request));
	request.kind = LK__LEAVE;
	KEPT(promise_zombie(&leaves, &request));
	KEPT(promise_zombie(&leaves, &request));
	request.kind = LK__ASK;
	BROKEN(promise_zombie(&leaves, &request));
	ticket.nonce[0] = '1';
	KEPT(promise_zombie(&leaves, &request));
}

/* Each error without its cause, and with it. */
TEST(result_without_a_cause_is_found)
{
	static const struct {
		lk_err err;
		struct promise_causes causes;
	} rows[] = {
		{LK_OK, {.success = true}},
		{LK_ELOST, {.loss = true}},
		{LK_EUNKNOWN, {.silence = true}},
		{LK_ECONN, {.unsent = true}},
		{LK_EAGAIN, {.refusal = true}},
		{LK_EAUTH, {.refusal = true}},
		{LK_ESERVER, {.refusal = true}},
		{LK_ECLOSED, {.close = true}},
		{LK_EREPLICAS, {.shortage = true}},
		{LK_EBUSY, {.busy = true}},
		{LK_ELIMIT, {.limit = true}},
		{LK_EABSENT, {.absence = true}},
		{LK_EFOREIGN, {.other = true}},
		{LK_ETIMEDOUT, {.gave_up = LK_ETIMEDOUT}},
		{LK_ECANCELED, {.gave_up = LK_ECANCELED}},
	};
	const size_t count = sizeof(rows) / sizeof(*rows);
	struct lk__op op = {.done = true};

	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < count; j++)
			if (!memcmp(&rows[i].causes, &rows[j].causes, sizeof(rows[i].causes)))
				KEPT(promise_result(&rows[i].causes, rows[j].err));
			else
				BROKEN(promise_result(&rows[i].causes, rows[j].err));
	BROKEN(promise_result(&rows[0].causes, LK_EINVALID));
	KEPT(promise_result_once(&op, true));
	BROKEN(promise_result_once(&op, false));
}

TEST(latch_that_counts_or_opens_wrongly_is_found)
{
	KEPT(promise_step(0));
	BROKEN(promise_step(1));
	KEPT(promise_result_step(LK_OK, true, 1));
	KEPT(promise_result_step(LK_OK, false, 0));
	BROKEN(promise_result_step(LK_OK, true, 0));
	BROKEN(promise_result_step(LK_OK, false, 1));
	KEPT(promise_result_step(LK_ECONN, false, 0));
	BROKEN(promise_result_step(LK_ECONN, false, 1));
	KEPT(promise_result_step(LK_EUNKNOWN, false, 1));
	KEPT(promise_opening(7, 8));
	BROKEN(promise_opening(7, 7));
	KEPT(promise_await(LK_OK, true));
	BROKEN(promise_await(LK_OK, false));
	KEPT(promise_await(LK_ETIMEDOUT, false));
}

TEST(state_machine_that_forgets_is_found)
{
	struct lk__session session = {0};
	struct lk__core core = {0};
	struct lk__wait_queue queue = {0};
	struct lk__ticket ticket = {.queue = &queue, .session = &session, .state = LK__OVER};
	struct lk__hold hold = {.max_until_ns = 100};
	uint64_t told = 0;

	ck_assert(lk__core_init(&core, 1));
	KEPT(promise_progress(&core));
	KEPT(promise_state(&core));
	KEPT(promise_rest(&core));
	KEPT(promise_rest_queue(&queue));
	core.all_tickets = &ticket;
	BROKEN(promise_progress(&core));
	BROKEN(promise_rest(&core));
	ticket.state = LK__WAITING;
	BROKEN(promise_state(&core)); /* the core's table does not have it */
	core.all_tickets = NULL;
	BROKEN(promise_loss(&core, &hold, &told)); /* no timer */
	hold.max_until_ns = LK__NEVER;
	KEPT(promise_loss(&core, &hold, &told));
	hold.lost = LK_LOST_EXPIRED;
	hold.fence = 7;
	KEPT(promise_loss(&core, &hold, NULL));
	BROKEN(promise_loss(&core, &hold, &told));
	told = 7;
	KEPT(promise_loss(&core, &hold, &told));
	queue.hold = &hold;
	BROKEN(promise_rest_queue(&queue));
	lk__core_fini(&core);
}
