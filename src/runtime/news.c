/* SPDX-License-Identifier: MIT
 * Log lines about the servers' memories: losses, graces, holds that were taken back; and about
 * renewals that are refused.  The thread
 * that runs callbacks writes them: a loss may be found while the link is up, in any thread, and
 * none of those may wait for the program's log function. */
#include "client.h"

#include "base/text.h"

#define TOGETHER_NS (500 * LK__MS) /* holds that are taken back within this time share a line */

#define CURE "if nothing can be held: latchkey grace end, or grace=0 in the URL"

/* What happened to the memory that the link knew. */
static const char *what_happened(enum lk__found found)
{
	switch (found) {
	case LK__FOUND_PROMOTED:
		return "it was a replica";
	case LK__FOUND_EMPTY:
		return "its keys were deleted, or its clock was set back";
	default:
		return "it was restarted, or is another one";
	}
}

/* How long the server grants nothing, from the time when the marker was read. */
static int64_t grace_left_ms(const struct lk__link *link)
{
	const struct lk__epoch *epoch = &link->session.epoch;
	bool is_member = lk__client_is_quorum(link->client);

	return lk__grace_left_ms(epoch, epoch->read_us,
	                         is_member ? epoch->longest_ms : link->client->target.grace_ms);
}

/* The same for a server of a quorum.  Releases the mutex meanwhile.  _locked */
static void log_member(struct lk__link *link, enum lk__found found)
{
	struct lk_client *client = link->client;
	int64_t left_ms = grace_left_ms(link);
	char left[LK__SECONDS_SIZE], text[LK__PLACE_SIZE];
	const char *server = lk__link_text(link, text);

	lk__client_unlock(client);
	if (left_ms)
		lk__log(client, found == LK__FOUND_FIRST ? LK_LOG_INFO : LK_LOG_WARN,
		        "%s: the server may have forgotten a holder: it does not vote for %s s",
		        server, lk__seconds(left, left_ms));
	pthread_mutex_lock(&client->mutex);
}

/* Write the line about a memory.  Releases the mutex meanwhile.  _locked */
static void log_memory(struct lk__link *link, enum lk__found found)
{
	struct lk_client *client = link->client;
	const struct lk__epoch epoch = link->session.epoch;
	char left[LK__SECONDS_SIZE], age[LK__SECONDS_SIZE], text[LK__PLACE_SIZE];
	const char *server = lk__link_text(link, text);
	int64_t grace_ms = grace_left_ms(link);

	lk__client_unlock(client);
	if (found == LK__FOUND_ENDED)
		lk__log(client, LK_LOG_INFO, "%s: the grace was ended by hand", server);
	else if (found == LK__FOUND_FIRST && grace_ms)
		lk__log(client, LK_LOG_INFO,
		        "%s: the server's memory began %s s ago, and it may have forgotten a "
		        "holder: nothing is granted for %s s (" CURE ")",
		        server, lk__seconds(age, (epoch.read_us - epoch.since_us) / 1000),
		        lk__seconds(left, grace_ms));
	else if (found != LK__FOUND_FIRST && grace_ms)
		lk__log(client, LK_LOG_WARN,
		        "%s: the server has lost its memory (%s) and may have forgotten a holder: "
		        "nothing is granted for %s s (" CURE ")",
		        server, what_happened(found), lk__seconds(left, grace_ms));
	else if (found != LK__FOUND_FIRST && (epoch.since_us || !client->target.local))
		lk__log(client, LK_LOG_WARN,
		        "%s: the server has lost its memory (%s), and there is no grace: holders "
		        "that it has forgotten have lost their holds",
		        server, what_happened(found));
	pthread_mutex_lock(&client->mutex);
}

/* Releases the mutex meanwhile.  _locked */
static void log_partial(struct lk__link *link)
{
	struct lk_client *client = link->client;
	char text[LK__PLACE_SIZE];
	const char *server = lk__link_text(link, text);

	client->partial_logged = true;
	lk__client_unlock(client);
	lk__log(client, LK_LOG_WARN,
	        "%s: this user may not run INFO: a server that has lost a part of its memory is "
	        "not "
	        "noticed (ACL SETUSER: +info)",
	        server);
	pthread_mutex_lock(&client->mutex);
}

