/* SPDX-License-Identifier: MIT
 * The clients of this process, for the end of a thread and for fork(). */
#include "client.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* locked before any client's */
static struct lk_client *registry;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ended(uint64_t serial)
{
	struct lk_client *client;

	pthread_mutex_lock(&mutex);
	for (client = registry; client; client = client->next) {
		pthread_mutex_lock(&client->mutex);
		lk__core_thread_ended(&client->core, lk__now_ns(), serial * 2);
		lk__client_settle(client);
		if (lk__core_has_requests(&client->core))
			lk__wake_notify(&client->loop.wake);
		lk__client_unlock(client);
	}
	pthread_mutex_unlock(&mutex);
}

static void before_fork(void)
{
	pthread_mutex_lock(&mutex);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&mutex);
}

/* The child has none of these clients. */
static void after_fork_in_child(void)
{
	registry = NULL;
	pthread_mutex_unlock(&mutex);
}

static void init(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	lk__thread_on_exit(thread_ended);
}

void lk__registry_add(struct lk_client *client)
{
	pthread_once(&once, init);
	pthread_mutex_lock(&mutex);
	client->next = registry;
	if (registry)
		registry->prev = client;
	registry = client;
	pthread_mutex_unlock(&mutex);
}

void lk__registry_remove(struct lk_client *client)
{
	pthread_mutex_lock(&mutex);
	if (client->prev)
		client->prev->next = client->next;
	else
		registry = client->next;
	if (client->next)
		client->next->prev = client->prev;
	pthread_mutex_unlock(&mutex);
}
