/* SPDX-License-Identifier: MIT
 * The model of etcd by itself: leases, members, terms.  What was seen on real servers: 3.4.23 with
 * the leader's disk frozen answers keep-alives of a lease that is gone, and revokes a lease that
 * was renewed; 3.5.35 and 3.6.16 do neither. */
#include "etcd_model_fixture.h"

static const struct em_setup plain = {0}, three = {.members = 3},
			     old_three = {.members = 3, .is_3_4 = true};

#define SEEDS 40

/* ---- Leases ------------------------------------------------------------------------------- */

TEST(lease_expires_never_early_and_up_to_half_a_second_late)
{
	int64_t earliest = INT64_MAX, latest = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		int64_t granted_ns, gone_ns = 0;
		start_seeded(&plain, test_seed() + seed);
		granted_ns = world.now_ns;
		ck_assert_int_eq(put_at(0, "a", "1", grant(3)), 0);
		while (*get("a")) {
			pass(10 * MS);
			gone_ns = world.now_ns - granted_ns;
			ck_assert(gone_ns < 10 * S);
		}
		earliest = gone_ns < earliest ? gone_ns : earliest;
		latest = gone_ns > latest ? gone_ns : latest;
		stop();
	}
	ck_assert_int_ge(earliest, 3 * S);
	ck_assert_int_lt(earliest, 3200 * MS);
	ck_assert_int_gt(latest, 3300 * MS);
	ck_assert_int_le(latest, 3510 * MS);
}

TEST(lease_is_kept_alive_and_an_expired_one_waits_for_its_end)
{
	uint64_t stream;
	int64_t lease;

	start(&plain);
	lease = grant(4);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	stream = open_stream(0, KEEP_ALIVE);
	for (int i = 0; i < 5; i++) {
		pass(3 * S);
		ck_assert_int_eq(keep_alive(stream, lease), 4);
	}
	pass(4 * S);
	if (*get("a")) {
		ck_assert_int_eq(keep_alive(stream, lease), -1);
		pass(500 * MS);
		ck_assert(took(stream));
		ck_assert_int_eq(ttl_answered(), 0);
	}
	ck_assert_str_eq(get("a"), "");
	ck_assert_int_eq(keep_alive(stream, lease), 0);
	ck_assert_int_eq(em_lease_ttl_s(world.model, lease), 0);
	stop();
}

TEST(expiry_is_one_revision_and_an_event_of_all_keys)
{
	int64_t lease, revision = 0;
	uint64_t stream;

	start(&plain);
	lease = grant(2);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	ck_assert_int_eq(put_at(0, "b", "1", lease), 0);
	ck_assert_int_eq(put_at(0, "b", "2", 0), 0);
	stream = watch_at(0, "a", 0);
	pass(3 * S);
	ck_assert_uint_eq(events(stream, &revision), 1);
	ck_assert_int_eq(revision, 5);
	ck_assert_int_eq(em_revision(world.model), 5);
	ck_assert_str_eq(get("b"), "2");
	stop();
}

/* ---- Terms -------------------------------------------------------------------------------- */

TEST(new_leader_gives_leases_their_whole_time)
{
	int64_t term;

	start(&three);
	ck_assert_int_eq(put_at(0, "a", "1", grant(5)), 0);
	term = term_of_put(1);
	ck_assert_int_eq(term_of_put(0), term);
	pass(4900 * MS);
	ck_assert(em_elect(world.model, 2));
	ck_assert(!em_elect(world.model, 2));
	pass(100 * MS);
	ck_assert_int_eq(em_leader(world.model), 2);
	ck_assert_int_eq(term_of_put(0), term + 1);
	pass(5800 * MS); /* 5 s, and an election timeout of 1 s */
	ck_assert_str_eq(get("a"), "1");
	pass(700 * MS);
	ck_assert_str_eq(get("a"), "");
	stop();
}

TEST(dead_leader_is_replaced_and_the_dead_one_comes_back)
{
	start(&three);
	put("a", "1");
	em_kill(world.model, 0);
	ck_assert(took(0)); /* the connection was closed */
	ck_assert_uint_eq(em_connect(world.model, 0), 0);
	ck_assert_int_eq(put_at(1, "a", "2", 0), NONE);
	pass(3 * S);
	ck_assert_int_ge(em_leader(world.model), 1);
	ck_assert_int_eq(put_at(1, "a", "3", 0), 0);
	em_start(world.model, 0);
	pass(S);
	world.connections[0] = em_connect(world.model, 0);
	ck_assert_str_eq(get("a"), "3");
	stop();
}

