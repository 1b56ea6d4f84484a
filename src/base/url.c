/* SPDX-License-Identifier: MIT
 * Parses the URL and options of a store, once.  Strict, since an ignored typing error means another
 * store, where every lock is free.  Error texts name the part and never quote it: a password with a
 * raw '/' in it can end up in any part. */
#include "url.h"

#include "built_with.h"
#include "text.h"
#include "url_option.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define URL_MAX 8192        /* bytes, without the NUL */
#define OPTION_SHOWN_MAX 32 /* bytes of an unknown one's name */
#define SOCKET_PATH_SIZE sizeof(((struct sockaddr_un *)NULL)->sun_path)

/* ---- The query ---------------------------------------------------------------------------- */

static enum option find_option(struct span name, int (*compare)(const char *, const char *, size_t))
{
	enum option option = 0;

	while (option < OPTION_COUNT && (strlen(lk__option_names[option]) != name.len ||
	                                 compare(lk__option_names[option], name.at, name.len)))
		option++;
	return option;
}

static lk_err unknown_option(struct parse *parse, struct span name, bool behind_password)
{
	enum option meant = find_option(name, strncasecmp);
	int len = name.len < OPTION_SHOWN_MAX ? (int)name.len : OPTION_SHOWN_MAX;

	if (behind_password) /* do not quote what may be the rest of it */
		return WRONG(parse, "url: an unknown option behind password= (in a password write "
		                    "%%26 for '&')");
	if (meant == OPTION_COUNT)
		return WRONG(parse, "url: unknown option '%.*s%s'", len, name.at,
		             name.len > OPTION_SHOWN_MAX ? "..." : "");
	return WRONG(parse, "url: unknown option '%.*s' (write %s)", len, name.at,
	             lk__option_names[meant]);
}

static lk_err parse_query(struct parse *parse, struct span query)
{
	bool behind_password = false;

	/* Most likely the end of a password that was not encoded. */
	if (span_has(query, '@'))
		return WRONG(parse, "url: an '@' after the '?' (write %%40; in a password %%3F for "
		                    "'?' and %%2F for '/')");
	for (;;) {
		struct span item = span_until(query, "&");
		struct span name = span_until(item, "=");
		enum option option = find_option(name, strncmp);
		lk_err err;

		if (name.len == item.len)
			return WRONG(parse, "url: an option without '=' after the '?'");
		if (option == OPTION_COUNT)
			return unknown_option(parse, name, behind_password);
		behind_password = behind_password || option == OPTION_PASSWORD;
		err = lk__option_set(parse, option, span_skip(item, name.len + 1));
		if (err != LK_OK || item.len == query.len)
			return err;
		query = span_skip(query, item.len + 1);
	}
}

/* ---- The authority ------------------------------------------------------------------------ */

static lk_err parse_userinfo(struct parse *parse, struct span userinfo, bool password_alone)
{
	struct span user = span_until(userinfo, ":");
	lk_err err;

	if (password_alone && user.len == userinfo.len) {
		parse->seen[OPTION_PASSWORD] = true;
		return lk__option_replace_decoded(parse, &parse->target->password, userinfo,
		                                  "password");
	}
	if (user.len > 0) {
		parse->seen[OPTION_USER] = true;
		err = lk__option_replace_decoded(parse, &parse->target->user, user, "user");
		if (err != LK_OK)
			return err;
	}
	if (user.len == userinfo.len)
		return LK_OK;
	parse->seen[OPTION_PASSWORD] = true;
	return lk__option_replace_decoded(parse, &parse->target->password,
	                                  span_skip(userinfo, user.len + 1), "password");
}

lk_err lk__url_take_userinfo(struct parse *parse, struct span *authority, bool password_alone)
{
	struct span userinfo = span_until(*authority, "@");

	if (userinfo.len == authority->len)
		return LK_OK;
	*authority = span_skip(*authority, userinfo.len + 1);
	if (span_has(*authority, '@'))
		return WRONG(parse, "url: more than one '@' (in a user or password write %%40)");
	if (userinfo.len == 0)
		return WRONG(parse, "user: must not be empty");
	return parse_userinfo(parse, userinfo, password_alone);
}

