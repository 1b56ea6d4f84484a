/* SPDX-License-Identifier: MIT
 * URLs of stores that Sentinel names: the meaning of each part in all three spellings, and that the
 * error for a wrong part names it, and no secret. */
#include "url_check.h"
#include "built_with.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void refused_for(const char *url, const lk_client_options *options, const char *part)
{
	char start[64];

	snprintf(start, sizeof(start), "%s:", part);
	refused(url, options, start);
}

static const char *places(const struct lk__target *target)
{
	return places_text(target->sentinels, target->sentinel_count);
}

TEST(url_names_sentinels_service_db)
{
	static const struct {
		const char *url, *places, *service, *user, *password;
		int db;
	} cases[] = {
		{"redis+sentinel://h/s", "h:26379", "s", NULL, NULL, 0},
		{"redis+sentinel://h/s/", "h:26379", "s", NULL, NULL, 0},
		{"redis+sentinel://h/s/3", "h:26379", "s", NULL, NULL, 3},
		{"redis+sentinel://h/s?db=4", "h:26379", "s", NULL, NULL, 4},
		{"redis+sentinel://h1:1,h2,127.0.0.1:3/my%2Dmaster", "h1:1 h2:26379 127.0.0.1:3",
	         "my-master", NULL, NULL, 0},
		{"redis+sentinel://[::1]:70,[fe80::1%25eth0]/s", "[::1]:70 [fe80::1%eth0]:26379",
	         "s", NULL, NULL, 0},
		{"redis+sentinel://u:p@h1,h2/s/1", "h1:26379 h2:26379", "s", "u", "p", 1},
		{"redis+sentinel://:p@h/s", "h:26379", "s", NULL, "p", 0},
		{"redis+sentinel://h/a%2fb", "h:26379", "a/b", NULL, NULL, 0},
		{"redis-sentinel://h1,h2:5?sentinelMasterId=s", "h1:26379 h2:5", "s", NULL, NULL,
	         0},
		{"redis-sentinel://p@h/2?sentinelMasterId=s", "h:26379", "s", NULL, "p", 2},
		{"redis-sentinel://u:p@h/0?sentinelMasterId=s", "h:26379", "s", "u", "p", 0},
		{"redis-sentinel://:p@h/?sentinelMasterId=s&lazy=1", "h:26379", "s", NULL, "p", 0},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target = parsed(cases[i].url, NULL);

		ck_assert_str_eq(places(&target), cases[i].places);
		ck_assert_str_eq(target.service, cases[i].service);
		ck_assert_str_eq(target.text, cases[i].service);
		ck_assert_pstr_eq(target.user, cases[i].user);
		ck_assert_pstr_eq(target.password, cases[i].password);
		ck_assert_int_eq(target.db, cases[i].db);
		ck_assert_ptr_null(target.host);
		ck_assert_ptr_null(target.socket_path);
		ck_assert(!target.local && !target.tls);
		/* The sentinels have credentials of their own. */
		ck_assert_ptr_null(target.sentinel_user);
		ck_assert_ptr_null(target.sentinel_password);
		lk__target_fini(&target);
	}
}

TEST(url_of_one_server_names_no_sentinels)
{
	struct lk__target target = parsed("redis://h", NULL);

	ck_assert_ptr_null(target.service);
	ck_assert_int_eq(target.sentinel_count, 0);
	lk__target_fini(&target);
}

TEST(url_takes_sixteen_sentinels_and_no_more)
{
	char url[400] = "redis+sentinel://h0";
	struct lk__target target;

	for (int i = 1; i < 16; i++)
		snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h%d", i);
	snprintf(url + strlen(url), sizeof(url) - strlen(url), "/s");
	target = parsed(url, NULL);
	ck_assert_int_eq(target.sentinel_count, 16);
	ck_assert_str_eq(target.sentinels[15].host, "h15");
	lk__target_fini(&target);
	url[strlen(url) - 2] = '\0';
	snprintf(url + strlen(url), sizeof(url) - strlen(url), ",h16/s");
	refused_for(url, NULL, "host");
}

/* Clients may follow a failover 3 s after it. */
TEST(url_of_sentinels_has_a_grace_of_13_s)
{
	static const struct {
		const char *url;
		int64_t option_ms, grace_ms;
	} cases[] = {
		{"redis+sentinel://h/s", 0, 13000},
		{"redis-sentinel://h?sentinelMasterId=s", 0, 13000},
		{"redis+sentinel://h/s?grace=10000", 0, 10000},
		{"redis+sentinel://h/s?grace=0", 0, 0},
		{"redis+sentinel://h/s", 500, 500},
		{"redis+sentinel://h/s", -1, 0},
		{"redis://h", 0, 10000},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const lk_client_options options = {.grace_ms = cases[i].option_ms};
		struct lk__target target = parsed(cases[i].url, &options);

		ck_assert_int_eq(target.grace_ms, cases[i].grace_ms);
		lk__target_fini(&target);
	}
}

