/* SPDX-License-Identifier: MIT
 * LDFLAGS: -Wl,--wrap=malloc
 * A close of a handle just as a wait on it begins, and the state that a handle keeps. */
#include "handles.h"
#include "process.h"
#include "redis.h"
#include "server.h"
#include "test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static _Thread_local bool hesitate; /* this thread's next malloc() blocks */
static sem_t allocating, go_on;

void *__wrap_malloc(size_t size)
{
	if (hesitate) {
		hesitate = false;
		sem_post(&allocating);
		sem_wait(&go_on);
	}
	return __real_malloc(size);
}

struct late {
	pthread_t thread;
	lk_lock *lock;
	lk_semaphore *semaphore;
	lk_err err;
};

static void *wait_for_ever(void *arg)
{
	struct late *late = arg;
	uint64_t hold;

	hesitate = true;
	late->err = late->lock ? lk_lock_acquire(late->lock, LK_FOREVER, NULL)
	                       : lk_semaphore_acquire(late->semaphore, 1, LK_FOREVER, &hold);
	return NULL;
}

static void *let_go(void *arg)
{
	(void)arg;
	nap_ms(200); /* the close has begun by now, and waits */
	sem_post(&go_on);
	return NULL;
}

static void begin_waiting(struct late *late)
{
	sem_init(&allocating, 0, 0);
	sem_init(&go_on, 0, 0);
	ck_assert_int_eq(pthread_create(&late->thread, NULL, wait_for_ever, late), 0);
	sem_wait(&allocating);
}

TEST(close_ends_a_wait_that_is_about_to_begin)
{
	struct test_server server;
	lk_client *holder, *client;
	struct late late = {0};
	lk_semaphore *semaphore;
	pthread_t helper;
	uint64_t hold;
	lk_lock *lock;

	server_start(&server, NULL);
	holder = client_at(server.url);
	client = client_at(server.url);
	lock = lock_named(holder, "lock");
	semaphore = semaphore_of(holder, "semaphore", 1, 0);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_semaphore_acquire(semaphore, 1, 0, &hold));

	late.lock = lock_named(client, "lock");
	begin_waiting(&late);
	ck_assert_int_eq(pthread_create(&helper, NULL, let_go, NULL), 0);
	OK(lk_lock_close(late.lock));
	pthread_join(helper, NULL);
	pthread_join(late.thread, NULL);
	ck_assert_int_eq(late.err, LK_ECANCELED);

	late = (struct late){.semaphore = semaphore_of(client, "semaphore", 1, 0)};
	begin_waiting(&late);
	ck_assert_int_eq(pthread_create(&helper, NULL, let_go, NULL), 0);
	OK(lk_semaphore_close(late.semaphore));
	pthread_join(helper, NULL);
	pthread_join(late.thread, NULL);
	ck_assert_int_eq(late.err, LK_ECANCELED);
	OK(lk_client_close(client));
	OK(lk_client_close(holder));
	server_stop(&server);
}

/* The store refuses a partial release for a while: the request is repeated soon, however long the
 * lease. */
TEST(partial_release_is_repeated_soon)
{
	const lk_client_options quick = {.command_timeout_ms = 300};
	const lk_semaphore_options options = {.capacity = 2, .lease_ms = 600000};
	struct test_server server;
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	struct redis *redis;
	lk_client *client;
	uint64_t hold;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_with(server.url, &quick);
	semaphore = semaphore_with(client, "s", &options);
	OK(lk_semaphore_acquire(semaphore, 2, 0, &hold));
	redis_do(redis, "CONFIG SET min-replicas-to-write 1");
	EXPECT(lk_semaphore_release_some(semaphore, hold, 1), LK_EUNKNOWN);
	ck_assert_int_eq(hold_in(semaphore, hold).count, 1);
	redis_do(redis, "CONFIG SET min-replicas-to-write 0");
	ck_assert(WITHIN(
		3000, (lk_semaphore_query(semaphore, &status) == LK_OK && status.available == 1)));
	OK(lk_semaphore_release(semaphore, hold));
	OK(lk_client_close(client));
	redis_close(redis);
	server_stop(&server);
}

static void *acquire_one(void *arg)
{
	struct late *late = arg;
	uint64_t hold;

	late->err = lk_semaphore_acquire(late->semaphore, 1, 20000, &hold);
	return NULL;
}

/* A wait that was in progress at the resize finds the store emptied, and creates the semaphore with
 * the handle's present capacity. */
TEST(resize_concerns_waits_in_progress)
{
	struct test_server server;
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	struct late late = {0};
	struct redis *redis;
	lk_client *client;
	uint64_t hold, more;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	semaphore = semaphore_of(client, "s", 2, 0);
	OK(lk_semaphore_acquire(semaphore, 2, 0, &hold));
	late.semaphore = semaphore;
	ck_assert_int_eq(pthread_create(&late.thread, NULL, acquire_one, &late), 0);
	ck_assert(WITHIN(5000, redis_int(redis, "ZCARD lk:{s}:q") == 1));
	/* Too small for the waiter. */
	OK(lk_semaphore_resize(semaphore, 1));
	redis_do(redis, "FLUSHALL");
	redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes"); /* the waiter asks at once */
	pthread_join(late.thread, NULL);
	ck_assert_int_eq(late.err, LK_OK);
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.capacity, 1);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &more), LK_EBUSY);
	OK(lk_client_close(client));
	redis_close(redis);
	server_stop(&server);
}
