/* SPDX-License-Identifier: MIT
 * Parties: who holds or waits, by what each client tells of itself. */
#include "party.h"

#include "question.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTY_FIELDS 6

static bool is_string(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_STRING;
}

static void escape_field(char *out, size_t size, const struct lk__resp *resp)
{
	if (is_string(resp))
		lk__escape(out, size, resp->str, resp->len);
}

bool lk__party_id(const struct lk__resp *ticket, lk_party *party)
{
	const size_t len = LK__CLIENT_ID_SIZE + LK__NONCE_SIZE - 1;

	if (!is_string(ticket) || ticket->len < 2 + len || memcmp(ticket->str, "1:", 2))
		return false;
	memset(party, 0, sizeof(*party));
	lk__escape(party->id, sizeof(party->id), ticket->str + 2, len);
	return true;
}

static bool describe_command(struct lk__buf *buf, const struct lk__handle *handle,
                             const lk_party *party)
{
	char id[LK__CLIENT_ID_SIZE], key[LK__CHANNEL_MAX], label[LK__KEY_MAX] = "label:";
	const char *argv[2 + PARTY_FIELDS] = {"HMGET",   key,   "host", "user",
	                                      "program", "pid", label,  "label"};

	snprintf(id, sizeof(id), "%.22s", party->id);
	lk__space_client_key(&handle->client->space, id, key);
	lk__name_encode(label + 6, handle->name->bytes, handle->name->len);
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

lk_err lk__party_describe(struct lk__handle *handle, lk_party *const *parties, size_t count)
{
	struct lk__call *calls = calloc(count ? count : 1, sizeof(*calls));
	lk_err err = LK_OK;
	size_t made = 0;

	if (!calls)
		return lk__failf(LK_ENOMEM, "out of memory");
	while (made < count && describe_command(&calls[made].bytes, handle, parties[made]))
		made++;
	if (made < count) {
		for (size_t i = 0; i < made; i++)
			lk__buf_fini(&calls[i].bytes);
		made = 0;
		err = lk__failf(LK_ENOMEM, "out of memory");
	} else {
		err = lk__questions(handle->client, calls, count);
	}
	for (size_t i = 0; i < made; i++) {
		if (calls[i].resp && !err)
			describe(parties[i], calls[i].resp);
		lk__resp_free(calls[i].resp);
	}
	free(calls);
	return err;
}
