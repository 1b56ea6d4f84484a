/* SPDX-License-Identifier: MIT
 * Does this user have every right that Latchkey needs?  Tries each one, which needs no further
 * right and works with every version.  Each command is chosen to change nothing: servers check
 * rights before they execute. */
#include "doctor.h"

#include "../base/os.h"
#include "../base/text.h"
#include "codec.h"

#include <stdio.h>
#include <string.h>

#define ARGS_MAX 5
#define LIST_SIZE 512
#define RULE_SIZE 64

/* Placeholders for the names of this examination, which are unique in the server. */
static const char LOCK[] = "@lock", QUEUE[] = "@queue", FENCE[] = "@fence", CLIENT[] = "@client",
		  CHANNEL[] = "@channel", BROADCAST[] = "@broadcast";

struct right {
	const char *rule; /* for ACL SETUSER */
	bool needed;      /* else: reported, but locks work without */
	const char *argv[ARGS_MAX];
};

static const struct right rights[] = {
	{"+ping", true, {"PING"}},
	{"+time", true, {"TIME"}},
	{"+get", true, {"GET", LOCK}},
	{"+set", true, {"SET", LOCK, "", "XX"}}, /* XX: only if it exists */
	{"+pexpire", true, {"PEXPIRE", LOCK, "1000"}},
	{"+pttl", true, {"PTTL", LOCK}},
	{"+del", true, {"DEL", LOCK}},
	{"+zadd", true, {"ZADD", QUEUE, "XX", "1", "x"}},
	{"+zrem", true, {"ZREM", QUEUE, "x"}},
	{"+zrange", true, {"ZRANGE", QUEUE, "0", "0"}},
	{"+zrank", true, {"ZRANK", QUEUE, "x"}},
	{"+zcard", true, {"ZCARD", QUEUE}},
	{"+zscore", true, {"ZSCORE", QUEUE, "x"}},
	/* The one key that may really exist, as a string: refused, or WRONGTYPE. */
	{"+zrem", true, {"ZREM", FENCE, "x"}},
	{"+zrevrange", true, {"ZREVRANGE", QUEUE, "0", "0"}},
	{"+zrangebyscore", true, {"ZRANGEBYSCORE", QUEUE, "0", "0"}},
	{"+exists", true, {"EXISTS", LOCK}},
	{"+type", true, {"TYPE", LOCK}},
	{"+hget", true, {"HGET", LOCK, "x"}},
	{"+hmget", true, {"HMGET", LOCK, "x"}},
	{"+hdel", true, {"HDEL", LOCK, "x"}},
	{"+publish", true, {"PUBLISH", CHANNEL, "doctor"}},
	{"+publish", true, {"PUBLISH", BROADCAST, "doctor"}},
	/* Neither runs: no such script, and not valid Lua. */
	{"+evalsha", true, {"EVALSHA", "0000000000000000000000000000000000000000", "0"}},
	{"+eval", true, {"EVAL", "(", "0"}},
	{"+script|load", false, {"SCRIPT", "LOAD", "("}},
	/* Without it, only the loss of everything is noticed: topic "memory" says so. */
	{"+info", false, {"INFO", "server"}},
	/* Listing names: for display. */
	{"+scan", false, {"SCAN", "0", "COUNT", "1"}},
	{"+client|setname", false, {"CLIENT", "SETNAME", "latchkey-doctor"}},
	{"+wait", true, {"WAIT", "0", "1"}}, /* the last one: only with replicas= */
};

/* At a node of a Cluster.  The names are rarely in its slots: it checks rights before it refuses
 * them. */
static const struct right cluster_rights[] = {
	{"+cluster|slots", true, {"CLUSTER", "SLOTS"}},
	{"+cluster|myid", false, {"CLUSTER", "MYID"}}, /* else by its address */
	{"+asking", true, {"ASKING"}},
	{"+ping", true, {"PING"}}, /* takes what ASKING did */
	{"+spublish", true, {"SPUBLISH", CHANNEL, "doctor"}},
	{"+spublish", true, {"SPUBLISH", BROADCAST, "doctor"}},
	{"+sunsubscribe", true, {"SUNSUBSCRIBE", BROADCAST}},
	{"+ssubscribe", true, {"SSUBSCRIBE", BROADCAST}},
	{"+ssubscribe", true, {"SSUBSCRIBE", CHANNEL}},
};
#define CLUSTER_COUNT (sizeof(cluster_rights) / sizeof(cluster_rights[0]))
#define RIGHT_COUNT (sizeof(rights) / sizeof(rights[0]))

/* Commands that leave a trace, and those that remove it. */
static const struct right last_rights[] = {
	{"+hset", true, {"HSET", CLIENT, "x", "x"}},
	{"+hsetnx", false, {"HSETNX", CLIENT, "x", "x"}},
	{"+del", true, {"DEL", CLIENT}},
	{"+unsubscribe", false, {"UNSUBSCRIBE", BROADCAST}},
	{"+subscribe", true, {"SUBSCRIBE", BROADCAST}},
	{"+subscribe", true, {"SUBSCRIBE", CHANNEL}},
};
#define LAST_COUNT (sizeof(last_rights) / sizeof(last_rights[0]))
#define FIRST_SUBSCRIBE 3 /* in last_rights: the first one to try if DEL is refused */

