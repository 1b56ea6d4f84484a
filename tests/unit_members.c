/* SPDX-License-Identifier: MIT
 * Which servers form a quorum, in virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>
#include <string.h>

static const char *marker(int server)
{
	return lua_store_text(vq.server[server].store, "GET", "lk:epoch", NULL);
}

/* The id of the set that the server is marked with, "" = none. */
static const char *set_of(int server)
{
	static char ids[VQ_SERVERS][LK__SET_SIZE];
	const char *at = strchr(marker(server), '[');

	ids[server][0] = '\0';
	if (at)
		ck_assert_int_eq(sscanf(at, "[%23[^ ]", ids[server]), 1);
	return ids[server];
}

static void join_all(int client)
{
	for (int i = 0; i < vq.servers; i++)
		vq_join(client, i);
}

static void acquire_after(int client, int64_t ms)
{
	struct lk__op *op = vq_acquire(client);

	vq_pass(ms - 1000);
	vq_waits(op);
	vq_pass(2000);
	vq_done(op, LK_OK);
	vq_release(client);
	vq_settle();
}

TEST(servers_without_marks_become_a_set_that_is_young)
{
	vq_start_unmarked(3, 1);
	join_all(0);
	vq_settle();
	ck_assert_str_ne(set_of(0), "");
	ck_assert_str_eq(set_of(0), set_of(1));
	ck_assert_str_eq(set_of(0), set_of(2));
	ck_assert(lk__quorum_is_ready(&vq.client[0].core));
	acquire_after(0, LK__LONGEST_MS);
	vq_end();
}

TEST(set_is_not_made_before_all_servers_have_answered)
{
	struct lk__op *op;

	vq_start_unmarked(3, 1);
	vq_join(0, 0);
	vq_join(0, 1);
	vq_settle();
	ck_assert_str_eq(set_of(0), "");
	ck_assert(!lk__quorum_is_ready(&vq.client[0].core));
	op = vq_acquire(0);
	vq_settle();
	vq_give_up(0, op, LK_ETIMEDOUT);
	vq_done(op, LK_ECONN);
	ck_assert_msg(strstr(op->why.text, "0 of 3 servers vote") != NULL, "%s", op->why.text);
	vq_join(0, 2);
	vq_settle();
	ck_assert_str_ne(set_of(2), "");
	vq_end();
}

/* Both have read all servers before either marks one. */
TEST(two_clients_at_once_make_one_set)
{
	vq_start_unmarked(3, 2);
	join_all(0);
	join_all(1);
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 2; j++)
			while (vq_send(j, i))
				;
	vq_settle();
	for (int i = 1; i < 3; i++)
		ck_assert_str_eq(set_of(i), set_of(0));
	for (int i = 0; i < 2; i++)
		ck_assert_str_eq(vq.client[i].core.quorum->set, set_of(0));
	acquire_after(0, LK__LONGEST_MS);
	vq_end();
}

TEST(server_that_restarts_empty_is_marked_again)
{
	vq_start(3, 1);
	vq_restart_empty(1);
	vq_settle();
	ck_assert_str_eq(set_of(1), set_of(0));
	ck_assert(!strstr(marker(1), " 0 ["));
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 3);
	vq_end();
}

static void mark_by_hand(int server, const char *set)
{
	char text[200], id[100];

	ck_assert_int_eq(sscanf(marker(server), "1 %99s", id), 1);
	snprintf(text, sizeof(text), "1 %s 0 [%s]", id, set);
	lua_store_text(vq.server[server].store, "SET", "lk:epoch", text, NULL);
}

static void rejoin(int client, int server)
{
	vq_cut(client, server, false);
	vq_join(client, server);
	vq_settle();
}

TEST(server_of_another_set_does_not_vote)
{
	struct lk__op *op;

	vq_start(3, 1);
	mark_by_hand(2, "another_set 1/3 20000");
	rejoin(0, 2);
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 2);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_str_eq(vq_value(2), "");
	vq_release(0);
	vq_settle();
	ck_assert_str_eq(set_of(2), "another_set");
	vq_end();
}

