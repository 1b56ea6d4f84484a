/* SPDX-License-Identifier: MIT
 * The line that a person at a terminal sees while waiting. */
#include "waitline.h"

#include "clock.h"
#include "say.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FIRST_NS (200 * MS) /* nothing is shown for a short wait */
#define AGAIN_NS (1000 * MS)
#define EXPLAIN_NS (1000 * MS)
#define EXPLAIN_LATE_NS (5000 * MS) /* without a terminal, as for an outage */
#define LINE_SIZE 4096

static const char wipe[] = "\r\033[K";

void waitline_init(struct waitline *line, const struct options *options)
{
	line->options = options;
	line->wanted = !options->quiet && isatty(STDERR_FILENO);
	line->drawn = false;
	line->due_ns = clock_ns() + FIRST_NS;
	line->explain_ns =
		options->quiet ? NEVER : clock_ns() + (line->wanted ? EXPLAIN_NS : EXPLAIN_LATE_NS);
}

int64_t waitline_due(const struct waitline *line)
{
	return line->wanted ? line->due_ns : line->explain_ns;
}

/* Usable columns; the last one stays free, since some terminals wrap there. */
static size_t columns(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2)
		return 79;
	return (size_t)size.ws_col - 1;
}

static void compose(char *text, size_t size, const struct options *options, const char *detail)
{
	char name[NAME_TEXT_SIZE];

	text_escape(name, sizeof(name), options->name, strlen(options->name));
	snprintf(text, size, "waiting for %s%s%s%s",
	         options->verb == VERB_LATCH_WAIT ? "latch " : "", name, *detail ? ": " : "",
	         detail);
}

static void put(const char *text, size_t len)
{
	if (write(STDERR_FILENO, text, len) < 0)
		return;
}

/* A line that stays, once: why nothing is granted although nothing is held, and what to do. */
static void explain_grace(struct waitline *line, const struct hold *hold)
{
	char name[NAME_TEXT_SIZE], grace[160];

	if (!hold->grace_ms)
		return;
	waitline_wipe(line);
	line->due_ns = clock_ns() + AGAIN_NS;
	line->explain_ns = NEVER;
	text_escape(name, sizeof(name), line->options->name, strlen(line->options->name));
	text_grace(grace, sizeof(grace), hold->grace_ms, hold->in_quorum);
	if (hold->in_quorum)
		say("waiting for \"%s\": %s", name, grace);
	else
		say("waiting for \"%s\": %s (if nothing can be held: latchkey grace end, or "
		    "grace=0 in the URL)",
		    name, grace);
}

void waitline_draw(struct waitline *line, struct hold *hold)
{
	char text[LINE_SIZE], detail[1200];
	size_t head = sizeof(wipe) - 1;

	if (!line->wanted && clock_ns() >= line->explain_ns) {
		line->explain_ns = NEVER;
		if (hold_describe(hold, detail, sizeof(detail)))
			explain_grace(line, hold);
	}
	if (!line->wanted || clock_ns() < line->due_ns)
		return;
	line->due_ns = clock_ns() + AGAIN_NS;
	if (tcgetpgrp(STDERR_FILENO) != getpgrp()) {
		line->drawn = false; /* another group has the terminal: there is nothing of ours to
		                      * wipe */
		return;
	}
	if (!hold_describe(hold, detail, sizeof(detail)))
		return;
	if (clock_ns() >= line->explain_ns)
		explain_grace(line, hold);
	memcpy(text, wipe, head);
	compose(text + head, sizeof(text) - head, line->options, detail);
	put(text, head + text_fit(text + head, columns()));
	line->drawn = true;
}

void waitline_wipe(struct waitline *line)
{
	if (line->drawn && tcgetpgrp(STDERR_FILENO) == getpgrp())
		put(wipe, sizeof(wipe) - 1);
	line->drawn = false;
	line->due_ns = clock_ns();
}
