/* SPDX-License-Identifier: MIT
 * Following a master that sentinels name.  A thread for each sentinel, since each conversation
 * blocks: it connects, asks, and listens for changes.  Its reports go into the watch
 * (core/sentinel.h), under the client's mutex; they wake the thread that dials, and cut the link.
 *
 * The threads start with the first dial and end with the client.  A dial begins a round, in which
 * every sentinel is asked anew; so does a pause of the client (core/vouch.c).  Apart from that a
 * thread asks while the link has users, once a
 * second: a sentinel that does not respond is of no use, and its silence would look like peace. */
#include "client.h"

#include "net/tls.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_NS (1000 * LK__MS)
#define BACKOFF_FIRST_NS (100 * LK__MS)
#define BACKOFF_MAX_NS (5000 * LK__MS)
#define PAUSE_FIRST_NS (100 * LK__MS)
#define PAUSE_MAX_NS (1000 * LK__MS)

/* ---- Reports ------------------------------------------------------------------------------ */

/* Wake a thread, unless it dials: then its question follows anyway.  _locked */
static void nudge(struct lk__watcher *watcher)
{
	if (!watcher->dialing)
		lk__wake_notify(&watcher->wake);
}

void lk__sentinels_judge(struct lk__link *link)
{
	const struct lk__watch *watch = &link->client->sentinels->watch;
	struct lk__why why;

	if (!watch->is_cut)
		return;
	if (!link->connection) {
		lk__wake_notify(&link->dialer.cancel); /* of that master, or not taken yet */
		return;
	}
	lk__watch_cut_why(watch, &why);
	lk__link_broken(link, link->connection, &why);
}

void lk__sentinels_vouch(struct lk_client *client)
{
	struct lk__sentinels *sentinels = client->sentinels;
	const struct lk__vouch *vouch = &client->links[0]->session.vouch;

	if (!sentinels || !vouch->is_doubted || sentinels->pauses == vouch->pauses ||
	    !client->links[0]->connection)
		return; /* a dial asks by itself */
	sentinels->pauses = vouch->pauses;
	lk__watch_doubt(&sentinels->watch);
	for (unsigned i = 0; i < sentinels->count; i++)
		nudge(&sentinels->watchers[i]);
}

/* Are these answers still awaited?  _locked */
static bool is_doubted(const struct lk_client *client)
{
	const struct lk__link *link = client->links[0];

	return link->session.vouch.is_doubted && link->connection &&
	       client->sentinels->pauses == link->session.vouch.pauses;
}

/* Let the grants count that were kept since the pause, if the answers allow that.  _locked */
static void recheck(struct lk_client *client)
{
	struct lk__session *session = &client->links[0]->session;
	int64_t now_ns = lk__now_ns();
	enum lk__watch_advice advice;
	struct lk__why why;

	if (!is_doubted(client))
		return;
	advice = lk__watch_recheck(&client->sentinels->watch, now_ns);
	if (advice == LK__WATCH_DIAL) {
		lk__core_vouched(&client->core, session, now_ns);
	} else if (advice == LK__WATCH_FAIL) {
		lk__watch_doubt_why(&client->sentinels->watch, &why);
		lk__core_unvouched(&client->core, session, now_ns, &why);
	}
	if (lk__core_has_requests(&client->core))
		lk__wake_notify(&client->loop.wake);
}

/* Log the first and the last moment of a link without a sentinel: one thread at a time.  Releases
 * the mutex for the log hook.  _locked */
static void log_loneliness(struct lk_client *client)
{
	struct lk__sentinels *sentinels = client->sentinels;
	bool is_lonely;

	while (!sentinels->is_logging &&
	       sentinels->is_lonely != (sentinels->watch.alone_ns != LK__NEVER)) {
		/* Without a link, each dial has its own line. */
		if (!sentinels->is_lonely && !client->links[0]->connection)
			return;
		is_lonely = sentinels->is_lonely = !sentinels->is_lonely;
		sentinels->is_logging = true;
		lk__client_unlock(client);
		if (is_lonely)
			lk__log(client, LK_LOG_WARN,
			        "%s: no sentinel answers: a failover would go unseen",
			        client->target.text);
		else
			lk__log(client, LK_LOG_INFO, "%s: a sentinel answers again",
			        client->target.text);
		pthread_mutex_lock(&client->mutex);
		sentinels->is_logging = false;
	}
}

