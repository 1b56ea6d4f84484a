/* SPDX-License-Identifier: MIT
 * The length of the grace, in URLs and options. */
#include "test.h"
#include "base/url.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void has_grace(const char *url, int64_t option_ms, int64_t grace_ms)
{
	const lk_client_options options = {.grace_ms = option_ms};
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, &options, &target, &why);

	ck_assert_msg(err == LK_OK, "%s: %s", url, why.text);
	ck_assert_int_eq(target.grace_ms, grace_ms);
	lk__target_fini(&target);
}

/* The error begins with the part, and names the limits and how to have none. */
static void refused(const char *url, int64_t option_ms, const char *part, const char *none)
{
	const lk_client_options options = {.grace_ms = option_ms};
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, &options, &target, &why);

	ck_assert_msg(err == LK_EINVALID, "%s, %lld: %s", url, (long long)option_ms,
	              lk_err_name(err));
	ck_assert_msg(!strncmp(why.text, part, strlen(part)) && why.text[strlen(part)] == ':',
	              "%s: '%s' does not begin with '%s:'", url, why.text, part);
	ck_assert_msg(!none || strstr(why.text, none), "%s: %s", url, why.text);
}

TEST(grace_is_10_s_unless_set)
{
	has_grace(NULL, 0, 10000);
	has_grace("local:", 0, 10000);
	has_grace("redis://h", 0, 10000);
	has_grace("redis+unix:///s", 0, 10000);
}

TEST(grace_of_a_url_is_none_or_within_its_limits)
{
	static const struct {
		const char *url;
		int64_t grace_ms;
	} right[] = {
		{"redis://h?grace=0", 0},
		{"redis://h?grace=100", 100},
		{"redis://h?db=1&grace=86400000", 86400000},
		{"redis://h?grace=%31000", 1000},
		{"local:?grace=12345", 12345},
	};
	static const char *const wrong[] = {
		"redis://h?grace=",       "redis://h?grace=99",
		"redis://h?grace=1",      "redis://h?grace=86400001",
		"redis://h?grace=-1",     "redis://h?grace=10s",
		"redis://h?grace=off",    "redis://h?grace=0x100",
		"redis://h?grace=1.5",    "redis://h?grace=99999999999999999999",
		"redis://h?grace=100%00",
	};

	for (size_t i = 0; i < COUNT(right); i++)
		has_grace(right[i].url, 0, right[i].grace_ms);
	for (size_t i = 0; i < COUNT(wrong); i++)
		refused(wrong[i], 0, "grace", NULL);
	refused("redis://h?grace=99", 0, "grace",
	        "must be 100 to 86400000 milliseconds, or 0 for none");
	refused("redis://h?grace=100&grace=100", 0, "grace", NULL);
	refused("redis://h?grace", 0, "url", NULL);
}

/* 0 stands for the default in options, so none has a number of its own. */
TEST(grace_option_wins_over_the_url)
{
	static const int64_t wrong[] = {-2, 1, 99, 86400001, INT64_MIN, INT64_MAX};

	has_grace("redis://h", -1, 0);
	has_grace("redis://h", 100, 100);
	has_grace("redis://h", 86400000, 86400000);
	has_grace("redis://h?grace=500", -1, 0);
	has_grace("redis://h?grace=0", 700, 700);
	has_grace("redis://h?grace=500", 0, 500);
	for (size_t i = 0; i < COUNT(wrong); i++)
		refused("redis://h", wrong[i], "grace_ms",
		        "must be 100 to 86400000 milliseconds, or -1 for none");
}
