/* SPDX-License-Identifier: MIT
 * URLs and options: the meaning of each part, and that the error for a wrong part names it. */
#include "test.h"
#include "base/url.h"
#include "built_with.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct lk__target parsed(const char *url)
{
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, NULL, &target, &why);

	ck_assert_msg(err == LK_OK, "%s: %s", url ? url : "NULL", why.text);
	return target;
}

static void refused_with(const char *url, const lk_client_options *options, const char *part)
{
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, options, &target, &why);

	ck_assert_msg(err == LK_EINVALID, "%s: %s", url, lk_err_name(err));
	ck_assert_msg(!strncmp(why.text, part, strlen(part)) && why.text[strlen(part)] == ':',
	              "%s: '%s' does not begin with '%s:'", url, why.text, part);
	ck_assert_msg(!strstr(why.text, "sesame"), "%s: %s", url, why.text);
	ck_assert_int_eq(why.err, LK_EINVALID);
	ck_assert_ptr_null(target.host);
	ck_assert_ptr_null(target.password);
}

static void refused(const char *url, const char *part)
{
	refused_with(url, NULL, part);
}

TEST(url_local_is_the_default)
{
	static const char *const urls[] = {NULL, "local:"};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct lk__target target = parsed(urls[i]);

		ck_assert(target.local);
		ck_assert_ptr_null(target.host);
		ck_assert_ptr_null(target.user);
		ck_assert_ptr_null(target.password);
		ck_assert_int_eq(target.db, 0);
		ck_assert_str_eq(target.prefix, "lk");
		ck_assert_str_eq(target.client_name, "latchkey");
		ck_assert_str_eq(target.text, "local:");
		ck_assert_int_eq(target.connect_timeout_ns, 5000 * MS);
		ck_assert_int_eq(target.command_timeout_ns, 2000 * MS);
		ck_assert_int_eq(target.keepalive_ms, 15000);
		lk__target_fini(&target);
	}
}

TEST(url_local_takes_options)
{
	struct lk__target target = parsed("local:?prefix=app&db=3");

	ck_assert(target.local);
	ck_assert_str_eq(target.prefix, "app");
	ck_assert_int_eq(target.db, 3);
	ck_assert(!target.lazy);
	lk__target_fini(&target);
}

TEST(url_names_host_port_db)
{
	static const struct {
		const char *url, *host, *text;
		int port, db;
	} cases[] = {
		{"redis://h", "h", "h:6379", 6379, 0},
		{"redis://h/", "h", "h:6379", 6379, 0},
		{"redis://127.0.0.1:1", "127.0.0.1", "127.0.0.1:1", 1, 0},
		{"redis://a.b-c_d:65535/15", "a.b-c_d", "a.b-c_d:65535", 65535, 15},
		{"redis://h/2147483647", "h", "h:6379", 6379, 2147483647},
		{"redis://h?db=2", "h", "h:6379", 6379, 2},
		{"redis://h/?db=%32", "h", "h:6379", 6379, 2},
		{"redis://[::1]", "::1", "[::1]:6379", 6379, 0},
		{"redis://u:p@[::1]:70/4", "::1", "[::1]:70", 70, 4},
		{"redis://[fe80::1%25eth0]:7", "fe80::1%eth0", "[fe80::1%eth0]:7", 7, 0},
		{"redis://[::ffff:1.2.3.4]", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]:6379", 6379, 0},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target = parsed(cases[i].url);

		ck_assert(!target.local);
		ck_assert_ptr_null(target.socket_path);
		ck_assert_str_eq(target.host, cases[i].host);
		ck_assert_int_eq(target.port, cases[i].port);
		ck_assert_int_eq(target.db, cases[i].db);
		ck_assert_str_eq(target.text, cases[i].text);
		lk__target_fini(&target);
	}
}

TEST(url_names_user_and_password)
{
	static const struct {
		const char *url, *user, *password;
	} cases[] = {
		{"redis://h", NULL, NULL},
		{"redis://u:p@h", "u", "p"},
		{"redis://:p@h", NULL, "p"},
		{"redis://u:@h", "u", ""},
		{"redis://u:a:b@h", "u", "a:b"},
		{"redis://u%3a:%40%2F%3f%25%23@h", "u:", "@/?%#"},
		{"redis://h?user=u%20&password=%ff=", "u ", "\xff="},
		{"redis://u@h?password=p", "u", "p"},
		{"redis+unix://u:p@/s", "u", "p"},
		{"redis+unix:///s?password=", NULL, ""},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target = parsed(cases[i].url);

		ck_assert_pstr_eq(target.user, cases[i].user);
		ck_assert_pstr_eq(target.password, cases[i].password);
		ck_assert(!strchr(target.text, '@'));
		lk__target_fini(&target);
	}
}

