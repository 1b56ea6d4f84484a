/* SPDX-License-Identifier: MIT
 * Private servers of local: in a folder of the test's own.  Such a server is not a child of the
 * test, so the test finds it by its command line, which names the folder. */
#ifndef LOCAL_FOLDER_H
#define LOCAL_FOLDER_H

/* Make local: use a folder that does not exist yet, inside one that does; return its name.  Servers
 * that run there end as soon as the test has ended. */
const char *local_folder(void);
/* Send a signal, 0 for none, to the processes whose command line names the folder, also to those
 * that lost their socket; return how many there are. */
int local_servers(int signal_number);

#endif
