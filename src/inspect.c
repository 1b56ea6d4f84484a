/* SPDX-License-Identifier: MIT
 * Looking at locks and breaking them: who holds, who waits, which names there are. */
#include "client.h"

#include "redis/dial.h"
#include "scripts.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITERS_MAX 1000
#define BREAK_TRIES 8
#define SCAN_COUNT "500"
#define PARTY_FIELDS 6

/* ---- Calls -------------------------------------------------------------------------------- */

/* Run calls whose bytes are ready, within one command timeout.  LK_OK when each has a reply. */
static lk_err run(struct lk_client *client, struct lk__call *calls, size_t count)
{
	int64_t deadline_ns = lk__now_ns() + client->target.command_timeout_ns;
	struct lk__why why = {0};

	if (client->core.closing)
		lk__why_set(&why, LK_ECLOSED, "the client was closed");
	for (size_t i = 0; i < count; i++) {
		if (why.err)
			lk__buf_fini(&calls[i].bytes);
		else
			lk__wire_call(client, &calls[i]);
	}
	if (why.err)
		return lk__fail(&why);
	for (size_t i = 0; i < count; i++) {
		if (!calls[i].done)
			lk__wire_await(client, &calls[i], why.err ? 0 : deadline_ns);
		if (!calls[i].resp && !why.err)
			why = calls[i].why;
	}
	return why.err ? lk__fail(&why) : LK_OK;
}

/* One command; *resp is the caller's.  Error replies are failures. */
static lk_err run_one(struct lk_client *client, struct lk__buf *buf, bool whole,
                      struct lk__resp **resp)
{
	struct lk__call call = {.bytes = *buf};
	lk_err err;

	if (!whole) {
		lk__buf_fini(buf);
		return lk__failf(LK_ENOMEM, "out of memory");
	}
	if ((err = run(client, &call, 1)))
		return err;
	*resp = call.resp;
	if (call.resp->type != LK__RESP_ERROR)
		return LK_OK;
	lk__conn_why(&call.why, lk__resp_error(call.resp), client->target.text, "%s",
	             call.resp->str);
	err = lk__fail(&call.why);
	lk__resp_free(call.resp);
	return err;
}

static bool is_string(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_STRING;
}

/* ---- Parties ------------------------------------------------------------------------------ */

static void escape_field(char *out, size_t size, const struct lk__resp *resp)
{
	if (is_string(resp))
		lk__escape(out, size, resp->str, resp->len);
}

/* 1:client:nonce:...: the middle is the party's id, the client the owner of its description. */
static bool party_id(const struct lk__resp *ticket, lk_party *party)
{
	const size_t len = LK__CLIENT_ID_SIZE + LK__NONCE_SIZE - 1;

	if (!is_string(ticket) || ticket->len < 2 + len || memcmp(ticket->str, "1:", 2))
		return false;
	memset(party, 0, sizeof(*party));
	lk__escape(party->id, sizeof(party->id), ticket->str + 2, len);
	return true;
}

static bool describe_command(struct lk__buf *buf, const struct lk_lock *lock, const lk_party *party)
{
	char id[LK__CLIENT_ID_SIZE], key[LK__CHANNEL_MAX], label[LK__KEY_MAX] = "label:";
	const char *argv[2 + PARTY_FIELDS] = {"HMGET",   key,   "host", "user",
	                                      "program", "pid", label,  "label"};

	snprintf(id, sizeof(id), "%.22s", party->id);
	lk__space_client_key(&lock->client->space, id, key);
	lk__name_encode(label + 6, lock->place->name->bytes, lock->place->name->len);
	return lk__resp_command(buf, 2 + PARTY_FIELDS, argv, NULL);
}

