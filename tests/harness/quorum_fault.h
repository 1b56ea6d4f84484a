/* SPDX-License-Identifier: MIT
 * What a test of a fault of a quorum has: three servers, a proxy in front of each, and clients that
 * reach them directly or by the proxies. */
#ifndef QUORUM_FAULT_H
#define QUORUM_FAULT_H

#include "fault.h"
#include "quorum_setup.h"
#include "watch.h"

extern struct quorum_setup quorum;
extern struct proxy quorum_proxies[QUORUM_SERVERS];
extern char quorum_far_url[120]; /* by the proxies */

/* Start all of that; no server is young. */
void quorum_fault_set_up(int64_t longest_ms);
/* Start the proxies only. */
void quorum_fault_add_proxies(void);
/* A client whose command timeout is that; far: by the proxies. */
lk_client *quorum_client(bool far, int64_t command_timeout_ms);

/* A command at that server; its reply as a number. */
long long quorum_ask_server(int member, const char *command);
/* Is something of the name "a" granted there, queued there? */
bool quorum_has_leg(int member);
bool quorum_has_queue(int member);
/* Wait until its holder has all servers: a client may begin with two of them. */
void quorum_await_legs(void);
/* Nothing of it is left on the servers that run. */
bool quorum_is_clear(void);
/* The lock is awaited by so many. */
void quorum_await_queue(lk_lock *lock, int64_t waiters);

/* A client holds "a", and two others wait for it, one after the other. */
struct quorum_scene {
	lk_client *clients[3];
	lk_lock *lock; /* its loss is watched, see watch.h */
	struct waiter waiters[2];
};

#define QUORUM_SLOW_MS 8000 /* their command timeout: nothing may wait for it */
#define QUORUM_SOON_MS 3000 /* certainly waits for no server that fails, on a busy machine */

/* Without proxies. */
void quorum_hold_and_wait(struct quorum_scene *scene, int64_t lease_ms, int64_t wait_ms);
/* Release; the waiters are served in order, soon, and fences grow. */
void quorum_serve_waiters(struct quorum_scene *scene);
void quorum_close_all(struct quorum_scene *scene);
void quorum_expect_soon(int64_t began_ms);

#endif
