/* SPDX-License-Identifier: MIT
 * What all verbs of the command promise, a row a verb: wrong usage, statuses, waits, signals,
 * reports, the environment, names of other kinds. */
#include "command_server.h"
#include "process.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Verbs that run a command, each with a name of its own. */
struct runner {
	const char *verb;
	const char *name;
	const char *nested; /* the message if one runs below itself; NULL = it holds nothing */
};
static const struct runner runners[] = {
	{"lock", "a", "held by the command that runs this one"},
	{"sem --permits 1", "b", "the commands that run this one hold 1 of its 1 permits"},
	{"rate --limit 100 --per 0.1", "c", NULL},
	{NULL, NULL, NULL},
};

/* Verbs that wait. */
static const struct waiter {
	const char *name;
	const char *fill; /* makes the others wait, and ... */
	bool runs_on;     /* ... does so until it ends */
	const char *verb; /* waits */
	const char *tail; /* what follows the name */
	const char *busy; /* the message, with the name */
	bool counted;     /* show counts its waiters */
} waiters[] = {
	{"a", "lock a sleep 97", true, "lock", "echo no", "cannot acquire \"a\": held by ", true},
	{"b", "sem --permits 1 b sleep 97", true, "sem --permits 1", "echo no",
         "cannot acquire \"b\": 0 of 1 free, held by ", true},
	{"c", "rate --limit 1 --per 60 c", false, "rate --limit 1 --per 60", "echo no",
         "cannot acquire \"c\": ", true},
	{"d", "rate --limit 1 --per 60 d", false, "rate --limit 1 --per 60", "",
         "cannot acquire \"d\": ", true},
	{"e", "latch set -q e 1", false, "latch wait", "", "latch \"e\" is not open\n", false},
	{NULL, NULL, false, NULL, NULL, NULL, false},
};

static struct command cmd;

static void fill(const struct waiter *waiter)
{
	static struct command fillers[sizeof(waiters) / sizeof(*waiters)];

	if (waiter->runs_on)
		command_hold(&fillers[waiter - waiters], "%s", waiter->fill);
	else
		RUNS_LINE(0, &cmd, "%s", waiter->fill);
}

/* ---- Wrong usage -------------------------------------------------------------------------- */

static void check_usage(const char *line)
{
	int status = command_run_line(&cmd, "%s", line);

	ck_assert_msg(status == 64, "%s: status %d: %s", line, status, cmd.err);
	ck_assert_msg(!strncmp(cmd.err, "latchkey: ", 10), "%s: %s", line, cmd.err);
	ck_assert_msg(!cmd.out[0], "%s: %s", line, cmd.out);
}

