/* SPDX-License-Identifier: MIT
 * A Cluster of a managed service, which refuses CONFIG, INFO, CLIENT, SCRIPT and CLUSTER MYID. */
#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/everything.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <stdio.h>

#define LIMITED                                                                                    \
	"ACL SETUSER latchkey on >SECRET ~* &* +@all -config -info -client -script -acl -debug "   \
	"-cluster +cluster|slots"

CLUSTER_SETUP_SHARED(NULL)

static const char *url_with(const struct cluster_setup *setup, int grace_ms)
{
	static char url[200];

	snprintf(url, sizeof(url), "%s?grace=%d", setup->url, grace_ms);
	return url;
}

TEST_LIMIT(everything_works_without_the_commands_of_operators, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	const char *step;

	cluster_setup_each(setup, LIMITED);
	ck_assert_msg(use_everything(url_with(setup, 0), &step) == LK_OK, "%s: %s", step,
	              lk_errmsg());
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}

/* Without INFO, a missing marker alone shows a loss; a promotion needs none, since the hold is
 * taken back at the other node. */
TEST_LIMIT(hold_outlives_a_failover_without_the_commands_of_operators, 60)
{
	const lk_client_options options = {.user = "latchkey", .password = "SECRET"};
	struct cluster_setup *setup = cluster_setup_shared();
	lk_client *client, *other;
	lk_lock *lock, *theirs;
	int master;

	cluster_setup_each(setup, LIMITED);
	client = client_with(url_with(setup, 1000), &options);
	other = client_with(url_with(setup, 1000), &options);
	lock = lock_leased(client, "a", 1000);
	theirs = lock_named(other, "a");
	OK(lk_lock_acquire(lock, 10000, NULL));
	cluster_setup_await_sync(setup);
	master = cluster_slot_owner(setup, "lk:{a}");
	ck_assert_int_ne(cluster_setup_failover(setup, master, ""), master);
	EXPECT(lk_lock_acquire(theirs, 0, NULL), LK_EBUSY);
	nap_ms(2000); /* two leases */
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(theirs, 10000, NULL));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}