/* Parse an address between brackets: "fe80::1", or with a zone "fe80::1%25eth0". */
static lk_err set_ipv6(struct parse *parse, struct span inside, char **slot)
{
	struct span zone = span_until(inside, "%");
	char host[LK__HOST_MAX + 1];
	struct in6_addr unused;
	bool good = inside.len <= LK__HOST_MAX;

	if (good) {
		memcpy(host, inside.at, zone.len);
		host[zone.len] = '\0';
		good = inet_pton(AF_INET6, host, &unused) == 1;
	}
	if (good && zone.len < inside.len) {
		struct span name = span_skip(inside, zone.len);

		good = span_take(&name, "%25") && name.len > 0 && span_only(name, LK__ALNUM "._-");
		snprintf(host + zone.len, sizeof(host) - zone.len, "%%%.*s", (int)name.len,
		         name.at);
	}
	if (!good)
		return WRONG(parse, "host: not an IPv6 address between '[' and ']'");
	return lk__option_replace(parse, slot, span_of(host));
}

static lk_err set_host(struct parse *parse, struct span *rest, char **slot)
{
	struct span host;
	lk_err err;

	if (span_take(rest, "[")) {
		host = span_until(*rest, "]");
		if (host.len == rest->len)
			return WRONG(parse, "host: '[' without ']'");
		err = set_ipv6(parse, host, slot);
		*rest = span_skip(*rest, host.len + 1);
		if (err == LK_OK && rest->len > 0 && rest->at[0] != ':')
			err = WRONG(parse, "host: unexpected text after ']'");
		return err;
	}
	host = span_until(*rest, ":");
	*rest = span_skip(*rest, host.len);
	if (rest->len > 0 && span_has(span_skip(*rest, 1), ':'))
		return WRONG(parse, "host: more than one ':' (put an IPv6 address in [ ])");
	if (host.len == 0)
		return WRONG(parse, "host: missing");
	if (host.len > LK__HOST_MAX || !span_only(host, LK__ALNUM "._-"))
		return WRONG(parse, "host: must be a name or an address of at most %d bytes",
		             LK__HOST_MAX);
	return lk__option_replace(parse, slot, host);
}

lk_err lk__url_set_place(struct parse *parse, struct span place, char **host, int *port)
{
	int64_t number = *port;
	lk_err err = set_host(parse, &place, host);

	if (err != LK_OK)
		return err;
	if (span_take(&place, ":") && !lk__parse_i64(place.at, place.len, 1, 65535, &number))
		return WRONG(parse, "port: must be 1 to 65535");
	*port = (int)number;
	return LK_OK;
}

static bool is_listed(const struct lk__endpoint *list, int count, const struct lk__endpoint *wanted)
{
	for (int i = 0; i < count; i++)
		if (list[i].port == wanted->port && !strcmp(list[i].host, wanted->host))
			return true;
	return false;
}

lk_err lk__url_set_places(struct parse *parse, struct span places, int max, int default_port,
                          const char *noun, struct lk__endpoint **list, int *count)
{
	*list = calloc((size_t)max, sizeof(**list));
	if (!*list)
		return lk__why_set(parse->why, LK_ENOMEM, "out of memory");
	for (;;) {
		struct span place = span_until(places, ",");
		struct lk__endpoint made = {.port = default_port};
		lk_err err;

		if (*count == max)
			return WRONG(parse, "host: more than %d %ss", max, noun);
		err = lk__url_set_place(parse, place, &made.host, &made.port);
		if (err == LK_OK && is_listed(*list, *count, &made))
			err = WRONG(parse, "host: the same %s twice", noun);
		if (err != LK_OK) {
			free(made.host);
			return err;
		}
		(*list)[(*count)++] = made;
		if (place.len == places.len)
			return LK_OK;
		places = span_skip(places, place.len + 1);
	}
}

