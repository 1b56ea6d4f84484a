/* SPDX-License-Identifier: MIT
 * judge [OPTION=NUMBER...] DIR: judge the records of a round of chaos.  Options: min-rate,
 * min-faults, slack-ms, quiet-wake-ms, command-ms, evidence.  Status 0 = good, 1 = violations, 2 =
 * cannot read. */
#include "chaos/judge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file of the folder, with a NUL after it; NULL if it is missing. */
static char *read_text(const char *folder, const char *name, size_t *len)
{
	char path[4096];
	struct stat about;
	char *text = NULL;
	FILE *file;

	*len = 0;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return NULL;
	if (!fstat(fileno(file), &about))
		text = malloc((size_t)about.st_size + 1);
	if (text) {
		*len = fread(text, 1, (size_t)about.st_size, file);
		text[*len] = 0;
	}
	fclose(file);
	return text;
}

static bool take_option(struct judge_options *options, const char *word)
{
	const char *value = strchr(word, '=');
	size_t len = value ? (size_t)(value - word) : 0;
	const struct {
		const char *name;
		int64_t *ms;
	} times[] = {{"slack-ms", &options->slack_ms},
	             {"quiet-wake-ms", &options->quiet_wake_ms},
	             {"command-ms", &options->command_ms}};

	if (!value)
		return false;
	value++;
	if (len == 8 && !strncmp(word, "min-rate", len))
		options->min_rate = strtod(value, NULL);
	else if (len == 10 && !strncmp(word, "min-faults", len))
		options->min_faults = atoi(value);
	else if (len == 8 && !strncmp(word, "evidence", len))
		options->evidence = atoi(value);
	else
		len = 0;
	for (size_t i = 0; !len && i < sizeof(times) / sizeof(*times); i++) {
		if (strncmp(word, times[i].name, strlen(times[i].name)) != 0)
			continue;
		*times[i].ms = strtoll(value, NULL, 10);
		len = 1;
	}
	return len != 0;
}

int main(int argc, char **argv)
{
	struct judge_options options = judge_defaults;
	struct judge_input input = {0};
	struct judge_verdict verdict;
	const char *folder = argc > 1 ? argv[argc - 1] : "";
	char *names, *nemesis, *final;
	size_t len;
	bool ok;

	for (int i = 1; i < argc - 1; i++)
		if (!take_option(&options, argv[i]))
			folder = "";
	if (!*folder) {
		fputs("usage: judge [OPTION=NUMBER...] DIR\n", stderr);
		return 2;
	}
	if (!history_read(&input.history, folder)) {
		fprintf(stderr, "judge: %s: %s\n", folder, strerror(errno));
		return 2;
	}
	input.names = names = read_text(folder, "names.txt", &len);
	input.nemesis = nemesis = read_text(folder, "nemesis.log", &len);
	input.final = final = read_text(folder, "final.txt", &len);
	input.monitor = read_text(folder, "monitor.log", &input.monitor_len);
	ok = judge_round(&input, &options, &verdict, stdout);
	history_free(&input.history);
	free(names);
	free(nemesis);
	free(final);
	free(input.monitor);
	if (!ok)
		return 2;
	return verdict.violations ? 1 : 0;
}