/* Releases the mutex meanwhile.  _locked */
static void log_lease(struct lk_client *client)
{
	char lease[LK__SECONDS_SIZE], grace[LK__SECONDS_SIZE];

	lk__seconds(lease, client->long_lease_ms);
	lk__seconds(grace, client->target.grace_ms);
	client->long_lease_ms = 0;
	client->long_lease_logged = true;
	lk__client_unlock(client);
	lk__log(client, LK_LOG_WARN,
	        "a lease of %s s is longer than the grace of %s s%s: if the server loses its "
	        "memory and the holder cannot reach it within the grace, another client is granted "
	        "what is held (grace= in the URL)",
	        lease, grace, client->target.service ? " less 3 s for a failover" : "");
	pthread_mutex_lock(&client->mutex);
}

/* Releases the mutex meanwhile.  _locked */
static void log_reclaimed(struct lk__link *link)
{
	struct lk_client *client = link->client;
	uint32_t count = link->session.news.reclaimed;
	char text[LK__PLACE_SIZE];
	const char *server = lk__link_text(link, text);

	link->session.news.reclaimed = 0;
	lk__client_unlock(client);
	lk__log(client, LK_LOG_INFO, "%s: holds taken back after the loss: %u", server,
	        (unsigned)count);
	pthread_mutex_lock(&client->mutex);
}

/* Releases the mutex meanwhile.  _locked */
static void log_refusal(struct lk__link *link)
{
	struct lk_client *client = link->client;
	const struct lk__why why = link->session.news.why;

	link->session.news.refusal_logged = true;
	lk__client_unlock(client);
	lk__log(client, LK_LOG_WARN, "cannot renew: %s", why.text);
	pthread_mutex_lock(&client->mutex);
}

/* Log what is due about the link; *due_ns: when more is.  False when nothing was due. */
static bool log_link(struct lk__link *link, int64_t now_ns, int64_t *due_ns)
{
	struct lk__news *news = &link->session.news;
	enum lk__found found = (enum lk__found)news->found;
	int64_t reclaimed_ns = news->reclaimed_ns + TOGETHER_NS;

	news->found = LK__FOUND_SAME;
	if (found && lk__client_is_quorum(link->client))
		log_member(link, found);
	else if (found)
		log_memory(link, found);
	if (found)
		return true;
	if (link->session.epoch.is_partial && !link->client->partial_logged) {
		log_partial(link);
		return true;
	}
	if (news->is_refused && !news->refusal_logged) {
		log_refusal(link);
		return true;
	}
	if (news->reclaimed && reclaimed_ns <= now_ns) {
		log_reclaimed(link);
		return true;
	}
	if (news->reclaimed && reclaimed_ns < *due_ns)
		*due_ns = reclaimed_ns;
	return false;
}

int64_t lk__news_log(struct lk_client *client, int64_t now_ns)
{
	int64_t due_ns = LK__NEVER;

	client->core.has_news = false;
	if (client->long_lease_ms) {
		log_lease(client);
		return now_ns;
	}
	for (unsigned i = 0; i < client->link_count; i++)
		if (log_link(client->links[i], now_ns, &due_ns))
			return now_ns;
	return due_ns;
}

/* Is a thread to be started for that?  Most links find no grace. */
static bool has_news(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__session *session = &client->links[i]->session;
		const struct lk__epoch *epoch = &session->epoch;
		if (session->news.found > LK__FOUND_FIRST || session->news.reclaimed ||
		    (session->news.is_refused && !session->news.refusal_logged) ||
		    (epoch->is_partial && !client->partial_logged) ||
		    (session->news.found && grace_left_ms(client->links[i])))
			return true;
	}
	return client->long_lease_ms != 0;
}

void lk__news_wake(struct lk_client *client)
{
	if (!client->core.has_news || client->callbacks.stop)
		return;
	client->core.has_news = client->log.fn && has_news(client);
	if (client->core.has_news && lk__callbacks_start(client))
		pthread_cond_signal(&client->callbacks.work);
}

void lk__news_lease(struct lk_client *client, int64_t lease_ms)
{
	int64_t grace_ms = client->target.grace_ms;
	/* After a promotion, clients may use the old master for a while. */
	int64_t covered_ms = client->target.service ? grace_ms - LK__FOLLOW_MS : grace_ms;

	if (!grace_ms || lease_ms <= covered_ms || client->long_lease_logged)
		return;
	client->long_lease_ms = lease_ms;
	client->core.has_news = true;
	lk__news_wake(client);
}
