/* SPDX-License-Identifier: MIT
 * The contract of the scripts in a Cluster: narrow renewals and leaves, and runs in a slot that
 * moves to another node, where a key that a script has removed cannot be used again.  (Each call of
 * the other contracts runs in such a slot, too, if its keys exist.) */
#include "contract_semaphore.h"

#define FENCE "lk:fence"
#define LA "2:a:n1:1000:r"
#define LB "2:b:n1:2000:r"
#define LD "2:d:n1:2000:r"
#define LASK(ticket) "lock_ask", ticket, "1", "0", "lk:c:0:", "-", "30000"
#define LLEAVE(ticket) "lock_leave", ticket, "0", "lk:c:0:", "0"
#define LRENEW(ticket, fence, lease, issued) "lock_renew", ticket, fence, lease, issued, "s"
#define MOVED(expected, ...)                                                                       \
	do {                                                                                       \
		SAYS(expected, __VA_ARGS__);                                                       \
		ck_assert(contract_moved());                                                       \
	} while (0)

/* ---- Narrow renewals and leaves ------------------------------------------------------------ */

TEST(narrow_renewal_of_a_lock_touches_the_lock_alone)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", LASK(LA));
	contract_narrow(true);
	MOVED("held 1700000000000000 1700000000000000 1",
	      LRENEW(LA, "1700000000000000", "5000", "1700000000000009"));
	SAYS(LA " 1700000000000000 5000 s", "GET", STATE);
	SAYS("5000", "PTTL", STATE);
	SAYS("1700000000000000", "GET", FENCE);
	MOVED("gone", LRENEW(LA, "1700000000000001", "5000", "0"));
	MOVED("gone", LRENEW(LB, "0", "5000", "0"));
	/* A claim: the client has compared the marker. */
	contract_epoch("1 b 1", "0");
	MOVED("held 1700000000000000 1700000000000000 1", LRENEW(LA, "0", "5000", "0"));
	contract_full(true);
	MOVED("held 1700000000000000 1700000000000000 1", LRENEW(LA, "0", "6000", "0"));
	SAYS("6000", "PTTL", STATE);
	contract_full(false);
	SAYS("OK", "SET", STATE, "x");
	MOVED("gone", LRENEW(LA, "0", "5000", "0"));
	contract_stop();
}

TEST(narrow_leave_of_a_lock_ends_the_hold_and_serves_no_waiter)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", LASK(LA));
	SAYS("queued 1700000000000000 0 1000 0", LASK(LB));
	contract_narrow(true);
	MOVED("left 0 1 0", LLEAVE(LB));
	MOVED("left 0 1 0", LLEAVE(""));
	SAYS(LA " 1700000000000000 1000 -", "GET", STATE);
	contract_full(true);
	MOVED("left 1 1 0 | a broken " LA, "lock_leave", LA, "1700000000000009", "lk:c:0:", "1");
	contract_full(false);
	SAYS("0", "EXISTS", STATE);
	SAYS(LB, "ZRANGE", QUEUE, "0", "-1");
	SAYS("1700000000000000", "GET", FENCE);
	SAYS("left 0 1 0", LLEAVE(LA));
	/* A repeated ask of the same ticket got in between: the whole leave removes it. */
	contract_narrow(false);
	SAYS("queued 1700000000000001 1 0 1", LASK(LA));
	SAYS("left 0 0 0 | b grant " LB " 1700000000000001 2000 0 0 1700000000000000", LLEAVE(LA));
	SAYS("", "ZRANGE", QUEUE, "0", "-1");
	contract_narrow(true);
	SAYS("OK", "SET", STATE, "x");
	SAYS("foreign lk:{n} not a lock", LLEAVE(LA));
	contract_stop();
}

TEST(narrow_renewal_of_permits_touches_the_semaphore_and_its_ends_alone)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(E));
	contract_narrow(true);
	MOVED("held 1700000000000000 1700000000000000 1", RENEW(B, "5000"));
	SAYS(B " 1700000005000000", ALL_ENDS);
	MOVED("gone", RENEW(E, "5000"));
	contract_epoch("1 b 1", "0");
	MOVED("held 1700000000000000 1700000000000000 1", RENEW(B, "5000"));
	contract_full(true);
	MOVED("held 1700000000000000 1700000000000000 1", RENEW(B, "6000"));
	SAYS(B " 1700000006000000", ALL_ENDS);
	contract_stop();
}

TEST(narrow_leave_of_permits_ends_the_hold_and_serves_no_waiter)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(D));
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	contract_narrow(true);
	contract_full(true);
	MOVED("left 1 1 0", LEAVE(A));
	contract_full(false);
	SAYS(D " 1700000002000000", ALL_ENDS);
	SAYS("1", "HGET", STATE, "used");
	MOVED("left 0 1 0", LEAVE(A));
	MOVED("left 0 1 0", LEAVE(E));
	MOVED("left 0 1 0", LEAVE(""));
	SAYS(E " 1700000000000000", ALL_QUEUE);
	contract_narrow(false);
	SAYS("left 0 0 0 | e grant " E " 1700000000000002 2000 0 0 1700000000000000", LEAVE(A));
	contract_stop();
}

/* Its end stays, over now: the keys still exist for the next narrow run, and for the whole leave.
 */