const char *lk__doctor_rule(size_t index, bool *needed)
{
	const struct right *right = NULL;

	if (index < RIGHT_COUNT)
		right = &rights[index];
	else if (index < RIGHT_COUNT + LAST_COUNT)
		right = &last_rights[index - RIGHT_COUNT];
	if (!right)
		return NULL;
	*needed = right->needed;
	return right->rule;
}

struct names {
	struct lk__keys keys;
	char client[LK__CHANNEL_MAX];
	char topic[LK__TOPIC_MAX];
	char channel[LK__TOPIC_MAX];
	struct lk__space space;
};

/* False when the kernel has no random bytes. */
static bool names_make(struct names *names, const struct lk__target *target, bool is_in_cluster)
{
	char name[48], id[23];
	unsigned char bytes[16];

	if (!lk__random(bytes, sizeof(bytes)))
		return false;
	lk__id128(id, bytes);
	lk__space_init(&names->space, target->prefix, target->db, id);
	if (is_in_cluster)
		lk__space_divide(&names->space);
	snprintf(name, sizeof(name), "latchkey-doctor-%s", id);
	lk__space_keys(&names->space, name, strlen(name), &names->keys);
	lk__space_topic(&names->space, name, strlen(name), names->topic);
	lk__space_client_key(&names->space, id, 0, names->client);
	if (!lk__space_inbox(&names->space, name, strlen(name), names->channel))
		snprintf(names->channel, sizeof(names->channel), "%s", names->space.channel);
	return true;
}

static const char *resolve(const struct names *names, const char *word)
{
	if (word == LOCK)
		return names->keys.main;
	if (word == QUEUE)
		return names->keys.queue;
	if (word == FENCE)
		return names->keys.fence;
	if (word == CLIENT)
		return names->client;
	if (word == BROADCAST)
		return names->topic;
	return word == CHANNEL ? names->channel : word;
}

static bool append(struct lk__buf *buf, const struct names *names, const struct right *right)
{
	const char *argv[ARGS_MAX];
	int argc = 0;

	while (argc < ARGS_MAX && right->argv[argc]) {
		argv[argc] = resolve(names, right->argv[argc]);
		argc++;
	}
	return lk__resp_command(buf, argc, argv, NULL);
}

/* The missing rules or commands, separated by spaces. */
struct lists {
	char needed[LIST_SIZE];
	char wished[LIST_SIZE];
	char unknown[LIST_SIZE];
	char later[LIST_SIZE]; /* why the others are unknown for now, escaped */
};

