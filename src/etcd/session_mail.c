/* SPDX-License-Identifier: MIT
 * Letters about permits.  A session that reads a queue and finds that tickets are granted by that
 * notifies them: its own at once, others by the mailboxes of their clients, several in one
 * transaction.  Letters only wake, so one that cannot be put is dropped. */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 16 /* mailboxes in one transaction */

struct lk__etcd_mail {
	struct lk__etcd_mail *next;
	uint32_t call; /* that puts it, 0 = none */
	char client[LK__CLIENT_ID_SIZE];
	struct lk__etcd_letter letter;
};

/* One that can still be added to, or a new one at the end. */
static struct lk__etcd_mail *mail_for(struct lk__etcd_session *session, const char *client)
{
	struct lk__etcd_mail **at = &session->mails;

	while (*at && ((*at)->call || (*at)->letter.count == LK__ETCD_NEXT_MAX ||
	               strcmp((*at)->client, client) != 0))
		at = &(*at)->next;
	if (*at)
		return *at;
	*at = calloc(1, sizeof(**at));
	if (*at) {
		memcpy((*at)->client, client, sizeof((*at)->client));
		(*at)->letter.kind = LK__LETTER_PERMITS;
	}
	return *at;
}

void lk__etcd_mail(struct lk__etcd_session *session, char what,
                   const struct lk__etcd_ticket *ticket, int64_t revision)
{
	struct lk__etcd_mail *mail;

	if (strcmp(ticket->client, session->client) == 0) {
		lk__etcd_notify(session, what, ticket->nonce, ticket->created, revision);
		return;
	}
	mail = ticket->client[0] ? mail_for(session, ticket->client) : NULL;
	if (!mail)
		return;
	mail->letter.what[mail->letter.count] = what;
	mail->letter.next[mail->letter.count++] = *ticket;
}

void lk__etcd_drop_mails(struct lk__etcd_session *session)
{
	while (session->mails) {
		struct lk__etcd_mail *mail = session->mails;
		session->mails = mail->next;
		free(mail);
	}
}

struct batch {
	struct lk__etcd_compare compares[BATCH_MAX];
	struct lk__etcd_put puts[BATCH_MAX];
	struct lk__etcd_range ranges[BATCH_MAX];
	struct lk__etcd_op success[BATCH_MAX], failure[BATCH_MAX];
	struct lk__etcd_mail *mails[BATCH_MAX];
	size_t count;
	char keys[BATCH_MAX][LK__ETCD_OWN_MAX];
	char texts[BATCH_MAX][LK__ETCD_LETTER_MAX];
	char bytes[BATCH_MAX * (3 * LK__ETCD_OWN_MAX + LK__ETCD_LETTER_MAX + 128)];
};

/* A transaction may put a key once. */
static bool has(const struct batch *batch, const char *client)
{
	for (size_t i = 0; i < batch->count; i++)
		if (strcmp(batch->mails[i]->client, client) == 0)
			return true;
	return false;
}

static void add(struct lk__etcd_session *session, struct batch *batch, struct lk__etcd_mail *mail)
{
	size_t i = batch->count++;
	struct lk__bytes key = {
		batch->keys[i],
		lk__etcd_mailbox_key(batch->keys[i], session->prefix, mail->client)};

	batch->mails[i] = mail;
	batch->compares[i] = (struct lk__etcd_compare){
		.result = LK__ETCD_GREATER, .target = LK__ETCD_VERSION, .key = key};
	batch->puts[i] = (struct lk__etcd_put){
		.key = key,
		.value = {batch->texts[i], lk__etcd_letter_write(batch->texts[i], &mail->letter)},
		.ignore_lease = true};
	batch->ranges[i] = (struct lk__etcd_range){.key = key, .count_only = true};
	batch->success[i] = (struct lk__etcd_op){.put = &batch->puts[i]};
	batch->failure[i] = (struct lk__etcd_op){.range = &batch->ranges[i]};
}

/* False: nothing was sent. */
static bool post(struct lk__etcd_session *session, struct batch *batch)
{
	struct lk__etcd_txn txn = {
		.compares = batch->compares, .success = batch->success, .failure = batch->failure};
	struct lk__pb_writer writer;
	struct lk__etcd_call *call;

	batch->count = 0;
	for (struct lk__etcd_mail *mail = session->mails; mail && batch->count < BATCH_MAX;
	     mail = mail->next)
		if (!mail->call && !has(batch, mail->client))
			add(session, batch, mail);
	if (!batch->count)
		return false;
	txn.compare_count = txn.success_count = txn.failure_count = batch->count;
	lk__pb_writer_init(&writer, batch->bytes, sizeof(batch->bytes));
	lk__etcd_put_txn(&writer, &txn);
	call = writer.is_full
	               ? NULL
	               : lk__etcd_call(session, LK__ETCD_FOR_MAIL, LK__ETCD_CALL_TXN, &writer);
	for (size_t i = 0; call && i < batch->count; i++)
		batch->mails[i]->call = call->id;
	return call;
}

void lk__etcd_post_mails(struct lk__etcd_session *session)
{
	const struct lk__etcd_mail *mail = session->mails;
	struct batch *batch;

	while (mail && mail->call)
		mail = mail->next;
	if (!mail) /* none, or all are on their way */
		return;
	batch = session->state == LK__ETCD_DOWN ? NULL : malloc(sizeof(*batch));
	if (!batch) {
		lk__etcd_drop_mails(session);
		return;
	}
	while (post(session, batch))
		;
	free(batch);
}

void lk__etcd_mailed(struct lk__etcd_session *session, const struct lk__etcd_call *call,
                     const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_mail **at = &session->mails;
	struct lk__etcd_txn_answer answer = {0};
	struct lk__etcd_op_answer op;
	bool is_known = !outcome->err &&
	                lk__pb_read(&lk__etcd_txn_shape, outcome->message, outcome->len, &answer);

	while (*at) {
		struct lk__etcd_mail *mail = *at;

		if (mail->call != call->id) {
			at = &mail->next;
		} else if (is_known && !answer.succeeded && lk__pb_next(&answer.responses, &op) &&
		           op.range.count > 0) {
			mail->call = 0; /* another mailbox is gone: again, without that */
			at = &mail->next;
		} else {
			*at = mail->next;
			free(mail);
		}
	}
}
