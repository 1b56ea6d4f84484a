/* SPDX-License-Identifier: MIT
 * The contract of the script that finds or writes the marker of the server's memory. */
#include "contract.h"

#include "scripts.h"

#include <stdio.h>
#include <string.h>

#define MARKER "lk:epoch"
/* run_id and master_replid of the process; the second after a restart. */
#define RUN "0000000000000000000000000000000000000001"
#define NEXT_RUN "0000000000000000000000000000000000000002"
#define REPLID "00000000000000000000000000000000000003e8"
#define NEXT_REPLID "00000000000000000000000000000000000003e9"
#define NOW "1700000000000000"
#define BEGAN "1699999901000000" /* the end of the second in which it did */
#define FIND(known) "epoch_set", known, "0", "0"
#define FIND_IN(known, db) "epoch_set", known, "0", db
/* By a client that knows that process to have begun when nothing was held. */
#define FIND_STARTED(known, process) "epoch_set", known, process, "0"
/* By a client of a quorum. */
#define FIND_MEMBER(set) "epoch_set", "", "0", "0", set
#define SET "s-_9 2/3 60000"
/* Replies: the marker, its since, now, whether INFO was refused. */
#define FOUND(marker, since) "epoch " marker " " since " " NOW " 0"
#define GUESSED(marker, since) "epoch " marker " " since " " NOW " 1"

/* A store without a marker, of a process that began 100 s ago. */
static void start(void)
{
	contract_start();
	SAYS("1", "DEL", MARKER);
	contract_process()->began_us = 1699999900000000;
}

TEST(memory_begins_with_the_process)
{
	start();
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND(""));
	SAYS("1 " RUN " " BEGAN, "GET", MARKER);
	SAYS("-1", "PTTL", MARKER);
	contract_stop();
}

/* The uptime is the difference of two whole seconds: the process may have begun at the end of one.
 */
TEST(memory_never_begins_before_the_process)
{
	start();
	contract_process()->began_us = 1699999900999999;
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND(""));
	contract_stop();
}

TEST(memory_never_begins_in_the_future)
{
	start();
	contract_process()->began_us = 1700000000000000;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND(""));
	contract_stop();
}

TEST(marker_of_this_memory_is_kept)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	KEEPS(FOUND("1 " RUN " 1234567", "1234567"), FIND(""));
	KEEPS(FOUND("1 " RUN " 1234567", "1234567"), FIND("1 other 1"));
	KEEPS(FOUND("1 " RUN " 1234567", "1234567"), FIND("1 " RUN " 1234567"));
	contract_process()->flushed = true;
	contract_process()->evicted = 1;
	KEEPS(FOUND("1 " RUN " 1234567", "1234567"), FIND(""));
	contract_stop();
}

TEST(repeated_call_finds_what_the_first_one_wrote)
{
	start();
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND(""));
	contract_at(5000);
	KEEPS("epoch 1 " RUN " " NOW " " NOW " 1700000005000000 0", FIND(""));
	contract_stop();
}

/* ---- Nothing was held when the process began ---------------------------------------------------
 */

TEST(memory_of_a_process_that_began_without_holds_has_no_grace)
{
	start();
	contract_process()->process_id = 17;
	SAYS(FOUND("1 " RUN " 0", "0"), FIND_STARTED("", "17"));
	KEEPS(FOUND("1 " RUN " 0", "0"), FIND(""));
	contract_stop();
}

/* The client knew the server that was there before. */
TEST(process_that_began_without_holds_may_follow_a_known_one)
{
	start();
	contract_process()->process_id = 17;
	SAYS(FOUND("1 " RUN " 0", "0"), FIND_STARTED("1 " NEXT_RUN " 5", "17"));
	contract_stop();
}

/* Whatever this process has had and lost. */
TEST(process_that_began_without_holds_may_have_lost_its_memory_since)
{
	const struct lua_store_process lost[] = {
		{.flushed = true},     {.flushed_db = true}, {.evicted = 1},
		{.was_replica = true}, {.was_slave = true},  {.replid2 = 7},
	};

	for (size_t i = 0; i < sizeof(lost) / sizeof(*lost); i++) {
		start();
		*contract_process() = lost[i];
		contract_process()->run = 1;
		contract_process()->replid = 1000;
		contract_process()->process_id = 17;
		SAYS(i < 3 ? FOUND("1 " RUN " " NOW, NOW) : FOUND("1 " RUN "+" REPLID " " NOW, NOW),
		     FIND_STARTED("", "17"));
		contract_stop();
	}
	start();
	contract_process()->process_id = 17;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND_STARTED("1 " RUN " 5", "17"));
	contract_stop();
}

