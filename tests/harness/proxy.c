/* SPDX-License-Identifier: MIT
 * A TCP proxy that simulates faults of a network.  One process, one poll loop; commands come in
 * shared memory and by a byte in a pipe, and are acknowledged by a number. */
#include "proxy.h"

#include "process.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS_MAX 256
#define READ_SIZE 65536
#define ORDER_MS 5000

/* Written by one side at a time: by the test until it raises ordered, by the proxy until it raises
 * done.  The test may read the counters at any time. */
struct proxy_shared {
	_Atomic int ordered;
	_Atomic int done;
	struct proxy_fault fault[PROXY_LINKS][PROXY_WAYS];
	bool armed[PROXY_LINKS][PROXY_WAYS]; /* cut_after counts from now */
	bool cut[PROXY_LINKS];
	bool cut_gently;
	bool refuse;
	bool black_hole;
	bool lie[PROXY_LINKS];
	size_t lie_len;
	char lie_bytes[PROXY_LIE_MAX];
	_Atomic int64_t connections, open, cuts, refused, silent, lies;
	_Atomic int64_t bytes[PROXY_LINKS][PROXY_WAYS], held[PROXY_LINKS][PROXY_WAYS];
	_Atomic int64_t dropped[PROXY_LINKS][PROXY_WAYS], late[PROXY_LINKS][PROXY_WAYS];
	_Atomic int64_t sliced[PROXY_LINKS][PROXY_WAYS], turns[PROXY_LINKS];
};

/* ---- In the proxy's process --------------------------------------------------------------- */

/* Bytes in transit. */
struct chunk {
	struct chunk *next;
	int64_t due_ms;
	size_t len, sent;
	bool held; /* counted as held */
	char bytes[];
};

struct flow {
	struct chunk *first, **last;
	bool ended; /* its source sent FIN */
	bool told;  /* and this proxy forwarded it */
};

struct pair {
	int fd[2]; /* by the way that ends at it: TO_SERVER the server's, TO_CLIENT the client's */
	struct flow flow[PROXY_WAYS];
	enum proxy_link link;
	bool silent;       /* accepted into the black hole */
	bool server_spoke; /* the last bytes came from the server */
};

static struct pair *pairs[PAIRS_MAX];
static int64_t cut_left[PROXY_LINKS][PROXY_WAYS]; /* bytes until the cut, -1 = none is set */
static struct sockaddr_storage upstream;
static socklen_t upstream_len;
static struct proxy_shared *shared;

static void pair_end(struct pair *pair, bool gently)
{
	struct linger linger = {1, 0};

	for (int way = 0; way < PROXY_WAYS; way++) {
		struct chunk *chunk = pair->flow[way].first;
		while (chunk) {
			struct chunk *next = chunk->next;
			free(chunk);
			chunk = next;
		}
		if (pair->fd[way] < 0)
			continue;
		if (!gently)
			setsockopt(pair->fd[way], SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		close(pair->fd[way]);
	}
	for (int i = 0; i < PAIRS_MAX; i++)
		if (pairs[i] == pair)
			pairs[i] = NULL;
	free(pair);
	shared->open--;
}

static void pair_cut(struct pair *pair, bool gently)
{
	shared->cuts++;
	pair_end(pair, gently);
}

static void pair_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), one = 1, slot = 0;
	struct linger linger = {1, 0};
	struct pair *pair;

	if (fd < 0)
		return;
	while (slot < PAIRS_MAX && pairs[slot])
		slot++;
	if (shared->refuse || slot == PAIRS_MAX) {
		shared->refused++;
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	pair = calloc(1, sizeof(*pair));
	if (!pair)
		abort();
	pairs[slot] = pair;
	pair->fd[PROXY_TO_CLIENT] = fd;
	pair->fd[PROXY_TO_SERVER] = -1;
	pair->silent = shared->black_hole;
	for (int way = 0; way < PROXY_WAYS; way++)
		pair->flow[way].last = &pair->flow[way].first;
	shared->connections++;
	shared->open++;
	if (pair->silent) {
		shared->silent++;
		return;
	}
	pair->fd[PROXY_TO_SERVER] = socket(upstream.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(pair->fd[PROXY_TO_SERVER], (struct sockaddr *)&upstream, upstream_len)) {
		pair_end(pair, false);
		return;
	}
	fcntl(pair->fd[PROXY_TO_SERVER], F_SETFL, O_NONBLOCK);
}

