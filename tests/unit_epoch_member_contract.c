/* SPDX-License-Identifier: MIT
 * The contract of the script that finds or writes the marker, for the members of a quorum. */
#include "contract.h"

#include "scripts.h"

#include <stdio.h>
#include <string.h>

#define MARKER "lk:epoch"
/* run_id and master_replid of the process; the second after a restart. */
#define RUN "0000000000000000000000000000000000000001"
#define NEXT_RUN "0000000000000000000000000000000000000002"
#define NOW "1700000000000000"
#define BEGAN "1699999901000000" /* the end of the second in which it did */
#define FIND(known) "epoch_set", known, "0", "0"
/* By a client of a quorum. */
#define FIND_MEMBER(set) "epoch_set", "", "0", "0", set
#define FIND_NEW_MEMBER(set) "epoch_set", "", "0", "0", set, "1"
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

TEST(client_of_a_single_server_refuses_a_member_of_a_quorum)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [" SET "]");
	KEEPS("foreign lk:epoch member of a quorum: use redis+quorum://", FIND(""));
	contract_process()->run = 2;
	KEEPS("foreign lk:epoch member of a quorum: use redis+quorum://", FIND(""));
	contract_refuse("INFO", NULL);
	KEEPS("foreign lk:epoch member of a quorum: use redis+quorum://", FIND(""));
	contract_stop();
}

TEST(memory_of_a_server_without_a_set_is_as_for_a_single_one)
{
	start();
	SAYS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND_MEMBER(""));
	KEEPS(FOUND("1 " RUN " " BEGAN, BEGAN), FIND_MEMBER(""));
	contract_stop();
}

TEST(memory_of_a_member_begins_when_it_joins_its_set)
{
	start();
	SAYS(FOUND("1 " RUN " " NOW " [" SET "]", NOW), FIND_MEMBER(SET));
	SAYS("1 " RUN " " NOW " [" SET "]", "GET", MARKER);
	contract_at(5000);
	KEEPS("epoch 1 " RUN " " NOW " [" SET "] " NOW " 1700000005000000 0", FIND_MEMBER(SET));
	KEEPS("epoch 1 " RUN " " NOW " [" SET "] " NOW " 1700000005000000 0", FIND_MEMBER(""));
	/* The server's number in a client's list is not compared. */
	KEEPS("epoch 1 " RUN " " NOW " [" SET "] " NOW " 1700000005000000 0",
	      FIND_MEMBER("s-_9 1/3 60000"));
	contract_stop();
}

/* Two clients that make a set at once must not write each other's. */
TEST(member_keeps_its_first_set)
{
	static const char *const sets[] = {"t 2/3 60000", "s-_9 2/5 60000", "s-_9 2/3 6000"};

	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [" SET "]");
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		KEEPS(FOUND("1 " RUN " 1234567 [" SET "]", "1234567"), FIND_MEMBER(sets[i]));
	contract_stop();
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [q 3]");
	SAYS(FOUND("1 " RUN " " NOW " [" SET "]", NOW), FIND_MEMBER(SET));
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	SAYS(FOUND("1 " RUN " " NOW " [" SET "]", NOW), FIND_MEMBER(SET));
	contract_stop();
}

/* Also after a restart in which a single server would have known when it began. */
TEST(memory_of_a_member_begins_when_its_loss_is_seen)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [" SET "]");
	contract_process()->run = 2;
	contract_process()->process_id = 17;
	SAYS(FOUND("1 " NEXT_RUN " " NOW " [" SET "]", NOW), "epoch_set", "", "17", "0", SET);
	SAYS("1", "DEL", MARKER);
	SAYS(FOUND("1 " NEXT_RUN " " NOW " [" SET "]", NOW), "epoch_set", "", "17", "0", SET);
	/* The clock was set back. */
	contract_at(-1000);
	SAYS("epoch 1 " NEXT_RUN " 1699999999000000 [" SET "] 1699999999000000 1699999999000000 0",
	     FIND_MEMBER(""));
	contract_stop();
}

TEST(new_member_that_is_empty_is_not_young)
{
	start();
	SAYS(FOUND("1 " RUN " 0 [" SET "]", "0"), FIND_NEW_MEMBER(SET));
	KEEPS(FOUND("1 " RUN " 0 [" SET "]", "0"), FIND_NEW_MEMBER(SET));
	KEEPS(FOUND("1 " RUN " 0 [" SET "]", "0"), FIND_MEMBER(SET));
	/* Its marker is the only key. */
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	SAYS(FOUND("1 " RUN " 0 [" SET "]", "0"), FIND_NEW_MEMBER(SET));
	contract_stop();
}

TEST(new_member_that_has_keys_is_young)
{
	start();
	SAYS("OK", "SET", "other", "1");
	SAYS(FOUND("1 " RUN " " NOW " [" SET "]", NOW), FIND_NEW_MEMBER(SET));
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567");
	SAYS(FOUND("1 " RUN " " NOW " [" SET "]", NOW), FIND_NEW_MEMBER(SET));
	SAYS("1", "DEL", MARKER);
	contract_refuse("INFO", NULL);
	SAYS(GUESSED("1 - " NOW " [" SET "]", NOW), FIND_NEW_MEMBER(SET));
	contract_stop();
}

TEST(new_member_keeps_a_set_that_it_has)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [t 1/3 60000]");
	KEEPS(FOUND("1 " RUN " 1234567 [t 1/3 60000]", "1234567"), FIND_NEW_MEMBER(SET));
	contract_process()->run = 2;
	SAYS(FOUND("1 " NEXT_RUN " " NOW " [t 1/3 60000]", NOW), FIND_NEW_MEMBER(SET));
	contract_stop();
}

/* Such a client does not use the link. */
TEST(member_without_a_right_to_info_keeps_its_marker)
{
	start();
	SAYS("OK", "SET", MARKER, "1 " RUN " 1234567 [" SET "]");
	contract_refuse("INFO", NULL);
	KEEPS(GUESSED("1 " RUN " 1234567 [" SET "]", "1234567"), FIND_MEMBER(SET));
	KEEPS(GUESSED("1 " RUN " 1234567 [" SET "]", "1234567"), FIND_MEMBER("t 1/3 60000"));
	contract_stop();
}
