/* SPDX-License-Identifier: MIT
 * Queries and breaks on etcd, in virtual time: harness/virtual_etcd.h. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include "core/query.h"
#include "etcd/query.h"
#include "etcd/session_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 20

static const struct em_setup one = {.members = 1};

static struct {
	struct lk__query *query;
	struct lk__op *op;
	struct lk__names names;
	lk_party party;
	union {
		struct lk__listing listing;
		char memory[sizeof(struct lk__listing) + ROOM * sizeof(struct lk__entry)];
	} shown;
} asked;

static struct lk__op *waits(int client)
{
	struct lk__op *op = ve_acquire(client);

	ve_pass(200);
	ve_waits(op);
	return op;
}

/* ---- Queries ---- */

static struct lk__query *new_query(enum lk__request_kind kind, const char *name)
{
	asked.query = lk__query_new(kind, LK_KIND_LOCK, name, strlen(name));
	ck_assert_ptr_nonnull(asked.query);
	return asked.query;
}

/* Ask it, and free it. */
static lk_err ask(int client, struct lk__answer *answer)
{
	struct lk__core *core = &ve.client[client].core;
	lk_err err;

	asked.op = calloc(1, sizeof(*asked.op));
	lk__core_query(core, &ve.client[client].link, ve.now_ns, asked.op, &asked.query, 1);
	ve_settle();
	ck_assert(asked.op->done);
	err = asked.op->why.err;
	if (answer)
		*answer = asked.query->answer;
	lk__query_free(core, asked.query);
	return err;
}

static lk_err ask_show(int client, const char *name, size_t waiters)
{
	struct lk__query *query = new_query(LK__SHOW, name);
	const struct lk__ticket *mine = ve.client[client].queue->ticket;
	lk_err err;

	memset(&asked.shown, 0, sizeof(asked.shown));
	asked.shown.listing.room = 1 + waiters;
	query->details.holders = 1;
	query->details.waiters = waiters;
	query->into = &asked.shown.listing;
	if (mine)
		query->ticket = lk__ticket_id(mine);
	err = ask(client, NULL);
	free(asked.op);
	return err;
}

static const struct lk__listing *show(int client, size_t waiters)
{
	ck_assert_int_eq(ask_show(client, "name", waiters), LK_OK);
	return &asked.shown.listing;
}

static lk_kind kind_of(const char *name)
{
	struct lk__answer answer;

	new_query(LK__KIND, name);
	ck_assert_int_eq(ask(0, &answer), LK_OK);
	ck_assert_int_eq(answer.kind, LK__IS);
	free(asked.op);
	return answer.noun;
}

/* The party of a client's ticket. */
static const char *party_of(int client)
{
	static char party[LK_HOLDER_ID_SIZE];
	const struct lk__ticket *ticket = ve.client[client].queue->ticket;
	char mark[LK__MARK_SIZE];

	lk__mark(mark, (uint64_t)lk__etcd_find(&ve.client[client].session, ticket->nonce)->created);
	snprintf(party, sizeof(party), "%s:%s%s", ve.client[client].id, ticket->nonce, mark);
	return party;
}

static const lk_party *describe(int client, const char *party)
{
	struct lk__query *query = new_query(LK__DESCRIBE, "name");

	memset(&asked.party, 0, sizeof(asked.party));
	query->details.subject = party;
	query->into = &asked.party;
	ck_assert_int_eq(ask(client, NULL), LK_OK);
	free(asked.op);
	return &asked.party;
}

static void introduce(int client, const char *name, const char *host, const char *label)
{
	struct lk__query *query = new_query(LK__INTRODUCE, name);

	query->details.host = host;
	query->details.user = host ? "user" : NULL;
	query->details.pid = host ? 4242 : 0;
	query->details.label = label;
	ck_assert_int_eq(ask(client, NULL), LK_OK);
	free(asked.op);
}

