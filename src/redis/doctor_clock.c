/* SPDX-License-Identifier: MIT
 * Topic "clock" of lk_doctor(): the time on the server's clock, and its speed.
 *
 * A holder trusts its lease for 1 % and 2 ms less than its length (lk__margin_ns()), measured by
 * its own clock; the server expires it by the server's.  So leases expire too early if the server's
 * clock is more than 1 % faster.
 *
 * One reading shows only that the server read its clock between the request and the reply.  Two
 * readings bound the speed from both sides: while the server's clock advanced by the difference of
 * its times, ours advanced by at least the time from the first reply to the second request, and at
 * most from the first request to the second reply.  No average is used: the true speed, if it is
 * constant, lies within the bounds of every pair. */
#include "doctor.h"

#include "../base/os.h"
#include "../base/text.h"

#include <stdlib.h>
#include <time.h>

#define US_PER_S INT64_C(1000000)
#define READINGS_MIN 3
#define READINGS_MAX 100
#define PAUSE_NS (10 * LK__MS)
#define TIME_NS (1000 * LK__MS) /* no reading begins later, except the first READINGS_MIN */
#define ERROR_ENOUGH 0.001      /* the speed is known well enough to stop */
#define DIFFERENCE_WARN_US US_PER_S

/* ---- The estimate ------------------------------------------------------------------------- */

/* Narrow the bounds by two readings. */
static void narrow(struct lk__clock_rate *rate, const struct lk__clock_reading *first,
                   const struct lk__clock_reading *second)
{
	double least = (double)(second->sent_ns - first->received_ns);
	double most = (double)(second->received_ns - first->sent_ns);
	/* Each time is truncated to a microsecond. */
	double server_least = (double)(second->server_us - first->server_us - 1) * 1000;
	double server_most = (double)(second->server_us - first->server_us + 1) * 1000;
	double low, high;

	if (least <= 0)
		return;
	low = server_least / (server_least >= 0 ? most : least);
	high = server_most / (server_most >= 0 ? least : most);
	if (low > rate->low)
		rate->low = low;
	if (high < rate->high)
		rate->high = high;
}

struct lk__clock_rate lk__clock_rate(const struct lk__clock_reading *readings, size_t count)
{
	struct lk__clock_rate rate = {-LK__CLOCK_RATE_MAX, LK__CLOCK_RATE_MAX};

	for (size_t second = 1; second < count; second++)
		for (size_t first = 0; first < second; first++)
			narrow(&rate, &readings[first], &readings[second]);
	return rate;
}

double lk__clock_error(const struct lk__clock_rate *rate)
{
	return (rate->high - rate->low) / 2;
}

enum lk__clock_verdict lk__clock_judge(const struct lk__clock_rate *rate)
{
	if (rate->low > rate->high)
		return LK__CLOCK_UNEVEN;
	if (rate->low > LK__CLOCK_FASTEST)
		return LK__CLOCK_FAST; /* however large the error */
	if (lk__clock_error(rate) > LK__CLOCK_ERROR_MAX)
		return LK__CLOCK_UNKNOWN;
	return rate->high > LK__CLOCK_FASTEST ? LK__CLOCK_DOUBTFUL : LK__CLOCK_FITS;
}

/* ---- Readings ----------------------------------------------------------------------------- */

/* The state of all readings. */
struct clocks {
	struct lk__clock_reading readings[READINGS_MAX];
	size_t count;
	int64_t difference_us; /* the server's clock minus ours, by the quickest reading */
	int64_t error_us;      /* of that */
};

bool lk__doctor_time(const struct lk__resp *resp, int64_t *us)
{
	int64_t s = 0, rest = 0;

	if (resp->type != LK__RESP_ARRAY || resp->len != 2 || !resp->elements[0]->str ||
	    !resp->elements[1]->str ||
	    !lk__parse_i64(resp->elements[0]->str, resp->elements[0]->len, 0,
	                   INT64_MAX / US_PER_S - 1, &s) ||
	    !lk__parse_i64(resp->elements[1]->str, resp->elements[1]->len, 0, US_PER_S, &rest))
		return false;
	*us = s * US_PER_S + rest;
	return true;
}

