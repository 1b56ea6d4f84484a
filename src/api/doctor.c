/* SPDX-License-Identifier: MIT
 * lk_doctor(): the store that the URL names examines its servers. */
#include "runtime/client.h"

lk_err lk_doctor(const char *url, const lk_client_options *options, lk_finding_fn *fn, void *arg,
                 lk_fitness *worst)
{
	const struct lk__store_ops *ops = NULL;
	struct lk__target target = {0};
	lk_fitness found = LK_FIT;
	struct lk__why why;
	lk_err err = lk__target_parse(url, options, &target, &why);

	if (!err)
		ops = lk__store_of(&target, &why);
	if (!err)
		err = ops ? ops->doctor(&target, options, fn, arg, &found, &why) : why.err;
	lk__target_fini(&target);
	if (err)
		return lk__fail(&why);
	if (worst)
		*worst = found;
	return LK_OK;
}
