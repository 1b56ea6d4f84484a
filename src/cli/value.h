/* SPDX-License-Identifier: MIT
 * The values of options and operands.  Each function reports an invalid one. */
#ifndef VALUE_H
#define VALUE_H

#include "options.h"

#include <stdbool.h>
#include <stdint.h>

#define LONGEST_LEASE_MAX_MS 60000 /* of a quorum, as in the library */
#define VALUE_TIME_SIZE 32

/* Seconds as an option has them, "60" or "1.500". */
const char *value_time(char text[VALUE_TIME_SIZE], int64_t ms);
/* Seconds, with decimals, as milliseconds; option is its long name. */
bool value_seconds(const char *option, const char *text, int64_t min_ms, int64_t max_ms,
                   int64_t *ms);
/* A whole number; what: the option or operand, as the user knows it. */
bool value_count(const char *what, const char *text, int64_t min, int64_t max, int64_t *count);
bool value_status(const char *text, int *status);
bool value_on_lost(const char *text, enum on_lost *on_lost);
bool value_step(const char *text, const char **step);
/* text NULL = missing */
bool value_name(const char *text, const char **name);
/* text NULL: the grace is only shown */
bool value_grace(const char *text, bool *ends);
bool value_local(const char *text, enum local_action *action);
/* what: the option or operand */
bool value_url(const char *what, const char *text, const char **url);

#endif
