/* SPDX-License-Identifier: MIT
 * The store in etcd as a part of the library: of the archive, and of all sanitized builds. */
#include "built_with.h"
#include "etcd/etcd_store.h"
#include "plugin.h"

const struct lk__store_ops *lk__plugin_etcd(struct lk__why *why)
{
	(void)why;
#if LK__ETCD /* otherwise nothing of it may be linked */
	return &lk__etcd_store;
#else
	return NULL;
#endif
}
