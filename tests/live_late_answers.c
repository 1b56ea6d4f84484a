/* SPDX-License-Identifier: MIT
 * A late response, whose request timed out, arrives while the next request is pending. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/server.h"
#include "harness/test.h"

#include <latchkey.h>
#include <pthread.h>

#define TIMEOUT_MS 300

static struct proxy proxy;

static void *heal_soon(void *arg)
{
	nap_ms(TIMEOUT_MS + 100);
	proxy_heal(&proxy);
	return arg;
}

/* The query gets its own response or none: the response to the acquire would report a holder. */
TEST(late_answer_is_never_that_of_the_next_question)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};
	const struct proxy_fault stall = {.stall = true};
	struct test_server server;
	lk_lock_status status;
	lk_lock *tried, *free_one;
	lk_client *client;
	pthread_t thread;
	lk_err err;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	client = client_with(proxy.url, &options);
	tried = lock_named(client, "tried");
	free_one = lock_named(client, "free");
	OK(lk_lock_query(free_one, &status));
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &stall);
	ck_assert_int_eq(pthread_create(&thread, NULL, heal_soon, NULL), 0);
	EXPECT(lk_lock_acquire(tried, 0, NULL), LK_EUNKNOWN);
	err = lk_lock_query(free_one, &status);
	ck_assert_msg(err == LK_OK || err == LK_ECONN || err == LK_EUNKNOWN, "%s: %s",
	              lk_err_name(err), lk_errmsg());
	ck_assert(err || !status.held);
	pthread_join(thread, NULL);
	ck_assert_int_gt(proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	ck_assert(WITHIN(3000, lk_lock_query(free_one, &status) == LK_OK));
	ck_assert(!status.held);
	(void)lk_client_close(client);
	proxy_stop(&proxy);
	server_stop(&server);
}
