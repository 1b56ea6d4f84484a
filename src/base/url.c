/* SPDX-License-Identifier: MIT
 * Parses the URL and options of a store, once.  Strict, since an ignored typing error means another
 * store, where every lock is free.  Error texts name the part and never quote it: a password with a
 * raw '/' in it can end up in any part. */
#include "url.h"

#include "os.h"
#include "text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define URL_MAX 8192 /* bytes, without the NUL */
#define HOST_MAX 255
#define PREFIX_MAX 32
#define CLIENT_NAME_MAX 128
#define DEFAULT_PORT 6379
#define DEFAULT_CONNECT_TIMEOUT_MS 5000
#define DEFAULT_COMMAND_TIMEOUT_MS 2000
#define DEFAULT_KEEPALIVE_MS 15000
#define TIME_MAX_MS 3600000
#define SOCKET_PATH_SIZE sizeof(((struct sockaddr_un *)NULL)->sun_path)

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define ALNUM LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* A part of the URL; not NUL-terminated. */
struct span {
	const char *at;
	size_t len;
};

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
	OPTION_COUNT
};

static const char *const option_names[OPTION_COUNT] = {
	"db",
	"user",
	"password",
	"client_name",
	"prefix",
	"connect_timeout",
	"command_timeout",
	"keepalive",
	"lazy",
};

struct parse {
	struct lk__target *target;
	struct lk__why *why;
	bool seen[OPTION_COUNT]; /* in the URL; each may be given once */
};

/* ---- Spans -------------------------------------------------------------------------------- */

static struct span span_of(const char *text)
{
	return (struct span){text, strlen(text)};
}

/* The bytes before the first of any of stops. */
static struct span span_until(struct span in, const char *stops)
{
	struct span head = {in.at, 0};

	while (head.len < in.len && !strchr(stops, in.at[head.len]))
		head.len++;
	return head;
}

static struct span span_skip(struct span in, size_t count)
{
	return (struct span){in.at + count, in.len - count};
}

static bool span_has(struct span in, char byte)
{
	return memchr(in.at, byte, in.len) != NULL;
}

static bool span_only(struct span in, const char *allowed)
{
	for (size_t i = 0; i < in.len; i++)
		if (!in.at[i] || !strchr(allowed, in.at[i]))
			return false;
	return true;
}

static bool span_take(struct span *in, const char *start)
{
	size_t len = strlen(start);

	if (in->len < len || memcmp(in->at, start, len) != 0)
		return false;
	*in = span_skip(*in, len);
	return true;
}

/* Fail: fmt begins with the name of the part. */
#define WRONG(parse, ...) lk__why_set((parse)->why, LK_EINVALID, __VA_ARGS__)

/* ---- Values ------------------------------------------------------------------------------- */

static void wipe_free(char *secret)
{
	volatile char *byte = secret; /* volatile: the compiler must not remove these stores */

	if (!secret)
		return;
	while (*byte)
		*byte++ = '\0';
	free(secret);
}

/* Replace *slot by a copy of value. */
static lk_err replace(struct parse *parse, char **slot, struct span value)
{
	char *copy = malloc(value.len + 1);

	if (!copy)
		return lk__why_set(parse->why, LK_ENOMEM, "out of memory");
	memcpy(copy, value.at, value.len);
	copy[value.len] = '\0';
	wipe_free(*slot);
	*slot = copy;
	return LK_OK;
}

static int hex_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

/* Replace *slot by the percent-decoded value. */
static lk_err replace_decoded(struct parse *parse, char **slot, struct span value, const char *part)
{
	lk_err err = replace(parse, slot, value);
	size_t len = 0;

	if (err != LK_OK)
		return err;
	for (size_t i = 0; i < value.len; i++) {
		int high, low;

		if (value.at[i] != '%') {
			(*slot)[len++] = value.at[i];
			continue;
		}
		high = i + 2 < value.len ? hex_value(value.at[i + 1]) : -1;
		low = i + 2 < value.len ? hex_value(value.at[i + 2]) : -1;
		if (high < 0 || low < 0)
			return WRONG(parse, "%s: a '%%' must be followed by two hexadecimal digits",
			             part);
		if (high == 0 && low == 0)
			return WRONG(parse, "%s: has a zero byte", part);
		(*slot)[len++] = (char)(high * 16 + low);
		i += 2;
	}
	/* Wipe the rest of the encoded text, too. */
	memset(*slot + len, 0, value.len - len);
	return LK_OK;
}

static lk_err check_prefix(struct parse *parse, struct span value)
{
	if (value.len < 1 || value.len > PREFIX_MAX || !span_only(value, ALNUM "._-"))
		return WRONG(parse, "prefix: must be 1 to %d letters, digits, '.', '_' or '-'",
		             PREFIX_MAX);
	return LK_OK;
}