static void flow_append(struct pair *pair, enum proxy_way way, const char *bytes, size_t len)
{
	const struct proxy_fault *fault = &shared->fault[pair->link][way];
	struct flow *flow = &pair->flow[way];
	struct chunk *chunk = malloc(sizeof(*chunk) + len);
	int64_t late = fault->delay_ms + (fault->jitter_ms ? random() % (fault->jitter_ms + 1) : 0);

	if (!chunk)
		abort();
	memcpy(chunk->bytes, bytes, len);
	chunk->len = len;
	chunk->sent = 0;
	chunk->held = false;
	chunk->next = NULL;
	chunk->due_ms = late ? now_ms() + late : 0;
	if (late)
		shared->late[pair->link][way] += (int64_t)len;
	*flow->last = chunk;
	flow->last = &chunk->next;
}

/* Read from the source of a way.  False if the pair is closed. */
static bool flow_read(struct pair *pair, enum proxy_way way)
{
	static char bytes[READ_SIZE];
	int source = pair->fd[!way];
	ssize_t got = recv(source, bytes, sizeof(bytes), 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got < 0 || (!got && pair->silent)) {
		pair_end(pair, false);
		return false;
	}
	if (!got) {
		pair->flow[way].ended = true;
		return true;
	}
	if (pair->silent)
		return true;
	if (way == PROXY_TO_SERVER && memmem(bytes, (size_t)got, "SUBSCRIBE", 9))
		pair->link = PROXY_MESSAGES;
	if (way == PROXY_TO_SERVER && pair->server_spoke)
		shared->turns[pair->link]++;
	pair->server_spoke = way == PROXY_TO_CLIENT;
	if (way == PROXY_TO_CLIENT && shared->lie[pair->link]) {
		shared->lie[pair->link] = false;
		shared->lies++;
		flow_append(pair, way, shared->lie_bytes, shared->lie_len);
	} else if (shared->fault[pair->link][way].drop) {
		shared->dropped[pair->link][way] += got;
	} else {
		flow_append(pair, way, bytes, (size_t)got);
	}
	return true;
}

/* Forward one piece of the first chunk. 1 = more at once, 0 = not now, -1 = the pair is closed. */
static int flow_send(struct pair *pair, enum proxy_way way)
{
	const struct proxy_fault *fault = &shared->fault[pair->link][way];
	int64_t *left = &cut_left[pair->link][way];
	struct flow *flow = &pair->flow[way];
	struct chunk *chunk = flow->first;
	size_t len = chunk->len - chunk->sent;
	ssize_t sent;

	if (fault->slice)
		len = 1;
	if (*left == 0) {
		*left = -1;
		pair_cut(pair, fault->cut_gently);
		return -1;
	}
	if (*left > 0 && (int64_t)len > *left)
		len = (size_t)*left;
	sent = send(pair->fd[way], chunk->bytes + chunk->sent, len, MSG_NOSIGNAL);
	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (sent < 0) {
		pair_end(pair, false);
		return -1;
	}
	if (*left > 0)
		*left -= sent;
	shared->bytes[pair->link][way] += sent;
	shared->sliced[pair->link][way] += fault->slice;
	chunk->sent += (size_t)sent;
	if (chunk->sent == chunk->len) {
		flow->first = chunk->next;
		if (!flow->first)
			flow->last = &flow->first;
		free(chunk);
	}
	return flow->first != NULL;
}

