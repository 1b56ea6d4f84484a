/* SPDX-License-Identifier: MIT
 * What a test of a fault of etcd has: see etcd_fault.h. */
#include "etcd_fault.h"

#include "etcd_link.h"

#include <stdio.h>
#include <string.h>

#define LOST_LEASE_MS 3000
#define KEPT_LEASE_MS 30000
#define LOOK_MS 1500

struct etcd_servers etcd;
struct proxy etcd_proxies[ETCD_NODES_MAX];
const char *etcd_login = "";

void etcd_fault_set_up(void)
{
	etcd_start(&etcd, ETCD_NODES_MAX);
	for (int i = 0; i < ETCD_NODES_MAX; i++)
		proxy_start_at_port(&etcd_proxies[i], etcd.nodes[i].port);
}

/* ---- Clients -------------------------------------------------------------------------------- */

const char *etcd_url_of(unsigned nodes, bool far, const char *options)
{
	struct etcd_servers chosen = {0};

	for (int i = 0; i < etcd.count; i++)
		if (nodes & 1u << i)
			chosen.nodes[chosen.count++].port =
				far ? etcd_proxies[i].port : etcd.nodes[i].port;
	return etcd_url(&chosen, etcd_login, options);
}

lk_client *etcd_client(unsigned nodes)
{
	return client_at(etcd_url_of(nodes, false, "?command_timeout=1000"));
}

lk_client *etcd_client_at(int node)
{
	lk_client *client;

	for (int i = 0; i < etcd.count; i++)
		proxy_refuse(&etcd_proxies[i], i != node);
	client = client_at(etcd_url_of(ETCD_ALL, true, "?command_timeout=1000"));
	for (int i = 0; i < etcd.count; i++)
		proxy_refuse(&etcd_proxies[i], false);
	return client;
}

/* ---- Looks at the nodes --------------------------------------------------------------------- */

/* The text of its status is in link->text.  The answer is valid until the link is closed. */
static bool ask(struct etcd_link *link, const char *path, const struct lk__pb_shape *shape,
                void *answer, int64_t ms)
{
	int64_t end_ms = now_ms() + ms;
	uint32_t id = etcd_call(link, path);

	while (now_ms() < end_ms) {
		if (!etcd_next(link, end_ms - now_ms()))
			return false;
		if (link->event.kind == LK__H2_DEAD)
			return false;
		if (link->event.id == id)
			return lk__etcd_judge(&link->event).meaning == LK__ETCD_DONE &&
			       lk__pb_read(shape, link->event.message.data, link->event.message.len,
			                   answer);
	}
	return false;
}

static bool log_in(struct etcd_link *link)
{
	const char *colon = strchr(etcd_login, ':');
	struct lk__etcd_authenticate request;
	struct lk__etcd_authenticate_answer answer;

	if (!colon)
		return true;
	request.name = (struct lk__bytes){etcd_login, (size_t)(colon - etcd_login)};
	request.password = (struct lk__bytes){colon + 1, strcspn(colon + 1, "@")};
	lk__etcd_put_authenticate(etcd_message(link), &request);
	return ask(link, "/etcdserverpb.Auth/Authenticate", &lk__etcd_authenticate_shape, &answer,
	           ETCD_SOON_MS) &&
	       !lk__h2_set_token(link->h2, answer.token);
}

static bool open_link(struct etcd_link *link, int node)
{
	memset(link, 0, sizeof(*link));
	link->call_ms = LOOK_MS;
	if (etcd.nodes[node].pid && !etcd_link_open(link, etcd.nodes[node].port) && log_in(link)) {
		etcd_message(link);
		return true;
	}
	etcd_link_close(link);
	return false;
}

/* Safe: not before 3.4.31 and 3.5.13. */
static void read_version(struct lk__bytes version, struct etcd_view *view)
{
	char text[32];
	int minor = 0, patch = 0;

	snprintf(text, sizeof(text), "%.*s", (int)version.len, (const char *)version.data);
	ck_assert_int_eq(sscanf(text, "3.%d.%d", &minor, &patch), 2);
	view->minor = minor;
	view->is_safe = minor > 5 || (minor == 5 && patch >= 13) || (minor == 4 && patch >= 31);
}

