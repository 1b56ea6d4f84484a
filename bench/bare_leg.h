/* SPDX-License-Identifier: MIT
 * The commands of a ticket's part on one server of a quorum, as Latchkey sends them. */
#ifndef BARE_LEG_H
#define BARE_LEG_H

#include "bare_command.h"

/* yield: to the same ticket, NULL = none is needed. */
void bare_leg_format(const struct test_server *server, const char *name, const char *ticket,
                     struct command *ask, struct command *leave, struct command *yield);

#endif
