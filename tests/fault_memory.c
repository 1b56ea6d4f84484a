/* SPDX-License-Identifier: MIT
 * No memory and no threads (C20, C21 of the fault list): the n-th request for either fails, for
 * every n that the library reaches.  hiredis' reader is linked statically, so that its requests
 * count, too.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=pthread_create
 * LDFLAGS: -Wl,-u,redisReaderCreateWithFunctions -l:libhiredis.a
 */
#include "harness/handles.h"
#include "harness/server.h"
#include "harness/short_memory.h"
#include "harness/test.h"

#include <errno.h>
#include <pthread.h>

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);

static struct shortage threads;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
	return shortage_strikes(&threads) ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}

static struct test_server server;

TEST_LIMIT(c20_every_failing_allocation_is_an_error_and_nothing_more, 120)
{
	server_start(&server, NULL);
	memory.step = 5;
	shortage_everywhere(&server, server.url, &memory, 30);
}

TEST_LIMIT(c20_failing_allocations_on_a_unix_socket, 120)
{
	server_start(&server, NULL);
	shortage_everywhere(&server, server.unix_url, &memory, 30);
}

TEST_LIMIT(c20_memory_that_is_gone_for_good_is_an_error_and_nothing_more, 120)
{
	server_start(&server, NULL);
	memory.for_good = true;
	memory.step = 11;
	shortage_everywhere(&server, server.unix_url, &memory, 30);
}

TEST(c21_every_thread_that_cannot_start_is_an_error_and_nothing_more)
{
	lk_client *client = NULL;

	server_start(&server, NULL);
	threads.left = 1;
	EXPECT(lk_client_open(server.unix_url, NULL, &client), LK_ESYSTEM);
	ck_assert_ptr_null(client);
	shortage_everywhere(&server, server.url, &threads, 2);
}
