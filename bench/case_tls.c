/* SPDX-License-Identifier: MIT
 * Acquire + release by TLS: against the same by OpenSSL and hiredis alone, and against a plain
 * connection to the same server. */
#include "baseline_bare.h"
#include "built_with.h"

#if LK__TLS

#include "harness/certificate.h"
#include "harness/process.h"
#include "ours.h"

#include <stdio.h>
#include <stdlib.h>

#define NAME "bench:tls"

static int port;
static char ca[120];

static void *open_tls(const struct stage *stage)
{
	char url[200];

	(void)stage;
	snprintf(url, sizeof(url), "rediss://127.0.0.1:%d?ca=%s&grace=0", port, ca);
	return ours_open(url, NAME);
}

static void *open_plain(const struct stage *stage)
{
	return ours_open(stage->server->url, NAME);
}

static void *open_bare(const struct stage *stage)
{
	return bare_open_tls(stage->server, port, ca, NAME ":bare");
}

static void run(struct bench *bench)
{
	static const struct contestant ours = {
		.name = "latchkey", .open = open_tls, .once = ours_pair, .close = ours_close};
	static const struct contestant bare = {.name = "bare hiredis and OpenSSL, EVALSHA twice",
	                                       .open = open_bare,
	                                       .once = bare_pair,
	                                       .close = bare_close};
	static const struct contestant plain = {.name = "latchkey without TLS",
	                                        .open = open_plain,
	                                        .once = ours_pair,
	                                        .close = ours_close};
	char folder[80], port_text[16], cert[120], key[120];
	const char *args[] = {"--tls-port",
	                      port_text,
	                      "--tls-cert-file",
	                      cert,
	                      "--tls-key-file",
	                      key,
	                      "--tls-ca-cert-file",
	                      ca,
	                      "--tls-auth-clients",
	                      "no",
	                      NULL};
	const struct contest contest = {
		.id = "tls/pair",
		.what = "acquire + release, one thread, TLS 1.3",
		.size = 1,
		.server_args = args,
		.contestants = {&ours, &bare, &plain},
	};
	struct result result;

	folder_make(folder, sizeof(folder));
	certificate_make_usual(folder);
	port = port_pick();
	snprintf(port_text, sizeof(port_text), "%d", port);
	snprintf(cert, sizeof(cert), "%s/server.pem", folder);
	snprintf(key, sizeof(key), "%s/server.key", folder);
	snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
	bench_contest(bench, &contest, &result);
	folder_remove(folder);
	bench_figure(bench, "tls.ratio.evalsha", "tls: rate / two bare EVALSHA by OpenSSL",
	             ratio_of_rates(&result, 0, 1), "", AT_LEAST, 0.95);
	bench_figure(bench, "tls.client.evalsha", "tls: client CPU / two bare EVALSHA by OpenSSL",
	             ratio_of_client_cpu(&result, 0, 1), "", NO_GOAL, 0);
	bench_figure(bench, "tls.ratio.plain", "tls: rate / the same without TLS",
	             ratio_of_rates(&result, 0, 2), "", NO_GOAL, 0);
	bench_figure(bench, "tls.client.plain", "tls: client CPU / the same without TLS",
	             ratio_of_client_cpu(&result, 0, 2), "", NO_GOAL, 0);
	bench_number(bench, "tls.requests", "tls: requests", result.of[0].requests, "", NO_GOAL, 0);
}

#else

static void run(struct bench *bench)
{
	bench_note(bench, "skipped: built without TLS");
}

#endif

const struct bench_case case_tls = {"tls", "acquire + release by TLS", run};
