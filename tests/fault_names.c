/* SPDX-License-Identifier: MIT
 * Routes to a server that do not exist, or lead elsewhere (N11, N12, N15 of the fault list): names
 * that do not resolve, or slowly, or to a new address; IPv6 without a server; TLS. */
#include "built_with.h"

#include "harness/handles.h"
#include "harness/peer.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis;

/* ---- This program's name service, which replaces libc's ------------------------------------ */

static atomic_bool is_slow;     /* answers wait while this is set */
static atomic_int lookups;      /* begun */
static atomic_int moved_to = 1; /* moves.test is 127.0.0.<this> */

static struct addrinfo *info_new(int family, const char *text, int port, struct addrinfo *next)
{
	struct addrinfo *info = calloc(1, sizeof(*info) + sizeof(struct sockaddr_in6));
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)(info + 1);
	struct sockaddr_in *four = (struct sockaddr_in *)(void *)(info + 1);

	if (family == AF_INET6) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)port);
		inet_pton(AF_INET6, text, &six->sin6_addr);
	} else {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)port);
		inet_pton(AF_INET, text, &four->sin_addr);
	}
	info->ai_family = family;
	info->ai_socktype = SOCK_STREAM;
	info->ai_addr = (struct sockaddr *)(void *)(info + 1);
	info->ai_addrlen = family == AF_INET6 ? sizeof(*six) : sizeof(*four);
	info->ai_next = next;
	return info;
}

int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
	int port = atoi(service);
	char text[32];

	memcpy(&real, &symbol, sizeof(real));
	if (hints->ai_flags & AI_NUMERICHOST)
		return real(node, service, hints, list);
	lookups++;
	if (!strcmp(node, "slow.test") || !strcmp(node, "moves.test"))
		WITHIN(10000, !is_slow);
	if (!strcmp(node, "busy.test"))
		return EAI_AGAIN; /* the result of SERVFAIL */
	if (!strcmp(node, "six.test")) {
		*list = info_new(AF_INET6, "::1", port, info_new(AF_INET, "127.0.0.1", port, NULL));
		return 0;
	}
	if (strcmp(node, "slow.test") != 0 && strcmp(node, "moves.test") != 0)
		return EAI_NONAME;
	snprintf(text, sizeof(text), "127.0.0.%d", moved_to);
	*list = info_new(AF_INET, text, port, NULL);
	return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
	while (list) {
		struct addrinfo *next = list->ai_next;
		/* The address is behind it, in this program's lists and in glibc's. */
		free(list->ai_canonname);
		free(list);
		list = next;
	}
}

static const char *url_of(const char *host)
{
	static char url[100];

	snprintf(url, sizeof(url), "redis://%s:%d?grace=0", host, server.port);
	return url;
}

/* ---- N11: names --------------------------------------------------------------------------- */

TEST(n11_name_that_does_not_resolve_is_told)
{
	lk_client *client = NULL;

	server_start(&server, NULL);
	EXPECT(lk_client_open(url_of("nowhere.test"), NULL, &client), LK_ECONN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "nowhere.test"));
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "not known"));
	EXPECT(lk_client_open(url_of("busy.test"), NULL, &client), LK_ECONN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "temporary failure"));
	ck_assert_ptr_null(client);
	ck_assert_int_ge(lookups, 2);
}

TEST(n11_slow_look_up_keeps_deadlines_and_holds_up_nobody)
{
	const lk_client_options hasty = {.connect_timeout_ms = 300, .command_timeout_ms = 300};
	lk_client *client, *near, *none = NULL;
	lk_lock *lock;
	int64_t start_ms;
	int begun;

	server_start(&server, NULL);
	near = client_with(server.url, &hasty);
	client = client_with(url_of("slow.test"), &hasty);
	lock = hold_watched(near, "near", 300);
	is_slow = true;
	begun = lookups;
	start_ms = now_ms();
	EXPECT(lk_client_open(url_of("slow.test"), &hasty, &none), LK_ECONN);
	ck_assert_int_ge(now_ms() - start_ms, 299);
	ck_assert_int_le(now_ms() - start_ms, 300 + 250);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "slow.test"));
	ck_assert_int_gt(lookups, begun); /* and the first one still hangs */
	/* Other clients open, with and without a name to look up, and renew. */
	start_ms = now_ms();
	OK(lk_client_open(server.url, &hasty, &none));
	OK(lk_client_close(none));
	EXPECT(lk_client_open(url_of("nowhere.test"), &hasty, &none), LK_ECONN);
	ck_assert_int_le(now_ms() - start_ms, 200);
	/* A client that lost its connections keeps the deadlines of its calls, and closes. */
	server_kill(&server);
	begun = lookups;
	ck_assert(WITHIN(2000, lk_lock_acquire(lock_named(client, "a"), 0, NULL) == LK_ECONN));
	ck_assert(WITHIN(2000, lookups > begun));
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(lock_named(client, "a"), 100, NULL), LK_ECONN);
	ck_assert_int_le(now_ms() - start_ms, 100 + 300 + 200);
	start_ms = now_ms();
	lk_client_close(client);
	ck_assert_int_le(now_ms() - start_ms, 300 + 300);
	ck_assert(WITHIN(1000, losses.count == 1)); /* the hold on the dead server */
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	is_slow = false;
	lk_client_close(near);
}