/* A report is in the watch.  Releases the mutex for the log hook.  _locked */
static void spread(struct lk__watcher *watcher)
{
	struct lk_client *client = watcher->client;
	struct lk__sentinels *sentinels = client->sentinels;
	struct lk__link *link = client->links[0];
	int64_t alone_ns = sentinels->watch.alone_ns;

	link->session.unwatched_ns =
		alone_ns == LK__NEVER ? LK__NEVER : alone_ns + link->session.grace_ms * LK__MS;
	lk__wake_notify(&sentinels->news);
	lk__sentinels_judge(link);
	recheck(client);
	lk__client_settle(client);
	log_loneliness(client);
}

/* The conversation has failed, or was not reached.  _locked */
static void report_failure(struct lk__watcher *watcher, const struct lk__why *why)
{
	struct lk_client *client = watcher->client;
	struct lk__sentinel_conn *conn = watcher->conn;
	int64_t now_ns = lk__now_ns();

	watcher->conn = NULL;
	watcher->asked_ns = LK__NEVER;
	watcher->backoff_ns = watcher->backoff_ns ? watcher->backoff_ns * 2 : BACKOFF_FIRST_NS;
	if (watcher->backoff_ns > BACKOFF_MAX_NS)
		watcher->backoff_ns = BACKOFF_MAX_NS;
	watcher->retry_ns = now_ns + watcher->backoff_ns;
	if (client->sentinels->stop)
		why = NULL; /* the conversation was cancelled */
	if (why) {
		lk__watch_failed(&client->sentinels->watch, (int)watcher->index,
		                 watcher->asked_round, now_ns, why);
		spread(watcher);
	}
	lk__client_unlock(client);
	if (conn)
		client->store->ops->sentinel_close(conn);
	pthread_mutex_lock(&client->mutex);
}

/* _locked */
static void report(struct lk__watcher *watcher, const struct lk__report *report)
{
	struct lk__watch *watch = &watcher->client->sentinels->watch;
	int index = (int)watcher->index;
	int64_t now_ns = lk__now_ns();

	/* What was read after a pause may have been sent before it. */
	lk__vouch_run(&watcher->client->links[0]->session, now_ns);
	lk__sentinels_vouch(watcher->client);
	watcher->heard_ns = now_ns;
	watcher->backoff_ns = 0;
	if (report->kind == LK__REPORT_CHANGED) {
		/* It may have been in the buffer for a while: it is no newer than that answer. */
		lk__watch_named(watch, index, watch->sentinels[index].round, now_ns,
		                &report->place);
	} else {
		watcher->asked_ns = LK__NEVER;
		if (report->kind == LK__REPORT_NAMED)
			lk__watch_named(watch, index, watcher->asked_round, now_ns, &report->place);
		else
			lk__watch_unaware(watch, index, watcher->asked_round, now_ns);
	}
	spread(watcher);
}

/* ---- A thread ----------------------------------------------------------------------------- */

/* Connect and ask.  Releases the mutex meanwhile.  _locked */
static void connect_and_ask(struct lk__watcher *watcher)
{
	struct lk_client *client = watcher->client;
	const struct lk__store_ops *ops = client->store->ops;
	int64_t deadline_ns = lk__now_ns() + client->target.connect_timeout_ns;
	struct lk__sentinel_conn *conn = NULL;
	struct lk__why why;
	lk_err err;

	watcher->asked_round = client->sentinels->watch.round;
	watcher->dialing = true;
	lk__client_unlock(client);
	err = ops->sentinel_open(client->store, watcher->index, deadline_ns, watcher->wake.read_fd,
	                         &conn, &why);
	if (!err)
		err = ops->sentinel_ask(conn, deadline_ns, watcher->wake.read_fd, &why);
	pthread_mutex_lock(&client->mutex);
	watcher->dialing = false;
	watcher->conn = conn;
	watcher->asked_ns = lk__now_ns();
	if (err)
		report_failure(watcher, &why);
}

