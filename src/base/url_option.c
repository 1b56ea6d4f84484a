/* SPDX-License-Identifier: MIT
 * The options of a store: their values in a URL's query and in lk_client_options. */
#include "url_option.h"

#include "os.h"
#include "text.h"

#include <stdlib.h>

#define PREFIX_MAX 32
#define CLIENT_NAME_MAX 128
#define DEFAULT_CONNECT_TIMEOUT_MS 5000
#define DEFAULT_COMMAND_TIMEOUT_MS 2000
#define DEFAULT_KEEPALIVE_MS 15000
#define DEFAULT_GRACE_MS 10000
#define GRACE_MIN_MS 100
#define GRACE_MAX_MS 86400000
#define TIME_MAX_MS 3600000
#define REPLICAS_MAX 100

const char *const lk__option_names[OPTION_COUNT] = {
	"db",
	"user",
	"password",
	"client_name",
	"prefix",
	"connect_timeout",
	"command_timeout",
	"keepalive",
	"lazy",
	"grace",
	"replicas",
	"ca",
	"cert",
	"key",
	"server_name",
	"verify",
	"sentinel_user",
	"sentinel_password_file",
	"sentinelMasterId",
};

/* ---- Values ------------------------------------------------------------------------------- */

void lk__option_wipe(char *secret)
{
	volatile char *byte = secret; /* volatile: the compiler must not remove these stores */

	if (!secret)
		return;
	while (*byte)
		*byte++ = '\0';
	free(secret);
}

/* Replace *slot by a copy of value. */
lk_err lk__option_replace(struct parse *parse, char **slot, struct span value)
{
	char *copy = malloc(value.len + 1);

	if (!copy)
		return lk__why_set(parse->why, LK_ENOMEM, "out of memory");
	memcpy(copy, value.at, value.len);
	copy[value.len] = '\0';
	lk__option_wipe(*slot);
	*slot = copy;
	return LK_OK;
}

