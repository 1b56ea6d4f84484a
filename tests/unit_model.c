/* SPDX-License-Identifier: MIT
 * The model of every state can fail: each wrong variant is found, and within the same small bounds
 * the shipped version is clean.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=lk__core_random
 */
#include "model_check.h"

#include <string.h>

#define SECONDS 60 /* on a heavily loaded machine; otherwise two */

TEST_LIMIT(a_release_of_what_another_holds_is_found, SECONDS)
{
	finds("leave-without-owner-check", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(a_ticket_left_in_the_queue_is_found, SECONDS)
{
	finds("leave-keeps-the-queue", PROMISE_REST, "a ticket that has ended is in the store");
}

TEST_LIMIT(a_ticket_whose_refused_leave_is_forgotten_is_found, SECONDS)
{
	finds("refused-leave-is-forgotten", PROMISE_REST,
	      "a ticket that has ended is in the store");
}

TEST_LIMIT(a_grant_of_what_is_held_is_found, SECONDS)
{
	finds("ask-grants-what-is-held", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(a_newcomer_that_overtakes_is_found, SECONDS)
{
	finds("ask-overtakes", PROMISE_FIFO, "has overtaken");
}

TEST_LIMIT(a_validity_counted_from_the_answer_is_found, SECONDS)
{
	finds("valid-from-the-reply", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(a_late_answer_that_makes_a_hold_is_found, SECONDS)
{
	finds("late-answer-holds", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(a_hold_that_is_revived_is_found, SECONDS)
{
	finds("late-grant-revives", PROMISE_REVIVAL, "a hold that had lapsed is valid again");
}

TEST_LIMIT(a_fence_of_an_earlier_grant_is_found, SECONDS)
{
	finds("fence-of-the-message", PROMISE_FENCE,
	      "fence 1700000999000001 is below 1700001008000000");
}

TEST_LIMIT(a_lease_that_a_renewal_shortens_is_found, SECONDS)
{
	finds("renewal-shortens", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(a_loss_that_is_not_told_is_found, SECONDS)
{
	finds("loss-not-told", PROMISE_LOSS, "the loss of a hold was not reported");
}

TEST_LIMIT(a_wrong_result_of_a_call_is_found, SECONDS)
{
	finds("release-is-lost", PROMISE_RESULT, "LK_ELOST, without a cause");
	finds("release-is-unknown", PROMISE_RESULT, "LK_EUNKNOWN, without a cause");
	finds("leave-denies-its-owner", PROMISE_RESULT, "a leave denies its client's hold");
	finds("extension-is-unknown", PROMISE_RESULT, "LK_EUNKNOWN, without a cause");
}

TEST_LIMIT(a_claim_that_is_skipped_is_found, SECONDS)
{
	finds("claim-skipped", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
}

TEST_LIMIT(permits_that_are_not_given_back_are_found, SECONDS)
{
	finds("leave-forgets-used", PROMISE_PERMITS,
	      "the store counts 1 permits, its holds have 0");
}

TEST_LIMIT(one_permit_too_many_is_found, SECONDS)
{
	finds("one-permit-too-many", PROMISE_PERMITS, "3 permits are valid at once, of 2");
}

TEST_LIMIT(a_rate_that_is_exceeded_is_found, SECONDS)
{
	finds("rate-granted-short", PROMISE_PERMITS, "3 permits are valid at once, of 2");
	finds("used-grant-is-left", PROMISE_PERMITS, "3 permits are valid at once, of 2");
}

TEST_LIMIT(a_step_that_counts_twice_is_found, SECONDS)
{
	finds("step-sent-again-counts", PROMISE_STEP, "a step was counted twice");
}

TEST_LIMIT(a_wait_that_is_forgotten_is_found, SECONDS)
{
	finds("never-asks-again", PROMISE_PROGRESS, "a ticket in state 1 has no next event");
}

TEST_LIMIT(a_grant_without_a_grace_is_found, SECONDS)
{
	finds("no-grace", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
	finds("marker-not-compared", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
	finds("permits-for-an-unknown-memory", PROMISE_PERMITS,
	      "3 permits are valid at once, of 2");
}

TEST_LIMIT(a_loss_of_memory_that_is_not_noticed_is_found, SECONDS)
{
	finds("missing-marker-is-a-start", PROMISE_VALIDITY,
	      "a hold is believed in and is not in the store");
}

TEST_LIMIT(a_forgotten_leave_that_serves_is_found, SECONDS)
{
	finds("forgotten-leave-serves", PROMISE_EXCLUSION, "2 holds are valid at once, of 1");
	finds("permits-served-in-the-grace", PROMISE_PERMITS, "3 permits are valid at once, of 2");
}

TEST_LIMIT(a_reclaim_that_loses_to_a_smaller_fence_is_found, SECONDS)
{
	finds("smaller-fence-wins", PROMISE_VALIDITY, "a valid hold cannot be taken back");
}

TEST_LIMIT(a_reclaim_that_takes_from_another_is_found, SECONDS)
{
	finds("late-reclaim-takes", PROMISE_VALIDITY,
	      "a hold is believed in and is not in the store");
}

TEST_LIMIT(a_reclaim_above_the_capacity_is_found, SECONDS)
{
	finds("reclaim-above-capacity", PROMISE_PERMITS, "3 permits are valid at once, of 2");
}

TEST_LIMIT(permits_that_find_no_room_or_make_room_wrongly_are_found, SECONDS)
{
	finds("stale-permits-stay", PROMISE_VALIDITY, "a valid hold cannot be taken back");
	finds("reclaimed-permits-give-way", PROMISE_VALIDITY,
	      "a hold is believed in and is not in the store");
	is_clean(&model_plant("stale-permits-stay")->bounds);
}

TEST_LIMIT(a_hold_by_the_message_of_a_lost_memory_is_taken_back, SECONDS)
{
	static const struct model_bounds bounds = {.name = "lock",
	                                           .kind = LK_KIND_LOCK,
	                                           .clients = 2,
	                                           .steps = 3,
	                                           .calls = 1,
	                                           .cuts = 1,
	                                           .flushes = 1,
	                                           .faults = 2};

	is_clean(&bounds);
}

TEST_LIMIT(a_ticket_is_not_queued_beside_its_old_hold, SECONDS)
{
	static const struct model_bounds bounds = {.name = "semaphore",
	                                           .kind = LK_KIND_SEMAPHORE,
	                                           .clients = 2,
	                                           .steps = 2,
	                                           .ticks = 1,
	                                           .calls = 1,
	                                           .restarts = 1,
	                                           .copies = 1,
	                                           .grace = 1,
	                                           .faults = 1};

	is_clean(&bounds);
}

TEST_LIMIT(what_ships_is_clean_where_those_are_not, SECONDS)
{
	is_clean(&model_plant("leave-without-owner-check")->bounds);
	is_clean(&model_plant("ask-grants-what-is-held")->bounds);
	is_clean(&model_plant("refused-leave-is-forgotten")->bounds);
	is_clean(&model_plant("no-grace")->bounds);
	is_clean(&model_plant("smaller-fence-wins")->bounds);
}

TEST_LIMIT(a_hold_that_a_promoted_replica_lacks_is_found, SECONDS)
{
	static const char *const names[] = {"wait-elsewhere", "message-uncounted",
	                                    "renewal-uncounted", "one-confirmation-of-two",
	                                    "older-replica-promoted"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		finds(names[i], PROMISE_VALIDITY, "a hold is believed in");
		is_clean(&model_plant(names[i])->bounds);
	}
}
