/* SPDX-License-Identifier: MIT
 * The URL of etcd servers, with an option, so that more can be appended. */
#ifndef ETCD_SEAM_H
#define ETCD_SEAM_H

#include "etcd_server.h"

static inline const char *etcd_seam_use(const struct etcd_servers *servers)
{
	return etcd_url(servers, "", "?lazy=0");
}

#endif
