# SPDX-License-Identifier: MIT
# Sourced by the tests in shell: $work, a folder that goes with the test, and checks of $printed.
# shellcheck shell=sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
printed=$work/output

fail() {
	[ ! -e "$printed" ] || cat "$printed"
	echo "${0##*/}: $*"
	exit 1
} >&2

# says PATTERN, silent_about PATTERN: check the output of the last run.
says() {
	grep -q -e "$1" "$printed" || fail "does not print: $1"
}
silent_about() {
	! grep -q -e "$1" "$printed" || fail "prints: $1"
}
