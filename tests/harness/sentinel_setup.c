/* SPDX-License-Identifier: MIT
 * A real service of Sentinel: a master, two replicas and three sentinels. */
#include "sentinel_setup.h"

#include "process.h"
#include "redis.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TRIES 5
#define START_MS 10000
#define AGREE_MS 20000 /* sentinels greet each other every 2 s */
#define SYNC_MS 10000

static int run_sentinel(void *arg, int in, int out)
{
	const struct test_server *sentinel = arg;
	char path[4200], config[120];
	const char *argv0;

	(void)in;
	(void)out;
	if (!server_find(path, sizeof(path), &argv0))
		return 126;
	snprintf(config, sizeof(config), "%s/sentinel.conf", sentinel->dir);
	execl(path, argv0, config, "--sentinel", (char *)NULL);
	return 126;
}

/* False if the process ends before it replies, as it does if the port is in use. */
static bool start_once(struct test_server *sentinel)
{
	struct process process;
	int64_t end_ms = now_ms() + START_MS;

	unlink(sentinel->socket_path);
	process_start(&process, run_sentinel, sentinel);
	close(process.in);
	close(process.out);
	sentinel->pid = process.pid;
	while (!server_answers(sentinel)) {
		if (waitpid(sentinel->pid, NULL, WNOHANG) == sentinel->pid) {
			sentinel->pid = 0;
			return false;
		}
		ck_assert_msg(now_ms() < end_ms, "the sentinel in %s is silent", sentinel->dir);
		nap_ms(2);
	}
	return true;
}

static void write_config(const struct sentinel_setup *setup, const struct test_server *sentinel)
{
	char path[120];
	FILE *config;

	snprintf(path, sizeof(path), "%s/sentinel.conf", sentinel->dir);
	config = fopen(path, "we");
	ck_assert_ptr_nonnull(config);
	fprintf(config,
	        "port %d\nbind 127.0.0.1\ndir %s\nunixsocket %s\nlogfile redis.log\n"
	        "sentinel monitor " SETUP_SERVICE " 127.0.0.1 %d 2\n"
	        "sentinel down-after-milliseconds " SETUP_SERVICE " %d\n"
	        "sentinel failover-timeout " SETUP_SERVICE " 5000\n",
	        sentinel->port, sentinel->dir, sentinel->socket_path, setup->first_port,
	        setup->down_after_ms);
	if (setup->password[0])
		fprintf(config, "requirepass %s\nsentinel sentinel-pass %s\n", setup->password,
		        setup->password);
	ck_assert(!fclose(config));
}

static void start_sentinel(const struct sentinel_setup *setup, struct test_server *sentinel)
{
	char dir[sizeof(sentinel->dir)];

	folder_make(dir, sizeof(dir));
	memcpy(sentinel->dir, dir, sizeof(dir));
	snprintf(sentinel->socket_path, sizeof(sentinel->socket_path), "%s/s", dir);
	for (int tries = 0; tries < START_TRIES; tries++) {
		sentinel->port = port_pick();
		write_config(setup, sentinel);
		if (start_once(sentinel))
			return;
	}
	ck_abort_msg("the sentinel in %s does not start: see its redis.log", sentinel->dir);
}

void sentinel_setup_restart(struct sentinel_setup *setup, int sentinel)
{
	server_kill(&setup->sentinels[sentinel]);
	if (!start_once(&setup->sentinels[sentinel]))
		ck_abort_msg("sentinel %d does not start again", sentinel);
}

static void start_servers(struct sentinel_setup *setup, const char *const *more, struct proxy *way)
{
	static char port[16]; /* the servers borrow their arguments */
	static const char *args[2][SERVER_ARGS_MAX];
	const char *const usual[] = {"--repl-diskless-sync-delay", "0",
	                             "--repl-ping-replica-period", "1"};

	for (int replica = 0; replica < 2; replica++) {
		int count = 0;
		for (; count < 4; count++)
			args[replica][count] = usual[count];
		for (int i = 0; more && more[i]; i++) {
			ck_assert_int_lt(count, SERVER_ARGS_MAX - 5);
			args[replica][count++] = more[i];
		}
		if (replica) {
			args[replica][count++] = "--replicaof";
			args[replica][count++] = "127.0.0.1";
			args[replica][count++] = port;
		}
		args[replica][count] = NULL;
	}
	server_start(&setup->servers[0], &(struct server_options){.args = args[0]});
	if (way)
		proxy_start_at_port(way, setup->servers[0].port);
	setup->first_port = way ? way->port : setup->servers[0].port;
	snprintf(port, sizeof(port), "%d", setup->first_port);
	for (int i = 1; i < SETUP_SERVERS; i++)
		server_start(&setup->servers[i], &(struct server_options){.args = args[1]});
}

/* A connection to a sentinel, logged in. */
static struct redis *open_sentinel(const struct sentinel_setup *setup, int sentinel)
{
	struct redis *redis = redis_open(&setup->sentinels[sentinel]);

	if (setup->password[0])
		redis_do(redis, "AUTH %s", setup->password);
	return redis;
}

