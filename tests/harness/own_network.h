/* SPDX-License-Identifier: MIT
 * A network of a test's own: a namespace with a loopback interface, which ends with the test.  Its
 * packet filter affects no other program. */
#ifndef OWN_NETWORK_H
#define OWN_NETWORK_H

/* With or without root.  Before the test has threads; programs of /sbin are found then. */
void own_network_enter(void);

#endif
