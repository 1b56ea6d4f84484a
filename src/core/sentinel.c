/* SPDX-License-Identifier: MIT
 * The choice of the master.
 *
 * Two rules keep a client from a master that was replaced.  It dials only what a sentinel names in
 * answer to a question of this attempt.  And one sentinel that begins to name another address is
 * enough to cut the link: in a planned failover the old master takes writes for 11 s after the new
 * one does.  Which address is dialled then is decided by votes, so one sentinel that lies or is
 * late costs a reconnection, but does not lead the clients astray; its report does not cut the link
 * to the chosen address again until it changes. */
#include "sentinel.h"

#include "heap.h"

#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)
/* How long the first answers of an attempt wait for those of slower sentinels, if they are no
 * majority of all. */
#define SETTLE_NS (300 * MS)

static bool same_place(const struct lk__place *one, const struct lk__place *other)
{
	return one->port == other->port && !strcmp(one->host, other->host);
}

static void write_place(char out[LK__PLACE_TEXT], const struct lk__place *place)
{
	bool is_ipv6 = false;

	for (const char *at = place->host; *at; at++)
		is_ipv6 = is_ipv6 || *at == ':';
	snprintf(out, LK__PLACE_TEXT, is_ipv6 ? "[%s]:%d" : "%s:%d", place->host, place->port);
}

void lk__watch_init(struct lk__watch *watch, const char *service, int count, int64_t now_ns)
{
	memset(watch, 0, sizeof(*watch));
	snprintf(watch->service, sizeof(watch->service), "%s", service);
	watch->count = count;
	watch->answered_ns = LK__NEVER;
	watch->alone_ns = now_ns;
}

void lk__watch_doubt(struct lk__watch *watch)
{
	watch->round++;
	watch->answered_ns = LK__NEVER;
}

void lk__watch_begin(struct lk__watch *watch)
{
	lk__watch_doubt(watch);
	lk__watch_leave(watch);
}

void lk__watch_leave(struct lk__watch *watch)
{
	watch->place.port = 0;
	watch->is_cut = false;
}

/* ---- Reports ------------------------------------------------------------------------------ */

static void note(struct lk__watch *watch, int i, enum lk__sentinel_state state, uint64_t round,
                 int64_t now_ns)
{
	bool is_alone = true;

	watch->sentinels[i].state = (uint8_t)state;
	watch->sentinels[i].round = round;
	if (round == watch->round && watch->answered_ns == LK__NEVER &&
	    (state == LK__SENTINEL_NAMES || state == LK__SENTINEL_UNAWARE))
		watch->answered_ns = now_ns;
	for (int other = 0; other < watch->count; other++)
		is_alone = is_alone && watch->sentinels[other].state != LK__SENTINEL_NAMES;
	if (!is_alone)
		watch->alone_ns = LK__NEVER;
	else if (watch->alone_ns == LK__NEVER)
		watch->alone_ns = now_ns;
}

void lk__watch_named(struct lk__watch *watch, int i, uint64_t round, int64_t now_ns,
                     const struct lk__place *place)
{
	struct lk__sentinel *sentinel = &watch->sentinels[i];
	bool changed = !same_place(&sentinel->named, place);

	if (changed) {
		sentinel->since_ns = now_ns;
		sentinel->named = *place;
	}
	note(watch, i, LK__SENTINEL_NAMES, round, now_ns);
	watch->found = true;
	if (!watch->place.port || same_place(place, &watch->place)) {
		sentinel->outvoted.port = 0;
	} else if (!same_place(place, &sentinel->outvoted)) {
		watch->is_cut = true;
		watch->by = i;
	}
}

void lk__watch_unaware(struct lk__watch *watch, int i, uint64_t round, int64_t now_ns)
{
	note(watch, i, LK__SENTINEL_UNAWARE, round, now_ns);
}

void lk__watch_failed(struct lk__watch *watch, int i, uint64_t round, int64_t now_ns,
                      const struct lk__why *why)
{
	bool refuses = why->err == LK_EAUTH || why->err == LK_ESERVER || why->err == LK_EINVALID;

	watch->sentinels[i].why = *why;
	note(watch, i, refuses ? LK__SENTINEL_REFUSES : LK__SENTINEL_UNREACHABLE, round, now_ns);
}

/* ---- The choice --------------------------------------------------------------------------- */

/* Its last report answers a question of this attempt. */
static bool is_fresh(const struct lk__watch *watch, int i)
{
	return watch->sentinels[i].round == watch->round;
}

static int count_fresh(const struct lk__watch *watch, enum lk__sentinel_state state)
{
	int count = 0;

	for (int i = 0; i < watch->count; i++)
		count += is_fresh(watch, i) && watch->sentinels[i].state == state;
	return count;
}

static bool has_vote(const struct lk__watch *watch, int i)
{
	return is_fresh(watch, i) && watch->sentinels[i].state == LK__SENTINEL_NAMES;
}

static int count_votes(const struct lk__watch *watch, const struct lk__place *place)
{
	int count = 0;

	for (int i = 0; i < watch->count; i++)
		count += has_vote(watch, i) && same_place(&watch->sentinels[i].named, place);
	return count;
}

/* The sentinel whose address most of them name; of several addresses, the one that a sentinel has
 * named for the shortest time, since that is the latest change.  -1 = none. */
static int find_leader(const struct lk__watch *watch, int *votes)
{
	int leader = -1;

	*votes = 0;
	for (int i = 0; i < watch->count; i++) {
		const struct lk__sentinel *sentinel = &watch->sentinels[i];
		int count;
		if (!has_vote(watch, i))
			continue;
		count = count_votes(watch, &sentinel->named);
		if (count < *votes ||
		    (count == *votes && sentinel->since_ns <= watch->sentinels[leader].since_ns))
			continue;
		*votes = count;
		leader = i;
	}
	return leader;
}

