/* SPDX-License-Identifier: MIT
 * Finding the store of this command, and opening a client on it. */
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
	bool by_default;    /* the user named no store */
	char password[STORE_PASSWORD_SIZE];
	lk_client_options client;
	int64_t connect_timeout_ms, command_timeout_ms; /* from the URL, or the library's */
	char fault[700]; /* an error in the URL and its origin, or "" */
};

/* Find the store: reads files, does not connect.  False after an error, which is reported: *status
 * is the exit status. */
bool store_find(struct store *store, const struct options *options, int *status);

/* lk_client_open(). */
lk_err store_open(struct store *store, lk_client **client);
/* If err, from a call with the URL, is an error in the URL, remember it for store_errmsg(). */
void store_judge(struct store *store, lk_err err);
bool store_is_quorum(const struct store *store);
bool store_is_etcd(const struct store *store);
/* The servers of a quorum as its log names them, "h1:6379, h2:6379"; cut after a whole one. */
void store_servers(const struct store *store, char *text, size_t size);
/* lk_errmsg(), with the origin of an invalid URL. */
const char *store_errmsg(const struct store *store);

#endif
