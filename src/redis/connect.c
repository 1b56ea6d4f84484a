/* SPDX-License-Identifier: MIT
 * Making a client's pair of connections. */
#include "connect.h"

#include "scripts.h"
#include "sentinel.h"

#include <string.h>

static const struct lk__script *const scripts[] = {
	&lk__script_lock_ask,      &lk__script_lock_leave,      &lk__script_lock_renew,
	&lk__script_semaphore_ask, &lk__script_semaphore_leave, &lk__script_semaphore_renew,
	&lk__script_latch_down,    &lk__script_latch_show,      &lk__script_epoch_set,
};
#define SCRIPT_COUNT (sizeof(scripts) / sizeof(*scripts))
/* Of a quorum, which has locks only. */
static const struct lk__script *const quorum_scripts[] = {
	&lk__script_quorum_ask,
	&lk__script_quorum_leave,
	&lk__script_quorum_renew,
	&lk__script_epoch_set,
};
#define QUORUM_SCRIPT_COUNT (sizeof(quorum_scripts) / sizeof(*quorum_scripts))

/* While connecting, no request of a caller has been sent: nothing is ambiguous. */
static lk_err not_yet(lk_err err, struct lk__why *why)
{
	return why->err = err == LK_EUNKNOWN ? LK_ECONN : err;
}

lk_err lk__connect_subscribe(struct lk__conn *conn, const struct lk__space *space,
                             const char *channel, int64_t deadline_ns, int cancel_fd,
                             struct lk__why *why)
{
	const char *argv[] = {space->cluster ? "SSUBSCRIBE" : "SUBSCRIBE", channel};
	struct lk__resp *resp;
	lk_err err = lk__conn_call(conn, deadline_ns, cancel_fd, 2, argv, NULL, &resp, why);

	if (err)
		return not_yet(err, why);
	if (resp->type == LK__RESP_ERROR)
		err = lk__why_about(why, lk__resp_refusal(resp), conn->socket.text, "%s: %s",
		                    argv[0], resp->str);
	else if (resp->type != LK__RESP_ARRAY || resp->len != 3)
		err = lk__why_about(why, LK_ESERVER, conn->socket.text, "unexpected response to %s",
		                    argv[0]);
	lk__resp_free(resp);
	return err;
}

/* The probe's message had no receiver.  Either the message connection leads to another server, or
 * it was lost after it subscribed: any response on it excludes the latter. */
static lk_err judge_silence(struct lk__conn *messages, int64_t deadline_ns, int cancel_fd,
                            struct lk__why *why)
{
	const char *argv[] = {"PING"};
	struct lk__resp *resp;
	lk_err err = lk__conn_call(messages, deadline_ns, cancel_fd, 1, argv, NULL, &resp, why);

	if (err)
		return not_yet(err, why);
	lk__resp_free(resp);
	return lk__why_about(why, LK_ECONN, messages->socket.text,
	                     "its two connections lead to different servers");
}

/* A plain URL leads to a replica: name its master, if the user may ask for it. */
static void blame_replica(const struct lk__resp *refusal, struct lk__conn *conn,
                          int64_t deadline_ns, int cancel_fd, struct lk__why *why)
{
	const char *argv[] = {"ROLE"};
	char master[LK__PLACE_SIZE] = "";
	struct lk__resp *resp = NULL;

	if (lk__conn_call(conn, deadline_ns, cancel_fd, 1, argv, NULL, &resp, NULL) == LK_OK &&
	    resp->type == LK__RESP_ARRAY && resp->len >= 3 &&
	    resp->elements[1]->type == LK__RESP_STRING &&
	    resp->elements[2]->type == LK__RESP_INTEGER)
		lk__place_write(master, sizeof(master), resp->elements[1]->str,
		                (int)resp->elements[2]->integer);
	lk__resp_free(resp);
	lk__resp_blame_replica(refusal, conn->socket.text, master, why);
}

static lk_err judge_probe(const struct lk__resp *resp, const struct lk__conn *conn,
                          struct lk__why *why)
{
	if (resp->type == LK__RESP_ERROR) {
		lk__resp_why(resp, conn->socket.text, why);
		return why->err = lk__resp_refusal(resp);
	}
	if (resp->type != LK__RESP_INTEGER)
		return lk__why_about(why, LK_ESERVER, conn->socket.text,
		                     "unexpected response to a script");
	return LK_OK;
}

/* Append the scripts, ahead of their first use.  Without the right to load scripts, a client sends
 * their text when it uses them. */
