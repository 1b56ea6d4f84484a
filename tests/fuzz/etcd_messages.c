/* SPDX-License-Identifier: MIT
 * Any bytes as an answer of etcd: it is refused, or each of its bytes and elements lies in what was
 * received. */
#include "etcd/messages.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static const struct lk__pb_shape *const shapes[] = {
	&lk__etcd_range_shape,        &lk__etcd_put_shape,         &lk__etcd_delete_shape,
	&lk__etcd_txn_shape,          &lk__etcd_lease_grant_shape, &lk__etcd_lease_revoke_shape,
	&lk__etcd_keep_alive_shape,   &lk__etcd_watch_shape,       &lk__etcd_status_shape,
	&lk__etcd_authenticate_shape, &lk__etcd_member_list_shape, &lk__etcd_alarm_shape,
	&lk__etcd_time_to_live_shape,
};

static const char *begin, *end;
static size_t elements;

static void check_bytes(struct lk__bytes bytes)
{
	const char *data = bytes.data;

	if (bytes.len)
		FUZZ_MUST(data >= begin && data <= end && bytes.len <= (size_t)(end - data),
		          "bytes outside of the message");
}

static void check_message(const struct lk__pb_shape *shape, const char *message);

static void check_list(struct lk__pb_list list)
{
	char *element = calloc(1, list.count && list.rule->part ? list.rule->part->size
	                                                        : sizeof(struct lk__bytes));

	if (!element)
		abort();
	for (size_t left = list.count; left; left--) {
		struct lk__bytes bytes;
		FUZZ_MUST(lk__pb_next(&list, element), "an element is missing");
		elements++;
		memcpy(&bytes, element, sizeof(bytes));
		if (list.rule->part)
			check_message(list.rule->part, element);
		else
			check_bytes(bytes);
	}
	FUZZ_MUST(!lk__pb_next(&list, element), "an element too many");
	free(element);
}

static void check_message(const struct lk__pb_shape *shape, const char *message)
{
	for (size_t i = 0; i < shape->count; i++) {
		const struct lk__pb_rule *rule = &shape->rules[i];
		struct lk__pb_list list;
		struct lk__bytes bytes;
		switch ((enum lk__pb_kind)rule->kind) {
		case LK__PB_BYTES:
			memcpy(&bytes, message + rule->offset, sizeof(bytes));
			check_bytes(bytes);
			break;
		case LK__PB_FLAG:
			FUZZ_MUST((unsigned char)message[rule->offset] <= 1, "a flag");
			break;
		case LK__PB_OPTION:
			FUZZ_MUST((unsigned char)message[rule->present] <= 1, "a flag");
			/* fallthrough */
		case LK__PB_PART:
			check_message(rule->part, message + rule->offset);
			break;
		case LK__PB_LIST:
			memcpy(&list, message + rule->offset, sizeof(list));
			check_list(list);
			break;
		default:
			break;
		}
	}
}

/* The first byte chooses the answer. */
void fuzz_etcd_messages(const uint8_t *data, size_t size)
{
	const struct lk__pb_shape *shape;
	char *exact, *message;

	if (!size)
		return;
	shape = shapes[data[0] % (sizeof(shapes) / sizeof(*shapes))];
	exact = malloc(size);
	message = malloc(shape->size);
	if (!exact || !message)
		abort();
	memcpy(exact, data + 1, size - 1);
	begin = exact;
	end = exact + size - 1;
	elements = 0;
	if (lk__pb_read(shape, exact, size - 1, message)) {
		check_message(shape, message);
		/* An element has two bytes at least. */
		FUZZ_MUST(elements <= size, "%zu elements", elements);
	}
	free(message);
	free(exact);
}
