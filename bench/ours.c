/* SPDX-License-Identifier: MIT
 * Latchkey with a client and a lock of its own. */
#include "ours.h"

#include "bench.h"

#include <stdlib.h>

struct ours *ours_open(const char *url, const char *name)
{
	struct ours *self = calloc(1, sizeof(*self));

	if (!self || lk_client_open(url, NULL, &self->client) ||
	    lk_lock_open(self->client, name, 0, NULL, &self->lock))
		bench_fail("latchkey: %s", lk_errmsg());
	return self;
}

void ours_close(void *ours)
{
	struct ours *self = ours;

	lk_client_close(self->client);
	free(self);
}

bool ours_acquire(void *ours, int64_t until_ns)
{
	struct ours *self = ours;

	(void)until_ns;
	if (lk_lock_acquire(self->lock, LK_FOREVER, NULL))
		bench_fail("latchkey: %s", lk_errmsg());
	return true;
}

void ours_release(void *ours)
{
	struct ours *self = ours;

	if (lk_lock_release(self->lock))
		bench_fail("latchkey: %s", lk_errmsg());
}

void ours_pair(void *ours)
{
	ours_acquire(ours, 0);
	ours_release(ours);
}
