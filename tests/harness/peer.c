/* SPDX-License-Identifier: MIT
 * A scripted TCP peer: a function of the test serves each connection. */
#include "peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *arg)
{
	struct peer *peer = arg;

	while (!peer->ending) {
		int fd = accept(peer->listen_fd, NULL, NULL);
		if (fd < 0)
			continue;
		peer->accepted++;
		peer->fd = fd;
		if (!peer->ending)
			peer->fn(fd, peer->arg);
		peer->fd = -1;
		close(fd);
	}
	return NULL;
}

void peer_start(struct peer *peer, peer_fn *fn, void *arg)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);

	memset(peer, 0, sizeof(*peer));
	peer->fd = -1;
	peer->fn = fn;
	peer->arg = arg;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	peer->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(peer->listen_fd, 0);
	ck_assert(!bind(peer->listen_fd, (struct sockaddr *)&address, len));
	ck_assert(!listen(peer->listen_fd, 64));
	ck_assert(!getsockname(peer->listen_fd, (struct sockaddr *)&address, &len));
	peer->port = ntohs(address.sin_port);
	snprintf(peer->url, sizeof(peer->url), "redis://127.0.0.1:%d?grace=0", peer->port);
	if (fn)
		ck_assert(!pthread_create(&peer->thread, NULL, serve, peer));
}

void peer_stop(struct peer *peer)
{
	int fd;

	peer->ending = 1;
	shutdown(peer->listen_fd, SHUT_RDWR);
	fd = peer->fd;
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR);
	if (peer->fn)
		pthread_join(peer->thread, NULL);
	close(peer->listen_fd);
}

size_t peer_read(int fd, char *bytes, size_t size)
{
	ssize_t got;

	do
		got = recv(fd, bytes, size, 0);
	while (got < 0 && errno == EINTR);
	return got > 0 ? (size_t)got : 0;
}

void peer_send(int fd, const char *bytes, size_t len)
{
	while (len) {
		ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return;
		bytes += sent;
		len -= (size_t)sent;
	}
}
