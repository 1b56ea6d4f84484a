/* SPDX-License-Identifier: MIT
 * Runs scripts of requests to etcd: see etcd_script.h.  Requests are encoded by the shipped code;
 * etcd_script_show.c decodes the answers. */
#include "etcd_script_parts.h"

#include <stdlib.h>
#include <string.h>

#define KV "/etcdserverpb.KV/"
#define LEASE "/etcdserverpb.Lease/"
#define WATCH "/etcdserverpb.Watch/Watch"

/* ---- Words ------------------------------------------------------------------------------------
 */

static void malformed(const struct script_run *run)
{
	fprintf(stderr, "etcd script: %s\n", run->line);
	abort();
}

/* The next word; NULL = there is none. */
static const char *next(struct script_run *run)
{
	char *word = strsep(&run->rest, " ");

	return word && *word ? word : NULL;
}

static const char *must(struct script_run *run)
{
	const char *word = next(run);

	if (!word)
		malformed(run);
	return word;
}

static struct lk__bytes text_of(const char *word)
{
	return lk__bytes_of(strcmp(word, "-") == 0 ? "" : word);
}

static void split_range(const char *word, struct lk__bytes *key, struct lk__bytes *end)
{
	const char *dots = strstr(word, "..");

	*key = text_of(word);
	*end = (struct lk__bytes){0};
	if (!dots)
		return;
	key->len = (size_t)(dots - word);
	*end = dots[2] ? lk__bytes_of(dots + 2) : (struct lk__bytes){"", 1};
}

static int64_t lease_of(const struct script_run *run, const char *word)
{
	return word[0] == 'L' ? run->first_lease + (word[1] - '0') : atoll(word);
}

static int64_t revision_of(const struct script_run *run, const char *word)
{
	return strchr("+-", *word) ? run->base + atoll(word) : atoll(word);
}

/* "limit=3" has the value 3 for "limit"; NULL = it is another word. */
static const char *value_of(const char *word, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(word, name, len) && word[len] == '=' ? word + len + 1 : NULL;
}

static bool ends_op(const char *word)
{
	return !word || !strcmp(word, ";") || !strcmp(word, "then") || !strcmp(word, "else");
}

/* ---- Requests of keys -------------------------------------------------------------------------
 */

static void read_order(const struct script_run *run, struct lk__etcd_range *range, const char *name)
{
	static const char *const names[] = {"key", "version", "create", "mod", "value"};

	for (int i = 0; i < 5; i++)
		if (!strcmp(names[i], name)) {
			range->by = (enum lk__etcd_by)i;
			return;
		}
	malformed(run);
}

/* Each returns the word that ended it. */
static const char *read_get(struct script_run *run, struct lk__etcd_range *range)
{
	const char *word, *value;

	*range = (struct lk__etcd_range){0};
	split_range(must(run), &range->key, &range->range_end);
	while (!ends_op(word = next(run))) {
		if ((value = value_of(word, "limit")))
			range->limit = atoll(value);
		else if ((value = value_of(word, "rev")))
			range->revision = revision_of(run, value);
		else if ((value = value_of(word, "by")))
			read_order(run, range, value);
		else if (!strcmp(word, "asc"))
			range->order = LK__ETCD_ASCENDING;
		else if (!strcmp(word, "desc"))
			range->order = LK__ETCD_DESCENDING;
		else if (!strcmp(word, "keys"))
			range->keys_only = true;
		else if (!strcmp(word, "count"))
			range->count_only = true;
		else if (!strcmp(word, "serial"))
			range->serializable = true;
		else
			malformed(run);
	}
	return word;
}

static const char *read_put(struct script_run *run, struct lk__etcd_put *put)
{
	const char *word, *value;

	*put = (struct lk__etcd_put){0};
	put->key = text_of(must(run));
	put->value = text_of(must(run));
	while (!ends_op(word = next(run))) {
		if ((value = value_of(word, "lease")))
			put->lease = lease_of(run, value);
		else if (!strcmp(word, "prev"))
			put->prev_kv = true;
		else if (!strcmp(word, "ignore_value"))
			put->ignore_value = true;
		else if (!strcmp(word, "ignore_lease"))
			put->ignore_lease = true;
		else
			malformed(run);
	}
	return word;
}

static const char *read_del(struct script_run *run, struct lk__etcd_delete *del)
{
	const char *word;

	*del = (struct lk__etcd_delete){0};
	split_range(must(run), &del->key, &del->range_end);
	while (!ends_op(word = next(run))) {
		if (strcmp(word, "prev") != 0)
			malformed(run);
		del->prev_kv = true;
	}
	return word;
}

