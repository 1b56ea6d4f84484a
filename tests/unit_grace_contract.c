/* SPDX-License-Identifier: MIT
 * The contract of the script that ends a grace. */
#include "contract.h"

#define ASK "lock_ask", "2:a:n1:1000:r", "0", "0", "lk:c:0:", "-", "30000"

/* Only the since changes, so that the memory of this process stays the same one. */
TEST(end_of_a_grace_writes_since_0_for_the_same_id)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", "1 ab 1700000000000000");
	SAYS("epoch 1 ab 0 0 1700000000000000 0", "epoch_end", "1 ab 1700000000000000");
	SAYS("1 ab 0", "GET", "lk:epoch");
	SAYS("-1", "PTTL", "lk:epoch");
	contract_stop();
}

TEST(end_of_the_grace_of_another_memory_does_nothing)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", "1 ab 1700000000000000");
	SAYS("epoch", "epoch_end", "1 ab 1600000000000000");
	SAYS("epoch", "epoch_end", "");
	SAYS("1 ab 1700000000000000", "GET", "lk:epoch");
	SAYS("1", "DEL", "lk:epoch");
	SAYS("epoch", "epoch_end", "1 ab 1700000000000000");
	SAYS("0", "EXISTS", "lk:epoch");
	contract_stop();
}

/* A later version may write more behind it. */
TEST(end_of_a_grace_keeps_the_rest_of_the_marker)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", "1 ab+cd 1700000000000000 (q 3)");
	SAYS("epoch 1 ab+cd 0 (q 3) 0 1700000000000000 0", "epoch_end",
	     "1 ab+cd 1700000000000000 (q 3)");
	SAYS("1 ab+cd 0 (q 3)", "GET", "lk:epoch");
	contract_stop();
}

/* The client that ended it, and one that has not read the new marker. */
TEST(end_of_a_grace_is_seen_by_every_ask)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", "1 ab 1700000000000000");
	contract_epoch("1 ab 1700000000000000", "1700000010000000");
	SAYS("busy 0 10000", ASK);
	SAYS("epoch 1 ab 0 0 1700000000000000 0", "epoch_end", "1 ab 1700000000000000");
	SAYS("epoch", ASK);
	contract_epoch("1 ab 0", "10000000");
	SAYS("granted 1700000000000000 1700000000000000 0", ASK);
	contract_stop();
}
