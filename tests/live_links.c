/* SPDX-License-Identifier: MIT
 * Several links of one client, over servers in this process: a link that is a black hole delays no
 * dial, renewal or call of another.  "c" is a name on link 0, "a" on 1, "b" on 2. */
#include "harness/handles.h"
#include "harness/lua_seam.h"
#include "harness/process.h"
#include "harness/test.h"
#include "store.h"

#include <pthread.h>
#include <stdatomic.h>

#define URL "redis://127.0.0.1:1" /* no server listens there */
#define LINKS 3
#define TIMEOUT_MS 300
#define DIAL_MS 20000 /* for a dial into a black hole */
#define LEASE_MS 300
#define SOON_MS 250 /* far less than a lease, a command timeout or a dial takes */

static const char *const names[LINKS] = {"c", "a", "b"};
static lk_client *client;
static lk_lock *locks[LINKS];
static atomic_int losses;

static void note_loss(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)lock;
	(void)fence;
	(void)reason;
	ck_assert_ptr_eq(arg, &locks[0]);
	losses++;
}

/* The connections that were dialled last. */
static const struct lk__store_ops *seam;
static struct lk__peer *_Atomic peers[LINKS];

static lk_err dial(struct lk__store *store, unsigned link, const struct lk__target *place,
                   int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                   struct lk__peer **peer, struct lk__why *why)
{
	lk_err err = seam->dial(store, link, place, deadline_ns, cancel_fd, epoch, peer, why);

	if (!err)
		peers[link] = *peer;
	return err;
}

static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	static struct lk__store_ops ops;
	struct lk__store *store = seam->create(target, client_id);

	/* Set it once: a thread of an earlier client may be reading it. */
	if (!ops.dial) {
		ops = *seam;
		ops.dial = dial;
	}
	store->ops = &ops;
	return store;
}

static lk_client *another_client(void)
{
	const lk_client_options options = {.connect_timeout_ms = DIAL_MS,
	                                   .command_timeout_ms = TIMEOUT_MS};

	return client_with(URL, &options);
}

static void start(void)
{
	static struct lk__store_ops ops;

	lua_seam_use(LINKS);
	seam = lk__store_of(NULL, NULL);
	ops = *seam;
	ops.create = create;
	lk__store_use(&ops);
	client = another_client();
	for (int i = 0; i < LINKS; i++) {
		const lk_lock_options options = {
			.lease_ms = LEASE_MS, .on_lost = note_loss, .on_lost_arg = &locks[i]};
		OK(lk_lock_open(client, names[i], 0, &options, &locks[i]));
	}
}

/* Both calls return at once. */
static void use_soon(lk_lock *lock)
{
	int64_t start_ms = now_ms();

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	ck_assert_int_le(now_ms() - start_ms, SOON_MS);
}

/* All links are up.  The client is open as soon as one link is up. */
static void use_all(void)
{
	for (int i = 0; i < LINKS; i++) {
		ck_assert(WITHIN(5000, lk_lock_acquire(locks[i], 0, NULL) == LK_OK));
		OK(lk_lock_release(locks[i]));
	}
}

TEST(names_on_all_links_are_locked_and_kept)
{
	start();
	use_all();
	for (int i = 0; i < LINKS; i++)
		OK(lk_lock_acquire(locks[i], 0, NULL));
	nap_ms(4 * LEASE_MS);
	for (int i = 0; i < LINKS; i++) {
		ck_assert_int_eq(lk_lock_state(locks[i]), LK_STATE_HELD);
		OK(lk_lock_release(locks[i]));
	}
	OK(lk_client_close(client));
}

