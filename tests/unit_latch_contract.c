/* SPDX-License-Identifier: MIT
 * The contract of a latch's scripts with their callers, and of name_kind, client_set and
 * link_probe. */
#include "contract.h"

#define LATCH "lk:{n}"
#define MEMORY "lk:{n}:s"
#define QUEUE "lk:{n}:q"
#define SET_LATCH(count) "latch_set", count, "0", "5000", "0", "bell"
#define SHOW "latch_show"
#define DOWN(client, number, by, name) "latch_down", GEN, client, number, by, name, "bell"
#define GEN "1700000000000000"

TEST(latch_is_made_and_shown)
{
	contract_start();
	SAYS("absent 0 0 0 -1 0 0 1700000000000000", SHOW);
	SAYS("set absent", SET_LATCH("3"));
	SAYS("counting 1700000000000000 3 3 -1 0 0 1700000000000001", SHOW);
	SAYS("kind 1:latch gen 1700000000000000 count 3 initial 3 open_ttl 5000", "HGETALL", LATCH);
	SAYS("opened 0 removed 0 gen 1700000000000000", "HGETALL", MEMORY);
	SAYS("-1", "PTTL", LATCH);
	SAYS("-1", "PTTL", MEMORY);
	SAYS("1700000000000000", "GET", "lk:fence");
	SAYS("counting 3 3", SET_LATCH("4"));
	SAYS("counting 1700000000000000 3 3 -1 0 0 1700000000000001", SHOW);
	contract_stop();
}

TEST(latch_that_counts_is_replaced_only_if_told)
{
	contract_start();
	SAYS("set absent", SET_LATCH("2"));
	SAYS("stepped 1 1", DOWN("a", "1", "1", "x"));
	SAYS("set counting", "latch_set", "5", "1", "5000", "0", "bell");
	SAYS("counting 1700000000000001 5 5 -1 0 0 1700000000000002", SHOW);
	SAYS("opened 0 removed 0 gen 1700000000000001", "HGETALL", MEMORY);
	SAYS("other 1700000000000001", DOWN("a", "2", "1", ""));
	contract_stop();
}

TEST(latch_of_none_is_open_at_once)
{
	contract_start();
	SAYS("set absent | bell open 1700000000000000", SET_LATCH("0"));
	SAYS("open 1700000000000000 0 0 5000 1700000000000000 0 1700000000000001", SHOW);
	SAYS("5000", "PTTL", LATCH);
	SAYS("65000", "PTTL", MEMORY);
	SAYS("opened 1700000000000000 removed 0 gen 1700000000000000", "HGETALL", MEMORY);
	SAYS("set open | bell open 1700000000000001", SET_LATCH("0"));
	SAYS("set open", SET_LATCH("1"));
	SAYS("counting 1700000000000002 1 1 -1 1700000000000001 0 1700000000000003", SHOW);
	contract_stop();
}

TEST(latch_may_count_for_so_long_only)
{
	contract_start();
	SAYS("set absent", "latch_set", "2", "0", "5000", "900", "bell");
	SAYS("900", "PTTL", LATCH);
	SAYS("60900", "PTTL", MEMORY);
	contract_at(100);
	SAYS("stepped 1 1", DOWN("a", "1", "1", ""));
	SAYS("800", "PTTL", LATCH);
	SAYS("60800", "PTTL", MEMORY);
	contract_at(901);
	SAYS("absent 0 0 0 -1 0 0 1700000000901000", SHOW);
	SAYS("other 0", DOWN("a", "2", "1", ""));
	contract_stop();
}

TEST(step_counts_once)
{
	contract_start();
	SAYS("set absent", SET_LATCH("9"));
	SAYS("stepped 7 1", DOWN("a", "5", "2", ""));
	SAYS("stepped 7 1", DOWN("a", "5", "2", ""));
	SAYS("stepped 7 1", DOWN("a", "4", "2", ""));
	SAYS("stepped 6 1", DOWN("a", "6", "1", "x"));
	SAYS("stepped 6 0", DOWN("b", "1", "1", "x"));
	SAYS("stepped 5 1", DOWN("b", "1", "1", "y"));
	SAYS("stepped 4 1", DOWN("b", "2", "1", ""));
	SAYS("opened 0 removed 0 gen 1700000000000000 c:a 6 n:x 1 c:b 2 n:y 1", "HGETALL", MEMORY);
	SAYS("counting 1700000000000000 4 9 -1 0 0 1700000000000001", SHOW);
	SAYS("-1", "PTTL", MEMORY);
	contract_stop();
}

