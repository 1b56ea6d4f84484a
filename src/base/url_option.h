/* SPDX-License-Identifier: MIT
 * Between the files that parse a URL: parts of its text, and the options, which also come from
 * lk_client_options. */
#ifndef LK__URL_OPTION_H
#define LK__URL_OPTION_H

#include "url.h"

#include <string.h>

#define LK__LOWER "abcdefghijklmnopqrstuvwxyz"
#define LK__ALNUM LK__LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* A part of the URL; not NUL-terminated. */
struct span {
	const char *at;
	size_t len;
};

#define LK__DEFAULT_PORT 6379

enum option {
	OPTION_DB,
	OPTION_USER,
	OPTION_PASSWORD,
	OPTION_CLIENT_NAME,
	OPTION_PREFIX,
	OPTION_CONNECT_TIMEOUT,
	OPTION_COMMAND_TIMEOUT,
	OPTION_KEEPALIVE,
	OPTION_LAZY,
	OPTION_GRACE,
	OPTION_REPLICAS,
	OPTION_CA,
	OPTION_CERT,
	OPTION_KEY,
	OPTION_SERVER_NAME,
	OPTION_VERIFY,
	OPTION_SENTINEL_USER,
	OPTION_SENTINEL_PASSWORD_FILE,
	OPTION_SENTINEL_MASTER_ID,
	OPTION_COUNT
};

extern const char *const lk__option_names[OPTION_COUNT];

struct parse {
	struct lk__target *target;
	struct lk__why *why;
	bool seen[OPTION_COUNT]; /* in the URL; each may be given once */
	bool needs_master_id;    /* the path has no service */
};

/* Fail: fmt begins with the name of the part. */
#define WRONG(parse, ...) lk__why_set((parse)->why, LK_EINVALID, __VA_ARGS__)

/* ---- Spans -------------------------------------------------------------------------------- */

static inline struct span span_of(const char *text)
{
	return (struct span){text, strlen(text)};
}

/* The bytes before the first of any of stops. */
static inline struct span span_until(struct span in, const char *stops)
{
	struct span head = {in.at, 0};

	while (head.len < in.len && !strchr(stops, in.at[head.len]))
		head.len++;
	return head;
}

static inline struct span span_skip(struct span in, size_t count)
{
	return (struct span){in.at + count, in.len - count};
}

static inline bool span_has(struct span in, char byte)
{
	return memchr(in.at, byte, in.len) != NULL;
}

static inline bool span_only(struct span in, const char *allowed)
{
	for (size_t i = 0; i < in.len; i++)
		if (!in.at[i] || !strchr(allowed, in.at[i]))
			return false;
	return true;
}

static inline bool span_take(struct span *in, const char *start)
{
	size_t len = strlen(start);

	if (in->len < len || memcmp(in->at, start, len) != 0)
		return false;
	*in = span_skip(*in, len);
	return true;
}

/* ---- Parts of a URL ----------------------------------------------------------------------- */

/* Parse "...@" and remove it from the authority.  password_alone: without a colon it is a
 * password. */
lk_err lk__url_take_userinfo(struct parse *parse, struct span *authority, bool password_alone);
/* Parse "host", "host:port", "[address]:port".  *port: the default, then the result. */
lk_err lk__url_set_place(struct parse *parse, struct span place, char **host, int *port);
/* Parse "host:port,host:port", at most max, none twice, into an array from calloc().  noun: what
 * they are.  On failure the caller frees those that are counted. */
lk_err lk__url_set_places(struct parse *parse, struct span places, int max, int default_port,
                          const char *noun, struct lk__endpoint **list, int *count);
/* Refuse an '@' behind the authority. */
lk_err lk__url_check_path(struct parse *parse, struct span path);

/* The database behind the last slash of a path; empty = none is given. */
lk_err lk__url_set_db(struct parse *parse, struct span value);

/* url_sentinel.c.  lettuce: the spelling of that client, whose path has the database only. */
lk_err lk__url_parse_sentinels(struct parse *parse, struct span authority, struct span path,
                               bool lettuce);
lk_err lk__option_set_sentinel(struct parse *parse, enum option option, struct span value);
lk_err lk__options_apply_sentinel(struct parse *parse, const lk_client_options *options);
lk_err lk__options_check_sentinel(struct parse *parse);

/* url_cluster.c */
lk_err lk__url_parse_cluster(struct parse *parse, struct span authority, struct span path);

/* url_quorum.c */
lk_err lk__url_parse_quorum(struct parse *parse, struct span authority, struct span path);

/* url_etcd.c */
lk_err lk__url_parse_etcd(struct parse *parse, struct span authority, struct span path);
lk_err lk__options_check_etcd(struct parse *parse);

/* ---- Options ------------------------------------------------------------------------------ */

/* Free a text after it was wiped; NULL is a no-op. */
void lk__option_wipe(char *secret);
/* Replace *slot by a copy of value; percent-decoded, where part names the value in errors. */
lk_err lk__option_replace(struct parse *parse, char **slot, struct span value);
lk_err lk__option_replace_decoded(struct parse *parse, char **slot, struct span value,
                                  const char *part);

/* Note that the URL has this option; LK_EINVALID if it had it before. */
lk_err lk__option_note(struct parse *parse, enum option option);
lk_err lk__option_set_db(struct parse *parse, struct span value);
/* Set one option of the query. */
lk_err lk__option_set(struct parse *parse, enum option option, struct span value);

/* Set the defaults, before the URL is parsed. */
lk_err lk__options_reset(struct parse *parse);
/* Apply the options of a program, which take precedence. */
lk_err lk__options_apply(struct parse *parse, const lk_client_options *options);
/* Check what only the whole shows: options that need another one, or another scheme. */
lk_err lk__options_check(struct parse *parse);

#endif
