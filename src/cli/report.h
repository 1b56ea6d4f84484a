/* SPDX-License-Identifier: MIT
 * --report: the outcome as one JSON object. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct report {
	FILE *file;          /* NULL = none wanted */
	const char *outcome; /* "ended", "lost", "busy", "nested", "cancelled", "unreachable",
	                      * "refused", "replicas", "cannot-run", "error" */
	const char *reason;  /* of a loss, NULL = none */
	int status;          /* latchkey's own */
	int command_status;  /* the command's, -1 = it never ran */
	uint64_t fence;      /* 0 = never held */
	int64_t waited_ms;
	int64_t held_ms;
};

/* Open the file at once, so that an error is reported before anything happens. path NULL: no
 * report.  False with errno. */
bool report_open(struct report *report, const char *path);
/* Its descriptor, -1 = no report. */
int report_fd(const struct report *report);
/* Write and close it, once. */
void report_write(struct report *report);

#endif
