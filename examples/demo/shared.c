/* SPDX-License-Identifier: MIT
 * The file that all workers change.  Two lines of its own, then counts as `uniq -c` writes them:
 *
 *   fence 1795240000123456
 *   batches 0 1 2 17
 *         12 LK_API
 *
 * A worker never changes it in place, but writes a new file and moves it into place with
 * rename(2).  So a worker that dies leaves either the old file or the new one. */
#include "demo.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_MAX 8192 /* bytes of the two lines, more than BATCHES_MAX numbers need */

struct text {
	char *bytes;
	size_t len;
};

/* Read at most limit bytes of a file, and append a NUL. */
static bool read_text(const char *path, size_t limit, struct text *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	size_t size;
	ssize_t got = 1;

	if (fd < 0)
		return complain(path, strerror(errno));
	if (fstat(fd, &status) != 0) {
		close(fd);
		return complain(path, strerror(errno));
	}
	size = (size_t)status.st_size < limit ? (size_t)status.st_size : limit;
	text->len = 0;
	text->bytes = malloc(size + 1);
	while (text->bytes && text->len < size && got > 0) {
		got = read(fd, text->bytes + text->len, size - text->len);
		if (got > 0)
			text->len += (size_t)got;
	}
	close(fd);
	if (!text->bytes || got <= 0) {
		free(text->bytes);
		return complain(path, "cannot be read whole");
	}
	text->bytes[text->len] = '\0';
	return true;
}

static bool write_text(const char *path, const struct text *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	size_t done = 0;
	ssize_t put = 0;

	if (fd < 0)
		return complain(path, strerror(errno));
	while (done < text->len && (put = write(fd, text->bytes + done, text->len - done)) > 0)
		done += (size_t)put;
	if (close(fd) != 0 || done < text->len)
		return complain(path, strerror(errno));
	return true;
}

/* Returns where the counts begin, NULL if this is not our file. */
static char *parse_head(char *text, struct shared_head *head)
{
	char *at = text, *end;

	memset(head, 0, sizeof(*head));
	if (strncmp(at, "fence ", 6) != 0)
		return NULL;
	head->fence = strtoull(at + 6, &at, 10);
	if (strncmp(at, "\nbatches", 8) != 0)
		return NULL;
	for (at += 8; *at == ' '; at = end) {
		unsigned long batch = strtoul(at, &end, 10);

		if (end == at || batch >= BATCHES_MAX)
			return NULL;
		head->merged[batch] = true;
	}
	return *at == '\n' ? at + 1 : NULL;
}

bool shared_create(const char *path)
{
	char empty[] = "fence 0\nbatches\n";
	struct text text = {empty, sizeof(empty) - 1};

	return write_text(path, &text);
}

bool shared_read_head(const char *path, struct shared_head *head)
{
	struct text text;
	char *body;

	if (!read_text(path, HEAD_MAX, &text))
		return false;
	body = parse_head(text.bytes, head);
	free(text.bytes);
	return body || complain(path, "its head is broken");
}

char *shared_read(const char *path, size_t *len, struct shared_head *head, char **body)
{
	struct text text;

	if (!read_text(path, SIZE_MAX / 2, &text))
		return NULL;
	*len = text.len;
	*body = parse_head(text.bytes, head);
	if (!*body) {
		complain(path, "its head is broken");
		free(text.bytes);
		return NULL;
	}
	return text.bytes;
}

const char *line_parse(const char *line, const char *end, struct word *word)
{
	const char *newline = memchr(line, '\n', (size_t)(end - line));

	if (!newline)
		return NULL;
	while (line < newline && *line == ' ')
		line++;
	for (word->count = 0; line < newline && *line >= '0' && *line <= '9'; line++)
		word->count = 10 * word->count + (uint64_t)(*line - '0');
	if (line == newline || *line != ' ')
		return NULL;
	word->text = line + 1;
	word->len = (size_t)(newline - word->text);
	return newline + 1;
}