TEST(last_step_opens_and_tells)
{
	contract_start();
	SAYS("set absent", SET_LATCH("2"));
	SAYS("stepped 1 1", DOWN("a", "1", "1", ""));
	SAYS("stepped 0 1 | bell open 1700000000000000", DOWN("b", "1", "7", "x"));
	SAYS("open 1700000000000000 0 2 5000 1700000000000000 0 1700000000000001", SHOW);
	SAYS("5000", "PTTL", LATCH);
	SAYS("65000", "PTTL", MEMORY);
	SAYS("opened 1700000000000000 removed 0 gen 1700000000000000 c:a 1 c:b 1 n:x 1", "HGETALL",
	     MEMORY);
	SAYS("stepped 0 1", DOWN("b", "1", "7", "x"));
	SAYS("stepped 0 0", DOWN("b", "2", "1", ""));
	/* It is open even if its memory key is lost. */
	SAYS("1", "DEL", MEMORY);
	SAYS("open 1700000000000000 0 2 5000 1700000000000000 0 1700000000000001", SHOW);
	SAYS("stepped 0 0", DOWN("b", "3", "1", ""));
	contract_stop();
}

TEST(step_of_another_generation_is_told_of_it)
{
	contract_start();
	SAYS("other 0", DOWN("a", "1", "1", ""));
	SAYS("OK", "SET", "lk:fence", GEN);
	SAYS("set absent", SET_LATCH("2"));
	SAYS("other 1700000000000001", DOWN("a", "1", "1", ""));
	SAYS("counting 1700000000000001 2 2 -1 0 0 1700000000000002", SHOW);
	contract_stop();
}

TEST(lost_steps_are_not_counted_again)
{
	contract_start();
	SAYS("set absent", SET_LATCH("2"));
	SAYS("stepped 1 1", DOWN("a", "1", "1", ""));
	SAYS("1", "DEL", MEMORY);
	SAYS("foreign lk:{n} a latch whose steps were lost: reset it", DOWN("a", "1", "1", ""));
	SAYS("counting 1700000000000000 1 2 -1 0 0 1700000000000001", SHOW);
	contract_stop();
}

TEST(removed_latch_is_remembered)
{
	contract_start();
	SAYS("absent", "latch_remove", "bell");
	SAYS("0", "EXISTS", MEMORY);
	SAYS("set absent", SET_LATCH("1"));
	SAYS("removed | bell gone 1700000000000000", "latch_remove", "bell");
	SAYS("absent 0 0 0 -1 0 1700000000000000 1700000000000001", SHOW);
	SAYS("60000", "PTTL", MEMORY);
	SAYS("opened 0 removed 1700000000000000", "HGETALL", MEMORY);
	contract_at(7);
	SAYS("set absent", SET_LATCH("1"));
	SAYS("opened 0 removed 1700000000000000 gen 1700000000007000", "HGETALL", MEMORY);
	SAYS("stepped 0 1 | bell open 1700000000007000", "latch_down", "1700000000007000", "a", "1",
	     "1", "", "bell");
	SAYS("removed | bell gone 1700000000007000", "latch_remove", "bell");
	SAYS("opened 1700000000007000 removed 1700000000007000", "HGETALL", MEMORY);
	contract_stop();
}

TEST(counter_gives_generations)
{
	contract_start();
	SAYS("OK", "SET", "lk:fence", "1700000005000000");
	SAYS("absent 0 0 0 -1 0 0 1700000005000001", SHOW);
	SAYS("set absent", SET_LATCH("1"));
	SAYS("1700000005000001", "GET", "lk:fence");
	SAYS("OK", "FLUSHALL");
	SAYS("OK", "SET", "lk:fence", "x");
	SAYS("absent 0 0 0 -1 0 0 1700000000000000", SHOW);
	SAYS("fence not a number", SET_LATCH("1"));
	SAYS("OK", "SET", "lk:fence", "9007199254740990");
	SAYS("absent 0 0 0 -1 0 0 9007199254740991", SHOW);
	SAYS("fence used up", SET_LATCH("1"));
	SAYS("OK", "SET", "lk:fence", "9007199254740991");
	SAYS("absent 0 0 0 -1 0 0 9007199254740991", SHOW);
	SAYS("OK", "SET", "lk:fence", "9999999999999999");
	SAYS("absent 0 0 0 -1 0 0 1700000000000000", SHOW);
	SAYS("fence not a number", SET_LATCH("1"));
	SAYS("1", "DEL", "lk:fence");
	SAYS("1", "HSET", "lk:fence", "f", "v");
	SAYS("absent 0 0 0 -1 0 0 1700000000000000", SHOW);
	SAYS("foreign lk:fence not a string", SET_LATCH("1"));
	SAYS("0", "EXISTS", LATCH);
	contract_stop();
}

/* The counter is lost and the clock is behind: the earlier opening is still older than the new
 * generation. */
