/* SPDX-License-Identifier: MIT
 * Sentinels that are late and wrong, and the conversations of clients with them.  The conversations
 * stand for src/runtime/sentinels.c and the dial of a master in src/runtime/dial.c: when to
 * connect, to ask and to give up.  What a report means, core/sentinel.h decides. */
#include "sim.h"

#include <string.h>

#define CHECK_NS (1000 * SIM_MS)
#define BACKOFF_FIRST_NS (100 * SIM_MS)
#define BACKOFF_MAX_NS (5000 * SIM_MS)
#define PAUSE_FIRST_NS (100 * SIM_MS)
#define PAUSE_MAX_NS (1000 * SIM_MS)
/* The last sentinel names a new master so long after the promotion, if no fault delays it. */
#define SWITCH_NS (2500 * SIM_MS)

/* ---- What a sentinel says ------------------------------------------------------------------- */

static int said_by(const struct sim *sim, const struct sim_sentinel *sentinel)
{
	return sentinel->lie_ns > sim->now_ns ? sentinel->lie : sentinel->named;
}

/* Append to what is on the way to a client; a connection keeps the order. */
static void push(struct sim_client *client, struct sim_watcher *watcher, enum sim_saying saying,
                 int place)
{
	int64_t at_ns = client->sim->now_ns + sim_delay(client);

	if (watcher->count == SIM_REPORTS)
		return; /* its client is stopped, and will ask anew */
	if (at_ns < watcher->blind_ns)
		at_ns = watcher->blind_ns;
	if (watcher->count && at_ns < watcher->reports[watcher->count - 1].at_ns)
		at_ns = watcher->reports[watcher->count - 1].at_ns;
	watcher->reports[watcher->count++] = (struct sim_report){at_ns, saying, place};
	client->dirty = true;
}

static void say_to_all(struct sim *sim, int i, enum sim_saying saying, int place)
{
	for (int j = 0; j < sim->plan->clients; j++) {
		struct sim_watcher *watcher = &sim->clients[j].watch.watchers[i];
		if (sim->clients[j].alive && watcher->open)
			push(&sim->clients[j], watcher, saying, place);
	}
}

void sim_sentinels_switch(struct sim *sim, int64_t from_ns)
{
	struct sim_service *service = &sim->service;

	for (int i = 0; i < SIM_SENTINELS; i++) {
		struct sim_sentinel *sentinel = &service->sentinels[i];
		sentinel->next = service->place;
		sentinel->next_ns = from_ns + sim_within(&service->random, SWITCH_NS);
		if (sentinel->next_ns < sentinel->mute_ns)
			sentinel->next_ns =
				sentinel->mute_ns + sim_within(&service->random, SWITCH_NS);
	}
}

int64_t sim_sentinels_due(const struct sim *sim)
{
	int64_t due_ns = LK__NEVER;

	for (int i = 0; i < SIM_SENTINELS; i++)
		if (sim->service.sentinels[i].next_ns < due_ns)
			due_ns = sim->service.sentinels[i].next_ns;
	return due_ns;
}

void sim_sentinels_happen(struct sim *sim)
{
	for (int i = 0; i < SIM_SENTINELS; i++) {
		struct sim_sentinel *sentinel = &sim->service.sentinels[i];
		if (sentinel->next_ns > sim->now_ns)
			continue;
		sentinel->next_ns = LK__NEVER;
		sentinel->named = sentinel->next;
		sentinel->changed_ns = sim->now_ns;
		sim_trace(sim, NULL, "sentinel %d learns that server %d is the master", i,
		          sentinel->named);
		if (sentinel->lie_ns <= sim->now_ns)
			say_to_all(sim, i, SIM_PUBLISHES, sentinel->named);
	}
}

/* ---- Faults --------------------------------------------------------------------------------- */

static void mute(struct sim *sim, int i, int64_t length_ns, struct sim_random *random)
{
	struct sim_sentinel *sentinel = &sim->service.sentinels[i];

	sim_disturb(&sentinel->mute_ns, sim->now_ns + length_ns);
	sentinel->is_killed = sim_percent(random, 50);
	sentinel->changed_ns = sim->now_ns;
	/* It has old news for a while after that. */
	if (sentinel->next_ns != LK__NEVER)
		sentinel->next_ns = sentinel->mute_ns + sim_within(random, SWITCH_NS);
	if (!sentinel->is_killed)
		return;
	say_to_all(sim, i, SIM_HANGS_UP, SIM_UNAWARE);
	for (int j = 0; j < sim->plan->clients; j++)
		sim->clients[j].watch.watchers[i].open = false;
}