static void break_by(int client, const char *id, struct lk__answer *answer)
{
	struct lk__query *query = new_query(LK__BREAK, "name");

	query->details.subject = id;
	ck_assert_int_eq(ask(client, answer), LK_OK);
	ck_assert_int_eq(answer->kind, LK__LEFT);
	free(asked.op);
}

/* As lk__break(): and serve the queue. */
static bool break_all(int client, const char *id)
{
	struct lk__answer answer;
	bool was_held = false;
	int rounds = 0;

	do {
		break_by(client, id, &answer);
		was_held |= answer.mine;
		id = "";
		ck_assert_int_lt(++rounds, 10);
	} while (answer.more);
	return was_held;
}

/* ---- Holder and waiters ---- */

TEST(holder_and_waiters_are_shown_in_their_order)
{
	const struct lk__listing *listing;
	uint64_t fence;

	ve_start(&one, 3);
	ck_assert_int_eq(show(2, 5)->held, 0);
	ck_assert_int_eq(asked.shown.listing.waiting, 0);
	ve_holds(0);
	fence = ve.fence;
	waits(1);
	waits(2);
	listing = show(2, 5);
	ck_assert_uint_eq(listing->held, 1);
	ck_assert_int_eq(listing->holders, 1);
	ck_assert_int_eq(listing->waiting, 2);
	ck_assert_int_eq(listing->rank, 1);
	ck_assert_uint_eq(listing->count, 3);
	ck_assert(listing->has_no_clock);
	for (int i = 0; i < 3; i++)
		ck_assert_str_eq(listing->entries[i].party, party_of(i));
	ck_assert_uint_eq(listing->entries[0].fence, fence);
	ck_assert_int_gt(listing->entries[0].left_ms, 0);
	ck_assert_int_le(listing->entries[0].left_ms, VE_LEASE_MS);
	/* Only the holder. */
	listing = show(1, 0);
	ck_assert_uint_eq(listing->count, 1);
	ck_assert_int_eq(listing->waiting, 2);
	ck_assert_int_eq(listing->rank, 0);
	ck_assert_int_eq(show(0, 1)->rank, -1);
	ck_assert_uint_eq(asked.shown.listing.count, 2);
	for (int i = 0; i < 3; i++)
		ve_releases(i);
	ve_end();
}

TEST(query_of_a_client_that_does_nothing_else_puts_nothing)
{
	ve_start(&one, 2);
	ve_holds(0);
	introduce(0, "", "host", NULL);
	const int keys = ve_keys();
	show(1, 5);
	kind_of("name");
	describe(1, party_of(0));
	ck_assert_int_eq(ve_keys(), keys);
	ck_assert_ptr_null(ve.client[1].session.leases);
	ve_releases(0);
	ve_end();
}

TEST(ticket_of_another_program_is_shown_as_such)
{
	const struct lk__listing *listing;

	ve_start(&one, 1);
	ve_put("lk/L/name/694d8a1b2c3d4e5f", "");
	waits(0);
	listing = show(0, 5);
	ck_assert_uint_eq(listing->held, 1);
	ck_assert_str_eq(listing->entries[0].party, "694d8a1b2c3d4e5f");
	ck_assert_str_eq(listing->entries[1].party, party_of(0));
	ck_assert_str_eq(describe(0, "694d8a1b2c3d4e5f")->program, "not Latchkey");
	ck_assert(break_all(0, listing->entries[0].id));
	ve_pass(2000);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ve_end();
}

TEST(rank_is_looked_for_among_the_first_thousand)
{
	char key[60];

	ve_start(&one, 1);
	for (int i = 0; i < LK__ETCD_RANK_MAX; i++) {
		snprintf(key, sizeof(key), "lk/L/name/%d", i);
		ve_put(key, "");
	}
	waits(0);
	ck_assert_int_eq(show(0, 0)->rank, LK__ETCD_RANK_MAX - 1);
	ve_delete("lk/L/name/5");
	ck_assert_int_eq(show(0, 0)->rank, LK__ETCD_RANK_MAX - 2);
	ck_assert_int_eq(asked.shown.listing.waiting, LK__ETCD_RANK_MAX - 1);
	for (int i = 0; i < LK__ETCD_RANK_MAX; i++) {
		snprintf(key, sizeof(key), "lk/L/name/%d", i);
		ve_delete(key);
	}
	ve_pass(12000);
	ve_releases(0);
	ve_end();
}

