/* SPDX-License-Identifier: MIT
 * URLs of etcd: the meaning of each part, and that the error for a wrong part names it, and no
 * secret. */
#include "url_check.h"
#include "built_with.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

TEST_IF(url_names_members_of_etcd, 20, LK__ETCD)
{
	static const struct {
		const char *url, *places, *text, *user, *password;
	} cases[] = {
		{"etcd://h", "h:2379", "h:2379", NULL, NULL},
		{"etcd://h/", "h:2379", "h:2379", NULL, NULL},
		{"etcd://h1:2379,h2,h3", "h1:2379 h2:2379 h3:2379", "h1:2379,...", NULL, NULL},
		{"etcd://h1,h2:7/?lazy=0", "h1:2379 h2:7", "h1:2379,...", NULL, NULL},
		{"etcd://h:1,h:2", "h:1 h:2", "h:1,...", NULL, NULL},
		{"etcd://[::1]:70,[fe80::1%25eth0]", "[::1]:70 [fe80::1%eth0]:2379", "[::1]:70,...",
	         NULL, NULL},
		{"etcd://u:a%2Cb@h1,h2/", "h1:2379 h2:2379", "h1:2379,...", "u", "a,b"},
		{"etcd://h?user=u&password=p", "h:2379", "h:2379", "u", "p"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target = parsed(cases[i].url, NULL);

		ck_assert(target.etcd && !target.cluster && !target.quorum && !target.local &&
		          !target.tls);
		ck_assert_str_eq(places_text(target.seeds, target.seed_count), cases[i].places);
		ck_assert_str_eq(target.text, cases[i].text);
		ck_assert_pstr_eq(target.user, cases[i].user);
		ck_assert_pstr_eq(target.password, cases[i].password);
		ck_assert_int_eq(target.db, 0);
		ck_assert_int_eq(target.grace_ms, 0);
		ck_assert_ptr_null(target.host);
		ck_assert_ptr_null(target.socket_path);
		ck_assert_ptr_null(target.service);
		ck_assert_ptr_null(target.sentinels);
		ck_assert_ptr_null(target.members);
		lk__target_fini(&target);
		ck_assert_ptr_null(target.seeds);
	}
}

TEST(url_of_another_store_is_of_no_etcd)
{
	static const char *const urls[] = {
		"redis://h",         "redis+unix:///s",  "redis+sentinel://h/s",
		"redis+cluster://h", "redis+quorum://h", "local:"};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct lk__target target = parsed(urls[i], NULL);

		ck_assert(!target.etcd);
		lk__target_fini(&target);
	}
}

TEST_IF(url_takes_sixteen_members_and_no_more, 20, LK__ETCD)
{
	char url[400] = "etcd://h0";
	struct lk__target target;

	for (int i = 1; i < 16; i++)
		snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h%d", i);
	target = parsed(url, NULL);
	ck_assert_int_eq(target.seed_count, 16);
	ck_assert_str_eq(target.seeds[15].host, "h15");
	lk__target_fini(&target);
	snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h16");
	refused(url, NULL, "host: more than 16 members");
}

TEST_IF(url_of_etcd_takes_most_options, 20, LK__ETCD)
{
	const lk_client_options options = {.user = "holder", .password = "store"};
	struct lk__target target = parsed("etcd://h,i?prefix=app&client_name=c&connect_timeout=7"
	                                  "&command_timeout=8&keepalive=9&lazy=1",
	                                  &options);

	ck_assert_str_eq(target.prefix, "app");
	ck_assert_str_eq(target.client_name, "c");
	ck_assert_int_eq(target.connect_timeout_ns, 7000000);
	ck_assert_int_eq(target.command_timeout_ns, 8000000);
	ck_assert_int_eq(target.keepalive_ms, 9);
	ck_assert_str_eq(target.user, "holder");
	ck_assert_str_eq(target.password, "store");
	ck_assert(target.lazy);
	lk__target_fini(&target);
}

