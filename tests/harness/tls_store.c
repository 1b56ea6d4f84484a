/* SPDX-License-Identifier: MIT
 * A redis-server with a TLS port. */
#include "tls_store.h"

#include "certificate.h"
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tls_redis_prepare(struct tls_redis *redis)
{
	memset(redis, 0, sizeof(*redis));
	folder_make(redis->folder, sizeof(redis->folder));
	certificate_make_usual(redis->folder);
}

void tls_redis_start(struct tls_redis *redis, const struct tls_redis_options *options)
{
	static const struct tls_redis_options usual;
	static char port[16], cert[200], key[200], ca[200]; /* the server borrows them */
	static const char *args[] = {"--tls-port",
	                             port,
	                             "--tls-cert-file",
	                             cert,
	                             "--tls-key-file",
	                             key,
	                             "--tls-ca-cert-file",
	                             ca,
	                             "--tls-auth-clients",
	                             NULL,
	                             NULL};
	const struct tls_redis_options *of = options ? options : &usual;
	const struct server_options how = {.unix_only = !of->plain_port, .args = args};
	const char *name = of->certificate ? of->certificate : "server";

	if (!redis->folder[0])
		tls_redis_prepare(redis);
	redis->port = port_pick();
	snprintf(port, sizeof(port), "%d", redis->port);
	snprintf(cert, sizeof(cert), "%s/%s.pem", redis->folder, name);
	snprintf(key, sizeof(key), "%s/%s.key", redis->folder, name);
	snprintf(ca, sizeof(ca), "%s/ca.pem", redis->folder);
	args[9] = of->demands ? "yes" : "no";
	snprintf(redis->url, sizeof(redis->url), "rediss://127.0.0.1:%d?ca=%s&grace=0", redis->port,
	         ca);
	server_start(&redis->server, &how);
}

static struct tls_redis store;

static const char *start_store(void)
{
	static char url[80];
	char ca[100];

	tls_redis_start(&store, NULL);
	/* The tests append to the URL. */
	snprintf(ca, sizeof(ca), "%s/ca.pem", store.folder);
	setenv("SSL_CERT_FILE", ca, 1);
	snprintf(url, sizeof(url), "rediss://127.0.0.1:%d?grace=0", store.port);
	return url;
}

static struct redis *look_at_store(void)
{
	return redis_open(&store.server);
}

static long long requests_of_store(void)
{
	struct redis *redis = look_at_store();
	long long requests = redis_script_calls(redis);

	redis_close(redis);
	return requests;
}

static void restart_store(void)
{
	server_restart(&store.server);
}

static void pause_store(bool on)
{
	(on ? server_pause : server_resume)(&store.server);
}

const struct test_store store_over_tls = {
	.has = STORE_OF_SERVER,
	.start = start_store,
	.restart = restart_store,
	.pause = pause_store,
	.look = look_at_store,
	.requests = requests_of_store,
};
