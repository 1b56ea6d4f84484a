/* SPDX-License-Identifier: MIT
 * The list of stores. */
#include "built_with.h"
#include "etcd/etcd_store.h"
#include "redis/redis_store.h"
#include "store.h"

static const struct lk__store_ops *used;

const struct lk__store_ops *lk__store_of(const struct lk__target *target)
{
	if (used)
		return used;
#if LK__ETCD /* otherwise the URL's parser has refused it */
	if (target->etcd)
		return &lk__etcd_store;
#else
	(void)target;
#endif
	return &lk__redis_store;
}

void lk__store_use(const struct lk__store_ops *ops)
{
	used = ops;
}
