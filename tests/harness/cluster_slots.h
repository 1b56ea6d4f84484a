/* SPDX-License-Identifier: MIT
 * Slots of a real Cluster that move from one master to another, step by step, and keys wherever
 * they are.  Each step returns when it is done; a test may stop after any of them. */
#ifndef CLUSTER_SLOTS_H
#define CLUSTER_SLOTS_H

#include "cluster_setup.h"

#define CLUSTER_ALL_KEYS 1000000

/* The slot of a key. */
int cluster_slot_of(const struct cluster_setup *setup, const char *key);
/* The master of a key's slot: cluster_setup_owner(). */
int cluster_slot_owner(const struct cluster_setup *setup, const char *key);
/* Let the slot migrate: IMPORTING at this master, MIGRATING at its owner. */
void cluster_slot_open(const struct cluster_setup *setup, int slot, int to);
/* Move some keys of the slot from its owner, at most so many; returns how many. */
int cluster_slot_move_keys(const struct cluster_setup *setup, int slot, int to, int max);
/* The same with this key, which exists. */
void cluster_slot_move_key(const struct cluster_setup *setup, const char *key, int to);
/* The master becomes the slot's owner at all nodes; the old owner must have no key of it. */
void cluster_slot_close(const struct cluster_setup *setup, int slot, int to);
/* Instead: let the slot be where it was, by STABLE at both if the target has none of its keys; else
 * the slot moves and moves back.  Clients may write meanwhile. */
void cluster_slot_undo(const struct cluster_setup *setup, int slot, int to);
/* All of the steps. */
void cluster_slot_move(const struct cluster_setup *setup, int slot, int to);

/* The node that a reply of MOVED or ASK names, "-MOVED 5 127.0.0.1:7000"; -1 if it is another. */
int cluster_slot_redirection(const struct cluster_setup *setup, const char *reply);
/* Run a command with one word and one key ("GET", "TYPE", "PTTL") where the key is, also in a slot
 * that migrates; the reply as redis_text() has it.  Valid until the next call. */
const char *cluster_read(const struct cluster_setup *setup, const char *command, const char *key);

#endif