static bool list_has(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
		if ((at == list || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
			return true;
	return false;
}

static void list_add(char list[LIST_SIZE], const char *word)
{
	size_t len = strlen(list);

	if (!list_has(list, word))
		snprintf(list + len, LIST_SIZE - len, "%s%s", len ? " " : "", word);
}

/* The rule that would permit the command of this reply; "" when it was not refused. */
static void missing_rule(const struct lk__doctor *doctor, const struct right *right,
                         const struct lk__resp *resp, char rule[RULE_SIZE])
{
	rule[0] = '\0';
	if (resp->type != LK__RESP_ERROR || lk__resp_error(resp) != LK_EAUTH)
		return;
	/* "... no permissions to run the 'get' command", "... to access one of the keys ...". */
	if (!strstr(resp->str, "to run the") && strstr(resp->str, "channel"))
		snprintf(rule, RULE_SIZE, "&%s:%c:*", doctor->target->prefix,
		         right->argv[1] == BROADCAST ? 'l' : 'c');
	else if (!strstr(resp->str, "to run the") && strstr(resp->str, "key"))
		snprintf(rule, RULE_SIZE, "~%s:*", doctor->target->prefix);
	else
		snprintf(rule, RULE_SIZE, "%s", right->rule);
}

static bool is_unknown(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_ERROR && (!strncmp(resp->str, "ERR unknown command", 19) ||
	                                        !strncmp(resp->str, "ERR unknown subcommand", 22));
}

/* It was checked, and is the matter of another node. */
static bool is_redirect(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_ERROR &&
	       (lk__resp_redirect(resp) || !strncmp(resp->str, "CLUSTERDOWN", 11));
}

/* A quorum must learn that a server has restarted. */
static bool is_needed(const struct lk__doctor *doctor, const struct right *right)
{
	return right->needed || (doctor->target->quorum && !strcmp(right->rule, "+info"));
}

static void lists_add(const struct lk__doctor *doctor, struct lists *lists,
                      const struct right *right, const struct lk__resp *resp)
{
	char rule[RULE_SIZE];

	missing_rule(doctor, right, resp, rule);
	if (rule[0])
		list_add(is_needed(doctor, right) ? lists->needed : lists->wished, rule);
	else if (is_unknown(resp))
		list_add(lists->unknown, right->rule + 1);
	else if (lk__resp_error(resp) == LK_EAGAIN && strncmp(resp->str, "READONLY", 8) != 0 &&
	         strncmp(resp->str, "NOREPLICAS", 10) != 0 && (!doctor->node || !is_redirect(resp)))
		lk__escape(lists->later, sizeof(lists->later), resp->str, resp->len);
}

/* A member of a quorum is a node of the report, too. */
static bool is_in_cluster(const struct lk__doctor *doctor)
{
	return doctor->node && !doctor->target->quorum;
}

/* Not used at a node of a Cluster, which has sharded channels. */
static bool is_alone(const struct right *right)
{
	return !strcmp(right->rule, "+publish") || !strcmp(right->rule, "+subscribe") ||
	       !strcmp(right->rule, "+unsubscribe");
}

/* Try count rights of a table (RIGHT_COUNT at most) in one pipeline; false when the connection was
 * lost. */
static bool try_all(struct lk__doctor *doctor, const struct names *names, const struct right *table,
                    size_t count, struct lists *lists)
{
	int64_t deadline_ns = lk__now_ns() + doctor->target->command_timeout_ns;
	struct lk__resp *resps[RIGHT_COUNT];
	struct lk__buf buf = {0};
	const struct right *tried[RIGHT_COUNT];
	size_t sent = 0;
	bool whole = true;

	for (size_t i = 0; i < count; i++) {
		if (is_in_cluster(doctor) && is_alone(&table[i]))
			continue;
		tried[sent++] = &table[i];
		whole = whole && append(&buf, names, &table[i]);
	}
	if (!whole)
		lk__why_set(&doctor->lost, LK_ENOMEM, "out of memory");
	else if (!doctor->lost.err)
		lk__conn_pipeline(doctor->conn, deadline_ns, -1, &buf, sent, resps, &doctor->lost);
	lk__buf_fini(&buf);
	if (doctor->lost.err)
		return false;
	for (size_t i = 0; i < sent; i++) {
		lists_add(doctor, lists, tried[i], resps[i]);
		lk__resp_free(resps[i]);
	}
	return true;
}

static void report_list(struct lk__doctor *doctor, lk_fitness fitness, const char *text,
                        const char *list)
{
	char cure[LIST_SIZE + 2 * sizeof(doctor->user)];

	snprintf(cure, sizeof(cure), "ACL SETUSER %s %s", doctor->user, list);
	lk__doctor_report(doctor, fitness, "rights", cure, "%s: %s", text, list);
}

static void report_lists(struct lk__doctor *doctor, const struct lists *lists)
{
	if (lists->needed[0])
		report_list(doctor, LK_UNFIT, "this user lacks rights that are needed",
		            lists->needed);
	if (lists->unknown[0])
		lk__doctor_report(doctor, LK_UNFIT, "rights",
		                  "see rename-command in the server's configuration",
		                  "the server does not have these commands: %s", lists->unknown);
	if (lists->wished[0])
		report_list(doctor, LK_FIT_WARN, "this user lacks rights that locks can do without",
		            lists->wished);
	if (lists->later[0])
		lk__doctor_report(doctor, LK_FIT_WARN, "rights", "try again later",
		                  "cannot tell: %s", lists->later);
	else if (!lists->needed[0] && !lists->unknown[0] && !lists->wished[0])
		lk__doctor_report(doctor, LK_FIT, "rights", "",
		                  "this user may run every command and use every key and channel");
}

void lk__doctor_rights(struct lk__doctor *doctor)
{
	struct lists lists = {.needed = ""};
	struct names names;
	size_t start;

	if (!names_make(&names, doctor->target, is_in_cluster(doctor))) {
		lk__doctor_report(doctor, LK_FIT_WARN, "rights", "",
		                  "cannot tell: the system gives no random bytes");
		return;
	}
	if (!try_all(doctor, &names, rights, RIGHT_COUNT - !doctor->target->replicas, &lists)) {
		(void)lk__doctor_usable(doctor, "rights", "", NULL);
		return;
	}
	/* HSET has no harmless form: try it only where its key can be deleted again. */
	start = list_has(lists.needed, "+del") || lists.later[0] ? FIRST_SUBSCRIBE : 0;
	if (!try_all(doctor, &names, last_rights + start, LAST_COUNT - start, &lists)) {
		(void)lk__doctor_usable(doctor, "rights", "", NULL);
		return;
	}
	if (is_in_cluster(doctor) &&
	    !try_all(doctor, &names, cluster_rights, CLUSTER_COUNT, &lists)) {
		(void)lk__doctor_usable(doctor, "rights", "", NULL);
		return;
	}
	report_lists(doctor, &lists);
}
