/* SPDX-License-Identifier: MIT
 * Which store is meant, and a client on it. */
#ifndef STORE_H
#define STORE_H

#include "options.h"

#include <latchkey.h>

#include <stdbool.h>
#include <stdint.h>

#define STORE_URL_SIZE 4096
#define STORE_PASSWORD_SIZE 4096

struct store {
	char url[STORE_URL_SIZE];
	const char *origin; /* of the URL: "--url", "LATCHKEY_URL", a file */
	bool by_default;    /* nobody named a store */
	char password[STORE_PASSWORD_SIZE];
	lk_client_options client;
	int64_t connect_timeout_ms, command_timeout_ms; /* the URL's, or the library's */
	char fault[700];                                /* of the URL, with its origin; "" = none */
};

/* Find out; reads files, connects to nothing.  False when that was told to the user: *status is
 * what to exit with. */
bool store_find(struct store *store, const struct options *options, int *status);

/* lk_client_open(). */
lk_err store_open(struct store *store, lk_client **client);
/* Was err, of a call that was given the URL, the URL's fault?  Then store_errmsg() says so. */
void store_judge(struct store *store, lk_err err);
/* lk_errmsg(), with the origin of a URL that is wrong. */
const char *store_errmsg(const struct store *store);

#endif
