/* SPDX-License-Identifier: MIT
 * Clients: open, close, who we are; and the registry of this process' clients, which the end of a
 * thread and a fork concern. */
#include "client.h"

#include "net/fork.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTRODUCE_LIFE_MS 60000
#define INTRODUCE_EACH_NS (20000 * LK__MS)
#define LABELS_MAX 64 /* of handles, told to people */
#define MOMENT_NS (200 * LK__MS)

static pthread_mutex_t registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lk_client *registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

static _Thread_local int cancel_state; /* of the thread before it entered */

/* ---- The registry ------------------------------------------------------------------------- */

static void thread_ended(uint64_t serial)
{
	struct lk_client *client;

	pthread_mutex_lock(&registry_mutex);
	for (client = registry; client; client = client->next) {
		pthread_mutex_lock(&client->mutex);
		lk__core_thread_ended(&client->core, lk__now_ns(), serial * 2);
		lk__wire_settle(client);
		if (client->core.line)
			lk__wake_notify(&client->loop_wake);
		lk__client_unlock(client);
	}
	pthread_mutex_unlock(&registry_mutex);
}

static void before_fork(void)
{
	pthread_mutex_lock(&registry_mutex);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&registry_mutex);
}

/* The child has none of these clients. */
static void after_fork_in_child(void)
{
	registry = NULL;
	pthread_mutex_unlock(&registry_mutex);
}

static void registry_init(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	lk__thread_on_exit(thread_ended);
}

static void registry_add(struct lk_client *client)
{
	pthread_once(&registry_once, registry_init);
	pthread_mutex_lock(&registry_mutex);
	client->next = registry;
	if (registry)
		registry->prev = client;
	registry = client;
	pthread_mutex_unlock(&registry_mutex);
}

static void registry_remove(struct lk_client *client)
{
	pthread_mutex_lock(&registry_mutex);
	if (client->prev)
		client->prev->next = client->next;
	else
		registry = client->next;
	if (client->next)
		client->next->prev = client->prev;
	pthread_mutex_unlock(&registry_mutex);
}

/* ---- Calls -------------------------------------------------------------------------------- */

lk_err lk__client_enter(struct lk_client *client)
{
	if (client->fork_generation != lk__fork_generation())
		return lk__failf(LK_EFORKED,
		                 "this client belongs to the parent process: open another");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_mutex_lock(&client->mutex);
	if (client->core.closing) {
		lk__client_unlock(client);
		pthread_setcancelstate(cancel_state, NULL);
		return lk__failf(LK_ECLOSED, "the client is closed");
	}
	client->calls_inside++;
	return LK_OK;
}

void lk__client_leave(struct lk_client *client)
{
	client->calls_inside--;
	if (client->core.closing)
		pthread_cond_broadcast(&client->quiet_cond);
	lk__client_unlock(client);
	pthread_setcancelstate(cancel_state, NULL);
}

void lk__client_left(void)
{
	pthread_setcancelstate(cancel_state, NULL);
}

void lk__log(struct lk_client *client, lk_log_level level, const char *fmt, ...)
{
	char line[400];
	va_list args;

	if (!client->log || level > client->log_level)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	client->log(client->log_arg, level, line);
}

/* ---- Who we are --------------------------------------------------------------------------- */

/* A question for whichever label; with a name it is that one's. */
static struct lk__question *introduction(const struct lk__name *name, const char *label)
{
	struct lk__question *question =
		lk__question_new(LK__INTRODUCE, name ? (lk_kind)name->kind : LK_KIND_NONE,
	                         name ? name->bytes : NULL, name ? name->len : 0);

	if (!question)
		return NULL;
	question->details.life_ms = INTRODUCE_LIFE_MS;
	if (label)
		question->details.label = question->label = strdup(label);
	return question;
}

void lk__client_introduce(struct lk_client *client, int64_t now_ns)
{
	struct lk__question *question;
	struct lk__handle *handle;
	int labels = 0;

	if (now_ns < client->introduce_ns || !client->pair)
		return;
	client->introduce_ns = now_ns + INTRODUCE_EACH_NS;
	if ((question = introduction(NULL, client->label))) {
		question->details.host = client->host;
		question->details.user = client->user;
		question->details.program = client->program;
		question->details.pid = getpid();
	}
	lk__ask_detached(client, question);
	for (handle = client->handles; handle && labels < LABELS_MAX; handle = handle->next) {
		if (!handle->label)
			continue;
		labels++;
		lk__ask_detached(client, introduction(handle->name, handle->label));
	}
}