static void describe(lk_party *party, const struct lk__resp *resp)
{
	if (resp->type != LK__RESP_ARRAY || resp->len != PARTY_FIELDS)
		return;
	escape_field(party->host, sizeof(party->host), resp->elements[0]);
	escape_field(party->user, sizeof(party->user), resp->elements[1]);
	escape_field(party->program, sizeof(party->program), resp->elements[2]);
	if (is_string(resp->elements[3]))
		lk__parse_i64(resp->elements[3]->str, resp->elements[3]->len, 0, INT64_MAX,
		              &party->pid);
	escape_field(party->label, sizeof(party->label), resp->elements[5]);
	escape_field(party->label, sizeof(party->label), resp->elements[4]);
}

/* Fill in who they are; what nobody told stays empty. */
static lk_err describe_all(struct lk_lock *lock, lk_party *parties, size_t count)
{
	struct lk__call *calls = calloc(count ? count : 1, sizeof(*calls));
	lk_err err = LK_OK;
	size_t made = 0;

	if (!calls)
		return lk__failf(LK_ENOMEM, "out of memory");
	while (made < count && describe_command(&calls[made].bytes, lock, &parties[made]))
		made++;
	if (made < count) {
		for (size_t i = 0; i < made; i++)
			lk__buf_fini(&calls[i].bytes);
		made = 0;
		err = lk__failf(LK_ENOMEM, "out of memory");
	} else {
		err = run(lock->client, calls, count);
	}
	for (size_t i = 0; i < made; i++) {
		if (calls[i].resp && !err)
			describe(&parties[i], calls[i].resp);
		lk__resp_free(calls[i].resp);
	}
	free(calls);
	return err;
}

/* ---- Query -------------------------------------------------------------------------------- */

/* The ticket of this client that waits for the lock, "" if none. */
static void my_ticket(const struct lk_lock *lock, char text[LK__TICKET_MAX])
{
	const struct lk__place *place = lock->place->name->places;

	text[0] = '\0';
	for (; place; place = place->next)
		if (place->ticket && place->ticket->state == LK__WAITING)
			lk__ticket_text(&lock->client->space, place->ticket, text);
}

/* Run lock_show; on LK_OK *resp is an array of 6 or more of the right types. */
static lk_err show(struct lk_lock *lock, size_t waiters, struct lk__resp **resp)
{
	char key[LK__KEY_MAX], queue[LK__KEY_MAX], ticket[LK__TICKET_MAX], count[24];
	const struct lk__name *name = lock->place->name;
	const char *args[4] = {key, queue, ticket, count};
	struct lk__buf buf = {0};
	struct lk__why why = {0};
	bool right;
	lk_err err;

	lk__space_key(&lock->client->space, name->bytes, name->len, "", key);
	lk__space_key(&lock->client->space, name->bytes, name->len, ":q", queue);
	my_ticket(lock, ticket);
	snprintf(count, sizeof(count), "%zu", waiters);
	if ((err = run_one(lock->client, &buf,
	                   lk__codec_eval(&buf, &lk__script_lock_show, 4, args, NULL), resp)))
		return err;
	if (lk__codec_foreign(*resp, &why)) {
		lk__resp_free(*resp);
		return lk__fail(&why);
	}
	right = (*resp)->type == LK__RESP_ARRAY && (*resp)->len >= 6 &&
	        is_string((*resp)->elements[0]) && is_string((*resp)->elements[1]) &&
	        (*resp)->elements[2]->type == LK__RESP_INTEGER && is_string((*resp)->elements[3]) &&
	        (*resp)->elements[4]->type == LK__RESP_INTEGER &&
	        (*resp)->elements[5]->type == LK__RESP_INTEGER;
	if (right)
		return LK_OK;
	lk__resp_free(*resp);
	return lk__failf(LK_ESERVER, "%s: answered a script with something else",
	                 lock->client->target.text);
}

