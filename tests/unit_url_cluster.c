/* SPDX-License-Identifier: MIT
 * URLs of a Redis Cluster: the meaning of each part, and that the error for a wrong part names it,
 * and no secret. */
#include "url_check.h"
#include "built_with.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const char *places(const struct lk__target *target)
{
	return places_text(target->seeds, target->seed_count);
}

TEST(url_names_nodes_of_a_cluster)
{
	static const struct {
		const char *url, *places, *text, *user, *password;
	} cases[] = {
		{"redis+cluster://h", "h:6379", "h:6379", NULL, NULL},
		{"redis+cluster://h/", "h:6379", "h:6379", NULL, NULL},
		{"redis+cluster://h/0", "h:6379", "h:6379", NULL, NULL},
		{"redis+cluster://h?db=0", "h:6379", "h:6379", NULL, NULL},
		{"redis+cluster://h1:7000,h2,127.0.0.1:3", "h1:7000 h2:6379 127.0.0.1:3",
	         "h1:7000,...", NULL, NULL},
		{"redis+cluster://h:1,h:2", "h:1 h:2", "h:1,...", NULL, NULL},
		{"redis+cluster://[::1]:70,[fe80::1%25eth0]", "[::1]:70 [fe80::1%eth0]:6379",
	         "[::1]:70,...", NULL, NULL},
		{"redis+cluster://u:a%2Cb@h1,h2/", "h1:6379 h2:6379", "h1:6379,...", "u", "a,b"},
		{"redis+cluster://u:a,b@h1,h2", "h1:6379 h2:6379", "h1:6379,...", "u", "a,b"},
		{"redis+cluster://:p@h", "h:6379", "h:6379", NULL, "p"},
		{"redis+cluster://h?user=u&password=p", "h:6379", "h:6379", "u", "p"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target = parsed(cases[i].url, NULL);

		ck_assert(target.cluster && !target.local && !target.tls);
		ck_assert_str_eq(places(&target), cases[i].places);
		ck_assert_str_eq(target.text, cases[i].text);
		ck_assert_pstr_eq(target.user, cases[i].user);
		ck_assert_pstr_eq(target.password, cases[i].password);
		ck_assert_int_eq(target.db, 0);
		ck_assert_ptr_null(target.host);
		ck_assert_ptr_null(target.socket_path);
		ck_assert_ptr_null(target.service);
		ck_assert_ptr_null(target.sentinels);
		lk__target_fini(&target);
		ck_assert_ptr_null(target.seeds);
	}
}

TEST(url_of_another_store_is_of_no_cluster)
{
	static const char *const urls[] = {"redis://h", "redis+unix:///s", "redis+sentinel://h/s",
	                                   "local:"};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct lk__target target = parsed(urls[i], NULL);

		ck_assert(!target.cluster && !target.seeds && !target.seed_count);
		lk__target_fini(&target);
	}
}

TEST(url_takes_sixteen_nodes_and_no_more)
{
	char url[400] = "redis+cluster://h0";
	struct lk__target target;

	for (int i = 1; i < 16; i++)
		snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h%d", i);
	target = parsed(url, NULL);
	ck_assert_int_eq(target.seed_count, 16);
	ck_assert_str_eq(target.seeds[15].host, "h15");
	lk__target_fini(&target);
	snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h16");
	refused(url, NULL, "host: more than 16 nodes");
}

/* An ignored database would be another store, where every lock is free. */
TEST(url_of_a_cluster_has_only_database_0)
{
	static const char *const urls[] = {
		"redis+cluster://h/1",     "redis+cluster://h,i/15",  "redis+cluster://h/x",
		"redis+cluster://h/0/",    "redis+cluster://h//",     "redis+cluster://h?db=1",
		"redis+cluster://h/?db=x", "redis+cluster://h?db=-1",
	};

	for (size_t i = 0; i < COUNT(urls); i++)
		refused(urls[i], NULL, "db: a Cluster has only database 0");
	refused("redis+cluster://h/0?db=0", NULL, "db: given twice");
}

TEST(url_of_a_cluster_takes_all_options)
{
	struct lk__target target =
		parsed("redis+cluster://h,i?prefix=app&client_name=c&connect_timeout=7"
	               "&command_timeout=8&keepalive=9&grace=500&replicas=2&lazy=1",
	               NULL);

	ck_assert_str_eq(target.prefix, "app");
	ck_assert_str_eq(target.client_name, "c");
	ck_assert_int_eq(target.connect_timeout_ns, 7000000);
	ck_assert_int_eq(target.command_timeout_ns, 8000000);
	ck_assert_int_eq(target.keepalive_ms, 9);
	ck_assert_int_eq(target.grace_ms, 500);
	ck_assert_uint_eq(target.replicas, 2);
	ck_assert(target.lazy);
	lk__target_fini(&target);
	target = parsed("redis+cluster://h", NULL);
	ck_assert_int_eq(target.grace_ms, 10000);
	lk__target_fini(&target);
}

