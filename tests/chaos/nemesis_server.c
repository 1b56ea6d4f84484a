/* SPDX-License-Identifier: MIT
 * Faults of the server: stopped, killed, emptied, full, busy, its clock set. */
#include "chaos/nemesis.h"

#include "harness/process.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAY_S 5
#define CLOCK_STEP_MS 5000
#define BUSY_SCRIPT "local e=os.clock()+0.7 while os.clock()<e do end return 1"

/* One command on a connection of its own; true on success. */
static bool say(const struct round *round, const char *fmt, const char *word)
{
	struct timeval limit = {SAY_S, 0};
	redisContext *context = redisConnectUnixWithTimeout(round->server.socket_path, limit);
	redisReply *reply = NULL;
	bool done;

	if (context && !context->err && redisSetTimeout(context, limit) == REDIS_OK)
		reply = redisCommand(context, fmt, word);
	done = reply && reply->type != REDIS_REPLY_ERROR;
	freeReplyObject(reply);
	if (context)
		redisFree(context);
	return done;
}

bool nemesis_grace_end(struct round *round)
{
	struct timeval limit = {SAY_S, 0};
	redisContext *context = redisConnectUnixWithTimeout(round->server.socket_path, limit);
	redisReply *reply = NULL;
	char id[100], marker[150] = "";
	long long since_us;

	if (context && !context->err)
		reply = redisCommand(context, "GET lk:epoch");
	if (reply && reply->str && sscanf(reply->str, "1 %99s %lld", id, &since_us) == 2)
		snprintf(marker, sizeof(marker), "1 %s %lld", id,
		         since_us - (long long)round->options->grace_ms * 1000);
	freeReplyObject(reply);
	if (context)
		redisFree(context);
	return *marker && say(round, "SET lk:epoch %s", marker);
}

/* A foreign script that takes long; in a process of its own, because the command blocks. */
static pid_t busy_start(const struct round *round)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		say(round, "EVAL %s 0", BUSY_SCRIPT);
	_exit(0);
}

static void server_kill_and_start(struct round *round, bool empty)
{
	char path[200];

	server_kill(&round->server);
	if (empty) {
		snprintf(path, sizeof(path), "%s/dump.rdb", round->server.dir);
		unlink(path);
		round->saved = false;
	}
	round_server(round, NULL);
}

static void clock_step(struct round *round)
{
	int64_t step_ms = chaos_between(&round->dice, 100, CLOCK_STEP_MS);

	if (chaos_once_in(&round->dice, 2))
		step_ms = -step_ms;
	/* The offset stays near zero: keys must expire within this round. */
	if (round->clock_ms + step_ms > CLOCK_STEP_MS || round->clock_ms + step_ms < -CLOCK_STEP_MS)
		step_ms = -step_ms;
	round_log(round, "clock", "server", "at clock=%lld", (long long)step_ms);
	round->clock_ms += step_ms;
	if (pwrite(round->clock_fd, &round->clock_ms, sizeof(round->clock_ms), 0) < 0)
		round_complain(round, "the clock cannot be moved");
}

static bool delete (struct round *round, const struct nemesis_fault *fault)
{
	char key[64];
	static const char *const ends[] = {"", "", ":q", ":h"};

	snprintf(key, sizeof(key), "lk:{%s}%s", chaos_names[fault->target].name,
	         ends[chaos_between(&round->dice, 0, 3)]);
	return say(round, "DEL %s", key);
}

bool nemesis_server_begin(struct round *round, struct nemesis_fault *fault, int64_t ms)
{
	char number[32];

	switch (fault->kind) {
	case NEMESIS_SERVER_STOP:
		server_pause(&round->server);
		return true;
	case NEMESIS_RESTART:
		server_kill_and_start(round, false);
		return true;
	case NEMESIS_RESTART_EMPTY:
		server_kill_and_start(round, true);
		return true;
	case NEMESIS_RESTART_OLD:
		server_kill_and_start(round, false);
		return true;
	case NEMESIS_SCRIPT_FLUSH:
		return say(round, "SCRIPT %s", "FLUSH");
	case NEMESIS_CLIENT_PAUSE:
		snprintf(number, sizeof(number), "%lld", (long long)ms);
		return say(round, "CLIENT PAUSE %s ALL", number);
	case NEMESIS_KILL_MESSAGES:
		return say(round, "CLIENT KILL TYPE %s", "pubsub");
	case NEMESIS_KILL_COMMANDS:
		return say(round, "CLIENT KILL TYPE %s", "normal");
	case NEMESIS_OUT_OF_MEMORY:
		return say(round, "CONFIG SET maxmemory %s", "1");
	case NEMESIS_BUSY_SCRIPT:
		fault->pid = busy_start(round);
		return fault->pid > 0;
	case NEMESIS_FLUSH_ALL:
		return say(round, "FLUSHALL %s", "SYNC");
	case NEMESIS_DELETE:
		return delete (round, fault);
	case NEMESIS_SAVE:
		round->saved = say(round, "%s", "SAVE");
		round->saved_ns = history_now_ns();
		return round->saved;
	case NEMESIS_CLOCK:
		clock_step(round);
		return true;
	default:
		return false;
	}
}

void nemesis_server_end(struct round *round, struct nemesis_fault *fault)
{
	switch (fault->kind) {
	case NEMESIS_SERVER_STOP:
		server_resume(&round->server);
		return;
	case NEMESIS_CLIENT_PAUSE:
		say(round, "CLIENT %s", "UNPAUSE");
		return;
	case NEMESIS_OUT_OF_MEMORY:
		if (!say(round, "CONFIG SET maxmemory %s", "0"))
			round_complain(round, "the server's memory limit cannot be reset");
		return;
	case NEMESIS_BUSY_SCRIPT:
		while (waitpid(fault->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
		return;
	default:
		return;
	}
}
