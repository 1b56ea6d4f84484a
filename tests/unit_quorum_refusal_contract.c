/* SPDX-License-Identifier: MIT
 * The contract of the scripts of a quorum's lock: what they refuse, and what other scripts do with
 * its keys. */
#include "contract_quorum.h"

#include <stdio.h>
#include <string.h>

/* ---- Memory ------------------------------------------------------------------------------- */

TEST(young_server_lets_leave_and_serves_no_ticket)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS("queued " C_AT " 1 1000 0", ASK(C(0)));
	contract_epoch(MARKER, "1700000000001000");
	KEEPS("young 1", HAND);
	SAYS("left 0 0 0", LEAVE(C(0)));
	SAYS("left 1 0 0", LEAVE(A(0)));
	SAYS("0", "EXISTS", LOCK);
	SAYS(B(0), TICKETS);
	KEEPS("young 1", HAND);
	/* The next epoch is not enqueued: the hand that must follow has the reason. */
	SAYS("left 0 1 1", YIELD(B(0), B(1)));
	SAYS("0", "EXISTS", QUEUE);
	contract_epoch(MARKER, "0");
	SAYS("granted 1699999995000001 " NOW " 0 1699999995000001 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	contract_epoch(MARKER, "1700000000001000");
	SAYS("left 1 1 0", YIELD(A(0), A(1)));
	SAYS(B(0), TICKETS);
	contract_stop();
}

TEST(another_memory_lets_leave_and_serves_no_ticket)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS("queued " C_AT " 1 1000 0", ASK(C(0)));
	contract_epoch("1 b 1 [set 1/3 60000]", "0");
	KEEPS("epoch", HAND);
	SAYS("left 0 1 0", YIELD(C(0), C(1)));
	SAYS(B(0), TICKETS);
	SAYS("left 1 1 0", LEAVE(A(0)));
	SAYS("0", "EXISTS", LOCK);
	SAYS("left 0 0 1", LEAVE(B(0)));
	contract_stop();
}

TEST(server_without_a_set_lets_leave_and_serves_no_ticket)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS("OK", "SET", "lk:epoch", "1 a 1");
	contract_epoch("1 a 1", "0");
	SAYS("left 1 0 0", LEAVE(A(0)));
	KEEPS("left 0 0 0", HAND);
	contract_stop();
}

/* ---- Foreign keys ------------------------------------------------------------------------- */

TEST(key_of_another_protocol_is_foreign)
{
	static const char *const values[][2] = {
		{"2:a:n1:1000:r 1 1000 -", "a single server's: use redis://"},
		{"1:a:n1:1000:r 1 1000 -", "a single server's: use redis://"},
		{"q2:a:n1:1000:r:5:0 1 1000 -", "protocol version q2"},
		{"q1:a:n1:1000:r:5 1 1000 -", "not a lock"},
		{"q1:a:n1:1000:r:5:0 1 1000", "not a lock"},
		{"q1:a:n1:1000:n:5:0 1 1000 -", "not a lock"},
		{"x", "not a lock"},
		{"", "not a lock"},
	};
	char reply[100];

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		start();
		SAYS("OK", "SET", LOCK, values[i][0]);
		SAYS("1", "ZADD", QUEUE, A_AT, A(0));
		snprintf(reply, sizeof(reply), "foreign lk:{n} %s", values[i][1]);
		KEEPS(reply, ASK(A(0)));
		KEEPS(reply, LEAVE(A(0)));
		KEEPS("gone", CLAIM(A(0)));
		contract_stop();
	}
	start();
	SAYS("OK", "SET", LOCK, A(0) " 9007199254740992 1000 -");
	KEEPS("foreign lk:{n} not a lock", ASK(A(0)));
	KEEPS("gone", CLAIM(A(0)));
	SAYS("OK", "SET", LOCK, A(0) " 5 123456789012 -");
	KEEPS("foreign lk:{n} not a lock", ASK(A(0)));
	contract_stop();
}

