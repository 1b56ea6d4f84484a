/* SPDX-License-Identifier: MIT
 * One function a verb; each returns the exit status. */
#ifndef VERBS_H
#define VERBS_H

#include "options.h"

int verb_lock(const struct options *options);      /* also sem and rate */
int verb_latch_set(const struct options *options); /* also reset */
int verb_latch_down(const struct options *options);
int verb_latch_wait(const struct options *options);
int verb_latch_show(const struct options *options);
int verb_latch_rm(const struct options *options);
int verb_show(const struct options *options);
int verb_break(const struct options *options);
int verb_local(const struct options *options);
int verb_grace(const struct options *options);
int verb_quorum(const struct options *options); /* init */
int verb_doctor(const struct options *options);

#endif
