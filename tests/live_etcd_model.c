/* SPDX-License-Identifier: MIT
 * The model of etcd compared with a real server: each script of harness/etcd_scripts.c is answered
 * alike by both, in words, numbers and order. */
#include "etcd_live_peer.h"
#include "etcd_model_peer.h"
#include "etcd_server.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 3

static struct etcd_servers servers = {.args = {"--unsafe-no-fsync", "--bcrypt-cost", "4"}};

/* ---- The comparison -------------------------------------------------------------------------- */

static char *by_server(const struct etcd_script *script)
{
	struct etcd_live_peer peer;
	char *text;

	etcd_live_peer_init(&peer, servers.nodes[0].port);
	text = etcd_script_run(&peer.peer, script->lines);
	etcd_live_peer_fini(&peer);
	return text;
}

static char *by_model(const struct etcd_script *script, const struct em_setup *setup, uint64_t seed)
{
	struct etcd_model_peer peer;
	char *text;

	etcd_model_peer_init(&peer, setup, seed, 0);
	em_deny(peer.model, setup->user ? "lk/c/" : NULL);
	text = etcd_script_run(&peer.peer, script->lines);
	etcd_model_peer_fini(&peer);
	return text;
}

static void compare(const struct etcd_script *script, const struct em_setup *setup)
{
	char *real = by_server(script);

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		char *model = by_model(script, setup, test_seed() + seed);
		ck_assert_msg(!strcmp(real, model), "%s\n---- server:\n%s---- model:\n%s",
		              script->name, real, model);
		free(model);
	}
	free(real);
}

TEST_LIMIT(model_answers_scripts_as_a_server_does, 120)
{
	static const struct em_setup setup = {0};

	etcd_start(&servers, 1);
	for (const struct etcd_script *script = etcd_scripts; script->name; script++)
		compare(script, &setup);
	etcd_stop(&servers);
}

/* ---- Users ----------------------------------------------------------------------------------- */

static void add_users(void)
{
	etcd_ctl(&servers, "user add root:root");
	etcd_ctl(&servers, "role add root");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "user add u:p");
	etcd_ctl(&servers, "role add r");
	etcd_ctl(&servers, "role grant-permission r readwrite a lk/c/");
	etcd_ctl(&servers, "role grant-permission r readwrite --from-key lk/c0");
	etcd_ctl(&servers, "user grant-role u r");
	etcd_ctl(&servers, "auth enable");
}

TEST_LIMIT(model_answers_users_as_a_server_does, 60)
{
	static const struct em_setup setup = {.user = "u", .password = "p"};

	etcd_start(&servers, 1);
	add_users();
	for (const struct etcd_script *script = etcd_scripts_of_users; script->name; script++)
		compare(script, &setup);
	etcd_stop(&servers);
}
