/* SPDX-License-Identifier: MIT
 * A Cluster as a store: its masters, as one.  look() finds a key at its master, and counts keys and
 * requests of all. */
#include "cluster_store.h"

#include "cluster_slots.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATIENCE_MS 15000 /* a test may stop or restart the masters: that is no failover */
#define COUNTERS 200
#define REDIRECTIONS 8

const struct cluster_setup_options cluster_store_options = {.node_timeout_ms = PATIENCE_MS};

static struct cluster_setup *setup; /* of this test */

/* ---- One connection to all masters ----------------------------------------------------------- */

static char *run_at(int node, const char *bytes, size_t len, size_t *reply_len)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	char *reply = redis_raw(redis, bytes, len, reply_len);

	redis_close(redis);
	return reply;
}

static char *make_reply(size_t *reply_len, const char *text, const char *more)
{
	char *reply = NULL;
	FILE *out = open_memstream(&reply, reply_len);

	ck_assert_ptr_nonnull(out);
	fprintf(out, "%s%s", text, more);
	fclose(out);
	return reply;
}

static long long count_lines(const char *lines)
{
	long long count = 0;

	for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n')
		count++;
	return count;
}

/* Those of all masters, without the markers, one of each memory.  The fence counters, one of each
 * slot, count as the one of a server. */
static char *count_keys(size_t *reply_len)
{
	long long count = 0, fences = 0, here;
	char text[40];

	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		count += redis_int(redis, "DBSIZE");
		count -= count_lines(redis_text(redis, "KEYS lk:epoch:*"));
		here = count_lines(redis_text(redis, "KEYS lk:fence:*"));
		count -= here;
		fences += here;
		redis_close(redis);
	}
	snprintf(text, sizeof(text), ":%lld\r\n", count + (fences > 0));
	return make_reply(reply_len, text, "");
}

struct counter {
	char name[48];
	long long calls;
};

/* Of a sharded channel as of another one: spublish is publish. */
static void call_plain(char *command)
{
	if (!strcmp(command, "spublish") || !strcmp(command, "ssubscribe"))
		memmove(command, command + 1, strlen(command));
}

/* Add the lines "cmdstat_get:calls=5,usec=..." */
static int add_counters(const char *line, struct counter *counters, int count)
{
	for (; line; line = strchr(line, '\n'), line += line != NULL) {
		struct counter found;
		int i = 0;
		if (sscanf(line, "cmdstat_%47[^:]:calls=%lld", found.name, &found.calls) != 2)
			continue;
		call_plain(found.name);
		while (i < count && strcmp(counters[i].name, found.name) != 0)
			i++;
		ck_assert_int_lt(i, COUNTERS);
		if (i == count)
			counters[count++] = found;
		else
			counters[i].calls += found.calls;
	}
	return count;
}

/* INFO commandstats of all masters: the calls alone. */
static char *count_calls(size_t *reply_len)
{
	static struct counter counters[COUNTERS];
	char *text = NULL, head[32], *reply;
	size_t len;
	int count = 0;
	FILE *out = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(out);
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		count = add_counters(redis_text(redis, "INFO commandstats"), counters, count);
		redis_close(redis);
	}
	for (int i = 0; i < count; i++)
		fprintf(out, "cmdstat_%s:calls=%lld\r\n", counters[i].name, counters[i].calls);
	fprintf(out, "\r\n");
	fclose(out);
	snprintf(head, sizeof(head), "$%zu\r\n", len - 2);
	reply = make_reply(reply_len, head, text);
	free(text);
	return reply;
}

/* The last reply. */
static char *run_at_all(const char *bytes, size_t len, size_t *reply_len)
{
	char *reply = NULL;

	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		free(reply);
		reply = run_at(i, bytes, len, reply_len);
	}
	return reply;
}

