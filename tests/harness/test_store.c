/* SPDX-License-Identifier: MIT
 * The stores for the tests in tests/stores. */
#include "test_store.h"

#include "lua_seam.h"
#include "server.h"

#include <stddef.h>

#define UNREACHABLE_URL "redis://127.0.0.1:1" /* host and port have no meaning for a store here */

static struct test_server server;

static const char *start_server(void)
{
	server_start(&server, NULL);
	return server.url;
}

static struct redis *look_at_server(void)
{
	return redis_open(&server);
}

static long long count_requests(struct redis *redis)
{
	long long requests = redis_script_calls(redis);

	redis_close(redis);
	return requests;
}

static long long requests_of_server(void)
{
	return count_requests(look_at_server());
}

const struct test_store store_on_server = {start_server, look_at_server, requests_of_server};

static const char *start_lua(void)
{
	lua_seam_use(1);
	return UNREACHABLE_URL;
}

static struct redis *look_at_lua(void)
{
	return redis_open_in_process(lua_seam_run);
}

static long long requests_of_lua(void)
{
	return count_requests(look_at_lua());
}

const struct test_store store_in_lua = {start_lua, look_at_lua, requests_of_lua};
