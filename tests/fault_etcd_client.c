/* SPDX-License-Identifier: MIT
 * Clients of etcd that stop, die or give up (E11 and E13 to E15 of the fault list). */
#include "harness/etcd_fault.h"

#include <stdio.h>
#include <stdlib.h>

#define LEASE_MS 3000
#define LONG_LEASE_MS 60000
#define SLOW_MS 4000 /* what a loaded machine may add */
#define LATE_MS 1500 /* etcd ends leases so much later, at most */

static void start(void)
{
	etcd_fault_set_up();
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start);
}

/* ---- A client in a process of its own ------------------------------------------------------- */

/* Orders: hold, state, release, quit; each has an answer of one line. */
static int obey(void *arg, int in, int out)
{
	lk_client *client = etcd_client(ETCD_ALL);
	lk_lock *lock = lock_leased(client, arg, LEASE_MS);
	const char *order;
	uint64_t fence;
	lk_err err;

	while ((order = line_read(in, 60000)) && *order != 'q') {
		if (*order == 'h') {
			fence = 0;
			err = lk_lock_acquire(lock, LK_FOREVER, &fence);
			line_write(out, "%s %lld", lk_err_name(err), (long long)fence);
		} else if (*order == 's') {
			line_write(out, "%d", (int)lk_lock_state(lock));
		} else {
			line_write(out, "%s", lk_err_name(lk_lock_release(lock)));
		}
	}
	return order ? lk_client_close(client) != LK_OK : 3;
}

static struct process processes[2], *process = &processes[0];
static lk_client *clients[4];

static void order(struct process *to, const char *what)
{
	ck_assert(line_write(to->in, "%s", what));
}

static const char *answer(void)
{
	const char *line = line_read(process->out, 2 * ETCD_SOON_MS);

	ck_assert_ptr_nonnull(line);
	return line;
}

static uint64_t held_in_process(void)
{
	long long fence = 0;
	const char *line = answer();

	ck_assert_msg(sscanf(line, "LK_OK %lld", &fence) == 1, "%s", line);
	return (uint64_t)fence;
}

/* The processes start before this one has threads. */
static void begin(char *name, int count)
{
	for (int i = 0; i < count; i++)
		process_start(&processes[i], obey, name);
	for (int i = 0; i < 4; i++)
		clients[i] = etcd_client(ETCD_ALL);
}

static void await_queue(const char *name, int count)
{
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, name) == count));
}

static void end(const char *name)
{
	for (int i = 0; i < 4; i++)
		OK(lk_client_close(clients[i]));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, name) == 0));
}

/* ---- E11: stopped for longer than the lease ------------------------------------------------- */

TEST_LIMIT(e11_client_stopped_over_its_lease_does_not_believe, 120)
{
	static char name[] = "e11";
	uint64_t before, after;
	lk_lock *wanted;

	begin(name, 1);
	wanted = lock_leased(clients[0], name, LONG_LEASE_MS);
	order(process, "hold");
	before = held_in_process();
	process_pause(process);
	OK(lk_lock_acquire(wanted, 2 * ETCD_SOON_MS, &after));
	ck_assert_uint_gt(after, before);
	process_continue(process);
	order(process, "state");
	ck_assert_int_eq(atoi(answer()), LK_STATE_LOST);
	order(process, "release");
	ck_assert_str_eq(answer(), lk_err_name(LK_ELOST));
	stays_held(wanted, 500);
	ck_assert_int_eq(etcd_tickets(0, name), 1);
	OK(lk_lock_release(wanted));
	order(process, "hold");
	ck_assert_uint_gt(held_in_process(), after);
	order(process, "quit");
	ck_assert(process_succeeded(process, ETCD_SOON_MS));
	end(name);
}

TEST_LIMIT(e11_waiter_stopped_over_its_grant_is_not_granted, 120)
{
	static char name[] = "e11w";
	lk_lock *held, *wanted;
	uint64_t after;

	begin(name, 1);
	held = lock_leased(clients[0], name, LONG_LEASE_MS);
	wanted = lock_leased(clients[1], name, LONG_LEASE_MS);
	OK(lk_lock_acquire(held, ETCD_SOON_MS, NULL));
	order(process, "hold");
	await_queue(name, 2);
	process_pause(process);
	OK(lk_lock_release(held)); /* the letter lies in its socket */
	OK(lk_lock_acquire(wanted, 2 * ETCD_SOON_MS, &after));
	process_continue(process);
	ck_assert_ptr_null(line_read(process->out, 1000));
	stays_held(wanted, 100);
	OK(lk_lock_release(wanted));
	ck_assert_uint_gt(held_in_process(), after);
	order(process, "quit");
	ck_assert(process_succeeded(process, ETCD_SOON_MS));
	end(name);
}

/* ---- E13: killed ---------------------------------------------------------------------------- */