static void lie(struct sim *sim, int i, int64_t length_ns, struct sim_random *random)
{
	struct sim_sentinel *sentinel = &sim->service.sentinels[i];

	if (sentinel->mute_ns > sim->now_ns)
		return;
	sentinel->lie = sim_percent(random, 30) ? SIM_UNAWARE : (int)sim_draw(random, SIM_PLACES);
	sentinel->lie_ns = sim->now_ns + length_ns;
	sentinel->changed_ns = sim->now_ns;
	if (sentinel->lie != SIM_UNAWARE && sim_percent(random, 50))
		say_to_all(sim, i, SIM_PUBLISHES, sentinel->lie);
}

static void blind(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	struct sim_client *client = &sim->clients[fault->target];
	unsigned which = 1 + (unsigned)sim_draw(random, (1u << SIM_SENTINELS) - 1);

	for (int i = 0; i < SIM_SENTINELS && client->alive; i++) {
		struct sim_watcher *watcher = &client->watch.watchers[i];
		if (!(which >> i & 1))
			continue;
		sim_disturb(&watcher->blind_ns, sim->now_ns + fault->length_ns);
		for (int j = 0; j < watcher->count; j++)
			sim_disturb(&watcher->reports[j].at_ns, watcher->blind_ns);
	}
	client->dirty = true;
}

void sim_sentinels_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int i = (int)sim_draw(random, SIM_SENTINELS);

	sim->tally.faults[fault->kind]++;
	if (fault->kind == SIM_MUTE)
		mute(sim, i, fault->length_ns, random);
	else if (fault->kind == SIM_LIE)
		lie(sim, i, fault->length_ns, random);
	else
		blind(sim, fault, random);
}

void sim_sentinels_heal(struct sim *sim)
{
	for (int i = 0; i < SIM_SENTINELS; i++) {
		struct sim_sentinel *sentinel = &sim->service.sentinels[i];
		sentinel->mute_ns = sentinel->lie_ns = 0;
		sentinel->changed_ns = sim->now_ns;
		if (sentinel->next_ns != LK__NEVER)
			sentinel->next_ns = sim->now_ns;
		for (int j = 0; j < sim->plan->clients; j++)
			sim->clients[j].watch.watchers[i].blind_ns = 0;
	}
}

/* ---- Questions ------------------------------------------------------------------------------ */

int64_t sim_watch_asked_ns(const struct sim_client *client)
{
	int64_t first_ns = LK__NEVER;

	for (int i = 0; i < SIM_SENTINELS; i++) {
		const struct sim_watcher *watcher = &client->watch.watchers[i];
		const struct sim_sentinel *sentinel = &client->sim->service.sentinels[i];
		int64_t at_ns = watcher->arrives_ns;
		if (at_ns == LK__NEVER)
			continue;
		if (at_ns < watcher->blind_ns)
			at_ns = watcher->blind_ns;
		if (at_ns < sentinel->mute_ns && !sentinel->is_killed)
			at_ns = sentinel->mute_ns;
		if (at_ns < first_ns)
			first_ns = at_ns;
	}
	return first_ns;
}

/* The questions that arrive now are answered. */
void sim_watch_asked(struct sim_client *client)
{
	struct sim *sim = client->sim;

	for (int i = 0; i < SIM_SENTINELS; i++) {
		struct sim_watcher *watcher = &client->watch.watchers[i];
		const struct sim_sentinel *sentinel = &sim->service.sentinels[i];
		if (watcher->arrives_ns > sim->now_ns || watcher->blind_ns > sim->now_ns)
			continue;
		if (sentinel->mute_ns > sim->now_ns && !sentinel->is_killed)
			continue;
		watcher->arrives_ns = LK__NEVER;
		watcher->open = sentinel->mute_ns <= sim->now_ns;
		push(client, watcher, watcher->open ? SIM_ANSWERS : SIM_HANGS_UP,
		     said_by(sim, sentinel));
	}
}

static void ask(struct sim_client *client, struct sim_watcher *watcher)
{
	int ways = watcher->open ? 1 : 3; /* it connects first */

	watcher->asked_round = client->watch.core.round;
	watcher->sent_ns = client->sim->now_ns;
	watcher->asked_ns = sim_local(client);
	watcher->arrives_ns = client->sim->now_ns;
	for (int i = 0; i < ways; i++)
		watcher->arrives_ns += sim_delay(client);
}

/* Local. */
static int64_t watcher_due(const struct sim_client *client, const struct sim_watcher *watcher)
{
	uint64_t round = client->watch.core.round;

	if (!round)
		return LK__NEVER; /* its thread starts with the first dial */
	if (watcher->asked_ns != LK__NEVER)
		return watcher->asked_ns + SIM_TIMEOUT_NS;
	if (watcher->asked_round != round)
		return 0;
	if (!watcher->heard_ns)
		return watcher->retry_ns;
	return client->lane->session.users ? watcher->heard_ns + CHECK_NS : LK__NEVER;
}

/* ---- Reports -------------------------------------------------------------------------------- */

