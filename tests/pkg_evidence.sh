#!/bin/sh
# SPDX-License-Identifier: MIT
# tools/evidence keeps figures without the paths of the machine that measured them.  Each file of
# figures in docs begins with its command and its commit, and a page links to it.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
. tests/harness/shell.sh
kept=$work/tree/docs/figures/speed.txt
printed=$kept

mkdir -p "$work/tree/docs" "$work/tree/tools"
cd "$work/tree"
cp "$root/tools/evidence" tools/
echo '[Figures](figures/speed.txt)' >docs/page.md
cat >measure <<'END'
#!/bin/sh
echo "rate 7 a second, picture in $PWD/docs/speed.svg" | tee -a "${LK_EVIDENCE:-/dev/null}"
END
chmod +x measure
git init -q .
git add -A
git -c user.name=a -c user.email=a@example.org commit -qm first

for all in '' --all; do
	rm -f "$kept"
	# shellcheck disable=SC2086
	tools/evidence $all speed "$PWD/measure" T="a b" JSON=/tmp/far/away.json SVG="$PWD/docs/speed.svg" \
		/elsewhere/file -I/usr/include URL=redis://host/1 >/dev/null
	[ "$(sed -n 1p "$kept")" = '$ measure T=a b JSON=away.json SVG=docs/speed.svg file -Iinclude URL=redis://host/1' ] ||
		fail "the command is not shown as it should be"
	sed -n 2p "$kept" | grep -q "^# commit $(git rev-parse --short HEAD), 20" || fail "no commit and date"
	[ "$(sed -n '3,$p' "$kept")" = 'rate 7 a second, picture in docs/speed.svg' ] || fail "no figures"
	! grep -q "$work\|/tmp/\|/elsewhere" "$kept" || fail "a path of this machine is kept"
done

# A tool that fails or prints no figures does not replace the old ones, and figures without a link
# are refused.
cp "$kept" before
! tools/evidence speed false || fail "a failed tool is accepted"
! tools/evidence speed true 2>/dev/null || fail "a run without figures is accepted"
! tools/evidence rate "$PWD/measure" 2>/dev/null || fail "figures without a link are accepted"
cmp before "$kept" || fail "the figures have changed"

cd "$root"
for file in docs/figures/*; do
	grep -qF "(figures/${file##*/})" docs/*.md || fail "$file: no page links to it"
	sed -n 1p "$file" | grep -q '^\$ ' || fail "$file: no command"
	sed -n 2p "$file" | grep -q '^# commit [0-9a-f]\{7\}.*, 20[0-9-]*, ' || fail "$file: no commit and date"
done
! grep -nE '^( {4})?\$ (.*[ =])?/' docs/figures/* docs/*.md README.md || fail "a page shows a path"
