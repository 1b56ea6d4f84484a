/* SPDX-License-Identifier: MIT
 * A quorum of three real servers, for one test. */
#ifndef QUORUM_SETUP_H
#define QUORUM_SETUP_H

#include "server.h"

#include <stdint.h>

#define QUORUM_SERVERS 3

struct quorum_setup {
	struct test_server servers[QUORUM_SERVERS];
	char url[100]; /* redis+quorum://127.0.0.1:p1,127.0.0.1:p2,127.0.0.1:p3 */
};

/* Start the servers; each is empty, and belongs to no quorum.  options may be NULL. */
void quorum_setup_start(struct quorum_setup *setup, const struct server_options *options);
/* The same, and make them a quorum with that longest lease, of which no server is young. */
void quorum_setup_begin(struct quorum_setup *setup, int64_t longest_lease_ms);
/* How many of the servers have the key. */
int quorum_setup_count(struct quorum_setup *setup, const char *key);
/* The requests that the servers have executed for calls. */
long long quorum_setup_requests(struct quorum_setup *setup);

#endif