TEST(servers_of_different_sets_do_not_vote)
{
	struct lk__why why;

	vq_start(3, 1);
	mark_by_hand(1, "another_set 1/3 20000");
	mark_by_hand(2, "third_set 1/3 20000");
	for (int i = 0; i < 3; i++)
		vq_cut(0, i, false);
	memset(vq.client[0].core.quorum->set, 0, sizeof(vq.client[0].core.quorum->set));
	for (int i = 0; i < 3; i++)
		vq.client[0].links[i].session.epoch = (struct lk__epoch){0};
	join_all(0);
	vq_settle();
	ck_assert(!lk__quorum_is_ready(&vq.client[0].core));
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_EFOREIGN);
	ck_assert_msg(strstr(why.text, "; server 2: belongs to set another_set, others do not; "
	                               "server 3: belongs to set third_set, others do not"),
	              "%s", why.text);
	vq_end();
}

/* A set of other size is another quorum, which shares servers with this one. */
TEST(set_of_another_size_does_not_vote)
{
	static const char *const marks[] = {"larger_set 1/5 20000", "larger_set 2/5 20000",
	                                    "larger_set 3/5 20000"};
	struct lk__why why;

	vq_start(3, 1);
	for (int i = 0; i < 3; i++)
		mark_by_hand(i, marks[i]);
	for (int i = 0; i < 3; i++)
		rejoin(0, i);
	ck_assert(!lk__quorum_is_ready(&vq.client[0].core));
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_EINVALID);
	ck_assert_str_eq(why.text,
	                 "host: 3 in the list, but server 3 belongs to a quorum of 5: list "
	                 "all its servers");
	vq_end();
}

/* A client that was opened lazily learns it later.  Two of three are enough. */
TEST(wait_for_a_set_of_another_size_is_refused)
{
	struct lk__op *op;

	vq_start(3, 1);
	mark_by_hand(0, "larger_set 1/5 20000");
	mark_by_hand(1, "larger_set 2/5 20000");
	lua_store_text(vq.server[2].store, "DEL", "lk:epoch", NULL);
	for (int i = 0; i < 3; i++)
		vq_cut(0, i, false);
	for (int i = 0; i < 3; i++)
		vq.client[0].links[i].session.epoch = (struct lk__epoch){0};
	memset(vq.client[0].core.quorum->set, 0, sizeof(vq.client[0].core.quorum->set));
	op = vq_acquire(0);
	vq_join(0, 2);
	vq_join(0, 0);
	vq_settle();
	vq_waits(op);
	vq_join(0, 1);
	vq_settle();
	vq_done(op, LK_EINVALID);
	vq_done(vq_acquire(0), LK_EINVALID);
	ck_assert_str_eq(set_of(2), "");
	vq_end();
}

/* A client must not take sides. */
TEST(server_is_not_marked_while_the_others_disagree)
{
	vq_start(3, 1);
	mark_by_hand(1, "another_set 1/3 20000");
	for (int i = 0; i < 3; i++)
		vq_cut(0, i, false);
	lua_store_text(vq.server[2].store, "DEL", "lk:epoch", NULL);
	memset(vq.client[0].core.quorum->set, 0, sizeof(vq.client[0].core.quorum->set));
	for (int i = 0; i < 3; i++)
		vq.client[0].links[i].session.epoch = (struct lk__epoch){0};
	join_all(0);
	vq_settle();
	ck_assert_str_eq(set_of(2), "");
	ck_assert(!lk__quorum_is_ready(&vq.client[0].core));
	vq_end();
}

/* ---- Places ------------------------------------------------------------------------------- */

/* The place in its mark, -1 = no mark. */
static int place_of(int server)
{
	const char *at = strchr(marker(server), '[');
	int place = -1;

	if (at)
		ck_assert_int_eq(sscanf(at, "[%*s %d/", &place), 1);
	return place;
}

/* Each place is given once, although the servers' ids are not in the order of the list. */
TEST(places_of_a_new_set_are_different)
{
	bool seen[6] = {false};

	vq_start_unmarked(5, 2);
	join_all(1);
	join_all(0);
	vq_settle();
	for (int i = 0; i < 5; i++) {
		ck_assert_int_ge(place_of(i), 1);
		ck_assert(!seen[place_of(i)]);
		seen[place_of(i)] = true;
	}
	vq_end();
}