TEST(marker_or_another_process_shows_that_it_is_not_the_started_one)
{
	start();
	contract_process()->process_id = 18;
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND_STARTED("", "17"));
	contract_process()->process_id = 17;
	contract_process()->run = 2; /* its file has a marker */
	SAYS(FOUND("1 " NEXT_RUN " " BEGAN, BEGAN), FIND_STARTED("", "17"));
	contract_stop();
}

/* ---- The marker was removed: the loss is younger than the process ------------------------------
 */

TEST(missing_marker_after_a_flush_is_a_loss_now)
{
	start();
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND(""));
	contract_stop();
}

TEST(missing_marker_after_a_flush_of_one_db_is_a_loss_now)
{
	start();
	contract_process()->flushed_db = true;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND(""));
	contract_stop();
}

TEST(missing_marker_after_an_eviction_is_a_loss_now)
{
	start();
	contract_process()->evicted = 3;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND(""));
	contract_stop();
}

/* FLUSHALL and CONFIG RESETSTAT, or DEL: the client knows that there was one. */
TEST(missing_marker_on_a_known_server_is_a_loss_now)
{
	start();
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND("1 " RUN " " BEGAN));
	contract_stop();
}

/* ---- Another memory ----------------------------------------------------------------------------
 */

/* It restarted with an older file, which has the marker of that time. */
TEST(marker_of_an_earlier_run_is_replaced_since_this_one_began)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	contract_process()->run = 2;
	contract_process()->flushed = true; /* in this run, after the start */
	SAYS(FOUND("1 " NEXT_RUN " " BEGAN, BEGAN), FIND("1 " RUN " 1234567"));
	SAYS("1 " NEXT_RUN " " BEGAN, "GET", MARKER);
	contract_stop();
}

TEST(marker_of_an_earlier_run_is_replaced_for_a_new_client)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	contract_process()->run = 2;
	SAYS(FOUND("1 " NEXT_RUN " " BEGAN, BEGAN), FIND(""));
	contract_stop();
}

/* The address leads to another server, long up, that has served others. */
TEST(another_server_under_a_known_address_is_a_loss_now)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	contract_process()->run = 2;
	SAYS(FOUND("1 " NEXT_RUN " " NOW, NOW), FIND("1 third 5"));
	contract_stop();
}

TEST(other_server_with_a_marker_of_its_own_is_left_alone)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	KEEPS(FOUND("1 " RUN " 1234567", "1234567"), FIND("1 third 5"));
	contract_stop();
}

/* ---- Promotion ---------------------------------------------------------------------------------
 */

TEST(promotion_is_another_memory_since_now)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	contract_process()->replid2 = 7;
	SAYS(FOUND("1 " RUN "+" REPLID " " NOW, NOW), FIND("1 " RUN " 1234567"));
	contract_at(1000);
	KEEPS("epoch 1 " RUN "+" REPLID " " NOW " " NOW " 1700000001000000 0", FIND(""));
	contract_process()->replid++; /* demoted, and promoted again */
	SAYS("epoch 1 " RUN "+" NEXT_REPLID " 1700000001000000 1700000001000000 1700000001000000 0",
	     FIND("1 " RUN "+" REPLID " " NOW));
	contract_stop();
}

/* It never synchronized, or its replid2 was forgotten with the backlog. */
TEST(promotion_without_a_second_replid_is_another_memory_since_now)
{
	start();
	contract_process()->was_replica = true;
	SAYS(FOUND("1 " RUN "+" REPLID " " NOW, NOW), FIND(""));
	contract_stop();
}

TEST(promotion_by_the_old_command_is_seen)
{
	start();
	contract_process()->was_slave = true;
	SAYS(FOUND("1 " RUN "+" REPLID " " NOW, NOW), FIND(""));
	contract_stop();
}

/* The first replica attaches, the backlog is freed: nothing is lost. */
TEST(other_replid_without_a_promotion_is_the_same_memory)
{
	start();
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND(""));
	contract_process()->replid++;
	KEEPS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND("1 " RUN " " BEGAN));
	contract_stop();
}

/* ---- INFO is refused, or says little -----------------------------------------------------------
 */

TEST(any_marker_counts_when_info_is_refused)
{
	start();
	SAYS("OK", "SET", MARKER, "1 a 1234567");
	contract_refuse("INFO", NULL);
	KEEPS(GUESSED("1 a 1234567", "1234567"), FIND(""));
	KEEPS(GUESSED("1 a 1234567", "1234567"), FIND("1 b 5"));
	contract_stop();
}