static bool load(struct lk__buf *buf, const struct lk__script *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *argv[] = {"SCRIPT", "LOAD", list[i]->text};
		const size_t lens[] = {6, 4, list[i]->len};
		if (!lk__resp_command(buf, 3, argv, lens))
			return false;
	}
	return true;
}

enum { PROBE, EPOCH, REPLIES };

/* Send the probe and the question for the marker of the server's memory, by their digests, or by
 * their texts and after all the scripts. */
static lk_err send_probe(struct lk__conn *conn, const struct lk__space *space,
                         const struct lk__trial *trial, const struct lk__epoch *known, bool by_text,
                         int64_t deadline_ns, int cancel_fd, struct lk__resp *answers[REPLIES],
                         struct lk__why *why)
{
	const size_t known_count = space->quorum ? QUORUM_SCRIPT_COUNT : SCRIPT_COUNT;
	const size_t loads = by_text ? known_count : 0, count = loads + REPLIES;
	const struct lk__request ask = {.kind = LK__EPOCH,
	                                .by_text = by_text,
	                                .epoch = known,
	                                .marker = trial->marker,
	                                .vouchers = trial->vouchers,
	                                .voucher_count = trial->voucher_count};
	struct lk__resp *resps[SCRIPT_COUNT + REPLIES] = {0};
	const char *args[] = {trial->key, trial->channel};
	struct lk__buf buf = {0};
	lk_err err;

	if (!load(&buf, space->quorum ? quorum_scripts : scripts, loads) ||
	    !lk__codec_eval(&buf, &lk__script_link_probe, by_text, 2, args, NULL) ||
	    !lk__codec_request(&buf, space, &ask)) {
		lk__buf_fini(&buf);
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	}
	err = lk__conn_pipeline(conn, deadline_ns, cancel_fd, &buf, count, resps, why);
	lk__buf_fini(&buf);
	if (err)
		return not_yet(err, why);
	for (size_t i = 0; i < loads; i++)
		lk__resp_free(resps[i]);
	memcpy(answers, resps + loads, sizeof(*answers) * REPLIES);
	return LK_OK;
}

static lk_err judge_epoch(const struct lk__resp *resp, const struct lk__conn *conn,
                          const struct lk__space *space, struct lk__epoch *epoch,
                          struct lk__why *why)
{
	struct lk__why foreign;

	if (resp->type == LK__RESP_ERROR)
		return lk__why_about(why, lk__resp_refusal(resp), conn->socket.text, "%s",
		                     resp->str);
	if (lk__codec_epoch(resp, epoch) && !(epoch->is_partial && space->quorum))
		return LK_OK;
	if (epoch->is_partial && space->quorum)
		return lk__why_about(why, LK_EAUTH, conn->socket.text,
		                     "INFO is refused: a member of a quorum needs it to find out "
		                     "that it has lost its memory (+info)");
	if (lk__codec_is_cluster(resp))
		return lk__why_about(why, LK_ECONN, conn->socket.text, "is a node of a Cluster");
	if (lk__codec_foreign(resp, &foreign))
		return lk__why_about(why, foreign.err, conn->socket.text, "%s", foreign.text);
	return lk__why_about(why, LK_ESERVER, conn->socket.text, "unexpected response to a script");
}

static void free_all(struct lk__resp *answers[REPLIES])
{
	for (int i = 0; i < REPLIES; i++)
		lk__resp_free(answers[i]);
}

/* A server that knows both scripts has most probably all of them from an earlier client: hashing
 * them again would cost it more than the rest of the connection set-up. */
static lk_err send_probes(struct lk__conn *conn, const struct lk__space *space,
                          const struct lk__trial *trial, const struct lk__epoch *known,
                          int64_t deadline_ns, int cancel_fd, struct lk__resp *answers[REPLIES],
                          struct lk__why *why)
{
	lk_err err =
		send_probe(conn, space, trial, known, false, deadline_ns, cancel_fd, answers, why);

	if (err || (!lk__codec_unknown_script(answers[PROBE]) &&
	            !lk__codec_unknown_script(answers[EPOCH])))
		return err;
	free_all(answers);
	return send_probe(conn, space, trial, known, true, deadline_ns, cancel_fd, answers, why);
}

