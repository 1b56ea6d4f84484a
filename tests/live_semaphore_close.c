/* SPDX-License-Identifier: MIT
 * LDFLAGS: -Wl,--wrap=malloc
 * A close of a handle just as a wait on it begins, and the state that a handle keeps. */
#define STORE store_on_server

#include "stores/set_up.h"
#include "harness/permit_watch.h"

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

static void *wait_for_ever(void *wait)
{
	struct noun_wait *late = wait;
	uint64_t fence;

	hesitate = true;
	late->err = late->noun->acquire(late->handle, NOUN_ALONE, LK_FOREVER, &fence);
	return NULL;
}

static void *let_go(void *arg)
{
	(void)arg;
	nap_ms(200); /* the close has begun by now, and waits */
	sem_post(&go_on);
	return NULL;
}

TEST_NOUN(close_ends_a_wait_that_is_about_to_begin, 20, 0)
{
	lk_client *holder = set_up(), *client = client_at(url);
	struct noun_wait late = {.noun = noun, .handle = noun_named(noun, client, "a")};
	pthread_t helper;

	noun_hold(noun, noun_named(noun, holder, "a"), 0);
	sem_init(&allocating, 0, 0);
	sem_init(&go_on, 0, 0);
	ck_assert_int_eq(pthread_create(&late.thread, NULL, wait_for_ever, &late), 0);
	sem_wait(&allocating);
	ck_assert_int_eq(pthread_create(&helper, NULL, let_go, NULL), 0);
	OK(noun->close(late.handle));
	pthread_join(helper, NULL);
	pthread_join(late.thread, NULL);
	EXPECT(late.err, LK_ECANCELED);
	OK(lk_client_close(client));
	OK(lk_client_close(holder));
}

/* The store refuses a partial release for a while: the request is repeated soon, however long the
 * lease. */
TEST(partial_release_is_repeated_soon)
{
	const lk_client_options quick = {.command_timeout_ms = 300};
	const lk_semaphore_options options = {.capacity = 2, .lease_ms = 600000};
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	lk_client *client;
	uint64_t hold;

	OK(lk_client_close(set_up()));
	client = client_with(url, &quick);
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
}

/* A wait that was in progress at the resize finds the store emptied, and creates the semaphore with
 * the handle's present capacity. */
TEST(resize_concerns_waits_in_progress)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 2, 0);
	lk_semaphore_status status;
	struct permit_wait wait;
	uint64_t more;

	permits_of(semaphore, 2, 0);
	permit_wait_queue(&wait, redis, "a", semaphore, 1, true);
	/* Too small for the waiter. */
	OK(lk_semaphore_resize(semaphore, 1));
	redis_do(redis, "FLUSHALL");
	redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes"); /* the waiter asks at once */
	OK(permit_wait_join(&wait));
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(status.capacity, 1);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &more), LK_EBUSY);
	OK(lk_client_close(client));
}