/* What means something on Redis only is refused, not ignored. */
TEST_IF(options_of_redis_are_refused_for_etcd, 20, LK__ETCD)
{
	const lk_client_options some = {.grace_ms = 500}, none = {.grace_ms = -1},
				replicas = {.replicas = 1},
				sentinel = {.sentinel_password = "sesame"},
				password = {.password = "sesame"};

	refused("etcd://h?grace=500", NULL, "grace: etcd loses no grants");
	refused("etcd://h?grace=0", NULL, "grace: etcd loses no grants");
	refused("etcd://h", &some, "grace_ms: etcd loses no grants");
	refused("etcd://h", &none, "grace_ms: etcd loses no grants");
	refused("etcd://h?replicas=1", NULL, "replicas: a majority of etcd's members");
	refused("etcd://h?replicas=0", NULL, "replicas: a majority of etcd's members");
	refused("etcd://h?replicas=x", NULL, "replicas: a majority of etcd's members");
	refused("etcd://h", &replicas, "replicas: a majority of etcd's members");
	refused("etcd://h/0", NULL, "path: etcd has no databases");
	refused("etcd://h/app", NULL, "path: etcd has no databases");
	refused("etcd://h?db=0", NULL, "db: etcd has no databases");
	refused("etcd://h?db=x", NULL, "db: etcd has no databases");
	refused("etcd://:sesame@h", NULL, "user: missing");
	refused("etcd://h?password=sesame", NULL, "user: missing");
	refused("etcd://h", &password, "user: missing");
	refused("etcd://h", &sentinel, "scheme: must be redis+sentinel://");
	refused("etcd://h?sentinel_user=u", NULL, "scheme: must be redis+sentinel://");
	refused("etcd://h?sentinelMasterId=s", NULL, "sentinelMasterId: only in");
}

TEST_IF(url_wrong_part_of_etcd_is_named, 20, LK__ETCD)
{
	static const struct {
		const char *url, *start;
	} cases[] = {
		{"etcd://", "host: missing"},
		{"etcd:///", "host: missing"},
		{"etcd://h,", "host: missing"},
		{"etcd://,h", "host: missing"},
		{"etcd://h,i,h", "host: the same member twice"},
		{"etcd://h,h:2379", "host: the same member twice"},
		{"etcd://h;i", "host: "},
		{"etcd://[::1,h", "host: "},
		{"etcd://h:0", "port: "},
		{"etcd://h,i:65536", "port: "},
		{"etcd://u@h", "password: "},
		{"etcd://h?user=u", "password: "},
		{"etcd://@h", "user: "},
		{"etcd://u:sesame@h,v:sesame@i", "url: more than one '@'"},
		{"etcd://u:sesame/x@h", "url: an '@' after the host"},
		{"etcd://h?ca=a", "scheme: must be etcds://"},
		{"etcd:h", "scheme: must be"},
		{"etcd3://h", "scheme: must be"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		refused(cases[i].url, NULL, cases[i].start);
}

TEST_IF(url_of_etcd_takes_tls, 20, LK__ETCD)
{
	struct lk__target target;

	if (!LK__TLS) {
		refused("etcds://h", NULL, "scheme: etcds: this library was built without TLS");
		return;
	}
	target = parsed("etcds://h1,h2?ca=c&cert=d&key=k&server_name=n&verify=none", NULL);
	ck_assert(target.etcd && target.tls && target.tls_unverified);
	ck_assert_str_eq(target.tls_ca, "c");
	ck_assert_str_eq(target.tls_cert, "d");
	ck_assert_str_eq(target.tls_key, "k");
	ck_assert_str_eq(target.tls_server_name, "n");
	ck_assert_str_eq(places_text(target.seeds, target.seed_count), "h1:2379 h2:2379");
	lk__target_fini(&target);
	refused("etcds://h?verify=no", NULL, "verify: ");
	refused("etcds://h?key=k", NULL, "cert: missing");
}

TEST_IF(url_of_etcd_needs_a_library_with_it, 20, !LK__ETCD)
{
	refused("etcd://h", NULL, "scheme: etcd: this library was built without it (nghttp2");
	refused("etcds://h", NULL, "scheme: etcd: this library was built without it (nghttp2");
}

TEST_IF(target_of_etcd_is_aimed_at_a_member, 20, LK__ETCD)
{
	struct lk__target target = parsed("etcd://h,i:7", NULL), copy = target;

	lk__target_aim(&copy, target.seeds[1].host, target.seeds[1].port);
	ck_assert_str_eq(copy.host, "i");
	ck_assert_int_eq(copy.port, 7);
	ck_assert_str_eq(copy.text, "i:7");
	lk__target_fini(&target);
}
