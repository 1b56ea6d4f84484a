/* SPDX-License-Identifier: MIT
 * rediss+quorum: three real servers with TLS.  live_quorum and live_tls have what each of the two
 * promises alone. */
#include "harness/certificate.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/quorum_setup.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

static struct quorum_setup setup;
static char folder[80], report[16384];

/* The servers' ports for TLS, or the plain ones. */
static const char *url_of(bool tls)
{
	static char url[200];
	int ports[QUORUM_SERVERS];

	for (int i = 0; i < QUORUM_SERVERS; i++)
		ports[i] = tls ? setup.servers[i].tls_port : setup.servers[i].port;
	snprintf(url, sizeof(url),
	         "rediss+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?ca=%s/ca.pem", ports[0],
	         ports[1], ports[2], folder);
	return url;
}

static void start(void)
{
	static char cert[100], key[100], ca[100]; /* the servers borrow them */
	static const char *const args[] = {"--tls-cert-file",
	                                   cert,
	                                   "--tls-key-file",
	                                   key,
	                                   "--tls-ca-cert-file",
	                                   ca,
	                                   "--tls-auth-clients",
	                                   "no",
	                                   NULL};

	folder_make(folder, sizeof(folder));
	certificate_make_usual(folder);
	snprintf(cert, sizeof(cert), "%s/server.pem", folder);
	snprintf(key, sizeof(key), "%s/server.key", folder);
	snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
	quorum_setup_start(&setup, &(struct server_options){.tls = true, .args = args});
}

static void note(void *arg, const lk_finding *finding)
{
	static const char *const words[] = {"ok", "warning", "unfit"};
	size_t len = strlen(report);

	(void)arg;
	snprintf(report + len, sizeof(report) - len, "%s %s: %s\n", words[finding->fitness],
	         finding->topic, finding->text);
}

static lk_fitness examine(const char *url)
{
	const lk_client_options options = {.connect_timeout_ms = 2000};
	lk_fitness worst;

	report[0] = '\0';
	OK(lk_doctor(url, &options, note, NULL, &worst));
	return worst;
}

static void expect(const char *text)
{
	ck_assert_msg(strstr(report, text) != NULL, "\"%s\" is not in:\n%s", text, report);
}

TEST_LIMIT(lock_over_tls_is_handed_on_and_outlives_a_server, 60)
{
	lk_client *client, *other;
	lk_lock *lock, *next;
	uint64_t first, second;

	start();
	OK(lk_quorum_begin(url_of(true), NULL, 0));
	client = client_at(url_of(true));
	other = client_at(url_of(true));
	lock = lock_named(client, "a");
	next = lock_named(other, "a");
	OK(lk_lock_acquire(lock, 5000, &first));
	EXPECT(lk_lock_acquire(next, 0, NULL), LK_EBUSY);
	server_kill(&setup.servers[1]);
	OK(lk_lock_extend(lock, 10000));
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(next, 5000, &second));
	ck_assert_uint_gt(second, first);
	OK(lk_lock_release(next));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(doctor_examines_each_certificate, 60)
{
	start();
	OK(lk_quorum_begin(url_of(true), NULL, 0));
	ck_assert_int_ne(examine(url_of(true)), LK_UNFIT);
	expect("ok tls: all 3 servers: ");
	expect(": 3 of 3 servers vote, 2 are needed");
	server_kill(&setup.servers[0]);
	ck_assert_int_eq(examine(url_of(true)), LK_FIT_WARN);
	expect(": 2 of 3 servers vote, 2 are needed");
}

TEST_LIMIT(tls_to_plain_ports_is_refused, 60)
{
	const lk_client_options options = {.connect_timeout_ms = 2000};
	lk_client *client;

	start();
	ck_assert_int_ne(lk_client_open(url_of(false), &options, &client), LK_OK);
	ck_assert_int_eq(examine(url_of(false)), LK_UNFIT);
	expect("unfit quorum: no server was reached");
}
