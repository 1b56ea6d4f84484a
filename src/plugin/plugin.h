/* SPDX-License-Identifier: MIT
 * The store in etcd is a plug-in of the shared library, so that only programs which use etcd need
 * nghttp2: etcd.so, which has one symbol, lk__plugin.  Elsewhere it is linked in.
 *
 *   load.c    of the shared library: finds and loads the file
 *   linked.c  of everything else: the store is part of the library
 *   etcd.c    of the plug-in: its symbol, and the library's functions that it calls */
#ifndef LK__PLUGIN_H
#define LK__PLUGIN_H

#include "../core/request.h"
#include "../net/dial.h"
#include "../net/secure.h"
#include "../base/os.h"
#include "../store.h"

/* The functions of the library that the plug-in calls.  It has copies of src/base/{buf,text,why}.c
 * and src/core/table.c, which have no state; whatever has one (sockets for fork(), OpenSSL, the
 * clock of a test) exists once, in the library.  A function that is missing here is an error when
 * the plug-in is linked: then it needs a line here, and one in etcd.c. */
#define LK__HOST_MAP(X)                                                                            \
	X(lk__now_ns)                                                                              \
	X(lk__random)                                                                              \
	X(lk__poll2)                                                                               \
	X(lk__place_write)                                                                         \
	X(lk__target_aim)                                                                          \
	X(lk__names_grow)                                                                          \
	X(lk__dial_each)                                                                           \
	X(lk__secure_start)                                                                        \
	X(lk__socket_connect)                                                                      \
	X(lk__socket_write)                                                                        \
	X(lk__socket_send)                                                                         \
	X(lk__socket_read)                                                                         \
	X(lk__socket_has_more)                                                                     \
	X(lk__socket_shutdown)                                                                     \
	X(lk__socket_close)                                                                        \
	X(lk__tls_load)                                                                            \
	X(lk__tls_unload)                                                                          \
	X(lk__tls_look)                                                                            \
	X(lk__tls_remember)

struct lk__host {
#define LK__HOST_MEMBER(function) __typeof__(function) *function;
	LK__HOST_MAP(LK__HOST_MEMBER)
#undef LK__HOST_MEMBER
};

struct lk__plugin {
	char version[32]; /* LK_VERSION; first for ever.  All else is for the same version only. */
	const struct lk__store_ops *ops;
	const struct lk__host *_Atomic *host; /* set it before any of ops is called */
};

#define LK__PLUGIN_SYMBOL "lk__plugin"
extern const struct lk__plugin lk__plugin; /* the plug-in's only export */

/* The store in etcd.  The shared library loads it at the first call; NULL with why if it cannot.
 * Any thread. */
const struct lk__store_ops *lk__plugin_etcd(struct lk__why *why);

#endif
