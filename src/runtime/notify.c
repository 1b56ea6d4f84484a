/* SPDX-License-Identifier: MIT
 * The thread that tells of losses.  Its own, so that a callback that blocks delays no renewal; made
 * with the first lock that has a callback. */
#include "client.h"

static void tell(struct lk__handle *handle, uint64_t fence, lk_lost_reason reason)
{
	struct lk_lock *lock = (struct lk_lock *)handle;
	struct lk_semaphore *semaphore = (struct lk_semaphore *)handle;

	if (handle->kind == LK_KIND_LOCK)
		lock->on_lost(lock->on_lost_arg, lock, fence, reason);
	else
		semaphore->on_lost(semaphore->on_lost_arg, semaphore, fence, reason);
}

static void *run(void *arg)
{
	struct lk_client *client = arg;
	struct lk__hold *hold;

	pthread_mutex_lock(&client->mutex);
	while (!client->notifier_stop) {
		struct lk__handle *handle;
		uint64_t fence;
		lk_lost_reason reason;

		hold = lk__core_next_lost(&client->core);
		if (!hold) {
			lk__cond_wait(&client->notify_cond, &client->mutex, -1);
			continue;
		}
		handle = hold->handle;
		fence = hold->fence;
		reason = (lk_lost_reason)hold->lost;
		client->telling = handle;
		pthread_mutex_unlock(&client->mutex);
		tell(handle, fence, reason);
		pthread_mutex_lock(&client->mutex);
		client->telling = NULL;
		lk__core_told(hold);
		pthread_cond_broadcast(&client->quiet_cond);
	}
	pthread_mutex_unlock(&client->mutex);
	return NULL;
}

bool lk__notify_start(struct lk_client *client)
{
	if (!client->notifying)
		client->notifying = lk__thread_start(&client->notifier, "lk-notify", run, client);
	return client->notifying;
}

void lk__notify_stop(struct lk_client *client)
{
	bool notifying;

	pthread_mutex_lock(&client->mutex);
	client->notifier_stop = true;
	notifying = client->notifying;
	pthread_cond_signal(&client->notify_cond);
	pthread_mutex_unlock(&client->mutex);
	if (notifying)
		pthread_join(client->notifier, NULL);
}

bool lk__notify_is_me(const struct lk_client *client)
{
	/* The loop runs the program's code, too: its log hook. */
	return pthread_equal(client->loop, pthread_self()) ||
	       (client->notifying && pthread_equal(client->notifier, pthread_self()));
}
