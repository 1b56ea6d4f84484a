/* SPDX-License-Identifier: MIT
 * Latchkey with a client and a lock of its own, as contestants and workers use it.  A failure ends
 * the run. */
#ifndef OURS_H
#define OURS_H

#include <latchkey.h>

#include <stdbool.h>

struct ours {
	lk_client *client;
	lk_lock *lock;
};

struct ours *ours_open(const char *url, const char *name);
void ours_close(void *ours);
/* Waits as long as it takes: true. */
bool ours_acquire(void *ours, int64_t until_ns);
void ours_release(void *ours);
void ours_pair(void *ours);

#endif