/* Forward what is due.  Returns when to look again, INT64_MAX = when more bytes arrive. */
static int64_t pair_pump(struct pair *pair)
{
	int64_t next = INT64_MAX, now = now_ms();

	for (int way = 0; way < PROXY_WAYS; way++) {
		struct flow *flow = &pair->flow[way];
		while (flow->first) {
			int more;
			if (shared->fault[pair->link][way].stall) {
				for (struct chunk *chunk = flow->first; chunk;
				     chunk = chunk->next) {
					if (!chunk->held)
						shared->held[pair->link][way] +=
							(int64_t)chunk->len;
					chunk->held = true;
				}
				break;
			}
			if (flow->first->due_ms > now) {
				next = flow->first->due_ms < next ? flow->first->due_ms : next;
				break;
			}
			more = flow_send(pair, (enum proxy_way)way);
			if (more < 0)
				return INT64_MAX;
			if (!more) {
				next = flow->first ? now + 1 : next;
				break;
			}
		}
		if (flow->ended && !flow->first && !flow->told) {
			flow->told = true;
			shutdown(pair->fd[way], SHUT_WR);
		}
	}
	if (pair->flow[0].told && pair->flow[1].told)
		pair_end(pair, true);
	return next;
}

static void orders_follow(int pipe_fd)
{
	char bytes[64];
	int ordered = shared->ordered;

	while (read(pipe_fd, bytes, sizeof(bytes)) > 0)
		continue;
	if (shared->done == ordered)
		return;
	for (int link = 0; link < PROXY_LINKS; link++) {
		for (int way = 0; way < PROXY_WAYS; way++) {
			int64_t after = shared->fault[link][way].cut_after;
			if (shared->armed[link][way])
				cut_left[link][way] = after > 0 ? after : after < 0 ? 0 : -1;
			shared->armed[link][way] = false;
		}
		for (int i = 0; shared->cut[link] && i < PAIRS_MAX; i++)
			if (pairs[i] && (int)pairs[i]->link == link)
				pair_cut(pairs[i], shared->cut_gently);
		shared->cut[link] = false;
	}
	shared->done = ordered;
}

/* Poll entries: the commands, the listener, then both ends of each pair that can be read. */
static void proxy_run(int listener, int pipe_fd)
{
	static struct pollfd polls[2 + 2 * PAIRS_MAX];
	static struct pair *owners[2 + 2 * PAIRS_MAX];
	static enum proxy_way ways[2 + 2 * PAIRS_MAX];

	memset(cut_left, -1, sizeof(cut_left));
	polls[0] = (struct pollfd){pipe_fd, POLLIN, 0};
	polls[1] = (struct pollfd){listener, POLLIN, 0};
	for (;;) {
		int64_t next = INT64_MAX, rest;
		nfds_t count = 2;
		for (int i = 0; i < PAIRS_MAX; i++) {
			int64_t due = pairs[i] ? pair_pump(pairs[i]) : INT64_MAX;
			next = due < next ? due : next;
			for (int way = 0; pairs[i] && way < PROXY_WAYS; way++) {
				if (pairs[i]->fd[!way] < 0 || pairs[i]->flow[way].ended)
					continue;
				polls[count] = (struct pollfd){pairs[i]->fd[!way], POLLIN, 0};
				owners[count] = pairs[i];
				ways[count++] = (enum proxy_way)way;
			}
		}
		rest = next == INT64_MAX ? -1 : next - now_ms();
		poll(polls, count, next == INT64_MAX ? -1 : rest > 0 ? (int)rest : 0);
		for (nfds_t i = 2; i < count; i++) {
			bool there = false;
			for (int j = 0; j < PAIRS_MAX; j++)
				there |= pairs[j] == owners[i];
			if (there && polls[i].revents)
				flow_read(owners[i], ways[i]);
		}
		if (polls[1].revents)
			pair_accept(listener);
		orders_follow(pipe_fd);
	}
}

/* ---- In the test's process ---------------------------------------------------------------- */

