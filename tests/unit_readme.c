/* SPDX-License-Identifier: MIT
 * What the pages quote is what there is: README's table of errors is the header's, its code that is
 * not run where it stands is that of a tested example, and no link leads nowhere. */
#include "test.h"

#include <latchkey.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE_MAX 65536

static void read_page(const char *path, char page[PAGE_MAX])
{
	FILE *file = fopen(path, "re");
	size_t len;

	ck_assert_msg(file != NULL, "cannot open %s", path);
	len = fread(page, 1, PAGE_MAX - 1, file);
	fclose(file);
	ck_assert_msg(len < PAGE_MAX - 1, "%s is longer than %d bytes", path, PAGE_MAX - 1);
	page[len] = '\0';
}

static int count(const char *text, const char *words)
{
	int found = 0;

	while ((text = strstr(text, words))) {
		found++;
		text += strlen(words);
	}
	return found;
}

/* The next block of that language from *at on: cut off and *at set behind it; NULL if none. */
static char *next_block(char **at, const char *opening)
{
	char *start = strstr(*at, opening), *end;

	if (!start)
		return NULL;
	start += strlen(opening);
	end = strstr(start, "\n```\n");
	ck_assert_msg(end != NULL, "a block is not closed: %.60s", start);
	*end = '\0';
	*at = end + 1;
	return start;
}

TEST(readme_lists_every_error)
{
	static char page[PAGE_MAX];
	int errors = 0;

	read_page("README.md", page);
#define LOOK(name, number, text)                                                                   \
	ck_assert_msg(strstr(page, "\n| `" #name "` | " #number " | " text " |\n") != NULL,        \
	              "README.md does not say: | `%s` | %d | %s |", #name, number, text);          \
	errors++;
	LK_ERR_MAP(LOOK)
#undef LOOK
	ck_assert_int_eq(count(page, "\n| `LK_"), errors);
}

TEST(readme_shows_the_examples_as_they_are)
{
	static const char *const examples[] = {"examples/fenced_file.c", "examples/worker_pool.c",
	                                       "examples/batch_gate.c",
	                                       "examples/rate_limit/caller.c"};
	static char page[PAGE_MAX], source[PAGE_MAX];
	char *at = page, *block;
	int quotes = 0;

	read_page("README.md", page);
	while ((block = next_block(&at, "<!-- not run -->\n```c\n"))) {
		bool found = false;
		for (size_t i = 0; i < sizeof(examples) / sizeof(*examples) && !found; i++) {
			read_page(examples[i], source);
			found = strstr(source, block) != NULL;
		}
		ck_assert_msg(found, "in none of the examples:\n%s", block);
		quotes++;
	}
	ck_assert_int_ge(quotes, 7);
}

TEST(readme_shows_the_statements_that_are_tested)
{
	static char page[PAGE_MAX], source[PAGE_MAX];
	char *at = page, *block;
	int statements = 0;

	read_page("README.md", page);
	read_page("tests/live_fence.c", source);
	while ((block = next_block(&at, "```sql\n"))) {
		ck_assert_msg(strstr(source, block), "not in tests/live_fence.c:\n%s", block);
		statements++;
	}
	ck_assert_int_eq(statements, 2);
}

TEST(pages_link_to_files_that_exist)
{
	static const char *const pages[] = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md",
	                                    "docs/protocol.md"};
	static char page[PAGE_MAX];
	char path[400];

	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++) {
		const char *slash = strrchr(pages[i], '/');
		int folder = slash ? (int)(slash - pages[i]) + 1 : 0;

		read_page(pages[i], page);
		for (char *at = page; (at = strstr(at, "](")); at++) {
			int len = (int)strcspn(at + 2, ")#");
			if (len == 0 || !strncmp(at + 2, "http", 4))
				continue;
			snprintf(path, sizeof(path), "%.*s%.*s", folder, pages[i], len, at + 2);
			ck_assert_msg(!access(path, F_OK), "%s links to %s", pages[i], path);
		}
	}
}

/* And what is new in the header is not forgotten there. */
TEST(readme_lists_every_counter)
{
	static char page[PAGE_MAX], header[PAGE_MAX];
	char *table, *fields, *line, *rest;
	int counters = 0;

	read_page("README.md", page);
	table = strstr(page, "| Counters of `lk_client_counters()` |");
	ck_assert_ptr_nonnull(table);
	*strstr(table, "\n\n") = '\0';
	read_page("include/latchkey.h", header);
	fields = strstr(header, "typedef struct lk_counters {");
	ck_assert_ptr_nonnull(fields);
	*strstr(fields, "} lk_counters;") = '\0';
	for (line = strtok_r(fields, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char name[40], quoted[48];

		if (sscanf(line, " int64_t %39[a-z_]", name) != 1 || !strcmp(name, "reserved"))
			continue;
		snprintf(quoted, sizeof(quoted), strcmp(name, "lost") ? "`%s`" : "`%s[]`", name);
		ck_assert_msg(strstr(table, quoted) != NULL, "README.md does not list %s", quoted);
		counters++;
	}
	ck_assert_int_ge(counters, 20);
}