/* Releases the mutex meanwhile.  _locked */
static void ask(struct lk__watcher *watcher)
{
	struct lk_client *client = watcher->client;
	int64_t deadline_ns = lk__now_ns() + client->target.command_timeout_ns;
	struct lk__why why;
	lk_err err;

	watcher->asked_round = client->sentinels->watch.round;
	watcher->asked_ns = lk__now_ns();
	lk__client_unlock(client);
	err = client->store->ops->sentinel_ask(watcher->conn, deadline_ns, -1, &why);
	pthread_mutex_lock(&client->mutex);
	if (err)
		report_failure(watcher, &why);
}

/* Wait for a report until deadline_ns or a nudge.  Releases the mutex meanwhile.  _locked */
static void listen(struct lk__watcher *watcher, int64_t deadline_ns)
{
	struct lk_client *client = watcher->client;
	struct lk__report received;
	struct lk__why why;
	lk_err err;

	lk__client_unlock(client);
	err = client->store->ops->sentinel_next(watcher->conn,
	                                        deadline_ns == LK__NEVER ? -1 : deadline_ns,
	                                        watcher->wake.read_fd, &received, &why);
	pthread_mutex_lock(&client->mutex);
	if (err)
		report_failure(watcher, &why);
	else if (received.kind != LK__REPORT_NONE)
		report(watcher, &received);
}

/* No answer in time.  _locked */
static void give_up(struct lk__watcher *watcher)
{
	struct lk__why why;

	lk__why_about(&why, LK_ECONN,
	              watcher->client->sentinels->watch.sentinels[watcher->index].text,
	              "no response in time");
	report_failure(watcher, &why);
}

/* When the thread must act without a report, by due_ns.  _locked */
static int64_t settled_ns(const struct lk_client *client, int64_t now_ns, int64_t due_ns)
{
	int64_t settled_ns = lk__watch_due(&client->sentinels->watch);

	return is_doubted(client) && settled_ns > now_ns && settled_ns < due_ns ? settled_ns
	                                                                        : due_ns;
}

/* What the thread does next.  Releases the mutex meanwhile.  _locked */
static void step(struct lk__watcher *watcher)
{
	struct lk_client *client = watcher->client;
	const struct lk__watch *watch = &client->sentinels->watch;
	int64_t now_ns = lk__now_ns(), due_ns;

	/* Under the mutex: whatever woke the thread is in the state that it reads now. */
	lk__wake_drain(&watcher->wake);
	watcher->is_idle = !client->links[0]->session.users;
	if (is_doubted(client)) {
		recheck(client);
		lk__client_settle(client);
	}
	if (!watcher->conn) {
		if (watcher->asked_round != watch->round || watcher->retry_ns <= now_ns) {
			connect_and_ask(watcher);
			return;
		}
		lk__client_unlock(client);
		lk__poll2(watcher->wake.read_fd, POLLIN, -1, watcher->retry_ns);
		pthread_mutex_lock(&client->mutex);
		return;
	}
	if (watcher->asked_ns != LK__NEVER)
		due_ns = watcher->asked_ns + client->target.command_timeout_ns;
	else if (watcher->asked_round != watch->round)
		due_ns = now_ns;
	else
		due_ns = watcher->is_idle ? LK__NEVER : watcher->heard_ns + CHECK_NS;
	if (due_ns > now_ns)
		listen(watcher, settled_ns(client, now_ns, due_ns));
	else if (watcher->asked_ns != LK__NEVER)
		give_up(watcher);
	else
		ask(watcher);
}

static void *run(void *arg)
{
	struct lk__watcher *watcher = arg;
	struct lk_client *client = watcher->client;

	pthread_mutex_lock(&client->mutex);
	while (!client->sentinels->stop)
		step(watcher);
	lk__client_unlock(client);
	if (watcher->conn)
		client->store->ops->sentinel_close(watcher->conn);
	if (client->target.tls)
		lk__tls_end_thread();
	return NULL;
}

