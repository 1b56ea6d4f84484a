/* SPDX-License-Identifier: MIT
 * Sentinel by TLS: the sentinel and the server that it names each have a certificate for a host
 * name only, so the sentinel must name hosts, and the client must verify the name that it says. */
#include "harness/certificate.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/tls_store.h"

#include "built_with.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct tls_redis tls;
static struct test_server sentinel;
static struct process process;

static int run_sentinel(void *arg, int in, int out)
{
	char path[4200], config[120];
	const char *argv0;

	(void)arg;
	(void)in;
	(void)out;
	if (!server_find(path, sizeof(path), &argv0))
		return 1;
	snprintf(config, sizeof(config), "%s/conf", sentinel.dir);
	execl(path, argv0, config, "--sentinel", (char *)NULL);
	return 1;
}

/* A server and a sentinel with a certificate for "localhost" alone; names: what the sentinel says
 * about the server, "yes" = its host name. */
static void start(const char *names)
{
	const struct certificate named = {
		.name = "named", .issuer = "ca", .sites = "DNS:localhost"};
	char path[120];
	FILE *config;

	tls_redis_prepare(&tls);
	certificate_make(tls.folder, &named);
	tls_redis_start(&tls, &(struct tls_redis_options){.certificate = "named"});
	folder_make(sentinel.dir, sizeof(sentinel.dir));
	sentinel.port = port_pick();
	snprintf(sentinel.socket_path, sizeof(sentinel.socket_path), "%s/s", sentinel.dir);
	snprintf(path, sizeof(path), "%s/conf", sentinel.dir);
	config = fopen(path, "w");
	ck_assert_ptr_nonnull(config);
	fprintf(config,
	        "port 0\ntls-port %d\nbind 127.0.0.1\ndir %s\nunixsocket %s\nlogfile log\n"
	        "tls-cert-file %s/named.pem\ntls-key-file %s/named.key\n"
	        "tls-ca-cert-file %s/ca.pem\ntls-auth-clients no\ntls-replication yes\n"
	        "sentinel resolve-hostnames yes\nsentinel announce-hostnames %s\n"
	        "sentinel monitor main %s %d 1\n",
	        sentinel.port, sentinel.dir, sentinel.socket_path, tls.folder, tls.folder,
	        tls.folder, names, strcmp(names, "yes") ? "127.0.0.1" : "localhost", tls.port);
	ck_assert(!fclose(config));
	process_start(&process, run_sentinel, NULL);
	ck_assert(WITHIN(5000, server_answers(&sentinel))); /* it listens everywhere by then */
}

static void end(void)
{
	process_kill(&process);
	folder_remove(sentinel.dir);
	server_stop(&tls.server);
	folder_remove(tls.folder);
}

static lk_err open_at(const char *host, const char *options)
{
	char url[300];
	lk_client *client;
	lk_err err;

	snprintf(url, sizeof(url),
	         "rediss+sentinel://%s:%d/main?grace=0&connect_timeout=1500&ca=%s/ca.pem%s", host,
	         sentinel.port, tls.folder, options);
	err = lk_client_open(url, NULL, &client);
	if (!err) {
		lk_lock *lock = lock_named(client, "a");
		OK(lk_lock_acquire(lock, 5000, NULL));
		OK(lk_lock_release(lock));
		OK(lk_client_close(client));
	}
	return err;
}

TEST_IF(f5_host_names_of_sentinels_are_verified, 20, LK__TLS)
{
	start("yes");
	EXPECT(open_at("localhost", ""), LK_OK);
	EXPECT(open_at("127.0.0.1", ""), LK_ESERVER);
	ck_assert_msg(strstr(lk_errmsg(), "127.0.0.1") && strstr(lk_errmsg(), "certificate"), "%s",
	              lk_errmsg());
	/* The name that is given counts for both. */
	EXPECT(open_at("127.0.0.1", "&server_name=localhost"), LK_OK);
	end();
}

TEST_IF(f5_address_of_a_server_is_not_the_name_in_its_certificate, 20, LK__TLS)
{
	start("no");
	EXPECT(open_at("localhost", ""), LK_ESERVER);
	ck_assert_msg(strstr(lk_errmsg(), "main at 127.0.0.1:"), "%s", lk_errmsg());
	EXPECT(open_at("localhost", "&server_name=localhost"), LK_OK);
	end();
}

TEST_IF(tls_on_one_side_only_says_so, 20, LK__TLS)
{
	char url[200];
	lk_client *client;

	start("yes");
	snprintf(url, sizeof(url), "redis+sentinel://localhost:%d/main", sentinel.port);
	EXPECT(lk_client_open(url, NULL, &client), LK_ECONN);
	ck_assert_msg(strstr(lk_errmsg(), "rediss+sentinel://") != NULL, "%s", lk_errmsg());
	end();
}

static void keep_names(void *arg, const lk_finding *finding)
{
	if (!strcmp(finding->topic, "sentinels") && strstr(finding->text, "they name the address"))
		snprintf(arg, 300, "%d %s", finding->fitness, finding->cure);
}

static void examine(const char *options, char found[300])
{
	char url[300];

	snprintf(url, sizeof(url),
	         "rediss+sentinel://localhost:%d/main?connect_timeout=1500&ca=%s/ca.pem%s",
	         sentinel.port, tls.folder, options);
	found[0] = '\0';
	OK(lk_doctor(url, NULL, keep_names, found, NULL));
}

TEST_IF(doctor_wants_host_names_from_sentinels, 20, LK__TLS)
{
	char found[300];

	start("yes");
	examine("", found);
	ck_assert_str_eq(found, "");
	end();
	start("no");
	examine("", found);
	ck_assert_msg(strstr(found, "1 ") == found && strstr(found, "announce-hostnames yes"), "%s",
	              found);
	examine("&server_name=localhost", found);
	ck_assert_str_eq(found, "");
	end();
}
