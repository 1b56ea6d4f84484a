/* SPDX-License-Identifier: MIT
 * The thread that reports losses, and logs news of the servers' memories.  Separate, so that a
 * callback that blocks delays no renewal; started for the first handle that has a callback, or for
 * the first news. */
#include "client.h"

static void call_back(struct lk__handle *handle, uint64_t fence, lk_lost_reason reason)
{
	struct lk_lock *lock = (struct lk_lock *)handle;
	struct lk_semaphore *semaphore = (struct lk_semaphore *)handle;

	if (handle->kind == LK_KIND_LOCK)
		lock->on_lost(lock->on_lost_arg, lock, fence, reason);
	else
		semaphore->on_lost(semaphore->on_lost_arg, semaphore, fence, reason);
}

/* Write log lines until there is a loss to report, and wait if there is nothing to do.  Releases
 * the mutex meanwhile.  _locked */
static void wait_for_work(struct lk_client *client)
{
	int64_t now_ns = lk__now_ns(), due_ns = lk__news_log(client, now_ns);

	if (client->callbacks.stop || due_ns <= now_ns || client->core.lost ||
	    client->core.has_news)
		return;
	lk__cond_wait(&client->callbacks.work, &client->mutex,
	              due_ns == LK__NEVER ? -1 : due_ns - now_ns);
}

static void *run(void *arg)
{
	struct lk_client *client = arg;
	struct lk__hold *hold;

	pthread_mutex_lock(&client->mutex);
	while (!client->callbacks.stop) {
		struct lk__handle *handle;
		uint64_t fence;
		lk_lost_reason reason;

		hold = lk__core_next_lost(&client->core);
		if (!hold) {
			wait_for_work(client);
			continue;
		}
		handle = hold->handle;
		fence = hold->fence;
		reason = (lk_lost_reason)hold->lost;
		client->callbacks.reported = handle;
		pthread_mutex_unlock(&client->mutex);
		call_back(handle, fence, reason);
		pthread_mutex_lock(&client->mutex);
		client->callbacks.reported = NULL;
		lk__core_loss_reported(hold);
		pthread_cond_broadcast(&client->quiet_cond);
	}
	pthread_mutex_unlock(&client->mutex);
	return NULL;
}

bool lk__callbacks_start(struct lk_client *client)
{
	if (!client->callbacks.running)
		client->callbacks.running =
			lk__thread_start(&client->callbacks.thread, "lk-notify", run, client);
	return client->callbacks.running;
}

void lk__callbacks_stop(struct lk_client *client)
{
	bool notifying;

	pthread_mutex_lock(&client->mutex);
	client->callbacks.stop = true;
	notifying = client->callbacks.running;
	pthread_cond_signal(&client->callbacks.work);
	pthread_mutex_unlock(&client->mutex);
	if (notifying)
		pthread_join(client->callbacks.thread, NULL);
}

bool lk__callbacks_is_me(const struct lk_client *client)
{
	const pthread_t me = pthread_self();

	if (client->callbacks.running && pthread_equal(client->callbacks.thread, me))
		return true;
	/* A thread that dials runs the log hook, too. */
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__dialer *dialer = &client->links[i]->dialer;
		if (dialer->running && pthread_equal(dialer->thread, me))
			return true;
	}
	return false;
}