/* ---- Open --------------------------------------------------------------------------------- */

static bool init_parts(struct lk_client *client)
{
	unsigned char id[16];
	uint64_t seed;

	if (!lk__random(id, sizeof(id)) || !lk__random(&seed, sizeof(seed)))
		return false;
	lk__id128(client->id, id);
	client->store = lk__store_of(&client->target)->create(&client->target, client->id);
	if (!client->store)
		return false;
	/* Asked once, and here: a directory of users may take its time. */
	lk__host_name(client->host, sizeof(client->host));
	lk__user_name(client->user, sizeof(client->user));
	lk__program_name(client->program, sizeof(client->program));
	client->timer_fd = -1;
	if (!lk__core_init(&client->core, seed))
		return false;
	client->timer_fd = lk__timer_open();
	return lk__wake_init(&client->loop_wake) && lk__wake_init(&client->reader_wake) &&
	       lk__wake_init(&client->listener_wake) && lk__wake_init(&client->connect_cancel);
}

static void free_client(struct lk_client *client)
{
	if (client->pair) {
		client->pair->broken = true;
		lk__pair_leave(client->pair);
	}
	if (client->core.names.buckets)
		lk__core_fini(&client->core);
	lk__wake_fini(&client->loop_wake);
	lk__wake_fini(&client->reader_wake);
	lk__wake_fini(&client->listener_wake);
	lk__wake_fini(&client->connect_cancel);
	if (client->timer_fd >= 0)
		close(client->timer_fd);
	pthread_mutex_destroy(&client->mutex);
	pthread_cond_destroy(&client->notify_cond);
	pthread_cond_destroy(&client->quiet_cond);
	if (client->store)
		client->store->ops->destroy(client->store);
	lk__target_fini(&client->target);
	free(client->label);
	free(client);
}

static bool init_locks(struct lk_client *client)
{
	if (pthread_mutex_init(&client->mutex, NULL) != 0)
		return false;
	if (lk__cond_init(&client->notify_cond)) {
		if (lk__cond_init(&client->quiet_cond))
			return true;
		pthread_cond_destroy(&client->notify_cond);
	}
	pthread_mutex_destroy(&client->mutex);
	return false;
}

static struct lk_client *new_client(const lk_client_options *options)
{
	struct lk_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	if (!init_locks(client)) {
		free(client);
		return NULL;
	}
	client->timer_fd = -1;
	client->loop_wake = client->reader_wake = client->listener_wake = client->connect_cancel =
		(struct lk__wake){-1, -1};
	client->start_local = true;
	client->log_level = LK_LOG_WARN;
	client->fork_generation = lk__fork_generation();
	if (options) {
		client->log = options->log;
		client->log_arg = options->log_arg;
		if (options->log_level)
			client->log_level = options->log_level;
	}
	return client;
}

static lk_err open_client(const char *url, const lk_client_options *options, lk_client **result)
{
	struct lk_client *client = new_client(options);
	struct lk__pair *pair;
	struct lk__why why = {0};

	if (!client)
		return lk__failf(LK_ENOMEM, "out of memory");
	if (lk__target_parse(url, options, &client->target, &why)) {
		free_client(client);
		return lk__fail(&why);
	}
	lk__session_init(&client->session, client->target.connect_timeout_ns,
	                 client->target.command_timeout_ns);
	lk__session_dial(&client->session);
	if (options && options->label && !(client->label = strdup(options->label))) {
		lk__why_set(&why, LK_ENOMEM, "out of memory");
	} else if (!init_parts(client)) {
		lk__why_set(&why, LK_ESYSTEM,
		            "cannot set up a client: descriptors or memory are short");
	} else if (!lk__loop_dial(client, &pair, &why)) {
		lk__wire_up(client, pair);
		if (lk__loop_start(client)) {
			registry_add(client);
			*result = client;
			return LK_OK;
		}
		lk__why_set(&why, LK_ESYSTEM, "cannot start a thread");
	}
	free_client(client);
	return lk__fail(&why);
}

lk_err lk_client_open(const char *url, const lk_client_options *options, lk_client **result)
{
	int before;
	lk_err err = lk__refuse_null(result, "client");

	if (err)
		return err;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	err = open_client(url, options, result);
	pthread_setcancelstate(before, NULL);
	return err;
}

const char *lk_client_id(const lk_client *client)
{
	return client ? client->id : "";
}