TEST(missing_marker_is_a_loss_now_when_info_is_refused)
{
	start();
	contract_refuse("INFO", NULL);
	SAYS(GUESSED("1 - " NOW, NOW), FIND(""));
	SAYS("1 - " NOW, "GET", MARKER);
	contract_at(10);
	KEEPS("epoch 1 - " NOW " " NOW " 1700000000010000 1", FIND("1 - " NOW));
	contract_refuse(NULL, NULL); /* from now on it may */
	/* The loss was noticed: the grace of it goes on. */
	SAYS("epoch 1 " RUN " " NOW " " NOW " 1700000000010000 0", FIND("1 - " NOW));
	SAYS("OK", "SET", MARKER, "1 - " NOW);
	SAYS("epoch 1 " RUN " " NOW " " NOW " 1700000000010000 0", FIND(""));
	contract_stop();
}

/* Databases have each other's markers then, which are equal but for the number. */
TEST(swapped_database_is_a_loss_now)
{
	start();
	SAYS(FOUND("1 " RUN "-1 " BEGAN, BEGAN), FIND_IN("", "1"));
	contract_process()->swaps = 1;
	SAYS(FOUND("1 " RUN "-0-1 " NOW, NOW), FIND_IN("", "0"));
	KEEPS(FOUND("1 " RUN "-0-1 " NOW, NOW), FIND_IN("", "0"));
	contract_process()->swaps = 2;
	SAYS(FOUND("1 " RUN "-0-2 " NOW, NOW), FIND_IN("", "0"));
	contract_stop();
}

/* Half of what it says shows nothing. */
TEST(one_refused_section_counts_as_all)
{
	start();
	contract_refuse("INFO", "commandstats");
	SAYS(GUESSED("1 - " NOW, NOW), FIND(""));
	contract_stop();
}

TEST(server_that_hides_its_run_counts_as_one_that_refuses_info)
{
	start();
	contract_process()->hides_run = true;
	SAYS(GUESSED("1 - " NOW, NOW), FIND(""));
	KEEPS(GUESSED("1 - " NOW, NOW), FIND("1 - " NOW));
	SAYS("OK", "SET", MARKER, "1 a 1234567");
	KEEPS(GUESSED("1 a 1234567", "1234567"), FIND(""));
	contract_stop();
}

/* The marker of a node has a tag: the client finds that out before it writes one without. */
TEST(marker_of_a_single_server_is_not_written_in_a_cluster)
{
	start();
	contract_process()->cluster = true;
	KEEPS("cluster", FIND(""));
	contract_process()->is_valkey = true;
	KEEPS("cluster", FIND(""));
	SAYS("OK", "SET", MARKER, "1 a 1234567");
	KEEPS("cluster", FIND("1 a 1234567"));
	contract_process()->is_valkey = false;
	KEEPS("cluster", FIND("1 a 1234567"));
	contract_stop();
}

/* ---- What the marker looks like ----------------------------------------------------------------
 */

/* Quorum's scripts write it. */
/* As FIND(), of a node of a Cluster, whose key has a tag. */
#define NODE_MARKER "lk:epoch:{aaaa}:node"
#define FIND_NODE(known) "EVAL", lk__script_epoch_set.text, "1", NODE_MARKER, known, "0", "0"

TEST(client_vouches_for_a_node_whose_marker_is_in_another_slot_now)
{
	start();
	contract_process()->cluster = true;
	SAYS(FOUND("1 " RUN " 1234567", "1234567"), FIND_NODE("1 " RUN " 1234567"));
	SAYS("1 " RUN " 1234567", "GET", NODE_MARKER);
	contract_stop();
}

TEST(client_vouches_for_a_promoted_node)
{
	start();
	contract_process()->cluster = true;
	contract_process()->replid2 = 7;
	SAYS(FOUND("1 " RUN "+" REPLID " 1234567", "1234567"),
	     FIND_NODE("1 " RUN "+" REPLID " 1234567"));
	contract_stop();
}

TEST(client_does_not_vouch_for_what_it_does_not_know)
{
	start();
	contract_process()->cluster = true;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND_NODE("1 " NEXT_RUN " 1234567"));
	SAYS("1", "DEL", NODE_MARKER);
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN "-1 " NOW, NOW), FIND_NODE("1 " RUN " 1234567"));
	SAYS("1", "DEL", NODE_MARKER);
	contract_process()->flushed = false;
	contract_process()->evicted = 1;
	SAYS(FOUND("1 " RUN " " NOW, NOW), FIND_NODE("1 " RUN " 1234567"));
	contract_stop();
}