TEST(name_of_another_kind_is_foreign)
{
	ve_start(&one, 1);
	ve_put("lk/Sname", "1 3 60");
	ck_assert_int_eq(ask_show(0, "name", 0), LK_EFOREIGN);
	ve_delete("lk/Sname");
	ve_put("lk/Dname", "1");
	ck_assert_int_eq(ask_show(0, "name", 0), LK_EFOREIGN);
	ve_delete("lk/Dname");
	ve_put("lk/S/name/ticket", "1");
	ck_assert_int_eq(ask_show(0, "name", 0), LK_EFOREIGN);
	ve_delete("lk/S/name/ticket");
	ck_assert_int_eq(ask_show(0, "name", 0), LK_OK);
	ve_end();
}

/* ---- Names ---- */

TEST(name_has_a_kind)
{
	ve_start(&one, 1);
	ck_assert_int_eq(kind_of("name"), LK_KIND_NONE);
	ve_holds(0);
	ck_assert_int_eq(kind_of("name"), LK_KIND_LOCK);
	ve_releases(0);
	ck_assert_int_eq(kind_of("name"), LK_KIND_NONE);
	ve_put("lk/Ss", "1");
	ve_put("lk/S/t/ticket", "1");
	ve_put("lk/Dd", "1");
	ck_assert_int_eq(kind_of("s"), LK_KIND_SEMAPHORE);
	ck_assert_int_eq(kind_of("t"), LK_KIND_SEMAPHORE);
	ck_assert_int_eq(kind_of("d"), LK_KIND_LATCH);
	ve_end();
}

static int list(void)
{
	char cursor[LK__CURSOR_SIZE];
	int pages = 0;

	asked.names = (struct lk__names){.cursor = "0"};
	do {
		struct lk__query *query = new_query(LK__LIST, "");
		memcpy(cursor, asked.names.cursor, sizeof(cursor));
		query->details.subject = cursor;
		query->into = &asked.names;
		ck_assert_int_eq(ask(0, NULL), LK_OK);
		free(asked.op);
		ck_assert_int_lt(++pages, 20);
	} while (strcmp(asked.names.cursor, "0") != 0);
	return pages;
}

static void free_names(void)
{
	for (size_t i = 0; i < asked.names.count; i++)
		free(asked.names.list[i]);
	free(asked.names.list);
}

static bool is_listed(const char *name)
{
	int times = 0;

	for (size_t i = 0; i < asked.names.count; i++)
		times += asked.names.list[i]->len == strlen(name) &&
		         !memcmp(asked.names.list[i]->bytes, name, strlen(name));
	ck_assert_int_le(times, 1);
	return times;
}

TEST(all_names_are_listed)
{
	ve_start(&one, 1);
	ve_holds(0);
	introduce(0, "", "host", NULL);
	ve_put("lk/L/a%2Fb/one", "");
	ve_put("lk/L/a%2Fb/two", "");
	ve_put("lk/L/a/one/more", "");
	ve_put("lk/Ssem", "1");
	ve_put("lk/D/latch/1/step", "1");
	ve_put("lk/Dlatch", "1");
	ve_put("lk/Lmistaken%zz", "not ours");
	ve_put("lk2/L/other/one", "");
	ve_put("lk/other", "");
	ck_assert_int_eq(list(), 1);
	ck_assert(is_listed("name"));
	ck_assert(is_listed("a/b"));
	ck_assert(is_listed("a"));
	ck_assert(is_listed("sem"));
	ck_assert(is_listed("latch"));
	ck_assert_uint_eq(asked.names.count, 5);
	free_names();
	ve_releases(0);
	ve_end();
}