static const char *const wrong[] = {"",
                                    "lock a",
                                    "lock a -c",
                                    "lock a -c true more",
                                    "lock '' true",
                                    "lock a -x",
                                    "lock -x a true",
                                    "lock --leas 5 a true",
                                    "lock --lease 0.01 a true",
                                    "lock --lease 5s a true",
                                    "lock --fixed=1 a true",
                                    "lock --url '' a true",
                                    "lock --url ftp://x a true",
                                    "lock --on-lost=maybe a true",
                                    "lock -q -v a true",
                                    "lock --json a true",
                                    "--json lock a true",
                                    "lock --permits 3 a true",
                                    "lock -k 3 a true",
                                    "lock --resize a true",
                                    "lock --per 1 a true",
                                    "lock --id x a true",
                                    "sem a true",
                                    "sem --permits 3",
                                    "sem --permits 3 a",
                                    "sem --permits",
                                    "sem --permits 3 -k 4 a true",
                                    "sem --limit 3 a true",
                                    "sem --permits 3 --per 1 a true",
                                    "sem --permits 5 --slack 1 a true",
                                    "rate a",
                                    "rate --limit 5 --per 1",
                                    "rate --limit 5 a true",
                                    "rate --per 5 a true",
                                    "rate --limit 5 --per 1 a --",
                                    "rate --limit 5 --per 1 a -c",
                                    "rate --limit 5 --per 0.09 a",
                                    "rate --limit 5 --per 86400.001 a",
                                    "rate --limit 5 --per 1 -k 6 a",
                                    "rate --limit 5 --per 1 --lease 5 a",
                                    "rate --limit 5 --per 1 --fixed a",
                                    "rate --limit 5 --per 1 --max-hold=5 a",
                                    "rate --limit 5 --per 1 --on-lost=kill a",
                                    "rate --permits 5 --per 1 a",
                                    "rate --limit 5 --per 1 --slack=86400.1 a",
                                    "rate --limit 5 --per 86399 --slack=1.1 a",
                                    "rate --limit 5 --slack 1 a",
                                    "latch",
                                    "latch open a",
                                    "latch set a",
                                    "latch set a 1 2",
                                    "latch set '' 1",
                                    "latch set --ttl 0.999 a 1",
                                    "latch set --open-ttl 86400001 a 1",
                                    "latch set -n a 1",
                                    "latch reset a",
                                    "latch down --id '' a",
                                    "latch down --id",
                                    "latch wait a b",
                                    "latch wait --ttl 5 a",
                                    "latch wait --id x a",
                                    "latch wait --label x a",
                                    "latch rm --json a",
                                    "show -n",
                                    "show a b",
                                    "show --absent-is-open a",
                                    "local",
                                    "local restart",
                                    "local start now",
                                    "doctor a",
                                    NULL};
/* Verbs that need a name. */
static const char *const nameless[] = {"lock",
                                       "sem --permits 1",
                                       "rate --limit 1 --per 1",
                                       "latch set",
                                       "latch reset",
                                       "latch down",
                                       "latch wait",
                                       "latch show",
                                       "latch rm",
                                       "break",
                                       NULL};
static const char *const wrong_waits[] = {"-n -w 1",   "-w -1",  "-w ''", "-w .", "-w 1e3",
                                          "-w 1e9999", "-E 256", "-E ''", NULL};

TEST(wrong_usage_is_64)
{
	char text[300];

	command_setup(NULL);
	for (const char *const *line = wrong; *line; line++)
		check_usage(*line);
	for (const char *const *verb = nameless; *verb; verb++)
		check_usage(*verb);
	for (const struct waiter *waiter = waiters; waiter->name; waiter++) {
		for (const char *const *option = wrong_waits; *option; option++) {
			snprintf(text, sizeof(text), "%s %s a %s", waiter->verb, *option,
			         waiter->tail);
			check_usage(text);
		}
	}
	/* Longer than a step's name may be. */
	snprintf(text, sizeof(text), "latch down --id %0257d a", 0);
	check_usage(text);
	check_usage("sem --permits 3 -k 4 a true");
	ck_assert_ptr_nonnull(strstr(cmd.err, "-k: must not exceed --permits"));
	check_usage("rate --limit 5 --per 86399 --slack 1.1 a");
	ck_assert_ptr_nonnull(strstr(cmd.err, "--per plus --slack"));
	check_usage("rate --limit 5 --per 1 --slack x a");
	ck_assert_ptr_nonnull(strstr(cmd.err, "--slack: must be "));
}

