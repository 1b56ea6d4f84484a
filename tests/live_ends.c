/* SPDX-License-Identifier: MIT
 * The end of a call depends on no other thread.  While a thread of the client is blocked, in the
 * program's log function or in the network, each call ends within its wait plus one command
 * timeout.  While the log function blocks, losses are reported. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/server.h"
#include "harness/test.h"
#include "redis/redis_store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define TIMEOUT_MS 500
#define WAIT_MS 700
#define EARLY_MS 1500
#define SLACK_MS (TSAN || ASAN ? 2000 : 600)
#define BLOCKED_MS 10000

static struct test_server server;
static lk_client *client, *other;
static lk_lock *held, *renewed, *wanted, *cancelled;
static lk_semaphore *permits, *taken;
static lk_latch *latch;
static uint64_t hold;

/* ---- A background thread that is blocked -------------------------------------------------- */

static atomic_bool may_block, blocked, may_go;

static void block(void)
{
	blocked = true;
	WITHIN(BLOCKED_MS, may_go);
	blocked = false;
}

static void blocking_log(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	if (strstr(line, "connection lost"))
		block();
}

static int64_t blocking_write(struct lk__peer *peer, enum lk__side side, const char *bytes,
                              size_t len, struct lk__why *why)
{
	if (side == LK__MESSAGES && may_block)
		block();
	return lk__redis_store.write(peer, side, bytes, len, why);
}

static struct lk__store_ops blocking_store;

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__store *store = lk__redis_store.create(target, client_id);

	if (store)
		store->ops = &blocking_store;
	return store;
}

/* ---- Calls -------------------------------------------------------------------------------- */

struct call {
	const char *name;
	lk_err (*run)(void);
	int64_t wait_ms;
	pthread_t thread;
	int64_t took_ms;
	lk_err err;
	atomic_bool done;
};

static lk_err try_lock(void)
{
	return lk_lock_acquire(wanted, 0, NULL);
}

static lk_err wait_for_lock(void)
{
	return lk_lock_acquire(wanted, WAIT_MS, NULL);
}

static lk_err wait_from_before(void)
{
	return lk_lock_acquire(wanted, EARLY_MS, NULL);
}

static lk_err release_lock(void)
{
	return lk_lock_release(held);
}

static lk_err extend_lock(void)
{
	return lk_lock_extend(renewed, 20000);
}

static lk_err wait_for_permits(void)
{
	uint64_t more;

	return lk_semaphore_acquire(taken, 1, WAIT_MS, &more);
}

static lk_err release_some(void)
{
	return lk_semaphore_release_some(permits, hold, 1);
}

static lk_err extend_permits(void)
{
	return lk_semaphore_extend(permits, hold, 20000);
}

static lk_err await_latch(void)
{
	return lk_latch_await(latch, WAIT_MS);
}

static lk_err await_from_before(void)
{
	return lk_latch_await(latch, EARLY_MS);
}

static lk_err look_at_latch(void)
{
	return lk_latch_await(latch, 0);
}

static lk_err step(void)
{
	return lk_latch_down(latch, 1, NULL, 0, NULL);
}

static lk_err query_lock(void)
{
	lk_lock_status status;

	return lk_lock_query(renewed, &status);
}

static lk_err query_semaphore(void)
{
	lk_semaphore_status status;

	return lk_semaphore_query(permits, &status);
}

static lk_err ask_kind(void)
{
	lk_kind kind;

	return lk_client_name_kind(client, "held", 0, &kind);
}

static lk_err wait_until_cancelled(void)
{
	return lk_lock_acquire(cancelled, LK_FOREVER, NULL);
}

static lk_err cancel(void)
{
	nap_ms(WAIT_MS);
	return lk_lock_cancel(cancelled);
}

