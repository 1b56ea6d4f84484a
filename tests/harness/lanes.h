/* SPDX-License-Identifier: MIT
 * N4 of the fault list: a link is cut after each byte of a request, an answer or a message.  Lanes,
 * each with its own proxy, clients and name, share the bytes among them, since after each cut a
 * client pauses before it reconnects. */
#ifndef LANES_H
#define LANES_H

#include "primitive.h"

struct lane {
	const struct cut *cut;
	int number;
	char name[24];
	struct proxy proxy;
	lk_client *far, *near;     /* through the proxy, and directly */
	struct claim mine, theirs; /* of far, of near; both are open */
	long long count;           /* of the step, 0 at first */
	int end;                   /* the first k that cut nothing */
	pthread_t thread;
};

struct cut {
	unsigned set; /* one primitive */
	bool fixed;   /* the lane's own claim has a fixed lease */
	/* Do something while the link is cut after k bytes, between lane_arm() and lane_disarm();
	 * false if it was not cut, for there were not so many bytes. */
	bool (*step)(struct lane *lane, int k);
	enum proxy_link link;
	enum proxy_way way;
	int every; /* cut after each of so many bytes, 0 = each one */
	int least; /* a step transfers at least so many */
};

/* Cut the lane's link after k bytes of the next transfer; even k by RST, odd k by FIN. */
int64_t lane_arm(struct lane *lane, int k);
/* Disarm it; returns whether the cut has happened. */
bool lane_disarm(struct lane *lane, int64_t cuts_before);

/* Cut the link after each byte of the step, and check at the end that no key is left. */
void cut_everywhere(const struct cut *cut);

#endif
