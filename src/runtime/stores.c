/* SPDX-License-Identifier: MIT
 * The list of stores. */
#include "built_with.h"
#include "plugin/plugin.h"
#include "redis/redis_store.h"
#include "store.h"

static const struct lk__store_ops *used;

const struct lk__store_ops *lk__store_of(const struct lk__target *target, struct lk__why *why)
{
	if (used)
		return used;
#if LK__ETCD /* otherwise the URL's parser has refused it */
	if (target->etcd)
		return lk__plugin_etcd(why);
#else
	(void)target;
	(void)why;
#endif
	return &lk__redis_store;
}

void lk__store_use(const struct lk__store_ops *ops)
{
	used = ops;
}