/* Each place of a number: which numbers beyond those that are wrong everywhere it refuses. */
TEST_LIMIT(wrong_number_is_64, 40)
{
	static const char *const anywhere[] = {"-1", "1e9999", "''", "x", "'3 '", NULL};
	static const char *const beyond[] = {"0", "2147483648", "18446744073709551617", "3.5"};
	static const struct place {
		const char *before, *after;
		int beyond;
	} places[] = {
		{"sem --permits", "a true", 4},
		{"sem --permits 3 -k", "a true", 4},
		{"rate --per 1 --limit", "a", 4},
		{"rate --per 1 --limit 5 -k", "a", 4},
		{"rate --limit 5 --per", "a", 3},
		{"rate --limit 5 --per 1 --slack", "a", 0},
		{"latch set a", "", 0},
		{"latch set a --", "", 0},
		{"latch reset a", "", 0},
		{"latch down a", "", 3},
		{"latch set --ttl", "a 1", 3},
		{"latch set --open-ttl", "a 1", 3},
		{NULL, NULL, 0},
	};
	char line[200];

	command_setup(NULL);
	for (const struct place *place = places; place->before; place++) {
		for (const char *const *bad = anywhere; *bad; bad++) {
			snprintf(line, sizeof(line), "%s %s %s", place->before, *bad, place->after);
			check_usage(line);
		}
		for (int i = 0; i < place->beyond; i++) {
			snprintf(line, sizeof(line), "%s %s %s", place->before, beyond[i],
			         place->after);
			check_usage(line);
		}
	}
	check_usage("latch set a 2147483648");
	check_usage("latch reset a 2147483648");
}

/* ---- Statuses ----------------------------------------------------------------------------- */

TEST(command_gives_output_and_status)
{
	begin();
	for (const struct runner *runner = runners; runner->verb; runner++) {
		const char *verb = runner->verb, *name = runner->name;
		RUNS_LINE(7, &cmd, "%s %s -c 'echo out; echo err >&2; exit 7'", verb, name);
		ck_assert_str_eq(cmd.out, "out\n");
		ck_assert_str_eq(cmd.err, "err\n");
		RUNS_LINE(0, &cmd, "%s %s true", verb, name);
		RUNS_LINE(75, &cmd, "%s %s -- sh -c 'exit 75'", verb, name);
		RUNS_LINE(143, &cmd, "%s %s -c 'kill -TERM $$'", verb, name);
		ck_assert(WIFEXITED(cmd.status));
		RUNS_LINE(137, &cmd, "%s %s -c 'kill -KILL $$'", verb, name);
		ck_assert_str_eq(cmd.err, "");
		RUNS_LINE(130, &cmd, "%s %s -c 'kill -INT $$'", verb, name);
		ck_assert(WIFSIGNALED(cmd.status));
		RUNS_LINE(127, &cmd, "%s %s /nowhere/at-all", verb, name);
		ck_assert_str_eq(cmd.err, "latchkey: cannot run \"/nowhere/at-all\": No such file "
		                          "or directory\n");
		RUNS_LINE(126, &cmd, "%s %s /etc", verb, name);
		ck_assert_str_eq(cmd.err, "latchkey: cannot run \"/etc\": Permission denied\n");
		ck_assert_int_eq(command_count(), 0);
		/* Standard input passes through; the lock or the permit is free. */
		ck_assert_int_eq(
			shell("test \"$(echo word | latchkey %s -w 1 %s cat)\" = word", verb, name),
			0);
	}
	server_stop(&server);
}

TEST(unreachable_store_is_69_and_says_where)
{
	static const struct use {
		const char *line, *begins;
	} uses[] = {
		{"lock nightly true", "cannot acquire \"nightly\": "},
		{"sem --permits 1 nightly true", "cannot acquire \"nightly\": "},
		{"rate --limit 1 --per 1 nightly", "cannot acquire \"nightly\": "},
		{"latch set nightly 1", "cannot set \"nightly\": "},
		{"latch reset nightly 1", "cannot reset \"nightly\": "},
		{"latch down nightly", "cannot count down \"nightly\": "},
		{"latch wait nightly", "cannot wait for \"nightly\": "},
		{"latch show nightly", ""},
		{"latch rm nightly", "cannot remove \"nightly\": "},
		{"show nightly", ""},
		{"break nightly", ""},
		{NULL, NULL},
	};
	char text[128];
	int port = port_pick();

	command_setup(NULL);
	snprintf(text, sizeof(text), "redis://user:secret@127.0.0.1:%d", port);
	setenv("LATCHKEY_URL", text, 1);
	for (const struct use *use = uses; use->line; use++) {
		RUNS_LINE(69, &cmd, "%s", use->line);
		if (use->begins[0]) {
			snprintf(text, sizeof(text),
			         "latchkey: %s127.0.0.1:%d: connection refused\n", use->begins,
			         port);
			ck_assert_str_eq(cmd.err, text);
		}
		ck_assert_ptr_nonnull(strstr(cmd.err, "127.0.0.1:"));
		ck_assert_ptr_null(strstr(cmd.err, "secret"));
	}
}