TEST(url_names_a_socket)
{
	struct lk__target target = parsed("redis+unix:///run/a%20b%0a@c.sock?db=4");

	ck_assert_str_eq(target.socket_path, "/run/a b\n@c.sock");
	ck_assert_str_eq(target.text, "/run/a b\\x0a@c.sock");
	ck_assert_ptr_null(target.host);
	ck_assert_int_eq(target.db, 4);
	lk__target_fini(&target);
}

TEST(url_socket_path_fits_the_system)
{
	char url[200] = "redis+unix:///";

	for (size_t len = strlen(url); len < strlen("redis+unix://") + 107; len++)
		url[len] = 'x';
	struct lk__target target = parsed(url);
	ck_assert_uint_eq(strlen(target.socket_path), 107);
	lk__target_fini(&target);
	url[strlen(url)] = 'x';
	refused(url, "path");
}

TEST(url_takes_every_option)
{
	struct lk__target target = parsed(
		"redis://h?db=1&user=u&password=p&client_name=c%2Fd&prefix=P.-_9&connect_timeout=1"
		"&command_timeout=3600000&keepalive=7&lazy=%31");

	ck_assert_int_eq(target.db, 1);
	ck_assert_str_eq(target.user, "u");
	ck_assert_str_eq(target.password, "p");
	ck_assert_str_eq(target.client_name, "c/d");
	ck_assert_str_eq(target.prefix, "P.-_9");
	ck_assert_int_eq(target.connect_timeout_ns, 1 * MS);
	ck_assert_int_eq(target.command_timeout_ns, 3600000 * MS);
	ck_assert_int_eq(target.keepalive_ms, 7);
	ck_assert(target.lazy);
	lk__target_fini(&target);
}

static const struct {
	const char *url, *part;
} wrong_parts[] = {
	{"", "scheme"},
	{"redis", "scheme"},
	{"redis:", "scheme"},
	{"redis:/h", "scheme"},
	{"sesame", "scheme"},
	{"sesame://h", "scheme"},
	{"REDIS://h", "scheme"},
	{"http://h", "scheme"},
	{"localhost:6379", "scheme"},
	{"local:x", "url"},
	{"local://h", "url"},
	{"local:?", "url"},
	{"redis://", "host"},
	{"redis://:1", "host"},
	{"redis:///1", "host"},
	{"redis://u:sesame@", "host"},
	{"redis://h%41", "host"},
	{"redis://h,i", "host"},
	{"redis://::1", "host"},
	{"redis://[::1", "host"},
	{"redis://[]", "host"},
	{"redis://[::1]x", "host"},
	{"redis://[::g]", "host"},
	{"redis://[1.2.3.4]", "host"},
	{"redis://[::1%eth0]", "host"},
	{"redis://[::1%25]", "host"},
	{"redis://h\xc3\xa4", "host"},
	{"redis://h:", "port"},
	{"redis://h:0", "port"},
	{"redis://h:65536", "port"},
	{"redis://h:+1", "port"},
	{"redis://h:1x", "port"},
	{"redis://[::1]:", "port"},
	{"redis://h/x", "db"},
	{"redis://h/-1", "db"},
	{"redis://h/2147483648", "db"},
	{"redis://h/1/", "db"},
	{"redis://h//", "db"},
	{"redis://h?db=", "db"},
	{"redis://h/1?db=1", "db"},
	{"redis://h?db=1&db=1", "db"},
	{"redis://h?db=%31x", "db"},
	{"redis://@h", "user"},
	{"redis://%zz:sesame@h", "user"},
	{"redis://u%00:p@h", "user"},
	{"redis://u:p@h?user=u", "user"},
	{"redis://h?user=&password=p", "user"},
	{"redis://u@h", "password"},
	{"redis://h?user=u", "password"},
	{"redis://u:sesame%0@h", "password"},
	{"redis://u:sesame%00@h", "password"},
	{"redis://u:sesame%@h", "password"},
	{"redis://:sesame@h?password=sesame", "password"},
	{"redis://h?client_name=", "client_name"},
	{"redis://h?client_name=a%20b", "client_name"},
	{"redis://h?client_name=%ff", "client_name"},
	{"redis://h?prefix=", "prefix"},
	{"redis://h?prefix=a:b", "prefix"},
	{"redis://h?prefix=a%7B", "prefix"},
	{"redis://h?prefix=123456789012345678901234567890123", "prefix"},
	{"redis://h?connect_timeout=0", "connect_timeout"},
	{"redis://h?connect_timeout=3600001", "connect_timeout"},
	{"redis://h?command_timeout=1.5", "command_timeout"},
	{"redis://h?command_timeout=-1", "command_timeout"},
	{"redis://h?keepalive=1s", "keepalive"},
	{"redis://h?keepalive=%31%00", "keepalive"},
	{"redis://h?lazy=", "lazy"},
	{"redis://h?lazy=2", "lazy"},
	{"redis://h?lazy=yes", "lazy"},
	{"local:?lazy=01", "lazy"},
	{"redis://h?lazy=1&lazy=1", "lazy"},
	{"redis+unix://", "path"},
	{"redis+unix:///", "path"},
	{"redis+unix:///a/", "path"},
	{"redis+unix://?db=1", "path"},
	{"redis+unix:///a%00b", "path"},
	{"redis+unix:///a%", "path"},
	{"redis+unix://h/s", "host"},
	{"redis+unix://relative", "host"},
	{"redis://h?", "url"},
	{"redis://h?db", "url"},
	{"redis://h?&db=1", "url"},
	{"redis://h?db=1&", "url"},
	{"redis://h?password=sesame&sesame=1", "url"},
	{"redis://h?DB=1", "url"},
	{"redis://h?=1", "url"},
	{"redis://h?dbx=1", "url"},
	{"redis://h?d=1", "url"},
	{"redis://h#x", "url"},
	{"redis://h ", "url"},
	{" redis://h", "url"},
	{"redis://h\n", "url"},
	{"redis://h/1?prefix=a\x7f", "url"},
};