TEST(server_that_has_lost_its_memory_gets_the_free_place)
{
	vq_start(3, 1);
	mark_by_hand(0, "theset_AAAA 2/3 20000");
	rejoin(0, 0);
	vq_restart_empty(1);
	vq_settle();
	ck_assert_int_eq(place_of(1), 1);
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 3);
	vq_end();
}

/* The server that the client has not reached may have either of two places. */
TEST(place_is_unknown_while_another_server_is)
{
	vq_start(5, 1);
	vq_cut(0, 4, false);
	vq.client[0].links[4].session.epoch = (struct lk__epoch){0};
	vq_restart_empty(3);
	vq_settle();
	ck_assert_int_eq(place_of(3), 0);
	ck_assert_str_eq(set_of(3), "theset_AAAA");
	vq_join(0, 4);
	vq_settle();
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 5);
	/* Two places are unknown then, but none is given twice. */
	vq_restart_empty(0);
	vq_settle();
	ck_assert_int_eq(place_of(0), 0);
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 5);
	vq_end();
}

/* The list of another client has one of them, so their majorities may be disjoint. */
TEST(later_of_two_servers_with_one_place_does_not_vote)
{
	struct lk__why why;
	struct lk__op *op;

	vq_start(3, 1);
	vq.client[0].links[0].session.name = "first:1";
	vq.client[0].links[1].session.name = "second:2";
	vq_restart_empty(0); /* it joined later than the others */
	vq_settle();
	vq_pass(VQ_LONGEST_MS);
	mark_by_hand(1, "theset_AAAA 1/3 20000");
	rejoin(0, 1);
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 2);
	op = vq_acquire(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_str_eq(vq_value(0), "");
	vq_release(0);
	vq_settle();
	/* It is not forgotten with the connection. */
	vq_cut(0, 1, false);
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_EFOREIGN);
	ck_assert_msg(strstr(why.text, "first:1: has the same place in the quorum as second:2: "
	                               "correct the URL"),
	              "%s", why.text);
	vq_join(0, 1);
	vq_settle();
	vq_end();
}

/* It could restart with an older file, unseen. */
TEST(server_that_refuses_info_does_not_vote)
{
	struct lk__why why;

	vq_start(3, 1);
	lua_store_refuse(vq.server[1].store, "INFO", NULL);
	rejoin(0, 1);
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 2);
	lua_store_refuse(vq.server[2].store, "INFO", NULL);
	rejoin(0, 2);
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_EAUTH);
	lua_store_refuse(vq.server[1].store, NULL, NULL);
	lua_store_refuse(vq.server[2].store, NULL, NULL);
	vq_end();
}

/* ---- A new quorum ------------------------------------------------------------------------- */

/* The client knows nothing of the servers, and only makes a quorum. */
static void begin_again(void)
{
	struct lk__quorum *quorum = vq.client[0].core.quorum;

	for (int i = 0; i < vq.servers; i++) {
		if (vq.client[0].links[i].is_up)
			vq_cut(0, i, false);
		vq.client[0].links[i].session.epoch = (struct lk__epoch){0};
	}
	memset(quorum->set, 0, sizeof(quorum->set));
	quorum->begins_ms = 5000;
	join_all(0);
	vq_settle();
}

TEST(new_quorum_is_not_young)
{
	vq_start_unmarked(3, 1);
	begin_again();
	for (int i = 0; i < 3; i++)
		ck_assert_msg(strstr(marker(i), " 0 [") && strstr(marker(i), "/3 5000]"), "%s",
		              marker(i));
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 3);
	vq_end();
}

/* The others cannot vote before that, which is no reason. */
TEST(new_quorum_without_a_server_names_only_that)
{
	struct lk__quorum *quorum;
	struct lk__why why;

	vq_start_unmarked(3, 1);
	quorum = vq.client[0].core.quorum;
	quorum->begins_ms = 5000;
	vq_join(0, 0);
	vq_join(0, 2);
	vq_settle();
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_ECONN);
	ck_assert_str_eq(why.text, "a new quorum needs all 3 servers: server 2: not connected yet");
	vq_join(0, 1);
	vq_settle();
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 3);
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_OK);
	vq_end();
}