/* Replace *slot by the percent-decoded value. */
lk_err lk__option_replace_decoded(struct parse *parse, char **slot, struct span value,
                                  const char *part)
{
	lk_err err = lk__option_replace(parse, slot, value);
	size_t len = 0;

	if (err != LK_OK)
		return err;
	for (size_t i = 0; i < value.len; i++) {
		int high, low;

		if (value.at[i] != '%') {
			(*slot)[len++] = value.at[i];
			continue;
		}
		high = i + 2 < value.len ? lk__hex_digit(value.at[i + 1]) : -1;
		low = i + 2 < value.len ? lk__hex_digit(value.at[i + 2]) : -1;
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
	if (value.len < 1 || value.len > PREFIX_MAX || !span_only(value, LK__ALNUM "._-"))
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

lk_err lk__option_set_db(struct parse *parse, struct span value)
{
	int64_t number = -1; /* an invalid value */

	lk__parse_i64(value.at, value.len, 0, INT32_MAX, &number);
	if (parse->target->etcd)
		return WRONG(parse, "db: etcd has no databases (write prefix=NAME)");
	if (parse->target->cluster && number != 0)
		return WRONG(parse, "db: a Cluster has only database 0");
	if (number < 0)
		return WRONG(parse, "db: must be 0 to %d", INT32_MAX);
	parse->target->db = (int)number;
	return LK_OK;
}

/* ---- The query ---------------------------------------------------------------------------- */

lk_err lk__option_note(struct parse *parse, enum option option)
{
	if (parse->seen[option])
		return WRONG(parse, "%s: given twice", lk__option_names[option]);
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
	return set_time(parse, lk__option_names[option], time_ms, slot);
}

static lk_err set_grace(struct parse *parse, const char *part, int64_t ms, const char *none)
{
	if (parse->target->etcd)
		return WRONG(parse, "%s: etcd loses no grants, so it needs none", part);
	if (parse->target->quorum)
		return WRONG(parse,
		             "%s: the servers of a quorum grant nothing for its longest lease "
		             "instead",
		             part);
	if (ms && (ms < GRACE_MIN_MS || ms > GRACE_MAX_MS))
		return WRONG(parse, "%s: must be %d to %d milliseconds, or %s for none", part,
		             GRACE_MIN_MS, GRACE_MAX_MS, none);
	parse->target->grace_ms = ms;
	return LK_OK;
}

static lk_err set_grace_option(struct parse *parse, struct span value)
{
	int64_t ms = 1; /* an invalid value */

	lk__parse_i64(value.at, value.len, 0, GRACE_MAX_MS, &ms);
	return set_grace(parse, "grace", ms, "0");
}

static lk_err set_replicas(struct parse *parse, int64_t replicas)
{
	if (parse->target->etcd)
		return WRONG(parse, "replicas: a majority of etcd's members confirms each grant");
	if (replicas < 0 || replicas > REPLICAS_MAX)
		return WRONG(parse, "replicas: must be 0 to %d", REPLICAS_MAX);
	parse->target->replicas = (uint32_t)replicas;
	return LK_OK;
}

static lk_err set_replicas_option(struct parse *parse, struct span value)
{
	int64_t replicas = -1; /* an invalid value */

	lk__parse_i64(value.at, value.len, 0, REPLICAS_MAX, &replicas);
	return set_replicas(parse, replicas);
}

static lk_err set_lazy(struct parse *parse, struct span value)
{
	if (value.len != 1 || (*value.at != '0' && *value.at != '1'))
		return WRONG(parse, "lazy: not 0 or 1");
	parse->target->lazy = *value.at == '1';
	return LK_OK;
}

static char **tls_slot(struct lk__target *target, enum option option)
{
	return option == OPTION_CA     ? &target->tls_ca
	       : option == OPTION_CERT ? &target->tls_cert
	       : option == OPTION_KEY  ? &target->tls_key
	                               : &target->tls_server_name;
}

/* Check a value of TLS that is in place; part names it. */
static lk_err check_tls(struct parse *parse, enum option option, const char *part)
{
	const char *value = *tls_slot(parse->target, option);

	if (option != OPTION_SERVER_NAME && !*value)
		return WRONG(parse, "%s: must name a file", part);
	if (option == OPTION_SERVER_NAME && (!*value || strlen(value) > LK__HOST_MAX ||
	                                     !span_only(span_of(value), LK__ALNUM "._:-")))
		return WRONG(parse, "%s: must be a name or an address of at most %d bytes", part,
		             LK__HOST_MAX);
	return LK_OK;
}

static lk_err set_verify(struct parse *parse, struct span value, const char *part)
{
	if (value.len != 4 || memcmp(value.at, "none", 4) != 0)
		return WRONG(parse, "%s: must be none (without it, the certificate is verified)",
		             part);
	parse->target->tls_unverified = true;
	return LK_OK;
}

static lk_err set_tls_option(struct parse *parse, enum option option, struct span value)
{
	const char *part = lk__option_names[option];
	lk_err err =
		lk__option_replace_decoded(parse, tls_slot(parse->target, option), value, part);

	return err == LK_OK ? check_tls(parse, option, part) : err;
}

lk_err lk__option_set(struct parse *parse, enum option option, struct span value)
{
	struct lk__target *target = parse->target;
	const char *part = lk__option_names[option];
	char *decoded = NULL;
	lk_err err = lk__option_note(parse, option);

	if (err != LK_OK)
		return err;
	switch (option) {
	case OPTION_PASSWORD: /* directly into place: no copy to wipe */
		return lk__option_replace_decoded(parse, &target->password, value, part);
	case OPTION_USER:
		err = lk__option_replace_decoded(parse, &target->user, value, part);
		return err == LK_OK ? check_user(parse, span_of(target->user)) : err;
	case OPTION_CLIENT_NAME:
		err = lk__option_replace_decoded(parse, &target->client_name, value, part);
		return err == LK_OK ? check_client_name(parse, span_of(target->client_name)) : err;
	case OPTION_PREFIX:
		err = lk__option_replace_decoded(parse, &target->prefix, value, part);
		return err == LK_OK ? check_prefix(parse, span_of(target->prefix)) : err;
	case OPTION_CA:
	case OPTION_CERT:
	case OPTION_KEY:
	case OPTION_SERVER_NAME:
		return set_tls_option(parse, option, value);
	case OPTION_SENTINEL_USER:
	case OPTION_SENTINEL_PASSWORD_FILE:
	case OPTION_SENTINEL_MASTER_ID:
		return lk__option_set_sentinel(parse, option, value);
	default: /* a number or a word */
		break;
	}
	err = lk__option_replace_decoded(parse, &decoded, value, part);
	if (err == LK_OK && option == OPTION_DB)
		err = lk__option_set_db(parse, span_of(decoded));
	else if (err == LK_OK && option == OPTION_LAZY)
		err = set_lazy(parse, span_of(decoded));
	else if (err == LK_OK && option == OPTION_GRACE)
		err = set_grace_option(parse, span_of(decoded));
	else if (err == LK_OK && option == OPTION_REPLICAS)
		err = set_replicas_option(parse, span_of(decoded));
	else if (err == LK_OK && option == OPTION_VERIFY)
		err = set_verify(parse, span_of(decoded), part);
	else if (err == LK_OK)
		err = set_time_option(parse, option, span_of(decoded));
	free(decoded);
	return err;
}

/* ---- Options of a program and defaults ---------------------------------------------------- */

static lk_err apply_numbers(struct parse *parse, const lk_client_options *options)
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
	if (err == LK_OK && options->grace_ms)
		err = set_grace(parse, "grace_ms", options->grace_ms == -1 ? 0 : options->grace_ms,
		                "-1");
	if (err == LK_OK && options->replicas)
		err = set_replicas(parse, options->replicas);
	return err;
}

static lk_err apply_tls(struct parse *parse, const lk_client_options *options)
{
	const struct {
		const char *value, *part;
		enum option option;
	} of[] = {{options->tls_ca, "tls_ca", OPTION_CA},
	          {options->tls_cert, "tls_cert", OPTION_CERT},
	          {options->tls_key, "tls_key", OPTION_KEY},
	          {options->tls_server_name, "tls_server_name", OPTION_SERVER_NAME}};
	lk_err err = LK_OK;

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]) && err == LK_OK; i++) {
		if (!of[i].value)
			continue;
		err = lk__option_replace(parse, tls_slot(parse->target, of[i].option),
		                         span_of(of[i].value));
		if (err == LK_OK)
			err = check_tls(parse, of[i].option, of[i].part);
	}
	if (err == LK_OK && options->tls_verify)
		err = set_verify(parse, span_of(options->tls_verify), "tls_verify");
	return err;
}

