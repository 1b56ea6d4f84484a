/* SPDX-License-Identifier: MIT
 * The policy of one link to a server.
 *
 *     DOWN --dial is due--> DIALING --_up--> UP --_down--> DOWN
 *                           DIALING --_dial_failed--> DOWN
 *
 * A link that lasted is dialled again at once, a short-lived one after a pause that doubles: a
 * server that accepts and closes is not flooded.  Half of the pause is jitter, so that clients that
 * lost one server together do not reconnect together.
 *
 * A lazy session dials while calls need the link.  Its first dial replaces the one of an ordinary
 * open: a refusal that waiting cannot cure ends the pending calls, and those that begin before the
 * next dial is due.  Holds and leaves, which a Cluster's slot brings along, wait for that dial.
 * Once it was up it is like any other. */
#include "session.h"

#include "heap.h"

#define MS INT64_C(1000000)
#define BACKOFF_FIRST_MS 20
#define BACKOFF_MAX_MS 500
#define BACKOFF_AUTH_MS 5000 /* wrong credentials are not worth frequent retries */
#define LASTED_NS (1000 * MS)
#define PING_MIN_NS (100 * MS)
#define PING_MAX_NS (5000 * MS)
#define SUSPEND_MIN_NS (50 * MS)
#define REPLICAS_MAX_MS 1000
#define REPLICAS_LATE_MS 150 /* a server looks at its clock every 100 ms */

void lk__session_init(struct lk__session *session, int64_t connect_timeout_ns,
                      int64_t command_timeout_ns)
{
	*session = (struct lk__session){
		.connect_timeout_ns = connect_timeout_ns,
		.command_timeout_ns = command_timeout_ns,
		.ping_ns = PING_MAX_NS,
		.unwatched_ns = LK__NEVER,
		.vouch.ran_ns = LK__NEVER,
	};
}

/* The server waits for half a command timeout at most, and notices the end of that late: no
 * response is overdue because of it. */
void lk__session_need_replicas(struct lk__session *session, uint32_t replicas)
{
	int64_t timeout_ms = session->command_timeout_ns / MS;

	session->replicas = replicas;
	session->replicas_ms = timeout_ms / 2;
	if (session->replicas_ms > timeout_ms - REPLICAS_LATE_MS)
		session->replicas_ms = timeout_ms - REPLICAS_LATE_MS;
	if (session->replicas_ms > REPLICAS_MAX_MS)
		session->replicas_ms = REPLICAS_MAX_MS;
	if (session->replicas_ms < 1)
		session->replicas_ms = 1; /* WAIT takes 0 for no limit */
}

void lk__session_mind_lease(struct lk__session *session, int64_t lease_ms)
{
	if (lease_ms * MS / 3 < session->ping_ns)
		session->ping_ns = lease_ms * MS / 3;
	if (session->ping_ns < PING_MIN_NS)
		session->ping_ns = PING_MIN_NS;
}

/* ---- Lazy sessions ------------------------------------------------------------------------ */

/* A call waits for the link. */
static bool is_needed(const struct lk__session *session)
{
	return session->users || session->send_queue;
}

bool lk__session_is_refused(const struct lk__session *session)
{
	lk_err err = session->why.err;

	return err == LK_EAUTH || err == LK_ESERVER || err == LK_EFOREIGN || err == LK_ENOSERVER ||
	       err == LK_ESYSTEM || err == LK_EINVALID;
}

/* A call may have begun since the last refusal. */
static bool has_calls(const struct lk__session *session)
{
	return session->users != session->users_left || session->send_queue;
}

static int64_t lazy_due_ns(const struct lk__session *session)
{
	if (!is_needed(session))
		return LK__NEVER;
	return lk__session_is_refused(session) && has_calls(session) ? 0 : session->retry_ns;
}

/* ---- Duties ------------------------------------------------------------------------------- */

static bool awaits_pong(const struct lk__session *session)
{
	return session->pinged_ns > session->heard_ns;
}

static int64_t check_ns(const struct lk__session *session)
{
	if (awaits_pong(session))
		return session->pinged_ns + session->command_timeout_ns;
	return session->heard_ns + session->ping_ns;
}

