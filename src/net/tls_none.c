/* SPDX-License-Identifier: MIT
 * The place of tls.c in a library that was built without OpenSSL.  The URL's parser refuses rediss:
 * there, so no connection calls these. */
#include "tls.h"

#include "built_with.h"

#if !LK__TLS

static lk_err refuse(struct lk__why *why)
{
	return lk__why_set(why, LK_EINVALID, "built without TLS");
}

lk_err lk__tls_load(struct lk__tls_shared *shared, const struct lk__target *target,
                    struct lk__why *why)
{
	(void)shared;
	(void)target;
	return refuse(why);
}

void lk__tls_unload(struct lk__tls_shared *shared)
{
	(void)shared;
}

void lk__tls_end_thread(void)
{
}

struct lk__tls *lk__tls_new(const struct lk__tls_shared *shared, const struct lk__target *target)
{
	(void)shared;
	(void)target;
	return NULL;
}

void lk__tls_free(struct lk__tls *tls)
{
	(void)tls;
}

lk_err lk__tls_shake(struct lk__tls *tls, const char *bytes, size_t len, struct lk__buf *out,
                     bool *done, struct lk__why *why)
{
	(void)tls;
	(void)bytes;
	(void)len;
	(void)out;
	*done = false;
	return refuse(why);
}

int64_t lk__tls_decrypt(struct lk__tls *tls, const char *bytes, size_t len, char *plain,
                        size_t size, bool *more, struct lk__why *why)
{
	(void)tls;
	(void)bytes;
	(void)len;
	(void)plain;
	(void)size;
	*more = false;
	refuse(why);
	return -1;
}

lk_err lk__tls_encrypt(struct lk__tls *tls, const char *plain, size_t len, struct lk__buf *out,
                       struct lk__why *why)
{
	(void)tls;
	(void)plain;
	(void)len;
	(void)out;
	return refuse(why);
}

void lk__tls_remember(struct lk__tls_shared *shared, struct lk__tls *tls)
{
	(void)shared;
	(void)tls;
}

void lk__tls_look(struct lk__tls *tls, struct lk__tls_facts *facts)
{
	(void)tls;
	*facts = (struct lk__tls_facts){0};
}

#endif
