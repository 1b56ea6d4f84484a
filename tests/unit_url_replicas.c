/* SPDX-License-Identifier: MIT
 * The number of replicas that must confirm a grant, in URLs and options, and how long the server
 * waits for them. */
#include "test.h"
#include "base/url.h"
#include "core/session.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void has_replicas(const char *url, int64_t option, uint32_t replicas)
{
	const lk_client_options options = {.replicas = option};
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, &options, &target, &why);

	ck_assert_msg(err == LK_OK, "%s: %s", url, why.text);
	ck_assert_uint_eq(target.replicas, replicas);
	lk__target_fini(&target);
}

static void refused(const char *url, int64_t option, const char *text)
{
	const lk_client_options options = {.replicas = option};
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, &options, &target, &why);

	ck_assert_msg(err == LK_EINVALID, "%s, %lld: %s", url, (long long)option, lk_err_name(err));
	ck_assert_str_eq(why.text, text);
}

TEST(no_replica_need_confirm_unless_set)
{
	has_replicas(NULL, 0, 0);
	has_replicas("redis://h", 0, 0);
	has_replicas("redis+sentinel://h/s", 0, 0);
}

TEST(replicas_of_a_url_are_within_their_limits)
{
	static const char *const wrong[] = {"redis://h?replicas=", "redis://h?replicas=-1",
	                                    "redis://h?replicas=101", "redis://h?replicas=all",
	                                    "redis://h?replicas=1.0"};

	has_replicas("redis://h?replicas=0", 0, 0);
	has_replicas("redis://h?replicas=100", 0, 100);
	has_replicas("redis+sentinel://h/s?replicas=%32", 0, 2);
	has_replicas("local:?replicas=0", 0, 0);
	for (size_t i = 0; i < COUNT(wrong); i++)
		refused(wrong[i], 0, "replicas: must be 0 to 100");
	refused("redis://h?replicas=1&replicas=1", 0, "replicas: given twice");
}

TEST(private_server_has_no_replicas)
{
	refused("local:?replicas=1", 0, "replicas: the private server of local: has none");
	refused("local:", 1, "replicas: the private server of local: has none");
	refused(NULL, 1, "replicas: the private server of local: has none");
}

TEST(replicas_option_wins_over_the_url)
{
	has_replicas("redis://h", 100, 100);
	has_replicas("redis://h?replicas=1", 2, 2);
	has_replicas("redis://h?replicas=1", 0, 1);
	refused("redis://h", -1, "replicas: must be 0 to 100");
	refused("redis://h", 101, "replicas: must be 0 to 100");
	refused("redis://h", INT64_MAX, "replicas: must be 0 to 100");
}

TEST(server_waits_for_half_a_command_timeout_and_a_second_at_most)
{
	static const struct {
		int64_t command_timeout_ms, replicas_ms;
	} rows[] = {{2000, 1000}, {1999, 999}, {60000, 1000}, {300, 150},
	            {200, 50},    {3, 1},      {1, 1}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct lk__session session;
		lk__session_init(&session, 1000000000, rows[i].command_timeout_ms * 1000000);
		lk__session_need_replicas(&session, 3);
		ck_assert_uint_eq(session.replicas, 3);
		ck_assert_int_eq(session.replicas_ms, rows[i].replicas_ms);
	}
}