TEST(url_wrong_part_is_named)
{
	for (size_t i = 0; i < COUNT(wrong_parts); i++)
		refused(wrong_parts[i].url, wrong_parts[i].part);
}

TEST(url_too_long_is_refused)
{
	char *url = malloc(10001);

	ck_assert_ptr_nonnull(url);
	memset(url, 'h', 10000);
	url[10000] = '\0';
	memcpy(url, "redis://", 8);
	refused(url, "url");
	url[300] = '\0';
	refused(url, "host");
	free(url);
}

/* Passwords with unencoded special bytes end up in any part. */
TEST(url_password_is_in_no_message)
{
	static const char *const urls[] = {
		"redis://u:sesame/sesame@h",
		"redis://u:sesame?sesame=sesame@h",
		"redis://u:sesame#sesame@h",
		"redis://u:sesame@sesame@h",
		"redis://u:sesame:sesame",
		"redis://u:sesame@h:sesame",
		"redis://u:sesame@h/sesame",
		"redis://u:sesame",
		"redis://sesame",
		"redis://h?password=sesame&password=sesame",
		"redis://h?password=sesame%",
		"redis+unix://u:sesame/x@/s",
		"sesame@h",
		"u:sesame@h",
		"redis://u:sesame@h?sesame=1@",
		"redis://h?password=sesame&prefix=sesame@",
		"redis+unix://u:sesame?x@/s",
		"redis://u:sesame@[sesame]",
		"redis://u:sesame%zz@h",
		"redis://:se same@h",
		"local:sesame",
		"redis://:sesame@/",
		"redis://:p?sesame@h",
	};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct lk__target target;
		struct lk__why why = {0};

		if (lk__target_parse(urls[i], NULL, &target, &why) == LK_OK) {
			/* No password: "sesame" is the host here. */
			ck_assert_str_eq(urls[i], "redis://sesame");
			lk__target_fini(&target);
			continue;
		}
		ck_assert_msg(why.text[0] && !strstr(why.text, "sesame"), "%s: %s", urls[i],
		              why.text);
	}
}

