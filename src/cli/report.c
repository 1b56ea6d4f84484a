/* SPDX-License-Identifier: MIT
 * --report: the outcome as one JSON object. */
#include "report.h"

#include "say.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

bool report_open(struct report *report, const char *path)
{
	memset(report, 0, sizeof(*report));
	report->command_status = -1;
	if (!path)
		return true;
	report->file = fopen(path, "we");
	return report->file != NULL;
}

int report_fd(const struct report *report)
{
	return report->file ? fileno(report->file) : -1;
}

void report_write(struct report *report)
{
	FILE *file = report->file;
	bool failed;

	if (!file)
		return;
	report->file = NULL;
	fputs("{\"outcome\":", file);
	json_string(file, report->outcome);
	fprintf(file, ",\"status\":%d,\"command_status\":", report->status);
	if (report->command_status >= 0)
		fprintf(file, "%d", report->command_status);
	else
		fputs("null", file);
	fputs(",\"reason\":", file);
	if (report->reason)
		json_string(file, report->reason);
	else
		fputs("null", file);
	fputs(",\"fence\":", file);
	if (report->fence)
		fprintf(file, "%" PRIu64, report->fence);
	else
		fputs("null", file);
	fprintf(file, ",\"waited_seconds\":%" PRId64 ".%03d,\"held_seconds\":%" PRId64 ".%03d}\n",
	        report->waited_ms / 1000, (int)(report->waited_ms % 1000), report->held_ms / 1000,
	        (int)(report->held_ms % 1000));
	failed = ferror(file);
	if (fclose(file) || failed)
		say("cannot write the report: %s", strerror(errno));
}