void lk__sentinels_mind(struct lk_client *client)
{
	struct lk__sentinels *sentinels = client->sentinels;

	if (!client->links[0]->session.users)
		return;
	for (unsigned i = 0; i < sentinels->count; i++)
		if (sentinels->watchers[i].is_idle) {
			sentinels->watchers[i].is_idle = false;
			nudge(&sentinels->watchers[i]);
		}
}

/* ---- The dial ----------------------------------------------------------------------------- */

/* Start the threads that do not run.  False if none does then.  _locked */
static bool start_threads(struct lk_client *client)
{
	struct lk__sentinels *sentinels = client->sentinels;
	bool any = false;

	for (unsigned i = 0; i < sentinels->count; i++) {
		struct lk__watcher *watcher = &sentinels->watchers[i];
		if (!watcher->running)
			watcher->running =
				lk__thread_start(&watcher->thread, "lk-sentinel", run, watcher);
		any = any || watcher->running;
	}
	return any;
}

/* Begin a round.  False if the client ends.  _locked */
static bool begin_round(struct lk__link *link)
{
	struct lk_client *client = link->client;
	struct lk__sentinels *sentinels = client->sentinels;

	/* A cut has woken the dial; so does the end, which must not be forgotten. */
	if (client->loop.stop)
		return false;
	lk__wake_drain(&link->dialer.cancel);
	lk__watch_begin(&sentinels->watch);
	lk__vouch_begin(&link->session, lk__now_ns());
	for (unsigned i = 0; i < sentinels->count; i++)
		nudge(&sentinels->watchers[i]);
	return true;
}

/* Wait until the watch advises something.  Releases the mutex meanwhile.  _locked */
static lk_err await_advice(struct lk__link *link, int64_t deadline_ns, struct lk__why *why)
{
	struct lk_client *client = link->client;
	struct lk__sentinels *sentinels = client->sentinels;
	const int cancel_fd = link->dialer.cancel.read_fd;

	for (;;) {
		int64_t now_ns = lk__now_ns(), due_ns;
		enum lk__watch_advice advice;
		int ready;
		lk__wake_drain(&sentinels->news);
		advice = lk__watch_advise(&sentinels->watch, now_ns);
		if (advice == LK__WATCH_DIAL)
			return LK_OK;
		if (advice == LK__WATCH_FAIL || now_ns >= deadline_ns)
			return lk__watch_why(&sentinels->watch, why);
		due_ns = lk__watch_due(&sentinels->watch);
		/* Due already: then it waits for a report. */
		if (due_ns > deadline_ns || due_ns <= now_ns)
			due_ns = deadline_ns;
		lk__client_unlock(client);
		ready = lk__poll2(sentinels->news.read_fd, POLLIN, cancel_fd, due_ns);
		pthread_mutex_lock(&client->mutex);
		if (ready & 2)
			return lk__why_about(why, LK_ECONN, client->target.text, "canceled");
	}
}

/* Let the program translate the address. */
static lk_err resolve(const struct lk__sentinels *sentinels, const char *service,
                      struct lk__place *place, struct lk__why *why)
{
	struct lk__place named = *place;

	if (!sentinels->resolve)
		return LK_OK;
	if (sentinels->resolve(sentinels->resolve_arg, named.host, named.port, place->host,
	                       &place->port) == 0 &&
	    memchr(place->host, 0, sizeof(place->host)) && place->host[0] && place->port >= 1 &&
	    place->port <= 65535)
		return LK_OK;
	return lk__why_about(why, LK_ECONN, service, "the resolve function has no address for %s",
	                     named.host);
}

lk_err lk__sentinels_choose(struct lk__link *link, int64_t deadline_ns, struct lk__target *target,
                            struct lk__place *place, struct lk__why *why)
{
	struct lk_client *client = link->client;
	struct lk__sentinels *sentinels = client->sentinels;
	lk_err err;