lk_err lk__options_apply(struct parse *parse, const lk_client_options *options)
{
	struct lk__target *target = parse->target;
	lk_err err = apply_numbers(parse, options);

	if (err == LK_OK && options->prefix) {
		err = check_prefix(parse, span_of(options->prefix));
		if (err == LK_OK)
			err = lk__option_replace(parse, &target->prefix, span_of(options->prefix));
	}
	if (err == LK_OK && options->client_name) {
		err = check_client_name(parse, span_of(options->client_name));
		if (err == LK_OK)
			err = lk__option_replace(parse, &target->client_name,
			                         span_of(options->client_name));
	}
	if (err == LK_OK && options->user) {
		err = check_user(parse, span_of(options->user));
		if (err == LK_OK)
			err = lk__option_replace(parse, &target->user, span_of(options->user));
	}
	if (err == LK_OK && options->password)
		err = lk__option_replace(parse, &target->password, span_of(options->password));
	if (err == LK_OK)
		err = apply_tls(parse, options);
	if (err == LK_OK)
		err = lk__options_apply_sentinel(parse, options);
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

lk_err lk__options_reset(struct parse *parse)
{
	struct lk__target *target = parse->target;
	lk_err err = lk__option_replace(parse, &target->prefix, span_of("lk"));

	target->connect_timeout_ns = DEFAULT_CONNECT_TIMEOUT_MS * LK__MS;
	target->command_timeout_ns = DEFAULT_COMMAND_TIMEOUT_MS * LK__MS;
	target->keepalive_ms = DEFAULT_KEEPALIVE_MS;
	target->grace_ms = DEFAULT_GRACE_MS;
	return err == LK_OK ? lk__option_replace(parse, &target->client_name, span_of("latchkey"))
	                    : err;
}

lk_err lk__options_check(struct parse *parse)
{
	const struct lk__target *target = parse->target;

	if (target->user && !target->password)
		return WRONG(parse, "password: missing (a user is given)");
	if (!target->tls && (target->tls_ca || target->tls_cert || target->tls_key ||
	                     target->tls_server_name || target->tls_unverified))
		return WRONG(parse,
		             "scheme: must be %s:// with options of TLS (ca, cert, key, "
		             "server_name, verify)",
		             target->etcd ? "etcds" : "rediss");
	if (target->tls_key && !target->tls_cert)
		return WRONG(parse, "cert: missing (a key is given)");
	if (target->local && target->replicas)
		return WRONG(parse, "replicas: the private server of local: has none");
	if (target->quorum && target->replicas)
		return WRONG(parse,
		             "replicas: a quorum waits for a majority of its servers instead");
	if (lk__options_check_etcd(parse))
		return LK_EINVALID;
	return lk__options_check_sentinel(parse);
}

static void free_places(struct lk__endpoint *list, int count)
{
	for (int i = 0; i < count; i++)
		free(list[i].host);
	free(list);
}

void lk__target_fini(struct lk__target *target)
{
	free(target->socket_path);
	free(target->host);
	free(target->user);
	lk__option_wipe(target->password);
	free(target->client_name);
	free(target->prefix);
	free(target->tls_ca);
	free(target->tls_cert);
	free(target->tls_key);
	free(target->tls_server_name);
	free(target->service);
	free_places(target->sentinels, target->sentinel_count);
	free_places(target->seeds, target->seed_count);
	free_places(target->members, target->member_count);
	free(target->sentinel_user);
	lk__option_wipe(target->sentinel_password);
	memset(target, 0, sizeof(*target));
}
