/* SPDX-License-Identifier: MIT
 * Anything that a server may send: the reader, in pieces of any size, and the conversion of each
 * reply.  In pieces it must find the same as in one, and a length that is only announced must not
 * allocate memory. */
#include "core_world.h"
#include "fuzz.h"
#include "redis/codec.h"
#include "redis/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX (INT64_C(1) << 53)
/* The memory that a reply may take beyond its bytes: the array of its elements. */
#define CLAIM_BYTES (LK__RESP_MAX_ELEMENTS * sizeof(struct lk__resp *) + 65536)
#define ENTRIES 3
#define BYTE_COST 64 /* for a received byte: of "*0\r ", a reply of its own */

/* The address sanitizer provides it; without it, memory is not checked. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
	return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes()
	                                               : 0;
}

/* A reply as text; texts are equal only if the replies are. */
static void write_reply(FILE *out, const struct lk__resp *resp)
{
	fprintf(out, "%d %zu ", (int)resp->type, resp->len);
	switch (resp->type) {
	case LK__RESP_STRING:
	case LK__RESP_STATUS:
	case LK__RESP_ERROR:
		FUZZ_MUST(!resp->str[resp->len], "a string without its NUL");
		fwrite(resp->str, 1, resp->len, out);
		break;
	case LK__RESP_INTEGER:
		fprintf(out, "%lld", (long long)resp->integer);
		break;
	case LK__RESP_ARRAY:
		FUZZ_MUST(resp->len <= LK__RESP_MAX_ELEMENTS, "%zu elements", resp->len);
		for (size_t i = 0; i < resp->len; i++) {
			FUZZ_MUST(resp->elements[i], "an array with a hole");
			write_reply(out, resp->elements[i]);
		}
		break;
	default:
		break;
	}
	fputc('\n', out);
}

static void check_failed(const struct lk__answer *answer)
{
	FUZZ_MUST(answer->err && answer->text && answer->text[0], "failed without a reason");
	FUZZ_MUST(fuzz_is_plain(answer->text), "a reason that is not plain");
}

static void check_answer(const struct lk__answer *answer)
{
	FUZZ_MUST(answer->kind <= LK__FAILED, "kind %d", (int)answer->kind);
	if (answer->kind == LK__FAILED || answer->kind == LK__MOVED || answer->kind == LK__ASKED)
		check_failed(answer);
	FUZZ_MUST(answer->epoch.len < LK__EPOCH_SIZE && !answer->epoch.text[answer->epoch.len],
	          "a marker without an end");
	FUZZ_MUST(answer->fence <= EXACT_MAX && answer->arrival <= EXACT_MAX &&
	                  answer->opened <= EXACT_MAX && answer->removed <= EXACT_MAX &&
	                  answer->next <= EXACT_MAX,
	          "a number that is not exact");
	FUZZ_MUST(answer->store_us >= 0 && answer->store_us <= EXACT_MAX && answer->waiting >= 0 &&
	                  answer->waiting <= EXACT_MAX && answer->rank >= 0 &&
	                  answer->rank <= EXACT_MAX && answer->left_ms >= -1 &&
	                  answer->left_ms <= EXACT_MAX && answer->grace_ms >= 0 &&
	                  answer->grace_ms <= EXACT_MAX && answer->epoch.since_us >= 0 &&
	                  answer->epoch.since_us <= EXACT_MAX && answer->remaining >= 0 &&
	                  answer->remaining <= EXACT_MAX,
	          "a number out of its range");
}

static void check_topology(const struct lk__answer *answer, const struct lk__topology *topology)
{
	if (answer->kind != LK__LISTED)
		return;
	FUZZ_MUST(topology->count >= 0 && topology->count <= LK__NODES_MAX, "%d nodes",
	          topology->count);
	for (int i = 0; i < topology->count; i++) {
		const struct lk__cluster_node *node = &topology->nodes[i];
		FUZZ_MUST(strlen(node->id) == LK__NODE_ID_SIZE - 1, "a bad id");
		FUZZ_MUST(node->place.port >= 1 && node->place.port <= 65535, "port %d",
		          node->place.port);
		FUZZ_MUST(fuzz_is_plain(node->place.host), "a host that is not plain");
	}
	for (int slot = 0; slot < LK__SLOTS; slot++)
		FUZZ_MUST(topology->owner[slot] == LK__NO_OWNER ||
		                  topology->owner[slot] < topology->count,
		          "a slot of no node");
}

