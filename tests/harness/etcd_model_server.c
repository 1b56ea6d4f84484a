/* SPDX-License-Identifier: MIT
 * What the model of etcd tells about the server, and its users: see etcd_model.h.  There is one
 * user; its rights lack the keys of em_deny(). */
#include "etcd_model_parts.h"

#include <stdio.h>
#include <string.h>

/* ---- The server -------------------------------------------------------------------------------
 */

enum em_error em_serve_status(struct etcd_model *model, int member, struct lk__bytes message,
                              struct lk__pb_writer *writer)
{
	const struct em_member *self = &model->members[member];
	int64_t size = (int64_t)(20480 + model->store.bytes.count +
	                         model->store.records.count * sizeof(struct em_record));

	(void)message;
	em_write_header(model, writer, member, self->applied_revision);
	lk__pb_put_bytes(writer, 2, lk__bytes_of(model->setup.version));
	lk__pb_put_number(writer, 3, (uint64_t)size);
	lk__pb_put_number(writer, 4, (uint64_t)(self->leader + 1));
	lk__pb_put_number(writer, 5, self->applied_index);
	lk__pb_put_number(writer, 6, self->term);
	lk__pb_put_number(writer, 7, self->applied_index);
	if (self->leader < 0)
		lk__pb_put_bytes(writer, 8, lk__bytes_of("etcdserver: no leader"));
	if (model->is_full)
		lk__pb_put_bytes(writer, 8, lk__bytes_of("memberID:1 alarm:NOSPACE "));
	lk__pb_put_number(writer, 9, (uint64_t)size);
	return EM_OK;
}

enum em_error em_serve_members(struct etcd_model *model, int member, struct lk__bytes message,
                               struct lk__pb_writer *writer)
{
	(void)message;
	em_write_header(model, writer, member, 0);
	for (int i = 0; i < model->setup.members; i++) {
		char text[64];
		size_t begun = lk__pb_begin(writer, 2);
		lk__pb_put_number(writer, 1, (uint64_t)i + 1);
		snprintf(text, sizeof(text), "m%d", i);
		lk__pb_put_bytes(writer, 2, lk__bytes_of(text));
		snprintf(text, sizeof(text), "http://m%d:2380", i);
		lk__pb_put_bytes(writer, 3, lk__bytes_of(text));
		snprintf(text, sizeof(text), "http://m%d:2379", i);
		lk__pb_put_bytes(writer, 4, lk__bytes_of(text));
		lk__pb_end(writer, begun);
	}
	return EM_OK;
}

/* All alarms, or raise and clear NOSPACE. */
enum em_error em_serve_alarm(struct etcd_model *model, int member, struct lk__bytes message,
                             struct lk__pb_writer *writer)
{
	enum { GET, ACTIVATE, DEACTIVATE };
	struct em_alarm_request request;
	bool was_full = model->is_full;

	if (!em_read(&em_alarm_shape, message, &request))
		return EM_EMALFORMED;
	if (request.action != GET && request.type == LK__ETCD_ALARM_NOSPACE)
		model->is_full = request.action == ACTIVATE;
	em_write_header(model, writer, member, model->store.revision);
	if (request.action == DEACTIVATE ? was_full && !model->is_full : model->is_full) {
		size_t begun = lk__pb_begin(writer, 2);
		lk__pb_put_number(writer, 1, request.member_id ? request.member_id : 1);
		lk__pb_put_number(writer, 2, LK__ETCD_ALARM_NOSPACE);
		lk__pb_end(writer, begun);
	}
	return EM_OK;
}

/* ---- Users ------------------------------------------------------------------------------------
 */

bool em_token_is_valid(struct etcd_model *model, const char *text)
{
	for (int i = 0; i < EM_TOKENS_MAX; i++) {
		struct em_token *token = &model->tokens[i];
		if (!*text || strcmp(token->text, text) != 0 || token->ends_ns <= model->now_ns)
			continue;
		token->ends_ns = model->now_ns + model->setup.token_ttl_ms * EM_MS;
		return true;
	}
	return false;
}

enum em_error em_serve_authenticate(struct etcd_model *model, int member, struct lk__bytes message,
                                    struct lk__pb_writer *writer)
{
	struct lk__etcd_authenticate request;
	struct em_token *token;

	if (!em_read(&em_authenticate_shape, message, &request))
		return EM_EMALFORMED;
	if (!model->setup.user)
		return EM_EAUTH_DISABLED;
	if (!lk__bytes_equal(request.name, lk__bytes_of(model->setup.user)) ||
	    !lk__bytes_equal(request.password, lk__bytes_of(model->setup.password)))
		return EM_EAUTH_FAILED;
	token = &model->tokens[model->last_token++ % EM_TOKENS_MAX];
	snprintf(token->text, sizeof(token->text), "token%llx.%llu",
	         (unsigned long long)em_random(model, UINT32_MAX),
	         (unsigned long long)model->last_token);
	token->ends_ns = model->now_ns + model->setup.token_ttl_ms * EM_MS;
	em_write_header(model, writer, member, model->store.revision);
	lk__pb_put_bytes(writer, 2, lk__bytes_of(token->text));
	return EM_OK;
}

void em_expire_tokens(struct etcd_model *model)
{
	memset(model->tokens, 0, sizeof(model->tokens));
}

void em_deny(struct etcd_model *model, const char *prefix)
{
	model->denied = prefix;
}

/* A range may be touched if no key in it is denied. */
bool em_permits(const struct etcd_model *model, struct lk__bytes key, struct lk__bytes end)
{
	struct lk__bytes denied;
	size_t len;

	if (!model->denied)
		return true;
	denied = lk__bytes_of(model->denied);
	len = key.len < denied.len ? key.len : denied.len;
	if (key.len >= denied.len && !memcmp(key.data, denied.data, denied.len))
		return false;
	if (!end.len)
		return true;
	if (end.len == 1 && *(const char *)end.data == '\0')
		return memcmp(key.data, denied.data, len) > 0;
	return em_bytes_order(end, denied) <= 0 || em_bytes_order(key, denied) > 0;
}

void em_set_full(struct etcd_model *model, bool is_full)
{
	model->is_full = is_full;
}