TEST(url_wrong_part_of_sentinels_is_named)
{
	static const struct {
		const char *url, *part;
	} cases[] = {
		{"redis+sentinel://", "host"},
		{"redis+sentinel:///s", "host"},
		{"redis+sentinel://h,/s", "host"},
		{"redis+sentinel://,h/s", "host"},
		{"redis+sentinel://h,h/s", "host"},
		{"redis+sentinel://h,h:26379/s", "host"},
		{"redis+sentinel://h;i/s", "host"},
		{"redis+sentinel://::1/s", "host"},
		{"redis+sentinel://[::1/s", "host"},
		{"redis+sentinel://h:0/s", "port"},
		{"redis+sentinel://h:x,i/s", "port"},
		{"redis+sentinel://h,i:65536/s", "port"},
		{"redis+sentinel://h", "service"},
		{"redis+sentinel://h/", "service"},
		{"redis+sentinel://h//1", "service"},
		{"redis+sentinel://h?db=1", "service"},
		{"redis+sentinel://h/a%20b", "service"},
		{"redis+sentinel://h/a%zz", "service"},
		{"redis+sentinel://h/a%00", "service"},
		{"redis+sentinel://h/\xc3\xa4", "service"},
		{"redis+sentinel://h/s/x", "db"},
		{"redis+sentinel://h/s/1/", "db"},
		{"redis+sentinel://h/s/1?db=1", "db"},
		{"redis+sentinel://h/s?sentinelMasterId=t", "sentinelMasterId"},
		{"redis://h?sentinelMasterId=t", "sentinelMasterId"},
		{"redis-sentinel://h", "sentinelMasterId"},
		{"redis-sentinel://h/1", "sentinelMasterId"},
		{"redis-sentinel://h?sentinelMasterId=", "sentinelMasterId"},
		{"redis-sentinel://h?sentinelMasterId=a&sentinelMasterId=b", "sentinelMasterId"},
		{"redis-sentinel://h/s?sentinelMasterId=a", "db"},
		{"redis+sentinel://u@h/s", "password"},
		{"redis+sentinel://u:sesame/x@h/s", "url"},
		{"redis+sentinel://u:sesame@v@h/s", "url"},
		{"redis+sentinel://h/s?sentinel_user=", "sentinel_user"},
		{"redis+sentinel://h/s?sentinel_user=u", "sentinel_password"},
		{"redis+sentinel://h/s?sentinel_password=sesame", "url"},
		{"redis+sentinel://h/s?sentinel_password_file=", "sentinel_password_file"},
		{"redis+sentinel://h/s?sentinel_password_file=/none/sesame",
	         "sentinel_password_file"},
		{"redis+sentinel://h/s?sentinel_password_file=/", "sentinel_password_file"},
		{"redis+sentinel://h/s?sentinel_password_file=/dev/zero", "sentinel_password_file"},
		{"redis+sentinel://h/s?sentinel_password_file=/dev/null", "sentinel_password_file"},
		{"redis+sentinel://h/s?ca=a", "scheme"},
		{"redis+sentinel:h/s", "scheme"},
		{"sentinel://h/s", "scheme"},
		{"redis+sentinels://h/s", "scheme"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		refused_for(cases[i].url, NULL, cases[i].part);
}

TEST(url_without_the_word_sentinel_is_refused_with_it)
{
	static const char *const rows[][2] = {
		{"redis://h:26379/main", "db: must be 0 to 2147483647 (a service of Sentinel needs "
	                                 "redis+sentinel://)"},
		{"redis://h:1,i:2/main", "host: more than one (a Cluster needs redis+cluster://, "
	                                 "sentinels redis+sentinel://, a quorum redis+quorum://)"},
		{"redis://h:1,i:2,j", "host: more than one (a Cluster needs redis+cluster://, "
	                              "sentinels redis+sentinel://, a quorum redis+quorum://)"},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct lk__target target;
		struct lk__why why = {0};
		ck_assert_int_eq(lk__target_parse(rows[i][0], NULL, &target, &why), LK_EINVALID);
		ck_assert_str_eq(why.text, rows[i][1]);
	}
}

TEST(url_service_fits_its_limit)
{
	char url[200] = "redis+sentinel://h/";
	size_t len = strlen(url);
	struct lk__target target;

	memset(url + len, 's', 128);
	target = parsed(url, NULL);
	ck_assert_uint_eq(strlen(target.service), 128);
	lk__target_fini(&target);
	url[len + 128] = 's';
	refused_for(url, NULL, "service");
}

/* ---- The sentinels' own credentials --------------------------------------------------------- */

static void write_file(const char *path, const char *bytes, size_t len)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
	ck_assert(!fclose(file));
}

TEST(sentinel_password_comes_from_a_file)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *password;
	} cases[] = {
		{"open sesame", 11, "open sesame"},
		{"a\n", 2, "a"},
		{"a\r\n", 3, "a"},
		{"a\n\n", 3, "a\n"},
		{"\n", 1, NULL},
		{"", 0, NULL},
		{"se\0same", 7, NULL},
	};
	char path[] = "/tmp/lk-sentinel-XXXXXX", url[200];
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(url, sizeof(url), "redis+sentinel://h/s?sentinel_user=w&sentinel_password_file=%s",
	         path);
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct lk__target target;

		write_file(path, cases[i].bytes, cases[i].len);
		if (!cases[i].password) {
			refused_for(url, NULL, "sentinel_password_file");
			continue;
		}
		target = parsed(url, NULL);
		ck_assert_str_eq(target.sentinel_password, cases[i].password);
		ck_assert_str_eq(target.sentinel_user, "w");
		ck_assert_ptr_null(target.password);
		lk__target_fini(&target);
	}
	unlink(path);
}

