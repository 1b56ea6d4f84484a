/* SPDX-License-Identifier: MIT
 * The processes below one: a command's children that left its process group are found here. */
#ifndef TREE_H
#define TREE_H

#include <stdbool.h>
#include <sys/types.h>

struct tree_count {
	int found;  /* living descendants that were signalled */
	int denied; /* of these, those that may not be signalled: another user's */
	pid_t denied_pid;
};

/* Send number to each living descendant of this process; 0 sends nothing.  Those that began before
 * `since` (see tree_began()) are not meant, nor is what they started; nor are members of the group
 * `but` (0 = none).  False where the system does not show its processes. */
bool tree_signal(int number, unsigned long long since, pid_t but, struct tree_count *count);

/* When a process began, in the system's ticks; 0 = unknown. */
unsigned long long tree_began(pid_t pid);

/* Orphans below this process become its children.  Only Linux knows that. */
void tree_adopt(void);

#endif
