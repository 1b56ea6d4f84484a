/* SPDX-License-Identifier: MIT
 * The Redis in memory: INFO, the part of it that a marker of the server's memory depends on. */
#include "lua_store_parts.h"

#include <stdio.h>

/* An id of the server from a number, 0 = none. */
static void put_id(char text[41], uint64_t number)
{
	snprintf(text, 41, "%040llx", (unsigned long long)number);
}

void lua_run_info(struct lua_server *server, int argc, const struct lua_word *argv,
                  struct lk__buf *reply)
{
	const struct lua_store_process *process = &server->process;
	char run[41], replid[41], replid2[41], flushall[60], flushdb[60], text[600] = "";
	const int flushes = process->flushes ? process->flushes : 1;
	size_t size = sizeof(text);
	int len = 0;

	snprintf(flushall, sizeof(flushall), "cmdstat_flushall:calls=%d,usec=1\r\n", flushes);
	snprintf(flushdb, sizeof(flushdb), "cmdstat_flushdb:calls=%d,usec=1\r\n", flushes);
	put_id(run, process->run);
	if (process->run_id)
		snprintf(run, sizeof(run), "%s", process->run_id);
	put_id(replid, process->replid);
	put_id(replid2, process->replid2);
	if (argc == 1 || lua_word_is(argv[1], "server"))
		len += snprintf(
			text, size, "# Server\r\n%s%s%suptime_in_seconds:%lld\r\n",
			process->hides_run ? "" : "run_id:", process->hides_run ? "" : run,
			process->hides_run ? "" : "\r\n",
			(long long)(server->keys.now_us / 1000000 - process->began_us / 1000000));
	if (process->cluster && (argc == 1 || lua_word_is(argv[1], "server")))
		len += snprintf(text + len, size - (size_t)len, "%s_mode:cluster\r\n",
		                process->is_valkey ? "server" : "redis");
	if (process->process_id && (argc == 1 || lua_word_is(argv[1], "server")))
		len += snprintf(text + len, size - (size_t)len, "process_id:%lld\r\n",
		                (long long)process->process_id);
	if (argc == 1 || lua_word_is(argv[1], "replication"))
		len += snprintf(text + len, size - (size_t)len,
		                "# Replication\r\nrole:master\r\nmaster_replid:%s\r\n"
		                "master_replid2:%s\r\n",
		                replid, replid2);
	if (argc == 1 || lua_word_is(argv[1], "stats"))
		len += snprintf(text + len, size - (size_t)len, "# Stats\r\nevicted_keys:%lld\r\n",
		                (long long)process->evicted);
	if (process->swaps && (argc == 1 || lua_word_is(argv[1], "commandstats")))
		len += snprintf(text + len, size - (size_t)len,
		                "cmdstat_swapdb:calls=%d,usec=1\r\n", process->swaps);
	if (argc == 1 || lua_word_is(argv[1], "commandstats"))
		len += snprintf(text + len, size - (size_t)len, "# Commandstats\r\n%s%s%s%s",
		                process->flushed ? flushall : "",
		                process->flushed_db ? flushdb : "",
		                process->was_replica ? "cmdstat_replicaof:calls=1,usec=1\r\n" : "",
		                process->was_slave ? "cmdstat_slaveof:calls=1,usec=1\r\n" : "");
	if ((argc == 1 || lua_word_is(argv[1], "keyspace")) && server->keys.count > 0)
		len += snprintf(text + len, size - (size_t)len,
		                "# Keyspace\r\ndb0:keys=%zu,expires=0,avg_ttl=0\r\n",
		                server->keys.count);
	lua_reply_text(reply, text, (size_t)len);
}
