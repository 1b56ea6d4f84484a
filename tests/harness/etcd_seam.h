/* SPDX-License-Identifier: MIT
 * Clients of the store in etcd, for which no URL is accepted yet. */
#ifndef ETCD_SEAM_H
#define ETCD_SEAM_H

#include "etcd_server.h"

/* All clients opened after this use these servers, whatever their URL names; its options count, and
 * "rediss:" means TLS.  Returns such a URL, static memory. */
const char *etcd_seam_use(const struct etcd_servers *servers);

#endif
