/* SPDX-License-Identifier: MIT
 * Whether there is a connection to the store, and if not, since when and why. */
#include "outage.h"

#include "clock.h"
#include "say.h"
#include "signals.h"

#include <stdio.h>
#include <string.h>

/* Shorter outages are not reported. */
#define REPORT_NS (5000 * MS)

void outage_init(struct outage *outage, int64_t command_timeout_ms, bool quiet, bool verbose)
{
	memset(outage, 0, sizeof(*outage));
	pthread_mutex_init(&outage->mutex, NULL);
	outage->since_ns = clock_ns();
	outage->silent_ns = command_timeout_ms * MS;
	outage->quiet = quiet;
	outage->verbose = verbose;
}

static void set_connected(struct outage *outage)
{
	outage->connected = outage->met = true;
	outage->reported = false;
	outage->why[0] = 0;
}

static void note_refusal(struct outage *outage, const char *why)
{
	pthread_mutex_lock(&outage->mutex);
	snprintf(outage->refusal, sizeof(outage->refusal), "%s", why);
	pthread_mutex_unlock(&outage->mutex);
}

void outage_opened(struct outage *outage)
{
	pthread_mutex_lock(&outage->mutex);
	if (!outage->met)
		set_connected(outage);
	pthread_mutex_unlock(&outage->mutex);
	signals_wake();
}

void outage_ended(struct outage *outage)
{
	pthread_mutex_lock(&outage->mutex);
	set_connected(outage);
	pthread_mutex_unlock(&outage->mutex);
	signals_wake();
}

/* There is no connection.  lost: there was one until now. */
static void disconnected(struct outage *outage, const char *why, bool lost)
{
	bool is_new;

	pthread_mutex_lock(&outage->mutex);
	is_new = outage->connected;
	/* The first loss may be logged before outage_opened(). */
	if (outage->connected || (lost && !outage->met)) {
		/* A connection that timed out was silent for a command timeout before; a member of
		 * etcd that says "no leader" has waited for one before it does. */
		bool silent = strstr(why, ": no response ") || strstr(why, "timed out") ||
		              strstr(why, "no leader");
		outage->connected = false;
		outage->met = true;
		outage->since_ns = clock_ns() - (silent ? outage->silent_ns : 0);
	}
	is_new |= strcmp(outage->why, why) != 0;
	snprintf(outage->why, sizeof(outage->why), "%s", why);
	pthread_mutex_unlock(&outage->mutex);
	if (is_new)
		signals_wake();
}

void outage_failed(struct outage *outage, const char *why)
{
	disconnected(outage, why, false);
}

/* The text after the head, NULL if the line begins otherwise. */
static const char *after(const char *line, const char *head)
{
	size_t len = strlen(head);

	return strncmp(line, head, len) ? NULL : line + len;
}

static bool ends_with(const char *line, const char *tail)
{
	size_t len = strlen(line), tail_len = strlen(tail);

	return len >= tail_len && !strcmp(line + len - tail_len, tail);
}

/* Remove that server from the list of those that were not connected yet. */
static void strike_out(char *list, const char *server, size_t len)
{
	char *at = list;

	while (*at) {
		size_t own = strcspn(at, ",");
		char *next = at + own + strspn(at + own, ", ");

		if (own == len && !memcmp(at, server, len)) {
			memmove(at, next, strlen(next) + 1);
			if (!*at && at > list)
				at[-2] = 0; /* the comma */
			return;
		}
		at = next;
	}
}

/* A line about one server of several.  Wake the thread that asks the client what it means. */
static void note_member(struct outage *outage, const char *line)
{
	static const char connected[] = ": connected";
	const char *why = after(line, "cannot connect: ");

	pthread_mutex_lock(&outage->mutex);
	if (why && !outage->connected)
		snprintf(outage->why, sizeof(outage->why), "%s", why);
	if (ends_with(line, connected))
		strike_out(outage->new, line, strlen(line) - (sizeof(connected) - 1));
	pthread_mutex_unlock(&outage->mutex);
	signals_wake();
}

/* What breaks a promise of the command is written without -v, too, but once. */
static bool is_grave(struct outage *outage, const char *line)
{
	bool is_new;

	if (!strstr(line, " may end a renewed lease early "))
		return false;
	pthread_mutex_lock(&outage->mutex);
	is_new = !outage->warned;
	outage->warned = true;
	pthread_mutex_unlock(&outage->mutex);
	return is_new;
}

void outage_log(void *arg, lk_log_level level, const char *line)
{
	struct outage *outage = arg;
	const char *why;

	(void)level;
	if ((why = after(line, "cannot renew: ")))
		note_refusal(outage, why);
	else if (outage->in_quorum)
		note_member(outage, line);
	else if ((why = after(line, "connection lost: ")))
		disconnected(outage, why, true);
	else if ((why = after(line, "cannot connect: ")))
		disconnected(outage, why, false);
	else if (ends_with(line, ": connected"))
		outage_ended(outage);
	if (outage->verbose || is_grave(outage, line))
		say("%s", line);
}

bool outage_lasts(struct outage *outage)
{
	bool lasts;

	pthread_mutex_lock(&outage->mutex);
	lasts = !outage->connected;
	pthread_mutex_unlock(&outage->mutex);
	return lasts;
}

bool outage_is_young(struct outage *outage)
{
	bool young;

	pthread_mutex_lock(&outage->mutex);
	young = !outage->connected && outage->met &&
	        clock_ns() - outage->since_ns < outage->silent_ns;
	pthread_mutex_unlock(&outage->mutex);
	return young;
}

const char *outage_why(struct outage *outage, char why[OUTAGE_WHY_SIZE])
{
	pthread_mutex_lock(&outage->mutex);
	memcpy(why, outage->why, OUTAGE_WHY_SIZE);
	pthread_mutex_unlock(&outage->mutex);
	return why;
}

const char *outage_cause(struct outage *outage, char why[OUTAGE_WHY_SIZE])
{
	pthread_mutex_lock(&outage->mutex);
	memcpy(why, outage->connected ? outage->refusal : outage->why, OUTAGE_WHY_SIZE);
	pthread_mutex_unlock(&outage->mutex);
	return why;
}

const char *outage_new(struct outage *outage, char servers[OUTAGE_WHY_SIZE])
{
	pthread_mutex_lock(&outage->mutex);
	memcpy(servers, outage->new, OUTAGE_WHY_SIZE);
	pthread_mutex_unlock(&outage->mutex);
	return servers;
}

int64_t outage_due_ns(struct outage *outage)
{
	int64_t due_ns = NEVER;

	pthread_mutex_lock(&outage->mutex);
	if (!outage->connected && !outage->reported && !outage->quiet && outage->why[0])
		due_ns = outage->since_ns + REPORT_NS;
	pthread_mutex_unlock(&outage->mutex);
	return due_ns;
}

void outage_report(struct outage *outage)
{
	char why[OUTAGE_WHY_SIZE];

	pthread_mutex_lock(&outage->mutex);
	outage->reported = true;
	pthread_mutex_unlock(&outage->mutex);
	say("waiting for %s%s", outage->in_quorum ? "a majority: " : "", outage_why(outage, why));
}