TEST(restarted_server_keeps_keys_and_leases)
{
	start(&plain);
	ck_assert_int_eq(put_at(0, "a", "1", grant(5)), 0);
	pass(4 * S);
	em_kill(world.model, 0);
	pass(20 * S);
	em_start(world.model, 0);
	pass(3 * S);
	world.connections[0] = em_connect(world.model, 0);
	ck_assert_str_eq(get("a"), "1");
	pass(6 * S);
	ck_assert_str_eq(get("a"), "");
	stop();
}

/* ---- A frozen leader ---------------------------------------------------------------------- */

TEST(old_frozen_leader_answers_keep_alives_of_a_lease_that_is_gone)
{
	uint64_t stream;
	int64_t lease, ttl_s;

	start(&old_three);
	lease = grant(4);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	stream = open_stream(0, KEEP_ALIVE);
	em_freeze(world.model, 0, true);
	for (int i = 0; i < 9; i++) {
		pass(S);
		ttl_s = keep_alive(stream, lease);
		ck_assert_int_eq(ttl_s, 4);
	}
	ck_assert_str_eq(get_at(1, "a", 0, false), "");
	ck_assert_str_eq(get_at(0, "a", 0, true), "1"); /* what it has applied */
	/* What it revokes after the thaw is gone already. */
	em_freeze(world.model, 0, false);
	pass(S);
	ck_assert_int_eq(keep_alive(stream, lease), 0);
	stop();
}

TEST(old_frozen_leader_revokes_a_renewed_lease_after_the_thaw)
{
	uint64_t stream;
	int64_t lease;

	start(&old_three);
	lease = grant(4);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	em_freeze(world.model, 0, true);
	pass(2500 * MS);
	ck_assert_int_ge(em_leader(world.model), 1);
	stream = open_stream(em_leader(world.model), KEEP_ALIVE);
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(keep_alive(stream, lease), 4);
		pass(S);
	}
	ck_assert_str_eq(get_at(1, "a", 0, false), "1");
	em_freeze(world.model, 0, false);
	pass(100 * MS);
	ck_assert_str_eq(get_at(1, "a", 0, false), "");
	stop();
}

TEST(newer_frozen_leader_is_silent_and_revokes_nothing)
{
	uint64_t frozen, stream;
	int64_t lease;

	start(&three);
	lease = grant(4);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	frozen = open_stream(0, KEEP_ALIVE);
	em_freeze(world.model, 0, true);
	ck_assert_int_eq(keep_alive(frozen, lease), -1);
	pass(2500 * MS);
	stream = open_stream(em_leader(world.model), KEEP_ALIVE);
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(keep_alive(stream, lease), 4);
		pass(S);
	}
	ck_assert(took(frozen));
	refused(2, "not a primary lessor");
	em_freeze(world.model, 0, false);
	pass(S);
	ck_assert_str_eq(get("a"), "1");
	stop();
}

/* The check of newer versions is made by the member that the client asks, if it leads. */
TEST(frozen_leader_answers_what_another_member_forwards)
{
	uint64_t stream;
	int64_t lease;

	start(&three);
	lease = grant(4);
	stream = open_stream(1, KEEP_ALIVE);
	ck_assert_int_eq(keep_alive(stream, lease), 4);
	em_freeze(world.model, 0, true);
	ck_assert_int_eq(keep_alive(stream, lease), 4);
	em_cut(world.model, 1, true);
	ck_assert_int_eq(keep_alive(stream, lease), -1);
	stop();
}

/* As seen with 3.6.16.  CheckQuorum ends it within two election timeouts. */
TEST(leader_without_its_peers_renews_until_it_steps_down)
{
	uint64_t stream;
	int64_t lease, answered_ns = 0;

	start(&three);
	lease = grant(60);
	stream = open_stream(0, KEEP_ALIVE);
	em_cut(world.model, 0, true);
	for (int i = 0; i < 30 && keep_alive(stream, lease) == 60; i++) {
		pass(100 * MS);
		answered_ns += 100 * MS;
	}
	ck_assert_int_ge(answered_ns, S);
	ck_assert_int_le(answered_ns, 2 * S);
	stop();
}

/* What it has found expired is in its own log, and lost with its term. */
TEST(leader_without_its_peers_revokes_nothing)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		start_seeded(&three, seed);
		ck_assert_int_eq(put_at(0, "a", "1", grant(2)), 0);
		pass(1400 * MS);
		em_cut(world.model, 0, true);
		pass(3 * S);
		ck_assert_int_ge(em_leader(world.model), 1);
		em_cut(world.model, 0, false);
		pass(100 * MS);
		/* The new leader began with the whole time and an election timeout. */
		ck_assert_str_eq(get("a"), "1");
		stop();
	}
}

