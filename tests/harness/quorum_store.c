/* SPDX-License-Identifier: MIT
 * A quorum as a store. */
#include "quorum_store.h"

#include "quorum_setup.h"

#include <stddef.h>

static struct quorum_setup setup; /* of this test */

static const char *start_store(void)
{
	quorum_setup_begin(&setup, 0);
	return setup.url;
}

static void pause_store(bool on)
{
	for (int i = 0; i < QUORUM_SERVERS; i++)
		(on ? server_pause : server_resume)(&setup.servers[i]);
}

static struct redis *look_at_none(void)
{
	return NULL;
}

static long long requests_of_store(void)
{
	return quorum_setup_requests(&setup);
}

const struct test_store store_on_quorum = {
	.has = STORE_LOCKS | STORE_SHARED | STORE_SKIPS | STORE_QUICK | STORE_CLOCK,
	.start = start_store,
	.pause = pause_store,
	.look = look_at_none,
	.requests = requests_of_store,
};