/* A name has one kind: the other kinds' verbs refuse it. */
TEST(name_of_another_kind_is_69)
{
	static const struct use {
		const char *name, *line;
	} uses[] = {
		{"a", "lock"},          {"b", "sem --permits 1"}, {"b", "rate --limit 1 --per 1"},
		{"e", "latch wait -n"}, {"e", "latch down"},      {"e", "latch set"},
		{NULL, NULL},
	};

	begin();
	for (const struct waiter *waiter = waiters; waiter->name; waiter++) {
		if (waiter->name[0] == 'c' || waiter->name[0] == 'd')
			continue; /* a rate is a semaphore */
		fill(waiter);
		for (const struct use *use = uses; use->line; use++) {
			bool latch = use->name[0] == 'e', set = strstr(use->line, "set");
			if (!strcmp(use->name, waiter->name))
				continue;
			RUNS_LINE(69, &cmd, "%s %s %s", use->line, waiter->name,
			          set     ? "1"
			          : latch ? ""
			                  : "echo no");
			ck_assert_str_eq(cmd.out, "");
		}
	}
	server_stop(&server);
}

/* ---- Waits -------------------------------------------------------------------------------- */

TEST(busy_is_75_or_the_chosen_status)
{
	begin();
	for (const struct waiter *waiter = waiters; waiter->name; waiter++) {
		const char *verb = waiter->verb, *name = waiter->name, *tail = waiter->tail;
		char expected[100];
		int64_t began;
		fill(waiter);
		RUNS_LINE(75, &cmd, "%s -n %s %s", verb, name, tail);
		ck_assert_str_eq(cmd.out, "");
		snprintf(expected, sizeof(expected), "latchkey: %s", waiter->busy);
		ck_assert_msg(!strncmp(cmd.err, expected, strlen(expected)), "%s, not %s", cmd.err,
		              expected);
		RUNS_LINE(3, &cmd, "%s -nq -E 3 %s %s", verb, name, tail);
		ck_assert_str_eq(cmd.err, "");
		began = now_ms();
		RUNS_LINE(75, &cmd, "%s -w 0.25 %s %s", verb, name, tail);
		ck_assert_int_ge(now_ms() - began, 250);
		ck_assert_int_lt(now_ms() - began, 2000);
		RUNS_LINE(0, &cmd, "-E0 %s -w.1 %s %s", verb, name, tail);
		ck_assert_str_eq(cmd.out, "");
		/* No waiter remains. */
		ck_assert(!waiter->counted || command_waiting_is(name, 0));
	}
	server_stop(&server);
}

TEST(signal_ends_a_wait_and_leaves_nothing)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0};

	begin();
	for (const struct waiter *waiter = waiters; waiter->name; waiter++) {
		fill(waiter);
		for (const int *number = numbers; *number; number++) {
			command_start_line(&cmd, "%s %s %s", waiter->verb, waiter->name,
			                   waiter->tail);
			if (waiter->counted)
				ck_assert(WITHIN(5000, command_waiting_is(waiter->name, 1)));
			else
				ck_assert(!command_wait(&cmd, 400));
			kill(cmd.pid, *number);
			ck_assert_msg(command_wait(&cmd, 5000), "%s: not ended by signal %d",
			              waiter->verb, *number);
			ck_assert_msg(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == *number,
			              "%s: %x %s", waiter->verb, cmd.status, cmd.err);
			ck_assert(!waiter->counted || command_waiting_is(waiter->name, 0));
		}
	}
	server_stop(&server);
}

