/* SPDX-License-Identifier: MIT
 * The library's TLS to a real etcd: HTTP/2 by ALPN, its CA, and certificates of clients. */
#include "harness/certificate.h"
#include "harness/etcd_link.h"
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

static char folder[80];

static char *file(const char *name)
{
	static char paths[8][200];
	static unsigned turn;
	char *path = paths[turn++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void make_certificates(void)
{
	static const struct certificate client = {.name = "client", .issuer = "ca"};
	static const struct certificate other = {.name = "other"};

	folder_make(folder, sizeof(folder));
	certificate_make_usual(folder);
	certificate_make(folder, &client);
	certificate_make(folder, &other);
}

/* Connect with that CA, and put a key. */
static lk_err try_to_use(struct etcd_link *conn, const struct etcd_servers *servers)
{
	const struct lk__etcd_put request = {.key = lk__bytes_of("a"), .value = lk__bytes_of("1")};
	lk_err err;

	conn->target.tls = true;
	err = etcd_link_open(conn, servers->nodes[0].port);
	if (err)
		return err;
	lk__etcd_put_put(etcd_message(conn), &request);
	etcd_call(conn, ETCD_KV "Put");
	ck_assert(etcd_next(conn, ETCD_WAIT_MS));
	ck_assert_int_eq(conn->event.kind, LK__H2_ANSWER);
	/* With TLS 1.3 the server judges a client's certificate behind the handshake. */
	if (conn->event.status)
		return conn->why.err;
	return LK_OK;
}

TEST_LIMIT(http2_is_spoken_inside_of_tls, 120)
{
	struct etcd_servers servers = {.args = {NULL}};
	struct etcd_link conn = {0}, unknown = {0};

	make_certificates();
	servers.tls = folder;
	etcd_start(&servers, 1);
	conn.target.tls_ca = file("ca.pem");
	ck_assert_msg(try_to_use(&conn, &servers) == LK_OK, "%s", conn.why.text);
	etcd_link_close(&conn);
	unknown.target.tls_ca = file("other.pem");
	ck_assert_int_eq(try_to_use(&unknown, &servers), LK_ESERVER);
	ck_assert_msg(strstr(unknown.why.text, "unknown CA") != NULL, "%s", unknown.why.text);
	etcd_link_close(&unknown);
	etcd_stop(&servers);
}

TEST_LIMIT(certificate_of_the_client_is_shown, 120)
{
	struct etcd_servers servers = {.client_certificates = true, .args = {NULL}};
	struct etcd_link conn = {0}, without = {0}, wrong = {0};

	make_certificates();
	servers.tls = folder;
	etcd_start(&servers, 1);
	conn.target.tls_ca = without.target.tls_ca = wrong.target.tls_ca = file("ca.pem");
	conn.target.tls_cert = file("client.pem");
	conn.target.tls_key = file("client.key");
	ck_assert_msg(try_to_use(&conn, &servers) == LK_OK, "%s", conn.why.text);
	etcd_link_close(&conn);
	ck_assert_msg(try_to_use(&without, &servers) == LK_EAUTH, "%s", without.why.text);
	etcd_link_close(&without);
	wrong.target.tls_cert = file("other.pem");
	wrong.target.tls_key = file("other.key");
	ck_assert_msg(try_to_use(&wrong, &servers) == LK_EAUTH, "%s", wrong.why.text);
	etcd_link_close(&wrong);
	etcd_stop(&servers);
}

static void note_tls(void *arg, const lk_finding *finding)
{
	if (!strcmp(finding->topic, "tls"))
		*(lk_fitness *)arg = finding->fitness;
}

/* What lk_doctor() finds of TLS; -1 = nothing. */
static int examine_tls(const char *url)
{
	lk_fitness tls = (lk_fitness)-1;

	OK(lk_doctor(url, NULL, note_tls, &tls, NULL));
	return (int)tls;
}

TEST_LIMIT(client_has_its_locks_by_tls, 120)
{
	struct etcd_servers servers = {.args = {NULL}};
	lk_client *client;
	lk_lock *lock;
	char url[300];

	make_certificates();
	servers.tls = folder;
	etcd_start(&servers, 1);
	snprintf(url, sizeof(url), "%s?ca=%s", etcd_url(&servers, "", ""), file("ca.pem"));
	client = client_at(url);
	lock = lock_named(client, "secure");
	OK(lk_lock_acquire(lock, ETCD_WAIT_MS, NULL));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	ck_assert_int_ne(examine_tls(url), -1);
	ck_assert_int_ne(examine_tls(url), LK_UNFIT);
	snprintf(url, sizeof(url), "%s?verify=none", etcd_url(&servers, "", ""));
	ck_assert_int_eq(examine_tls(url), LK_UNFIT);
	snprintf(url, sizeof(url), "%s?ca=%s", etcd_url(&servers, "", ""), file("other.pem"));
	ck_assert_int_eq(examine_tls(url), -1);
	EXPECT(lk_client_open(url, NULL, &client), LK_ESERVER);
	snprintf(url, sizeof(url), "etcd://127.0.0.1:%d", servers.nodes[0].port);
	EXPECT(lk_client_open(url, NULL, &client), LK_ECONN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "if its port is for TLS, write etcds://"));
	etcd_stop(&servers);
	servers.tls = NULL;
	etcd_start(&servers, 1);
	snprintf(url, sizeof(url), "etcds://127.0.0.1:%d?ca=%s", servers.nodes[0].port,
	         file("ca.pem"));
	EXPECT(lk_client_open(url, NULL, &client), LK_ECONN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "if its port is plain, write etcd for etcds"));
	etcd_stop(&servers);
}
