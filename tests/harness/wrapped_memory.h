/* SPDX-License-Identifier: MIT
 * The allocations of a program that has its line LDFLAGS with --wrap for these four functions. */
#ifndef WRAPPED_MEMORY_H
#define WRAPPED_MEMORY_H

#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

#endif