static const char *read_compare(struct script_run *run, struct lk__etcd_compare *compare,
                                const char *target)
{
	static const char *const targets[] = {"version", "create", "mod", "value", "lease"};
	static const char *const results[] = {"=", ">", "<", "!="};
	const char *result, *value;
	int i, k;

	*compare = (struct lk__etcd_compare){0};
	split_range(must(run), &compare->key, &compare->range_end);
	result = must(run);
	value = must(run);
	for (i = 0; i < 5 && strcmp(targets[i], target) != 0; i++)
		;
	for (k = 0; k < 4 && strcmp(results[k], result) != 0; k++)
		;
	if (i == 5 || k == 4)
		malformed(run);
	compare->target = (enum lk__etcd_target)i;
	compare->result = (enum lk__etcd_result)k;
	if (compare->target == LK__ETCD_VALUE)
		compare->value = text_of(value);
	else if (compare->target == LK__ETCD_LEASE)
		compare->number = lease_of(run, value);
	else
		compare->number = revision_of(run, value);
	return next(run);
}

static const char *read_op(struct script_run *run, struct script_op *op, const char *kind)
{
	op->op = (struct lk__etcd_op){0};
	if (!strcmp(kind, "get")) {
		op->op.range = &op->range;
		return read_get(run, &op->range);
	}
	if (!strcmp(kind, "put")) {
		op->op.put = &op->put;
		return read_put(run, &op->put);
	}
	if (strcmp(kind, "del") != 0)
		malformed(run);
	op->op.del = &op->del;
	return read_del(run, &op->del);
}

/* ---- Steps ------------------------------------------------------------------------------------
 */

static int call(struct script_run *run, const char *path, struct lk__bytes *answer)
{
	const char *text = "";
	int status;

	if (run->writer.is_full)
		malformed(run);
	status = run->peer->call(run->peer->arg, path,
	                         (struct lk__bytes){run->writer.data, run->writer.len}, answer,
	                         &text);
	if (status)
		fprintf(run->out, "%d %s\n", status, text);
	return status;
}

static void run_txn(struct script_run *run)
{
	enum { OPS = 8 };
	struct lk__etcd_compare compares[OPS];
	struct script_op ops[2][OPS];
	struct lk__etcd_op lists[2][OPS];
	size_t compare_count = 0, counts[2] = {0, 0};
	int part = 0;
	const char *word = next(run);
	struct lk__etcd_txn txn;
	struct lk__bytes answer;

	while (word) {
		if (!strcmp(word, "if"))
			part = -1;
		else if (!strcmp(word, "then") || !strcmp(word, "else"))
			part = !strcmp(word, "else");
		else if (strcmp(word, ";") != 0)
			malformed(run);
		word = must(run);
		if (part < 0) {
			word = read_compare(run, &compares[compare_count++ % OPS], word);
		} else {
			struct script_op *op = &ops[part][counts[part]++ % OPS];
			word = read_op(run, op, word);
		}
	}
	for (int i = 0; i < 2; i++)
		for (size_t k = 0; k < counts[i]; k++)
			lists[i][k] = ops[i][k].op;
	txn = (struct lk__etcd_txn){compares,  compare_count, lists[0],
	                            counts[0], lists[1],      counts[1]};
	lk__etcd_put_txn(&run->writer, &txn);
	if (!call(run, KV "Txn", &answer))
		script_show_txn(run, answer);
}

/* A Txn of that many Puts. */
static void run_fill(struct script_run *run)
{
	size_t count = (size_t)atoi(must(run));
	char(*names)[8] = calloc(count + 1, sizeof(*names));
	struct lk__etcd_put *puts = calloc(count + 1, sizeof(*puts));
	struct lk__etcd_op *ops = calloc(count + 1, sizeof(*ops));
	struct lk__etcd_txn txn = {.success = ops, .success_count = count};
	struct lk__bytes answer;

	if (!names || !puts || !ops)
		abort();
	for (size_t i = 0; i < count; i++) {
		snprintf(names[i], sizeof(names[i]), "f%03zu", i % 1000);
		puts[i].key = lk__bytes_of(names[i]);
		ops[i].put = &puts[i];
	}
	lk__etcd_put_txn(&run->writer, &txn);
	if (!call(run, KV "Txn", &answer))
		script_show_txn(run, answer);
	free(names);
	free(puts);
	free(ops);
}

static void run_kv(struct script_run *run, const char *verb)
{
	struct script_op op;
	struct lk__bytes answer;

	if (read_op(run, &op, verb))
		malformed(run);
	if (op.op.range)
		lk__etcd_put_range(&run->writer, &op.range);
	else if (op.op.put)
		lk__etcd_put_put(&run->writer, &op.put);
	else
		lk__etcd_put_delete(&run->writer, &op.del);
	if (call(run, op.op.range ? KV "Range" : op.op.put ? KV "Put" : KV "DeleteRange", &answer))
		return;
	if (op.op.range)
		script_show_range(run, answer);
	else if (op.op.put)
		script_show_put(run, answer);
	else
		script_show_delete(run, answer);
}