TEST(names_come_in_pages_and_a_long_queue_is_skipped)
{
	char key[100], name[20];

	ve_start(&one, 1);
	for (int i = 0; i < 2 * LK__ETCD_NAMES_PAGE + 100; i++) {
		snprintf(key, sizeof(key), "lk/L/long/%d", i);
		ve_put(key, "");
	}
	for (int i = 0; i < LK__ETCD_NAMES_PAGE + 10; i++) {
		snprintf(key, sizeof(key), "lk/S%d", i);
		ve_put(key, "");
	}
	/* A page ends there, and a text of C would end earlier. */
	ve_put("lk/S\x01", "");
	ck_assert_int_eq(list(), 3);
	ck_assert_uint_eq(asked.names.count, LK__ETCD_NAMES_PAGE + 11);
	ck_assert(is_listed("long"));
	for (int i = 0; i < LK__ETCD_NAMES_PAGE + 10; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ck_assert_msg(is_listed(name), "%s", name);
	}
	free_names();
	ve_end();
}

/* ---- Details ---- */

TEST(details_are_published_under_the_lease_of_the_client)
{
	const lk_party *party;

	ve_start(&one, 2);
	ve_holds(0);
	introduce(0, "", "a host", "of the client");
	party = describe(1, party_of(0));
	ck_assert_str_eq(party->host, "a host");
	ck_assert_str_eq(party->user, "user");
	ck_assert_int_eq(party->pid, 4242);
	ck_assert_str_eq(party->label, "of the client");
	ck_assert_str_eq(party->program, "");
	introduce(0, "name", NULL, "nightly %\n");
	party = describe(1, party_of(0));
	ck_assert_str_eq(party->label, "nightly %\\x0a");
	ck_assert_str_eq(party->host, "a host");
	ve_revoke(ve.client[0].session.home->id);
	ck_assert_str_eq(describe(1, party_of(0))->host, "");
	ve_pass(20000);
	introduce(0, "", "a host", "of the client");
	ck_assert_str_eq(describe(1, party_of(0))->host, "a host");
	ve_releases(0);
	ve_end();
}

TEST(details_are_put_again_only_if_they_have_changed)
{
	int before;

	ve_start(&one, 1);
	ve_holds(0);
	introduce(0, "", "host", "one");
	introduce(0, "name", NULL, "one");
	before = ve.calls[LK__ETCD_CALL_TXN];
	introduce(0, "", "host", "one");
	introduce(0, "name", NULL, "one");
	ck_assert_int_eq(ve.calls[LK__ETCD_CALL_TXN], before);
	introduce(0, "name", NULL, "two");
	ck_assert_int_eq(ve.calls[LK__ETCD_CALL_TXN], before + 1);
	ck_assert_str_eq(describe(0, party_of(0))->label, "two");
	introduce(0, "name", NULL, "one");
	ck_assert_str_eq(describe(0, party_of(0))->label, "one");
	ve_releases(0);
	ve_end();
}

/* ---- Breaks ---- */

static lk_lost_reason loss_of(int client)
{
	const struct lk__hold *hold = lk__core_hold(ve.client[client].queue->name, ve.owner);
	lk_hold snapshot;

	ck_assert_ptr_nonnull(hold);
	lk__hold_snapshot(hold, ve.now_ns, &snapshot);
	return snapshot.lost;
}

TEST(broken_hold_is_reported_and_the_next_one_holds)
{
	struct lk__op *op;

	ve_start(&one, 3);
	ve_holds(0);
	op = waits(1);
	ck_assert(break_all(2, show(2, 0)->entries[0].id));
	/* At once, without a renewal or a look. */
	ck_assert_int_eq(loss_of(0), LK_LOST_BROKEN);
	ve_done(op, LK_OK);
	ck_assert_int_eq(ve_state(1), LK_STATE_HELD);
	ve_pass(100);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_done(ve_release(0), LK_ELOST);
	ve_releases(1);
	ve_end();
}

