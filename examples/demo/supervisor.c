/* SPDX-License-Identifier: MIT
 * Starts the workers and hands batches out.  It causes two accidents: it kills one worker that
 * holds the lock, and stops another holder until a third worker has merged under a greater fence.
 * With Sentinel or a Cluster, it then kills the lock's master while one more worker holds the lock;
 * before that, it moves the lock's slot of a Cluster.  Of a quorum it kills one server, and later
 * restarts another one, each while one more worker holds the lock.  Of etcd it kills the leader
 * then. If a worker died and the file does not have its batch, it hands the batch out again. */
#include "demo.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 20
#define LIMIT_SECONDS 180

/* After this many orders, so that the accidents happen in the middle of the work. */
#define KILL_AFTER(batches) (10 * (batches) / 60)
#define STOP_AFTER(batches) (25 * (batches) / 60)
#define MOVE_AFTER(batches) (32 * (batches) / 60)
#define MASTER_AFTER(batches) (40 * (batches) / 60)
#define SERVER_AFTER MOVE_AFTER
#define RESTART_AFTER MASTER_AFTER
#define LEADER_AFTER MASTER_AFTER
#define FAILOVER_LIMIT_MS 40000
#define VOTE_LIMIT_MS 40000

struct run {
	struct demo *demo;
	struct worker *workers;
	int next;           /* the first batch that was never handed out */
	int again[WORKERS]; /* batches of dead workers */
	int again_count;
	int orders; /* handed out so far */
	int done;   /* batches merged, as reported by the workers */
	struct worker *stopped;
	uint64_t stopped_fence;
	struct worker *outlasting; /* until its hold of that time ends */
	volatile const int *stop;
	/* Still to come. */
	bool kill_planned, stop_planned, move_planned, master_planned, server_planned,
		restart_planned, leader_planned;
	bool refusal_seen;
	bool terminal;
	bool ok;
};

/* Print a line about an event, and redraw the progress line below it. */
static void print_event(const struct run *run, const char *text, const struct worker *worker,
                        uint64_t fence)
{
	printf("%s%6.1f s  worker %d %s", run->terminal ? "\r\033[K" : "", seconds_of(run->demo),
	       (int)(worker - run->workers) + 1, text);
	if (fence)
		printf(", fence %" PRIu64, fence);
	printf("\n");
	fflush(stdout);
}

static void progress(const struct run *run)
{
	if (!run->terminal)
		return;
	printf("\r\033[K%6.1f s  %d of %d batches merged", seconds_of(run->demo), run->done,
	       run->demo->batch_count);
	fflush(stdout);
}

