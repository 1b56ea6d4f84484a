/* SPDX-License-Identifier: MIT
 * Memory that is counted: a program that includes this once, and has its line LDFLAGS with --wrap
 * for the four functions, finds in `asked` how many allocations it has made. */
#ifndef COUNTED_MEMORY_H
#define COUNTED_MEMORY_H

#include "wrapped_memory.h"

#include <stdatomic.h>

static atomic_long asked;

void *__wrap_malloc(size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
	atomic_fetch_add(&asked, 1);
	return __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
	atomic_fetch_add(&asked, 1);
	return __real_strdup(text);
}

#endif