TEST(leader_that_was_deposed_after_its_check_revokes_early)
{
	uint64_t stream;
	int64_t lease;

	start(&three);
	lease = grant(4);
	ck_assert_int_eq(put_at(0, "a", "1", lease), 0);
	em_hold_revokes(world.model, 0, true);
	pass(5 * S);
	ck_assert_str_eq(get("a"), "1");
	em_elect(world.model, 1);
	pass(100 * MS);
	stream = open_stream(1, KEEP_ALIVE);
	ck_assert_int_eq(keep_alive(stream, lease), 4);
	em_hold_revokes(world.model, 0, false);
	ck_assert_str_eq(get("a"), "");
	ck_assert_int_eq(keep_alive(stream, lease), 0);
	stop();
}

/* ---- Members that are late, cut off, or without a leader ------------------------------------ */

TEST(lagging_member_reads_what_it_has_applied)
{
	uint64_t call, stream;
	int64_t revision;

	start(&three);
	put("a", "1");
	stream = watch_at(1, "a", 0);
	em_lag(world.model, 1, true);
	put("a", "2");
	put("a", "3");
	ck_assert_str_eq(get_at(1, "a", 0, true), "1");
	ck_assert(get_at(1, "a", 4, true) == NULL);
	range_of("a", 0, false);
	call = begin_call(1, KV "Range");
	ck_assert(!took(call));
	ck_assert_uint_eq(events(stream, &revision), 0);
	em_lag(world.model, 1, false);
	ck_assert(took(call));
	ck_assert_int_eq(world.output.status, 0);
	ck_assert_uint_eq(events(stream, &revision), 1);
	ck_assert_int_eq(revision, 3);
	ck_assert_uint_eq(events(stream, &revision), 1);
	ck_assert_int_eq(revision, 4);
	stop();
}

TEST(member_without_leader_is_silent_and_ends_streams)
{
	uint64_t call, stream, alive, plain_stream;

	start(&three);
	put("a", "1");
	stream = watch_at(1, "a", 0);
	alive = open_stream(1, KEEP_ALIVE);
	plain_stream = em_open(world.model, world.connections[1], WATCH, NULL);
	em_cut(world.model, 1, true);
	range_of("a", 0, false);
	call = begin_call(1, KV "Range");
	ck_assert_str_eq(get_at(1, "a", 0, true), "1");
	pass(2 * S);
	ck_assert(!took(call));
	ck_assert(!took(stream));
	range_of("a", 0, false);
	em_call(world.model, world.connections[1], KV "Range",
	        &(struct em_metadata){.has_leader = true}, written());
	pass(5 * S);
	ck_assert(took(call));
	refused(14, "etcdserver: request timed out");
	ck_assert(took(stream));
	refused(14, "etcdserver: no leader");
	ck_assert(took(alive));
	refused(14, "etcdserver: no leader");
	ck_assert(!took(plain_stream));
	stream = open_stream(1, WATCH);
	ck_assert(took(stream));
	refused(14, "etcdserver: no leader");
	ck_assert_str_eq(get("a"), "1"); /* the others go on */
	em_cut(world.model, 1, false);
	pass(100 * MS);
	ck_assert_str_eq(get_at(1, "a", 0, false), "1");
	stop();
}

TEST(read_that_waits_may_end_with_its_leader)
{
	int changed = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint64_t call;
		start_seeded(&three, seed);
		em_freeze(world.model, 0, true);
		range_of("a", 0, false);
		call = begin_call(1, KV "Range");
		ck_assert(!took(call));
		pass(4 * S);
		ck_assert(took(call));
		if (world.output.status) {
			refused(14, "etcdserver: leader changed");
			changed++;
		}
		ck_assert_str_eq(get_at(1, "a", 0, false), "");
		stop();
	}
	ck_assert_int_gt(changed, 0);
	ck_assert_int_lt(changed, SEEDS);
}

/* ---- Writes that find no leader ---------------------------------------------------------------
 */

static void send_put(void)
{
	lk__etcd_put_put(request(), &(struct lk__etcd_put){.key = lk__bytes_of("a"),
	                                                   .value = lk__bytes_of("1")});
}

/* As seen with 3.4.23: three such writes were executed when the leader went on. */
TEST(write_that_a_stopped_leader_got_is_executed_later_or_not)
{
	int executed = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint64_t call;
		start_seeded(&three, seed);
		em_stop(world.model, 0, true);
		send_put();
		call = begin_call(1, KV "Put");
		pass(6900 * MS);
		ck_assert(!took(call));
		pass(100 * MS);
		ck_assert(took(call));
		refused(14,
		        "etcdserver: request timed out, possibly due to previous leader failure");
		ck_assert_str_eq(get_at(1, "a", 0, false), "");
		em_stop(world.model, 0, false);
		pass(100 * MS);
		executed += *get("a") != '\0';
		stop();
	}
	ck_assert_int_gt(executed, 0);
	ck_assert_int_lt(executed, SEEDS);
}