/* The same port of another address, with another server. */
TEST(n11_changed_address_is_followed_by_both_connections)
{
	const char *args[] = {"--bind", "127.0.0.2", "--port", NULL, NULL};
	const lk_client_options options = {.connect_timeout_ms = 500};
	struct test_server second;
	struct waiter waiter;
	lk_client *client;
	lk_lock *lock;
	uint64_t fence;
	char port[16];

	server_start(&server, NULL);
	snprintf(port, sizeof(port), "%d", server.port);
	args[3] = port;
	server_start(&second, &(struct server_options){.args = args});
	redis = redis_open(&second);
	client = client_with(url_of("moves.test"), &options);
	lock = hold_watched(client, "a", 600);
	fence = hold_of(lock).fence;
	ck_assert_int_eq(redis_size(redis), 0);
	moved_to = 2;
	server_kill(&server);
	ck_assert(WITHIN(2000, losses.count == 1));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 500, NULL) == LK_OK));
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
	/* The messages come from the new server, too. */
	waiter_start(&waiter, lock_of_handle(client_with(second.unix_url, NULL), "a", 0), 5000,
	             true);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	OK(lk_lock_release(lock));
	OK(waiter_join(&waiter));
	OK(lk_lock_release(waiter.lock));
	OK(lk_client_close(client));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
}

/* ---- N12: IPv6 ---------------------------------------------------------------------------- */

TEST(n12_client_falls_back_from_ipv6_to_ipv4)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	const lk_client_options options = {.connect_timeout_ms = 2000};
	int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	lk_client *client;

	server_start(&server, NULL); /* on 127.0.0.1 only */
	redis = redis_open(&server);
	/* No server listens there, or there is no IPv6 at all. */
	client = client_with(url_of("six.test"), &options);
	OK(lk_lock_acquire(lock_named(client, "a"), 0, NULL));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
	OK(lk_client_close(client));
	/* A server listens, and never answers. */
	address.sin6_port = htons((uint16_t)server.port);
	if (listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof(address))) {
		int64_t start_ms = now_ms();
		ck_assert(!listen(listener, 8));
		client = client_with(url_of("six.test"), &options);
		ck_assert_int_ge(now_ms() - start_ms, 100); /* it did try */
		OK(lk_lock_acquire(lock_named(client, "a"), 0, NULL));
		OK(lk_client_close(client));
	}
	ck_assert_int_ge(lookups, 1);
	close(listener);
}

/* ---- N15: TLS on one side only ------------------------------------------------------------ */

static void answer_as_tls(int fd, void *arg)
{
	/* An alert: this is no hand-shake. */
	static const char alert[] = {0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x0a};
	char bytes[1024];

	(void)arg;
	if (peer_read(fd, bytes, sizeof(bytes)))
		peer_send(fd, alert, sizeof(alert));
	peer_read(fd, bytes, sizeof(bytes));
}

TEST(n15_server_that_requires_tls_is_an_error_at_once)
{
	lk_client *client = NULL;
	struct peer peer;
	int64_t start_ms = now_ms();
	lk_err err;

	peer_start(&peer, answer_as_tls, NULL);
	err = lk_client_open(peer.url, NULL, &client);
	ck_assert_msg(err == LK_ESERVER || err == LK_ECONN, "%s", lk_err_name(err));
	ck_assert_int_le(now_ms() - start_ms, 1000);
	ck_assert_int_ge(peer.accepted, 1);
	ck_assert_int_le(peer.accepted, 2);
	ck_assert_ptr_null(client);
	peer_stop(&peer);
}

/* What a server without TLS reads of a client with it. */
static char seen[4096];
static size_t seen_len;

static void listen_in(int fd, void *arg)
{
	size_t got;

	(void)arg;
	while ((got = peer_read(fd, seen + seen_len, sizeof(seen) - seen_len)) > 0)
		seen_len += got;
}

TEST_IF(n15_client_with_tls_never_speaks_in_plain_text, 20, LK__TLS)
{
	lk_client *client = NULL;
	struct peer peer;
	char url[100];

	peer_start(&peer, listen_in, NULL);
	snprintf(url, sizeof(url), "rediss://user:secret@127.0.0.1:%d?connect_timeout=300",
	         peer.port);
	EXPECT(lk_client_open(url, NULL, &client), LK_ECONN);
	ck_assert_ptr_null(strstr(lk_errmsg(), "secret"));
	peer_stop(&peer);
	ck_assert_uint_gt(seen_len, 100); /* the first message of a handshake */
	ck_assert_int_eq(seen[0], 0x16);
	ck_assert_ptr_null(memmem(seen, seen_len, "secret", 6));
	ck_assert_ptr_null(memmem(seen, seen_len, "AUTH", 4));
}