static bool status_of(int node, struct lk__etcd_status_answer *status, struct etcd_view *view)
{
	struct etcd_link link;
	bool answered;

	if (!open_link(&link, node))
		return false;
	answered = ask(&link, "/etcdserverpb.Maintenance/Status", &lk__etcd_status_shape, status,
	               LOOK_MS);
	if (answered)
		read_version(status->version, view);
	etcd_link_close(&link);
	return answered;
}

static uint64_t member_ids[ETCD_NODES_MAX];

bool etcd_look(int node, struct etcd_view *view)
{
	struct lk__etcd_status_answer status;
	struct etcd_view ignored;

	for (int i = 0; i < etcd.count; i++)
		if (!member_ids[i] && status_of(i, &status, &ignored))
			member_ids[i] = status.header.member_id;
	if (!status_of(node, &status, view))
		return false;
	view->term = status.raft_term;
	view->revision = status.header.revision;
	view->leader = -1;
	for (int i = 0; i < etcd.count; i++)
		if (status.leader && status.leader == member_ids[i])
			view->leader = i;
	return true;
}

int etcd_leader_but(int not_this)
{
	struct etcd_view view;

	for (int i = 0; i < etcd.count; i++)
		if (i != not_this && etcd_look(i, &view) && view.leader >= 0 &&
		    view.leader != not_this)
			return view.leader;
	return -1;
}

static bool leads(int node)
{
	struct etcd_view view;

	for (int i = 0; i < etcd.count; i++)
		if (!etcd_look(i, &view) || view.leader != node)
			return false;
	return true;
}

static void move_leader(int from, int node)
{
	struct lk__etcd_lease_revoke_answer answer; /* it has only a header, too */
	struct etcd_link link;

	if (!open_link(&link, from))
		return;
	lk__pb_put_number(&link.writer, 1, member_ids[node]);
	ask(&link, "/etcdserverpb.Maintenance/MoveLeader", &lk__etcd_lease_revoke_shape, &answer,
	    LOOK_MS);
	etcd_link_close(&link);
}

void etcd_lead(int node)
{
	int64_t end_ms = now_ms() + 2 * ETCD_SOON_MS;

	while (!leads(node)) {
		int leader = etcd_leader_but(-1);
		ck_assert_msg(now_ms() < end_ms, "node %d does not lead", node);
		if (leader >= 0 && leader != node)
			move_leader(leader, node);
		else
			nap_ms(20);
	}
}

/* All keys with that prefix: from it to end. */
static void bounds(const char *prefix, char end[200], struct lk__bytes *from, struct lk__bytes *to)
{
	size_t len = strlen(prefix);

	ck_assert_uint_lt(len, 200);
	memcpy(end, prefix, len + 1);
	end[len - 1]++;
	*from = (struct lk__bytes){prefix, len};
	*to = (struct lk__bytes){end, len};
}

int64_t etcd_keys(int node, const char *prefix)
{
	char end[200];
	struct lk__etcd_range range = {.serializable = true, .count_only = true};
	struct lk__etcd_range_answer answer;
	struct etcd_link link;
	int64_t count = -1;

	bounds(prefix, end, &range.key, &range.range_end);
	if (!open_link(&link, node))
		return -1;
	lk__etcd_put_range(&link.writer, &range);
	if (ask(&link, ETCD_KV "Range", &lk__etcd_range_shape, &answer, LOOK_MS))
		count = answer.count;
	etcd_link_close(&link);
	return count;
}

int64_t etcd_tickets(int node, const char *name)
{
	char prefix[100];

	snprintf(prefix, sizeof(prefix), "lk/L/%s/", name);
	return etcd_keys(node, prefix);
}

bool etcd_is_clear(int node)
{
	return etcd_keys(node, "lk/") == 0;
}

static bool delete_once(int node, const struct lk__etcd_delete *del, int64_t *deleted)
{
	struct lk__etcd_delete_answer answer;
	struct etcd_link link;
	bool done;

	if (!open_link(&link, node))
		return false;
	lk__etcd_put_delete(&link.writer, del);
	done = ask(&link, ETCD_KV "DeleteRange", &lk__etcd_delete_shape, &answer, LOOK_MS);
	etcd_link_close(&link);
	*deleted = done ? answer.deleted : 0;
	return done;
}

void etcd_delete(int node, const char *prefix)
{
	char end[200];
	struct lk__etcd_delete del = {0};
	int64_t deleted = 0;
	int tries = 0;

	bounds(prefix, end, &del.key, &del.range_end);
	ck_assert(WITHIN(ETCD_SOON_MS, (tries++, delete_once(node, &del, &deleted))));
	/* One that was not answered may have taken place. */
	ck_assert(deleted > 0 || tries > 1);
}

