/* SPDX-License-Identifier: MIT
 * Threads of one contestant: parked between turns, all working within one. */
#include "crew.h"

#include "bench.h"

#include <pthread.h>
#include <stdlib.h>

struct hand {
	struct crew *crew;
	pthread_t thread;
	int number;
	int64_t done; /* in this turn */
};

struct crew {
	crew_fn *fn;
	void *arg;
	int count;
	int64_t until_ns;                /* of this turn, 0 = end */
	pthread_barrier_t begin, finish; /* of a turn: all threads and the caller of crew_turn() */
	struct hand hands[];
};

static void *work(void *arg)
{
	struct hand *hand = arg;
	struct crew *crew = hand->crew;

	for (;;) {
		pthread_barrier_wait(&crew->begin);
		if (!crew->until_ns)
			return NULL;
		hand->done = crew->fn(crew->arg, hand->number, crew->until_ns);
		pthread_barrier_wait(&crew->finish);
	}
}

struct crew *crew_start(int count, crew_fn *fn, void *arg)
{
	struct crew *crew = calloc(1, sizeof(*crew) + sizeof(crew->hands[0]) * (size_t)count);

	if (!crew || pthread_barrier_init(&crew->begin, NULL, (unsigned)count + 1) ||
	    pthread_barrier_init(&crew->finish, NULL, (unsigned)count + 1))
		bench_fail("out of memory");
	crew->fn = fn;
	crew->arg = arg;
	crew->count = count;
	for (int i = 0; i < count; i++) {
		crew->hands[i].crew = crew;
		crew->hands[i].number = i;
		if (pthread_create(&crew->hands[i].thread, NULL, work, &crew->hands[i]))
			bench_fail("no thread");
	}
	return crew;
}

int64_t crew_turn(struct crew *crew, int64_t until_ns)
{
	int64_t sum = 0;

	crew->until_ns = until_ns;
	pthread_barrier_wait(&crew->begin);
	pthread_barrier_wait(&crew->finish);
	for (int i = 0; i < crew->count; i++)
		sum += crew->hands[i].done;
	return sum;
}

void crew_stop(struct crew *crew)
{
	crew->until_ns = 0;
	pthread_barrier_wait(&crew->begin);
	for (int i = 0; i < crew->count; i++)
		pthread_join(crew->hands[i].thread, NULL);
	pthread_barrier_destroy(&crew->begin);
	pthread_barrier_destroy(&crew->finish);
	free(crew);
}