TEST_LIMIT(e13_lock_of_a_killed_holder_is_granted_after_its_lease, 120)
{
	static char name[] = "e13";
	uint64_t before, after;
	int64_t died_ms;
	lk_lock *wanted;

	begin(name, 1);
	wanted = lock_leased(clients[0], name, LONG_LEASE_MS);
	order(process, "hold");
	before = held_in_process();
	process_kill(process);
	died_ms = now_ms();
	OK(lk_lock_acquire(wanted, 2 * ETCD_SOON_MS, &after));
	ck_assert_uint_gt(after, before);
	ck_assert_int_le(now_ms() - died_ms, LEASE_MS + LATE_MS + SLOW_MS);
	OK(lk_lock_release(wanted));
	end(name);
}

TEST_LIMIT(e13_killed_waiters_are_skipped, 120)
{
	static char name[] = "e13w";
	struct etcd_waiter waiters[2] = {{0}};
	lk_lock *held;
	int64_t died_ms;

	begin(name, 2);
	held = lock_leased(clients[0], name, LONG_LEASE_MS);
	OK(lk_lock_acquire(held, ETCD_SOON_MS, NULL));
	for (int i = 0; i < 2; i++) {
		order(&processes[i], "hold");
		await_queue(name, 2 * i + 2);
		etcd_waiter_start(&waiters[i], etcd_lock(clients[i + 1], name, LONG_LEASE_MS),
		                  LK_FOREVER);
		await_queue(name, 2 * i + 3);
	}
	for (int i = 0; i < 2; i++)
		process_kill(&processes[i]);
	died_ms = now_ms();
	OK(lk_lock_release(held));
	for (int i = 0; i < 2; i++) {
		OK(etcd_waiter_join(&waiters[i]));
		ck_assert(i || !waiters[1].ended);
		OK(lk_lock_release(waiters[i].lock));
	}
	ck_assert_uint_gt(waiters[1].fence, waiters[0].fence);
	ck_assert_int_le(now_ms() - died_ms, LEASE_MS + LATE_MS + SLOW_MS);
	end(name);
}

/* ---- E14 and E15: the hand-off -------------------------------------------------------------- */

TEST_LIMIT(e14_successor_that_gives_up_is_passed_over, 120)
{
	static const char name[] = "e14";
	struct etcd_waiter waiters[3] = {{0}};
	lk_lock *held;

	begin(NULL, 0);
	held = lock_leased(clients[0], name, LONG_LEASE_MS);
	OK(lk_lock_acquire(held, ETCD_SOON_MS, NULL));
	for (int i = 0; i < 3; i++) {
		etcd_waiter_start(&waiters[i], etcd_lock(clients[i + 1], name, LONG_LEASE_MS),
		                  LK_FOREVER);
		await_queue(name, i + 2);
	}
	OK(lk_lock_release(held));
	OK(etcd_waiter_join(&waiters[0])); /* its letter names the two others */
	OK(lk_lock_cancel(waiters[1].lock));
	EXPECT(etcd_waiter_join(&waiters[1]), LK_ECANCELED);
	await_queue(name, 2);
	OK(lk_lock_release(waiters[0].lock));
	OK(etcd_waiter_join(&waiters[2]));
	ck_assert_uint_gt(waiters[2].fence, waiters[0].fence);
	OK(lk_lock_release(waiters[2].lock));
	end(name);
}

/* Its ticket is gone, and it does not notify the next one: it hears no answer. */
TEST_LIMIT(e15_lock_of_a_client_that_dies_in_its_release_is_granted, 120)
{
	static const char name[] = "e15";
	const struct proxy_fault drop = {.drop = true};
	struct etcd_waiter waiter = {0};
	int64_t left_ms;
	lk_err err;
	lk_client *leaver;
	lk_lock *held;

	begin(NULL, 0);
	leaver = etcd_client_at(0);
	held = lock_leased(leaver, name, LONG_LEASE_MS);
	OK(lk_lock_acquire(held, ETCD_SOON_MS, NULL));
	etcd_waiter_start(&waiter, etcd_lock(clients[0], name, LONG_LEASE_MS), LK_FOREVER);
	await_queue(name, 2);
	for (int i = 0; i < etcd.count; i++)
		proxy_set(&etcd_proxies[i], PROXY_COMMANDS, PROXY_TO_CLIENT, &drop);
	left_ms = now_ms();
	EXPECT(lk_lock_release(held), LK_EUNKNOWN);
	OK(etcd_waiter_join(&waiter));
	ck_assert_int_le(now_ms() - left_ms, 2000 + SLOW_MS); /* not its next look, after 10 s */
	OK(lk_lock_release(waiter.lock));
	for (int i = 0; i < etcd.count; i++) {
		proxy_cut(&etcd_proxies[i], PROXY_COMMANDS, false);
		proxy_heal(&etcd_proxies[i]);
	}
	err = lk_client_close(leaver);
	ck_assert_msg(!err || err == LK_EUNKNOWN, "%s", lk_err_name(err)); /* of its release */
	end(name);
}