TEST(narrow_leave_of_the_last_hold_keeps_both_keys)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(E));
	contract_at(100);
	contract_narrow(true);
	contract_full(true);
	MOVED("left 1 1 0 | b broken " B, "semaphore_leave", B, "0", "lk:c:0:", "1", "21000");
	contract_full(false);
	SAYS("0", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, B);
	SAYS(B " 1700000000100000", ALL_ENDS);
	SAYS("60000", "PTTL", ENDS);
	MOVED("left 0 1 0", LEAVE(B));
	MOVED("gone", RENEW(B, "5000"));
	contract_narrow(false);
	MOVED("left 0 0 1 | e grant " E " 1700000000100000 2000 0 0 1700000000100000", LEAVE(B));
	SAYS(E " 1700000002100000", ALL_ENDS);
	SAYS("1", "HGET", STATE, "used");
	contract_stop();
}

TEST(narrow_leave_releases_a_part)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	contract_narrow(true);
	MOVED("left 1 1 0", KEEP(B, "1"));
	SAYS("1", "HGET", STATE, "used");
	SAYS("1 1700000000000000 2000", "HGET", STATE, B);
	MOVED("left 1 1 0", KEEP(B, "1"));
	SAYS("1", "HGET", STATE, "used");
	SAYS("1", "DEL", STATE);
	SAYS("left 0 1 0", LEAVE(B));
	contract_stop();
}

/* ---- Removed keys -------------------------------------------------------------------------- */

TEST(lock_is_handed_over_in_a_slot_that_moves)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", LASK(LA));
	SAYS("queued 1700000000000000 0 1000 0", LASK(LD));
	SAYS("queued 1700000000000001 1 1000 0", LASK(LB));
	contract_at(1);
	MOVED("left 1 0 0 | b grant " LB " 1700000000001000 2000 0 0 1700000000001000 | d 1",
	      LLEAVE(LA));
	/* No waiter is left to grant to: the lock is deleted at the end. */
	SAYS("queued 1700000000001000 0 2000 0", LASK(LD));
	MOVED("left 1 0 1 | d 1", LLEAVE(LB));
	SAYS("0", "EXISTS", STATE);
	contract_stop();
}

TEST(last_permits_are_handed_over_in_a_slot_that_moves)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(E));
	contract_full(true);
	MOVED("left 1 0 1 | e grant " E " 1700000000000001 2000 0 0 1700000000000000", LEAVE(B));
	contract_full(false);
	SAYS(E " 1700000002000000", ALL_ENDS);
	/* No waiter is left to grant to: the ends vanish at the end. */
	SAYS("queued 1700000000000000 0 2000 0", ASK("2:d:n1:2000:r:2"));
	MOVED("left 1 0 1 | d 1", LEAVE(E));
	SAYS("0", "EXISTS", ENDS);
	SAYS("0", "HGET", STATE, "used");
	contract_stop();
}

TEST(all_leases_have_ended_in_a_slot_that_moves)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(E));
	SAYS("queued 1700000000000000 0 1000 0", ASK("2:d:n1:2000:r:2"));
	contract_at(2001);
	/* The only waiter has gone: the queue vanishes, and so do the ends, before this grant. */
	MOVED("granted 1700000002001000 1700000002001000 0 0 | d 1", ASK(B));
	SAYS(B " 1700000004001000", ALL_ENDS);
	SAYS("0", "EXISTS", QUEUE);
	contract_at(5000);
	SAYS("1", "ZADD", QUEUE, "1700000004999999", "2:d:n1:2000:r:2");
	MOVED("left 0 0 1 | d 1", LEAVE(B));
	SAYS("0", "EXISTS", ENDS);
	contract_stop();
}

/* The queue is emptied by what it serves, before a new ticket enters it. */
TEST(ticket_enters_a_queue_that_it_empties_in_a_slot_that_moves)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("1", "ZADD", QUEUE, "1700000000000000", E);
	MOVED("queued 1700000000000001 0 1000 0 | e grant " E
	      " 1700000000000001 2000 0 1 1700000000000000",
	      ASK("2:c:n1:8000:r:1"));
	SAYS("2:c:n1:8000:r:1 1700000000000001", ALL_QUEUE);
	SAYS("30000", "PTTL", QUEUE);
	contract_stop();
}

TEST(marker_is_written_in_a_slot_that_moves)
{
	contract_start();
	contract_process()->flushed = true;
	SAYS("OK", "SET", "lk:epoch", "1 b 1");
	SAYS("epoch", "epoch_end", "1 a 1");
	contract_full(true);
	SAYS("-OOM command not allowed when used memory > 'maxmemory'.", "epoch_end", "1 b 1");
	SAYS("0", "EXISTS", "lk:epoch:x");
	contract_full(false);
	MOVED("epoch 1 b 0 0 1700000000000000 0", "epoch_end", "1 b 1");
	contract_stop();
}

/* A queue that another program left beside a latch: in a Cluster it keeps resets and removals away,
 * which would delete keys and write them again. */
TEST(latch_is_not_reset_in_a_slot_that_moves)
{
	contract_start();
	SAYS("set absent", "latch_set", "2", "0", "5000", "0", "bell");
	ck_assert(!contract_moved());
	SAYS("1", "ZADD", QUEUE, "1", LA);
	SAYS("set counting", "latch_set", "2", "1", "5000", "0", "bell");
	ck_assert(!contract_moved());
	KEEPS("foreign lk:{n}:q a lock, not a latch", "latch_set", "2", "1", "5000", "0",
	      "lk:l:{n}");
	KEEPS("foreign lk:{n}:q a lock, not a latch", "latch_remove", "lk:l:{n}");
	MOVED("stepped 1 1", "latch_down", "1700000000000001", "a", "1", "1", "", "bell");
	MOVED("stepped 0 1 | bell open 1700000000000001", "latch_down", "1700000000000001", "a",
	      "2", "1", "", "bell");
	contract_stop();
}