static lk_err query(struct lk_lock *lock, lk_lock_status *status)
{
	struct lk__resp *resp;
	int64_t fence = 0, now_us = 0;
	lk_err err = show(lock, 0, &resp);

	if (err)
		return err;
	memset(status, 0, sizeof(*status));
	status->held = party_id(resp->elements[0], &status->holder);
	status->queue_len = resp->elements[4]->integer;
	status->my_rank = resp->elements[5]->integer;
	if (status->held) {
		lk__parse_i64(resp->elements[1]->str, resp->elements[1]->len, 0, INT64_MAX, &fence);
		lk__parse_i64(resp->elements[3]->str, resp->elements[3]->len, 0, INT64_MAX,
		              &now_us);
		status->fence = (uint64_t)fence;
		/* A fence is the microsecond of its grant, or a little more. */
		status->held_ms = now_us > fence ? (now_us - fence) / 1000 : 0;
		status->lease_left_ms =
			resp->elements[2]->integer > 0 ? resp->elements[2]->integer : 0;
	}
	lk__resp_free(resp);
	return status->held ? describe_all(lock, &status->holder, 1) : LK_OK;
}

lk_err lk_lock_query(lk_lock *lock, lk_lock_status *result)
{
	lk_lock_status status;
	lk_err err = lk__lock_enter(lock);

	if (err)
		return err;
	err = query(lock, &status);
	lk__lock_leave(lock);
	if (!err)
		*result = status;
	return err;
}

lk_err lk_lock_waiters(lk_lock *lock, size_t max, lk_party *waiters, size_t *count)
{
	struct lk__resp *resp;
	size_t found = 0;
	lk_err err;

	if (max > WAITERS_MAX)
		max = WAITERS_MAX;
	if ((err = lk__lock_enter(lock)))
		return err;
	err = show(lock, max, &resp);
	if (!err) {
		for (size_t i = 6; i < resp->len && found < max; i++)
			found += party_id(resp->elements[i], &waiters[found]);
		lk__resp_free(resp);
		err = describe_all(lock, waiters, found);
	}
	lk__lock_leave(lock);
	if (!err)
		*count = found;
	return err;
}

/* ---- Break -------------------------------------------------------------------------------- */

/* End that ticket's hold.  *broke tells whether it was the holder's still. */
static lk_err end_hold(struct lk_lock *lock, const char *ticket, bool *broke)
{
	char key[LK__KEY_MAX], queue[LK__KEY_MAX], fence[48];
	const struct lk__space *space = &lock->client->space;
	const struct lk__name *name = lock->place->name;
	const char *args[7] = {key, queue, fence, ticket, "0", space->channels, "1"};
	struct lk__answer answer = {0};
	struct lk__why why = {0};
	*broke = false;

	lk__space_key(space, name->bytes, name->len, "", key);
	lk__space_key(space, name->bytes, name->len, ":q", queue);
	snprintf(fence, sizeof(fence), "%s:fence", space->prefix);
	do {
		struct lk__buf buf = {0};
		struct lk__resp *resp;
		lk_err err =
			run_one(lock->client, &buf,
		                lk__codec_eval(&buf, &lk__script_lock_leave, 7, args, NULL), &resp);
		if (err)
			return *broke ? LK_OK : err;
		lk__codec_answer(resp, lock->client->target.text, &answer, &why);
		lk__resp_free(resp);
		if (answer.kind != LK__LEFT)
			return lk__fail(&why);
		*broke = *broke || answer.mine;
		args[3] = "";
	} while (answer.more);
	return LK_OK;
}

static lk_err break_hold(struct lk_lock *lock, const char *if_holder)
{
	for (int i = 0; i < BREAK_TRIES; i++) {
		struct lk__resp *resp;
		lk_party holder;
		bool broke = false;
		lk_err err = show(lock, 0, &resp);

		if (err)
			return err;
		if (!party_id(resp->elements[0], &holder))
			err = lk__failf(LK_ENOTHELD, "nobody holds it");
		else if (if_holder && strcmp(if_holder, holder.id))
			err = lk__failf(LK_EMISMATCH, "held by %s", holder.id);
		else
			err = end_hold(lock, resp->elements[0]->str, &broke);
		lk__resp_free(resp);
		if (err || broke)
			return err;
	}
	return lk__failf(LK_EMISMATCH, "its holder changed %d times meanwhile", BREAK_TRIES);
}

