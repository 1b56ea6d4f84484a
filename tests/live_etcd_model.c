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

static char *by_server(const char *const *lines)
{
	struct etcd_live_peer peer;
	char *text;

	etcd_live_peer_init(&peer, servers.nodes[0].port);
	text = etcd_script_run(&peer.peer, lines);
	etcd_live_peer_fini(&peer);
	return text;
}

static char *by_model(const char *const *lines, const struct em_setup *setup, uint64_t seed)
{
	struct etcd_model_peer peer;
	char *text;

	etcd_model_peer_init(&peer, setup, seed, 0);
	em_deny(peer.model, setup->user ? "lk/c/" : NULL);
	text = etcd_script_run(&peer.peer, lines);
	etcd_model_peer_fini(&peer);
	return text;
}

/* A server, and the version that the model takes for its own. */
static void start(struct em_setup *setup)
{
	static char version[20];
	struct lk__etcd_status_answer status;
	struct etcd_link link = {0};

	etcd_start(&servers, 1);
	ck_assert_int_eq(etcd_link_open(&link, servers.nodes[0].port), LK_OK);
	etcd_message(&link);
	etcd_ask(&link, "/etcdserverpb.Maintenance/Status", &lk__etcd_status_shape, &status);
	snprintf(version, sizeof(version), "%.*s", (int)status.version.len,
	         (const char *)status.version.data);
	etcd_link_close(&link);
	setup->version = version;
	setup->is_3_4 = !strncmp(version, "3.4.", 4);
}

/* What is before the first line that is not the same in both, and that line of each. */
static void expect_equal(const char *name, const char *real, const char *model)
{
	enum { SHOWN = 2000 };
	size_t line = 0, shown;

	for (size_t i = 0; real[i] == model[i]; i++) {
		if (!real[i])
			return;
		if (real[i] == '\n')
			line = i + 1;
	}
	shown = line > SHOWN ? line - SHOWN : 0;
	ck_abort_msg("%s:\n%.*s---- server:\n%.*s\n---- model:\n%.*s", name, (int)(line - shown),
	             real + shown, (int)strcspn(real + line, "\n"), real + line,
	             (int)strcspn(model + line, "\n"), model + line);
}

static void compare(const char *name, const char *const *lines, const struct em_setup *setup)
{
	char *real = by_server(lines);

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		char *model = by_model(lines, setup, test_seed() + seed);
		expect_equal(name, real, model);
		free(model);
	}
	free(real);
}

TEST_LIMIT(model_answers_scripts_as_a_server_does, 120)
{
	struct em_setup setup = {0};

	start(&setup);
	for (const struct etcd_script *script = etcd_scripts; script->name; script++)
		compare(script->name, script->lines, &setup);
	etcd_stop(&servers);
}

/* ---- Random requests: the same ones in each run, or by LK_SCRIPT_SEED ------------------------ */

enum { REQUESTS = 1500, LINE = 500 };

static unsigned short random_state[3];

static unsigned below(unsigned limit)
{
	return (unsigned)nrand48(random_state) % limit;
}

/* One of the texts that '|' separates. */
static const char *one_of(const char *texts)
{
	static char copies[8][60];
	static int used;
	char *copy = copies[used++ % 8];
	unsigned count = 1, chosen;

	for (const char *at = texts; (at = strchr(at, '|')); at++)
		count++;
	for (chosen = below(count); chosen; chosen--)
		texts = strchr(texts, '|') + 1;
	snprintf(copy, sizeof(copies[0]), "%.*s", (int)strcspn(texts, "|"), texts);
	return copy;
}

#define KEYS "a|b|c|d|e"
#define RANGES "a|b|c|d|e|a..|b..|a..c|b..e|c..f|d..b|-|-..c"
#define LEASES "L1|L2|L3|L4|L5"

static int add_put(char *line, size_t size)
{
	const char *lease = below(3) ? "" : one_of(" lease=L1| lease=L2| lease=L3");

	return snprintf(line, size, "put %s %s%s%s%s", one_of(KEYS "|-"), one_of("1|2|3|-|-"),
	                lease, one_of("|| prev"), one_of("|||| ignore_value| ignore_lease"));
}

static int add_get(char *line, size_t size)
{
	return snprintf(line, size, "get %s%s%s%s%s", one_of(RANGES),
	                one_of("|| limit=1| limit=2| limit=9"),
	                below(4) ? "" : one_of(" rev=+1| rev=+3| rev=+9| rev=+40| rev=+200"),
	                one_of("|| by=key| by=version| by=create| by=mod| by=value"),
	                one_of("|| asc| desc| keys| count| serial"));
}

static int add_op(char *line, size_t size)
{
	switch (below(3)) {
	case 0:
		return add_put(line, size);
	case 1:
		return add_get(line, size);
	default:
		return snprintf(line, size, "del %s%s", one_of(RANGES), one_of("| prev"));
	}
}

/* Such a Txn makes etcd panic, now and at each start, if it puts a key without value or lease. */
static bool deletes_all_from_a_key(const char *line)
{
	while ((line = strstr(line, "del "))) {
		size_t len = strcspn(line + 4, " ");
		if (len > 2 && !strncmp(line + 4 + len - 2, "..", 2))
			return true;
		line += 4;
	}
	return false;
}

static void add_txn(char *line, size_t size)
{
	static const char *const parts[] = {" then ", " else "};
	int len = snprintf(line, size, "txn");

	for (unsigned i = 0, count = below(3); i < count; i++)
		len += snprintf(line + len, size - (size_t)len, "%s%s %s %s %s", i ? " ; " : " if ",
		                one_of("create|mod|version|value|lease"), one_of(RANGES),
		                one_of("=|!=|<|>"), one_of("0|0|1|2|+5|+20"));
	for (int part = 0; part < 2; part++)
		for (unsigned i = 0, count = below(4); i < count; i++) {
			len += snprintf(line + len, size - (size_t)len, "%s",
			                i ? " ; " : parts[part]);
			len += add_op(line + len, size - (size_t)len);
		}
}

static void make_line(char *line, size_t size)
{
	switch (below(8)) {
	case 0:
	case 1:
		do
			add_txn(line, size);
		while (strstr(line, "ignore_") && deletes_all_from_a_key(line));
		break;
	case 2:
		snprintf(line, size, "%s %s", one_of("revoke|alive|ttl"), one_of(LEASES));
		break;
	case 3:
		snprintf(line, size, "grant %s 60", one_of(LEASES));
		break;
	case 4:
		if (below(8))
			add_get(line, size);
		else
			snprintf(line, size, "compact +%u", below(REQUESTS / 2));
		break;
	default:
		add_op(line, size);
	}
}

TEST_LIMIT(model_answers_random_requests_as_a_server_does, 120)
{
	static char text[REQUESTS][LINE];
	static const char *lines[REQUESTS + 1];
	const char *seed = getenv("LK_SCRIPT_SEED");
	struct em_setup setup = {0};

	random_state[0] = (unsigned short)atoi(seed ? seed : "1");
	for (int i = 0; i < REQUESTS; i++) {
		make_line(text[i], LINE);
		lines[i] = text[i];
	}
	start(&setup);
	compare("random requests", lines, &setup);
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
	struct em_setup setup = {.user = "u", .password = "p"};

	start(&setup);
	add_users();
	for (const struct etcd_script *script = etcd_scripts_of_users; script->name; script++)
		compare(script->name, script->lines, &setup);
	etcd_stop(&servers);
}
