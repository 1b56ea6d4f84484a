/* SPDX-License-Identifier: MIT
 * Memory that is short: a program that includes this once, and has its line LDFLAGS with --wrap for
 * the four functions, lets `memory` decide which of its allocations fail. */
#ifndef SHORT_MEMORY_H
#define SHORT_MEMORY_H

#include "shortage.h"
#include "wrapped_memory.h"

#include <errno.h>

static struct shortage memory;

void *__wrap_malloc(size_t size)
{
	return shortage_strikes(&memory) ? errno = ENOMEM, NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return shortage_strikes(&memory) ? errno = ENOMEM, NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return shortage_strikes(&memory) ? errno = ENOMEM, NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
	return shortage_strikes(&memory) ? errno = ENOMEM, NULL : __real_strdup(text);
}

#endif