TEST(black_hole_ends_calls_in_time_and_its_end_is_noticed)
{
	const lk_client_options options = {.connect_timeout_ms = TIMEOUT_MS,
	                                   .command_timeout_ms = TIMEOUT_MS};
	lk_client *alone, *other = NULL;
	int64_t start_ms;
	lk_lock *lock;

	lua_seam_use(1);
	alone = client_with(URL, &options);
	lock = lock_named(alone, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	lua_seam_black_hole(0, true);
	start_ms = now_ms();
	ck_assert_int_ne(lk_lock_acquire(lock, 0, NULL), LK_OK);
	EXPECT(lk_client_open(URL, &options, &other), LK_ECONN);
	ck_assert_int_ge(now_ms() - start_ms, TIMEOUT_MS);
	ck_assert_int_le(now_ms() - start_ms, 5 * TIMEOUT_MS);
	lua_seam_black_hole(0, false);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
	OK(lk_lock_release(lock));
	OK(lk_client_close(alone));
}

TEST(open_waits_for_one_link_and_for_no_black_hole)
{
	int64_t start_ms = now_ms();

	lua_seam_black_hole(0, true);
	start();
	ck_assert_int_le(now_ms() - start_ms, 1000);
	for (int i = 1; i < LINKS; i++)
		ck_assert(WITHIN(1000, lk_lock_acquire(locks[i], 0, NULL) == LK_OK));
	start_ms = now_ms();
	ck_assert_int_eq(lk_lock_acquire(locks[0], 0, NULL), LK_ECONN);
	ck_assert_int_eq(lk_lock_acquire(locks[0], TIMEOUT_MS, NULL), LK_ECONN);
	ck_assert_int_le(now_ms() - start_ms, 3 * TIMEOUT_MS + SOON_MS);
	/* The dial into the black hole lasts for more than four leases. */
	nap_ms(4 * LEASE_MS);
	for (int i = 1; i < LINKS; i++) {
		ck_assert_int_eq(lk_lock_state(locks[i]), LK_STATE_HELD);
		OK(lk_lock_release(locks[i]));
		use_soon(locks[i]);
	}
	start_ms = now_ms();
	OK(lk_client_close(client));
	ck_assert_int_le(now_ms() - start_ms, 1000);
}

TEST(link_that_becomes_a_black_hole_loses_its_holds_alone)
{
	start();
	use_all();
	for (int i = 0; i < LINKS; i++)
		OK(lk_lock_acquire(locks[i], 0, NULL));
	lua_seam_black_hole(0, true);
	for (int i = 0; i < 5 * LEASE_MS; i += SOON_MS) {
		int64_t start_ms = now_ms();
		for (int j = 1; j < LINKS; j++) {
			ck_assert_int_eq(lk_lock_state(locks[j]), LK_STATE_HELD);
			OK(lk_lock_extend(locks[j], LEASE_MS));
		}
		ck_assert_int_le(now_ms() - start_ms, SOON_MS);
		nap_ms(SOON_MS);
	}
	ck_assert_int_eq(lk_lock_state(locks[0]), LK_STATE_LOST);
	ck_assert(WITHIN(1000, losses == 1));
	ck_assert_int_eq(lk_lock_release(locks[0]), LK_ELOST);
	for (int i = 1; i < LINKS; i++)
		OK(lk_lock_release(locks[i]));
	OK(lk_client_close(client));
}

TEST(broken_link_is_dialled_while_another_dial_hangs)
{
	start();
	use_all();
	lua_seam_black_hole(0, true);
	seam->shutdown(peers[0]);
	nap_ms(SOON_MS); /* its dial has begun, and does not end */
	for (int i = 1; i < LINKS; i++) {
		OK(lk_lock_acquire(locks[i], 0, NULL));
		seam->shutdown(peers[i]);
		nap_ms(4 * LEASE_MS); /* renewed over the next connection */
		ck_assert_int_eq(lk_lock_state(locks[i]), LK_STATE_HELD);
		OK(lk_lock_release(locks[i]));
	}
	ck_assert_int_eq(lk_lock_acquire(locks[0], 0, NULL), LK_ECONN);
	OK(lk_client_close(client));
}

static void *wait_for_a(void *arg)
{
	OK(lk_lock_acquire(arg, 10000, NULL));
	OK(lk_lock_release(arg));
	return NULL;
}

/* The message of a hand-off is read although another link neither answers nor can be dialled; with
 * several threads, too, when the background thread reads for them. */
TEST(hand_off_arrives_while_another_link_is_a_black_hole)
{
	lk_client *other;
	pthread_t threads[2];
	int64_t start_ms;

	start();
	use_all();
	other = another_client();
	ck_assert(WITHIN(5000, lk_lock_acquire(lock_named(other, "a"), 0, NULL) == LK_OK));
	lua_seam_black_hole(0, true);
	ck_assert_int_ne(lk_lock_acquire(locks[0], 0, NULL), LK_OK);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, wait_for_a, locks[1]);
	nap_ms(LEASE_MS);
	start_ms = now_ms();
	OK(lk_lock_release(lock_named(other, "a")));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_le(now_ms() - start_ms, SOON_MS);
	OK(lk_client_close(other));
	/* The try of "c" is ambiguous: neither it nor its withdrawal got a response. */
	ck_assert_int_eq(lk_client_close(client), LK_EUNKNOWN);
}

TEST(open_tells_why_when_no_link_comes_up)
{
	const lk_client_options options = {.connect_timeout_ms = TIMEOUT_MS};
	lk_client *none = NULL;
	int64_t start_ms = now_ms();

	lua_seam_use(LINKS);
	for (unsigned i = 0; i < LINKS; i++)
		lua_seam_black_hole(i, true);
	ck_assert_int_eq(lk_client_open(URL, &options, &none), LK_ECONN);
	ck_assert_str_eq(lk_errmsg(), "127.0.0.1:1: link 0 does not answer");
	ck_assert_int_le(now_ms() - start_ms, TIMEOUT_MS + 1000);
	ck_assert_ptr_null(none);
}

TEST(lazy_client_dials_the_link_of_its_call_only)
{
	const lk_client_options options = {.lazy = true, .command_timeout_ms = TIMEOUT_MS};
	lk_client *lazy;

	start();
	use_all();
	OK(lk_client_close(client));
	for (int i = 0; i < LINKS; i++)
		peers[i] = NULL;
	lazy = client_with(URL, &options);
	use_soon(lock_named(lazy, "a"));
	nap_ms(100);
	ck_assert_ptr_nonnull(peers[1]);
	ck_assert(!peers[0] && !peers[2]);
	OK(lk_client_close(lazy));
}
