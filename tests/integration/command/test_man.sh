#!/usr/bin/env bash
# The man pages of the programs: each option and command of --help is in its page and the other way
# round, and mandoc finds nothing wrong with them.
set -uo pipefail

bin=${RLV_BIN_DIR:?} source=${RLV_SOURCE_DIR:?}
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
failed=0

fail() {
	echo "$*"
	failed=1
}

command -v python3 >/dev/null || { echo "no python3 makes the pages: run tools/setup" && exit 77; }
"$source/tools/help2man" "$bin" 0 "$pages" || { echo "help2man failed" && exit 1; }

# Long options in a text, without those that its prose names.
flags_of_help() { grep -oE '^  (--[a-z0-9-]+( [^ ,]+)?(, )?)+' | grep -oE '\-\-[a-z0-9-]+' | sort -u; }
flags_of_page() { sed -n 's/^\.It \(Fl.*\)/\1/p' | grep -oE 'Fl \\-[a-z0-9\\-]+' | sed 's/^Fl /-/; s/\\//g' | sort -u; }

compare() { # page words of --help...
	local page=$1
	shift
	[ -f "$page" ] || { fail "no page ${page##*/}" && return; }
	diff <("$@" --help | flags_of_help) <(flags_of_page <"$page") >"$pages/diff" ||
		fail "${page##*/} and $* --help: $(cat "$pages/diff")"
}

commands=$("$bin/relive" --help | sed -n '/^Commands/,/^$/s/^  \([a-z]*\)  .*/\1/p')
[ "$(wc -w <<<"$commands")" -ge 11 ] || fail "relive --help lists commands: $commands"
for command in $commands; do
	compare "$pages/man1/relive-$command.1" "$bin/relive" "$command"
done
compare "$pages/man8/relive-metad.8" "$bin/relive-metad"
compare "$pages/man8/relive-memnode.8" "$bin/relive-memnode"
grep -q '^\.It Fl \\-log\\-level' "$pages/man8/relive-metad.8" || fail "relive-metad(8): no --log-level"
for section in NAME SYNOPSIS DESCRIPTION OPTIONS ENVIRONMENT FILES 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
	grep -q "^\.Sh $section$" "$pages/man1/relive-up.1" || fail "relive-up(1): no $section"
done

if command -v mandoc >/dev/null; then
	for page in "$pages"/man?/*; do
		mandoc -Tlint -W warning "$page" || fail "mandoc: ${page##*/}"
	done
else
	echo "no mandoc: pages are not checked by it (run tools/setup)"
fi
exit $failed
