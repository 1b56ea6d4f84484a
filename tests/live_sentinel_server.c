/* SPDX-License-Identifier: MIT
 * A client of Sentinel says which server it uses: lk_client_server(), and the texts of queries. */
#include "harness/fake_sentinel.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

static struct fake_sentinel sentinel;
static struct test_server one, two; /* one is named first */

static lk_client *open_client(void)
{
	const lk_client_options options = {.command_timeout_ms = 1000};
	char url[100];

	server_start(&one, NULL);
	server_start(&two, NULL);
	fake_sentinel_start(&sentinel, 0, one.port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/s?grace=100", sentinel.port);
	return client_with(url, &options);
}

static bool is_at(lk_client *client, const struct test_server *wanted)
{
	char address[40];
	lk_server server;

	snprintf(address, sizeof(address), "127.0.0.1:%d", wanted->port);
	return lk_client_server(client, &server) == LK_OK && !strcmp(server.service, "s") &&
	       !strcmp(server.address, address);
}

TEST(client_names_the_master_that_it_follows)
{
	lk_client *client = open_client();
	lk_server server;

	ck_assert(is_at(client, &one));
	fake_sentinel_switch(&sentinel, "127.0.0.1", two.port);
	ck_assert(WITHIN(5000, is_at(client, &two)));
	fake_sentinel_stop(&sentinel);
	server_stop(&two);
	ck_assert(WITHIN(5000, lk_client_server(client, &server) == LK_ECONN));
	ck_assert_str_eq(lk_errmsg(), "s: not connected");
	OK(lk_client_close(client));
	server_stop(&one);
}

TEST(client_of_one_server_names_no_service)
{
	lk_server server;
	lk_client *client;
	char address[40];

	server_start(&one, NULL);
	client = client_at(one.url);
	OK(lk_client_server(client, &server));
	snprintf(address, sizeof(address), "127.0.0.1:%d", one.port);
	ck_assert_str_eq(server.service, "");
	ck_assert_str_eq(server.address, address);
	OK(lk_client_close(client));
	server_stop(&one);
}

TEST(texts_of_queries_name_the_master)
{
	lk_client *client = open_client();
	lk_lock *lock = lock_named(client, "a");
	lk_lock_status status;
	char wanted[100];

	server_pause(&one);
	EXPECT(lk_lock_query(lock, &status), LK_EUNKNOWN);
	snprintf(wanted, sizeof(wanted), "s at 127.0.0.1:%d: no response", one.port);
	ck_assert_msg(strstr(lk_errmsg(), wanted) == lk_errmsg(), "%s", lk_errmsg());
	OK(lk_client_close(client));
	fake_sentinel_stop(&sentinel);
	server_stop(&one);
	server_stop(&two);
}