/* The first calls begin before the thread is blocked. */
#define EARLY 2
static struct call calls[] = {
	{.name = "wait from before", .run = wait_from_before, .wait_ms = EARLY_MS},
	{.name = "await from before", .run = await_from_before, .wait_ms = EARLY_MS},
	{.name = "try", .run = try_lock},
	{.name = "wait", .run = wait_for_lock, .wait_ms = WAIT_MS},
	{.name = "release", .run = release_lock},
	{.name = "extend", .run = extend_lock},
	{.name = "wait for permits", .run = wait_for_permits, .wait_ms = WAIT_MS},
	{.name = "release some", .run = release_some},
	{.name = "extend permits", .run = extend_permits},
	{.name = "await", .run = await_latch, .wait_ms = WAIT_MS},
	{.name = "look", .run = look_at_latch},
	{.name = "step", .run = step},
	{.name = "query", .run = query_lock},
	{.name = "query of permits", .run = query_semaphore},
	{.name = "kind", .run = ask_kind},
	{.name = "wait that is cancelled", .run = wait_until_cancelled, .wait_ms = WAIT_MS},
	{.name = "cancel", .run = cancel, .wait_ms = WAIT_MS},
};
#define CALLS ((int)(sizeof(calls) / sizeof(*calls)))

static void *run_call(void *arg)
{
	struct call *call = arg;
	int64_t began_ms = now_ms();

	call->err = call->run();
	call->took_ms = now_ms() - began_ms;
	call->done = true;
	return NULL;
}

static void begin(int first, int end)
{
	for (int i = first; i < end; i++)
		ck_assert(!pthread_create(&calls[i].thread, NULL, run_call, &calls[i]));
}

static int count_done(void)
{
	int done = 0;

	for (int i = 0; i < CALLS; i++)
		done += calls[i].done;
	return done;
}

/* Each call has ended in time, and without the background thread. */
static void assert_ended(void)
{
	ck_assert_msg(WITHIN(EARLY_MS + TIMEOUT_MS + 2 * SLACK_MS, count_done() == CALLS),
	              "%d of %d calls have ended", count_done(), CALLS);
	ck_assert(blocked);
	for (int i = 0; i < CALLS; i++) {
		struct call *call = &calls[i];
		pthread_join(call->thread, NULL);
		ck_assert_msg(call->took_ms <= call->wait_ms + TIMEOUT_MS + SLACK_MS,
		              "%s took %lld ms to end with %s", call->name,
		              (long long)call->took_ms, lk_err_name(call->err));
		call->done = false;
	}
}

static lk_err result_of(const char *name)
{
	for (int i = 0; i < CALLS; i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].err;
	ck_abort_msg("there is no call %s", name);
	return LK_OK;
}

/* ---- Setups -------------------------------------------------------------------------------- */

/* Start a client for the calls of the table, and another one that holds what they wait for. */
static void start(void)
{
	const lk_client_options options = {.log = blocking_log, .command_timeout_ms = TIMEOUT_MS};
	const lk_lock_options of_handle = {.owner = LK_OWNER_HANDLE};

	server_start(&server, NULL);
	client = client_with(server.url, &options);
	other = client_at(server.url);
	OK(lk_lock_acquire(lock_named(other, "wanted"), 0, NULL));
	OK(lk_lock_acquire(lock_named(other, "cancelled"), 0, NULL));
	permits_of(semaphore_of(other, "taken", 1, 0), 1, 0);
	held = lock_with(client, "held", &of_handle);
	renewed = lock_with(client, "renewed", &of_handle);
	wanted = lock_named(client, "wanted");
	cancelled = lock_named(client, "cancelled");
	OK(lk_lock_acquire(held, 0, NULL));
	OK(lk_lock_acquire(renewed, 0, NULL));
	permits = semaphore_of(client, "permits", 4, 0);
	taken = semaphore_of(client, "taken", 1, 0);
	hold = permits_of(permits, 4, 0);
	OK(lk_latch_open(client, "latch", 0, NULL, &latch));
	OK(lk_latch_set(latch, 100, NULL));
}

static bool is_queued(void)
{
	lk_lock_status status;

	OK(lk_lock_query(lock_named(other, "wanted"), &status));
	return status.queue_len == 1;
}

TEST_LIMIT(calls_end_in_time_while_the_log_hook_blocks, 30)
{
	start();
	begin(0, EARLY);
	ck_assert(WITHIN(2000, is_queued()));
	server_kill(&server);
	ck_assert(WITHIN(5000, blocked));
	begin(EARLY, CALLS);
	assert_ended();
	for (int i = 0; i < CALLS; i++)
		ck_assert_msg((calls[i].err == LK_OK) == !strcmp(calls[i].name, "cancel"),
		              "%s ended with %s", calls[i].name, lk_err_name(calls[i].err));
	may_go = true;
	EXPECT(lk_client_close(client), LK_EUNKNOWN);
	EXPECT(lk_client_close(other), LK_EUNKNOWN);
	server_stop(&server);
}