lk_err lk_client_counters(lk_client *client, lk_counters *counters)
{
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(counters, "counters")))
		return err;
	if (client->fork_generation != lk__fork_generation())
		return lk__failf(LK_EFORKED, "this client belongs to the parent process");
	pthread_mutex_lock(&client->mutex);
	*counters = client->core.counters;
	lk__client_unlock(client);
	return LK_OK;
}

/* ---- Close -------------------------------------------------------------------------------- */

static void forget_introduction(struct lk_client *client)
{
	if (client->introduce_ns)
		lk__ask_detached(client, lk__question_new(LK__FORGET, LK_KIND_NONE, NULL, 0));
}

static bool is_quiet(const struct lk_client *client)
{
	return !client->calls_inside && !lk__core_busy(&client->core) &&
	       (!client->pair || (!client->pair->sent && !client->core.questions));
}

/* A hold, a place in a queue or a latch's step may be left in the store. */
static bool is_unconfirmed(const struct lk_client *client, int64_t began_ns)
{
	return lk__core_unconfirmed(&client->core, began_ns) || lk__core_stepping(&client->core);
}

/* Until when a close that began at began_ns waits for the store.  The client's own hash and the
 * leaves of lost holds are worth a moment at most, and only over a connection: the store forgets
 * both by itself. */
static int64_t drain_until_ns(const struct lk_client *client, int64_t began_ns, int64_t drain_ns)
{
	int64_t until_ns = began_ns + client->target.command_timeout_ns;
	int64_t moment_ns = client->pair ? drain_ns + MOMENT_NS : drain_ns;

	return is_unconfirmed(client, began_ns) || until_ns < moment_ns ? until_ns : moment_ns;
}

/* Let the callers out, and everything be said and confirmed. */
static void drain(struct lk_client *client, int64_t began_ns)
{
	const int64_t drain_ns = lk__now_ns();

	while (!is_quiet(client)) {
		int64_t deadline_ns = drain_until_ns(client, began_ns, drain_ns);
		struct lk__pair *pair;
		int64_t now_ns = lk__now_ns();

		if (now_ns >= deadline_ns && !client->calls_inside)
			break;
		lk__wire_flush(client);
		pair = client->pair;
		if (is_quiet(client))
			break;
		if (pair && pair->sent && !pair->reading && now_ns < deadline_ns)
			lk__wire_read(client, pair, NULL, deadline_ns);
		else
			lk__client_wait_quiet(client, deadline_ns > now_ns ? deadline_ns - now_ns
			                                                   : 100 * LK__MS);
	}
}

/* End all: waits with LK_ECLOSED, also one in a callback, which has to return before it is joined;
 * losses that were not told are nobody's to know any more. */
static void end_calls(struct lk_client *client)
{
	struct lk__hold *hold;

	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_told(hold);
	lk__core_close(&client->core, lk__now_ns());
	lk__wire_settle(client);
	lk__wire_poke(client, NULL);
	lk__wire_flush(client);
	lk__wake_notify(&client->loop_wake);
}

static lk_err close_client(struct lk_client *client)
{
	int64_t began_ns = lk__now_ns();
	bool left, steps_left;

	pthread_mutex_lock(&client->mutex);
	if (lk__notify_is_me(client)) {
		lk__client_unlock(client);
		return lk__failf(LK_EDEADLOCK, "a callback of the client cannot close it");
	}
	end_calls(client);
	lk__client_unlock(client);
	lk__notify_stop(client);
	registry_remove(client);

	pthread_mutex_lock(&client->mutex);
	forget_introduction(client);
	drain(client, began_ns);
	left = client->core.left_behind || lk__core_unconfirmed(&client->core, began_ns);
	steps_left = lk__core_stepping(&client->core);
	lk__client_unlock(client);

	lk__loop_stop(client);
	while (client->handles)
		lk__handle_free(client->handles);
	free_client(client);
	if (left)
		return lk__failf(LK_EUNKNOWN,
		                 "closed; a release was not confirmed and ends with its lease");
	if (steps_left)
		return lk__failf(LK_EUNKNOWN,
		                 "closed; a latch's step was not confirmed: it may have been "
		                 "counted");
	return LK_OK;
}

lk_err lk_client_close(lk_client *client)
{
	int before;
	lk_err err;

	if (!client)
		return LK_OK;
	if (client->fork_generation != lk__fork_generation())
		return lk__failf(LK_EFORKED, "this client belongs to the parent process");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	err = close_client(client);
	pthread_setcancelstate(before, NULL);
	return err;
}
