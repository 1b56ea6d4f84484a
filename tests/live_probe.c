/* SPDX-License-Identifier: MIT
 * Two connections of one client that lead to two servers, as behind a load balancer.  A hand-off
 * would be published on the one server while the client listens on the other, so the client refuses
 * them at once. */
#include "harness/handles.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <arpa/inet.h>
#include <latchkey.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS 16

/* A balancer: it accepts connections and forwards them to the two servers by turns. */
static struct {
	int listener, port;
	int to[2];          /* ports of the servers */
	int fds[2 * LINKS]; /* pairs: a client's, the server's */
	int count;
	/* Not NULL: kill the message connection there before a probe is forwarded, once, and keep
	 * the client's end open until the client sends on it. */
	struct redis *killer;
	bool killed;
} balancer;

static struct sockaddr_in address(int port)
{
	struct sockaddr_in result = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	result.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return result;
}

static void take_connection(void)
{
	struct sockaddr_in to = address(balancer.to[balancer.count % 2]);
	int client = accept(balancer.listener, NULL, NULL);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(server, (struct sockaddr *)&to, sizeof(to)) != 0 || balancer.count == LINKS)
		_exit(1);
	balancer.fds[2 * balancer.count] = client;
	balancer.fds[2 * balancer.count + 1] = server;
	balancer.count++;
}

static void forward(int link)
{
	char bytes[4096];
	ssize_t got = read(balancer.fds[link], bytes, sizeof(bytes));

	if (got > 0 && balancer.killer && !balancer.killed &&
	    memmem(bytes, (size_t)got, "EVALSHA", 7)) {
		balancer.killed = true;
		if (redis_int(balancer.killer, "CLIENT KILL TYPE pubsub") != 1)
			_exit(1);
	}
	if (got > 0 && balancer.fds[link ^ 1] >= 0 &&
	    send(balancer.fds[link ^ 1], bytes, (size_t)got, MSG_NOSIGNAL) == got)
		return;
	close(balancer.fds[link]);
	balancer.fds[link] = -1;
	if (balancer.killed && got <= 0)
		return;
	close(balancer.fds[link ^ 1]);
	balancer.fds[link ^ 1] = -1;
}

static void *balance(void *arg)
{
	(void)arg;
	for (;;) {
		struct pollfd polled[2 * LINKS + 1];
		int links = 2 * balancer.count;

		for (int i = 0; i < links; i++)
			polled[i] = (struct pollfd){.fd = balancer.fds[i], .events = POLLIN};
		polled[links] = (struct pollfd){.fd = balancer.listener, .events = POLLIN};
		poll(polled, (nfds_t)links + 1, -1);
		for (int i = 0; i < links; i++)
			if (polled[i].revents && balancer.fds[i] >= 0)
				forward(i);
		if (polled[links].revents)
			take_connection();
	}
	return NULL;
}

static void balancer_start(const struct test_server *one, const struct test_server *two)
{
	struct sockaddr_in here = address(0);
	socklen_t len = sizeof(here);
	pthread_t thread;

	balancer.to[0] = one->port;
	balancer.to[1] = two->port;
	balancer.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(balancer.listener, (struct sockaddr *)&here, len), 0);
	ck_assert_int_eq(listen(balancer.listener, LINKS), 0);
	ck_assert_int_eq(getsockname(balancer.listener, (struct sockaddr *)&here, &len), 0);
	balancer.port = ntohs(here.sin_port);
	/* The thread ends with the test's process. */
	ck_assert_int_eq(pthread_create(&thread, NULL, balance, NULL), 0);
	pthread_detach(thread);
}

TEST(two_connections_to_two_servers_are_refused)
{
	struct test_server one, two;
	lk_client *client = NULL;
	char url[80];

	server_start(&one, NULL);
	server_start(&two, NULL);
	balancer_start(&one, &two);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=0", balancer.port);
	EXPECT(lk_client_open(url, NULL, &client), LK_ECONN);
	ck_assert_msg(strstr(lk_errmsg(), "different servers") != NULL, "%s", lk_errmsg());
	server_stop(&one);
	server_stop(&two);
}

/* The server's end of the message connection is closed when the probe runs, and the client's end
 * does not show it yet: only a request on that connection can show the difference from another
 * server. */
TEST(connection_killed_before_the_probe_is_a_lost_connection)
{
	struct test_server server;
	lk_client *client = NULL;
	char url[80];

	server_start(&server, NULL);
	balancer.killer = redis_open(&server);
	balancer_start(&server, &server);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=0", balancer.port);
	EXPECT(lk_client_open(url, NULL, &client), LK_ECONN);
	ck_assert(balancer.killed);
	ck_assert_msg(strstr(lk_errmsg(), "connection closed by the server") != NULL, "%s",
	              lk_errmsg());
	/* The next attempt is handled as any other. */
	OK(lk_client_open(url, NULL, &client));
	OK(lk_client_close(client));
	redis_close(balancer.killer);
	server_stop(&server);
}

/* Both connections lead to one server, although through the balancer: the client accepts them. */
TEST(two_connections_through_a_balancer_to_one_server_are_taken)
{
	struct test_server server;
	lk_client *client = NULL;
	lk_lock *lock;
	char url[80];

	server_start(&server, NULL);
	balancer_start(&server, &server);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=0", balancer.port);
	OK(lk_client_open(url, NULL, &client));
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	server_stop(&server);
}