TEST(write_of_a_leader_that_was_replaced_is_lost)
{
	uint64_t call;

	start(&three);
	em_cut(world.model, 0, true);
	send_put();
	call = begin_call(0, KV "Put");
	pass(8 * S);
	ck_assert(took(call));
	refused(14, "etcdserver: request timed out");
	em_cut(world.model, 0, false);
	pass(S);
	ck_assert_str_eq(get("a"), "");
	stop();
}

TEST(write_of_a_leader_that_is_not_replaced_is_executed)
{
	uint64_t call;

	start(&three);
	em_cut(world.model, 0, true);
	send_put();
	call = begin_call(0, KV "Put");
	pass(500 * MS);
	ck_assert(!took(call));
	em_cut(world.model, 0, false);
	ck_assert(took(call));
	ck_assert_int_eq(world.output.status, 0);
	ck_assert_str_eq(get("a"), "1");
	stop();
}

TEST(write_without_leader_is_never_executed)
{
	const struct em_setup *const setups[] = {&three, &old_three};

	for (int i = 0; i < 2; i++) {
		uint64_t call;
		start(setups[i]);
		em_stop(world.model, 0, true);
		em_stop(world.model, 2, true);
		pass(3 * S);
		send_put();
		call = begin_call(1, KV "Put");
		pass(7 * S);
		ck_assert(took(call));
		refused(i ? 2 : 4, "context deadline exceeded");
		em_stop(world.model, 0, false);
		em_stop(world.model, 2, false);
		pass(4 * S);
		ck_assert_str_eq(get("a"), "");
		stop();
	}
}

/* The leader that a member knows, 0 = none. */
static uint64_t known_leader(int member)
{
	struct lk__etcd_status_answer status;

	request();
	ck_assert_int_eq(call(member, "/etcdserverpb.Maintenance/Status"), 0);
	read_as(&lk__etcd_status_shape, &status);
	return status.leader;
}

TEST(write_waits_for_the_next_leader)
{
	int waited = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint64_t call;
		start_seeded(&three, seed);
		em_stop(world.model, 0, true);
		while (known_leader(1) == 1)
			pass(10 * MS);
		if (!known_leader(1)) {
			send_put();
			call = begin_call(1, KV "Put");
			ck_assert(!took(call));
			pass(3 * S);
			ck_assert(took(call));
			ck_assert_int_eq(world.output.status, 0);
			waited++;
		}
		stop();
	}
	ck_assert_int_gt(waited, 0);
}

TEST(stopped_leader_ends_keep_alives_that_were_forwarded)
{
	uint64_t stream, own;
	int64_t lease;

	start(&three);
	lease = grant(60);
	stream = open_stream(1, KEEP_ALIVE);
	own = open_stream(0, KEEP_ALIVE);
	em_stop(world.model, 0, true);
	ck_assert_int_eq(keep_alive(stream, lease), -1);
	ck_assert_int_eq(keep_alive(own, lease), -1);
	pass(6 * S);
	ck_assert_int_ge(em_leader(world.model), 1);
	ck_assert(!took(stream));
	pass(S);
	ck_assert(took(stream));
	refused(14, "etcdserver: request timed out");
	ck_assert_int_eq(keep_alive(open_stream(1, KEEP_ALIVE), lease), 60);
	em_stop(world.model, 0, false);
	pass(100 * MS);
	ck_assert(took(own));
	ck_assert_int_eq(ttl_answered(), 60);
	stop();
}

TEST(majority_lost_means_no_leader_until_it_is_back)
{
	uint64_t read;

	start(&three);
	ck_assert_int_eq(put_at(0, "a", "1", grant(3)), 0);
	em_kill(world.model, 1);
	em_kill(world.model, 2);
	pass(10 * S);
	ck_assert_int_eq(em_leader(world.model), -1);
	request();
	ck_assert_int_eq(call(0, "/etcdserverpb.Maintenance/Status"), 0);
	range_of("a", 0, false);
	read = begin_call(0, KV "Range");
	pass(3 * S);
	ck_assert(!took(read));
	em_start(world.model, 2);
	pass(3 * S);
	ck_assert_int_ne(em_leader(world.model), -1);
	ck_assert_str_eq(get("a"), "1"); /* its lease has its whole time again */
	pass(5 * S);
	ck_assert_str_eq(get("a"), "");
	stop();
}