static bool start_worker(struct run *run, struct worker *worker)
{
	int pair[2];
	pid_t parent = getpid();

	memset(worker, 0, sizeof(*worker));
	worker->channel = -1;
	worker->batch = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
		return complain("no socket pair", strerror(errno));
	worker->pid = fork();
	if (worker->pid == 0) {
		end_with_parent(parent);
		/* Close the other workers' channels: an inherited copy would hide their end. */
		for (int i = 0; i < WORKERS; i++)
			if (run->workers[i].channel >= 0)
				close(run->workers[i].channel);
		close(pair[0]);
		/* A terminal signals the whole group, but only the supervisor ends the run. */
		signal(SIGINT, SIG_IGN);
		signal(SIGQUIT, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		signal(SIGTERM, SIG_DFL);
		_exit(worker_run(run->demo, (int)(worker - run->workers), pair[1]));
	}
	close(pair[1]);
	worker->channel = pair[0];
	if (worker->pid < 0) {
		close(pair[0]);
		worker->channel = -1;
		return complain("cannot fork", strerror(errno));
	}
	return true;
}

/* Without a latch, they start at the end of a pipe that no other process has. */
static void start_workers(struct run *run)
{
	int *barrier = run->demo->barrier;
	bool has_barrier = run->demo->locked && !run->demo->has_latch;

	if (has_barrier && pipe(barrier) != 0)
		has_barrier = run->ok = complain("no pipe", strerror(errno));
	for (int i = 0; i < WORKERS && run->ok; i++)
		run->ok = start_worker(run, &run->workers[i]);
	for (int i = 0; i < 2 && has_barrier; i++)
		close(barrier[i]);
}

/* Give an idle worker its next order.  While the last batches are in progress, there is none yet,
 * since one of them may come back. */
static void give_order(struct run *run, struct worker *worker)
{
	struct order order = {.kind = DO_BATCH};

	worker->batch = -1;
	if (run->again_count > 0)
		order.batch = run->again[--run->again_count];
	else if (run->next < run->demo->batch_count)
		order.batch = run->next++;
	else
		return;
	run->orders++;
	if (run->kill_planned && run->orders > KILL_AFTER(run->demo->batch_count)) {
		run->kill_planned = false;
		worker->killed = order.pause = true;
	} else if (run->stop_planned && run->orders > STOP_AFTER(run->demo->batch_count)) {
		run->stop_planned = false;
		worker->stopped = order.pause = true;
	} else if (run->move_planned && run->orders > MOVE_AFTER(run->demo->batch_count)) {
		run->move_planned = false;
		worker->moves = order.pause = true;
	} else if (run->master_planned && run->orders > MASTER_AFTER(run->demo->batch_count)) {
		run->master_planned = false;
		worker->outlives = order.pause = order.reclaim = true;
	} else if (run->server_planned && run->orders > SERVER_AFTER(run->demo->batch_count)) {
		run->server_planned = false;
		worker->outlives = order.pause = true;
	} else if (run->restart_planned && run->orders > RESTART_AFTER(run->demo->batch_count)) {
		run->restart_planned = false;
		worker->outlasts = order.pause = true;
	} else if (run->leader_planned && run->orders > LEADER_AFTER(run->demo->batch_count)) {
		run->leader_planned = false;
		worker->outlasts = order.pause = true;
	}
	worker->batch = order.batch;
	/* If the worker is dead, its channel ends, and its batch is taken back then. */
	(void)channel_send(worker->channel, &order, sizeof(order));
}

static void kill_holder(struct run *run, struct worker *worker, const struct note *note)
{
	kill(worker->pid, SIGKILL);
	print_event(run, "holds the lock and is killed (SIGKILL)", worker, note->fence);
}

static void stop_holder(struct run *run, struct worker *worker, const struct note *note)
{
	int status = 0;

	kill(worker->pid, SIGSTOP);
	if (waitpid(worker->pid, &status, WUNTRACED) != worker->pid || !WIFSTOPPED(status)) {
		run->ok = complain("the worker did not stop", "waitpid");
		return;
	}
	run->stopped = worker;
	run->stopped_fence = note->fence;
	print_event(run, "holds the lock and is stopped (SIGSTOP)", worker, note->fence);
}

static void move_slot(struct run *run, struct worker *worker, const struct note *note)
{
	struct order go_on = {.kind = GO_ON};

	worker->moves = false;
	if (!cluster_move_slot(&run->demo->service))
		run->ok = false;
	print_event(run, "holds the lock, whose slot is moved to another master", worker,
	            note->fence);
	(void)channel_send(worker->channel, &go_on, sizeof(go_on));
}

static void kill_master(struct run *run, struct worker *worker, const struct note *note)
{
	struct order go_on = {.kind = GO_ON};

	if (run->demo->store == CLUSTER)
		cluster_kill_master(&run->demo->service);
	else
		service_kill_master(&run->demo->service);
	run->demo->failover.killed_us = now_us();
	print_event(run, "holds the lock, and the master is killed (SIGKILL)", worker, note->fence);
	(void)channel_send(worker->channel, &go_on, sizeof(go_on));
}

static void kill_server(struct run *run, struct worker *worker, const struct note *note)
{
	struct order go_on = {.kind = GO_ON};

	run->demo->outage.killed_us = now_us();
	quorum_kill_server(&run->demo->service);
	print_event(run, "holds the lock, and a server is killed (SIGKILL)", worker, note->fence);
	(void)channel_send(worker->channel, &go_on, sizeof(go_on));
}

/* The worker continues when the server votes again: see look_after_outage(). */
static void restart_server(struct run *run, struct worker *worker, const struct note *note)
{
	run->demo->outage.restarted_us = now_us();
	if (run->terminal)
		printf("\r\033[K");
	if (!quorum_restart_server(run->demo, run->stop))
		run->ok = false;
	run->outlasting = worker;
	print_event(run, "holds the lock, and another server has restarted empty", worker,
	            note->fence);
}

/* The worker continues when another member leads: see look_after_outage(). */
static void kill_leader(struct run *run, struct worker *worker, const struct note *note)
{
	run->demo->outage.killed_us = now_us();
	if (!etcd_kill_leader(&run->demo->service))
		run->ok = complain("etcd has no leader", "giving up");
	run->outlasting = worker;
	print_event(run, "holds the lock, and the leader is killed (SIGKILL)", worker, note->fence);
}

/* Continue the holder when the server votes again, or etcd has a leader.  By then its lease would
 * have expired on a quorum, had the other servers not renewed it. */
static void look_after_outage(struct run *run)
{
	struct outage *outage = &run->demo->outage;
	struct order go_on = {.kind = GO_ON};
	bool is_etcd = run->demo->store == ETCD;

	if (!run->outlasting || outage->whole_us)
		return;
	if (is_etcd ? etcd_has_leader(&run->demo->service)
	            : quorum_votes_again(&run->demo->service)) {
		outage->whole_us = now_us();
		print_event(run,
		            is_etcd ? "is continued: another member leads"
		                    : "is continued: the restarted server votes again",
		            run->outlasting, 0);
		(void)channel_send(run->outlasting->channel, &go_on, sizeof(go_on));
	} else if (now_us() - (is_etcd ? outage->killed_us : outage->restarted_us) >
	           VOTE_LIMIT_MS * 1000LL) {
		run->ok = complain(is_etcd ? "no other member leads"
		                           : "the restarted server does not vote",
		                   "giving up");
	}
}

/* Print once which master follows the dead one. */
static void look_after_master(struct run *run)
{
	struct failover *failover = &run->demo->failover;
	int port;

	if (!failover->killed_us || failover->named_us)
		return;
	port = run->demo->store == CLUSTER ? cluster_new_master(&run->demo->service)
	                                   : service_new_master(&run->demo->service);
	if (port) {
		failover->named_us = now_us();
		printf("%s%6.1f s  %s the new master, 127.0.0.1:%d; its grace is %.0f s\n",
		       run->terminal ? "\r\033[K" : "", seconds_of(run->demo),
		       run->demo->store == CLUSTER ? "a replica is" : "a sentinel names", port,
		       (run->demo->store == CLUSTER ? CLUSTER_GRACE_MS : SERVICE_GRACE_MS) /
		               1000.0);
		fflush(stdout);
	} else if (now_us() - failover->killed_us > FAILOVER_LIMIT_MS * 1000LL) {
		run->ok = complain("there is no new master", "giving up");
	}
}

/* A response of the old master may arrive shortly after its death, and the new one cannot grant
 * before a sentinel names it. */
static void see_grants(struct run *run, const struct note *note)
{
	struct failover *failover = &run->demo->failover;

	for (int i = 0; i < GRANTS; i++) {
		int64_t grant_us = note->grants_us[i];
		bool is_new = failover->named_us && grant_us >= failover->named_us;

		if (!is_new && grant_us > failover->last_us[i])
			failover->last_us[i] = grant_us;
		if (is_new && (!failover->first_us[i] || grant_us < failover->first_us[i]))
			failover->first_us[i] = grant_us;
	}
}

static void see_outage(struct run *run, const struct note *note)
{
	struct outage *outage = &run->demo->outage;
	int64_t grant_us = note->grants_us[GRANT_LOCK];

	if (outage->killed_us && grant_us > outage->killed_us &&
	    (!outage->granted_us || grant_us < outage->granted_us))
		outage->granted_us = grant_us;
}

/* Continue the stopped worker when its lease has expired and another worker has merged. */
static void look_after_stopped(struct run *run)
{
	struct order go_on = {.kind = GO_ON};
	struct shared_head head;

	if (!run->stopped || !shared_read_head(run->demo->shared, &head) ||
	    head.fence <= run->stopped_fence)
		return;
	print_event(run, "is continued (SIGCONT) after others merged", run->stopped, head.fence);
	(void)channel_send(run->stopped->channel, &go_on, sizeof(go_on));
	kill(run->stopped->pid, SIGCONT);
	run->stopped = NULL;
}

/* Record the times of a worker that has passed the latch, and give it its first order. */
static void take_ready(struct run *run, struct worker *worker, const struct note *note)
{
	struct demo *demo = run->demo;

	if (note->ready_us > demo->last_ready_us)
		demo->last_ready_us = note->ready_us;
	if (demo->first_begin_us == 0 || note->begin_us < demo->first_begin_us)
		demo->first_begin_us = note->begin_us;
	if (note->begin_us > demo->last_begin_us)
		demo->last_begin_us = note->begin_us;
	give_order(run, worker);
}

static void take_done(struct run *run, struct worker *worker, const struct note *note)
{
	if (worker->wait_count < 2 * BATCHES_MAX)
		worker->waits_us[worker->wait_count++] = note->wait_us;
	if (run->demo->store == QUORUM || run->demo->store == ETCD)
		see_outage(run, note);
	else
		see_grants(run, note);
	worker->reclaimed = note->reclaimed;
	worker->losses += note->lost;
	if (worker == run->outlasting) {
		run->demo->outage.lost = note->lost;
		run->outlasting = NULL;
	}
	if (note->outcome == REFUSED) {
		worker->refused++;
		run->refusal_seen = true;
		print_event(run, "comes too late: its update is refused", worker, note->fence);
		return;
	}
	worker->merges += note->outcome == MERGED;
	run->done++;
	give_order(run, worker);
}

/* Report a death that was not planned. */
static void report_death(const struct run *run, const struct worker *worker, int status)
{
	char text[80];

	if (WIFSIGNALED(status))
		snprintf(text, sizeof(text), "was ended by signal %d (%s)", WTERMSIG(status),
		         strsignal(WTERMSIG(status)));
	else
		snprintf(text, sizeof(text), "ended by itself with status %d", WEXITSTATUS(status));
	print_event(run, text, worker, 0);
}

/* The channel has ended, so the process has ended or will end.  After waitpid() it cannot change
 * the file any more. */
static void bury(struct run *run, struct worker *worker)
{
	struct shared_head head;
	int status = 0;

	close(worker->channel);
	worker->channel = -1;
	while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!worker->killed) {
		worker->failed = true;
		run->ok = false;
		report_death(run, worker, status);
	}
	if (worker == run->stopped)
		run->stopped = NULL;
	if (worker == run->outlasting)
		run->outlasting = NULL;
	if (worker->batch < 0 || !run->demo->locked || !shared_read_head(run->demo->shared, &head))
		return;
	if (head.merged[worker->batch]) {
		run->done++;
	} else {
		run->again[run->again_count++] = worker->batch;
		print_event(run, "is dead, and its batch is not in the file: handed out again",
		            worker, 0);
	}
	worker->batch = -1;
}

