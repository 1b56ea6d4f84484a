/* SPDX-License-Identifier: MIT
 * A process that calls the service, each time with a permit. */
#include "rate_limit.h"

#include <curl/curl.h>
#include <latchkey.h>
#include <stdio.h>
#include <time.h>

#define WARM_UP_CALLS 20
#define WAIT_MS 60000
#define CALL_LIMIT_MS 10000
/* Between a grant and its call other code runs, and the network to a real service is slow and
 * irregular.  The loopback is neither, so a nap of 0 to 40 ms represents these delays. */
#define DELAY_MAX_MS 40
/* The allowance for delays is a multiple of the measured delay plus a constant: a grant after a
 * wait arrives by a message, unlike those of the warm-up, and a few calls do not show how slow a
 * busy machine can be.  It costs only speed: each 200 calls take that much longer. */
#define HEADROOM 3
#define HEADROOM_MORE_US 100000

static bool complain(const char *what, const char *reason)
{
	fprintf(stderr, "rate_limit: %s: %s\n", what, reason);
	return false;
}

static size_t ignore_body(char *bytes, size_t size, size_t count, void *arg)
{
	(void)bytes, (void)arg;
	return size * count;
}

/* One call of http://127.0.0.1:port/path, the number-th of this process. */
static bool call(CURL *http, int port, const char *path, int number)
{
	struct timespec delay = {.tv_nsec = number * 29 % (DELAY_MAX_MS + 1) * 1000000L};
	char url[64];
	CURLcode code;
	long status = 0;

	nanosleep(&delay, NULL);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/%s", port, path);
	curl_easy_setopt(http, CURLOPT_URL, url);
	code = curl_easy_perform(http);
	if (code != CURLE_OK)
		return complain(url, curl_easy_strerror(code));
	curl_easy_getinfo(http, CURLINFO_RESPONSE_CODE, &status);
	return status == 200 || complain(url, "not 200");
}

/* Measure whole calls, with permits that no other process wants.  The time from the request for a
 * permit to the response of the service is longer than the time from the grant to the arrival. */
static bool warm_up(lk_client *client, CURL *http, int port, struct caller *caller)
{
	lk_semaphore_options options = {
		.capacity = LK_PERMITS_MAX, .fixed = true, .lease_ms = WINDOW_MS, .ttl_ms = 60000};
	lk_semaphore *permits;

	if (lk_semaphore_open(client, "rate_limit/warm-up", 0, &options, &permits) != LK_OK)
		return complain("no semaphore", lk_errmsg());
	/* Wait for the first permit outside of the measurement: a server that has just lost its
	 * memory grants none for a while. */
	if (lk_semaphore_acquire(permits, 1, WAIT_MS, NULL) != LK_OK)
		return complain("no permit", lk_errmsg());
	for (int i = 0; i < WARM_UP_CALLS; i++) {
		int64_t start_us = now_us(), took_us;

		if (lk_semaphore_acquire(permits, 1, WAIT_MS, NULL) != LK_OK)
			return complain("no permit", lk_errmsg());
		if (!call(http, port, "warm-up", i))
			return false;
		took_us = now_us() - start_us;
		if (took_us > caller->measured_us)
			caller->measured_us = took_us;
	}
	caller->allowed_us = HEADROOM * caller->measured_us + HEADROOM_MORE_US;
	return true;
}

static bool make_calls(lk_client *client, CURL *http, int port, int calls, struct caller *caller)
{
	lk_semaphore_options options = {
		.capacity = LIMIT,
		.fixed = true,
		.lease_ms = WINDOW_MS + caller->allowed_us / 1000 + 1,
		.ttl_ms = 60000,
	};
	lk_semaphore *permits;

	if (lk_semaphore_open(client, "rate_limit/calls", 0, &options, &permits) != LK_OK)
		return complain("no semaphore", lk_errmsg());
	for (int i = 0; i < calls; i++) {
		int64_t granted_us, took_us;

		if (lk_semaphore_acquire(permits, 1, WAIT_MS, NULL) != LK_OK)
			return complain("no permit", lk_errmsg());
		granted_us = now_us();
		if (!call(http, port, "call", i))
			return false;
		took_us = now_us() - granted_us;
		if (took_us > caller->longest_us)
			caller->longest_us = took_us;
	}
	return true;
}

bool caller_run(const char *store, int port, int calls, struct caller *caller)
{
	lk_client *client;
	CURL *http;
	bool ok;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(http = curl_easy_init()))
		return complain("no HTTP", "libcurl cannot start");
	curl_easy_setopt(http, CURLOPT_PROXY, "");
	curl_easy_setopt(http, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(http, CURLOPT_TIMEOUT_MS, (long)CALL_LIMIT_MS);
	curl_easy_setopt(http, CURLOPT_WRITEFUNCTION, ignore_body);
	if (lk_client_open(store, NULL, &client) != LK_OK)
		return complain("no store", lk_errmsg());
	ok = warm_up(client, http, port, caller) && make_calls(client, http, port, calls, caller);
	lk_client_close(client);
	curl_easy_cleanup(http);
	curl_global_cleanup();
	return ok;
}
