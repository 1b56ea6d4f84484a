/* SPDX-License-Identifier: MIT
 * What a test of a fault has: a server of its own, the test's connection to it, and a proxy in
 * front of it. */
#ifndef FAULT_H
#define FAULT_H

#include "handles.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "server.h"
#include "test.h"

#define BACK_MS 8000 /* for a client to reconnect and to repeat its request */

extern struct test_server server;
extern struct proxy proxy;
extern _Thread_local struct redis *redis; /* a thread that looks into the store opens its own */

/* Start the server, and connect to it; options may be NULL. */
void fault_set_up(const struct server_options *options);
/* The same, and start the proxy. */
void fault_set_up_proxy(void);
/* Kill and restart the server, connect again, and check that it is a new process. */
void fault_restart(void);
/* A client behind the proxy; 0 = the default. */
lk_client *far_client(int64_t command_timeout_ms);

#endif
