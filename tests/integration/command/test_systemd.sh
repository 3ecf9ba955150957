#!/usr/bin/env bash
# The systemd units: `systemd-analyze verify` finds nothing wrong, they keep the daemons in a sandbox,
# and what they start takes these options.
set -uo pipefail

bin=${RLV_BIN_DIR:?} source=${RLV_SOURCE_DIR:?}
units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT
failed=0

fail() {
	echo "$*"
	failed=1
}

for daemon in relive-metad relive-memnode relive-poold; do
	unit=$units/$daemon@.service
	in=$source/systemd/$daemon@.service.in
	[ -f "$in" ] || { fail "no unit of $daemon" && continue; }
	sed "s|@CMAKE_INSTALL_FULL_BINDIR@|$bin|" "$in" >"$unit"
	for line in NoNewPrivileges=yes ProtectSystem=strict CapabilityBoundingSet= User=relive \
		Restart=on-failure "ExecReload=/bin/kill -HUP \$MAINPID" RuntimeDirectory=relive \
		RuntimeDirectoryPreserve=yes UMask=0077; do
		grep -qxF "$line" "$unit" || fail "$daemon: no $line"
	done
	[ "$daemon" = relive-poold ] || grep -qxF StateDirectory=relive/%i "$unit" ||
		fail "$daemon: no StateDirectory"
	help=$("$bin/$daemon" --help)
	while read -r option; do
		grep -qE -- "$option( |\$)" <<<"$help" || fail "$daemon has no $option"
	done < <(sed -n '/^ExecStart=/p' "$unit" | grep -oE '\-\-[a-z-]+')
done
grep -q '^LimitMEMLOCK=infinity' "$units/relive-memnode@.service" || fail "no LimitMEMLOCK"

if ! command -v systemd-analyze >/dev/null; then
	echo "no systemd-analyze: its part is skipped (package systemd)"
	[ $failed -eq 0 ] && exit 77
	exit 1
fi
for unit in "$units"/*.service; do
	said=$(systemd-analyze verify --man=no "$unit" 2>&1)
	code=$?
	{ [ $code -eq 0 ] && [ -z "$said" ]; } || fail "verify ${unit##*/}: exit $code: $said"
	# 0 is safe and 100 exposed; a unit without a sandbox has more than 90.
	said=$(systemd-analyze security --offline=true --threshold=30 --no-pager "$unit" 2>&1) ||
		fail "security ${unit##*/}: ${said##*$'\n'}"
done
exit $failed
