/* SPDX-License-Identifier: MIT
 * The grace of a store that sentinels name: a part of it is for clients that follow a failover
 * late, and covers no lease. */
#include "harness/fake_sentinel.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

static struct fake_sentinel sentinel;
static struct test_server server;
static atomic_int long_leases;

static void take_line(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	if (level == LK_LOG_WARN &&
	    strstr(line, "is longer than the grace of 5.0 s less 3 s for a failover"))
		long_leases++;
}

/* How often a lease is logged as too long. */
static int warnings_for(int64_t lease_ms, const char *url)
{
	const lk_client_options options = {.log = take_line};
	lk_client *client = client_with(url, &options);
	lk_lock *lock = lock_leased(client, "a", lease_ms);

	long_leases = 0;
	OK(lk_lock_acquire(lock, 15000, NULL));
	WITHIN(500, long_leases > 0);
	OK(lk_client_close(client));
	return long_leases;
}

TEST(lease_that_a_late_failover_uncovers_is_logged)
{
	char url[100];

	server_start(&server, NULL);
	fake_sentinel_start(&sentinel, 0, server.port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/s?grace=5000", sentinel.port);
	ck_assert_int_eq(warnings_for(2001, url), 1);
	ck_assert_int_eq(warnings_for(2000, url), 0);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=5000", server.port);
	ck_assert_int_eq(warnings_for(2001, url), 0);
	fake_sentinel_stop(&sentinel);
	server_stop(&server);
}
