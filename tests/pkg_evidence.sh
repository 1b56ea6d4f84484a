#!/bin/sh
# SPDX-License-Identifier: MIT
# tools/evidence puts figures into a page without the paths of the machine where they were made, and
# no page shows such a path.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	cat "$work/tree/docs/page.md"
	echo "$*"
	exit 1
}

mkdir -p "$work/tree/docs" "$work/tree/tools"
cd "$work/tree"
cp "$root/tools/evidence" tools/
printf '%s\n' before '<!-- speed -->' old '<!-- end -->' after >docs/page.md
cat >measure <<'END'
#!/bin/sh
echo "rate 7 a second, picture in $PWD/docs/speed.svg" | tee -a "$LK_EVIDENCE"
END
chmod +x measure
git init -q .
git add -A
git -c user.name=a -c user.email=a@example.org commit -qm first

for all in '' --all; do
	# shellcheck disable=SC2086
	tools/evidence $all speed "$PWD/measure" T="a b" JSON=/tmp/far/away.json SVG="$PWD/docs/speed.svg" \
		/elsewhere/file -I/usr/include URL=redis://host/1 >/dev/null
	grep -q '^    \$ measure T=a b JSON=away.json SVG=docs/speed.svg file -Iinclude URL=redis://host/1$' \
		docs/page.md || fail "the command is not shown as it should be"
	grep -q '^    rate 7 a second, picture in docs/speed.svg$' docs/page.md || fail "no figures"
	! grep -q "$work\|/tmp/\|/elsewhere" docs/page.md || fail "a path of this machine"
	[ "$(sed -n '1p;$p' docs/page.md | tr '\n' ' ')" = 'before after ' ] || fail "the rest has changed"
done

cd "$root"
! grep -nE '^    \$ (.*[ =])?/' docs/*.md README.md || fail "a page shows a path"