/* The other servers may have granted what this one has forgotten. */
TEST(new_quorum_takes_no_server_of_another_one)
{
	vq_start(3, 1);
	lua_store_text(vq.server[2].store, "FLUSHALL", NULL);
	begin_again();
	ck_assert_str_eq(set_of(2), "");
	ck_assert_int_eq(lk__quorum_votes(&vq.client[0].core), 0);
	vq_end();
}

TEST(reason_that_waiting_does_not_cure_is_the_error)
{
	struct lk__why why;

	vq_start(3, 1);
	for (int i = 0; i < 3; i++)
		vq_cut(0, i, false);
	for (int i = 0; i < 3; i++)
		lk__why_set(&vq.client[0].links[i].session.why, i == 1 ? LK_EAUTH : LK_ECONN,
		            i == 1 ? "two" : "others");
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_EAUTH);
	ck_assert_str_eq(why.text, "0 of 3 servers vote, 2 are needed: server 2: two; server 1, "
	                           "server 3: others");
	join_all(0);
	vq_settle();
	vq_end();
}

/* Each cause is there with all its servers.  That a set is not known yet is none: it comes last. */
TEST(each_reason_is_named_once_with_its_servers)
{
	static const char *const names[] = {"a:1", "b:1", "c:1", "d:1", "e:1"};
	static const char *const reasons[] = {NULL, "refused", "wrong password", "refused",
	                                      "wrong password"};
	struct lk__why why;

	vq_start_unmarked(5, 1);
	for (int i = 0; i < 5; i++) {
		vq.client[0].links[i].session.name = names[i];
		lk__why_set(&vq.client[0].links[i].session.why,
		            i == 2 || i == 4 ? LK_EAUTH : LK_ECONN, "%s: %s", names[i],
		            reasons[i] ? reasons[i] : "");
	}
	vq_join(0, 0);
	vq_settle();
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_EAUTH);
	ck_assert_str_eq(why.text, "0 of 5 servers vote, 3 are needed: c:1, e:1: wrong password; "
	                           "b:1, d:1: refused; a:1: its set is not known until all have "
	                           "answered");
	join_all(0);
	vq_settle();
	vq_end();
}

/* The text has no room for all of them: none is cut, and the rest is counted. */
TEST(reasons_are_whole_and_name_their_servers_alike)
{
	static const char *const names[] = {"one.example:6379", "two.example:6379",
	                                    "three.example:6379", "four.example:6379",
	                                    "five.example:6379"};
	struct lk__why why;

	vq_start(5, 1);
	for (int i = 0; i < 5; i++)
		vq.client[0].links[i].session.name = names[i];
	vq_restart_empty(0);
	vq_settle();
	for (int i = 1; i < 5; i++)
		vq_cut(0, i, false);
	for (int i = 1; i < 5; i++)
		lk__why_set(
			&vq.client[0].links[i].session.why, LK_ECONN,
			"%s: %s no answer; a hundred and more bytes of explanation follow, which "
			"do not fit into one text for so many servers",
			names[i], names[i]);
	ck_assert_int_eq(lk__quorum_explain(&vq.client[0].core, &why), LK_ECONN);
	ck_assert_str_eq(
		why.text,
		"0 of 5 servers vote, 3 are needed: two.example:6379: two.example:6379 no "
		"answer; a hundred and more bytes of explanation follow, which do not fit "
		"into one text for so many servers; three.example:6379: three.example:6379 "
		"no answer; a hundred and more bytes of explanation follow, which do not "
		"fit into one text for so many servers; one.example:6379: has lost its "
		"memory, votes in 20 s; 2 more");
	for (int i = 1; i < 5; i++)
		vq_join(0, i);
	vq_settle();
	vq_end();
}

/* A client that was not connected when it opened its handle learns of the limit later.  A server
 * that forgets such a lease would vote before its end. */
TEST(lease_above_the_longest_one_is_refused)
{
	struct lk__wait_queue *queue;
	struct lk__op *op;

	vq_start_unmarked(3, 1);
	queue = vq_open(0, "other", LK__LONGEST_MS + 1, false);
	op = vq_acquire_of(0, queue, 1);
	join_all(0);
	vq_settle();
	vq_done(op, LK_EINVALID);
	vq_done(vq_acquire_of(0, queue, 1), LK_EINVALID);
	vq_end();
}