/* Read the same bytes as the reply to a query. */
static void answer_question(const struct lk__resp *resp, int kind, int noun)
{
	struct lk__request question = {.kind = (uint8_t)kind, .noun = (uint8_t)noun};
	struct lk__listing *shown = calloc(1, sizeof(*shown) + ENTRIES * sizeof(shown->entries[0]));
	struct lk__names names = {0};
	lk_party party = {0};
	struct lk__answer answer;
	struct lk__space space;
	struct lk__why why = {0};
	static struct lk__topology topology;
	void *into = kind == LK__SHOW       ? (void *)shown
	             : kind == LK__LIST     ? (void *)&names
	             : kind == LK__TOPOLOGY ? (void *)&topology
	                                    : &party;

	if (!shown)
		abort();
	shown->room = ENTRIES;
	lk__space_init(&space, "lk", 0, "abcdefghijklmnopqrstuv");
	lk__codec_query_answer(resp, "127.0.0.1:6379", &space, &question, into, &answer, &why);
	FUZZ_MUST(answer.kind <= LK__FAILED, "kind %d", (int)answer.kind);
	if (answer.kind == LK__FAILED)
		check_failed(&answer);
	FUZZ_MUST(shown->held <= shown->count && shown->count <= ENTRIES, "%zu of %zu entries",
	          shown->held, shown->count);
	FUZZ_MUST(fuzz_is_plain(party.host) && fuzz_is_plain(party.label),
	          "text that is not plain");
	if (kind == LK__TOPOLOGY)
		check_topology(&answer, &topology);
	while (names.count)
		free(names.list[--names.count]);
	free(names.list);
	free(shown);
	/* Its caller has ended. */
	lk__codec_query_answer(resp, "127.0.0.1:6379", &space, &question, NULL, &answer, &why);
}

static void take_reply(const struct lk__resp *resp)
{
	struct lk__answer answer;
	struct lk__why why = {0};

	(void)lk__codec_unknown_script(resp);
	if (lk__codec_foreign(resp, &why))
		FUZZ_MUST(fuzz_is_plain(why.text) && why.text[0], "a reason that is not plain");
	lk__codec_answer(resp, "127.0.0.1:6379", &answer, &why);
	check_answer(&answer);
	core_world_answer_all(&answer);
	for (int kind = LK__SHOW; kind <= LK__PING; kind++)
		for (int noun = LK_KIND_NONE; noun <= LK_KIND_LATCH; noun++)
			answer_question(resp, kind, noun);
}

/* Read all, in pieces whose lengths the seed determines (0 = one piece), and write the results. */
static char *read_all(const uint8_t *data, size_t size, uint32_t seed)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	size_t at = 0, text_size, before = allocated();
	struct lk__why why = {0};
	char *text = NULL;
	FILE *out = open_memstream(&text, &text_size);
	lk_err err = LK_OK;

	if (!reader || !out)
		abort();
	while (at < size && !err) {
		size_t len = size - at;
		if (seed) {
			seed = seed * 1664525 + 1013904223;
			len = 1 + (seed >> 24) % 16;
			len = len < size - at ? len : size - at;
		}
		err = lk__resp_feed(reader, (const char *)data + at, len, &why);
		at += len;
		while (!err) {
			struct lk__resp *resp;
			size_t now;
			err = lk__resp_next(reader, &resp, &why);
			now = allocated();
			/* The stream of text grows, too. */
			FUZZ_MUST(now < before ||
			                  now - before < CLAIM_BYTES + 65536 + BYTE_COST * size,
			          "%zu bytes of memory for %zu", now - before, at);
			if (err || !resp)
				break;
			write_reply(out, resp);
			if (!seed)
				take_reply(resp);
			lk__resp_free(resp);
		}
	}
	FUZZ_MUST(!err || (err == LK_ESERVER && why.text[0] && fuzz_is_plain(why.text)),
	          "reading ends with %s: %s", lk_err_name(err), why.text);
	if (err)
		FUZZ_MUST(lk__resp_feed(reader, "+OK\r\n", 5, &why), "a reader recovers");
	fprintf(out, "end %d\n", (int)err);
	fclose(out);
	lk__resp_reader_free(reader);
	return text;
}

/* The lengths of the pieces, then the bytes. */
void fuzz_replies(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	uint32_t seed = 1 + (uint32_t)fuzz_byte(&input);
	char *whole = read_all(input.at, input.left, 0);
	char *pieces = read_all(input.at, input.left, seed);

	FUZZ_MUST(!strcmp(whole, pieces), "in pieces it is\n%sinstead of\n%s", pieces, whole);
	free(whole);
	free(pieces);
}