	pthread_mutex_lock(&client->mutex);
	if (!start_threads(client))
		err = lk__why_set(why, LK_ESYSTEM, "cannot start a thread");
	else if (!begin_round(link))
		err = lk__why_about(why, LK_ECONN, client->target.text, "canceled");
	else
		err = await_advice(link, deadline_ns, why);
	*place = sentinels->watch.place;
	lk__client_unlock(client);
	if (!err)
		err = resolve(sentinels, client->target.text, place, why);
	if (!err)
		lk__target_aim(target, place->host, place->port);
	return err;
}

bool lk__sentinels_disagree(struct lk_client *client)
{
	bool is_cut;

	pthread_mutex_lock(&client->mutex);
	is_cut = client->sentinels->watch.is_cut;
	lk__client_unlock(client);
	return is_cut;
}

bool lk__sentinels_dial_again(struct lk__link *link, lk_err err, int64_t deadline_ns,
                              int64_t *pause_ns, struct lk__why *why)
{
	struct lk_client *client = link->client;
	const struct lk__sentinel *witness;
	struct lk__why said = *why;
	int64_t resume_ns;
	bool again;

	*pause_ns = *pause_ns ? *pause_ns * 2 : PAUSE_FIRST_NS;
	if (*pause_ns > PAUSE_MAX_NS)
		*pause_ns = PAUSE_MAX_NS;
	resume_ns = lk__now_ns() + *pause_ns;
	again = err == LK_ECONN && resume_ns < deadline_ns;
	/* The cancellation also ends the pause: of a master that is none any more. */
	if (again)
		lk__poll2(link->dialer.cancel.read_fd, POLLIN, -1, resume_ns);
	pthread_mutex_lock(&client->mutex);
	again = again && !client->loop.stop;
	witness = lk__watch_witness(&client->sentinels->watch);
	if (!again && err == LK_ECONN && witness)
		lk__why_set(why, err, "%s; sentinel %s names it", said.text, witness->text);
	lk__client_unlock(client);
	return again;
}

/* ---- Life --------------------------------------------------------------------------------- */

bool lk__sentinels_init(struct lk_client *client, const lk_client_options *options)
{
	const struct lk__target *target = &client->target;
	unsigned count = (unsigned)target->sentinel_count;
	struct lk__sentinels *sentinels =
		calloc(1, sizeof(*sentinels) + count * sizeof(sentinels->watchers[0]));
	bool whole = sentinels && lk__wake_init(&sentinels->news);

	if (!whole) {
		free(sentinels);
		return false;
	}
	lk__watch_init(&sentinels->watch, target->text, (int)count, lk__now_ns());
	sentinels->count = count;
	if (options) {
		sentinels->resolve = options->resolve;
		sentinels->resolve_arg = options->resolve_arg;
	}
	for (unsigned i = 0; i < count; i++) {
		struct lk__watcher *watcher = &sentinels->watchers[i];
		struct lk__endpoint *endpoint = &target->sentinels[i];
		lk__place_write(sentinels->watch.sentinels[i].text,
		                sizeof(sentinels->watch.sentinels[i].text), endpoint->host,
		                endpoint->port);
		*watcher = (struct lk__watcher){
			.client = client, .index = i, .asked_ns = LK__NEVER, .wake = {-1, -1}};
	}
	client->sentinels = sentinels;
	for (unsigned i = 0; i < count && whole; i++)
		whole = lk__wake_init(&sentinels->watchers[i].wake);
	return whole;
}

void lk__sentinels_fini(struct lk_client *client)
{
	struct lk__sentinels *sentinels = client->sentinels;

	pthread_mutex_lock(&client->mutex);
	sentinels->stop = true;
	lk__client_unlock(client);
	for (unsigned i = 0; i < sentinels->count; i++) {
		struct lk__watcher *watcher = &sentinels->watchers[i];
		if (watcher->running) {
			lk__wake_notify(&watcher->wake);
			pthread_join(watcher->thread, NULL);
		}
		lk__wake_fini(&watcher->wake);
	}
	lk__wake_fini(&sentinels->news);
	client->sentinels = NULL;
	free(sentinels);
}
