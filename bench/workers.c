/* SPDX-License-Identifier: MIT
 * Workers: processes or threads that begin a turn all at once and sleep outside of it.  They meet
 * at a gate in shared memory, by futexes, without spinning: the same for processes and threads. */
#include "workers.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE_UP_US 1000
#define STACK_SIZE 262144
#define OPENING_MAX 16    /* at once: a server's accept queue is short */
#define LOOK_NS 100000000 /* how often to check that all are alive */
#define STUCK_NS 120000000000

struct gate {
	atomic_uint turn;    /* counts turns; a worker sleeps until it changes */
	atomic_uint working; /* workers that have not ended the turn (at first: opening) */
	atomic_uint entered;
	bool over; /* no more turns: close and end */
	struct order order;
	sem_t opening;
	_Alignas(64) atomic_llong granted; /* to all, since the start */
	_Alignas(64) struct tally tallies[];
};

struct worker {
	struct workers *all;
	int index;
	pid_t pid;
	pthread_t thread;
};

struct workers {
	const struct stage *stage;
	struct work work;
	int count;
	bool processes;
	struct gate *gate;
	size_t size;           /* of the gate */
	atomic_llong *granted; /* in this gate, or another's */
	struct worker worker[];
};

/* ---- Sleeping ------------------------------------------------------------------------------ */

static void sleep_while(atomic_uint *word, unsigned value, int64_t ns)
{
	struct timespec limit = {ns / 1000000000, ns % 1000000000};

	syscall(SYS_futex, word, FUTEX_WAIT, value, ns < 0 ? NULL : &limit, NULL, 0);
}