/* Does it know both replicas and both other sentinels? */
static bool knows_all(const struct sentinel_setup *setup, int sentinel)
{
	struct redis *redis = open_sentinel(setup, sentinel);
	const char *text = redis_text(redis, "SENTINEL MASTER " SETUP_SERVICE);
	bool all = strstr(text, "num-slaves\n2\n") && strstr(text, "num-other-sentinels\n2\n");

	redis_close(redis);
	return all;
}

void sentinel_setup_start(struct sentinel_setup *setup,
                          const struct sentinel_setup_options *options)
{
	static const struct sentinel_setup_options usual;

	if (!options)
		options = &usual;
	memset(setup, 0, sizeof(*setup));
	setup->down_after_ms =
		options->down_after_ms ? options->down_after_ms : SETUP_DOWN_AFTER_MS;
	if (options->sentinel_password)
		snprintf(setup->password, sizeof(setup->password), "%s",
		         options->sentinel_password);
	start_servers(setup, options->args, options->way);
	/* A sentinel asks a master for its replicas at once, and then every 10 s. */
	sentinel_setup_await_sync(setup, 0);
	for (int i = 0; i < SETUP_SENTINELS; i++)
		start_sentinel(setup, &setup->sentinels[i]);
	for (int i = 0; i < SETUP_SENTINELS; i++)
		ck_assert_msg(WITHIN(AGREE_MS, knows_all(setup, i)), "sentinel %d is alone", i);
	snprintf(setup->url, sizeof(setup->url),
	         "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/" SETUP_SERVICE,
	         setup->sentinels[0].port, setup->sentinels[1].port, setup->sentinels[2].port);
}

void sentinel_setup_stop(struct sentinel_setup *setup)
{
	for (int i = 0; i < SETUP_SENTINELS; i++)
		server_stop(&setup->sentinels[i]);
	for (int i = 0; i < SETUP_SERVERS; i++)
		server_stop(&setup->servers[i]);
}

int sentinel_setup_named(const struct sentinel_setup *setup, int sentinel)
{
	struct redis *redis = open_sentinel(setup, sentinel);
	const char *port =
		strchr(redis_text(redis, "SENTINEL GET-MASTER-ADDR-BY-NAME " SETUP_SERVICE), '\n');
	int named = -1;

	for (int i = 0; port && i < SETUP_SERVERS; i++)
		if (atoi(port + 1) == (i ? setup->servers[i].port : setup->first_port))
			named = i;
	redis_close(redis);
	return named;
}

int sentinel_setup_master(const struct sentinel_setup *setup)
{
	int master = -1;

	for (int i = 0; i < SETUP_SENTINELS; i++) {
		int named;
		if (!setup->sentinels[i].pid)
			continue;
		named = sentinel_setup_named(setup, i);
		if (named < 0 || (master >= 0 && named != master))
			return -1;
		master = named;
	}
	return master;
}

bool sentinel_setup_is_master(const struct sentinel_setup *setup, int server)
{
	struct redis *redis = redis_open(&setup->servers[server]);
	bool is = !strncmp(redis_text(redis, "ROLE"), "master", 6);

	redis_close(redis);
	return is;
}

void sentinel_setup_failover(const struct sentinel_setup *setup)
{
	struct redis *redis = open_sentinel(setup, 0);

	/* NOGOODSLAVE until it has heard of the replicas' state. */
	ck_assert_msg(
		WITHIN(5000, !strcmp(redis_text(redis, "SENTINEL FAILOVER " SETUP_SERVICE), "OK")),
		"no failover: %s", redis_text(redis, "SENTINEL FAILOVER " SETUP_SERVICE));
	redis_close(redis);
}

int sentinel_setup_await_switch(const struct sentinel_setup *setup, int old_master)
{
	int master = -1;

	ck_assert_msg(WITHIN(SETUP_FAILOVER_MS,
	                     (master = sentinel_setup_master(setup)) >= 0 && master != old_master),
	              "the sentinels still name server %d", master);
	return master;
}

static long long offset_of(const struct sentinel_setup *setup, int server, const char *field)
{
	struct redis *redis = redis_open(&setup->servers[server]);
	long long offset = redis_info(redis, field);

	redis_close(redis);
	return offset;
}

void sentinel_setup_await_sync(const struct sentinel_setup *setup, int master)
{
	struct redis *redis = redis_open(&setup->servers[master]);
	long long offset;

	ck_assert(WITHIN(SYNC_MS, strstr(redis_text(redis, "INFO replication"), "slave1:") &&
	                                  !strstr(redis_text(redis, "INFO replication"),
	                                          "state=wait_bgsave")));
	offset = redis_info(redis, "master_repl_offset");
	redis_close(redis);
	for (int i = 0; i < SETUP_SERVERS; i++)
		if (i != master)
			ck_assert(WITHIN(SYNC_MS,
			                 offset_of(setup, i, "slave_repl_offset") >= offset));
}

void sentinel_setup_cut_replicas(struct sentinel_setup *setup, int master)
{
	struct redis *redis = redis_open(&setup->servers[master]);

	for (int i = 0; i < SETUP_SERVERS; i++)
		if (i != master)
			server_pause(&setup->servers[i]);
	ck_assert_int_eq(redis_int(redis, "CLIENT KILL TYPE replica"), SETUP_SERVERS - 1);
	redis_close(redis);
}
