/* SPDX-License-Identifier: MIT
 * The documents agree with the sources: their tables of errors and counters list what the header
 * declares, code that tests/readme does not run is quoted from a tested file, and each link has a
 * target. */
#include "test.h"

#include <latchkey.h>

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE_MAX 131072

static const char *const pages[] = {"README.md",           "CONTRIBUTING.md",  "CHANGELOG.md",
                                    "docs/protocol.md",    "docs/examples.md", "docs/fence.md",
                                    "docs/errors.md",      "docs/counters.md", "docs/evidence.md",
                                    "docs/performance.md", "docs/redis.md",    "docs/semaphore.md",
                                    "docs/latch.md",       "docs/sentinel.md", "docs/cluster.md",
                                    "docs/quorum.md",      "docs/etcd.md"};
#define PAGES (sizeof(pages) / sizeof(pages[0]))

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

/* Cut off the next block of that language from *at on, and set *at behind it; NULL if none. */
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

TEST(errors_page_lists_every_error)
{
	static char page[PAGE_MAX];
	char row[200];
	int errors = 0;

	read_page("docs/errors.md", page);
#define LOOK(name, number, text)                                                                   \
	snprintf(row, sizeof(row), "\n| `%s` | %d | %s | %s | %s |\n", #name, number, text,        \
	         lk_err_is_ambiguous(name) ? "yes" : "-",                                          \
	         lk_err_is_retryable(name) ? "yes" : "-");                                         \
	ck_assert_msg(strstr(page, row) != NULL, "docs/errors.md does not have: %s", row);         \
	errors++;
	LK_ERR_MAP(LOOK)
#undef LOOK
	ck_assert_int_eq(count(page, "\n| `LK_"), errors);
}

TEST(pages_quote_the_examples_exactly)
{
	static const char *const examples[] = {"examples/nightly.c", "examples/fenced_file.c",
	                                       "examples/worker_pool.c", "examples/batch_gate.c",
	                                       "examples/rate_limit/caller.c"};
	static char page[PAGE_MAX], source[PAGE_MAX];
	int quotes = 0;

	for (size_t p = 0; p < PAGES; p++) {
		char *at = page, *block;

		read_page(pages[p], page);
		while ((block = next_block(&at, "<!-- not run -->\n```c\n"))) {
			bool found = false;

			for (size_t i = 0; i < sizeof(examples) / sizeof(*examples) && !found;
			     i++) {
				read_page(examples[i], source);
				found = strstr(source, block) != NULL;
			}
			ck_assert_msg(found, "%s: in none of the examples:\n%s", pages[p], block);
			quotes++;
		}
	}
	ck_assert_int_ge(quotes, 9);
}

TEST(fence_page_quotes_tested_statements)
{
	static char page[PAGE_MAX], source[PAGE_MAX];
	char *at = page, *block;
	int statements = 0;

	read_page("docs/fence.md", page);
	read_page("tests/live_fence.c", source);
	while ((block = next_block(&at, "```sql\n"))) {
		ck_assert_msg(strstr(source, block), "not in tests/live_fence.c:\n%s", block);
		statements++;
	}
	ck_assert_int_eq(statements, 2);
}

/* Find a heading by its anchor: lower case, no punctuation, dashes for spaces. */
static bool has_anchor(const char *text, const char *anchor, size_t len)
{
	for (const char *at = text; (at = strstr(at, "\n#")); at++) {
		size_t matched = 0;

		at += 1 + strspn(at + 1, "#");
		for (at++; *at && *at != '\n'; at++) {
			char c = (char)tolower((unsigned char)*at);

			if (c == ' ')
				c = '-';
			else if (!isalnum((unsigned char)c) && c != '-' && c != '_')
				continue;
			if (matched >= len || anchor[matched] != c)
				break;
			matched++;
		}
		if (*at == '\n' && matched == len)
			return true;
		at--;
	}
	return false;
}

TEST(links_of_pages_have_targets)
{
	static char page[PAGE_MAX], target[PAGE_MAX];
	char path[400];

	for (size_t i = 0; i < PAGES; i++) {
		const char *slash = strrchr(pages[i], '/');
		int folder = slash ? (int)(slash - pages[i]) + 1 : 0;

		read_page(pages[i], page);
		for (char *at = page; (at = strstr(at, "](")); at++) {
			int len = (int)strcspn(at + 2, ")#");
			const char *anchor = at + 2 + len + 1;

			if (!strncmp(at + 2, "http", 4))
				continue;
			snprintf(path, sizeof(path), "%.*s%.*s", folder, pages[i], len, at + 2);
			if (len == 0)
				snprintf(path, sizeof(path), "%s", pages[i]);
			ck_assert_msg(!access(path, F_OK), "%s links to %s", pages[i], path);
			if (at[2 + len] != '#')
				continue;
			read_page(path, target);
			len = (int)strcspn(anchor, ")");
			ck_assert_msg(has_anchor(target, anchor, (size_t)len),
			              "%s links to %s#%.*s", pages[i], path, len, anchor);
		}
	}
}

TEST(counters_page_lists_every_counter)
{
	static char page[PAGE_MAX], header[PAGE_MAX];
	char *table, *fields, *line, *rest;
	int counters = 0;

	read_page("docs/counters.md", page);
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
		ck_assert_msg(strstr(table, quoted) != NULL, "docs/counters.md does not list %s",
		              quoted);
		counters++;
	}
	ck_assert_int_ge(counters, 20);
}
