/* SPDX-License-Identifier: MIT
 * A gateway to a real etcd. */
#include "etcd_gateway.h"

#include "test.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFIX 5 /* bytes before a message in gRPC */

/* Make the same call of etcd, and answer with what it answers. */
static void serve(struct etcd_gateway *gateway, struct h2_request *request)
{
	struct etcd_link *etcd = &gateway->etcd;
	size_t len = request->body.len - PREFIX;
	struct lk__buf answer = {0}, framed = {0};

	ck_assert_uint_ge(request->body.len, PREFIX);
	etcd_message(etcd);
	ck_assert_uint_le(len, sizeof(etcd->request));
	memcpy(etcd->request, request->body.data + PREFIX, len);
	etcd->writer.len = len;
	etcd_call(etcd, request->path);
	ck_assert(etcd_next(etcd, ETCD_WAIT_MS));
	ck_assert_int_eq(etcd->event.kind, LK__H2_ANSWER);
	h2_headers(&gateway->link, request);
	if (!etcd->event.status) {
		ck_assert(lk__grpc_append(&answer, etcd->event.message.data,
		                          etcd->event.message.len));
		gateway->forge(request->path, &answer);
		ck_assert(lk__grpc_frame(&framed, answer.data, answer.len));
		h2_bytes(&gateway->link, request, framed.data, framed.len);
	}
	h2_trailers(&gateway->link, request, etcd->event.status, etcd->event.text);
	lk__buf_fini(&answer);
	lk__buf_fini(&framed);
}

/* False: the client has gone. */
static bool write_out(struct h2_server *server, int fd)
{
	const void *bytes;
	size_t len;

	while ((len = h2_send(server, &bytes)))
		if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
			return false;
	return true;
}

static void serve_connection(struct etcd_gateway *gateway, int fd)
{
	struct h2_server *server = &gateway->link.server;
	unsigned served = 0;
	char bytes[20000];
	ssize_t got;

	memset(&gateway->link, 0, sizeof(gateway->link));
	memset(&gateway->etcd, 0, sizeof(gateway->etcd));
	ck_assert_int_eq(etcd_link_open(&gateway->etcd, gateway->etcd_port), LK_OK);
	h2_server_open(server, 0);
	while (write_out(server, fd) && (got = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
		h2_receive(server, bytes, (size_t)got);
		while (served < server->count && server->requests[served].is_ended)
			serve(gateway, &server->requests[served++]);
	}
	h2_server_close(server);
	etcd_link_close(&gateway->etcd);
}

static void *run(void *arg)
{
	struct etcd_gateway *gateway = arg;
	int fd;

	while ((fd = accept4(gateway->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		serve_connection(gateway, fd);
		close(fd);
	}
	return NULL;
}

void etcd_gateway_start(struct etcd_gateway *gateway, int etcd_port,
                        void (*forge)(const char *path, struct lk__buf *answer))
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	gateway->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(gateway->listener, 0);
	ck_assert(!bind(gateway->listener, (struct sockaddr *)&address, len));
	ck_assert(!listen(gateway->listener, 8));
	ck_assert(!getsockname(gateway->listener, (struct sockaddr *)&address, &len));
	gateway->port = ntohs(address.sin_port);
	gateway->etcd_port = etcd_port;
	gateway->forge = forge;
	ck_assert(!pthread_create(&gateway->thread, NULL, run, gateway));
}

void etcd_gateway_stop(struct etcd_gateway *gateway)
{
	shutdown(gateway->listener, SHUT_RDWR); /* ends accept4() */
	pthread_join(gateway->thread, NULL);
	close(gateway->listener);
}
