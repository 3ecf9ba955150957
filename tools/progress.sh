# For the scripts here: with_progress runs a command whose output goes to a file, and says meanwhile how
# far it is: each second on a terminal, otherwise a line every ten seconds. How far is the last line
# of the file.
# shellcheck shell=bash

RLV_SILENCE=${RLV_SILENCE:-10}

# Reads until the end of input.
progress_tick() { # what log
	local seconds=0 line status
	while :; do
		status=0
		read -r -t 1 || status=$?
		[ "$status" -gt 128 ] || return 0
		seconds=$((seconds + 1))
		line=$(printf '%s ... %d s  %s' "$1" $seconds "$(tail -n 1 "$2" 2>/dev/null)")
		if [ -t 1 ]; then
			printf '\r\033[K%s' "${line:0:119}"
		elif [ $((seconds % RLV_SILENCE)) -eq 0 ]; then
			printf '%s\n' "${line:0:119}"
		fi
	done
}

with_progress() { # what log command...
	local what=$1 log=$2 ticker going status=0
	shift 2
	exec {going}> >(progress_tick "$what" "$log")
	ticker=$!
	# The command does not have the ticker's input open.
	(eval "exec $going>&-" && "$@") >"$log" 2>&1 || status=$?
	exec {going}>&-
	wait "$ticker" || :
	[ ! -t 1 ] || printf '\r\033[K'
	return $status
}