/* CLIENT SETNAME allows no spaces and only printable bytes. */
static lk_err check_client_name(struct parse *parse, struct span value)
{
	bool good = value.len >= 1 && value.len <= CLIENT_NAME_MAX;

	for (size_t i = 0; i < value.len; i++)
		good = good && value.at[i] > 0x20 && value.at[i] < 0x7f;
	if (!good)
		return WRONG(parse,
		             "client_name: must be 1 to %d printable characters without spaces",
		             CLIENT_NAME_MAX);
	return LK_OK;
}

static lk_err check_user(struct parse *parse, struct span value)
{
	return value.len > 0 ? LK_OK : WRONG(parse, "user: must not be empty");
}

static lk_err set_time(struct parse *parse, const char *part, int64_t time_ms, int64_t *slot)
{
	if (time_ms < 1 || time_ms > TIME_MAX_MS)
		return WRONG(parse, "%s: must be 1 to %d milliseconds", part, TIME_MAX_MS);
	/* The only one of the three that the system takes in milliseconds. */
	*slot = slot == &parse->target->keepalive_ms ? time_ms : time_ms * LK__MS;
	return LK_OK;
}

static lk_err set_db(struct parse *parse, struct span value)
{
	int64_t number;

	if (!lk__parse_i64(value.at, value.len, 0, INT32_MAX, &number))
		return WRONG(parse, "db: must be 0 to %d", INT32_MAX);
	parse->target->db = (int)number;
	return LK_OK;
}

/* ---- The query ---------------------------------------------------------------------------- */

static lk_err set_seen(struct parse *parse, enum option option)
{
	if (parse->seen[option])
		return WRONG(parse, "%s: given twice", option_names[option]);
	parse->seen[option] = true;
	return LK_OK;
}

static lk_err set_time_option(struct parse *parse, enum option option, struct span value)
{
	struct lk__target *target = parse->target;
	int64_t *slot = option == OPTION_CONNECT_TIMEOUT   ? &target->connect_timeout_ns
	                : option == OPTION_COMMAND_TIMEOUT ? &target->command_timeout_ns
	                                                   : &target->keepalive_ms;
	int64_t time_ms = 0; /* an invalid value */

	lk__parse_i64(value.at, value.len, 1, TIME_MAX_MS, &time_ms);
	return set_time(parse, option_names[option], time_ms, slot);
}

static lk_err set_lazy(struct parse *parse, struct span value)
{
	if (value.len != 1 || (*value.at != '0' && *value.at != '1'))
		return WRONG(parse, "lazy: not 0 or 1");
	parse->target->lazy = *value.at == '1';
	return LK_OK;
}

static lk_err set_option(struct parse *parse, enum option option, struct span value)
{
	struct lk__target *target = parse->target;
	const char *part = option_names[option];
	char *decoded = NULL;
	lk_err err = set_seen(parse, option);

	if (err != LK_OK)
		return err;
	switch (option) {
	case OPTION_PASSWORD: /* directly into place: no copy to wipe */
		return replace_decoded(parse, &target->password, value, part);
	case OPTION_USER:
		err = replace_decoded(parse, &target->user, value, part);
		return err == LK_OK ? check_user(parse, span_of(target->user)) : err;
	case OPTION_CLIENT_NAME:
		err = replace_decoded(parse, &target->client_name, value, part);
		return err == LK_OK ? check_client_name(parse, span_of(target->client_name)) : err;
	case OPTION_PREFIX:
		err = replace_decoded(parse, &target->prefix, value, part);
		return err == LK_OK ? check_prefix(parse, span_of(target->prefix)) : err;
	default: /* a number */
		break;
	}
	err = replace_decoded(parse, &decoded, value, part);
	if (err == LK_OK && option == OPTION_DB)
		err = set_db(parse, span_of(decoded));
	else if (err == LK_OK && option == OPTION_LAZY)
		err = set_lazy(parse, span_of(decoded));
	else if (err == LK_OK)
		err = set_time_option(parse, option, span_of(decoded));
	free(decoded);
	return err;
}

static lk_err parse_query(struct parse *parse, struct span query)
{
	/* Most likely the end of a password that was not encoded. */
	if (span_has(query, '@'))
		return WRONG(parse, "url: an '@' after the '?' (write %%40; in a password %%3F for "
		                    "'?' and %%2F for '/')");
	for (;;) {
		struct span item = span_until(query, "&");
		struct span name = span_until(item, "=");
		enum option option = 0;
		lk_err err;

		if (name.len == item.len)
			return WRONG(parse, "url: an option without '=' after the '?'");
		while (option < OPTION_COUNT && (strlen(option_names[option]) != name.len ||
		                                 memcmp(option_names[option], name.at, name.len)))
			option++;
		if (option == OPTION_COUNT && (name.len > 32 || !span_only(name, LOWER "_")))
			return WRONG(parse, "url: an unknown option");
		if (option == OPTION_COUNT)
			return WRONG(parse, "url: unknown option '%.*s'", (int)name.len, name.at);
		err = set_option(parse, option, span_skip(item, name.len + 1));
		if (err != LK_OK || item.len == query.len)
			return err;
		query = span_skip(query, item.len + 1);
	}
}

