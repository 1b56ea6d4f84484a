/* SPDX-License-Identifier: MIT
 * The scripts as tools/embed put them into the library: the text that is sent is the file's, and
 * its digest is the one by which the server will know it. */
#include "scripts.h"
#include "test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 65536

static size_t read_script(const char *name, char *text)
{
	char path[200];
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "src/redis/scripts/%s.lua", name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "cannot open %s", path);
	len = fread(text, 1, TEXT_MAX - 1, file);
	fclose(file);
	text[len] = '\0';
	return len;
}

/* What a line says besides indentation. */
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

		read_script(lk__scripts[i]->name, file);
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

		read_script(lk__scripts[i]->name, file);
		for (int key = 1; key <= lk__scripts[i]->keys; key++) {
			snprintf(next, sizeof(next), "KEYS[%d]", key);
			ck_assert_msg(strstr(lk__scripts[i]->text, next), "%s: %s unused",
			              lk__scripts[i]->name, next);
		}
		snprintf(next, sizeof(next), "KEYS[%d]", lk__scripts[i]->keys + 1);
		ck_assert_msg(!strstr(file, next), "%s: %s undeclared", lk__scripts[i]->name, next);
	}
}
