#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo with a Cluster: the results are identical although the lock's slot moves, and then its
# master is killed; the hold of that moment is taken back.  However it ends, by itself, by ^C, by
# SIGKILL, or without a server to run, it leaves no process.
set -eu
cd "$(dirname "$0")/.."
. tests/harness/shell.sh
store=cluster
servers='master-1 master-2 master-3 replica-1 replica-2 replica-3'
. tests/harness/demo.sh

shows_identical
says 'holds the lock, whose slot is moved to another master, fence'
says 'holds the lock, and the master is killed (SIGKILL)'
says 'a replica is the new master, 127.0.0.1:[0-9]*; its grace is 10 s$'
says 'has taken its hold back from the new master'
says '^holds taken back from the new master: [1-9]'
says '^the lock was not granted for [0-9.]* s: the failover and a grace of 10 s at most$'
says '^workers that read at once: [1-3] at most, 3 allowed$'
ends_early
needs_lock