TEST(generation_is_above_those_that_its_keys_speak_of)
{
	contract_start();
	SAYS("set absent", SET_LATCH("1"));
	SAYS("stepped 0 1 | bell open 1700000000000000", "latch_down", "1700000000000000", "a", "1",
	     "1", "", "bell");
	contract_at(-5000);
	SAYS("1", "DEL", "lk:fence");
	SAYS("open 1700000000000000 0 1 10000 1700000000000000 0 1700000000000001", SHOW);
	SAYS("set open", SET_LATCH("1"));
	SAYS("1700000000000001", "GET", "lk:fence");
	contract_stop();
}

TEST(what_is_not_a_latch_is_left_alone)
{
	static const char *const fields[] = {"gen", "count", "initial", "open_ttl"};

	contract_start();
	SAYS("OK", "SET", LATCH, "x");
	SAYS("foreign lk:{n} not a latch", SHOW);
	SAYS("foreign lk:{n} not a latch", SET_LATCH("1"));
	SAYS("foreign lk:{n} not a latch", "latch_remove", "bell");
	SAYS("foreign lk:{n} not a latch", DOWN("a", "1", "1", ""));
	SAYS("OK", "SET", LATCH, "2:a:n1:1000:r 5 5 -");
	SAYS("foreign lk:{n} a lock, not a latch", SHOW);
	SAYS("1", "DEL", LATCH);
	SAYS("1", "HSET", LATCH, "kind", "2:semaphore");
	SAYS("foreign lk:{n} a semaphore, not a latch", SHOW);
	SAYS("0", "HSET", LATCH, "kind", "2:latch");
	SAYS("foreign lk:{n} protocol version 2", SHOW);
	SAYS("0", "HSET", LATCH, "kind", "x");
	SAYS("foreign lk:{n} not a latch", SHOW);
	SAYS("1", "HDEL", LATCH, "kind");
	SAYS("1", "HSET", LATCH, "f", "v");
	SAYS("foreign lk:{n} not a latch", SHOW);
	SAYS("1", "DEL", LATCH);
	for (int i = 0; i < 4; i++) {
		SAYS("OK", "FLUSHALL");
		SAYS("set absent", SET_LATCH("1"));
		SAYS("0", "HSET", LATCH, fields[i], i % 2 ? "x" : "12345678901234567");
		SAYS("foreign lk:{n} not a latch", SHOW);
		SAYS("foreign lk:{n} not a latch", DOWN("a", "1", "1", ""));
	}
	SAYS("OK", "FLUSHALL");
	SAYS("OK", "SET", MEMORY, "x");
	SAYS("foreign lk:{n}:s not a hash", SHOW);
	SAYS("foreign lk:{n}:s not a hash", SET_LATCH("1"));
	SAYS("1", "DEL", MEMORY);
	SAYS("2", "HSET", MEMORY, "opened", "x", "removed", "y");
	SAYS("absent 0 0 0 -1 0 0 1700000000000000", SHOW);
	contract_stop();
}

TEST(tickets_of_another_kind_keep_a_latch_away)
{
	contract_start();
	SAYS("1", "ZADD", QUEUE, "1", "2:a:n1:1000:r");
	SAYS("foreign lk:{n}:q a lock, not a latch", SET_LATCH("1"));
	SAYS("foreign lk:{n}:q a lock, not a latch", "latch_remove", "bell");
	SAYS("OK", "FLUSHALL");
	SAYS("1", "ZADD", QUEUE, "1", "2:a:n1:1000:r:2");
	SAYS("foreign lk:{n}:q a semaphore, not a latch", SET_LATCH("1"));
	SAYS("foreign lk:{n}:q a semaphore, not a latch", "latch_remove", "bell");
	SAYS("OK", "FLUSHALL");
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("foreign lk:{n}:q not a sorted set", SET_LATCH("1"));
	SAYS("foreign lk:{n}:q not a sorted set", "latch_remove", "bell");
	/* An existing latch has no wait queue. */
	SAYS("OK", "FLUSHALL");
	SAYS("set absent", SET_LATCH("1"));
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("set counting", "latch_set", "5", "1", "5000", "0", "bell");
	SAYS("removed | bell gone 1700000000000001", "latch_remove", "bell");
	contract_stop();
}

TEST(full_server_makes_no_latch_and_lets_it_open)
{
	contract_start();
	SAYS("set absent", SET_LATCH("2"));
	contract_full(true);
	SAYS(FULL, "latch_set", "5", "1", "5000", "0", "bell");
	SAYS("counting 1700000000000000 2 2 -1 0 0 1700000000000001", SHOW);
	SAYS("stepped 1 1", DOWN("a", "1", "1", "x"));
	SAYS("stepped 0 1 | bell open 1700000000000000", DOWN("a", "2", "1", ""));
	SAYS("removed | bell gone 1700000000000000", "latch_remove", "bell");
	SAYS("absent 0 0 0 -1 1700000000000000 1700000000000000 1700000000000001", SHOW);
	contract_stop();
}

