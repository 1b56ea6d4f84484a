/* SPDX-License-Identifier: MIT
 * The Cluster that other tests use, with TLS between its nodes. */
#include "harness/certificate.h"
#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

static struct cluster_setup setup;

TEST_LIMIT(cluster_over_tls_moves_slots_and_fails_over, 60)
{
	char folder[80], cert[100], key[100], ca[100];
	const char *const args[] = {"--tls-cert-file",
	                            cert,
	                            "--tls-key-file",
	                            key,
	                            "--tls-ca-cert-file",
	                            ca,
	                            "--tls-auth-clients",
	                            "no",
	                            NULL};
	char address[32];
	struct redis *redis;
	int slot;

	folder_make(folder, sizeof(folder));
	certificate_make_usual(folder);
	snprintf(cert, sizeof(cert), "%s/server.pem", folder);
	snprintf(key, sizeof(key), "%s/server.key", folder);
	snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
	cluster_setup_start(&setup, &(struct cluster_setup_options){.tls = true, .args = args});
	snprintf(address, sizeof(address), "127.0.0.1:%d", setup.nodes[0].tls_port);
	ck_assert(!strncmp(setup.url, "rediss+cluster://", 17) && strstr(setup.url, address));
	slot = cluster_slot_of(&setup, "a");
	redis = redis_open(&setup.nodes[cluster_slot_owner(&setup, "a")]);
	redis_do(redis, "SET a 1");
	ck_assert_int_eq(redis_int(redis, "WAIT 1 5000"), 1);
	redis_close(redis);
	cluster_slot_move(&setup, slot, (cluster_setup_owner(&setup, slot) + 1) % CLUSTER_MASTERS);
	ck_assert_str_eq(cluster_read(&setup, "GET", "a"), "1");
	cluster_setup_kill(&setup, 0);
	ck_assert_int_eq(cluster_setup_await_promotion(&setup, 0), 3);
	cluster_setup_reset(&setup);
	ck_assert(cluster_setup_is_master(&setup, 0));
	cluster_setup_stop(&setup);
}
