/* SPDX-License-Identifier: MIT
 * Counts identifiers, [A-Za-z_][A-Za-z0-9_]*, byte by byte: a hash table with open addressing, the
 * text of its words in blocks that never move. */
#include "demo.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS_FIRST 8192
#define BLOCK_SIZE (1u << 20)

struct block {
	struct block *next;
	size_t used;
	size_t size;
	char text[];
};

struct words {
	struct word *slots; /* text NULL = empty */
	size_t slot_count;  /* a power of two, at most half full */
	size_t used;
	struct block *blocks;
	struct word *sorted;
	char *file; /* the file that is being read */
	size_t file_size;
};

/* The role that a byte can have in an identifier. */
static bool starts(unsigned char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

static bool continues(unsigned char byte)
{
	return starts(byte) || (byte >= '0' && byte <= '9');
}

struct words *words_new(void)
{
	struct words *words = calloc(1, sizeof(*words));

	if (!words)
		return NULL;
	words->slot_count = SLOTS_FIRST;
	words->slots = calloc(words->slot_count, sizeof(*words->slots));
	if (!words->slots) {
		free(words);
		return NULL;
	}
	return words;
}

void words_clear(struct words *words)
{
	while (words->blocks) {
		struct block *block = words->blocks;

		words->blocks = block->next;
		free(block);
	}
	memset(words->slots, 0, words->slot_count * sizeof(*words->slots));
	words->used = 0;
}

void words_free(struct words *words)
{
	if (!words)
		return;
	words_clear(words);
	free(words->slots);
	free(words->sorted);
	free(words->file);
	free(words);
}

static size_t hash(const char *text, size_t len)
{
	uint64_t value = 14695981039346656037u;

	for (size_t i = 0; i < len; i++)
		value = (value ^ (unsigned char)text[i]) * 1099511628211u;
	return (size_t)(value ^ value >> 32);
}

static struct word *find(const struct words *words, const char *text, size_t len)
{
	size_t i = hash(text, len) & (words->slot_count - 1);

	while (words->slots[i].text &&
	       (words->slots[i].len != len || memcmp(words->slots[i].text, text, len) != 0))
		i = (i + 1) & (words->slot_count - 1);
	return &words->slots[i];
}

static const char *keep(struct words *words, const char *text, size_t len)
{
	struct block *block = words->blocks;

	if (!block || block->size - block->used < len) {
		size_t size = len > BLOCK_SIZE ? len : BLOCK_SIZE;

		block = malloc(sizeof(*block) + size);
		if (!block)
			return NULL;
		block->next = words->blocks;
		block->used = 0;
		block->size = size;
		words->blocks = block;
	}
	memcpy(block->text + block->used, text, len);
	block->used += len;
	return block->text + block->used - len;
}

static bool grow(struct words *words)
{
	struct words bigger = *words;

	bigger.slot_count = 2 * words->slot_count;
	bigger.slots = calloc(bigger.slot_count, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	for (size_t i = 0; i < words->slot_count; i++)
		if (words->slots[i].text)
			*find(&bigger, words->slots[i].text, words->slots[i].len) = words->slots[i];
	free(words->slots);
	*words = bigger;
	return true;
}

static bool add(struct words *words, const char *text, size_t len)
{
	struct word *word = find(words, text, len);

	if (!word->text) {
		if (2 * (words->used + 1) > words->slot_count) {
			if (!grow(words))
				return false;
			word = find(words, text, len);
		}
		word->text = keep(words, text, len);
		if (!word->text)
			return false;
		word->len = len;
		word->count = 0;
		words->used++;
	}
	word->count++;
	return true;
}

/* Read the whole file into words->file. */
static bool read_file(struct words *words, const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	ssize_t got = 1;

	if (fd < 0)
		return false;
	if (fstat(fd, &status) != 0 || status.st_size < 0) {
		close(fd);
		return false;
	}
	if ((size_t)status.st_size > words->file_size) {
		char *more = realloc(words->file, (size_t)status.st_size);

		if (!more) {
			close(fd);
			return false;
		}
		words->file = more;
		words->file_size = (size_t)status.st_size;
	}
	for (*len = 0; *len < (size_t)status.st_size && got > 0; *len += got > 0 ? (size_t)got : 0)
		got = read(fd, words->file + *len, (size_t)status.st_size - *len);
	close(fd);
	return got >= 0;
}

bool words_count_file(struct words *words, const char *path)
{
	size_t len = 0, i = 0;

	if (!read_file(words, path, &len))
		return false;
	while (i < len) {
		size_t start = i++;

		if (!starts((unsigned char)words->file[start]))
			continue;
		while (i < len && continues((unsigned char)words->file[i]))
			i++;
		if (!add(words, words->file + start, i - start))
			return false;
	}
	return true;
}

int words_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare(const void *a, const void *b)
{
	const struct word *first = a, *second = b;

	return words_compare(first->text, first->len, second->text, second->len);
}

const struct word *words_sorted(struct words *words, size_t *count)
{
	free(words->sorted);
	words->sorted = malloc((words->used + 1) * sizeof(*words->sorted));
	if (!words->sorted)
		return NULL;
	*count = 0;
	for (size_t i = 0; i < words->slot_count; i++)
		if (words->slots[i].text)
			words->sorted[(*count)++] = words->slots[i];
	qsort(words->sorted, *count, sizeof(*words->sorted), compare);
	return words->sorted;
}
