/* SPDX-License-Identifier: MIT
 * Scripts of requests to etcd, run against a server or the model of one; what comes back is a text,
 * which can be compared: revisions are relative to the beginning, leases have the script's names.
 *
 *   put KEY VALUE [lease=L] [prev] [ignore_value] [ignore_lease]
 *   get RANGE [limit=N] [rev=R] [by=key|version|create|mod|value] [asc|desc] [keys] [count]
 *       [serial]
 *   del RANGE [prev]
 *   txn [if COMPARE ; ...] [then OP ; ...] [else OP ; ...]      OP: put, get, del
 *   fill N               a Txn with so many Puts
 *   compact R
 *   grant L SECONDS      revoke L      alive L
 *   ttl L                what LeaseTimeToLive says, but for the time that is left
 *   watch ID RANGE [rev=R] [no_put] [no_delete] [prev]      unwatch ID
 *   receive N            this many answers to watches, in the order of their texts
 *   full, not_full       raise the alarm NOSPACE, clear it; alarms: show them
 *   login USER PASSWORD  use that token from now on; token T: use this one, "-" = none
 *   as_is                only as the first line: do not delete all keys
 *   base KEY             begin here: the revision of a read of that key
 *   status PATH          a call without a request: its status alone
 *
 * KEY "-" is an empty one.  RANGE is a key, A..B (without B), or A.. (all from A on).  R is
 * absolute, or +N or -N from the revision at the beginning.  COMPARE is TARGET RANGE RESULT VALUE;
 * TARGET: create, mod, version, value, lease; RESULT: = != < >.  L is L1 to L9, ID a number.  Words
 * are separated by one space. */
#ifndef ETCD_SCRIPT_H
#define ETCD_SCRIPT_H

#include "etcd/messages.h"

struct etcd_peer {
	void *arg;
	/* A unary call: gRPC's status and its text, or the answer; valid until the next call. */
	int (*call)(void *arg, const char *path, struct lk__bytes request, struct lk__bytes *answer,
	            const char **text);
	/* Send to a stream, which is opened at first; and take its next message.  Status -1 = there
	 * is a message; else the stream has ended, or nothing came for a long time. */
	void (*send)(void *arg, const char *path, struct lk__bytes request);
	int (*receive)(void *arg, const char *path, struct lk__bytes *message, const char **text);
	/* Streams are opened anew with it; no bytes = none. */
	void (*set_token)(void *arg, struct lk__bytes token);
};

#define ETCD_SCRIPT_LINES 40

struct etcd_script {
	const char *name;
	const char *lines[ETCD_SCRIPT_LINES]; /* up to a NULL */
};

extern const struct etcd_script etcd_scripts[]; /* up to one without a name */
/* With authentication: the user "u" has the password "p", and no rights to keys from "lk/c/" to
 * "lk/c0". */
extern const struct etcd_script etcd_scripts_of_users[];

/* Delete all keys, run the script, and return what came back, a line for each: free it. */
char *etcd_script_run(const struct etcd_peer *peer, const char *const *lines);

#endif