/* An answer that is a header alone. */
static void run_compact(struct script_run *run)
{
	struct lk__bytes answer;

	lk__pb_put_number(&run->writer, 1, (uint64_t)revision_of(run, must(run)));
	if (!call(run, KV "Compact", &answer))
		script_show_header(run, answer);
}

static void run_lease(struct script_run *run, const char *verb)
{
	int64_t id = lease_of(run, must(run));
	struct lk__bytes answer;
	const char *text;
	int status;

	if (!strcmp(verb, "grant")) {
		struct lk__etcd_lease_grant grant = {.ttl_s = atoll(must(run)), .id = id};
		lk__etcd_put_lease_grant(&run->writer, &grant);
		if (!call(run, LEASE "LeaseGrant", &answer))
			script_show_grant(run, answer);
	} else if (!strcmp(verb, "revoke")) {
		lk__etcd_put_lease_revoke(&run->writer, id);
		if (!call(run, LEASE "LeaseRevoke", &answer))
			script_show_header(run, answer);
	} else {
		lk__etcd_put_keep_alive(&run->writer, id);
		run->peer->send(run->peer->arg, LEASE "LeaseKeepAlive",
		                (struct lk__bytes){run->writer.data, run->writer.len});
		status = run->peer->receive(run->peer->arg, LEASE "LeaseKeepAlive", &answer, &text);
		if (status >= 0)
			fprintf(run->out, "end %d %s\n", status, text);
		else
			script_show_keep_alive(run, answer);
	}
}

static void run_watch(struct script_run *run, const char *verb)
{
	struct lk__etcd_watch_create create = {.watch_id = atoll(must(run))};
	const char *word, *value;

	if (!strcmp(verb, "unwatch")) {
		lk__etcd_put_watch_cancel(&run->writer, create.watch_id);
	} else {
		split_range(must(run), &create.key, &create.range_end);
		while ((word = next(run))) {
			if ((value = value_of(word, "rev")))
				create.start_revision = revision_of(run, value);
			else if (!strcmp(word, "no_put"))
				create.no_put = true;
			else if (!strcmp(word, "no_delete"))
				create.no_delete = true;
			else if (!strcmp(word, "prev"))
				create.prev_kv = true;
			else
				malformed(run);
		}
		lk__etcd_put_watch_create(&run->writer, &create);
	}
	run->peer->send(run->peer->arg, WATCH,
	                (struct lk__bytes){run->writer.data, run->writer.len});
}

static void run_time_to_live(struct script_run *run)
{
	struct lk__bytes answer;

	lk__pb_put_number(&run->writer, 1, (uint64_t)lease_of(run, must(run)));
	lk__pb_put_number(&run->writer, 2, true);
	if (!call(run, LEASE "LeaseTimeToLive", &answer))
		script_show_time_to_live(run, answer);
}

static void run_alarm(struct script_run *run, const char *verb)
{
	enum { ACTIVATE = 1, DEACTIVATE };
	struct lk__bytes answer;

	if (strcmp(verb, "alarms") != 0) {
		lk__pb_put_number(&run->writer, 1, !strcmp(verb, "full") ? ACTIVATE : DEACTIVATE);
		lk__pb_put_number(&run->writer, 3, LK__ETCD_ALARM_NOSPACE);
	}
	if (!call(run, "/etcdserverpb.Maintenance/Alarm", &answer))
		script_show_alarms(run, answer);
}

static void run_user(struct script_run *run, const char *verb)
{
	struct lk__etcd_authenticate user = {.name = text_of(must(run))};
	struct lk__etcd_authenticate_answer answer;
	struct lk__bytes bytes;

	if (!strcmp(verb, "token")) {
		run->peer->set_token(run->peer->arg, user.name);
		fputs("set\n", run->out);
		return;
	}
	user.password = text_of(must(run));
	lk__etcd_put_authenticate(&run->writer, &user);
	if (call(run, "/etcdserverpb.Auth/Authenticate", &bytes))
		return;
	if (lk__pb_read(&lk__etcd_authenticate_shape, bytes.data, bytes.len, &answer))
		run->peer->set_token(run->peer->arg, answer.token);
	fputs(answer.token.len ? "token\n" : "no token\n", run->out);
}

/* The revision of a read is where the script begins. */
static void run_base(struct script_run *run)
{
	struct lk__etcd_range range = {.key = text_of(must(run))};
	struct lk__etcd_range_answer answer;
	struct lk__bytes bytes;

	lk__etcd_put_range(&run->writer, &range);
	if (call(run, KV "Range", &bytes) ||
	    !lk__pb_read(&lk__etcd_range_shape, bytes.data, bytes.len, &answer))
		return;
	run->base = answer.header.revision;
	run->first_lease = run->base * 10;
	fputs("set\n", run->out);
}

