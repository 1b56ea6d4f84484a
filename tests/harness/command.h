/* SPDX-License-Identifier: MIT
 * Run the latchkey command of this build, and find the processes that it left behind. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Path of the command under test. */
const char *command_path(void);

/* Mark the processes of this test, and set their store: LATCHKEY_URL is url, or unset if url is
 * NULL; LATCHKEY_LOCAL_DIR is a folder of the test.  Also put the command's folder first into PATH.
 * Call this first. */
void command_setup(const char *url);
/* A folder of this test, after command_setup(). */
const char *command_folder(void);
/* The path of a file in it; static memory, the last four results stay valid. */
const char *command_file(const char *name);
/* The text of a whole file in it, "" if there is none; static memory. */
const char *command_read(const char *name);

struct command {
	pid_t pid;
	int status; /* the status of waitpid(), once ended */
	char out[16384];
	char err[16384];
};

/* Start a program with its arguments, NULL-ended: {"latchkey", "lock", ...}.  It is killed when the
 * test ends.  Standard output and error go to files. */
void command_start(struct command *command, const char *const *args);
#define START(command, ...) command_start(command, (const char *const[]){__VA_ARGS__, NULL})
/* True when it ended within ms; then status, out and err are set. */
bool command_wait(struct command *command, int64_t ms);
/* The output so far. */
const char *command_err(const struct command *command);

/* Run to the end; return the exit status, or 128 + n for signal n. */
int command_run(struct command *command, const char *const *args);
#define RUN(command, ...) command_run(command, (const char *const[]){__VA_ARGS__, NULL})
/* The same, and fail the test if the status differs. */
#define RUNS(status, command, ...) ck_assert_int_eq(RUN(command, __VA_ARGS__), status)

/* The same for the arguments after "latchkey" as a line of a shell, made as by printf(). */
void command_start_line(struct command *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int command_run_line(struct command *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Start such a line, which runs sleep(1), and wait until that runs: it holds what it asked for. */
void command_hold(struct command *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
#define RUNS_LINE(status, ...) ck_assert_int_eq(command_run_line(__VA_ARGS__), status)

/* Does "latchkey show" count that many waiters for the name? */
bool command_waiting_is(const char *name, int count);

/* The file "report" is valid JSON, begins so, and contains this. */
void command_check_report(const char *begins, const char *contains);

/* The number of living processes with this test's mark in their environment, without this one. */
int command_count(void);
/* The same for one program, such as "sleep". */
int command_count_of(const char *program);
/* Send a signal to all processes of one program; return how many there are. */
int command_signal_of(const char *program, int number);
/* The first child of a process, 0 = none. */
pid_t command_child(pid_t parent);

#endif
