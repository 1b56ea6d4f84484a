/* SPDX-License-Identifier: MIT
 * What three members of an etcd cluster of five do about one lease, as far as it can end the lease
 * early; the other two only vote: a member that they elect has a majority.  Terms, what each member
 * knows of them, whose lessor is the primary one, when it lets the lease expire, and revokes that
 * are on their way.  One client renews the lease by src/etcd/lease.c.
 *
 * Time goes in ticks; all that happens at once happens in any order.  Read from the sources of etcd
 * 3.4.23 and 3.6.16:
 *
 *   - a new leader's lessor is the primary one before the first entry of its term is committed, and
 *     begins with the whole time to live + one election timeout;
 *   - a member whose disk stands still goes on as what it was, but learns and sends nothing
 * (frozen);
 *   - a leader without its peers steps down within two election timeouts (cut);
 *   - a member that is no leader, as it believes, forwards a keep-alive to the leader that it
 * knows, and that one's lessor answers without asking whether it still leads;
 *   - a leader that gets a keep-alive from a client, or finds the lease expired, asks a majority
 * first (since 3.5.13 and 3.4.31);
 *   - a member that has been replaced forwards what it had proposed to the new leader. */
#ifndef ETCD_LESSOR_H
#define ETCD_LESSOR_H

#include "etcd/lease.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	EL_MEMBERS = 3,
	EL_TTL = 3,      /* ticks; a tick is a second */
	EL_ELECTION = 1, /* timeout, ticks */
};

enum el_request {
	EL_NONE,
	EL_KEEP_ALIVE, /* on its way to the member */
	EL_CHECKED,    /* the member has found that it leads */
	EL_FORWARDED,  /* on its way to el_world.at */
	EL_RENEWED,    /* the answers */
	EL_UNKNOWN,
	EL_REFUSED,
	EL_READ,
	EL_WAS_READ,
};

struct el_world {
	struct el_member {
		uint8_t term;
		int8_t leader; /* of that term as far as it knows, -1 = unknown */
		bool is_primary;
		uint8_t left; /* ticks until its lessor lets the lease expire, when primary */
		bool is_frozen;
		uint8_t is_cut; /* ticks until it must step down + 1, 0 = not cut off */
		bool revokes;   /* has a revoke that it will propose */
	} members[EL_MEMBERS];
	uint8_t term, leader; /* of the last election */
	bool has_begun;       /* its first entry is committed */
	bool is_gone;         /* the revoke of the lease is committed */
	/* The client. */
	uint8_t member, request, at, read_term;
	bool was_renewed; /* a keep-alive was confirmed in a later term than the first */
	/* What may still happen. */
	uint8_t elections, freezes, cuts, moves;
	struct lk__lease lease;
};

/* Which etcd. */
struct el_rules {
	bool asks_majority; /* 3.5.13, 3.4.31 and later */
	bool if_it_stood;   /* only if its loop has not run for a while: 3.5.16, 3.4.34 and later */
};

#define EL_STEPS 33
#define EL_NOW (INT64_C(100) * 1000000000) /* the client's clock, always */

void el_begin(struct el_world *world, int member);
/* Do that step, below EL_STEPS.  False: it is not possible now. */
bool el_step(struct el_world *world, const struct el_rules *rules, int step);
const char *el_step_name(int step);
/* The client believes in a lease that is gone. */
bool el_is_broken(const struct el_world *world);

#endif