/* ---- The authority ------------------------------------------------------------------------ */

static lk_err parse_userinfo(struct parse *parse, struct span userinfo)
{
	struct span user = span_until(userinfo, ":");
	lk_err err;

	if (user.len > 0) {
		parse->seen[OPTION_USER] = true;
		err = replace_decoded(parse, &parse->target->user, user, "user");
		if (err != LK_OK)
			return err;
	}
	if (user.len == userinfo.len)
		return LK_OK;
	parse->seen[OPTION_PASSWORD] = true;
	return replace_decoded(parse, &parse->target->password, span_skip(userinfo, user.len + 1),
	                       "password");
}

/* Parse "...@" and remove it from the authority. */
static lk_err take_userinfo(struct parse *parse, struct span *authority)
{
	struct span userinfo = span_until(*authority, "@");

	if (userinfo.len == authority->len)
		return LK_OK;
	*authority = span_skip(*authority, userinfo.len + 1);
	if (span_has(*authority, '@'))
		return WRONG(parse, "url: more than one '@' (in a user or password write %%40)");
	if (userinfo.len == 0)
		return WRONG(parse, "user: must not be empty");
	return parse_userinfo(parse, userinfo);
}

/* Parse an address between brackets: "fe80::1", or with a zone "fe80::1%25eth0". */
static lk_err set_ipv6(struct parse *parse, struct span inside)
{
	struct span zone = span_until(inside, "%");
	char host[HOST_MAX + 1];
	struct in6_addr unused;
	bool good = inside.len <= HOST_MAX;

	if (good) {
		memcpy(host, inside.at, zone.len);
		host[zone.len] = '\0';
		good = inet_pton(AF_INET6, host, &unused) == 1;
	}
	if (good && zone.len < inside.len) {
		struct span name = span_skip(inside, zone.len);

		good = span_take(&name, "%25") && name.len > 0 && span_only(name, ALNUM "._-");
		snprintf(host + zone.len, sizeof(host) - zone.len, "%%%.*s", (int)name.len,
		         name.at);
	}
	if (!good)
		return WRONG(parse, "host: not an IPv6 address between '[' and ']'");
	return replace(parse, &parse->target->host, span_of(host));
}

