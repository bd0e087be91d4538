#!/bin/sh
# tidy.sh BUILD_DIR: clang-tidy over src/, with the compile commands of that build. Any finding is a
# failure (.clang-tidy turns warnings into errors). Newer versions have other checks, so the one that
# .clang-tidy was written for is asked for.
set -eu
. "$(dirname "$0")/lib.sh"

build=${1:?usage: tidy.sh BUILD_DIR}
source=$(cd "$(dirname "$0")/../.." && pwd)
version=14
tidy=
for name in "${CLANG_TIDY:-}" "clang-tidy-$version" clang-tidy; do
    if [ -z "$tidy" ] && [ -n "$name" ] && command -v "$name" > /dev/null 2>&1 &&
        "$name" --version | grep -q "version $version\."; then
        tidy=$name
    fi
done
[ -n "$tidy" ] || skip "clang-tidy $version is not installed"
[ -f "$build/compile_commands.json" ] || fail "no compile_commands.json in $build"
make_scratch

cd "$source"
# The rooms that decide; the others are three times as much, and have their turn with ./test --long.
rooms='src/base src/block src/group src/cache src/sched'
if [ "${QUIRE_TIDY_ALL:-no}" = yes ]; then
    rooms=src
else
    echo "tidy: $rooms (QUIRE_TIDY_ALL=yes, or ./test --long, for all)"
fi
# shellcheck disable=SC2086
find $rooms -name '*.c' | sort > "$scratch/files"
count=$(wc -l < "$scratch/files")
[ "$count" -gt 0 ] || fail "no sources found"

status=0
xargs -n 1 -P "$(nproc)" "$tidy" -p "$build" --quiet \
    < "$scratch/files" > "$scratch/out" 2> "$scratch/err" || status=1
cat "$scratch/out"
# Of what goes to stderr, the count of warnings in system headers is no news.
grep -v ' warnings\{0,1\} \(generated\|treated as error\)' "$scratch/err" >&2 || true
findings=$(grep -c ': \(error\|warning\): ' "$scratch/out" || true)
echo "tidy: $count files, $findings findings"
[ "$status" -eq 0 ] && [ "$findings" -eq 0 ]