static struct lk__place address_of(int place)
{
	struct lk__place address = {.port = 6379};

	snprintf(address.host, sizeof(address.host), "server%d", place);
	return address;
}

static void watcher_failed(struct sim_client *client, int i)
{
	struct sim_watcher *watcher = &client->watch.watchers[i];
	const struct lk__why why = {.err = LK_ECONN, .text = "sentinel: no response"};
	int64_t now_ns = sim_local(client);

	watcher->open = false;
	watcher->count = 0;
	watcher->answered = 0;
	watcher->asked_ns = watcher->arrives_ns = LK__NEVER;
	watcher->heard_ns = 0;
	watcher->backoff_ns = watcher->backoff_ns ? watcher->backoff_ns * 2 : BACKOFF_FIRST_NS;
	if (watcher->backoff_ns > BACKOFF_MAX_NS)
		watcher->backoff_ns = BACKOFF_MAX_NS;
	watcher->retry_ns = now_ns + watcher->backoff_ns;
	lk__watch_failed(&client->watch.core, i, watcher->asked_round, now_ns, &why);
}

static void deliver(struct sim_client *client, int i)
{
	struct lk__watch *core = &client->watch.core;
	struct sim_watcher *watcher = &client->watch.watchers[i];
	const struct sim_report report = watcher->reports[0];
	struct lk__place place = address_of(report.place);
	int64_t now_ns = sim_local(client);
	uint64_t round = watcher->asked_round;

	watcher->count--;
	memmove(watcher->reports, watcher->reports + 1,
	        (size_t)watcher->count * sizeof(*watcher->reports));
	sim_trace(client->sim, client, "hears from sentinel %d: %s %d", i,
	          report.saying == SIM_PUBLISHES ? "now" : "it is", report.place);
	if (report.saying == SIM_HANGS_UP) {
		watcher_failed(client, i);
		return;
	}
	lk__vouch_run(&client->lane->session, now_ns);
	sim_watch_vouch(client);
	sim_check_report(client, i, report.saying, report.place);
	watcher->heard_ns = now_ns;
	watcher->backoff_ns = 0;
	if (report.saying == SIM_PUBLISHES)
		round = core->sentinels[i].round;
	else
		watcher->asked_ns = LK__NEVER;
	if (report.place == SIM_UNAWARE)
		lk__watch_unaware(core, i, round, now_ns);
	else
		lk__watch_named(core, i, round, now_ns, &place);
}

/* ---- The dial ------------------------------------------------------------------------------- */

void sim_watch_start(struct sim_client *client)
{
	struct sim_watch *watch = &client->watch;

	lk__watch_init(&watch->core, "service", SIM_SENTINELS, sim_local(client));
	for (int i = 0; i < SIM_SENTINELS; i++) {
		watch->watchers[i] = (struct sim_watcher){
			.asked_ns = LK__NEVER, .arrives_ns = LK__NEVER, .says = -2, .named = -2};
		snprintf(watch->core.sentinels[i].text, sizeof(watch->core.sentinels[i].text),
		         "sentinel%d", i);
	}
	client->lane->session.grace_ms = client->space.grace_ms;
}

static void choose(struct sim_client *client)
{
	lk__watch_begin(&client->watch.core);
	lk__vouch_begin(&client->lane->session, sim_local(client));
	client->watch.named_ns = client->sim->now_ns;
	client->watch.dialing = SIM_CHOOSING;
}

void sim_watch_dial(struct sim_client *client)
{
	client->watch.deadline_ns = sim_local(client) + client->lane->session.connect_timeout_ns;
	client->watch.pause_ns = 0;
	choose(client);
}

bool sim_watch_dial_again(struct sim_client *client, lk_err err)
{
	struct sim_watch *watch = &client->watch;

	watch->pause_ns = watch->pause_ns ? watch->pause_ns * 2 : PAUSE_FIRST_NS;
	if (watch->pause_ns > PAUSE_MAX_NS)
		watch->pause_ns = PAUSE_MAX_NS;
	watch->resume_ns = sim_local(client) + watch->pause_ns;
	watch->dialing = SIM_NO_DIAL;
	if (err != LK_ECONN || watch->resume_ns >= watch->deadline_ns)
		return false;
	watch->dialing = SIM_PAUSING;
	return true;
}

static void fail(struct sim_client *client)
{
	struct lk__why why;

	lk__watch_why(&client->watch.core, &why);
	client->watch.dialing = SIM_NO_DIAL;
	sim_client_dial_failed(client, &why);
}

