/* SPDX-License-Identifier: MIT
 * What a test of the grace has: clients with a grace, and a server whose own has passed, so that
 * the loss of memory that the test causes begins the only one. */
#ifndef GRACE_H
#define GRACE_H

#include "primitive.h"

#define GRACE_MS 2500
#define LEASE_MS 1500 /* of holds that are reclaimed within a grace */
#define LATE_MS 2500  /* for a waiter to be served after the grace */

/* Start a server, and let its grace have passed; options may be NULL. */
void grace_set_up(const struct server_options *options);
/* Let the grace of the server's memory have passed, before any client connects. */
void grace_pass(void);
/* The URL of that port with that grace and these further options, "" = none.  Static memory. */
const char *grace_url(int port, int64_t grace_ms, const char *more);
/* A client of the server, with GRACE_MS. */
lk_client *grace_client(void);

/* When the server's memory began, server time in microseconds; 0 = there is no marker. */
int64_t grace_since_us(void);
/* The server's clock, in microseconds. */
int64_t grace_now_us(void);
/* How long the grace of GRACE_MS lasts; at most 0 = it has passed. */
int64_t grace_left_ms(void);
/* Wait for the end of the grace, in which none of these waits is served. */
void grace_sit_out(struct claims *waits);
/* Open handles of names that nobody holds. */
void grace_open_free(struct claims *claims, unsigned set, lk_client *client);
/* Assert that a try of such a name is refused in the grace, and that its error names the reason. */
void grace_expect_busy(unsigned set, lk_client *client);

#endif
