/* SPDX-License-Identifier: MIT
 * URLs of a quorum: the meaning of each part, and that the error for a wrong part names it, and no
 * secret. */
#include "url_check.h"
#include "built_with.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const char *places(const struct lk__target *target)
{
	return places_text(target->members, target->member_count);
}

TEST(url_names_all_servers_of_a_quorum)
{
	static const struct {
		const char *url, *places, *text, *user, *password;
		int db;
	} cases[] = {
		{"redis+quorum://h", "h:6379", "h:6379", NULL, NULL, 0},
		{"redis+quorum://h/", "h:6379", "h:6379", NULL, NULL, 0},
		{"redis+quorum://h/7", "h:6379", "h:6379", NULL, NULL, 7},
		{"redis+quorum://h?db=7", "h:6379", "h:6379", NULL, NULL, 7},
		{"redis+quorum://h1:7000,h2,127.0.0.1:3", "h1:7000 h2:6379 127.0.0.1:3",
	         "h1:7000,...", NULL, NULL, 0},
		{"redis+quorum://h:1,h:2,h:3/2", "h:1 h:2 h:3", "h:1,...", NULL, NULL, 2},
		{"redis+quorum://[::1]:70,[fe80::1%25eth0],i",
	         "[::1]:70 [fe80::1%eth0]:6379 i:6379", "[::1]:70,...", NULL, NULL, 0},
		{"redis+quorum://u:a%2Cb@h1,h2,h3", "h1:6379 h2:6379 h3:6379", "h1:6379,...", "u",
	         "a,b", 0},
		{"redis+quorum://:p@h", "h:6379", "h:6379", NULL, "p", 0},
		{"redis+quorum://h?user=u&password=p", "h:6379", "h:6379", "u", "p", 0},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target = parsed(cases[i].url, NULL);

		ck_assert(target.quorum && !target.cluster && !target.local && !target.tls);
		ck_assert_str_eq(places(&target), cases[i].places);
		ck_assert_str_eq(target.text, cases[i].text);
		ck_assert_pstr_eq(target.user, cases[i].user);
		ck_assert_pstr_eq(target.password, cases[i].password);
		ck_assert_int_eq(target.db, cases[i].db);
		ck_assert_ptr_null(target.host);
		ck_assert_ptr_null(target.socket_path);
		ck_assert_ptr_null(target.service);
		ck_assert_ptr_null(target.seeds);
		lk__target_fini(&target);
		ck_assert_ptr_null(target.members);
	}
}

TEST(url_of_another_store_is_of_no_quorum)
{
	static const char *const urls[] = {"redis://h", "redis+unix:///s", "redis+sentinel://h/s",
	                                   "redis+cluster://h", "local:"};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct lk__target target = parsed(urls[i], NULL);

		ck_assert(!target.quorum && !target.members && !target.member_count);
		lk__target_fini(&target);
	}
}

TEST(quorum_is_of_an_odd_number_of_servers)
{
	char url[100] = "redis+quorum://h1";
	struct lk__target target;

	for (int i = 2; i <= 8; i++) {
		char reason[100];
		snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h%d", i);
		snprintf(reason, sizeof(reason), "host: %d servers bear no more failures than %d",
		         i, i - 1);
		if (i == 8)
			refused(url, NULL, "host: more than 7 servers");
		else if (i % 2 == 0)
			refused(url, NULL, reason);
		else
			target = parsed(url, NULL);
		if (i % 2 == 0)
			continue;
		ck_assert_int_eq(target.member_count, i);
		lk__target_fini(&target);
	}
}

TEST(url_of_a_quorum_by_tls)
{
	struct lk__target target;

	if (!LK__TLS) {
		refused("rediss+quorum://h,i,j", NULL, "scheme: rediss");
		return;
	}
	target = parsed("rediss+quorum://h,i,j:7?ca=/c&server_name=n", NULL);
	ck_assert(target.quorum && target.tls);
	ck_assert_str_eq(places(&target), "h:6379 i:6379 j:7");
	ck_assert_str_eq(target.tls_server_name, "n");
	lk__target_fini(&target);
}