static atomic_int losses;

static void note_loss(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	ck_assert_int_eq(reason, LK_LOST_EXPIRED);
	losses++;
}

TEST_LIMIT(loss_is_reported_in_time_while_the_log_hook_blocks, 30)
{
	const lk_client_options options = {.log = blocking_log, .command_timeout_ms = TIMEOUT_MS};
	const lk_lock_options short_lease = {.lease_ms = 1000, .on_lost = note_loss};
	lk_lock *lock;

	server_start(&server, NULL);
	client = client_with(server.url, &options);
	lock = lock_with(client, "short", &short_lease);
	OK(lk_lock_acquire(lock, 0, NULL));
	server_kill(&server);
	ck_assert(WITHIN(5000, blocked));
	ck_assert(WITHIN(1000 + SLACK_MS, losses == 1));
	ck_assert(blocked);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	may_go = true;
	lk_client_close(client);
	server_stop(&server);
}

/* The server responds; then it is stopped, and requests remain in flight. */
TEST_LIMIT(calls_end_in_time_while_the_background_thread_writes, 30)
{
	blocking_store = lk__redis_store;
	blocking_store.create = create;
	blocking_store.write = blocking_write;
	lk__store_use(&blocking_store);
	start();
	may_block = true;
	begin(0, EARLY);
	ck_assert(WITHIN(5000, blocked)); /* it subscribes to the latch */
	begin(EARLY, CALLS);
	assert_ended();
	EXPECT(result_of("wait from before"), LK_ETIMEDOUT);
	EXPECT(result_of("await from before"), LK_ETIMEDOUT);
	EXPECT(result_of("try"), LK_EBUSY);
	EXPECT(result_of("wait"), LK_ETIMEDOUT);
	EXPECT(result_of("release"), LK_OK);
	EXPECT(result_of("extend"), LK_OK);
	EXPECT(result_of("release some"), LK_OK);
	EXPECT(result_of("step"), LK_OK);
	EXPECT(result_of("query"), LK_OK);
	EXPECT(result_of("wait that is cancelled"), LK_ECANCELED);

	OK(lk_lock_acquire(held, 0, NULL));
	begin(0, EARLY);
	ck_assert(WITHIN(2000, is_queued()));
	server_pause(&server);
	begin(EARLY, CALLS);
	assert_ended();
	EXPECT(result_of("query"), LK_EUNKNOWN);
	server_resume(&server);
	may_go = true;
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	server_stop(&server);
}

/* ---- Responses that are late ---------------------------------------------------------------- */

static lk_err break_lock(void)
{
	return lk_lock_break(wanted, NULL);
}

/* Some calls need several responses.  Each is in time, but not all of them. */
TEST_LIMIT(calls_with_several_requests_have_one_command_timeout, 30)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};
	const struct proxy_fault late = {.delay_ms = TIMEOUT_MS * 4 / 5};
	struct call query = {.run = query_lock}, forced = {.run = break_lock};
	lk_lock_status status;
	struct proxy proxy;
	lk_party waiter;
	size_t count;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	client = client_with(proxy.url, &options);
	wanted = renewed = lock_leased(client, "a", 60000);
	OK(lk_lock_acquire(renewed, 0, NULL));
	ck_assert(WITHIN(5000, lk_lock_query(renewed, &status) == LK_OK && status.holder.host[0]));
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	run_call(&query);
	EXPECT(query.err, LK_OK);
	ck_assert_int_ge(query.took_ms, TIMEOUT_MS);
	ck_assert_int_lt(query.took_ms, 2 * late.delay_ms - 20);
	OK(lk_lock_query(renewed, &status)); /* without what came too late */
	ck_assert(status.held && status.holder.id[0] && status.fence);
	ck_assert_str_eq(status.holder.host, "");
	OK(lk_lock_waiters(renewed, 1, &waiter, &count));
	run_call(&forced);
	EXPECT(forced.err, LK_EUNKNOWN);
	ck_assert_int_lt(forced.took_ms, 2 * late.delay_ms - 20);
	proxy_heal(&proxy);
	OK(lk_client_close(client));
	proxy_stop(&proxy);
	server_stop(&server);
}
