/* SPDX-License-Identifier: MIT
 * The scripts as tools/embed puts them into the library: the embedded text is the file's, and its
 * digest is the one that the server computes. */
#include "scripts.h"
#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 65536

#define INCLUDE "-- include "

/* Append a file of the scripts' folder, and the files that it includes. */
static size_t read_script(const char *name, char *text, size_t len)
{
	char path[200], line[1000];
	FILE *file;

	snprintf(path, sizeof(path), "src/redis/scripts/%s", name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "cannot open %s", path);
	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, INCLUDE, strlen(INCLUDE))) {
			line[strcspn(line, "\n")] = '\0';
			len = read_script(line + strlen(INCLUDE), text, len);
			continue;
		}
		ck_assert_uint_lt(len + strlen(line), TEXT_MAX);
		memcpy(text + len, line, strlen(line) + 1);
		len += strlen(line);
	}
	fclose(file);
	return len;
}

static void read_file(const struct lk__script *script, char text[TEXT_MAX])
{
	char name[100];

	snprintf(name, sizeof(name), "%s.lua", script->name);
	read_script(name, text, 0);
}

/* The line without its indentation. */
static const char *words(const char *line)
{
	return line + strspn(line, " \t");
}

TEST(script_text_is_the_file_with_comments_blanked)
{
	static char file[TEXT_MAX];

	ck_assert_ptr_nonnull(lk__scripts[0]);
	for (int i = 0; lk__scripts[i]; i++) {
		const char *sent = lk__scripts[i]->text;
		char *line, *rest = file;

		read_file(lk__scripts[i], file);
		ck_assert_uint_eq(strlen(sent), lk__scripts[i]->len);
		while ((line = strsep(&rest, "\n")) && rest) {
			size_t len = strcspn(sent, "\n");

			if (!strncmp(words(line), "--", 2))
				*line = '\0';
			ck_assert_msg(len == strlen(line) && !memcmp(sent, line, len), "%s: %.*s",
			              lk__scripts[i]->name, (int)len, sent);
			sent += len + 1;
		}
		ck_assert_str_eq(sent, "");
	}
}

TEST(script_digest_is_that_of_the_text)
{
	for (int i = 0; lk__scripts[i]; i++) {
		char path[] = "/tmp/lk-script-XXXXXX", command[80], digest[41] = "";
		int fd = mkstemp(path);
		FILE *output;

		ck_assert_int_ge(fd, 0);
		ck_assert(write(fd, lk__scripts[i]->text, lk__scripts[i]->len) ==
		          (ssize_t)lk__scripts[i]->len);
		close(fd);
		snprintf(command, sizeof(command), "sha1sum %s || shasum %s", path, path);
		output = popen(command, "r");
		ck_assert_ptr_nonnull(output);
		ck_assert_ptr_nonnull(fgets(digest, sizeof(digest), output));
		pclose(output);
		unlink(path);
		ck_assert_str_eq(digest, lk__scripts[i]->sha1);
	}
}

TEST(script_counts_the_keys_it_declares)
{
	static char file[TEXT_MAX];

	for (int i = 0; lk__scripts[i]; i++) {
		char next[24];

		read_file(lk__scripts[i], file);
		for (int key = 1; key <= lk__scripts[i]->keys; key++) {
			snprintf(next, sizeof(next), "KEYS[%d]", key);
			ck_assert_msg(strstr(lk__scripts[i]->text, next), "%s: %s unused",
			              lk__scripts[i]->name, next);
		}
		snprintf(next, sizeof(next), "KEYS[%d]", lk__scripts[i]->keys + 1);
		ck_assert_msg(!strstr(file, next), "%s: %s undeclared", lk__scripts[i]->name, next);
	}
}
