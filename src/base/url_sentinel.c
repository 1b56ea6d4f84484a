/* SPDX-License-Identifier: MIT
 * The URL of a store that Sentinel names: its sentinels and its service, in our spelling and in
 * those of lettuce and redis-py.  The sentinels' user and password are never the store's: a
 * sentinel has no use for these, and may be under other control. */
#include "url_option.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SENTINEL_PORT 26379
#define SENTINEL_GRACE_MS 13000 /* clients may follow a failover 3 s after it */
#define SERVICE_MAX 128
#define PASSWORD_MAX 1024 /* bytes of the file, with its newline */

void lk__place_write(char *out, size_t size, const char *host, int port)
{
	snprintf(out, size, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

void lk__target_aim(struct lk__target *copy, char *host, int port)
{
	char place[LK__PLACE_SIZE], text[SERVICE_MAX + sizeof(" at ") + LK__PLACE_SIZE];

	copy->host = host;
	copy->port = port;
	lk__place_write(place, sizeof(place), host, port);
	snprintf(text, sizeof(text), "%s%s%s", copy->service ? copy->service : "",
	         copy->service ? " at " : "", place);
	lk__escape(copy->text, sizeof(copy->text), text, strlen(text));
}

/* ---- The authority and the path ----------------------------------------------------------- */

/* A sentinel separates words by spaces in its messages. */
static lk_err set_service(struct parse *parse, struct span value, const char *part)
{
	struct lk__target *target = parse->target;
	lk_err err = lk__option_replace_decoded(parse, &target->service, value, part);
	size_t len;
	bool good;

	if (err != LK_OK)
		return err;
	len = strlen(target->service);
	good = len >= 1 && len <= SERVICE_MAX;
	for (size_t i = 0; i < len; i++)
		good = good && target->service[i] > 0x20 && target->service[i] < 0x7f;
	if (!good)
		return WRONG(parse, "%s: must be 1 to %d printable characters without spaces", part,
		             SERVICE_MAX);
	lk__escape(target->text, sizeof(target->text), target->service, len);
	return LK_OK;
}

lk_err lk__url_parse_sentinels(struct parse *parse, struct span authority, struct span path,
                               bool lettuce)
{
	struct lk__target *target = parse->target;
	lk_err err = lk__url_check_path(parse, path);
	struct span service;

	target->grace_ms = SENTINEL_GRACE_MS;
	if (err == LK_OK)
		err = lk__url_take_userinfo(parse, &authority, lettuce);
	/* A sentinel that counts twice would outvote others. */
	if (err == LK_OK)
		err = lk__url_set_places(parse, authority, LK__SENTINELS_MAX, DEFAULT_SENTINEL_PORT,
		                         "sentinel", &target->sentinels, &target->sentinel_count);
	if (err != LK_OK)
		return err;
	path = span_skip(path, path.len > 0);
	parse->needs_master_id = lettuce;
	if (lettuce)
		return lk__url_set_db(parse, path);
	service = span_until(path, "/");
	if (service.len == 0)
		return WRONG(parse, "service: missing (redis+sentinel://HOST,HOST,HOST/SERVICE)");
	err = set_service(parse, service, "service");
	return err == LK_OK && service.len < path.len
	               ? lk__url_set_db(parse, span_skip(path, service.len + 1))
	               : err;
}

/* ---- Options ------------------------------------------------------------------------------ */

/* Read the file without its newline.  A FIFO or a device could block or never end. */
static lk_err read_password(struct parse *parse, const char *path)
{
	static const char part[] = "sentinel_password_file";
	char bytes[PASSWORD_MAX + 1];
	struct stat status;
	ssize_t len = -1;
	lk_err err;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return lk__why_errno(parse->why, LK_EINVALID, part, errno, "");
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		len = read(fd, bytes, sizeof(bytes));
	close(fd);
	if (len < 0)
		return WRONG(parse, "%s: not a file that can be read", part);
	if (len > PASSWORD_MAX)
		return WRONG(parse, "%s: longer than %d bytes", part, PASSWORD_MAX);
	len -= len && bytes[len - 1] == '\n';
	len -= len && bytes[len - 1] == '\r';
	if (!len || memchr(bytes, 0, (size_t)len))
		return WRONG(parse, "%s: empty, or has a zero byte", part);
	err = lk__option_replace(parse, &parse->target->sentinel_password,
	                         (struct span){bytes, (size_t)len});
	for (volatile char *byte = bytes; byte < bytes + len; byte++) /* volatile: not removed */
		*byte = 0;
	return err;
}

static lk_err set_user(struct parse *parse, const char *part)
{
	return parse->target->sentinel_user[0] ? LK_OK
	                                       : WRONG(parse, "%s: must not be empty", part);
}

lk_err lk__option_set_sentinel(struct parse *parse, enum option option, struct span value)
{
	const char *part = lk__option_names[option];
	char *path = NULL;
	lk_err err;

	if (option == OPTION_SENTINEL_USER) {
		err = lk__option_replace_decoded(parse, &parse->target->sentinel_user, value, part);
		return err == LK_OK ? set_user(parse, part) : err;
	}
	if (option == OPTION_SENTINEL_MASTER_ID) {
		if (!parse->needs_master_id)
			return WRONG(parse, "%s: only in a URL redis-sentinel://", part);
		parse->needs_master_id = false;
		return set_service(parse, value, part);
	}
	err = lk__option_replace_decoded(parse, &path, value, part);
	if (err == LK_OK)
		err = read_password(parse, path);
	free(path);
	return err;
}

lk_err lk__options_apply_sentinel(struct parse *parse, const lk_client_options *options)
{
	struct lk__target *target = parse->target;
	lk_err err = LK_OK;

	if (options->sentinel_user) {
		err = lk__option_replace(parse, &target->sentinel_user,
		                         span_of(options->sentinel_user));
		if (err == LK_OK)
			err = set_user(parse, "sentinel_user");
	}
	if (err == LK_OK && options->sentinel_password)
		err = lk__option_replace(parse, &target->sentinel_password,
		                         span_of(options->sentinel_password));
	return err;
}

lk_err lk__options_check_sentinel(struct parse *parse)
{
	const struct lk__target *target = parse->target;

	if (!target->sentinels && (target->sentinel_user || target->sentinel_password))
		return WRONG(parse,
		             "scheme: must be redis+sentinel:// with a user or a password of "
		             "sentinels");
	if (parse->needs_master_id)
		return WRONG(parse, "sentinelMasterId: missing (or write "
		                    "redis+sentinel://HOST,HOST,HOST/SERVICE)");
	if (target->sentinel_user && !target->sentinel_password)
		return WRONG(parse, "sentinel_password: missing (a sentinel_user is given)");
	return LK_OK;
}