/* The master that a reply of MOVED names, -1 if it is another reply. */
static int moved_to(const char *reply, size_t len)
{
	char text[100];
	const char *colon;

	if (len < 7 || memcmp(reply, "-MOVED ", 7) != 0)
		return -1;
	snprintf(text, sizeof(text), "%.*s", (int)len, reply);
	colon = strchr(text, ':');
	for (int i = 0; colon && i < CLUSTER_NODES; i++)
		if (atoi(colon + 1) == setup->nodes[i].port)
			return i;
	return -1;
}

static long long count_sharded(const char *channel)
{
	long long count = 0;

	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		const char *text = redis_text(redis, "PUBSUB SHARDNUMSUB %s", channel);
		count += atoll(text + strcspn(text, "\n"));
		redis_close(redis);
	}
	return count;
}

/* PUBSUB NUMSUB lk:l:0:{NAME}: the channel of a latch is sharded. */
static char *count_subscribers(const char *bytes, size_t *reply_len)
{
	static const char prefix[] = "lk:l:0:";
	const char *at = strstr(bytes, prefix);
	char channel[80], text[120];

	ck_assert_ptr_nonnull(at);
	at += strlen(prefix);
	snprintf(channel, sizeof(channel), "lk:l:%.*s", (int)strcspn(at, "\r"), at);
	snprintf(text, sizeof(text), "*2\r\n$%zu\r\n%s\r\n:%lld\r\n", strlen(channel), channel,
	         count_sharded(channel));
	return make_reply(reply_len, text, "");
}

/* Does the command, as it is sent, begin with this word? */
static bool is_command(const char *bytes, const char *word)
{
	const char *at = strstr(bytes, "\r\n$");

	at = at ? strstr(at + 3, "\r\n") : NULL;
	return at && !strncasecmp(at + 2, word, strlen(word)) && at[2 + strlen(word)] == '\r';
}

static char *run_command(const char *bytes, size_t len, size_t *reply_len)
{
	static const char *const at_all[] = {"FLUSHALL", "FLUSHDB", "SCRIPT", "CONFIG"};
	char *reply = NULL;
	int node = 0;

	if (is_command(bytes, "DBSIZE"))
		return count_keys(reply_len);
	if (is_command(bytes, "INFO"))
		return count_calls(reply_len);
	if (is_command(bytes, "PUBSUB"))
		return count_subscribers(bytes, reply_len);
	for (size_t i = 0; i < sizeof(at_all) / sizeof(at_all[0]); i++)
		if (is_command(bytes, at_all[i]))
			return run_at_all(bytes, len, reply_len);
	for (int i = 0; i < REDIRECTIONS && node >= 0; i++) {
		free(reply);
		reply = run_at(node, bytes, len, reply_len);
		node = moved_to(reply, *reply_len);
	}
	return reply;
}

/* ---- The row --------------------------------------------------------------------------------- */

static struct redis *look_at_all(void)
{
	return redis_open_in_process(run_command);
}

static const char *start_store(void)
{
	static char url[200];

	setup = cluster_setup_shared();
	snprintf(url, sizeof(url), "%s?grace=0", setup->url);
	return url;
}

static void restart_store(void)
{
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		cluster_setup_restart(setup, i);
	cluster_setup_await_ok(setup);
	cluster_setup_await_sync(setup);
}

static void pause_store(bool on)
{
	for (int i = 0; i < CLUSTER_NODES; i++)
		(on ? cluster_setup_pause : cluster_setup_resume)(setup, i);
}

static long long requests_of_store(void)
{
	long long requests = 0;

	for (int i = 0; i < CLUSTER_MASTERS; i++)
		requests += cluster_setup_requests(setup, i);
	return requests;
}

/* By the sharded channel of the name and the client. */
static bool does_hear(const char *client_id, const char *name)
{
	char channel[120];

	snprintf(channel, sizeof(channel), "lk:c:{%s}:%s", name, client_id);
	return count_sharded(channel) == 1;
}

const struct test_store store_in_cluster = {
	.has = STORE_OF_SERVER & ~STORE_DATABASES,
	.start = start_store,
	.restart = restart_store,
	.pause = pause_store,
	.look = look_at_all,
	.requests = requests_of_store,
	.hears = does_hear,
};