/* It had left with its slot, and returns after the flush. */
TEST(marker_of_a_node_from_before_a_flush_is_of_another_memory)
{
	start();
	contract_process()->cluster = true;
	SAYS("OK", "SET", NODE_MARKER, "1 " RUN " 1234567");
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN "-1 " NOW, NOW), FIND_NODE(""));
	KEEPS(FOUND("1 " RUN "-1 " NOW, NOW), FIND_NODE("1 " RUN " 1234567"));
	contract_process()->flushes = 2;
	SAYS(FOUND("1 " RUN "-2 " NOW, NOW), FIND_NODE("1 " RUN "-1 " NOW));
	SAYS("OK", "SET", NODE_MARKER, "1 " RUN "-2 1234567");
	contract_process()->flushed_db = true;
	SAYS(FOUND("1 " RUN "-4 " NOW, NOW), FIND_NODE(""));
	contract_stop();
}

/* An older marker does not count, and what the client knows does. */
TEST(client_vouches_for_a_node_since_its_last_flush)
{
	start();
	contract_process()->cluster = true;
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN "-1 1234567", "1234567"), FIND_NODE("1 " RUN "-1 1234567"));
	SAYS("OK", "SET", NODE_MARKER, "1 " RUN " 5");
	SAYS(FOUND("1 " RUN "-1 1234567", "1234567"), FIND_NODE("1 " RUN "-1 1234567"));
	contract_stop();
}

/* As FIND_NODE(), by a client that has read these markers in other slots. */
#define FIND_BESIDE(known, one, two)                                                               \
	"EVAL", lk__script_epoch_set.text, "1", NODE_MARKER, known, "0", "0", one, two

TEST(marker_in_another_slot_vouches_for_a_node)
{
	start();
	contract_process()->cluster = true;
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN "-1 1234567", "1234567"),
	     FIND_BESIDE("", "1 " RUN " 5", "1 " RUN "-1 1234567"));
	SAYS("1 " RUN "-1 1234567", "GET", NODE_MARKER);
	SAYS("OK", "SET", NODE_MARKER, "1 " RUN " 5");
	SAYS(FOUND("1 " RUN "-1 1234567", "1234567"),
	     FIND_BESIDE("1 " RUN " 5", "1 " RUN "-1 1234567", "x"));
	/* One in this slot counts, and what the client knew. */
	KEEPS(FOUND("1 " RUN "-1 1234567", "1234567"), FIND_BESIDE("", "1 " RUN "-1 5", ""));
	SAYS("1", "DEL", NODE_MARKER);
	SAYS(FOUND("1 " RUN "-1 7", "7"), FIND_BESIDE("1 " RUN "-1 7", "1 " RUN "-1 5", ""));
	/* None of this memory. */
	SAYS("1", "DEL", NODE_MARKER);
	SAYS(FOUND("1 " RUN "-1 " NOW, NOW), FIND_BESIDE("", "1 " RUN " 5", "1 " RUN "-2 5"));
	contract_process()->evicted = 1;
	SAYS("1", "DEL", NODE_MARKER);
	SAYS(FOUND("1 " RUN "-1 " NOW, NOW), FIND_BESIDE("", "1 " RUN "-1 5", ""));
	contract_stop();
}

/* A single server has one marker. */
TEST(marker_in_another_slot_says_nothing_of_a_single_server)
{
	start();
	contract_process()->flushed = true;
	SAYS(FOUND("1 " RUN " " NOW, NOW), "epoch_set", "", "0", "0", "1 " RUN " 5");
	contract_stop();
}

#define DAY_MS 86400000
#define LIFE "2592000000" /* 30 days */

/* Markers of nodes that are gone, and copies in slots that have moved, do not pile up. */
TEST(marker_of_a_node_lives_for_30_days_after_its_last_use)
{
	start();
	contract_process()->cluster = true;
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND_NODE(""));
	SAYS(LIFE, "PTTL", NODE_MARKER);
	/* Not each read is a write. */
	contract_at(DAY_MS);
	KEEPS("epoch 1 " RUN " " BEGAN " " BEGAN " 1700086400000000 0", FIND_NODE(""));
	SAYS("2505600000", "PTTL", NODE_MARKER);
	contract_at(DAY_MS + 1);
	SAYS("epoch 1 " RUN " " BEGAN " " BEGAN " 1700086400001000 0", FIND_NODE(""));
	SAYS(LIFE, "PTTL", NODE_MARKER);
	contract_at(4 * (int64_t)DAY_MS);
	contract_refuse("INFO", NULL);
	SAYS("epoch 1 " RUN " " BEGAN " " BEGAN " 1700345600000000 1", FIND_NODE(""));
	SAYS(LIFE, "PTTL", NODE_MARKER);
	contract_stop();
}

