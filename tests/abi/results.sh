# Sourced: results in the way of the test programs. The last line is "N passed, N failed, N skipped".
passed=0
failed=0
skipped=0

ok() { echo "ok - $1"; passed=$((passed + 1)); }
not_ok() { echo "not ok - $1"; failed=$((failed + 1)); }
skip() { echo "# skipped: $2"; echo "ok - $1 # SKIP"; skipped=$((skipped + 1)); }

# What a command prints is shown if it fails.
try() { # NAME COMMAND...
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then ok "$name"; else not_ok "$name"; sed 's/^/#   /' <<<"$out"; fi
}

# The lines of two texts; what only one of them has is shown.
same() { # NAME ACTUAL EXPECTED
	local name=$1 out
	if out=$(diff <(sort <<<"$2") <(sort <<<"$3")); then
		ok "$name"
	else
		not_ok "$name"
		sed -n 's/^</#   not expected:/p; s/^>/#   missing:/p' <<<"$out"
	fi
}

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ] && [ $((passed + skipped)) != 0 ]
}