TEST(url_of_a_quorum_takes_most_options)
{
	struct lk__target target =
		parsed("redis+quorum://h,i,j?prefix=app&client_name=c&connect_timeout=7"
	               "&command_timeout=8&keepalive=9&lazy=1",
	               NULL);

	ck_assert_str_eq(target.prefix, "app");
	ck_assert_str_eq(target.client_name, "c");
	ck_assert_int_eq(target.connect_timeout_ns, 7000000);
	ck_assert_int_eq(target.command_timeout_ns, 8000000);
	ck_assert_int_eq(target.keepalive_ms, 9);
	ck_assert_int_eq(target.grace_ms, 0);
	ck_assert(target.lazy);
	lk__target_fini(&target);
}

/* Its servers are young for the longest lease, which all clients read from them. */
TEST(quorum_has_no_grace_of_a_client)
{
	const lk_client_options some = {.grace_ms = 500}, none = {.grace_ms = -1};

	refused("redis+quorum://h?grace=500", NULL, "grace: the servers of a quorum");
	refused("redis+quorum://h?grace=0", NULL, "grace: the servers of a quorum");
	refused("redis+quorum://h", &some, "grace_ms: the servers of a quorum");
	refused("redis+quorum://h", &none, "grace_ms: the servers of a quorum");
}

TEST(quorum_waits_for_no_replicas)
{
	const lk_client_options options = {.replicas = 1};
	struct lk__target target = parsed("redis+quorum://h?replicas=0", NULL);

	lk__target_fini(&target);
	refused("redis+quorum://h?replicas=1", NULL, "replicas: a quorum");
	refused("redis+quorum://h", &options, "replicas: a quorum");
}

TEST(options_of_sentinels_are_refused_for_a_quorum)
{
	refused("redis+quorum://h?sentinel_user=u", NULL, "scheme: must be redis+sentinel://");
	refused("redis+quorum://h?sentinelMasterId=s", NULL, "sentinelMasterId: only in");
}

TEST(url_wrong_part_of_a_quorum_is_named)
{
	static const struct {
		const char *url, *start;
	} cases[] = {
		{"redis+quorum://", "host: missing"},
		{"redis+quorum:///", "host: missing"},
		{"redis+quorum://h,i,", "host: missing"},
		{"redis+quorum://,h,i", "host: missing"},
		{"redis+quorum://h,i,h", "host: the same server twice"},
		{"redis+quorum://h,i,h:6379", "host: the same server twice"},
		{"redis+quorum://h;i", "host: "},
		{"redis+quorum://[::1,h,i", "host: "},
		{"redis+quorum://h:0", "port: "},
		{"redis+quorum://h/x", "db: "},
		{"redis+quorum://h/0/", "db: "},
		{"redis+quorum://h/1?db=1", "db: given twice"},
		{"redis+quorum://u@h", "password: "},
		{"redis+quorum://@h", "user: "},
		{"redis+quorum://u:sesame@h,v:sesame@i,j", "url: more than one '@'"},
		{"redis+quorum://u:sesame/x@h", "url: an '@' after the host"},
		{"redis+quorum://h?ca=a", "scheme: must be rediss://"},
		{"redis+quorum:h", "scheme: must be"},
		{"redis-quorum://h", "scheme: must be"},
		{"redis://h,i,j", "host: more than one (a Cluster needs redis+cluster://"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		refused(cases[i].url, NULL, cases[i].start);
}

TEST(target_of_a_quorum_is_aimed_at_one_server)
{
	struct lk__target target = parsed("redis+quorum://h,i:7,j/3", NULL);
	struct lk__target copy = target;

	lk__target_aim(&copy, target.members[1].host, target.members[1].port);
	ck_assert_str_eq(copy.host, "i");
	ck_assert_int_eq(copy.port, 7);
	ck_assert_int_eq(copy.db, 3);
	ck_assert_str_eq(copy.text, "i:7");
	lk__target_fini(&target);
}
