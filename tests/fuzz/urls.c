/* SPDX-License-Identifier: MIT
 * URLs: an accepted one can be written again and means the same; a rejected one leaves nothing
 * behind, and the reason names the part and contains no secret. */
#include "base/url.h"

#include "fuzz.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET "Zq7x" /* from the dictionary: it may be part of a password */
#define LINE_MAX_BYTES 9000

static void check_reason(const char *url, const struct lk__target *target,
                         const struct lk__why *why)
{
	static const char *const parts[] = {
		"url: ",
		"scheme: ",
		"host: ",
		"port: ",
		"db: ",
		"user: ",
		"path: ",
		"prefix: ",
		"password: ",
		"client_name: ",
		"connect_timeout",
		"command_timeout",
		"keepalive",
		"lazy: ",
		"grace",
		"replicas: ",
		"ca: ",
		"cert: ",
		"key: ",
		"server_name: ",
		"verify: ",
		"service: ",
		"sentinelMasterId: ",
		"sentinel_user: ",
		"sentinel_password",
	};
	static const struct lk__target nothing;
	size_t i = 0;

	FUZZ_MUST(why->err == LK_EINVALID, "refused with %s", lk_err_name(why->err));
	while (i < sizeof(parts) / sizeof(*parts) && strncmp(why->text, parts[i], strlen(parts[i])))
		i++;
	FUZZ_MUST(i < sizeof(parts) / sizeof(*parts), "a reason does not name the part: %s",
	          why->text);
	FUZZ_MUST(fuzz_is_plain(why->text), "a reason that is not plain");
	/* The name of an unknown option is shown, unless it may be a part of a password. */
	FUZZ_MUST(!strstr(why->text, SECRET) || !strncmp(why->text, "url: unknown option", 19),
	          "a reason shows a secret: %s of %s", why->text, url);
	FUZZ_MUST(!memcmp(target, &nothing, sizeof(nothing)), "something is left of %s", url);
}