int64_t lk__session_overdue_ns(const struct lk__session *session, int64_t oldest_ns)
{
	return oldest_ns == LK__NEVER ? LK__NEVER : oldest_ns + session->command_timeout_ns;
}

int64_t lk__session_due(const struct lk__session *session, int64_t oldest_ns)
{
	int64_t due_ns;

	if (session->state == LK__SESSION_DOWN && session->lazy)
		return lazy_due_ns(session);
	if (session->state == LK__SESSION_DOWN)
		return !session->on_demand || is_needed(session) ? session->retry_ns : LK__NEVER;
	if (session->state == LK__SESSION_DIALING)
		return LK__NEVER;
	due_ns = lk__session_overdue_ns(session, oldest_ns);
	if (session->users && check_ns(session) < due_ns)
		due_ns = check_ns(session);
	return due_ns;
}

enum lk__duty lk__session_next(struct lk__session *session, int64_t now_ns, int64_t oldest_ns)
{
	if (lk__session_due(session, oldest_ns) > now_ns)
		return LK__DUTY_NONE;
	if (session->state == LK__SESSION_DOWN) {
		if (session->lazy && now_ns < session->retry_ns)
			return LK__DUTY_REFUSE;
		lk__session_dial(session);
		return LK__DUTY_DIAL;
	}
	if (session->users && awaits_pong(session) && check_ns(session) <= now_ns)
		return LK__DUTY_SILENT;
	if (lk__session_overdue_ns(session, oldest_ns) <= now_ns)
		return LK__DUTY_OVERDUE;
	session->pinged_ns = now_ns;
	return LK__DUTY_PING;
}

/* ---- Events ------------------------------------------------------------------------------- */

static void back_off(struct lk__session *session, int64_t now_ns, lk_err err, uint64_t random)
{
	int64_t ms = session->backoff_ns / MS * 2;

	if (ms < BACKOFF_FIRST_MS)
		ms = BACKOFF_FIRST_MS;
	if (ms > BACKOFF_MAX_MS)
		ms = err == LK_EAUTH ? BACKOFF_AUTH_MS : BACKOFF_MAX_MS;
	session->backoff_ns = ms * MS;
	session->retry_ns = now_ns + session->backoff_ns / 2 +
	                    (int64_t)(random % (uint64_t)(session->backoff_ns / 2));
}

void lk__session_dial(struct lk__session *session)
{
	session->state = LK__SESSION_DIALING;
}

void lk__session_up(struct lk__session *session, int64_t now_ns)
{
	session->state = LK__SESSION_UP;
	session->up_ns = session->heard_ns = session->pinged_ns = now_ns;
	session->loss_reported = session->lazy = false;
}

void lk__session_refused(struct lk__session *session)
{
	session->users_left = session->users;
}

void lk__session_dial_failed(struct lk__session *session, int64_t now_ns, const struct lk__why *why,
                             uint64_t random)
{
	session->state = LK__SESSION_DOWN;
	session->users_left = 0;
	session->why = *why;
	back_off(session, now_ns, why->err, random);
}

void lk__session_down(struct lk__session *session, int64_t now_ns, uint64_t random)
{
	session->state = LK__SESSION_DOWN;
	if (now_ns - session->up_ns > LASTED_NS) {
		session->backoff_ns = 0;
		session->retry_ns = now_ns;
	} else {
		back_off(session, now_ns, LK_OK, random);
	}
}

void lk__session_heard(struct lk__session *session, int64_t now_ns)
{
	session->heard_ns = now_ns;
}

void lk__session_wakes(struct lk__session *session, int64_t now_ns)
{
	if (session->state == LK__SESSION_UP)
		session->heard_ns = now_ns;
}

lk_err lk__session_unasked(const struct lk__session *session)
{
	return lk__session_is_up(session) ? LK_ECONN : lk__why_unasked(&session->why);
}

bool lk__session_report_loss(struct lk__session *session)
{
	bool first = !session->loss_reported;

	session->loss_reported = true;
	return first;
}

bool lk__suspend_noticed(int64_t *suspended_ns, int64_t now_ns, int64_t awake_ns)
{
	if (now_ns - awake_ns - *suspended_ns < SUSPEND_MIN_NS)
		return false;
	*suspended_ns = now_ns - awake_ns;
	return true;
}