/* While it chooses: does the watch know by now? */
static void advise(struct sim_client *client)
{
	struct sim_watch *watch = &client->watch;
	int64_t now_ns = sim_local(client);
	enum lk__watch_advice advice = lk__watch_advise(&watch->core, now_ns);

	if (advice == LK__WATCH_DIAL) {
		watch->place = watch->core.place.host[strlen(watch->core.place.host) - 1] - '0';
		watch->dialing = SIM_CONNECTING;
		sim_check_chosen(client, watch->place);
		sim_client_connect(client);
	} else if (advice == LK__WATCH_FAIL || now_ns >= watch->deadline_ns) {
		fail(client);
	}
}

/* A report may have cut the link, or the dial. */
static void judge(struct sim_client *client)
{
	struct sim_watch *watch = &client->watch;

	if (!watch->core.is_cut)
		return;
	if (client->lane->link) {
		client->sim->tally.cuts++;
		sim_client_unlink(client, LK_EUNKNOWN);
	} else if (watch->dialing == SIM_CONNECTING) {
		sim_client_cancel_dial(client);
	} else if (watch->dialing == SIM_PAUSING) {
		watch->resume_ns = sim_local(client);
	}
}

/* ---- A pause -------------------------------------------------------------------------------- */

void sim_watch_vouch(struct sim_client *client)
{
	const struct lk__vouch *vouch = &client->lanes[0].session.vouch;

	if (!client->sim->plan->sentinels || !vouch->is_doubted ||
	    client->watch.pauses == vouch->pauses || !client->lanes[0].link)
		return; /* a dial asks by itself */
	client->watch.pauses = vouch->pauses;
	lk__watch_doubt(&client->watch.core);
}

static bool is_doubted(const struct sim_client *client)
{
	const struct lk__vouch *vouch = &client->lane->session.vouch;

	return vouch->is_doubted && client->lane->link && client->watch.pauses == vouch->pauses;
}

static void recheck(struct sim_client *client)
{
	struct lk__watch *core = &client->watch.core;
	int64_t now_ns = sim_local(client);
	enum lk__watch_advice advice;
	struct lk__why why;

	if (!is_doubted(client))
		return;
	advice = lk__watch_recheck(core, now_ns);
	if (advice == LK__WATCH_DIAL) {
		lk__core_vouched(&client->core, &client->lane->session, now_ns);
	} else if (advice == LK__WATCH_FAIL) {
		lk__watch_doubt_why(core, &why);
		lk__core_unvouched(&client->core, &client->lane->session, now_ns, &why);
	}
}

static void spread(struct sim_client *client)
{
	int64_t alone_ns = client->watch.core.alone_ns;

	client->lane->session.unwatched_ns =
		alone_ns == LK__NEVER ? LK__NEVER
				      : alone_ns + client->lane->session.grace_ms * SIM_MS;
	judge(client);
	recheck(client);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

/* Of the dial; local. */
static int64_t dial_due(const struct sim_client *client)
{
	const struct sim_watch *watch = &client->watch;
	int64_t due_ns = lk__watch_due(&watch->core);

	if (is_doubted(client) && due_ns > sim_local(client))
		return due_ns;
	if (watch->dialing == SIM_PAUSING)
		return watch->resume_ns;
	if (watch->dialing != SIM_CHOOSING)
		return LK__NEVER;
	/* Due already: then it waits for a report. */
	return due_ns < watch->deadline_ns && due_ns > sim_local(client) ? due_ns
	                                                                 : watch->deadline_ns;
}

int64_t sim_watch_due(const struct sim_client *client)
{
	const struct sim_watch *watch = &client->watch;
	int64_t due_ns = dial_due(client), first_ns;

	for (int i = 0; i < SIM_SENTINELS; i++) {
		int64_t at_ns = watcher_due(client, &watch->watchers[i]);
		due_ns = at_ns < due_ns ? at_ns : due_ns;
	}
	first_ns = sim_true(client, due_ns);
	for (int i = 0; i < SIM_SENTINELS; i++)
		if (watch->watchers[i].count && watch->watchers[i].reports[0].at_ns < first_ns)
			first_ns = watch->watchers[i].reports[0].at_ns;
	return first_ns;
}

static void step(struct sim_client *client, int i)
{
	struct sim_watcher *watcher = &client->watch.watchers[i];

	if (watcher->count && watcher->reports[0].at_ns <= client->sim->now_ns) {
		deliver(client, i);
		spread(client);
		sim_check_reported(client, i);
	} else if (watcher_due(client, watcher) > sim_local(client)) {
		return;
	} else if (watcher->asked_ns != LK__NEVER) {
		watcher_failed(client, i);
		spread(client);
	} else {
		ask(client, watcher);
	}
}

void sim_watch_happen(struct sim_client *client)
{
	struct sim_watch *watch = &client->watch;

	for (int i = 0; i < SIM_SENTINELS; i++)
		step(client, i);
	recheck(client);
	if (watch->dialing == SIM_PAUSING && watch->resume_ns <= sim_local(client))
		choose(client);
	else if (watch->dialing == SIM_CHOOSING)
		advise(client);
}
