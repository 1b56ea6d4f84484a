/* SPDX-License-Identifier: MIT
 * The service: a small HTTP server that notes when each call arrives. */
#include "rate_limit.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 64
#define CALLS_MAX (10 * CALLS)

static struct MHD_Daemon *server;
/* Written by the server's thread, read when it has ended. */
static int64_t arrivals_us[CALLS_MAX];
static int arrival_count;

int server_listen(int *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
	    listen(listener, BACKLOG) != 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &size) != 0)
		return -1;
	*port = ntohs(address.sin_port);
	return listener;
}

/* Called twice per request: when its head was read, which is when it counts, and when it was read
 * completely and may be answered. */
static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body,
                              size_t *body_size, void **request)
{
	static char text[] = "done\n";
	struct MHD_Response *response;
	enum MHD_Result result;

	(void)arg, (void)method, (void)version, (void)body, (void)body_size;
	if (!*request) {
		*request = text;
		if (strcmp(url, "/warm-up") != 0 && arrival_count < CALLS_MAX)
			arrivals_us[arrival_count++] = now_us();
		return MHD_YES;
	}
	response = MHD_create_response_from_buffer(sizeof(text) - 1, text, MHD_RESPMEM_PERSISTENT);
	result = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return result;
}

bool server_start(int listener)
{
	server = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, answer, NULL,
	                          MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_END);
	return server != NULL;
}

void server_stop(void)
{
	MHD_stop_daemon(server);
}

int server_calls(void)
{
	return arrival_count;
}

/* A window with the most calls begins with a call, so only such windows are examined. */
int server_most_calls(int64_t window_us)
{
	int most = 0, last = 0;

	for (int first = 0; first < arrival_count; first++) {
		while (last < arrival_count && arrivals_us[last] < arrivals_us[first] + window_us)
			last++;
		if (last - first > most)
			most = last - first;
	}
	return most;
}
