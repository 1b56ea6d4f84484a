/* SPDX-License-Identifier: MIT
 * A real server of a Cluster computes the same slots as the client. */
#include "base/slot.h"
#include "base/text.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 40
#define RUNS 500

static struct test_server server;
static struct redis *redis;
static uint64_t random_state;

static unsigned draw(unsigned below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (unsigned)(random_state >> 33) % below;
}

static void start(void)
{
	static char bus_port[16];
	static const char *const args[] = {"--cluster-enabled", "yes", "--cluster-port", bus_port,
	                                   NULL};
	const struct server_options options = {.args = args};

	/* By default it is above the ports that tests use. */
	snprintf(bus_port, sizeof(bus_port), "%d", port_pick());
	server_start(&server, &options);
	redis = redis_open(&server);
}

static void stop(void)
{
	redis_close(redis);
	server_stop(&server);
}

static void check_name(const char *name, size_t len)
{
	static const char *const starts[] = {"lk:", "a-long.prefix:", "lk:l:", "lk:c:"};
	static const char *const ends[] = {"", ":q", ":client-id"};
	char encoded[3 * NAME_MAX_BYTES + 1], key[sizeof(encoded) + 40];

	lk__name_encode(encoded, name, len);
	snprintf(key, sizeof(key), "%s{%s}%s", starts[draw(4)], encoded, ends[draw(3)]);
	ck_assert_msg(redis_int(redis, "CLUSTER KEYSLOT %b", key, strlen(key)) ==
	                      (long long)lk__slot_of(name, len),
	              "%s", key);
}

/* Half of the bytes are those that the encoding changes, and their digits. */
TEST(server_has_the_same_slots_of_names)
{
	static const char special[] = "{}% \n\x7f"
				      "0257BD";
	char name[NAME_MAX_BYTES];

	random_state = test_seed();
	start();
	for (int i = 0; i < RUNS; i++) {
		size_t len = 1 + draw(NAME_MAX_BYTES);

		for (size_t at = 0; at < len; at++)
			name[at] = draw(2) ? special[draw(sizeof(special) - 1)] : (char)draw(256);
		check_name(name, len);
	}
	check_name("{", 1);
	check_name("}", 1);
	check_name("{}", 2);
	check_name("{a}b", 4);
	check_name("\0", 1);
	stop();
}

TEST(server_has_the_same_slots_of_tags)
{
	random_state = test_seed();
	start();
	for (int i = 0; i < RUNS; i++) {
		unsigned slot = draw(LK__SLOTS);
		char tag[LK__TAG_SIZE];

		lk__slot_tag(slot, tag);
		ck_assert_int_eq(redis_int(redis, "CLUSTER KEYSLOT lk:fence:{%s}", tag), slot);
	}
	stop();
}