static void read_notes(struct run *run, struct worker *worker)
{
	struct note note;

	if (!channel_receive(worker->channel, &note, sizeof(note)))
		bury(run, worker);
	else if (note.kind == HOLDING && worker->killed)
		kill_holder(run, worker, &note);
	else if (note.kind == HOLDING && worker->moves)
		move_slot(run, worker, &note);
	else if (note.kind == HOLDING && worker->outlasts && run->demo->store == ETCD)
		kill_leader(run, worker, &note);
	else if (note.kind == HOLDING && worker->outlasts)
		restart_server(run, worker, &note);
	else if (note.kind == HOLDING && worker->outlives && run->demo->store == QUORUM)
		kill_server(run, worker, &note);
	else if (note.kind == HOLDING && worker->outlives)
		kill_master(run, worker, &note);
	else if (note.kind == HOLDING)
		stop_holder(run, worker, &note);
	else if (note.kind == RECLAIMED)
		print_event(run, "has taken its hold back from the new master", worker, note.fence);
	else if (note.kind == READY)
		take_ready(run, worker, &note);
	else
		take_done(run, worker, &note);
}

static int living(const struct run *run)
{
	int count = 0;

	for (int i = 0; i < WORKERS; i++)
		count += run->workers[i].channel >= 0;
	return count;
}

