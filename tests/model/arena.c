/* SPDX-License-Identifier: MIT
 * The arena: free lists by size over one growing block; its own state is inside it, too. */
#include "arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_SIZE ((size_t)1 << 20)
#define ARENA_ADDRESS ((uintptr_t)0x7e9000000000)
#define GRAIN 32
#define SMALL 128 /* classes of sizes, GRAIN bytes each; then some that double */
#define CLASSES 131

struct cell {
	size_t class; /* of the following block */
	struct cell *next;
};

struct arena {
	size_t used;
	struct cell *unused[CLASSES];
};

/* --wrap requires these names. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *bytes);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *bytes);

static struct arena *arena;
static enum arena_mode in_use;

static void make(void)
{
	arena = mmap((void *)ARENA_ADDRESS, ARENA_SIZE, PROT_READ | PROT_WRITE,
	             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (arena == MAP_FAILED) {
		fprintf(stderr, "model: no memory at its fixed address\n");
		abort();
	}
	arena->used = sizeof(*arena);
}

enum arena_mode arena_use(enum arena_mode mode)
{
	enum arena_mode was = in_use;

	if (!arena)
		make();
	in_use = mode;
	return was;
}

void *arena_clear(size_t size)
{
	if (!arena)
		make();
	memset(arena, 0, sizeof(*arena) + size);
	arena->used = sizeof(*arena) + (size + GRAIN - 1) / GRAIN * GRAIN;
	return arena + 1;
}

void *arena_base(void)
{
	return arena;
}

size_t arena_used(void)
{
	return arena->used;
}

static bool is_inside(const void *bytes)
{
	uintptr_t at = (uintptr_t)bytes;

	return at >= ARENA_ADDRESS && at < ARENA_ADDRESS + ARENA_SIZE;
}

static struct cell *cell_of(void *bytes)
{
	return (struct cell *)((char *)bytes - GRAIN);
}

static size_t room_of(size_t class)
{
	return class < SMALL ? class * GRAIN : (size_t)SMALL * GRAIN << (class - SMALL + 1);
}

static size_t class_of(size_t size)
{
	size_t class = (size + GRAIN - 1) / GRAIN;

	for (class = class < SMALL ? class : SMALL; class < CLASSES; class ++)
		if (room_of(class) >= size)
			break;
	return class;
}

static void *take(size_t size)
{
	size_t class = class_of(size), bytes = room_of(class) + GRAIN;
	struct cell *cell;

	if (class >= CLASSES && in_use != ARENA_ON)
		return __real_malloc(size);
	if (class >= CLASSES || arena->used + bytes > ARENA_SIZE) {
		fprintf(stderr, "model: %zu bytes are too many for the arena\n", size);
		abort();
	}
	cell = arena->unused[class];
	if (cell) {
		arena->unused[class] = cell->next;
	} else {
		cell = (struct cell *)((char *)arena + arena->used);
		arena->used += bytes;
	}
	cell->class = class;
	cell->next = NULL;
	return (char *)cell + GRAIN;
}

static void give(void *bytes)
{
	struct cell *cell = cell_of(bytes);

	cell->next = arena->unused[cell->class];
	arena->unused[cell->class] = cell;
}

void *__wrap_malloc(size_t size)
{
	return in_use ? take(size) : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	void *bytes;

	if (!in_use)
		return __real_calloc(count, size);
	bytes = take(count * size);
	memset(bytes, 0, count * size);
	return bytes;
}

void *__wrap_realloc(void *old, size_t size)
{
	void *bytes;

	if (old ? !is_inside(old) : !in_use)
		return __real_realloc(old, size);
	bytes = take(size);
	if (old) {
		size_t had = room_of(cell_of(old)->class);
		memcpy(bytes, old, had < size ? had : size);
		give(old);
	}
	return bytes;
}

void __wrap_free(void *bytes)
{
	if (is_inside(bytes))
		give(bytes);
	else
		__real_free(bytes);
}

void *outside_realloc(void *old, size_t size)
{
	void *bytes = __real_realloc(old, size);

	if (!bytes) {
		fprintf(stderr, "model: out of memory\n");
		abort();
	}
	return bytes;
}

void outside_free(void *bytes)
{
	__real_free(bytes);
}
