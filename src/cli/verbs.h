/* SPDX-License-Identifier: MIT
 * One function a verb; each returns the exit status. */
#ifndef VERBS_H
#define VERBS_H

#include "options.h"

int verb_lock(const struct options *options);
int verb_show(const struct options *options);
int verb_break(const struct options *options);
int verb_local(const struct options *options);
int verb_doctor(const struct options *options);

#endif