static int no_address(void *arg, const char *host, int port, char host_out[LK_HOST_SIZE],
                      int *port_out)
{
	(void)arg, (void)host, (void)port, (void)host_out, (void)port_out;
	return -1;
}

TEST(options_of_a_program_apply_to_a_cluster)
{
	const lk_client_options options = {.user = "holder",
	                                   .password = "store",
	                                   .replicas = 1,
	                                   .grace_ms = -1,
	                                   .resolve = no_address};
	struct lk__target target = parsed("redis+cluster://u:p@h?grace=400", &options);

	ck_assert_str_eq(target.user, "holder");
	ck_assert_str_eq(target.password, "store");
	ck_assert_uint_eq(target.replicas, 1);
	ck_assert_int_eq(target.grace_ms, 0);
	lk__target_fini(&target);
}

TEST(options_of_sentinels_are_refused_for_a_cluster)
{
	static const char sentinel[] = "scheme: must be redis+sentinel://";
	const lk_client_options password = {.sentinel_password = "sesame"};

	refused("redis+cluster://h", &password, sentinel);
	refused("redis+cluster://h?sentinel_user=u", NULL, sentinel);
	refused("redis+cluster://h?sentinelMasterId=s", NULL, "sentinelMasterId: only in");
}

TEST(url_wrong_part_of_a_cluster_is_named)
{
	static const struct {
		const char *url, *start;
	} cases[] = {
		{"redis+cluster://", "host: missing"},
		{"redis+cluster:///", "host: missing"},
		{"redis+cluster://h,", "host: missing"},
		{"redis+cluster://,h", "host: missing"},
		{"redis+cluster://h,,i", "host: missing"},
		{"redis+cluster://h,i,h", "host: the same node twice"},
		{"redis+cluster://h,h:6379", "host: the same node twice"},
		{"redis+cluster://h;i", "host: "},
		{"redis+cluster://::1", "host: "},
		{"redis+cluster://[::1,h", "host: "},
		{"redis+cluster://h:0", "port: "},
		{"redis+cluster://h,i:65536", "port: "},
		{"redis+cluster://u@h", "password: "},
		{"redis+cluster://h?user=u", "password: "},
		{"redis+cluster://@h", "user: "},
		{"redis+cluster://u:sesame@h,v:sesame@i", "url: more than one '@'"},
		{"redis+cluster://u:sesame/x@h", "url: an '@' after the host"},
		{"redis+cluster://h?ca=a", "scheme: must be rediss://"},
		{"redis+cluster:h", "scheme: must be"},
		{"redis-cluster://h", "scheme: must be"},
		{"redis+clusters://h", "scheme: must be"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		refused(cases[i].url, NULL, cases[i].start);
}

TEST(url_of_a_long_host_shows_what_fits)
{
	char url[400] = "redis+cluster://";
	struct lk__target target;

	memset(url + strlen(url), 'h', LK__HOST_MAX);
	snprintf(url + strlen(url), sizeof(url) - strlen(url), ",i");
	target = parsed(url, NULL);
	ck_assert_uint_eq(strlen(target.seeds[0].host), LK__HOST_MAX);
	ck_assert_uint_lt(strlen(target.text), sizeof(target.text));
	ck_assert_str_eq(target.text + strlen(target.text) - 4, "h...");
	lk__target_fini(&target);
}

TEST_IF(url_of_a_cluster_takes_tls, 20, LK__TLS)
{
	struct lk__target target =
		parsed("rediss+cluster://h1,h2?ca=c&cert=d&key=k&server_name=n&verify=none", NULL);

	ck_assert(target.cluster && target.tls && target.tls_unverified);
	ck_assert_str_eq(target.tls_ca, "c");
	ck_assert_str_eq(target.tls_cert, "d");
	ck_assert_str_eq(target.tls_key, "k");
	ck_assert_str_eq(target.tls_server_name, "n");
	ck_assert_str_eq(places(&target), "h1:6379 h2:6379");
	lk__target_fini(&target);
	refused("rediss+cluster://h?verify=no", NULL, "verify: ");
	refused("rediss+cluster://h?key=k", NULL, "cert: missing");
}

/* For the dial of a node that the URL does not name. */
TEST(copy_leads_to_a_node)
{
	char host[] = "::1";
	struct lk__target target = parsed("redis+cluster://h1,h2", NULL), copy = target;

	lk__target_aim(&copy, host, 7001);
	ck_assert_ptr_eq(copy.host, host);
	ck_assert_int_eq(copy.port, 7001);
	ck_assert_str_eq(copy.text, "[::1]:7001");
	ck_assert_str_eq(target.text, "h1:6379,...");
	lk__target_fini(&target);
}
