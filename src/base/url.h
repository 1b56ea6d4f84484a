/* SPDX-License-Identifier: MIT
 * Parses the URL and options of a store, once. */
#ifndef LK__URL_H
#define LK__URL_H

#include "error.h"

#include <stdbool.h>
#include <stdint.h>

#define LK__SENTINELS_MAX 16
#define LK__SEEDS_MAX 16
#define LK__MEMBERS_MAX 7                  /* servers of a quorum */
#define LK__HOST_MAX (LK_HOST_SIZE - 1)    /* bytes of a host name or an address */
#define LK__PLACE_SIZE (LK__HOST_MAX + 16) /* a host and a port as text, with the NUL */
#define LK__FOLLOW_MS 3000 /* for which clients of Sentinel may still use an old master */

struct lk__endpoint {
	char *host; /* as in lk__target */
	int port;
};

struct lk__target {
	bool local;        /* local:; socket_path is filled by lk__local_ensure() */
	char *socket_path; /* Unix socket, or NULL for TCP */
	char *host;        /* TCP: name or address, no brackets */
	int port;
	int db;
	char *user;     /* NULL = default user */
	char *password; /* NULL = no AUTH */
	char *client_name;
	char *prefix;
	int64_t connect_timeout_ns;
	int64_t command_timeout_ns;
	int64_t keepalive_ms;
	int64_t grace_ms;      /* 0 = none */
	uint32_t replicas;     /* that must confirm a grant, 0 = none */
	bool tls;              /* rediss: */
	bool tls_unverified;   /* verify=none */
	char *tls_ca;          /* a file of CA certificates, NULL = the system's */
	char *tls_cert;        /* a file of our own certificate, NULL = none */
	char *tls_key;         /* a file of its key, NULL = tls_cert */
	char *tls_server_name; /* in the server's certificate, NULL = host */
	/* What the server must choose by ALPN, "h2"; NULL = nothing.  A literal of the store. */
	const char *tls_protocol;
	char *service; /* Sentinel's name of the master; NULL = not by Sentinel.  Otherwise
	                * a dial fills in host and port */
	struct lk__endpoint *sentinels;
	int sentinel_count;
	char *sentinel_user;        /* NULL = the default user of the sentinels */
	char *sentinel_password;    /* NULL = no AUTH; never the store's */
	bool cluster;               /* a Redis Cluster: a dial fills in host and port; db is 0 */
	bool etcd;                  /* the store dials one of its members */
	struct lk__endpoint *seeds; /* the nodes of a Cluster, or members of etcd, that the URL
	                             * names; NULL = neither */
	int seed_count;
	bool quorum; /* a quorum: the target of each server is a copy, see lk__target_aim() */
	struct lk__endpoint *members; /* its servers, an odd number of them; NULL = no quorum */
	int member_count;
	bool lazy;      /* connect at the first call that needs the store */
	char text[200]; /* "127.0.0.1:6379", "/run/x.sock", a service, "seed:6379,...":
	                 * escaped, without userinfo */
};

/* Parse url (NULL = local:) and apply options (NULL = none).  On failure why names the part, never
 * the password, and nothing stays allocated. */
lk_err lk__target_parse(const char *url, const lk_client_options *options,
                        struct lk__target *target, struct lk__why *why);
void lk__target_fini(struct lk__target *target); /* wipes the password; zeroed memory is allowed */

/* Make a copy of a target by Sentinel, of a Cluster, a quorum or etcd, lead to that place; borrows
 * host.  Its text becomes "service at host:port", or "host:port". */
void lk__target_aim(struct lk__target *copy, char *host, int port);
/* The cure in an error, if the port turns out to be one without TLS. */
static inline const char *lk__target_plain(const struct lk__target *target)
{
	return target->etcd ? "write etcd for etcds" : "write redis for rediss";
}
/* Write "host:port", or "[host]:port" for an IPv6 address. */
void lk__place_write(char *out, size_t size, const char *host, int port);

#endif