static void wake_all(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void nap_us(int us)
{
	struct timespec left = {0, us * 1000L};

	if (us)
		nanosleep(&left, NULL);
}

/* ---- A worker ------------------------------------------------------------------------------ */

static int step_of(int64_t wait_ns)
{
	int step = wait_ns < 1 ? 0 : (int)(log2((double)wait_ns) * 8);

	return step < WAIT_STEPS ? step : WAIT_STEPS - 1;
}

double tally_wait_ns(const struct tally *tally, double share)
{
	int64_t shorter = 0;

	for (int step = 0; step < WAIT_STEPS; step++) {
		shorter += tally->by_length[step];
		if (tally->waits && (double)shorter >= (double)tally->waits * share)
			return exp2((step + 0.5) / 8);
	}
	return 0;
}

static void count_wait(struct tally *tally, int64_t wait_ns, int64_t passed)
{
	tally->waits++;
	tally->by_length[step_of(wait_ns)]++;
	tally->wait_sum_ns += wait_ns;
	tally->passed_sum += passed;
	if (wait_ns > tally->wait_max_ns)
		tally->wait_max_ns = wait_ns;
	if (passed > tally->passed_max)
		tally->passed_max = passed;
}

static void contend(const struct workers *workers, void *self, struct tally *result)
{
	const struct work *work = &workers->work;
	int64_t until_ns = workers->gate->order.until_ns;
	int64_t before_ns = bench_now_ns(), now_ns;
	struct tally tally = {.start_ns = before_ns};

	do {
		int64_t before = atomic_load_explicit(workers->granted, memory_order_relaxed);

		if (!work->acquire(self, until_ns))
			break;
		now_ns = bench_now_ns();
		before = atomic_fetch_add_explicit(workers->granted, 1, memory_order_relaxed) -
		         before;
		if (tally.ops++)
			count_wait(&tally, now_ns - before_ns, before);
		nap_us(work->hold_us);
		work->release(self);
		nap_us(work->rest_us);
		before_ns = bench_now_ns();
	} while (before_ns < until_ns);
	tally.end_ns = before_ns;
	*result = tally;
}

static void one_turn(const struct workers *workers, void *self, struct tally *tally)
{
	atomic_fetch_add(&workers->gate->entered, 1);
	if (!workers->work.turn) {
		contend(workers, self, tally);
		return;
	}
	*tally = (struct tally){.ops = 1, .start_ns = bench_now_ns()};
	workers->work.turn(self, &workers->gate->order);
	tally->end_ns = bench_now_ns();
}

static void end_turn(struct gate *gate)
{
	if (atomic_fetch_sub(&gate->working, 1) == 1)
		wake_all(&gate->working);
}

static void *work_on(void *arg)
{
	const struct worker *worker = arg;
	const struct workers *workers = worker->all;
	struct gate *gate = workers->gate;
	unsigned turn = 0;
	void *self;

	while (sem_wait(&gate->opening) && errno == EINTR)
		continue;
	self = workers->work.open(workers->stage, worker->index);
	sem_post(&gate->opening);
	for (;;) {
		end_turn(gate);
		while (atomic_load(&gate->turn) == turn)
			sleep_while(&gate->turn, turn, -1);
		turn++;
		if (gate->over)
			break;
		one_turn(workers, self, &gate->tallies[worker->index]);
	}
	workers->work.close(self);
	end_turn(gate);
	return NULL;
}

/* ---- All of them --------------------------------------------------------------------------- */

static void start_process(struct worker *worker)
{
	pid_t parent = getpid();

	worker->pid = fork();
	if (worker->pid < 0)
		bench_fail("cannot fork worker %d: %s", worker->index, strerror(errno));
	if (worker->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	work_on(worker);
	_exit(0);
}

static void start_thread(struct worker *worker)
{
	pthread_attr_t attributes;
	int err = pthread_attr_init(&attributes);

	if (!err)
		err = pthread_attr_setstacksize(&attributes, STACK_SIZE);
	if (!err)
		err = pthread_create(&worker->thread, &attributes, work_on, worker);
	if (err)
		bench_fail("cannot start thread %d: %s", worker->index, strerror(err));
	pthread_attr_destroy(&attributes);
}

/* Wait until no worker is working; one that ended by itself ends the run. */
static void await_all(struct workers *workers)
{
	struct gate *gate = workers->gate;
	int64_t give_up_ns = bench_now_ns() + STUCK_NS;
	unsigned working;

	while ((working = atomic_load(&gate->working))) {
		sleep_while(&gate->working, working, LOOK_NS);
		if (bench_now_ns() > give_up_ns)
			bench_fail("%u of %d workers do not end their turn", working,
			           workers->count);
		for (int i = 0; workers->processes && !gate->over && i < workers->count; i++)
			if (waitpid(workers->worker[i].pid, NULL, WNOHANG))
				bench_fail("worker %d has ended", i);
	}
}

struct workers *workers_start(const struct stage *stage, const struct work *work, int count,
                              bool processes)
{
	struct workers *workers =
		calloc(1, sizeof(*workers) + sizeof(workers->worker[0]) * (size_t)count);
	struct gate *gate;
	size_t size = sizeof(*gate) + sizeof(gate->tallies[0]) * (size_t)count;

	gate = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!workers || gate == MAP_FAILED || sem_init(&gate->opening, 1, OPENING_MAX))
		bench_fail("no memory for %d workers", count);
	workers->stage = stage;
	workers->work = *work;
	workers->count = count;
	workers->processes = processes;
	workers->gate = gate;
	workers->size = size;
	workers->granted = &gate->granted;
	atomic_store(&gate->working, (unsigned)count);
	fflush(NULL);
	for (int i = 0; i < count; i++) {
		workers->worker[i].all = workers;
		workers->worker[i].index = i;
		if (processes)
			start_process(&workers->worker[i]);
		else
			start_thread(&workers->worker[i]);
	}
	await_all(workers);
	return workers;
}

void workers_begin(struct workers *workers, const struct order *order)
{
	struct gate *gate = workers->gate;

	gate->order = *order;
	atomic_store(&gate->entered, 0);
	atomic_store(&gate->working, (unsigned)workers->count);
	atomic_fetch_add(&gate->turn, 1);
	wake_all(&gate->turn);
}

void workers_await(struct workers *workers, struct tally *sum)
{
	await_all(workers);
	*sum = (struct tally){.fewest = INT64_MAX, .start_ns = INT64_MAX};
	for (int i = 0; i < workers->count; i++) {
		const struct tally *one = &workers->gate->tallies[i];

		sum->ops += one->ops;
		sum->waits += one->waits;
		sum->wait_sum_ns += one->wait_sum_ns;
		sum->passed_sum += one->passed_sum;
		if (one->wait_max_ns > sum->wait_max_ns)
			sum->wait_max_ns = one->wait_max_ns;
		if (one->passed_max > sum->passed_max)
			sum->passed_max = one->passed_max;
		if (one->ops < sum->fewest)
			sum->fewest = one->ops;
		if (one->ops > sum->most)
			sum->most = one->ops;
		if (one->start_ns < sum->start_ns)
			sum->start_ns = one->start_ns;
		if (one->end_ns > sum->end_ns)
			sum->end_ns = one->end_ns;
		for (int step = 0; step < WAIT_STEPS; step++)
			sum->by_length[step] += one->by_length[step];
	}
}

void workers_share_grants(struct workers *workers, const struct workers *with)
{
	workers->granted = with->granted;
}

void workers_line_up(const struct workers *workers)
{
	while (atomic_load(&workers->gate->entered) < (unsigned)workers->count)
		nap_us(LINE_UP_US);
	nap_us(LINE_UP_US);
}

int64_t workers_cpu_ns(const struct workers *workers)
{
	int64_t sum = 0;

	for (int i = 0; i < workers->count; i++)
		sum += bench_cpu_ns(workers->worker[i].pid);
	return sum;
}

void workers_end(struct workers *workers)
{
	struct gate *gate = workers->gate;

	gate->over = true;
	workers_begin(workers, &gate->order);
	await_all(workers);
	for (int i = 0; i < workers->count; i++) {
		if (workers->processes)
			waitpid(workers->worker[i].pid, NULL, 0);
		else
			pthread_join(workers->worker[i].thread, NULL);
	}
	sem_destroy(&gate->opening);
	munmap(gate, workers->size);
	free(workers);
}
