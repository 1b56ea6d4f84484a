/* SPDX-License-Identifier: MIT
 * Rights that a machine may refuse: a container may not mount, a plain user is not root.  A test
 * asks for the rights that it needs in its first lines.  If the machine refuses one, the test
 * prints why, counts as skipped and ends.  Nothing else skips a test. */
#ifndef RIGHTS_H
#define RIGHTS_H

#include <stdbool.h>

/* The option that gives unshare(1) its right: root has it, other users get it in a user namespace.
 * The one that worked, if this test has asked for a right. */
const char *unshare_right(void);

/* Can unshare(1), with these options, run this command?  If not, print "skipped: TEST: why". */
bool right_to_unshare(const char *options_and_command, const char *test);
/* Is this root?  Are there pseudo-terminals?  Is /proc mounted?  If not, print the same. */
bool right_of_root(const char *test);
bool right_to_terminal(const char *test);
bool right_to_see_processes(const char *test);

#define NEEDS(right)                                                                               \
	do {                                                                                       \
		if (!(right))                                                                      \
			return;                                                                    \
	} while (0)

#define NEEDS_MOUNTS NEEDS(right_to_unshare("--mount mount --bind /etc /etc", __func__))
#define NEEDS_PIDS NEEDS(right_to_unshare("--mount --pid --fork --kill-child true", __func__))
#define NEEDS_OWN_PROC                                                                             \
	NEEDS(right_to_unshare("--mount --pid --fork --mount-proc --kill-child true", __func__))
#define NEEDS_PACKETS NEEDS(right_to_unshare("--net nft add table inet probe", __func__))
#define NEEDS_PROC NEEDS(right_to_see_processes(__func__))
#define NEEDS_TERMINAL NEEDS(right_to_terminal(__func__))
#define NEEDS_ROOT NEEDS(right_of_root(__func__))

#endif
