/* SPDX-License-Identifier: MIT
 * The key of a hold in the store, for transactions of the user's own. */
#include "runtime/client.h"

#include <string.h>

lk_err lk_lock_guard_key(lk_lock *lock, char *key, size_t size)
{
	struct lk__handle *handle = (struct lk__handle *)lock;
	const struct lk__store_ops *ops;
	char made[LK_GUARD_KEY_SIZE], nonce[LK__NONCE_SIZE] = "";
	lk_hold hold;
	size_t len;
	lk_err err;

	if ((err = lk__refuse_null(lock, "lock")) || (err = lk__refuse_null(key, "key")))
		return err;
	ops = handle->client->store->ops;
	if (!ops->guard_key)
		return lk__failf(LK_EUNSUPPORTED, "only etcd has a guard key: let the protected "
		                                  "resource refuse smaller fences");
	if ((err = lk_lock_snapshot(lock, &hold)))
		return err;
	if (hold.state == LK_STATE_NONE)
		return lk__failf(LK_ENOTOWNER, "the caller does not hold the lock");
	if (hold.state == LK_STATE_LOST)
		return lk__failf(LK_ELOST, "the hold was lost");
	memcpy(nonce, hold.holder_id + LK__CLIENT_ID_SIZE, sizeof(nonce) - 1);
	len = ops->guard_key(handle->client->store, handle->name->bytes, handle->name->len, nonce,
	                     made);
	if (len >= size)
		return lk__failf(LK_EINVALID, "size: must be %zu or more, not %zu", len + 1, size);
	memcpy(key, made, len + 1);
	return LK_OK;
}