TEST(sentinel_password_file_has_a_limit_and_is_a_file)
{
	char path[] = "/tmp/lk-sentinel-XXXXXX", url[200], bytes[1025];
	int fd = mkstemp(path);
	struct lk__target target;

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(url, sizeof(url), "redis+sentinel://h/s?sentinel_password_file=%s", path);
	memset(bytes, 'x', sizeof(bytes));
	write_file(path, bytes, 1024);
	target = parsed(url, NULL);
	ck_assert_uint_eq(strlen(target.sentinel_password), 1024);
	lk__target_fini(&target);
	write_file(path, bytes, 1025);
	refused_for(url, NULL, "sentinel_password_file");
	/* A FIFO without a writer must not block. */
	unlink(path);
	ck_assert(!mkfifo(path, 0600));
	refused_for(url, NULL, "sentinel_password_file");
	unlink(path);
}

TEST(sentinel_options_win_over_the_url)
{
	const lk_client_options options = {.sentinel_user = "watch",
	                                   .sentinel_password = "own",
	                                   .user = "holder",
	                                   .password = "store"};
	struct lk__target target = parsed("redis+sentinel://u:p@h/s?sentinel_user=w", &options);

	ck_assert_str_eq(target.sentinel_user, "watch");
	ck_assert_str_eq(target.sentinel_password, "own");
	ck_assert_str_eq(target.user, "holder");
	ck_assert_str_eq(target.password, "store");
	lk__target_fini(&target);
}

/* A password for sentinels that the store would never use is a wrong URL. */
TEST(sentinel_options_need_a_url_of_sentinels)
{
	const lk_client_options password = {.sentinel_password = "sesame"};
	const lk_client_options user = {.sentinel_user = "u", .sentinel_password = "sesame"};
	const lk_client_options empty = {.sentinel_user = "", .sentinel_password = "sesame"};
	const lk_client_options alone = {.sentinel_user = "u"};

	refused_for("redis://h", &password, "scheme");
	refused_for("local:", &password, "scheme");
	refused_for("redis+unix:///s", &user, "scheme");
	refused_for("redis+sentinel://h/s", &empty, "sentinel_user");
	refused_for("redis+sentinel://h/s", &alone, "sentinel_password");
	refused_for("redis://h?sentinel_user=u", NULL, "scheme");
}

/* ---- TLS ---------------------------------------------------------------------------------- */

TEST_IF(url_of_sentinels_takes_tls, 20, LK__TLS)
{
	static const char *const urls[] = {"rediss+sentinel://h1,h2/s?ca=c&server_name=n",
	                                   "rediss-sentinel://h1,h2?ca=c&server_name=n"
	                                   "&sentinelMasterId=s"};

	for (size_t i = 0; i < COUNT(urls); i++) {
		struct lk__target target = parsed(urls[i], NULL);

		ck_assert(target.tls && !target.tls_unverified);
		ck_assert_str_eq(target.tls_ca, "c");
		ck_assert_str_eq(target.tls_server_name, "n");
		ck_assert_str_eq(places(&target), "h1:26379 h2:26379");
		lk__target_fini(&target);
	}
	refused_for("rediss+sentinel://h/s?verify=no", NULL, "verify");
}
