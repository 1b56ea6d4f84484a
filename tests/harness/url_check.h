/* SPDX-License-Identifier: MIT
 * Checks of URLs with several hosts. */
#ifndef URL_CHECK_H
#define URL_CHECK_H

#include "base/url.h"
#include "test.h"

#include <string.h>

static inline struct lk__target parsed(const char *url, const lk_client_options *options)
{
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, options, &target, &why);

	ck_assert_msg(err == LK_OK, "%s: %s", url, why.text);
	return target;
}

/* The reason begins with that text and has no password, and nothing is left. */
static inline void refused(const char *url, const lk_client_options *options, const char *start)
{
	static const struct lk__target nothing;
	struct lk__target target;
	struct lk__why why = {0};
	lk_err err = lk__target_parse(url, options, &target, &why);

	ck_assert_msg(err == LK_EINVALID, "%s: %s", url, lk_err_name(err));
	ck_assert_msg(!strncmp(why.text, start, strlen(start)), "%s: '%s' is not '%s...'", url,
	              why.text, start);
	ck_assert_msg(!strstr(why.text, "sesame"), "%s: %s", url, why.text);
	ck_assert(!memcmp(&target, &nothing, sizeof(nothing)));
}

/* The hosts as text: "h1:6379 h2:1". */
static inline const char *places_text(const struct lk__endpoint *list, int count)
{
	static char text[1000];

	text[0] = '\0';
	for (int i = 0; i < count; i++) {
		size_t len = strlen(text);
		if (i)
			text[len++] = ' ';
		lk__place_write(text + len, sizeof(text) - len, list[i].host, list[i].port);
	}
	return text;
}

#endif
