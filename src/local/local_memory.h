/* SPDX-License-Identifier: MIT
 * What the folder of local: knows of its servers' memory.  The file "began" names the boot and the
 * process of the last server, and tells whether nothing could be held when that process began:
 * because it was the first one of the boot, or because the one before it was stopped when nothing
 * was held.  Clients of such a server need no grace. */
#ifndef LK__LOCAL_MEMORY_H
#define LK__LOCAL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define LK__BOOT_SIZE 37
#define LK__BEGAN_SIZE 64

/* The id of this boot, "-" where the system has none. */
void lk__boot_id(char boot[LK__BOOT_SIZE]);

/* The calling process has the folder's lock and becomes its server: write the file.
 * Async-signal-safe.  False, with errno: then no server may begin, since the next one would not
 * know of it. */
bool lk__memory_begin(int folder, const char *boot, bool *unheld);
/* It did not become a server, and nothing could be held: undo that.  Async-signal-safe. */
void lk__memory_unbegin(int folder);
/* The file's text, "" if there is none. */
void lk__memory_read(int folder, char text[LK__BEGAN_SIZE]);
/* The process of that text if nothing could be held when it began, else 0. */
int64_t lk__memory_unheld(const char *text);
/* The server of that text has ended, and nothing was held: the next one needs no grace.  Nothing
 * happens if another server has begun since. */
void lk__memory_forget(int folder, const char *text);

#endif
