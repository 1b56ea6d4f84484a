/* SPDX-License-Identifier: MIT
 * A name in the store, before and after a script. */
#include "promises.h"

#include <stdio.h>
#include <string.h>

const char *promise_fifo(const struct promise_waiter *queue, size_t count, const char *ticket,
                         int64_t arrival)
{
	static char text[2 * LK__TICKET_MAX + 40];

	for (size_t i = 0; i < count; i++) {
		const struct promise_waiter *other = &queue[i];
		if (!other->waits || other->arrival > arrival || !strcmp(other->ticket, ticket) ||
		    (other->arrival == arrival && strcmp(other->ticket, ticket) > 0))
			continue;
		snprintf(text, sizeof(text), "%s has overtaken %s", ticket, other->ticket);
		return text;
	}
	return NULL;
}

const char *promise_permits_kept(int64_t used, int64_t sum)
{
	static char text[120];

	if (used == sum)
		return NULL;
	snprintf(text, sizeof(text), "the store counts %lld permits, its holds have %lld",
	         (long long)used, (long long)sum);
	return text;
}