static lk_err set_host(struct parse *parse, struct span *rest)
{
	struct span host;
	lk_err err;

	if (span_take(rest, "[")) {
		host = span_until(*rest, "]");
		if (host.len == rest->len)
			return WRONG(parse, "host: '[' without ']'");
		err = set_ipv6(parse, host);
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
	if (host.len > HOST_MAX || !span_only(host, ALNUM "._-"))
		return WRONG(parse, "host: must be a name or an address of at most %d bytes",
		             HOST_MAX);
	return replace(parse, &parse->target->host, host);
}

static lk_err parse_tcp(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	int64_t port = DEFAULT_PORT;
	char text[HOST_MAX + 16];
	lk_err err;

	if (span_has(path, '@'))
		return WRONG(parse,
		             "url: an '@' after the host (in a password write %%2F for '/' and "
		             "%%40 for '@')");
	err = take_userinfo(parse, &authority);
	if (err == LK_OK)
		err = set_host(parse, &authority);
	if (err != LK_OK)
		return err;
	if (span_take(&authority, ":") &&
	    !lk__parse_i64(authority.at, authority.len, 1, 65535, &port))
		return WRONG(parse, "port: must be 1 to 65535");
	target->port = (int)port;
	snprintf(text, sizeof(text), strchr(target->host, ':') ? "[%s]:%d" : "%s:%d", target->host,
	         target->port);
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
	if (path.len <= 1 || (err = set_seen(parse, OPTION_DB)))
		return err;
	return set_db(parse, span_skip(path, 1));
}

static lk_err parse_unix(struct parse *parse, struct span authority, struct span path)
{
	struct lk__target *target = parse->target;
	lk_err err = take_userinfo(parse, &authority);
	size_t len;

	if (err != LK_OK)
		return err;
	if (authority.len > 0)
		return WRONG(parse, "host: redis+unix has none (redis+unix:///path; in a password "
		                    "write %%2F for '/')");
	err = replace_decoded(parse, &target->socket_path, path, "path");
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

static lk_err unknown_scheme(struct parse *parse, struct span url)
{
	static const char *const planned[] = {"rediss", "redis+sentinel", "redis+cluster",
	                                      "redis+quorum", "etcd"};
	struct span scheme = span_until(url, ":");

	/* Quote only these: any other text may be a password. */
	for (size_t i = 0; i < sizeof(planned) / sizeof(planned[0]); i++)
		if (scheme.len == strlen(planned[i]) && scheme.len < url.len &&
		    !memcmp(scheme.at, planned[i], scheme.len))
			return WRONG(parse, "scheme: %s is not supported by this version",
			             planned[i]);
	return WRONG(parse, "scheme: must be redis://, redis+unix:// or local:");
}

static lk_err parse_url(struct parse *parse, struct span rest)
{
	struct span whole = rest, authority, path;
	bool over_unix;
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
	over_unix = span_take(&rest, "redis+unix://");
	if (!over_unix && !span_take(&rest, "redis://"))
		return unknown_scheme(parse, whole);
	authority = span_until(rest, "/?");
	rest = span_skip(rest, authority.len);
	path = span_until(rest, "?");
	rest = span_skip(rest, path.len);
	err = over_unix ? parse_unix(parse, authority, path) : parse_tcp(parse, authority, path);
	if (err == LK_OK && span_take(&rest, "?"))
		err = parse_query(parse, rest);
	return err;
}

static lk_err apply_times(struct parse *parse, const lk_client_options *options)
{
	struct lk__target *target = parse->target;
	lk_err err = LK_OK;

	if (options->connect_timeout_ms)
		err = set_time(parse, "connect_timeout_ms", options->connect_timeout_ms,
		               &target->connect_timeout_ns);
	if (err == LK_OK && options->command_timeout_ms)
		err = set_time(parse, "command_timeout_ms", options->command_timeout_ms,
		               &target->command_timeout_ns);
	if (err == LK_OK && options->keepalive_ms)
		err = set_time(parse, "keepalive_ms", options->keepalive_ms, &target->keepalive_ms);
	return err;
}

static lk_err apply_options(struct parse *parse, const lk_client_options *options)
{
	struct lk__target *target = parse->target;
	lk_err err = apply_times(parse, options);

	if (err == LK_OK && options->prefix) {
		err = check_prefix(parse, span_of(options->prefix));
		if (err == LK_OK)
			err = replace(parse, &target->prefix, span_of(options->prefix));
	}
	if (err == LK_OK && options->client_name) {
		err = check_client_name(parse, span_of(options->client_name));
		if (err == LK_OK)
			err = replace(parse, &target->client_name, span_of(options->client_name));
	}
	if (err == LK_OK && options->user) {
		err = check_user(parse, span_of(options->user));
		if (err == LK_OK)
			err = replace(parse, &target->user, span_of(options->user));
	}
	if (err == LK_OK && options->password)
		err = replace(parse, &target->password, span_of(options->password));
	if (err != LK_OK)
		return err;
	target->lazy = target->lazy || options->lazy;
	if (options->label && strlen(options->label) > LK_LABEL_MAX)
		return WRONG(parse, "label: longer than %d bytes", LK_LABEL_MAX);
	if ((int)options->log_level < 0 || (int)options->log_level > LK_LOG_DEBUG)
		return WRONG(parse, "log_level: must be an lk_log_level");
	for (size_t i = 0; i < sizeof(options->reserved) / sizeof(options->reserved[0]); i++)
		if (options->reserved[i])
			return WRONG(parse, "reserved: must be zero");
	return LK_OK;
}

static lk_err set_defaults(struct parse *parse)
{
	struct lk__target *target = parse->target;
	lk_err err = replace(parse, &target->prefix, span_of("lk"));

	target->connect_timeout_ns = DEFAULT_CONNECT_TIMEOUT_MS * LK__MS;
	target->command_timeout_ns = DEFAULT_COMMAND_TIMEOUT_MS * LK__MS;
	target->keepalive_ms = DEFAULT_KEEPALIVE_MS;
	return err == LK_OK ? replace(parse, &target->client_name, span_of("latchkey")) : err;
}

lk_err lk__target_parse(const char *url, const lk_client_options *options,
                        struct lk__target *target, struct lk__why *why)
{
	struct parse parse = {.target = target, .why = why};
	lk_err err;

	memset(target, 0, sizeof(*target));
	err = set_defaults(&parse);
	if (err == LK_OK)
		err = parse_url(&parse, span_of(url ? url : "local:"));
	if (err == LK_OK && options)
		err = apply_options(&parse, options);
	if (err == LK_OK && target->user && !target->password)
		err = lk__why_set(why, LK_EINVALID, "password: missing (a user is given)");
	if (err != LK_OK)
		lk__target_fini(target);
	return err;
}

void lk__target_fini(struct lk__target *target)
{
	free(target->socket_path);
	free(target->host);
	free(target->user);
	wipe_free(target->password);
	free(target->client_name);
	free(target->prefix);
	memset(target, 0, sizeof(*target));
}