TEST(nested_command_of_the_same_name_fails_at_once)
{
	begin();
	for (const struct runner *runner = runners; runner->verb; runner++) {
		const char *verb = runner->verb, *name = runner->name;
		int64_t began = now_ms();
		char expected[128];
		if (!runner->nested)
			continue;
		RUNS_LINE(75, &cmd, "%s %s latchkey %s %s true", verb, name, verb, name);
		ck_assert_int_lt(now_ms() - began, 5000);
		snprintf(expected, sizeof(expected), "latchkey: cannot acquire \"%s\": %s\n", name,
		         runner->nested);
		ck_assert_str_eq(cmd.err, expected);
		RUNS_LINE(9, &cmd, "%s %s -c 'latchkey lock other latchkey %s -E9 %s true'", verb,
		          name, verb, name);
		RUNS_LINE(0, &cmd, "%s %s latchkey lock other echo in", verb, name);
		ck_assert_str_eq(cmd.out, "in\n");
	}
	server_stop(&server);
}

/* ---- While the command runs --------------------------------------------------------------- */

TEST(command_sees_name_fence_and_holder)
{
	begin();
	for (const struct runner *runner = runners; runner->verb; runner++) {
		unsigned long long first, second;
		char name[8];
		if (!runner->nested)
			continue;
		snprintf(name, sizeof(name), "%s b", runner->name);
		RUNS_LINE(0, &cmd,
		          "%s '%s' -c 'echo \"$LATCHKEY_NAME|$LATCHKEY_FENCE\"; "
		          "echo \"$LATCHKEY_HOLDER\" | wc -c; "
		          "latchkey show --json \"$LATCHKEY_NAME\" | grep -q "
		          "\"\\\"id\\\":\\\"$LATCHKEY_HOLDER\\\".*\\\"fence\\\":$LATCHKEY_FENCE,\" "
		          "&& echo same'",
		          runner->verb, name);
		ck_assert_msg(!strncmp(cmd.out, name, 3) && cmd.out[3] == '|', "%s", cmd.out);
		ck_assert_ptr_nonnull(strstr(cmd.out, "\nsame\n"));
		ck_assert_int_gt(strtol(strchr(cmd.out, '\n'), NULL, 10), 20);
		first = strtoull(cmd.out + 4, NULL, 10);
		RUNS_LINE(0, &cmd, "%s '%s' -c 'echo $LATCHKEY_FENCE'", runner->verb, name);
		second = strtoull(cmd.out, NULL, 10);
		ck_assert_uint_gt(first, 0);
		ck_assert_uint_gt(second, first);
	}
	server_stop(&server);
}

TEST(min_hold_max_hold_and_fixed_limit_a_hold)
{
	begin();
	for (const struct runner *runner = runners; runner->verb; runner++) {
		const char *verb = runner->verb, *name = runner->name;
		int64_t began = now_ms();
		if (!runner->nested)
			continue;
		RUNS_LINE(79, &cmd, "%s --max-hold 1 %s sleep 96", verb, name);
		ck_assert_int_ge(now_ms() - began, 700);
		ck_assert_int_le(now_ms() - began, 1500);
		ck_assert_ptr_nonnull(strstr(cmd.err, "max-hold"));
		RUNS_LINE(0, &cmd, "%s --fixed --lease 2 %s true", verb, name);
		began = now_ms();
		RUNS_LINE(79, &cmd, "%s --fixed --lease 1 %s sleep 95", verb, name);
		ck_assert_int_le(now_ms() - began, 1300);
		began = now_ms();
		RUNS_LINE(5, &cmd, "%s --min-hold 0.7 %s sh -c 'exit 5'", verb, name);
		ck_assert_int_ge(now_ms() - began, 700);
	}
	server_stop(&server);
}

/* ---- Reports ------------------------------------------------------------------------------ */