TEST(url_unknown_option_is_named)
{
	static const char *const rows[][2] = {
		{"redis://h?timeout=1", "url: unknown option 'timeout'"},
		{"redis://h?Replicas=1", "url: unknown option 'Replicas' (write replicas)"},
		{"redis://h?sentinelmasterid=m", "url: unknown option 'sentinelmasterid' (write "
	                                         "sentinelMasterId)"},
		{"redis://h?a%20\xc3\xa4\\'=1", "url: unknown option 'a%20\\xc3\\xa4\\x5c''"},
		{"local:?0123456789012345678901234567890123456789=",
	         "url: unknown option '01234567890123456789012345678901...'"},
		/* Perhaps the rest of a password. */
		{"redis://h?password=a&bc=1", "url: an unknown option behind password= (in a "
	                                      "password write %26 for '&')"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct lk__target target;
		struct lk__why why = {0};
		ck_assert_int_eq(lk__target_parse(rows[i][0], NULL, &target, &why), LK_EINVALID);
		ck_assert_str_eq(why.text, rows[i][1]);
	}
}

/* ---- TLS ---------------------------------------------------------------------------------- */

TEST_IF(url_with_tls_names_files_and_the_server, 20, LK__TLS)
{
	struct lk__target target = parsed("rediss://u:p@h:6380/2?ca=/a%20b&cert=c.pem&key=k.pem"
	                                  "&server_name=redis.example.com&verify=none");

	ck_assert(target.tls && target.tls_unverified);
	ck_assert_str_eq(target.host, "h");
	ck_assert_int_eq(target.port, 6380);
	ck_assert_int_eq(target.db, 2);
	ck_assert_str_eq(target.text, "h:6380");
	ck_assert_str_eq(target.tls_ca, "/a b");
	ck_assert_str_eq(target.tls_cert, "c.pem");
	ck_assert_str_eq(target.tls_key, "k.pem");
	ck_assert_str_eq(target.tls_server_name, "redis.example.com");
	lk__target_fini(&target);
	target = parsed("rediss://[::1]");
	ck_assert(target.tls && !target.tls_unverified && !target.tls_ca && !target.tls_cert);
	ck_assert_int_eq(target.port, 6379);
	lk__target_fini(&target);
	target = parsed("redis://h");
	ck_assert(!target.tls);
	lk__target_fini(&target);
}

TEST_IF(url_with_wrong_tls_is_refused, 20, LK__TLS)
{
	/* Ignored, each of these would be a connection that is not as safe as its user thinks. */
	refused("rediss://h?verify=0", "verify");
	refused("rediss://h?verify=", "verify");
	refused("rediss://h?verify=NONE", "verify");
	refused("rediss://redis+unix:///run/redis.sock", "host");
	refused("rediss://h?ca=", "ca");
	refused("rediss://h?cert=", "cert");
	refused("rediss://h?cert=a&key=", "key");
	refused("rediss://h?key=sesame", "cert");
	refused("rediss://h?server_name=", "server_name");
	refused("rediss://h?server_name=a/b", "server_name");
	refused("rediss://h?ca=a&ca=b", "ca");
	refused("redis://h?ca=a", "scheme");
	refused("redis://h?cert=a", "scheme");
	refused("redis://h?server_name=a", "scheme");
	refused("redis://h?verify=none", "scheme");
	refused("redis+unix:///s?ca=a", "scheme");
	refused("local:?verify=none", "scheme");
	refused("rediss+unix:///s", "scheme");
	refused("redisss://h", "scheme");
}

TEST_IF(options_with_tls_win_over_the_url, 20, LK__TLS)
{
	lk_client_options options = {.tls_ca = "a",
	                             .tls_cert = "b",
	                             .tls_key = "c",
	                             .tls_server_name = "d",
	                             .tls_verify = "none"};
	struct lk__target target;

	ck_assert_int_eq(lk__target_parse("rediss://h?ca=1&cert=2&key=3&server_name=4", &options,
	                                  &target, NULL),
	                 LK_OK);
	ck_assert_str_eq(target.tls_ca, "a");
	ck_assert_str_eq(target.tls_cert, "b");
	ck_assert_str_eq(target.tls_key, "c");
	ck_assert_str_eq(target.tls_server_name, "d");
	ck_assert(target.tls_unverified);
	lk__target_fini(&target);
}

TEST_IF(options_with_wrong_tls_are_named, 20, LK__TLS)
{
	lk_client_options wrong[] = {{.tls_ca = ""},
	                             {.tls_cert = ""},
	                             {.tls_server_name = "a b"},
	                             {.tls_verify = ""},
	                             {.tls_key = "k"}};
	static const char *const parts[] = {"tls_ca", "tls_cert", "tls_server_name", "tls_verify",
	                                    "cert"};
	lk_client_options ca = {.tls_ca = "a"};

	for (size_t i = 0; i < COUNT(wrong); i++)
		refused_with("rediss://h", &wrong[i], parts[i]);
	refused_with("redis://h", &ca, "scheme");
}

/* ---- Options ------------------------------------------------------------------------------ */

TEST(options_win_over_the_url)
{
	lk_client_options options = {.connect_timeout_ms = 11,
	                             .command_timeout_ms = 12,
	                             .keepalive_ms = 13,
	                             .prefix = "op",
	                             .user = "ou",
	                             .password = "opw",
	                             .client_name = "oc",
	                             .lazy = true};
	struct lk__target target;

	ck_assert_int_eq(lk__target_parse("redis://u:p@h?prefix=p&client_name=c&connect_timeout=1"
	                                  "&command_timeout=1&keepalive=1&lazy=0",
	                                  &options, &target, NULL),
	                 LK_OK);
	ck_assert_int_eq(target.connect_timeout_ns, 11 * MS);
	ck_assert_int_eq(target.command_timeout_ns, 12 * MS);
	ck_assert_int_eq(target.keepalive_ms, 13);
	ck_assert(target.lazy);
	ck_assert_str_eq(target.prefix, "op");
	ck_assert_str_eq(target.user, "ou");
	ck_assert_str_eq(target.password, "opw");
	ck_assert_str_eq(target.client_name, "oc");
	lk__target_fini(&target);
}

TEST(options_all_zero_change_nothing)
{
	lk_client_options options = {0};
	struct lk__target target;

	ck_assert_int_eq(
		lk__target_parse("redis://u:p@h?keepalive=1&lazy=1", &options, &target, NULL),
		LK_OK);
	ck_assert(target.lazy);
	ck_assert_str_eq(target.user, "u");
	ck_assert_int_eq(target.keepalive_ms, 1);
	ck_assert_int_eq(target.connect_timeout_ns, 5000 * MS);
	lk__target_fini(&target);
}

TEST(options_complete_the_urls_user)
{
	lk_client_options options = {.password = "p"};
	struct lk__target target;

	ck_assert_int_eq(lk__target_parse("redis://u@h", &options, &target, NULL), LK_OK);
	ck_assert_str_eq(target.user, "u");
	ck_assert_str_eq(target.password, "p");
	lk__target_fini(&target);
}

TEST(options_wrong_one_is_named)
{
	char label[LK_LABEL_MAX + 2];
	lk_client_options cases[] = {{.connect_timeout_ms = -1},
	                             {.command_timeout_ms = 3600001},
	                             {.keepalive_ms = INT64_MAX},
	                             {.prefix = "a b"},
	                             {.prefix = ""},
	                             {.client_name = "a b"},
	                             {.user = "", .password = "sesame"},
	                             {.user = "u"},
	                             {.label = label},
	                             {.log_level = (lk_log_level)5},
	                             {.reserved = {0, 1}}};
	static const char *const parts[] = {"connect_timeout_ms",
	                                    "command_timeout_ms",
	                                    "keepalive_ms",
	                                    "prefix",
	                                    "prefix",
	                                    "client_name",
	                                    "user",
	                                    "password",
	                                    "label",
	                                    "log_level",
	                                    "reserved"};
	struct lk__target target;

	memset(label, 'x', sizeof(label));
	label[LK_LABEL_MAX + 1] = '\0';
	ck_assert_uint_eq(COUNT(cases), COUNT(parts));
	for (size_t i = 0; i < COUNT(cases); i++)
		refused_with("redis://h", &cases[i], parts[i]);
	label[LK_LABEL_MAX] = '\0';
	ck_assert_int_eq(lk__target_parse("redis://h", &cases[8], &target, NULL), LK_OK);
	lk__target_fini(&target);
}

/* Any bytes get an answer, without a crash or a leak (the sanitizers check). */
TEST(url_of_any_bytes_is_answered)
{
	static const char *const pieces[] = {"redis://", "redis+unix://",
	                                     "local:",   "u",
	                                     ":",        "@",
	                                     "/",        "?",
	                                     "&",        "=",
	                                     "db",       "password",
	                                     "%",        "%41",
	                                     "%00",      "[",
	                                     "]",        "::1",
	                                     "h",        "6",
	                                     "#",        "\x80",
	                                     "prefix=x", "keepalive=1"};
	unsigned long long state = test_seed();
	int good = 0;

	for (int round = 0; round < 100000; round++) {
		char url[256] = "";
		size_t len = 0;
		struct lk__target target;
		struct lk__why why = {0};

		for (int i = 0; i < 12; i++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			if (i && state >> 60 == 0)
				break;
			len += (size_t)snprintf(
				url + len, sizeof(url) - len, "%s",
				pieces[(i ? state >> 33 : (state >> 33) % 3) % COUNT(pieces)]);
		}
		if (lk__target_parse(url, NULL, &target, &why) == LK_OK) {
			ck_assert(target.local || (target.host && target.host[0]) ||
			          target.socket_path);
			good++;
			lk__target_fini(&target);
		} else {
			ck_assert_int_eq(why.err, LK_EINVALID);
		}
	}
	ck_assert_int_gt(good, 10);
}