TEST(kind_of_a_name_is_told)
{
	contract_start();
	SAYS("nothing", "name_kind");
	SAYS("OK", "SET", LATCH, "2:a:n1:1000:r 5 5 -");
	SAYS("lock", "name_kind");
	SAYS("OK", "SET", LATCH, "x");
	SAYS("foreign lk:{n} none of ours", "name_kind");
	SAYS("OK", "SET", LATCH, "7:x");
	SAYS("foreign lk:{n} protocol version 7", "name_kind");
	SAYS("OK", "SET", LATCH, "1:a:n1:1000:r 5 5 -");
	SAYS("foreign lk:{n} protocol version 1", "name_kind");
	SAYS("1", "DEL", LATCH);
	SAYS("set absent", SET_LATCH("1"));
	SAYS("latch", "name_kind");
	SAYS("1", "HDEL", LATCH, "count");
	SAYS("nothing", "name_kind");
	SAYS("0", "HSET", LATCH, "kind", "2:semaphore");
	SAYS("semaphore", "name_kind");
	SAYS("0", "HSET", LATCH, "kind", "1:semaphore");
	SAYS("foreign lk:{n} protocol version 1", "name_kind");
	SAYS("1", "HDEL", LATCH, "kind");
	SAYS("foreign lk:{n} none of ours", "name_kind");
	SAYS("1", "DEL", LATCH);
	SAYS("1", "ZADD", LATCH, "1", "2:a:n1:1000:r");
	SAYS("foreign lk:{n} none of ours", "name_kind");
	SAYS("1", "DEL", LATCH);
	SAYS("1", "ZADD", QUEUE, "1", "2:a:n1:1000:r");
	SAYS("lock", "name_kind");
	SAYS("1", "DEL", QUEUE);
	SAYS("1", "ZADD", QUEUE, "1", "2:a:n1:1000:r:2");
	SAYS("semaphore", "name_kind");
	SAYS("1", "DEL", QUEUE);
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("foreign lk:{n}:q not a sorted set", "name_kind");
	contract_stop();
}

TEST(client_is_told_of_and_probed)
{
	contract_start();
	SAYS("1", "client_set", "60000", "host", "h", "pid", "7");
	SAYS("since 1700000000 host h pid 7", "HGETALL", "lk:client:a");
	SAYS("60000", "PTTL", "lk:client:a");
	contract_at(5000);
	SAYS("1", "client_set", "70000", "pid", "8");
	SAYS("since 1700000000 host h pid 8", "HGETALL", "lk:client:a");
	SAYS("70000", "PTTL", "lk:client:a");
	SAYS("1 | a probe", "link_probe", "lk:c:0:a");
	SAYS("0", "EXISTS", "lk:client:a");
	SAYS("0 | d 1", "link_probe", "lk:c:0:d");
	contract_stop();
}

TEST(command_without_a_right_is_told)
{
	contract_start();
	contract_refuse("HMGET", NULL);
	SAYS(NO_RIGHT, SHOW);
	SAYS(NO_RIGHT, SET_LATCH("1"));
	contract_refuse("HMGET", MEMORY);
	SAYS(NO_RIGHT, SHOW);
	contract_refuse("ZRANGE", NULL);
	SAYS(NO_RIGHT, SET_LATCH("1"));
	SAYS(NO_RIGHT, "latch_remove", "bell");
	contract_refuse("GET", NULL);
	SAYS(NO_RIGHT, SET_LATCH("1"));
	SAYS("absent 0 0 0 -1 0 0 1700000000000000", SHOW);
	contract_refuse("PUBLISH", NULL);
	SAYS("set absent", SET_LATCH("0"));
	SAYS("removed", "latch_remove", "bell");
	contract_stop();
}

TEST(memory_without_an_end_gets_one_with_a_step)
{
	contract_start();
	SAYS("set absent", "latch_set", "2", "0", "5000", "900", "bell");
	SAYS("1", "PERSIST", MEMORY);
	SAYS("stepped 1 1", DOWN("a", "1", "1", ""));
	SAYS("60900", "PTTL", MEMORY);
	contract_stop();
}

TEST(damaged_step_is_told)
{
	contract_start();
	SAYS("set absent", SET_LATCH("2"));
	SAYS("1", "HSET", MEMORY, "c:a", "x");
	SAYS("foreign lk:{n}:s not the steps of a latch", DOWN("a", "1", "1", ""));
	SAYS("counting 1700000000000000 2 2 -1 0 0 1700000000000001", SHOW);
	contract_stop();
}