/* Start it in front of upstream. */
static void start(struct proxy *proxy)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	int pipe_fds[2];
	pid_t parent = getpid();

	proxy->shared = mmap(NULL, sizeof(*proxy->shared), PROT_READ | PROT_WRITE,
	                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(proxy->shared, MAP_FAILED);
	ck_assert(!pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK));
	proxy->port = port_pick();
	address.sin_port = htons((unsigned short)proxy->port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ck_assert(!bind(listener, (struct sockaddr *)&address, sizeof(address)));
	ck_assert(!listen(listener, 128));
	snprintf(proxy->url, sizeof(proxy->url), "redis://127.0.0.1:%d?grace=0", proxy->port);
	proxy->wake = pipe_fds[1];
	proxy->pid = process_fork();
	if (!proxy->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		signal(SIGPIPE, SIG_IGN);
		close(pipe_fds[1]);
		shared = proxy->shared;
		proxy_run(listener, pipe_fds[0]);
		_exit(0);
	}
	close(listener);
	close(pipe_fds[0]);
}

void proxy_start(struct proxy *proxy, const struct test_server *server)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, server->socket_path, sizeof(server->socket_path));
	memcpy(&upstream, &address, sizeof(address));
	upstream_len = sizeof(address);
	start(proxy);
}

void proxy_start_at_port(struct proxy *proxy, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	address.sin_port = htons((unsigned short)port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(&upstream, &address, sizeof(address));
	upstream_len = sizeof(address);
	start(proxy);
}

void proxy_stop(struct proxy *proxy)
{
	kill(proxy->pid, SIGKILL);
	while (waitpid(proxy->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(proxy->wake);
	munmap(proxy->shared, sizeof(*proxy->shared));
}

static void order(struct proxy *proxy)
{
	int number = ++proxy->shared->ordered;

	ck_assert(write(proxy->wake, "!", 1) == 1);
	ck_assert_msg(WITHIN(ORDER_MS, proxy->shared->done == number), "the proxy does not answer");
}

void proxy_set(struct proxy *proxy, enum proxy_link link, enum proxy_way way,
               const struct proxy_fault *fault)
{
	proxy->shared->fault[link][way] = *fault;
	proxy->shared->armed[link][way] = true;
	order(proxy);
}

void proxy_set_all(struct proxy *proxy, const struct proxy_fault *fault)
{
	for (int link = 0; link < PROXY_LINKS; link++)
		for (int way = 0; way < PROXY_WAYS; way++) {
			proxy->shared->fault[link][way] = *fault;
			proxy->shared->armed[link][way] = true;
		}
	order(proxy);
}

void proxy_heal(struct proxy *proxy)
{
	static const struct proxy_fault none;

	proxy->shared->refuse = proxy->shared->black_hole = false;
	proxy_set_all(proxy, &none);
}

void proxy_cut(struct proxy *proxy, enum proxy_link link, bool gently)
{
	proxy->shared->cut[link] = true;
	proxy->shared->cut_gently = gently;
	order(proxy);
}

void proxy_lie(struct proxy *proxy, enum proxy_link link, const char *bytes, size_t len)
{
	ck_assert_uint_le(len, PROXY_LIE_MAX);
	memcpy(proxy->shared->lie_bytes, bytes, len);
	proxy->shared->lie_len = len;
	proxy->shared->lie[link] = true;
	order(proxy);
}

void proxy_refuse(struct proxy *proxy, bool refuse)
{
	proxy->shared->refuse = refuse;
	order(proxy);
}

void proxy_black_hole(struct proxy *proxy, bool silent)
{
	proxy->shared->black_hole = silent;
	order(proxy);
}

struct proxy_count proxy_count(const struct proxy *proxy)
{
	const struct proxy_shared *from = proxy->shared;
	struct proxy_count count = {
		.connections = from->connections,
		.open = from->open,
		.cuts = from->cuts,
		.refused = from->refused,
		.silent = from->silent,
		.lies = from->lies,
	};

	for (int link = 0; link < PROXY_LINKS; link++) {
		for (int way = 0; way < PROXY_WAYS; way++) {
			count.bytes[link][way] = from->bytes[link][way];
			count.held[link][way] = from->held[link][way];
			count.dropped[link][way] = from->dropped[link][way];
			count.late[link][way] = from->late[link][way];
			count.sliced[link][way] = from->sliced[link][way];
		}
		count.turns[link] = from->turns[link];
	}
	return count;
}