TEST(key_of_another_type_is_foreign)
{
	start();
	SAYS("1", "HSET", LOCK, "kind", "2:semaphore");
	KEEPS("foreign lk:{n} a semaphore, not a lock", ASK(A(0)));
	KEEPS("foreign lk:{n} a semaphore, not a lock", LEAVE(A(0)));
	KEEPS("foreign lk:{n} a semaphore, not a lock", CLAIM(A(0)));
	SAYS("1", "DEL", LOCK);
	SAYS("1", "ZADD", LOCK, "1", "x");
	KEEPS("foreign lk:{n} not a lock", ASK(A(0)));
	contract_stop();
}

TEST(queue_of_another_kind_is_foreign)
{
	static const char *const heads[][2] = {
		{"2:a:n1:1000:r", "a single server's: use redis://"},
		{"q2:a:n1:1000:r:5:0", "protocol version q2"},
		{"q1:a:n1:1000:r:5:0:1", "not a queue"},
		{"x", "not a queue"},
	};
	char reply[100];

	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		start();
		SAYS("1", "ZADD", QUEUE, "5", heads[i][0]);
		snprintf(reply, sizeof(reply), "foreign lk:{n}:q %s", heads[i][1]);
		KEEPS(reply, ASK(A(0)));
		KEEPS("left 0 0 0", HAND);
		contract_stop();
	}
	start();
	SAYS("OK", "SET", QUEUE, "x");
	KEEPS("foreign lk:{n}:q not a sorted set", ASK(A(0)));
	KEEPS("foreign lk:{n}:q not a sorted set", LEAVE(A(0)));
	SAYS("OK", "SET", LOCK, A(0) " 5 1000 -");
	SAYS("held 5 " NOW " 0 0 0", RENEW(A(0), "5", "1000", "0"));
	contract_stop();
}

/* What can be granted no lease of some length is no ticket. */
TEST(head_that_cannot_be_granted_is_not_served)
{
	static const char *const heads[] = {"q1:b:n1:1:r:5:0", "q1:b:n1:123456789012:r:5:0"};

	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		start();
		SAYS("1", "ZADD", QUEUE, "5", heads[i]);
		KEEPS("left 0 0 0", HAND);
		contract_stop();
	}
}

TEST(second_that_is_no_ticket_is_not_notified)
{
	start();
	SAYS("1", "ZADD", QUEUE, "5", "q1:b:n1:2000:r:5:0");
	SAYS("1", "ZADD", QUEUE, "6", "x");
	SAYS("left 0 0 0 | b grant q1:b:n1:2000:r:5:0 " LEAST " 1000 1 1 " NOW, HAND);
	contract_stop();
}

TEST(damaged_counter_stops_no_renewal_and_no_leave)
{
	static const char *const counters[] = {"x", "12345678901234567", "9007199254740991"};

	for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++) {
		start();
		SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
		SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
		SAYS("0", "HSET", "lk:fences", CLASS, counters[i]);
		KEEPS(i == 2 ? "held " LEAST " " NOW " 1 9007199254740991 0"
		             : "held " LEAST " " NOW " 1 0 0",
		      RENEW(A(0), LEAST, "1000", "1700000000000000"));
		SAYS("left 1 0 0", LEAVE(A(0)));
		SAYS(B(0), TICKETS);
		contract_stop();
	}
	start();
	SAYS("OK", "SET", LOCK, A(0) " 5 1000 -");
	SAYS("OK", "SET", "lk:fences", "x");
	SAYS("held 5 " NOW " 0 0 0", RENEW(A(0), "5", "1000", "1700000000000000"));
	SAYS("x", "GET", "lk:fences");
	contract_stop();
}

/* ---- Refusals ----------------------------------------------------------------------------- */

TEST(full_server_renews_and_releases)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	contract_full(true);
	KEEPS(FULL, ASK(C(0)));
	SAYS("held " LEAST " " NOW " 1 1699999995000009 0",
	     RENEW(A(0), LEAST, "3000", "1699999995000009"));
	SAYS("held " LEAST " " NOW " 1 1699999995000010 0",
	     RENEW(A(0), LEAST, "0", "1699999995000010"));
	SAYS("left 1 0 0 | b grant " B(0) " 1699999995000011 2000 0 0 " NOW, LEAVE(A(0)));
	SAYS("left 1 0 0 | b grant " B(1) " 1699999995000012 2000 0 0 " NOW, YIELD(B(0), B(1)));
	contract_stop();
}

