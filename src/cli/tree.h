/* SPDX-License-Identifier: MIT
 * The descendants of a process: finds children of a command that left its process group. */
#ifndef TREE_H
#define TREE_H

#include <stdbool.h>
#include <sys/types.h>

struct tree_count {
	int found;  /* living descendants that were signalled */
	int denied; /* of these, processes of other users, which cannot be signalled */
	pid_t denied_pid;
};

/* Send number to each living descendant of this process; 0 sends nothing.  Excluded are processes
 * that began before `since` (see tree_began()) with their descendants, and members of the group
 * `but` (0 = none).  False where the system does not show its processes. */
bool tree_signal(int number, unsigned long long since, pid_t but, struct tree_count *count);

/* The start time of a process, in the system's ticks; 0 = unknown. */
unsigned long long tree_began(pid_t pid);

/* Make orphans below this process its children.  Linux only. */
void tree_adopt(void);

#endif
