/* SPDX-License-Identifier: MIT
 * A TCP proxy that simulates faults of a network: delays, cuts, stalls, silence.  It runs in a
 * process of its own and gets commands by shared memory; it counts its actions, so that a test can
 * assert that its fault happened.
 *
 * A client of the library has two links: the one that sends SUBSCRIBE is the message link, the
 * other one (and each until it subscribes) the command link.  Faults select the link and the
 * way. */
#ifndef PROXY_H
#define PROXY_H

#include "server.h"

#include <stdbool.h>
#include <stdint.h>

enum proxy_link { PROXY_COMMANDS, PROXY_MESSAGES, PROXY_LINKS };
enum proxy_way { PROXY_TO_SERVER, PROXY_TO_CLIENT, PROXY_WAYS };

/* The fault of one link in one way.  All zero: none. */
struct proxy_fault {
	int64_t delay_ms;  /* each byte arrives that much later */
	int64_t jitter_ms; /* plus a random time up to this; the order is kept */
	bool slice;        /* sent one byte at a time */
	bool stall;        /* held until the fault ends */
	bool drop;         /* read and thrown away */
	int64_t cut_after; /* forward that many bytes, counted from proxy_set(), then cut the
	                      connection when one more arrives; < 0 = at byte 0.  Once. */
	bool cut_gently;   /* cut by FIN, else by RST */
};

struct proxy_count {
	int64_t connections;                      /* accepted */
	int64_t open;                             /* now open, both ends */
	int64_t cuts;                             /* by cut_after or proxy_cut() */
	int64_t refused;                          /* reset at once, by proxy_refuse() */
	int64_t silent;                           /* accepted into the black hole */
	int64_t lies;                             /* forged, see proxy_lie() */
	int64_t bytes[PROXY_LINKS][PROXY_WAYS];   /* forwarded */
	int64_t held[PROXY_LINKS][PROXY_WAYS];    /* bytes that a stall held */
	int64_t dropped[PROXY_LINKS][PROXY_WAYS]; /* bytes thrown away */
	int64_t late[PROXY_LINKS][PROXY_WAYS];    /* bytes delayed */
	int64_t sliced[PROXY_LINKS][PROXY_WAYS];  /* sends of one byte */
	int64_t turns[PROXY_LINKS]; /* bytes from the client after bytes from the server: round
	                               trips */
};

struct proxy {
	pid_t pid;
	int port;
	char url[80]; /* redis://127.0.0.1:port?grace=0 */
	int wake;     /* a pipe that wakes the proxy */
	struct proxy_shared *shared;
};

/* Start a proxy; the server may start later.  It dies with the test. */
void proxy_start(struct proxy *proxy, const struct test_server *server);
/* The same in front of a port of 127.0.0.1.  With TLS all connections count as command links. */
void proxy_start_at_port(struct proxy *proxy, int port);
void proxy_stop(struct proxy *proxy);

/* Each of these returns after it has taken effect. */
void proxy_set(struct proxy *proxy, enum proxy_link link, enum proxy_way way,
               const struct proxy_fault *fault);
/* On both links, both ways. */
void proxy_set_all(struct proxy *proxy, const struct proxy_fault *fault);
/* Remove all faults; new connections are accepted. */
void proxy_heal(struct proxy *proxy);
/* Reset (or end by FIN) all connections of that kind now. */
void proxy_cut(struct proxy *proxy, enum proxy_link link, bool gently);
/* Once: replace the next bytes from the server on that link by these. */
#define PROXY_LIE_MAX 65536
void proxy_lie(struct proxy *proxy, enum proxy_link link, const char *bytes, size_t len);
/* Reset every new connection. */
void proxy_refuse(struct proxy *proxy, bool refuse);
/* Accept new connections and never send a byte. */
void proxy_black_hole(struct proxy *proxy, bool silent);

struct proxy_count proxy_count(const struct proxy *proxy);

#endif