static char *put_word(char *out, uint64_t count, const struct word *word)
{
	out += snprintf(out, 24, "%7" PRIu64 " ", count);
	memcpy(out, word->text, word->len);
	out += word->len;
	*out++ = '\n';
	return out;
}

/* Merge two sorted lists in one pass; copy unchanged lines many at a time.  Returns the end of out,
 * NULL on a broken line. */
static char *merge(char *out, const char *body, const char *end, const struct word *words,
                   size_t word_count)
{
	const char *unchanged = body, *line = body, *next;
	size_t i = 0;

	while (i < word_count) {
		struct word old = {0};
		int order = -1;

		next = line;
		if (line < end) {
			next = line_parse(line, end, &old);
			if (!next)
				return NULL;
			order = words_compare(words[i].text, words[i].len, old.text, old.len);
		}
		if (order > 0) {
			line = next;
			continue;
		}
		memcpy(out, unchanged, (size_t)(line - unchanged));
		out += line - unchanged;
		if (order == 0)
			line = next;
		out = put_word(out, words[i].count + (order == 0 ? old.count : 0), &words[i]);
		unchanged = line;
		i++;
	}
	memcpy(out, unchanged, (size_t)(end - unchanged));
	return out + (end - unchanged);
}

static char *put_head(char *out, const struct shared_head *head)
{
	out += snprintf(out, 40, "fence %" PRIu64 "\nbatches", head->fence);
	for (int batch = 0; batch < BATCHES_MAX; batch++)
		if (head->merged[batch])
			out += snprintf(out, 16, " %d", batch);
	*out++ = '\n';
	return out;
}

enum outcome shared_prepare(const char *path, const char *new_path, uint64_t fence, int batch,
                            const struct word *words, size_t word_count)
{
	struct shared_head head;
	struct text text;
	enum outcome outcome = FAILED;
	size_t len, room = HEAD_MAX;
	char *body, *end, *old = shared_read(path, &len, &head, &body);

	if (!old)
		return FAILED;
	if (head.merged[batch]) {
		free(old);
		return ALREADY_IN;
	}
	head.merged[batch] = true;
	head.fence = fence;
	for (size_t i = 0; i < word_count; i++)
		room += 24 + words[i].len;
	text.bytes = malloc(len + room);
	if (text.bytes) {
		end = merge(put_head(text.bytes, &head), body, old + len, words, word_count);
		if (end) {
			text.len = (size_t)(end - text.bytes);
			if (write_text(new_path, &text))
				outcome = MERGED;
		} else {
			complain(path, "it has a broken line");
		}
	}
	free(text.bytes);
	free(old);
	return outcome;
}

/* Compare the fences and rename in one step.  A worker may be stopped at any point and for any
 * time, also between the comparison and the rename.  A database does both in one step, by "update
 * ...  where fence < :mine".  For a file, flock() on a second file makes them one step.  This
 * flock() represents the resource and does not replace the lock: it guards only these few lines,
 * and without the lock and its fence it would save no count (LOCK=off takes it as well). */
enum outcome shared_commit(const char *path, const char *new_path, uint64_t fence)
{
	enum outcome outcome = FAILED;
	struct shared_head head;
	char gate[PATH_SIZE];
	int fd, err;

	snprintf(gate, sizeof(gate), "%.*s.gate", (int)sizeof(gate) - 6, path);
	fd = open(gate, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		complain(gate, strerror(errno));
		return FAILED;
	}
	do
		err = flock(fd, LOCK_EX);
	while (err != 0 && errno == EINTR);
	if (err == 0 && shared_read_head(path, &head)) {
		if (fence < head.fence)
			outcome = REFUSED;
		else if (rename(new_path, path) == 0)
			outcome = MERGED;
		else
			complain(path, strerror(errno));
	}
	close(fd);
	return outcome;
}