static bool good_prefix(const char *prefix)
{
	size_t len = strlen(prefix);

	return len >= 1 && len <= 32 &&
	       strspn(prefix,
	              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static void check_places(const struct lk__endpoint *list, int count)
{
	for (int i = 0; i < count; i++)
		FUZZ_MUST(list[i].host[0] && list[i].port >= 1 && list[i].port <= 65535 &&
		                  fuzz_is_plain(list[i].host),
		          "the place %d of a list", i);
}

static void check_target(const struct lk__target *target)
{
	FUZZ_MUST(target->local + (target->socket_path != NULL) + (target->host != NULL) +
	                          (target->service != NULL) + target->cluster + target->quorum +
	                          target->etcd ==
	                  1,
	          "not one place");
	FUZZ_MUST(!target->service == !target->sentinel_count &&
	                  target->sentinel_count <= LK__SENTINELS_MAX,
	          "sentinels");
	FUZZ_MUST(!target->sentinel_user || target->sentinel_password, "a sentinel's user");
	FUZZ_MUST(target->service || !target->sentinel_password, "a sentinel's password");
	check_places(target->sentinels, target->sentinel_count);
	FUZZ_MUST((target->cluster || target->etcd) == (target->seed_count > 0) &&
	                  target->seed_count <= LK__SEEDS_MAX &&
	                  !(target->seed_count && target->db),
	          "a Cluster, or etcd");
	FUZZ_MUST(!target->etcd || (!target->grace_ms && !target->replicas &&
	                            !target->user == !target->password),
	          "etcd");
	check_places(target->seeds, target->seed_count);
	FUZZ_MUST(target->quorum == (target->member_count > 0) &&
	                  (!target->quorum || target->member_count % 2 == 1),
	          "a quorum");
	check_places(target->members, target->member_count);
	FUZZ_MUST(!target->host || (target->port >= 1 && target->port <= 65535), "port %d",
	          target->port);
	FUZZ_MUST(!target->host || (target->host[0] && fuzz_is_plain(target->host)), "the host");
	FUZZ_MUST(!target->socket_path || strlen(target->socket_path) < 108, "the socket's path");
	FUZZ_MUST(target->db >= 0, "db %d", target->db);
	FUZZ_MUST(good_prefix(target->prefix), "prefix %s", target->prefix);
	FUZZ_MUST(fuzz_is_plain(target->client_name) && !strchr(target->client_name, ' ') &&
	                  target->client_name[0],
	          "client_name");
	FUZZ_MUST(!target->user || (target->user[0] && target->password), "a user");
	FUZZ_MUST(target->tls || (!target->tls_ca && !target->tls_cert && !target->tls_key &&
	                          !target->tls_server_name && !target->tls_unverified),
	          "options of TLS without it");
	FUZZ_MUST(!target->tls || target->host || target->service || target->seed_count ||
	                  target->quorum,
	          "TLS without a host");
	FUZZ_MUST(target->connect_timeout_ns >= LK__MS &&
	                  target->connect_timeout_ns <= 3600000 * LK__MS &&
	                  target->command_timeout_ns >= LK__MS &&
	                  target->command_timeout_ns <= 3600000 * LK__MS &&
	                  target->keepalive_ms >= 1 && target->keepalive_ms <= 3600000,
	          "a time");
	FUZZ_MUST(target->text[0] && strlen(target->text) < sizeof(target->text) &&
	                  fuzz_is_plain(target->text),
	          "the text");
	FUZZ_MUST(!strstr(target->text, SECRET) || (target->host && strstr(target->host, SECRET)) ||
	                  (target->socket_path && strstr(target->socket_path, SECRET)) ||
	                  (target->service && strstr(target->service, SECRET)) ||
	                  (target->seed_count && strstr(target->seeds[0].host, SECRET)) ||
	                  (target->quorum && strstr(target->members[0].host, SECRET)),
	          "the text shows a secret: %s", target->text);
}

static void write_encoded(FILE *out, const char *text)
{
	for (; *text; text++)
		fprintf(out, "%%%02X", (unsigned char)*text);
}

static void write_option(FILE *out, char mark, const char *name, const char *value)
{
	if (!value)
		return;
	fprintf(out, "%c%s=", mark, name);
	write_encoded(out, value);
}

static void write_place(FILE *out, const char *host, int port)
{
	const char *zone = strchr(host, '%');

	if (strchr(host, ':'))
		fprintf(out, "[%.*s%s%s]:%d", zone ? (int)(zone - host) : (int)strlen(host), host,
		        zone ? "%25" : "", zone ? zone + 1 : "", port);
	else
		fprintf(out, "%s:%d", host, port);
}

static void write_places(FILE *out, const struct lk__endpoint *list, int count)
{
	for (int i = 0; i < count; i++) {
		if (i)
			fputc(',', out);
		write_place(out, list[i].host, list[i].port);
	}
}

/* The target as a URL of our own, encoded wherever that is allowed. */
static char *write_url(const struct lk__target *target)
{
	const char *scheme = target->tls ? "rediss" : "redis";
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		abort();
	if (target->local) {
		fputs("local:", out);
	} else if (target->socket_path) {
		fputs("redis+unix://", out);
		write_encoded(out, ""); /* the first slash of the path is not encoded */
		fputc('/', out);
		write_encoded(out, target->socket_path + 1);
	} else if (target->service) {
		fprintf(out, "%s+sentinel://", scheme);
		write_places(out, target->sentinels, target->sentinel_count);
		fputc('/', out);
		write_encoded(out, target->service);
	} else if (target->cluster) {
		fprintf(out, "%s+cluster://", scheme);
		write_places(out, target->seeds, target->seed_count);
	} else if (target->etcd) {
		fputs(target->tls ? "etcds://" : "etcd://", out);
		write_places(out, target->seeds, target->seed_count);
	} else if (target->quorum) {
		fprintf(out, "%s+quorum://", scheme);
		write_places(out, target->members, target->member_count);
	} else {
		fprintf(out, "%s://", scheme);
		write_place(out, target->host, target->port);
	}
	fprintf(out, "?connect_timeout=%lld&command_timeout=%lld&keepalive=%lld",
	        (long long)(target->connect_timeout_ns / LK__MS),
	        (long long)(target->command_timeout_ns / LK__MS), (long long)target->keepalive_ms);
	if (!target->etcd)
		fprintf(out, "&db=%d", target->db);
	write_option(out, '&', "user", target->user);
	write_option(out, '&', "password", target->password);
	write_option(out, '&', "client_name", target->client_name);
	write_option(out, '&', "prefix", target->prefix);
	write_option(out, '&', "ca", target->tls_ca);
	write_option(out, '&', "cert", target->tls_cert);
	write_option(out, '&', "key", target->tls_key);
	write_option(out, '&', "server_name", target->tls_server_name);
	write_option(out, '&', "verify", target->tls_unverified ? "none" : NULL);
	fclose(out);
	return text;
}

static bool same_text(const char *one, const char *other)
{
	return one && other ? !strcmp(one, other) : one == other;
}

static bool same_places(const struct lk__endpoint *one, int one_count,
                        const struct lk__endpoint *other, int other_count)
{
	for (int i = 0; i < one_count && i < other_count; i++)
		if (strcmp(one[i].host, other[i].host) != 0 || one[i].port != other[i].port)
			return false;
	return one_count == other_count;
}

static bool same_sentinels(const struct lk__target *one, const struct lk__target *other)
{
	return same_places(one->sentinels, one->sentinel_count, other->sentinels,
	                   other->sentinel_count) &&
	       same_text(one->service, other->service) &&
	       same_text(one->sentinel_user, other->sentinel_user);
}

static void check_round(const struct lk__target *target)
{
	char *url = write_url(target);
	struct lk__target again;
	struct lk__why why = {0};

	/* The file of a sentinel's password is not in the target. */
	if (strlen(url) > 8192 || target->sentinel_password) {
		free(url);
		return;
	}
	FUZZ_MUST(!lk__target_parse(url, NULL, &again, &why), "%s for %s", why.text, url);
	FUZZ_MUST(again.local == target->local && again.port == target->port &&
	                  again.db == target->db &&
	                  same_text(again.socket_path, target->socket_path) &&
	                  same_text(again.host, target->host) &&
	                  same_text(again.user, target->user) &&
	                  same_text(again.password, target->password) &&
	                  same_text(again.client_name, target->client_name) &&
	                  same_text(again.prefix, target->prefix) && again.tls == target->tls &&
	                  again.tls_unverified == target->tls_unverified &&
	                  same_text(again.tls_ca, target->tls_ca) &&
	                  same_text(again.tls_cert, target->tls_cert) &&
	                  same_text(again.tls_key, target->tls_key) &&
	                  same_text(again.tls_server_name, target->tls_server_name) &&
	                  same_text(again.text, target->text) && same_sentinels(&again, target) &&
	                  again.cluster == target->cluster && again.etcd == target->etcd &&
	                  same_places(again.seeds, again.seed_count, target->seeds,
	                              target->seed_count) &&
	                  again.quorum == target->quorum &&
	                  same_places(again.members, again.member_count, target->members,
	                              target->member_count) &&
	                  again.connect_timeout_ns == target->connect_timeout_ns &&
	                  again.command_timeout_ns == target->command_timeout_ns &&
	                  again.keepalive_ms == target->keepalive_ms,
	          "%s means something else", url);
	lk__target_fini(&again);
	free(url);
}

/* The URL unchanged; fuzz_options() tests the options. */
void fuzz_urls(const uint8_t *data, size_t size)
{
	struct lk__target target;
	struct lk__why why = {0};
	char *url = malloc(size + 1);

	if (!url)
		abort();
	memcpy(url, data, size);
	url[size] = '\0';
	memset(&target, 0xa5, sizeof(target));
	if (lk__target_parse(url, NULL, &target, &why)) {
		check_reason(url, &target, &why);
	} else {
		check_target(&target);
		check_round(&target);
		lk__target_fini(&target);
	}
	free(url);
}
