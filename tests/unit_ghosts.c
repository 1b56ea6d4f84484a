/* SPDX-License-Identifier: MIT
 * Waits that have ended, but that an older copy of the server's memory still has in its queue: when
 * their turn comes, their clients let them leave. */
#include "memory_fixture.h"

#include <string.h>

#define PROMPT_MS 100 /* far less than the claim time of half a lease */

/* The server's memory is the older copy from now on. */
static void go_back_to(struct lua_store_image *image)
{
	lua_store_load(w.store, image);
	lua_store_image_free(image);
}

/* The copy has a hold of a, whose lease ends by itself, and a wait of each of the others, which
 * have all held and released since. */
static struct lua_store_image *copy_with_waits(void)
{
	struct lua_store_image *image;

	hold(a);
	wait_for(b);
	virt_settle(&w);
	later(10);
	wait_for(c);
	virt_settle(&w);
	image = lua_store_save(w.store);
	release(a);
	release(b);
	release(c);
	return image;
}

TEST_NOUNS(ended_waits_of_an_older_copy_leave_when_they_are_served)
{
	struct lua_store_image *image;
	struct lk__op *waiter;
	int64_t began_ns;

	start(LEASE);
	image = copy_with_waits();
	later(2000); /* their grants are short: the claim window is over */
	go_back_to(image);
	began_ns = w.now_ns;
	waiter = wait_for(a);
	ms_until_done(waiter);
	assert_done(waiter, LK_OK);
	ck_assert_int_le(w.now_ns - began_ns, (LEASE + PROMPT_MS) * VIRT_MS);
	release(a);
	end();
}

TEST_NOUNS(wait_that_is_not_remembered_keeps_its_turn)
{
	struct lua_store_image *image;
	struct lk__op *waiter;

	start(LEASE);
	image = copy_with_waits();
	lk__ghosts_forget(&b->core, b->queue->name);
	later(2000);
	go_back_to(image);
	waiter = wait_for(a);
	ms_until_done(waiter);
	assert_done(waiter, LK_OK);
	ck_assert_ptr_nonnull(c->core.ghosts.ring[0].name);
	ck_assert_ptr_null(b->core.ghosts.ring[0].name);
	release(a);
	end();
}

TEST_NOUNS(only_the_last_waits_are_remembered)
{
	start(LEASE);
	for (int i = 0; i < LK__GHOSTS_MAX + 3; i++) {
		hold(a);
		wait_for(b);
		virt_settle(&w);
		release(a);
		release(b);
	}
	ck_assert_uint_eq(b->core.ghosts.next, 3);
	for (int i = 0; i < LK__GHOSTS_MAX; i++)
		ck_assert_ptr_eq(b->core.ghosts.ring[i].name, b->queue->name);
	ck_assert_ptr_null(a->core.ghosts.ring[0].name); /* it never waited */
	end();
}

TEST(ended_wait_of_a_forged_message_leaves_once)
{
	struct lk__message grant = {.kind = LK__GRANT, .lease_ms = LEASE};
	int leaves;

	start(LEASE);
	hold(a);
	wait_for(b);
	virt_settle(&w);
	release(a);
	release(b);
	leaves = w.runs[LK__LEAVE];
	memcpy(grant.nonce, b->core.ghosts.ring[0].nonce, sizeof(grant.nonce));
	grant.kind = LK__WANTED;
	lk__core_message(&b->core, w.now_ns, &grant);
	ck_assert_ptr_null(b->session.send_queue);
	grant.kind = LK__GRANT;
	grant.from = &a->session;
	lk__core_message(&b->core, w.now_ns, &grant);
	ck_assert_ptr_null(b->session.send_queue); /* of another link */
	grant.from = &b->session;
	lk__core_message(&b->core, w.now_ns, &grant);
	ck_assert_ptr_nonnull(b->session.send_queue);
	virt_settle(&w);
	ck_assert_int_eq(w.runs[LK__LEAVE], leaves + 1);
	ck_assert_ptr_null(b->core.all_tickets);
	end();
}