lk_err lk_lock_break(lk_lock *lock, const char *if_holder)
{
	lk_err err = lk__lock_enter(lock);

	if (err)
		return err;
	err = break_hold(lock, if_holder);
	lk__lock_leave(lock);
	return err;
}

/* ---- List --------------------------------------------------------------------------------- */

struct entry {
	size_t len;
	char bytes[];
};

struct names {
	struct entry **list;
	size_t count, cap;
};

static int compare(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
	int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

	return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* prefix:{name} or prefix:{name}:q; other keys are passed over. */
static bool add_key(struct names *names, const struct lk__space *space, const struct lk__resp *key)
{
	size_t head = strlen(space->prefix) + 2;
	struct entry *entry;
	const char *end;

	if (!is_string(key) || key->len < head + 2 || !(end = memchr(key->str, '}', key->len)) ||
	    (size_t)(end - key->str) < head)
		return true;
	if (strcmp(end + 1, "") != 0 && strcmp(end + 1, ":q") != 0)
		return true;
	if (names->count == names->cap) {
		size_t cap = names->cap ? names->cap * 2 : 64;
		struct entry **list = realloc(names->list, cap * sizeof(*list));
		if (!list)
			return false;
		names->list = list;
		names->cap = cap;
	}
	entry = malloc(sizeof(*entry) + key->len + 1);
	if (!entry)
		return false;
	if (!lk__name_decode(entry->bytes, &entry->len, key->str + head,
	                     (size_t)(end - key->str) - head)) {
		free(entry);
		return true;
	}
	names->list[names->count++] = entry;
	return true;
}

static lk_err scan(struct lk_client *client, struct names *names)
{
	char cursor[32] = "0", pattern[48];
	const char *argv[6] = {"SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT};

	snprintf(pattern, sizeof(pattern), "%s:{*}*", client->space.prefix);
	do {
		struct lk__buf buf = {0};
		struct lk__resp *resp;
		const struct lk__resp *keys;
		lk_err err = run_one(client, &buf, lk__resp_command(&buf, 6, argv, NULL), &resp);

		if (err)
			return err;
		if (resp->type != LK__RESP_ARRAY || resp->len != 2 ||
		    !is_string(resp->elements[0]) || resp->elements[1]->type != LK__RESP_ARRAY) {
			lk__resp_free(resp);
			return lk__failf(LK_ESERVER, "%s: answered SCAN with something else",
			                 client->target.text);
		}
		keys = resp->elements[1];
		for (size_t i = 0; i < keys->len && !err; i++)
			if (!add_key(names, &client->space, keys->elements[i]))
				err = lk__failf(LK_ENOMEM, "out of memory");
		snprintf(cursor, sizeof(cursor), "%s", resp->elements[0]->str);
		lk__resp_free(resp);
		if (err)
			return err;
	} while (strcmp(cursor, "0") != 0);
	return LK_OK;
}

lk_err lk_client_list(lk_client *client, lk_name_fn *fn, void *arg)
{
	struct names names = {0};
	bool go_on = true;
	lk_err err = lk__client_enter(client);

	if (err)
		return err;
	err = scan(client, &names);
	lk__client_leave(client);
	if (!err && names.count)
		qsort(names.list, names.count, sizeof(*names.list), compare);
	for (size_t i = 0; i < names.count; i++) {
		struct entry *entry = names.list[i];
		if (!err && go_on && (i == 0 || compare(&names.list[i - 1], &names.list[i]) != 0))
			go_on = fn(arg, entry->bytes, entry->len);
	}
	for (size_t i = 0; i < names.count; i++)
		free(names.list[i]);
	free(names.list);
	return err;
}
