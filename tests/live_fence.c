/* SPDX-License-Identifier: MIT
 * Fences as README recommends to use them, in a database and in a file: a holder that was stopped
 * past its lease writes late, and the next holder's write remains.  The counter-example tests the
 * test: without the fence the late write wins. */
#include "handles.h"
#include "process.h"
#include "server.h"
#include "test.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The example itself, run in its own process. */
int fenced_file_main(int argc, char **argv);
#define main fenced_file_main
#include "../examples/fenced_file.c"
#undef main

#define LEASE_MS 500
#define TEXT_MAX 200

/* ---- In a database ------------------------------------------------------------------------ */

/* README shows these statements; unit_readme.c compares them. */
#define CREATE_SQL "ALTER TABLE job ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;"
#define UPDATE_SQL "UPDATE job SET state = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2;"
#define UNFENCED_SQL "UPDATE job SET state = ?1, fence = ?2 WHERE id = ?3;"

struct writer {
	const char *url;
	const char *database;
	const char *state;
	const char *update;
};

/* Run SQL, one statement or dot-command a line; return the last line that it printed. */
static const char *sql(const char *database, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static const char *sql(const char *database, const char *fmt, ...)
{
	static char line[TEXT_MAX];
	char script[300], printed[300], text[TEXT_MAX];
	va_list args;
	FILE *file;

	snprintf(script, sizeof(script), "%s.%d.sql", database, (int)getpid());
	snprintf(printed, sizeof(printed), "%s.%d.out", database, (int)getpid());
	ck_assert((file = fopen(script, "we")) != NULL);
	va_start(args, fmt);
	vfprintf(file, fmt, args);
	va_end(args);
	fputc('\n', file);
	fclose(file);
	ck_assert(
		!shell("sqlite3 -bail -cmd '.timeout 5000' %s <%s >%s", database, script, printed));
	line[0] = '\0';
	ck_assert((file = fopen(printed, "re")) != NULL);
	while (fgets(text, sizeof(text), file))
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
	fclose(file);
	return line;
}

static void make_table(const char *database)
{
	sql(database,
	    "CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT);\n"
	    "INSERT INTO job VALUES (7, 'new');\n%s",
	    CREATE_SQL);
}

/* Run a holder's statement; return the number of rows that it changed. */
static const char *update_row(const char *database, const char *update, const char *state,
                              uint64_t fence)
{
	return sql(database,
	           ".parameter set ?1 \"'%s'\"\n.parameter set ?2 %" PRIu64
	           "\n.parameter set ?3 7\n%s\nSELECT changes();",
	           state, fence, update);
}

/* Acquire the lock and print its fence; on a line of input write, and print the number of rows
 * changed. */
static int write_row(void *arg, int in, int out)
{
	const struct writer *writer = arg;
	lk_client *client = client_at(writer->url);
	lk_lock *lock = lock_leased(client, "job 7", LEASE_MS);
	uint64_t fence;

	OK(lk_lock_acquire(lock, 10000, &fence));
	line_write(out, "%" PRIu64, fence);
	line_read(in, 10000);
	line_write(out, "%s", update_row(writer->database, writer->update, writer->state, fence));
	line_write(out, "%s", lk_err_name(lk_lock_release(lock)));
	lk_client_close(client);
	return 0;
}

static uint64_t fence_said(struct process *process)
{
	const char *line = line_read(process->out, 10000);

	ck_assert(line != NULL);
	return strtoull(strncmp(line, "fence ", 6) ? line : line + 6, NULL, 10);
}

#define SAYS(process, expected)                                                                    \
	do {                                                                                       \
		const char *says_line_ = line_read((process)->out, 10000);                         \
		ck_assert_str_eq(says_line_ ? says_line_ : "(nothing)", expected);                 \
	} while (0)

/* Stop one holder past its lease; another writes, then the first resumes and writes.  Return the
 * content of the database. */
static void write_late(const char *update, const char *late_changes, const char *expected)
{
	struct test_server server;
	char folder[200], database[256];
	struct writer first = {.state = "by the first", .update = update}, second = first;
	struct process late, prompt;
	uint64_t late_fence, prompt_fence;

	server_start(&server, NULL);
	folder_make(folder, sizeof(folder));
	snprintf(database, sizeof(database), "%s/jobs.db", folder);
	make_table(database);
	first.url = second.url = server.url;
	first.database = second.database = database;
	second.state = "by the second";

	process_start(&late, write_row, &first);
	late_fence = fence_said(&late);
	process_pause(&late);
	process_start(&prompt, write_row, &second);
	prompt_fence = fence_said(&prompt);
	ck_assert_uint_gt(prompt_fence, late_fence);
	line_write(prompt.in, "write");
	SAYS(&prompt, "1");
	SAYS(&prompt, "LK_OK");

	process_continue(&late);
	line_write(late.in, "write");
	SAYS(&late, late_changes);
	SAYS(&late, "LK_ELOST");
	ck_assert(process_succeeded(&late, 5000));
	ck_assert(process_succeeded(&prompt, 5000));
	ck_assert_str_eq(sql(database, "SELECT state FROM job WHERE id = 7;"), expected);
	server_stop(&server);
}

TEST(database_refuses_the_write_of_a_late_holder)
{
	write_late(UPDATE_SQL, "0", "by the second");
}

TEST(database_without_the_fence_takes_it)
{
	write_late(UNFENCED_SQL, "1", "by the first");
}

TEST(database_takes_several_writes_of_one_hold)
{
	struct test_server server;
	char folder[200], database[256];
	lk_client *client;
	lk_lock *lock;

	server_start(&server, NULL);
	folder_make(folder, sizeof(folder));
	snprintf(database, sizeof(database), "%s/jobs.db", folder);
	make_table(database);
	client = client_at(server.url);
	lock = lock_named(client, "job 7");
	OK(lk_lock_acquire(lock, 1000, NULL));
	for (int i = 0; i < 2; i++)
		ck_assert_str_eq(update_row(database, UPDATE_SQL, "new", hold_of(lock).fence), "1");
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	server_stop(&server);
}

/* ---- In a file ---------------------------------------------------------------------------- */

struct program {
	const char *url;
	const char *path;
};

static int run_example(void *arg, int in, int out)
{
	const struct program *program = arg;
	char name[] = "fenced_file", url[200], path[256];
	char *argv[] = {name, url, path, NULL};
	int status;

	snprintf(url, sizeof(url), "%s", program->url);
	snprintf(path, sizeof(path), "%s", program->path);
	dup2(in, 0);
	dup2(out, 1);
	status = fenced_file_main(3, argv);
	fflush(stdout);
	return status;
}

static void expect_file(const char *path, uint64_t fence, const char *text)
{
	char expected[TEXT_MAX], found[TEXT_MAX] = "";
	FILE *file = fopen(path, "re");
	size_t len;

	ck_assert(file != NULL);
	len = fread(found, 1, sizeof(found) - 1, file);
	found[len] = '\0';
	fclose(file);
	snprintf(expected, sizeof(expected), "%" PRIu64 "\n%s\n", fence, text);
	ck_assert_str_eq(found, expected);
}

TEST(file_refuses_the_write_of_a_late_holder)
{
	struct test_server server;
	char folder[200], path[256];
	struct program program = {.path = path};
	struct process late, prompt;
	uint64_t late_fence, prompt_fence;
	int status;

	server_start(&server, NULL);
	program.url = server.url;
	folder_make(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/report", folder);

	process_start(&late, run_example, &program);
	late_fence = fence_said(&late);
	process_pause(&late);
	process_start(&prompt, run_example, &program);
	prompt_fence = fence_said(&prompt);
	ck_assert_uint_gt(prompt_fence, late_fence);
	line_write(prompt.in, "by the second");
	SAYS(&prompt, "written");
	ck_assert(process_succeeded(&prompt, 5000));
	expect_file(path, prompt_fence, "by the second");

	process_continue(&late);
	line_write(late.in, "by the first");
	SAYS(&late, "refused");
	SAYS(&late, "the lock was lost: expired");
	status = process_wait(&late, 5000);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	expect_file(path, prompt_fence, "by the second");
	server_stop(&server);
}

TEST(file_takes_what_each_holder_in_turn_writes)
{
	struct test_server server;
	char folder[200], path[256], text[20];
	struct program program = {.path = path};
	uint64_t last = 0;

	server_start(&server, NULL);
	program.url = server.url;
	folder_make(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/report", folder);
	for (int i = 0; i < 3; i++) {
		struct process process;
		uint64_t fence;

		process_start(&process, run_example, &program);
		fence = fence_said(&process);
		ck_assert_uint_gt(fence, last);
		last = fence;
		snprintf(text, sizeof(text), "turn %d", i);
		line_write(process.in, "%s", text);
		SAYS(&process, "written");
		ck_assert(process_succeeded(&process, 5000));
		expect_file(path, fence, text);
	}
	server_stop(&server);
}
