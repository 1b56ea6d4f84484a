/* SPDX-License-Identifier: MIT
 * Holds: how many are valid at a moment, and their fences. */
#include "promises.h"

#include <stdio.h>

#define HAND_OVERS 16 /* as documented */

int64_t promise_used(const struct promise_use *uses, size_t count, int64_t at)
{
	int64_t used = 0;

	for (size_t i = 0; i < count; i++)
		if (uses[i].from <= at && at < uses[i].to)
			used += uses[i].permits;
	return used;
}

static const char *within(const char *what, int64_t used, int64_t capacity)
{
	static char text[120];

	if (used <= capacity)
		return NULL;
	snprintf(text, sizeof(text), "%lld %s valid at once, of %lld", (long long)used, what,
	         (long long)capacity);
	return text;
}

const char *promise_exclusion(int64_t used)
{
	return within("holds are", used, 1);
}

const char *promise_permits(int64_t used, int64_t capacity)
{
	return within("permits are", used, capacity);
}

/* Its permits are valid from their grant on for as long as its window. */
const char *promise_rate(int64_t used, int64_t capacity)
{
	return within("permits of a window are", used, capacity);
}

const char *promise_fence(uint64_t last, uint64_t fence)
{
	static char text[120];

	if (fence > last)
		return NULL;
	snprintf(text, sizeof(text),
	         fence == last ? "fence %llu is not new" : "fence %llu is below %llu",
	         (unsigned long long)fence, (unsigned long long)last);
	return text;
}

const char *promise_hand_overs(int64_t in_a_row)
{
	static char text[120];

	if (in_a_row <= HAND_OVERS)
		return NULL;
	snprintf(text, sizeof(text), "handed over %lld times in a process while another one waits",
	         (long long)in_a_row);
	return text;
}

const char *promise_wake_up(int64_t due_ns, int64_t now_ns)
{
	static char text[120];

	if (now_ns <= due_ns)
		return NULL;
	snprintf(text, sizeof(text), "free, or granted, and its waiter does not know: %.3f s late",
	         (double)(now_ns - due_ns) / 1e9);
	return text;
}

const char *promise_grant(const struct lk__hold *hold, int64_t now_ns, uint32_t count)
{
	if (!hold)
		return "acquired, and there is no hold";
	if (!lk__hold_left_ns(hold, now_ns))
		return "acquired a hold that has lapsed";
	return hold->count == count ? NULL : "acquired another number of permits";
}

const char *promise_validity(bool kept, int64_t kept_until, int64_t believed_until)
{
	static char text[120];

	if (!kept)
		return "a hold is believed in and is not in the store";
	if (kept_until >= believed_until)
		return NULL;
	snprintf(text, sizeof(text), "a hold is believed in for %lld us longer than it is kept",
	         (long long)(believed_until - kept_until));
	return text;
}