lk_err lk__url_check_path(struct parse *parse, struct span path)
{
	if (span_has(path, '@'))
		return WRONG(parse,
		             "url: an '@' after the host (in a password write %%2F for '/' and "
		             "%%40 for '@')");
	return LK_OK;
}

lk_err lk__url_set_db(struct parse *parse, struct span value)
{
	lk_err err = value.len ? lk__option_note(parse, OPTION_DB) : LK_OK;

	return err == LK_OK && value.len ? lk__option_set_db(parse, value) : err;
}

static lk_err parse_tcp(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	char text[LK__HOST_MAX + 16];
	lk_err err = lk__url_check_path(parse, path);

	target->port = LK__DEFAULT_PORT;
	if (err == LK_OK)
		err = lk__url_take_userinfo(parse, &authority, false);
	if (err == LK_OK && span_has(authority, ','))
		err = WRONG(parse,
		            "host: more than one (a Cluster needs redis+cluster://, sentinels "
		            "redis+sentinel://, a quorum redis+quorum://)");
	if (err == LK_OK)
		err = lk__url_set_place(parse, authority, &target->host, &target->port);
	if (err != LK_OK)
		return err;
	lk__place_write(text, sizeof(text), target->host, target->port);
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
	path = span_skip(path, path.len > 0);
	if (!span_only(path, "0123456789"))
		return WRONG(parse,
		             "db: must be 0 to %d (a service of Sentinel needs "
		             "redis+sentinel://)",
		             INT32_MAX);
	return lk__url_set_db(parse, path);
}

static lk_err parse_unix(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	lk_err err = lk__url_take_userinfo(parse, &authority, false);
	size_t len;

	if (err != LK_OK)
		return err;
	if (authority.len > 0)
		return WRONG(parse, "host: redis+unix has none (redis+unix:///path; in a password "
		                    "write %%2F for '/')");
	err = lk__option_replace_decoded(parse, &target->socket_path, path, "path");
	if (err != LK_OK)
		return err;
	len = strlen(target->socket_path);
	if (len < 2 || target->socket_path[len - 1] == '/')
		return WRONG(parse, "path: must name a socket");
	if (len >= SOCKET_PATH_SIZE)
		return WRONG(parse, "path: longer than %zu bytes", SOCKET_PATH_SIZE - 1);
	lk__escape(target->text, sizeof(target->text), target->socket_path, len);
	return LK_OK;
}

/* ---- The whole ---------------------------------------------------------------------------- */

enum scheme {
	SCHEME_TCP,
	SCHEME_UNIX,
	SCHEME_SENTINEL,
	SCHEME_SENTINEL_LETTUCE,
	SCHEME_CLUSTER,
	SCHEME_QUORUM,
	SCHEME_ETCD,
	SCHEME_COUNT
};

static const struct {
	const char *text;
	enum scheme scheme;
	bool tls;
} schemes[] = {
	{"redis://", SCHEME_TCP, false},
	{"rediss://", SCHEME_TCP, true},
	{"redis+unix://", SCHEME_UNIX, false},
	{"redis+sentinel://", SCHEME_SENTINEL, false},
	{"rediss+sentinel://", SCHEME_SENTINEL, true},
	{"redis-sentinel://", SCHEME_SENTINEL_LETTUCE, false},
	{"rediss-sentinel://", SCHEME_SENTINEL_LETTUCE, true},
	{"redis+cluster://", SCHEME_CLUSTER, false},
	{"rediss+cluster://", SCHEME_CLUSTER, true},
	{"redis+quorum://", SCHEME_QUORUM, false},
	{"rediss+quorum://", SCHEME_QUORUM, true},
	{"etcd://", SCHEME_ETCD, false},
	{"etcds://", SCHEME_ETCD, true},
};

