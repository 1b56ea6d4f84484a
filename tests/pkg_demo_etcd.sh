#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo with etcd: the results are identical although the leader of three members is killed; the
# hold of that moment outlasts it, unless the machine is so slow that its lease ends.  However it ends,
# by itself, by ^C, by SIGKILL, or without a server to run, it leaves no process.
set -eu
cd "$(dirname "$0")/.."
. tests/harness/shell.sh
store=etcd
servers='member-1 member-2 member-3'
program=etcd
. tests/harness/demo.sh

shows_identical
says 'holds the lock, and the leader is killed (SIGKILL), fence'
says 'is continued: another member leads$'
says '^start: none before all 8 were ready, then all within [0-9.]* ms$'
says '^workers that read at once: [1-3] at most, 3 allowed$'
says '^leader killed: another member led after [0-9.]* s$'
says '^the hold of that time was \(kept\|lost\); the lock was granted again after [0-9.]* s$'
ends_early
