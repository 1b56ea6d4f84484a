/* SPDX-License-Identifier: MIT
 * The plug-in of the store in etcd: its symbol, and the functions of the library that loaded it. */
#include "etcd/etcd_store.h"
#include "plugin.h"

static const struct lk__host *_Atomic host;

__attribute__((visibility("default"))) const struct lk__plugin lk__plugin = {
	.version = LK_VERSION,
	.ops = &lk__etcd_store,
	.host = &host,
};

int64_t lk__now_ns(void)
{
	return host->lk__now_ns();
}

bool lk__random(void *out, size_t size)
{
	return host->lk__random(out, size);
}

int lk__poll2(int fd, short events, int fd2, int64_t deadline_ns)
{
	return host->lk__poll2(fd, events, fd2, deadline_ns);
}

void lk__place_write(char *out, size_t size, const char *name, int port)
{
	host->lk__place_write(out, size, name, port);
}

void lk__target_aim(struct lk__target *copy, char *name, int port)
{
	host->lk__target_aim(copy, name, port);
}

bool lk__names_grow(struct lk__names *names)
{
	return host->lk__names_grow(names);
}

lk_err lk__dial_each(const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                     lk__dial_address_fn *dial, void *context, struct lk__address *address,
                     struct lk__why *why)
{
	return host->lk__dial_each(target, deadline_ns, cancel_fd, dial, context, address, why);
}

lk_err lk__secure_start(struct lk__socket *socket, const struct lk__tls_shared *shared,
                        const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why)
{
	return host->lk__secure_start(socket, shared, target, deadline_ns, cancel_fd, why);
}

lk_err lk__socket_connect(const struct lk__target *target, const struct lk__address *address,
                          int64_t deadline_ns, int cancel_fd, struct lk__socket *result,
                          struct lk__why *why)
{
	return host->lk__socket_connect(target, address, deadline_ns, cancel_fd, result, why);
}

int64_t lk__socket_write(const struct lk__socket *socket, const char *bytes, size_t len,
                         struct lk__why *why)
{
	return host->lk__socket_write(socket, bytes, len, why);
}

lk_err lk__socket_send(const struct lk__socket *socket, int64_t deadline_ns, int cancel_fd,
                       const char *bytes, size_t len, size_t *sent, struct lk__why *why)
{
	return host->lk__socket_send(socket, deadline_ns, cancel_fd, bytes, len, sent, why);
}

int64_t lk__socket_read(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                        struct lk__why *why)
{
	return host->lk__socket_read(socket, wait, bytes, size, why);
}

bool lk__socket_has_more(const struct lk__socket *socket)
{
	return host->lk__socket_has_more(socket);
}

void lk__socket_shutdown(const struct lk__socket *socket)
{
	host->lk__socket_shutdown(socket);
}

void lk__socket_close(const struct lk__socket *socket)
{
	host->lk__socket_close(socket);
}

lk_err lk__tls_load(struct lk__tls_shared *shared, const struct lk__target *target,
                    struct lk__why *why)
{
	return host->lk__tls_load(shared, target, why);
}

void lk__tls_unload(struct lk__tls_shared *shared)
{
	host->lk__tls_unload(shared);
}

void lk__tls_look(struct lk__tls *tls, struct lk__tls_facts *facts)
{
	host->lk__tls_look(tls, facts);
}

void lk__tls_remember(struct lk__tls_shared *shared, struct lk__tls *tls)
{
	host->lk__tls_remember(shared, tls);
}