TEST(missing_right_is_torn_only_behind_a_change)
{
	start();
	contract_refuse("SET", NULL);
	KEEPS(NO_RIGHT, ASK(A(0)));
	contract_refuse("HSET", NULL);
	SAYS(TORN_BY_RIGHT, ASK(A(0)));
	contract_refuse("GET", NULL);
	KEEPS(NO_RIGHT, ASK(A(0)));
	KEEPS(NO_RIGHT, LEAVE(A(0)));
	KEEPS(NO_RIGHT, RENEW(A(0), LEAST, "1000", "0"));
	contract_refuse("GET", LOCK);
	KEEPS(NO_RIGHT, ASK(A(0)));
	KEEPS(NO_RIGHT, LEAVE(A(0)));
	KEEPS(NO_RIGHT, RENEW(A(0), LEAST, "1000", "0"));
	contract_refuse("HGET", NULL);
	KEEPS(NO_RIGHT, ASK(A(0)));
	contract_refuse("ZCARD", NULL);
	KEEPS(NO_RIGHT, ASK(A(0)));
	KEEPS(NO_RIGHT, LEAVE(A(0)));
	contract_refuse(NULL, NULL);
	SAYS("1", "DEL", LOCK);
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(B(0)));
	SAYS("1", "ZADD", QUEUE, A_AT, A(0));
	contract_refuse("PUBLISH", NULL);
	SAYS(TORN_BY_RIGHT, ASK(A(0)));
	SAYS(TORN_BY_RIGHT, LEAVE(B(0)));
	contract_stop();
}

TEST(missing_right_to_notify_the_second_is_torn)
{
	start();
	SAYS("1", "ZADD", QUEUE, "5", "q1:a:n1:2000:r:5:0");
	SAYS("1", "ZADD", QUEUE, "6", "q1:b:n1:2000:r:6:0");
	contract_refuse("PUBLISH", CHANNELS "b");
	SAYS(TORN_BY_RIGHT " | a grant q1:a:n1:2000:r:5:0 " LEAST " 1000 1 1 " NOW, HAND);
	contract_stop();
}

/* ---- Other scripts ------------------------------------------------------------------------ */

TEST(show_lists_tickets_of_a_quorum)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(1)));
	SAYS("queued " C_AT " 1 1000 0", ASK(C(0)));
	KEEPS(A(0) " " LEAST " 1000 " NOW " 2 1 " B(1) " " C(0), "lock_show", C(0), "9");
	KEEPS("lock", "name_kind");
	SAYS("1", "DEL", LOCK);
	KEEPS(" 0 -2 " NOW " 2 -1 " B(1), "lock_show", "", "1");
	KEEPS("lock", "name_kind");
	contract_stop();
}

TEST(single_server_scripts_refuse_tickets_of_a_quorum)
{
	static const char told[] = "foreign lk:{n} member of a quorum: use redis+quorum://";

	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	KEEPS(told, "lock_ask", "2:b:n1:1000:r", "1", "0", CHANNELS, "-", "30000");
	KEEPS(told, "lock_leave", "2:b:n1:1000:r", "0", CHANNELS, "0");
	KEEPS("gone", "lock_renew", "2:b:n1:1000:r", "0", "1000", "0", "-");
	SAYS("1", "DEL", LOCK);
	SAYS("1", "ZADD", QUEUE, B_AT, B(0));
	KEEPS("foreign lk:{n}:q member of a quorum: use redis+quorum://", "lock_ask",
	      "2:b:n1:1000:r", "1", "0", CHANNELS, "-", "30000");
	KEEPS("left 0 0 0", "lock_leave", "", "0", CHANNELS, "0");
	contract_stop();
}