static void listen_to_all(struct run *run)
{
	struct pollfd fds[WORKERS];

	for (int i = 0; i < WORKERS; i++)
		fds[i] = (struct pollfd){.fd = run->workers[i].channel, .events = POLLIN};
	if (poll(fds, WORKERS, TICK_MS) > 0)
		for (int i = 0; i < WORKERS; i++)
			if (fds[i].revents)
				read_notes(run, &run->workers[i]);
	/* Hand a batch that came back to an idle worker. */
	for (int i = 0; i < WORKERS && run->again_count > 0; i++)
		if (run->workers[i].channel >= 0 && run->workers[i].batch < 0)
			give_order(run, &run->workers[i]);
}

/* End every worker: all batches are merged, or the run has failed. */
static void dismiss(struct run *run)
{
	struct order quit = {.kind = QUIT};

	for (int i = 0; i < WORKERS; i++) {
		struct worker *worker = &run->workers[i];

		if (worker->channel < 0)
			continue;
		if (!run->ok)
			kill(worker->pid, SIGKILL);
		(void)channel_send(worker->channel, &quit, sizeof(quit));
		while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR)
			;
		close(worker->channel);
		worker->channel = -1;
	}
}

bool supervisor_run(struct demo *demo, struct worker workers[WORKERS], volatile const int *stop)
{
	struct run run = {.demo = demo,
	                  .workers = workers,
	                  .kill_planned = demo->locked,
	                  .stop_planned = demo->locked,
	                  .move_planned = demo->store == CLUSTER,
	                  .master_planned = demo->store == SENTINEL || demo->store == CLUSTER,
	                  .server_planned = demo->store == QUORUM,
	                  .restart_planned = demo->store == QUORUM,
	                  .leader_planned = demo->store == ETCD,
	                  .stop = stop,
	                  .terminal = isatty(STDOUT_FILENO),
	                  .ok = true};

	for (int i = 0; i < WORKERS; i++)
		workers[i].channel = -1;
	start_workers(&run);
	while (run.ok && run.done < demo->batch_count) {
		listen_to_all(&run);
		look_after_stopped(&run);
		look_after_master(&run);
		look_after_outage(&run);
		progress(&run);
		if (*stop)
			run.ok = complain("interrupted", "ending");
		else if (seconds_of(demo) > LIMIT_SECONDS)
			run.ok = complain("too slow", "giving up");
		else if (!living(&run))
			run.ok = complain("no worker is left", "giving up");
	}
	if (run.terminal)
		printf("\r\033[K");
	dismiss(&run);
	/* A run without all accidents would prove nothing. */
	if (run.ok && demo->locked &&
	    (run.kill_planned || run.stop_planned || run.move_planned || run.master_planned ||
	     run.server_planned || run.restart_planned || run.leader_planned || !run.refusal_seen))
		run.ok = complain("an accident did not happen", "no verdict");
	return run.ok;
}
