/* SPDX-License-Identifier: MIT
 * Finding the store of this command, and opening a client on it. */
#include "store.h"

#include "say.h"
#include "status.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URL_FILE "/etc/latchkey/url"
#define NO_DEFAULT "none" /* in that file: local: must not be used */
#define NO_DEFAULT_VARIABLE "LATCHKEY_NO_LOCAL"
#define TIMEOUT_MAX_MS 3600000 /* as in the library */

/* Read a whole small file.  -1 with errno; EFBIG if it does not fit.  A FIFO without a writer reads
 * as empty: this never blocks. */
static ssize_t file_read(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	ssize_t got;

	if (fd < 0)
		return -1;
	while ((got = read(fd, text + len, size - len)) > 0)
		len += (size_t)got;
	close(fd);
	if (got < 0)
		return -1;
	if (len == size) {
		errno = EFBIG;
		return -1;
	}
	text[len] = 0;
	return (ssize_t)len;
}

/* Read the first line of URL_FILE without surrounding spaces.  A file that exists but cannot be
 * read must not mean local:, which locks on this machine only. */
static bool url_file(struct store *store)
{
	char text[STORE_URL_SIZE], *begin = text, *end;

	if (file_read(URL_FILE, text, sizeof(text)) < 0) {
		store->url[0] = 0;
		if (errno == ENOENT || errno == ENOTDIR)
			return true;
		say("cannot read %s: %s", URL_FILE, strerror(errno));
		return false;
	}
	while (*begin == ' ' || *begin == '\t')
		begin++;
	end = begin + strcspn(begin, "\r\n");
	while (end > begin && isspace((unsigned char)end[-1]))
		end--;
	*end = 0;
	memcpy(store->url, begin, (size_t)(end - begin) + 1);
	return true;
}

/* No option and no variable names a store: may it be local:?  A job that should have found a URL
 * would then not lock between machines, so an operator can forbid it. */
static bool default_allowed(const struct store *store)
{
	const char *variable = getenv(NO_DEFAULT_VARIABLE);
	const char *forbidden_by = NULL;

	if (!strcmp(store->url, NO_DEFAULT))
		forbidden_by = "\"" NO_DEFAULT "\" in " URL_FILE;
	else if (!store->url[0] && variable && *variable && strcmp(variable, "0") != 0)
		forbidden_by = NO_DEFAULT_VARIABLE;
	if (forbidden_by)
		say("no store is named, and %s forbids the default: set LATCHKEY_URL or --url",
		    forbidden_by);
	return !forbidden_by;
}

static bool password_file(struct store *store)
{
	const char *path = getenv("LATCHKEY_PASSWORD_FILE");
	ssize_t len;

	if (!path || !*path)
		return true;
	len = file_read(path, store->password, sizeof(store->password));
	if (len < 0) {
		char name[256];
		say("cannot read LATCHKEY_PASSWORD_FILE %s: %s",
		    text_escape(name, sizeof(name), path, strlen(path)), strerror(errno));
		return false;
	}
	if (len && store->password[len - 1] == '\n')
		store->password[--len] = 0;
	if (len && store->password[len - 1] == '\r')
		store->password[--len] = 0;
	if (!len) {
		say("LATCHKEY_PASSWORD_FILE: empty");
		return false;
	}
	store->client.password = store->password;
	return true;
}

/* A time-out from the URL's options.  The library refuses an invalid one. */
static int64_t url_ms(const char *url, const char *option, int64_t otherwise)
{
	const char *at = strchr(url, '?');
	size_t len = strlen(option);
	int64_t ms = otherwise;

	for (; at; at = strpbrk(at + 1, "?&"))
		if (!strncmp(at + 1, option, len) && at[len + 1] == '=')
			ms = strtoll(at + len + 2, NULL, 10);
	return ms >= 1 && ms <= TIMEOUT_MAX_MS ? ms : otherwise;
}

static void log_line(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	say("%s", line);
}

bool store_find(struct store *store, const struct options *options, int *status)
{
	const char *url = options->url;

	memset(store, 0, sizeof(*store));
	*status = STATUS_STORE;
	store->origin = "--url";
	if (!url) {
		store->origin = "LATCHKEY_URL";
		url = getenv("LATCHKEY_URL");
		if (url && !*url)
			url = NULL;
	}
	if (url) {
		size_t len = strlen(url);
		if (len >= sizeof(store->url)) {
			say("%s: longer than %zu bytes", store->origin, sizeof(store->url) - 1);
			*status = STATUS_USAGE;
			return false;
		}
		memcpy(store->url, url, len + 1);
	} else {
		store->origin = URL_FILE;
		if (!url_file(store))
			return false;
		if (!default_allowed(store)) {
			*status = STATUS_USAGE;
			return false;
		}
	}
	if (!store->url[0]) {
		store->by_default = true;
		memcpy(store->url, "local:", sizeof("local:"));
		if (isatty(STDERR_FILENO) && !options->quiet)
			say("no store is named (LATCHKEY_URL), using local: on this machine");
	}
	store->connect_timeout_ms = url_ms(store->url, "connect_timeout", 5000);
	store->command_timeout_ms = url_ms(store->url, "command_timeout", 2000);
	if (options->verbose) {
		store->client.log = log_line;
		store->client.log_level = LK_LOG_INFO;
	}
	*status = STATUS_USAGE;
	return password_file(store);
}

lk_err store_open(struct store *store, lk_client **client)
{
	lk_err err = lk_client_open(store->url, &store->client, client);

	store_judge(store, err);
	return err;
}

void store_judge(struct store *store, lk_err err)
{
	/* Of all that the command passes, only the URL can be invalid. */
	if (err == LK_EINVALID && !store->by_default)
		snprintf(store->fault, sizeof(store->fault), "%s: %s", store->origin, lk_errmsg());
}

const char *store_errmsg(const struct store *store)
{
	return store->fault[0] ? store->fault : lk_errmsg();
}

bool store_is_quorum(const struct store *store)
{
	return !strncmp(store->url, "redis+quorum:", 13) ||
	       !strncmp(store->url, "rediss+quorum:", 14);
}

bool store_is_etcd(const struct store *store)
{
	return !strncmp(store->url, "etcd:", 5) || !strncmp(store->url, "etcds:", 6);
}

void store_servers(const struct store *store, char *text, size_t size)
{
	const char *begin = strstr(store->url, "://"), *end;
	char place[300];
	size_t used = 0;

	text[0] = 0;
	if (!begin)
		return;
	begin += 3;
	end = begin + strcspn(begin, "/?");
	for (const char *at = begin; at < end; at++)
		if (*at == '@')
			begin = at + 1;
	for (const char *at = begin; at < end; at++) {
		size_t len = strcspn(at, ",/?"), need;
		bool has_port = memchr(at, ':', len) && at[len - 1] != ']';

		text_escape(place, sizeof(place) - 6, at, len);
		at += len;
		if (!has_port)
			memcpy(place + strlen(place), ":6379", 6);
		need = strlen(place) + (used ? 2 : 0);
		if (used + need >= size)
			return;
		snprintf(text + used, size - used, "%s%s", used ? ", " : "", place);
		used += need;
	}
}
