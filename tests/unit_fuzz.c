/* SPDX-License-Identifier: MIT
 * The fuzz targets over the corpus: bugs found once stay found.  `make fuzz` looks for new ones. */
#include "built_with.h"
#include "fuzz/fuzz.h"
#include "test.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define INPUT_MAX 8192

static void replay_one(fuzz_fn *run, const char *path)
{
	static uint8_t bytes[INPUT_MAX];
	uint8_t *exact;
	size_t size;
	FILE *file = fopen(path, "rb");

	ck_assert_msg(file != NULL, "cannot read %s", path);
	size = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	ck_assert_msg(size < sizeof(bytes), "%s is too long", path);
	/* Exact size, so that a sanitizer detects an overrun. */
	exact = malloc(size + !size);
	ck_assert_ptr_nonnull(exact);
	for (size_t i = 0; i < size; i++)
		exact[i] = bytes[i];
	/* A failing target does not name its input. */
	fprintf(stderr, "%s\n", path);
	run(exact, size);
	free(exact);
}

static void replay(const char *name)
{
	const struct fuzz_target *target = fuzz_target_find(name);
	struct dirent *entry;
	char path[400];
	int count = 0;
	DIR *folder;

	ck_assert_msg(target != NULL, "no target %s", name);
	snprintf(path, sizeof(path), "tests/fuzz/corpus/%s", name);
	folder = opendir(path);
	ck_assert_msg(folder != NULL, "no folder %s", path);
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "tests/fuzz/corpus/%s/%s", name, entry->d_name);
		replay_one(target->run, path);
		count++;
	}
	closedir(folder);
	ck_assert_msg(count >= 5, "%s has %d inputs", name, count);
}

TEST(any_reply_is_read_or_refused)
{
	replay("replies");
}

TEST(no_message_is_believed_that_fits_no_ticket)
{
	replay("messages");
}

TEST(any_answers_leave_the_state_machine_whole)
{
	replay("answers");
}

TEST(a_url_is_taken_or_refused_by_its_part)
{
	replay("urls");
}

TEST(names_come_back_from_their_keys)
{
	replay("names");
}

TEST(options_out_of_bounds_are_refused)
{
	replay("options");
}

TEST(a_command_line_is_taken_or_refused)
{
	replay("command_line");
}

TEST(a_script_answers_in_its_own_words)
{
	replay("scripts");
}

TEST(any_answer_of_etcd_is_read_or_refused)
{
	replay("etcd_messages");
}

TEST_IF(any_bytes_of_etcd_end_each_call_once, 20, LK__ETCD)
{
	replay("etcd_h2");
}
