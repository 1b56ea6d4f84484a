/* SPDX-License-Identifier: MIT
 * Which store is meant, and a client on it. */
#ifndef STORE_H
#define STORE_H

#include "options.h"

#include <latchkey.h>

#include <stdbool.h>

#define STORE_URL_SIZE 4096
#define STORE_PASSWORD_SIZE 4096

struct store {
	char url[STORE_URL_SIZE];
	bool by_default; /* nobody named a store */
	char password[STORE_PASSWORD_SIZE];
	lk_client_options client;
};

/* Find out; reads files, connects to nothing.  False when that was told to the user: *status is
 * what to exit with. */
bool store_find(struct store *store, const struct options *options, int *status);

#endif