static enum scheme take_scheme(struct parse *parse, struct span *rest)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (span_take(rest, schemes[i].text)) {
			parse->target->tls = schemes[i].tls;
			return schemes[i].scheme;
		}
	return SCHEME_COUNT;
}

static lk_err unknown_scheme(struct parse *parse, struct span url)
{
	if (span_take(&url, "rediss+unix:"))
		return WRONG(parse, "scheme: rediss+unix: a Unix socket has no TLS (write "
		                    "redis+unix://)");
	return WRONG(parse,
	             "scheme: must be redis://, rediss://, redis+unix://, redis+sentinel://, "
	             "rediss+sentinel://, redis+cluster://, rediss+cluster://, redis+quorum://, "
	             "rediss+quorum://, etcd://, etcds:// or local:");
}

static lk_err parse_place(struct parse *parse, enum scheme scheme, struct span authority,
                          struct span path)
{
	switch (scheme) {
	case SCHEME_UNIX:
		return parse_unix(parse, authority, path);
	case SCHEME_SENTINEL:
	case SCHEME_SENTINEL_LETTUCE:
		return lk__url_parse_sentinels(parse, authority, path,
		                               scheme == SCHEME_SENTINEL_LETTUCE);
	case SCHEME_CLUSTER:
		return lk__url_parse_cluster(parse, authority, path);
	case SCHEME_QUORUM:
		return lk__url_parse_quorum(parse, authority, path);
	case SCHEME_ETCD:
		return lk__url_parse_etcd(parse, authority, path);
	default:
		return parse_tcp(parse, authority, path);
	}
}

static lk_err parse_url(struct parse *parse, struct span rest)
{
	struct span whole = rest, authority, path;
	enum scheme scheme;
	lk_err err;

	if (rest.len > URL_MAX)
		return WRONG(parse, "url: longer than %d bytes", URL_MAX);
	for (size_t i = 0; i < rest.len; i++)
		if ((unsigned char)rest.at[i] <= 0x20 || rest.at[i] == 0x7f || rest.at[i] == '#')
			return WRONG(parse, "url: a space, control byte or '#' must be written as "
			                    "%%20, %%23 or alike");
	if (span_take(&rest, "local:")) {
		parse->target->local = true;
		lk__escape(parse->target->text, sizeof(parse->target->text), "local:", 6);
		if (rest.len && !span_take(&rest, "?"))
			return WRONG(parse, "url: unexpected text after 'local:'");
		return whole.len > strlen("local:") ? parse_query(parse, rest) : LK_OK;
	}
	scheme = take_scheme(parse, &rest);
	if (scheme == SCHEME_COUNT)
		return unknown_scheme(parse, whole);
	if (scheme == SCHEME_ETCD && !LK__ETCD)
		return WRONG(parse, "scheme: etcd: this library was built without it (nghttp2 1.52 "
		                    "or later)");
	if (parse->target->tls && !LK__TLS)
		return WRONG(parse, "scheme: %s: this library was built without TLS (OpenSSL)",
		             scheme == SCHEME_ETCD ? "etcds" : "rediss");
	authority = span_until(rest, "/?");
	rest = span_skip(rest, authority.len);
	path = span_until(rest, "?");
	rest = span_skip(rest, path.len);
	err = parse_place(parse, scheme, authority, path);
	if (err == LK_OK && span_take(&rest, "?"))
		err = parse_query(parse, rest);
	return err;
}

lk_err lk__target_parse(const char *url, const lk_client_options *options,
                        struct lk__target *target, struct lk__why *why)
{
	struct parse parse = {.target = target, .why = why};
	lk_err err;

	memset(target, 0, sizeof(*target));
	err = lk__options_reset(&parse);
	if (err == LK_OK)
		err = parse_url(&parse, span_of(url ? url : "local:"));
	if (err == LK_OK && options)
		err = lk__options_apply(&parse, options);
	if (err == LK_OK)
		err = lk__options_check(&parse);
	if (err != LK_OK)
		lk__target_fini(target);
	return err;
}