/* The marker is known all the same. */
TEST(marker_of_a_node_that_cannot_be_renewed_is_read)
{
	start();
	contract_process()->cluster = true;
	SAYS("OK", "SET", NODE_MARKER, "1 " RUN " 5");
	contract_refuse("PEXPIRE", NULL);
	KEEPS(FOUND("1 " RUN " 5", "5"), FIND_NODE(""));
	contract_refuse(NULL, NULL);
	SAYS(FOUND("1 " RUN " 5", "5"), FIND_NODE(""));
	SAYS(LIFE, "PTTL", NODE_MARKER);
	contract_stop();
}

TEST(part_in_brackets_is_accepted_and_kept)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [q 3]");
	KEEPS(FOUND("1 " RUN " 1234567 [q 3]", "1234567"), FIND_MEMBER(""));
	contract_process()->run = 2;
	SAYS(FOUND("1 " NEXT_RUN " " NOW " [q 3]", NOW), FIND_MEMBER(""));
	SAYS("1 " NEXT_RUN " " NOW " [q 3]", "GET", MARKER);
	contract_stop();
}

#define TEXT_40 "1234567890123456789012345678901234567890"
/* 167 characters */
#define LONG_MARKER "1 a 5 [" TEXT_40 TEXT_40 TEXT_40 "123456789012345678901234567890123456789]"

TEST(marker_of_another_form_is_foreign)
{
	static const char *const others[] = {"",
	                                     "x",
	                                     "1",
	                                     "1 a",
	                                     "1 a ",
	                                     "1  5",
	                                     "2 a 5",
	                                     "1 a x",
	                                     "1 a -5",
	                                     "1 g 5",
	                                     "1 a 5x",
	                                     "1 a 5 x",
	                                     " 1 a 5",
	                                     "1 a 12345678901234567",
	                                     "1 a 5 ",
	                                     "1 a 5 [",
	                                     "1 a 5 [x",
	                                     "1 a 5 [x] ",
	                                     "1 a 5 [x][y]",
	                                     "1 a 5[x]",
	                                     "1 a 5 (x)",
	                                     LONG_MARKER};

	start();
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		SAYS("OK", "SET", MARKER, others[i]);
		KEEPS("foreign lk:epoch not a marker of this protocol", FIND(""));
		KEEPS("foreign lk:epoch not a marker of this protocol", FIND_MEMBER(SET));
	}
	contract_refuse("INFO", NULL);
	KEEPS("foreign lk:epoch not a marker of this protocol", FIND(""));
	contract_stop();
}

TEST(marker_of_the_greatest_length_is_accepted)
{
	static const char marker[] =
		"1 a 5 [" TEXT_40 TEXT_40 TEXT_40 "12345678901234567890123456789012345678]";
	char reply[250];

	start();
	ck_assert_uint_eq(strlen(LONG_MARKER), 167);
	ck_assert_uint_eq(strlen(marker), 166);
	SAYS("OK", "SET", MARKER, marker);
	contract_refuse("INFO", NULL);
	snprintf(reply, sizeof(reply), "epoch %s 5 " NOW " 1", marker);
	KEEPS(reply, FIND_MEMBER(""));
	contract_stop();
}

/* ---- Errors ----------------------------------------------------------------------------- */

TEST(full_server_takes_another_marker)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " NEXT_RUN " 1234567");
	contract_full(true);
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND(""));
	contract_stop();
}

TEST(key_of_another_type_is_foreign)
{
	start();
	SAYS("1", "HSET", MARKER, "f", "v");
	KEEPS("foreign lk:epoch not a string", FIND(""));
	contract_stop();
}

TEST(command_without_a_right_changes_nothing)
{
	start();
	contract_refuse("GET", NULL);
	KEEPS(NO_RIGHT, FIND(""));
	contract_refuse("SET", NULL);
	KEEPS(NO_RIGHT, FIND(""));
	contract_stop();
}

/* It is not a marker of ours. */
TEST(end_of_a_grace_leaves_a_foreign_marker_alone)
{
	start();
	SAYS("OK", "SET", MARKER, "x");
	KEEPS("epoch", "epoch_end", "x");
	contract_stop();
}
