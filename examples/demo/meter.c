/* SPDX-License-Identifier: MIT
 * Counts the workers that read at this moment, independently of the library. */
#include "demo.h"

#include <stdatomic.h>
#include <sys/mman.h>

struct meter {
	atomic_bool inside[WORKERS];
	atomic_int most;
};

struct meter *meter_new(void)
{
	struct meter *meter = mmap(NULL, sizeof(*meter), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return meter == MAP_FAILED ? NULL : meter;
}

/* Enter first, then count: the worker that enters last sees all others. */
void meter_enter(struct meter *meter, int worker)
{
	int count = 0, most = atomic_load(&meter->most);

	atomic_store(&meter->inside[worker], true);
	for (int i = 0; i < WORKERS; i++)
		count += atomic_load(&meter->inside[i]);
	while (count > most && !atomic_compare_exchange_weak(&meter->most, &most, count))
		;
}

void meter_leave(struct meter *meter, int worker)
{
	atomic_store(&meter->inside[worker], false);
}

int meter_most(const struct meter *meter)
{
	return atomic_load(&meter->most);
}