TEST(break_of_a_holder_that_has_died_hands_on_at_once)
{
	struct lk__op *op;

	ve_start(&one, 1);
	ve_put("lk/L/name/zclient_AAAAAAAAAAAAAA0123456789_", "1 60 r");
	op = ve_acquire(0);
	ve_settle();
	ve_waits(op);
	ck_assert(break_all(0, show(0, 0)->entries[0].id));
	ve_done(op, LK_OK);
	ve_releases(0);
	ve_end();
}

TEST(break_of_an_earlier_holder_does_nothing)
{
	struct lk__answer answer;
	char id[LK__ID_SIZE];

	ve_start(&one, 2);
	ve_holds(0);
	snprintf(id, sizeof(id), "%s", show(1, 0)->entries[0].id);
	ve_releases(0);
	ve_holds(0);
	break_by(1, id, &answer);
	ck_assert(!answer.mine && !answer.more);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	break_by(1, id, &answer);
	ck_assert(!answer.mine && !answer.more);
	ve_end();
}

TEST(hold_without_a_mailbox_is_broken)
{
	char mailbox[60];

	ve_start(&one, 2);
	ve_holds(0);
	snprintf(mailbox, sizeof(mailbox), "lk/c/%s", ve.client[0].id);
	ve.client[0].is_stopped = true; /* it would put the mailbox again */
	ve_delete(mailbox);
	ck_assert(break_all(1, show(1, 0)->entries[0].id));
	ck_assert_int_eq(ve_tickets(), 0);
	ve.client[0].is_stopped = false;
	ve_pass(6000);
	ck_assert_int_eq(loss_of(0), LK_LOST_TAKEN); /* noticed by a renewal */
	ve_done(ve_release(0), LK_ELOST);
	ve_end();
}

/* There is no room for letters: both clients notice it later. */
TEST(hold_is_broken_in_a_full_store)
{
	for (int cuts = 0; cuts < 2; cuts++) {
		struct lk__op *op;
		ve_start(&one, 3);
		ve_holds(0);
		op = waits(1);
		ve_pass(2000);
		em_set_full(ve.model, true);
		for (int i = 0; i < 3 && cuts; i++) {
			ve_cut(i);
			ve_join(i, 0);
		}
		ve_pass(200);
		ve.client[1].is_stopped = true; /* it would hold while client 0 still thinks so */
		ck_assert(break_all(2, show(2, 0)->entries[0].id));
		ck_assert_int_eq(ve_tickets(), 1);
		ve_pass(VE_LEASE_MS / 2);
		ck_assert_int_eq(loss_of(0), LK_LOST_TAKEN);
		ve.client[1].is_stopped = false;
		ve_pass(12000); /* by its next look */
		ve_done(op, LK_OK);
		em_set_full(ve.model, false);
		ve_done(ve_release(0), LK_ELOST);
		ve_releases(1);
		ve_end();
	}
}

TEST(letter_about_an_earlier_ticket_breaks_nothing)
{
	char mailbox[60], text[LK__ETCD_LETTER_MAX];
	struct lk__etcd_letter letter = {.kind = LK__LETTER_BROKEN};
	const struct lk__etcd_own_ticket *ticket;

	ve_start(&one, 1);
	ve_holds(0);
	ticket = lk__etcd_find(&ve.client[0].session, ve.client[0].queue->ticket->nonce);
	memcpy(letter.nonce, ticket->nonce, sizeof(letter.nonce));
	letter.created = ticket->created - 1;
	lk__etcd_letter_write(text, &letter);
	snprintf(mailbox, sizeof(mailbox), "lk/c/%s", ve.client[0].id);
	ve_put(mailbox, text);
	ve_pass(100);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ve_end();
}
