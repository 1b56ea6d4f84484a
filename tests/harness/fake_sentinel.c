/* SPDX-License-Identifier: MIT
 * A made-up sentinel in a thread of the test. */
#include "fake_sentinel.h"

#include "server.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHANNEL "+switch-master"
#define WORDS 6
#define WORD_SIZE 200
#define TICK_MS 5 /* between two looks at what the test wants */

static void answer(int fd, const char *bytes)
{
	size_t len = strlen(bytes);

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

static void answer_place(struct fake_sentinel *sentinel, int fd)
{
	char text[300], port[12];

	snprintf(port, sizeof(port), "%d", sentinel->master_port);
	snprintf(text, sizeof(text), "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(sentinel->host),
	         sentinel->host, strlen(port), port);
	answer(fd, sentinel->unaware ? "*-1\r\n" : text);
}

static void answer_auth(const struct fake_sentinel *sentinel, int fd, const char *given)
{
	if (!sentinel->password)
		answer(fd, "-ERR AUTH <password> called without any password configured for the "
		           "default user. Are you sure your configuration is correct?\r\n");
	else if (strcmp(given, sentinel->password))
		answer(fd, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
	else
		answer(fd, "+OK\r\n");
}

static void run_command(struct fake_sentinel *sentinel, int i, char words[WORDS][WORD_SIZE],
                        int count)
{
	int fd = sentinel->fds[i];

	if (!strcasecmp(words[0], "AUTH")) {
		answer_auth(sentinel, fd, words[count - 1]);
	} else if (!strcasecmp(words[0], "CLIENT")) {
		answer(fd, "+OK\r\n");
	} else if (!strcasecmp(words[0], "SENTINEL") && !strcasecmp(words[1], "MASTER")) {
		answer(fd,
		       sentinel->facts ? sentinel->facts : "-ERR unknown subcommand 'MASTER'\r\n");
	} else if (!strcasecmp(words[0], "SENTINEL") && !strcasecmp(words[1], "CKQUORUM")) {
		answer(fd, "-ERR unknown subcommand 'CKQUORUM'\r\n");
	} else if (!strcasecmp(words[0], "SENTINEL")) {
		sentinel->asked++;
		answer_place(sentinel, fd);
	} else if (!strcasecmp(words[0], "SUBSCRIBE")) {
		sentinel->subscribed[i] = true;
		answer(fd, "*3\r\n$9\r\nsubscribe\r\n$14\r\n" CHANNEL "\r\n:1\r\n");
	} else if (!strcasecmp(words[0], "UNSUBSCRIBE")) {
		sentinel->subscribed[i] = false;
		answer(fd, "*3\r\n$11\r\nunsubscribe\r\n$14\r\n" CHANNEL "\r\n:0\r\n");
	} else if (!strcasecmp(words[0], "INFO")) {
		answer(fd, sentinel->is_valkey ? "$22\r\nserver_mode:sentinel\r\n\r\n"
		                               : "$21\r\nredis_mode:sentinel\r\n\r\n");
	} else {
		answer(fd, "-ERR unknown command\r\n");
	}
}

/* The commands of one read; our client writes whole commands. */
static void run_commands(struct fake_sentinel *sentinel, int i, const char *bytes)
{
	while (*bytes == '*') {
		char words[WORDS][WORD_SIZE] = {{0}};
		int count = atoi(bytes + 1);
		for (int word = 0; word < count; word++) {
			int len;
			bytes = strchr(bytes, '$') + 1;
			len = atoi(bytes);
			bytes = strchr(bytes, '\n') + 1;
			if (word < WORDS)
				snprintf(words[word], WORD_SIZE, "%.*s", len, bytes);
			bytes += len + 2;
		}
		run_command(sentinel, i, words, count);
	}
}

static void drop(struct fake_sentinel *sentinel, int i)
{
	close(sentinel->fds[i]);
	sentinel->count--;
	sentinel->connected--;
	sentinel->fds[i] = sentinel->fds[sentinel->count];
	sentinel->subscribed[i] = sentinel->subscribed[sentinel->count];
}

static void serve(struct fake_sentinel *sentinel, int i)
{
	char bytes[8192];
	ssize_t got = recv(sentinel->fds[i], bytes, sizeof(bytes) - 1, 0);

	if (got <= 0) {
		drop(sentinel, i);
		return;
	}
	bytes[got] = '\0';
	if (sentinel->seen_len + (size_t)got < sizeof(sentinel->seen)) {
		memcpy(sentinel->seen + sentinel->seen_len, bytes, (size_t)got);
		sentinel->seen_len += (size_t)got;
	}
	run_commands(sentinel, i, bytes);
}

static void accept_one(struct fake_sentinel *sentinel)
{
	int fd = accept(sentinel->listen_fd, NULL, NULL);

	if (fd < 0)
		return;
	if (sentinel->count == FAKE_SENTINEL_CONNS) {
		close(fd);
		return;
	}
	sentinel->subscribed[sentinel->count] = false;
	sentinel->fds[sentinel->count++] = fd;
	sentinel->connected++;
}

static void *run(void *arg)
{
	struct fake_sentinel *sentinel = arg;
	struct pollfd fds[FAKE_SENTINEL_CONNS + 1];

	pthread_mutex_lock(&sentinel->mutex);
	while (!sentinel->ending) {
		int count = sentinel->silent ? 0 : sentinel->count;
		fds[0] = (struct pollfd){.fd = sentinel->listen_fd, .events = POLLIN};
		for (int i = 0; i < count; i++)
			fds[i + 1] = (struct pollfd){.fd = sentinel->fds[i], .events = POLLIN};
		pthread_mutex_unlock(&sentinel->mutex);
		poll(fds, (nfds_t)count + 1, TICK_MS);
		pthread_mutex_lock(&sentinel->mutex);
		/* From the end: a dropped one is replaced by the last. */
		for (int i = count; i-- > 0 && !sentinel->silent;)
			if (fds[i + 1].revents)
				serve(sentinel, i);
		if (fds[0].revents)
			accept_one(sentinel);
	}
	pthread_mutex_unlock(&sentinel->mutex);
	return NULL;
}

void fake_sentinel_start(struct fake_sentinel *sentinel, int port, int master_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	const char *password = sentinel->password;
	int one = 1;

	memset(sentinel, 0, sizeof(*sentinel));
	sentinel->password = password;
	sentinel->port = port ? port : port_pick();
	sentinel->master_port = master_port;
	snprintf(sentinel->host, sizeof(sentinel->host), "127.0.0.1");
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((uint16_t)sentinel->port);
	sentinel->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(sentinel->listen_fd, 0);
	setsockopt(sentinel->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ck_assert(!bind(sentinel->listen_fd, (struct sockaddr *)&address, sizeof(address)));
	ck_assert(!listen(sentinel->listen_fd, 64));
	ck_assert(!pthread_mutex_init(&sentinel->mutex, NULL));
	ck_assert(!pthread_create(&sentinel->thread, NULL, run, sentinel));
}

void fake_sentinel_stop(struct fake_sentinel *sentinel)
{
	pthread_mutex_lock(&sentinel->mutex);
	sentinel->ending = true;
	pthread_mutex_unlock(&sentinel->mutex);
	pthread_join(sentinel->thread, NULL);
	while (sentinel->count)
		drop(sentinel, 0);
	close(sentinel->listen_fd);
	pthread_mutex_destroy(&sentinel->mutex);
}

void fake_sentinel_name(struct fake_sentinel *sentinel, const char *host, int port)
{
	pthread_mutex_lock(&sentinel->mutex);
	snprintf(sentinel->host, sizeof(sentinel->host), "%s", host);
	sentinel->master_port = port;
	pthread_mutex_unlock(&sentinel->mutex);
}

void fake_sentinel_switch(struct fake_sentinel *sentinel, const char *host, int port)
{
	char payload[300], message[400];

	pthread_mutex_lock(&sentinel->mutex);
	snprintf(payload, sizeof(payload), "s %s %d %s %d", sentinel->host, sentinel->master_port,
	         host, port);
	snprintf(message, sizeof(message),
	         "*3\r\n$7\r\nmessage\r\n$14\r\n" CHANNEL "\r\n$%zu\r\n%s\r\n", strlen(payload),
	         payload);
	snprintf(sentinel->host, sizeof(sentinel->host), "%s", host);
	sentinel->master_port = port;
	for (int i = 0; i < sentinel->count; i++)
		if (sentinel->subscribed[i])
			answer(sentinel->fds[i], message);
	pthread_mutex_unlock(&sentinel->mutex);
}

bool fake_sentinel_saw(struct fake_sentinel *sentinel, const char *bytes)
{
	bool saw;

	pthread_mutex_lock(&sentinel->mutex);
	saw = memmem(sentinel->seen, sentinel->seen_len, bytes, strlen(bytes)) != NULL;
	pthread_mutex_unlock(&sentinel->mutex);
	return saw;
}