void etcd_revoke_all(void)
{
	char ids[64][20];
	int count = 0;
	const char *at = etcd_ctl(&etcd, "lease list");

	while ((at = strchr(at, '\n')) && at[1] && count < 64) {
		at++;
		if (strcspn(at, "\n") == 16)
			snprintf(ids[count++], sizeof(ids[0]), "%.16s", at);
	}
	ck_assert_int_gt(count, 0);
	for (int i = 0; i < count; i++)
		etcd_ctl(&etcd, "lease revoke %s 2>&1 || true", ids[i]);
}

void etcd_replace_by_learner(int node)
{
	const struct etcd_node *own = &etcd.nodes[node];

	etcd_ctl(&etcd, "member remove %llx", (unsigned long long)member_ids[node]);
	etcd_kill(&etcd, node);
	ck_assert(!shell("rm -rf '%s/n%d'", etcd.dir, node));
	etcd_ctl(&etcd, "member add n%d --learner --peer-urls=http://127.0.0.1:%d", node,
	         own->peer_port);
	etcd.args[1] = "--initial-cluster-state";
	etcd.args[2] = "existing";
	member_ids[node] = 0;
	etcd_begin(&etcd, node);
}

void etcd_compact(int node)
{
	struct lk__etcd_lease_revoke_answer answer; /* it has only a header, too */
	struct etcd_link link;
	struct etcd_view view;

	ck_assert(WITHIN(ETCD_SOON_MS, etcd_look(node, &view)));
	ck_assert(WITHIN(ETCD_SOON_MS, open_link(&link, node)));
	link.call_ms = ETCD_SOON_MS;
	lk__pb_put_number(&link.writer, 1, (uint64_t)view.revision);
	/* Refused, if nothing was written since the last one. */
	ask(&link, ETCD_KV "Compact", &lk__etcd_lease_revoke_shape, &answer, ETCD_SOON_MS);
	etcd_link_close(&link);
}

void etcd_write(int node)
{
	struct lk__etcd_put put = {.key = {"other", 5}, .value = {"x", 1}};
	struct lk__etcd_put_answer answer;
	struct etcd_link link;

	ck_assert(WITHIN(ETCD_SOON_MS, open_link(&link, node)));
	lk__etcd_put_put(&link.writer, &put);
	ask(&link, ETCD_KV "Put", &lk__etcd_put_shape, &answer, 300);
	etcd_link_close(&link);
}

static int64_t grant_once(int node, int64_t ttl_s)
{
	struct lk__etcd_lease_grant_answer answer;
	struct etcd_link link;
	bool done;

	if (!open_link(&link, node))
		return 0;
	lk__etcd_put_lease_grant(&link.writer, &(struct lk__etcd_lease_grant){.ttl_s = ttl_s});
	done = ask(&link, ETCD_LEASE "LeaseGrant", &lk__etcd_lease_grant_shape, &answer, LOOK_MS);
	etcd_link_close(&link);
	return done ? answer.id : 0;
}

int64_t etcd_grant(int node, int64_t ttl_s)
{
	int64_t id = 0;

	ck_assert(WITHIN(ETCD_SOON_MS, (id = grant_once(node, ttl_s)) != 0));
	return id;
}

int64_t etcd_renew(int node, int64_t lease)
{
	struct lk__etcd_keep_alive_answer answer;
	struct etcd_link link;
	int64_t ttl_s = -1;
	uint32_t stream;

	if (!open_link(&link, node))
		return -1;
	lk__etcd_put_keep_alive(&link.writer, lease);
	stream = etcd_open(&link, ETCD_LEASE "LeaseKeepAlive");
	etcd_send(&link, stream);
	if (etcd_next(&link, LOOK_MS) && link.event.kind == LK__H2_MESSAGE &&
	    lk__pb_read(&lk__etcd_keep_alive_shape, link.event.message.data, link.event.message.len,
	                &answer))
		ttl_s = answer.ttl_s;
	etcd_link_close(&link);
	return ttl_s;
}

/* ---- Waiters -------------------------------------------------------------------------------- */

static bool is_valid(lk_lock *lock)
{
	lk_hold hold;

	return lk_lock_snapshot(lock, &hold) == LK_OK && hold.remaining_ms > 0;
}

