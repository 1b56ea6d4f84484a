/* SPDX-License-Identifier: MIT
 * Private servers of local: in a folder of the test's own.  Such a server is nobody's child, so it
 * is found by its command line, which names the folder. */
#ifndef LOCAL_FOLDER_H
#define LOCAL_FOLDER_H

/* Have local: live in a folder that is not made yet, in one that is; its name.  What runs there
 * ends as soon as the test has ended. */
const char *local_folder(void);
/* Send a signal, 0 for none, to the processes whose command line names it, also such as lost their
 * socket; how many there are. */
int local_servers(int signal_number);

#endif