lk_err lk__connect_probe(struct lk__conn *conn, struct lk__conn *messages,
                         const struct lk__space *space, const struct lk__trial *trial,
                         int64_t deadline_ns, int cancel_fd, struct lk__epoch *epoch,
                         bool *is_refused, struct lk__why *why)
{
	struct lk__resp *answers[REPLIES];
	lk_err err = send_probes(conn, space, trial, epoch, deadline_ns, cancel_fd, answers, why);

	*is_refused = false;
	if (err)
		return err;
	*is_refused = lk__resp_is_of_cluster(answers[PROBE]) ||
	              lk__resp_is_of_cluster(answers[EPOCH]) ||
	              lk__codec_is_cluster(answers[EPOCH]);
	err = judge_probe(answers[PROBE], conn, why);
	if (!err && answers[PROBE]->integer < 1 && !*is_refused)
		err = judge_silence(messages, deadline_ns, cancel_fd, why);
	if (!err)
		err = judge_epoch(answers[EPOCH], conn, space, epoch, why);
	if (err == LK_ECONN && trial->is_plain && answers[PROBE]->type == LK__RESP_ERROR)
		blame_replica(answers[PROBE], conn, deadline_ns, cancel_fd, why);
	if (err == LK_ESERVER)
		err = lk__sentinel_blame(conn, deadline_ns, cancel_fd, why);
	free_all(answers);
	return err;
}

/* A sentinel may name a replica for a while.  Most replicas also refuse the probe; some take
 * writes.  Without the right to ROLE, the probe must do. */
static lk_err check_role(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         struct lk__why *why)
{
	const char *argv[] = {"ROLE"};
	struct lk__resp *resp;
	lk_err err = lk__conn_call(conn, deadline_ns, cancel_fd, 1, argv, NULL, &resp, why);

	if (err)
		return not_yet(err, why);
	if (resp->type == LK__RESP_ARRAY && resp->len > 0 &&
	    resp->elements[0]->type == LK__RESP_STRING && strcmp(resp->elements[0]->str, "master"))
		err = lk__why_about(why, LK_ECONN, conn->socket.text, "is a replica");
	lk__resp_free(resp);
	return err;
}

/* A user of a Cluster need not have the right to SUBSCRIBE.  *why: the refusal. */
static bool is_node(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd, struct lk__why *why)
{
	const char *argv[] = {"CLUSTER", "SLOTS"};
	const struct lk__why refusal = *why;
	struct lk__resp *resp = NULL;
	bool is;

	if (lk__conn_call(conn, deadline_ns, cancel_fd, 2, argv, NULL, &resp, NULL))
		return false;
	is = resp->type == LK__RESP_ARRAY;
	if (!is && lk__resp_error(resp) == LK_EAUTH)
		lk__why_set(why, LK_EAUTH, "%s (if it is a node of a Cluster: +cluster|slots)",
		            refusal.text);
	lk__resp_free(resp);
	return is;
}

static lk_err try_out(const struct lk__target *target, struct lk__conn *commands,
                      struct lk__conn *messages, const struct lk__space *space, int64_t deadline_ns,
                      int cancel_fd, struct lk__epoch *epoch, bool *is_cluster, struct lk__why *why)
{
	struct lk__trial trial = {.is_plain = !target->service};
	lk_err err;

	memcpy(trial.channel, space->channel, sizeof(trial.channel));
	lk__space_client_key(space, space->client_id, 0, trial.key);
	err = lk__connect_subscribe(messages, space, trial.channel, deadline_ns, cancel_fd, why);
	if (err == LK_EAUTH)
		*is_cluster = is_node(commands, deadline_ns, cancel_fd, why);
	if (err)
		return err;
	return lk__connect_probe(commands, messages, space, &trial, deadline_ns, cancel_fd, epoch,
	                         is_cluster, why);
}

lk_err lk__connect(const struct lk__target *target, struct lk__tls_shared *tls,
                   const struct lk__space *space, int64_t deadline_ns, int cancel_fd,
                   struct lk__epoch *epoch, struct lk__conn **commands, struct lk__conn **messages,
                   bool *is_cluster, struct lk__why *why)
{
	struct lk__conn *first, *second = NULL;
	struct lk__address address;
	lk_err err = lk__conn_dial(target, tls, deadline_ns, cancel_fd, &first, &address, why);

	*is_cluster = false;
	if (err)
		return err;
	if (target->service)
		err = check_role(first, deadline_ns, cancel_fd, why);
	if (!err)
		err = lk__conn_dial_address(target, tls, &address, deadline_ns, cancel_fd, &second,
		                            why);
	if (!err)
		err = try_out(target, first, second, space, deadline_ns, cancel_fd, epoch,
		              is_cluster, why);
	if (err || *is_cluster) {
		lk__conn_close(first);
		lk__conn_close(second);
		return err;
	}
	*commands = first;
	*messages = second;
	return LK_OK;
}
