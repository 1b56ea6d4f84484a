#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo with Sentinel: the results are identical although the master is killed as well; the hold
# of that moment is taken back, and permits wait for the grace.  However it ends, by itself, by ^C, by
# SIGKILL, or without a server to run, it leaves no process.
set -eu
cd "$(dirname "$0")/.."
. tests/harness/shell.sh
store=sentinel
servers='master replica-1 replica-2 sentinel-1 sentinel-2 sentinel-3'
. tests/harness/demo.sh

shows_identical
says 'holds the lock, and the master is killed (SIGKILL)'
says 'a sentinel names the new master, 127.0.0.1:[0-9]*; its grace is 13 s'
says 'has taken its hold back from the new master'
says '^holds taken back from the new master: [1-9]'
says '^the lock was not granted for [0-9.]* s, then handed off'
says '^permits were not granted for 1[3-9]\.[0-9] s: the failover and a grace of 13 s$'
says '^workers that read at once: [1-3] at most, 3 allowed$'
ends_early
needs_lock