/* Take one more reading.  False when it failed, which is reported. */
static bool read_clock(struct lk__doctor *doctor, struct clocks *clocks)
{
	const char *const argv[] = {"TIME"};
	struct lk__clock_reading *reading = &clocks->readings[clocks->count];
	struct timespec wall;
	struct lk__resp *resp;
	int64_t half_us;
	bool usable;

	/* The only place that reads a wall clock: the comparison needs it. */
	clock_gettime(CLOCK_REALTIME, &wall);
	reading->sent_ns = lk__now_ns();
	resp = lk__doctor_call(doctor, 1, argv);
	reading->received_ns = lk__now_ns();
	usable = lk__doctor_usable(doctor, "clock", "+time", resp);
	if (usable && !lk__doctor_time(resp, &reading->server_us)) {
		lk__doctor_report(doctor, LK_FIT_WARN, "clock", "",
		                  "cannot tell: unexpected response to TIME");
		usable = false;
	}
	lk__resp_free(resp);
	if (!usable)
		return false;
	half_us = (reading->received_ns - reading->sent_ns) / 2000;
	if (!clocks->count || half_us < clocks->error_us) {
		clocks->error_us = half_us;
		clocks->difference_us =
			reading->server_us - wall.tv_sec * US_PER_S - wall.tv_nsec / 1000 - half_us;
	}
	clocks->count++;
	return true;
}

/* Wait for the next reading.  False when none is needed (the speed is known) or time is up. */
static bool await_next(const struct clocks *clocks, int64_t end_ns)
{
	const struct lk__clock_reading *last = &clocks->readings[clocks->count - 1];
	struct lk__clock_rate rate = lk__clock_rate(clocks->readings, clocks->count);
	int64_t next_ns = lk__now_ns() + PAUSE_NS;

	if (clocks->count < READINGS_MIN)
		return true;
	if (clocks->count == READINGS_MAX || lk__clock_error(&rate) <= ERROR_ENOUGH ||
	    next_ns + (last->received_ns - last->sent_ns) > end_ns)
		return false;
	lk__poll2(-1, 0, -1, next_ns);
	return true;
}

/* ---- Findings ----------------------------------------------------------------------------- */

static void report_difference(struct lk__doctor *doctor, const struct clocks *clocks)
{
	int64_t by_us = llabs(clocks->difference_us);

	if (by_us - clocks->error_us > DIFFERENCE_WARN_US)
		lk__doctor_report(doctor, LK_FIT_WARN, "clock", "set both clocks right (NTP)",
		                  "the server's is %.1f s %s this machine's: after a failover to "
		                  "another server, fences may go back",
		                  (double)by_us / 1e6,
		                  clocks->difference_us < 0 ? "behind" : "ahead of");
	else
		lk__doctor_report(doctor, LK_FIT, "clock", "",
		                  "the server's is this machine's, within %.3f s",
		                  (double)(by_us + clocks->error_us) / 1e6);
}

static void report_rate(struct lk__doctor *doctor, const struct clocks *clocks)
{
	static const char cure[] = "find out which clock is slewed, and limit its rate (chrony: "
				   "maxslewrate 4000 on both machines)";
	struct lk__clock_rate rate = lk__clock_rate(clocks->readings, clocks->count);
	double faster = ((rate.low + rate.high) / 2 - 1) * 100,
	       error = lk__clock_error(&rate) * 100;

	switch (lk__clock_judge(&rate)) {
	case LK__CLOCK_FAST:
		lk__doctor_report(
			doctor, LK_UNFIT, "clock", cure,
			"the server's runs %.2f %% faster than this machine's (error %.2f "
			"%%): leases end too early for their holders",
			faster, error);
		break;
	case LK__CLOCK_DOUBTFUL:
		lk__doctor_report(
			doctor, LK_FIT_WARN, "clock", cure,
			"the server's runs %.2f %% faster than this machine's (error %.2f "
			"%%): leases tolerate 1 %%",
			faster, error);
		break;
	case LK__CLOCK_UNEVEN:
		lk__doctor_report(
			doctor, LK_FIT_WARN, "clock",
			"try again; then find out which program sets it",
			"cannot tell how fast the server's runs: one of the two clocks was set, "
			"or changed its speed");
		break;
	case LK__CLOCK_UNKNOWN:
		lk__doctor_report(
			doctor, LK_FIT_WARN, "clock", "run this on a machine nearer to the server",
			"cannot tell how fast the server's runs: round trips of %.1f ms are "
			"too long for that",
			(double)clocks->error_us * 2 / 1000);
		break;
	case LK__CLOCK_FITS:
		lk__doctor_report(
			doctor, LK_FIT, "clock", "",
			"the server's runs %.2f %% %s than this machine's (error %.2f %%)",
			faster < 0 ? -faster : faster, faster < 0 ? "slower" : "faster", error);
		break;
	}
}

void lk__doctor_clock(struct lk__doctor *doctor)
{
	int64_t end_ns = lk__now_ns() + TIME_NS;
	struct clocks clocks = {.count = 0};

	do {
		if (!read_clock(doctor, &clocks))
			return;
	} while (await_next(&clocks, end_ns));
	report_difference(doctor, &clocks);
	report_rate(doctor, &clocks);
}