static void report_of_holds(const char *verb, const char *name)
{
	RUNS_LINE(79, &cmd, "%s %s -c 'sleep 0.2; exit 79'", verb, name);
	command_check_report("{\"outcome\":\"ended\",\"status\":79,\"command_status\":79,"
	                     "\"reason\":null,\"fence\":1",
	                     "\"held_seconds\":0.");
	RUNS_LINE(79, &cmd, "%s %s -c 'latchkey break -q %s; sleep 9'", verb, name, name);
	command_check_report("{\"outcome\":\"lost\",\"status\":79,\"command_status\":143,"
	                     "\"reason\":\"broken\"",
	                     "");
	RUNS_LINE(75, &cmd, "%s %s latchkey %s %s true", verb, name, verb, name);
	command_check_report("{\"outcome\":\"ended\",\"status\":75,", "");
	/* The report is that of the inner command alone. */
	RUNS_LINE(75, &cmd, "%.*s %s latchkey %s %s true", (int)(strstr(verb, " --report") - verb),
	          verb, name, verb, name);
	command_check_report("{\"outcome\":\"nested\",\"status\":75,", "");
}

static void report_of_waits(const char *verb, const struct waiter *waiter)
{
	RUNS_LINE(75, &cmd, "%s -w 0.25 %s true", verb, waiter->name);
	command_check_report("{\"outcome\":\"busy\",\"status\":75,\"command_status\":null,"
	                     "\"reason\":null,\"fence\":null,\"waited_seconds\":0.2",
	                     "\"held_seconds\":0.000");
	command_start_line(&cmd, "%s %s true", verb, waiter->name);
	ck_assert(WITHIN(5000, command_waiting_is(waiter->name, 1)));
	kill(cmd.pid, SIGTERM);
	ck_assert(command_wait(&cmd, 5000));
	ck_assert(WIFSIGNALED(cmd.status) && WTERMSIG(cmd.status) == SIGTERM);
	command_check_report("{\"outcome\":\"cancelled\",\"status\":143,\"command_status\":null",
	                     "");
}

TEST(report_tells_each_outcome)
{
	char verb[400];

	begin();
	for (const struct runner *runner = runners; runner->verb; runner++) {
		const char *name = runner->name;
		snprintf(verb, sizeof(verb), "%s --report=%s", runner->verb,
		         command_file("report"));
		RUNS_LINE(130, &cmd, "%s %s -c 'kill -INT $$'", verb, name);
		ck_assert(WIFSIGNALED(cmd.status));
		command_check_report("{\"outcome\":\"ended\",\"status\":130,\"command_status\":130,"
		                     "\"reason\":null,\"fence\":",
		                     runner->nested ? ",\"fence\":1" : ",\"fence\":null,");
		RUNS_LINE(127, &cmd, "%s %s /nowhere", verb, name);
		command_check_report("{\"outcome\":\"cannot-run\",\"status\":127,"
		                     "\"command_status\":null,",
		                     "");
		if (runner->nested)
			report_of_holds(verb, name);
		RUNS_LINE(64, &cmd, "%s --report /nowhere/r %s true", runner->verb, name);
	}
	RUNS_LINE(64, &cmd, "sem --permits 2 --report %s b true", command_file("report"));
	command_check_report("{\"outcome\":\"error\",\"status\":64,", "");
	server_stop(&server);
	begin();
	for (const struct waiter *waiter = waiters; waiter->name; waiter++) {
		if (waiter->name[0] > 'c')
			continue;
		fill(waiter);
		snprintf(verb, sizeof(verb), "%s --report=%s", waiter->verb,
		         command_file("report"));
		report_of_waits(verb, waiter);
	}
	/* A turn without a command. */
	RUNS_LINE(0, &cmd, "rate --limit 2 --per 60 --report %s f", command_file("report"));
	command_check_report("{\"outcome\":\"ended\",\"status\":0,\"command_status\":null,", "");
	server_stop(&server);
	for (const struct runner *runner = runners; runner->verb; runner++) {
		RUNS_LINE(69, &cmd, "%s --report %s %s true", runner->verb, command_file("report"),
		          runner->name);
		command_check_report("{\"outcome\":\"unreachable\",\"status\":69,", "");
	}
}