static void run_status(struct script_run *run)
{
	struct lk__bytes answer;
	const char *text;

	fprintf(run->out, "%d\n",
	        run->peer->call(run->peer->arg, must(run), (struct lk__bytes){"", 0}, &answer,
	                        &text));
}

static int by_text(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

/* The server serves its watches in any order. */
static void run_receive(struct script_run *run)
{
	enum { ANSWERS = 16 };
	char *texts[ANSWERS];
	size_t count = (size_t)atoi(must(run)), len;

	if (count > ANSWERS)
		malformed(run);
	fputc('\n', run->out);
	for (size_t i = 0; i < count; i++) {
		FILE *out = run->out;
		struct lk__bytes message;
		const char *text = "";
		int status = run->peer->receive(run->peer->arg, WATCH, &message, &text);
		run->out = open_memstream(&texts[i], &len);
		if (!run->out)
			abort();
		if (status < 0)
			script_show_watch(run, message);
		else
			fprintf(run->out, "  end %d %s\n", status, text);
		fclose(run->out);
		run->out = out;
	}
	qsort(texts, count, sizeof(*texts), by_text);
	for (size_t i = 0; i < count; i++) {
		fputs(texts[i], run->out);
		free(texts[i]);
	}
}

static bool run_other(struct script_run *run, const char *verb)
{
	if (!strcmp(verb, "ttl"))
		run_time_to_live(run);
	else if (!strcmp(verb, "full") || !strcmp(verb, "not_full") || !strcmp(verb, "alarms"))
		run_alarm(run, verb);
	else if (!strcmp(verb, "login") || !strcmp(verb, "token"))
		run_user(run, verb);
	else if (!strcmp(verb, "base"))
		run_base(run);
	else if (!strcmp(verb, "status"))
		run_status(run);
	else
		return false;
	return true;
}

static void run_line(struct script_run *run, const char *line)
{
	char *copy = strdup(line);
	const char *verb;

	if (!copy)
		abort();
	run->line = line;
	run->rest = copy;
	lk__pb_writer_init(&run->writer, run->bytes, sizeof(run->bytes));
	verb = must(run);
	if (!strcmp(verb, "txn"))
		run_txn(run);
	else if (!strcmp(verb, "fill"))
		run_fill(run);
	else if (!strcmp(verb, "compact"))
		run_compact(run);
	else if (!strcmp(verb, "grant") || !strcmp(verb, "revoke") || !strcmp(verb, "alive"))
		run_lease(run, verb);
	else if (!strcmp(verb, "watch") || !strcmp(verb, "unwatch"))
		run_watch(run, verb);
	else if (!strcmp(verb, "receive"))
		run_receive(run);
	else if (!run_other(run, verb))
		run_kv(run, verb);
	free(copy);
}

/* Delete all keys, which leaves one more revision in any case, and begin there. */
static void begin(struct script_run *run)
{
	struct lk__etcd_put put = {.key = lk__bytes_of("x"), .value = lk__bytes_of("x")};
	struct lk__etcd_delete del = {.key = {"", 1}, .range_end = {"", 1}};
	struct lk__etcd_delete_answer deleted;
	struct lk__bytes answer;

	lk__pb_writer_init(&run->writer, run->bytes, sizeof(run->bytes));
	lk__etcd_put_put(&run->writer, &put);
	if (call(run, KV "Put", &answer))
		return;
	lk__pb_writer_init(&run->writer, run->bytes, sizeof(run->bytes));
	lk__etcd_put_delete(&run->writer, &del);
	if (call(run, KV "DeleteRange", &answer) ||
	    !lk__pb_read(&lk__etcd_delete_shape, answer.data, answer.len, &deleted))
		return;
	run->base = deleted.header.revision;
	run->first_lease = run->base * 10;
}

char *etcd_script_run(const struct etcd_peer *peer, const char *const *lines)
{
	static struct script_run run;
	char *text = NULL;
	size_t len;

	run = (struct script_run){.peer = peer, .out = open_memstream(&text, &len)};
	if (!run.out)
		abort();
	if (strcmp(lines[0], "as_is") != 0)
		begin(&run);
	else
		lines++;
	for (int i = 0; lines[i]; i++) {
		fprintf(run.out, "%s: ", lines[i]);
		run_line(&run, lines[i]);
		if (!strncmp(lines[i], "watch ", 6) || !strncmp(lines[i], "unwatch ", 8))
			fputs("sent\n", run.out);
	}
	fclose(run.out);
	return text;
}
