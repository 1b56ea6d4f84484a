/* SPDX-License-Identifier: MIT
 * The stores for the tests in tests/stores. */
#include "test_store.h"

#include "lua_seam.h"
#include "server.h"

#include <stddef.h>

#define UNREACHABLE_URL                                                                            \
	"redis://127.0.0.1:1?grace=0" /* host and port have no meaning for a store here */

struct test_server test_store_server;

static const char *start_server(void)
{
	server_start(&test_store_server, NULL);
	return test_store_server.url;
}

static void restart_server(void)
{
	server_restart(&test_store_server);
}

static void pause_server(bool on)
{
	(on ? server_pause : server_resume)(&test_store_server);
}

static struct redis *look_at_server(void)
{
	return redis_open(&test_store_server);
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

const struct test_store store_on_server = {
	.has = STORE_OF_SERVER,
	.start = start_server,
	.restart = restart_server,
	.pause = pause_server,
	.look = look_at_server,
	.requests = requests_of_server,
};

static const char *start_in_process(void)
{
	lua_seam_use(1);
	return UNREACHABLE_URL;
}

static void pause_in_process(bool on)
{
	lua_seam_black_hole(0, on);
}

static struct redis *look_in_process(void)
{
	return redis_open_in_process(lua_seam_run);
}

static long long requests_in_process(void)
{
	return count_requests(look_in_process());
}

const struct test_store store_in_process = {
	.has = STORE_OF_SERVER & ~STORE_SHARED,
	.start = start_in_process,
	.restart = lua_seam_restart,
	.pause = pause_in_process,
	.look = look_in_process,
	.requests = requests_in_process,
};
