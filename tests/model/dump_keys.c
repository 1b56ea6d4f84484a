/* SPDX-License-Identifier: MIT
 * The store's part of a state's canonical form. */
#include "dump.h"

#include <stdlib.h>
#include <string.h>

#define ID_LEN 22

/* Digits that are a moment or a fence: shorter ones are a count or a duration. */
static size_t long_number(const char *text, size_t len, uint64_t *value)
{
	size_t digits = 0;

	*value = 0;
	for (; digits < len && text[digits] >= '0' && text[digits] <= '9'; digits++)
		*value = *value * 10 + (uint64_t)(text[digits] - '0');
	return digits == 16 ? digits : 0;
}

/* Text with the names replaced by their numbers here. */
static void put_text(struct form *form, const char *text, size_t len)
{
	static const char id[] = "client_AAAAAAAAAAAAAA";
	uint64_t value;
	size_t digits;

	form_put(form, (int64_t)len);
	for (size_t i = 0; i < len; i++) {
		int client = text[i] - 'a';
		if (client >= 0 && client < MODEL_CLIENTS && len - i >= ID_LEN &&
		    !memcmp(text + i + 1, id, ID_LEN - 1)) {
			form_put(form, 1 + form->place[client]);
			i += ID_LEN - 1;
			if (len - i > NONCE_LEN + 1 && text[i + 1] == ':') {
				form_put_nonce(form, client, text + i + 2);
				i += NONCE_LEN + 1;
			}
		} else if ((digits = long_number(text + i, len - i, &value))) {
			form_put_number(form, FENCES, value);
			i += digits - 1;
		} else {
			form_put(form, text[i]);
		}
	}
}

struct reader {
	const char *at;
};

static void take(struct reader *reader, void *bytes, size_t size)
{
	memcpy(bytes, reader->at, size);
	reader->at += size;
}

static const char *take_text(struct reader *reader, uint32_t *len)
{
	const char *text;

	take(reader, len, sizeof(*len));
	text = reader->at;
	reader->at += *len;
	return text;
}

static bool is_moment(const char *field, uint32_t len)
{
	return len > 3 && !memcmp(field + len - 3, "_us", 3);
}

static void put_field(struct form *form, struct reader *reader, int64_t now_us)
{
	uint32_t field_len, len;
	const char *field = take_text(reader, &field_len), *value = take_text(reader, &len);
	uint64_t at_us;

	put_text(form, field, field_len);
	if (!is_moment(field, field_len))
		put_text(form, value, len);
	else if (long_number(value, len, &at_us))
		form_put(form, (now_us - (int64_t)at_us + 500) / 1000 / MODEL_TICK_MS);
	else
		form_put(form, 255);
}

/* The fields of a hash in an order that is independent of the clients' names. */
static void put_fields(struct form *form, struct reader *reader, uint32_t count, int64_t now_us)
{
	struct reader fields[64];
	uint8_t order[64];

	if (count > 64)
		abort();
	for (uint32_t i = 0; i < count; i++) {
		uint32_t len;
		fields[i] = *reader;
		order[i] = (uint8_t)i;
		take_text(reader, &len);
		take_text(reader, &len);
	}
	/* By the client's index if a field names one; the others are in order already. */
	for (int queue = -1; queue < MODEL_CLIENTS; queue++) {
		for (uint32_t i = 0; i < count; i++) {
			const char *name = fields[order[i]].at + sizeof(uint32_t);
			bool names = name[1] == ':' && name[2] >= 'a' && name[2] < 'a' + 3 &&
			             (name[0] == '2' || name[0] == 'c');
			if ((names ? form->place[name[2] - 'a'] : -1) == queue) {
				struct reader one = fields[order[i]];
				put_field(form, &one, now_us);
			}
		}
	}
}

static void put_members(struct form *form, struct reader *reader, uint32_t count, int64_t now_us,
                        bool ends)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *member;
		uint32_t len;
		int64_t at_us;
		double score;
		take(reader, &score, sizeof(score));
		member = take_text(reader, &len);
		at_us = (int64_t)score;
		if (ends) {
			form_put_wide(form, (at_us - now_us) / 10000);
		} else {
			form_put_number(form, ARRIVALS, (uint64_t)at_us);
			form_put(form,
			         form_least((now_us - at_us + 500) / 1000, 6000) / MODEL_TICK_MS);
		}
		put_text(form, member, len);
	}
}

static bool is_marker(const char *name, uint32_t len)
{
	return len == strlen(MODEL_MARKER) && !memcmp(name, MODEL_MARKER, len);
}

void form_put_keys(struct form *form)
{
	const struct lua_store *store = form->server->store;
	int64_t now_us = lua_store_time(store);
	struct lk__buf dump = {0};
	struct reader reader;
	const char *end;

	lua_store_dump(store, &dump);
	reader.at = dump.data;
	end = dump.data + dump.len;
	while (reader.at < end) {
		const char *name, *text;
		int64_t expires_ms;
		uint32_t len, count;
		uint8_t type;
		take(&reader, &type, sizeof(type));
		take(&reader, &expires_ms, sizeof(expires_ms));
		name = take_text(&reader, &len);
		if (form->world->bounds->servers && is_marker(name, len)) {
			take_text(&reader, &len);
			continue; /* see form_put_member() */
		}
		form_put(form, name[len - 1]);
		form_put(form, type);
		form_put_wide(form, expires_ms < 0
		                            ? 0xffff
		                            : form_least(expires_ms - now_us / 1000, FAR_MS) / 10);
		if (type == 0) {
			text = take_text(&reader, &len);
			put_text(form, text, len);
			if (name[len - 1] == 'h')
				form_put_marker(form, store_marker(store, MODEL_MARKER));
			continue;
		}
		take(&reader, &count, sizeof(count));
		form_put(form, count);
		if (type == 1)
			put_fields(form, &reader, count, now_us);
		else
			put_members(form, &reader, count, now_us, name[len - 1] == 'h');
	}
	lk__buf_fini(&dump);
}