static void choose(struct lk__watch *watch, const struct lk__place *place)
{
	watch->place = *place;
	watch->is_cut = false;
	for (int i = 0; i < watch->count; i++) {
		struct lk__sentinel *sentinel = &watch->sentinels[i];
		sentinel->outvoted.port = 0;
		if (!same_place(&sentinel->named, place))
			sentinel->outvoted = sentinel->named;
	}
}

int64_t lk__watch_due(const struct lk__watch *watch)
{
	return watch->answered_ns == LK__NEVER ? LK__NEVER : watch->answered_ns + SETTLE_NS;
}

/* Of this attempt. */
static int count_reports(const struct lk__watch *watch)
{
	int count = 0;

	for (int i = 0; i < watch->count; i++)
		count += is_fresh(watch, i);
	return count;
}

enum lk__watch_advice lk__watch_advise(struct lk__watch *watch, int64_t now_ns)
{
	int votes, leader = find_leader(watch, &votes), fresh = count_reports(watch);
	int unaware = count_fresh(watch, LK__SENTINEL_UNAWARE);
	bool is_settled = lk__watch_due(watch) <= now_ns || fresh == watch->count;

	if (leader >= 0 && (is_settled || votes * 2 > watch->count)) {
		choose(watch, &watch->sentinels[leader].named);
		return LK__WATCH_DIAL;
	}
	if (leader < 0 && (fresh == watch->count || (is_settled && unaware * 2 > watch->count)))
		return LK__WATCH_FAIL;
	return LK__WATCH_WAIT;
}

enum lk__watch_advice lk__watch_recheck(const struct lk__watch *watch, int64_t now_ns)
{
	int votes = count_votes(watch, &watch->place);
	bool have_all = count_reports(watch) == watch->count;

	if (watch->is_cut)
		return LK__WATCH_WAIT;
	if (votes && (have_all || votes * 2 > watch->count || lk__watch_due(watch) <= now_ns))
		return LK__WATCH_DIAL;
	return have_all ? LK__WATCH_FAIL : LK__WATCH_WAIT;
}

/* ---- Reasons ------------------------------------------------------------------------------ */

/* The first sentinel in that state, NULL = none. */
static const struct lk__sentinel *find_state(const struct lk__watch *watch,
                                             enum lk__sentinel_state state)
{
	for (int i = 0; i < watch->count; i++)
		if (is_fresh(watch, i) && watch->sentinels[i].state == state)
			return &watch->sentinels[i];
	return NULL;
}

/* Append the reasons of all sentinels, as far as there is room. */
static void list_reasons(const struct lk__watch *watch, char *text, size_t size)
{
	size_t len = 0;

	text[0] = '\0';
	for (int i = 0; i < watch->count && len < size; i++) {
		const struct lk__sentinel *sentinel = &watch->sentinels[i];
		bool has_failed =
			is_fresh(watch, i) && (sentinel->state == LK__SENTINEL_UNREACHABLE ||
		                               sentinel->state == LK__SENTINEL_REFUSES);
		bool has_answered = is_fresh(watch, i) && !has_failed;
		const char *reason = has_failed ? sentinel->why.text : sentinel->text;
		len += (size_t)snprintf(text + len, size - len, "%s%s%s", i ? ", " : "", reason,
		                        has_failed     ? ""
		                        : has_answered ? ": does not name it"
		                                       : ": no response in time");
	}
}

lk_err lk__watch_why(const struct lk__watch *watch, struct lk__why *why)
{
	const struct lk__sentinel *unaware = find_state(watch, LK__SENTINEL_UNAWARE);
	const struct lk__sentinel *refuses = find_state(watch, LK__SENTINEL_REFUSES);
	char reasons[sizeof(why->text)];

	if (unaware)
		/* A service that was found once may come back: a restarted sentinel learns it. */
		return lk__why_about(why, watch->found ? LK_ECONN : LK_EINVALID, watch->service,
		                     "sentinel %s knows no such service", unaware->text);
	if (refuses)
		return lk__why_set(why, refuses->why.err, "%s", refuses->why.text);
	list_reasons(watch, reasons, sizeof(reasons));
	return lk__why_about(why, LK_ECONN, watch->service, "no sentinel answers: %s", reasons);
}

lk_err lk__watch_doubt_why(const struct lk__watch *watch, struct lk__why *why)
{
	char reasons[sizeof(why->text)];

	list_reasons(watch, reasons, sizeof(reasons));
	return lk__why_about(why, LK_ECONN, watch->service,
	                     "after a pause of this client, no sentinel confirms the master: %s",
	                     reasons);
}

void lk__watch_cut_why(const struct lk__watch *watch, struct lk__why *why)
{
	const struct lk__sentinel *sentinel = &watch->sentinels[watch->by];
	char old[LK__PLACE_TEXT], new[LK__PLACE_TEXT];

	write_place(old, &watch->place);
	write_place(new, &sentinel->named);
	/* What was sent to the old master may have been executed. */
	lk__why_about(why, LK_EUNKNOWN, watch->service, "sentinel %s names %s instead of %s",
	              sentinel->text, new, old);
}

const struct lk__sentinel *lk__watch_witness(const struct lk__watch *watch)
{
	for (int i = 0; i < watch->count; i++)
		if (watch->sentinels[i].state == LK__SENTINEL_NAMES &&
		    same_place(&watch->sentinels[i].named, &watch->place))
			return &watch->sentinels[i];
	return NULL;
}