static void *wait_in_thread(void *arg)
{
	struct etcd_waiter *waiter = arg;
	int64_t start_ms = now_ms();

	waiter->err = lk_lock_acquire(waiter->lock, waiter->wait_ms, &waiter->fence);
	if (!waiter->err && waiter->other)
		waiter->was_valid = is_valid(waiter->other) && is_valid(waiter->lock);
	waiter->took_ms = now_ms() - start_ms;
	atomic_store(&waiter->ended, true);
	return NULL;
}

void etcd_waiter_start(struct etcd_waiter *waiter, lk_lock *lock, int64_t wait_ms)
{
	waiter->lock = lock;
	waiter->wait_ms = wait_ms;
	waiter->ended = false;
	ck_assert(!pthread_create(&waiter->thread, NULL, wait_in_thread, waiter));
}

lk_err etcd_waiter_join(struct etcd_waiter *waiter)
{
	ck_assert_msg(WITHIN(3 * ETCD_SOON_MS, waiter->ended), "a wait does not end");
	pthread_join(waiter->thread, NULL);
	ck_assert(!waiter->was_valid);
	return waiter->err;
}

/* ---- The scene ------------------------------------------------------------------------------ */

lk_lock *etcd_lock(lk_client *client, const char *name, int64_t lease_ms)
{
	const lk_lock_options options = {
		.lease_ms = lease_ms, .owner = LK_OWNER_HANDLE, .on_lost = losses_note};

	return lock_with(client, name, &options);
}

void etcd_scene_begin(struct etcd_scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	etcd_lead(0);
	scene->lonely = etcd_client(1);
	scene->roaming = etcd_client_at(0);
	scene->rival = etcd_client(6);
	scene->lost = etcd_lock(scene->lonely, "lost", LOST_LEASE_MS);
	scene->kept = etcd_lock(scene->roaming, "kept", KEPT_LEASE_MS);
	OK(lk_lock_acquire(scene->lost, ETCD_SOON_MS, &scene->fence));
	OK(lk_lock_acquire(scene->kept, ETCD_SOON_MS, NULL));
	scene->waits_for_lost.other = scene->lost;
	scene->waits_for_kept.other = scene->kept;
	etcd_waiter_start(&scene->waits_for_lost, etcd_lock(scene->rival, "lost", KEPT_LEASE_MS),
	                  LK_FOREVER);
	etcd_waiter_start(&scene->waits_for_kept, etcd_lock(scene->rival, "kept", KEPT_LEASE_MS),
	                  LK_FOREVER);
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, "lost") == 2));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, "kept") == 2));
	etcd_lead(0); /* a loaded machine changes leaders */
	scene->failed_ms = now_ms();
}

void etcd_scene_failed(struct etcd_scene *scene)
{
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_leader_but(0) > 0));
	/* The loss is known in time, and nobody has the lock before. */
	ck_assert(WITHIN(ETCD_SOON_MS, losses.count == 1));
	ck_assert_uint_eq(losses.fence, scene->fence);
	ck_assert_int_le(losses.at_ms - scene->failed_ms, LOST_LEASE_MS + 2000);
	ck_assert_int_eq(lk_lock_state(scene->lost), LK_STATE_LOST);
	OK(etcd_waiter_join(&scene->waits_for_lost));
	ck_assert_uint_gt(scene->waits_for_lost.fence, scene->fence);
	ck_assert(lk_lock_is_mine(scene->kept));
	ck_assert(!scene->waits_for_kept.ended);
}

void etcd_scene_end(struct etcd_scene *scene)
{
	uint64_t fence;

	EXPECT(lk_lock_release(scene->lost), LK_ELOST);
	OK(lk_lock_release(scene->waits_for_lost.lock));
	OK(lk_lock_acquire(scene->lost, 2 * ETCD_SOON_MS, &fence));
	ck_assert_uint_gt(fence, scene->waits_for_lost.fence);
	OK(lk_lock_release(scene->lost));
	ck_assert_int_eq(losses.count, 1);
	OK(lk_lock_release(scene->kept));
	OK(etcd_waiter_join(&scene->waits_for_kept));
	OK(lk_lock_release(scene->waits_for_kept.lock));
	OK(lk_client_close(scene->lonely));
	OK(lk_client_close(scene->roaming));
	OK(lk_client_close(scene->rival));
	ck_assert(WITHIN(2 * ETCD_SOON_MS, etcd_is_clear(1)));
	etcd_stop(&etcd);
}
