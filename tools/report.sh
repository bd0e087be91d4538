# Sourced by ./test: builds a preset, runs tests, counts what ran, and prints one line for each step.

passed=0 failed=0 skipped=0 cases=0
# The sanitizers of older compilers cannot place their shadow memory where the kernel randomises much.
fixed_addresses=
setarch "$(uname -m)" -R true 2>/dev/null && fixed_addresses="setarch $(uname -m) -R"
emulator= # what runs a program of another architecture
logs=build/logs
mkdir -p $logs
rm -f $logs/*-test*.log

say() { printf '%-12s %s\n' "$1" "$2"; }

# A step that did not work: its output, and one failure more.
fail() {
  failed=$((failed + 1))
  say "$1" "FAILED: $2 (the end of $3)"
  tail -n 60 "$3"
}

# build_preset PRESET [arguments of ctest]: all of it, without the programs of the tests that the arguments leave out
build_preset() {
  local preset=$1 log=$logs/$1-build.log targets=()
  shift
  if ! cmake --preset "$preset" -DQUIRE_WERROR=ON >"$log" 2>&1; then
    fail "$preset" "build" "$log"
    return 1
  fi
  [ $# -eq 0 ] || targets=(--target $(list_programs "$preset" "$@"))
  if ! cmake --build --preset "$preset" "${targets[@]}" >>"$log" 2>&1; then
    fail "$preset" "build" "$log"
    return 1
  fi
}

list_tests() { ctest --test-dir "build/$1" -N "${@:2}" | sed -n 's/^ *Test *#[0-9]*: //p' | sort; }

# Each word of each test's command, as "test program": a program may serve several tests.
list_commands() {
  find "build/$1" -name CTestTestfile.cmake -exec cat {} + |
    sed -nE 's/^add_test\((\[=*\[)?"?([A-Za-z0-9_]+)"?(\]=*\])? (.*)\)$/\2 \4/p' |
    awk '{ for (i = 2; i <= NF; i++) { gsub(/"/, "", $i); sub(/.*\//, "", $i); print $1, $i } }'
}

# The shared libraries, and the programs that no test runs or one of those that the arguments choose. What no build
# makes by itself stays unmade.
list_programs() {
  awk 'FILENAME == ARGV[1] { chosen[$1] = 1; next }
    FILENAME == ARGV[2] { of_tests[$2] = 1; if ($1 in chosen) needed[$2] = 1; next }
    { name = $1; sub(/.*\//, "", name) }
    name ~ /_libfuzzer$/ || (name in of_tests && !(name in needed)) { next }
    { print $1 }' <(list_tests "$@") <(list_commands "$1") \
    <(ninja -C "build/$1" -t targets all | sed -nE 's/: C_(EXECUTABLE|SHARED_LIBRARY)_LINKER__.*//p')
}

# On arm64 the leak check of older compilers walks through all addresses that there could be: seconds at the end of
# every program.
are_leaks_slow() {
  local program=build/leaks start
  echo 'int main(void) { return 0; }' | cc -fsanitize=address -xc - -o $program >/dev/null 2>&1 || return 1
  start=${EPOCHREALTIME/[.,]/}
  $fixed_addresses $program >/dev/null 2>&1
  [ $((${EPOCHREALTIME/[.,]/} - start)) -gt 1000000 ]
}

# What the failed tests of a log printed, at most 40 lines of each, and how the log ends.
print_failures() {
  awk '/^ *[0-9]+\/[0-9]+ Test +#/ { rest = /\*\*\*(Failed|Timeout|Exception|Not Run)/ ? 40 : 0 }
    /^ +Start +[0-9]+: / { next }
    rest > 0 { print; rest-- }' "$1"
  tail -n 15 "$1"
}

# run_tests NAME [arguments of ctest]: the tests of build/NAME
run_tests() {
  local name=$1 log start=$SECONDS n bad skip inner status=0
  shift
  log=$logs/$name-test.log
  [ ! -e "$log" ] || log=$logs/$name-test-$start.log # the second run of a build
  # One more than there are cores: many tests wait for a server or for a deadline.
  $fixed_addresses ctest --test-dir "build/$name" -j "$(($(nproc) + 1))" --output-on-failure "$@" >"$log" 2>&1 || status=$?
  n=$(grep -cE '^ *[0-9]+/[0-9]+ Test ' "$log" || true)
  skip=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*\*\*\*Skipped' "$log" || true)
  bad=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" || true)
  inner=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) test\(s\)\.$/\1/p' "build/$name/Testing/Temporary/LastTest.log" |
    awk '{ sum += $1 } END { print sum + 0 }')
  passed=$((passed + n - skip - bad)) failed=$((failed + bad)) skipped=$((skipped + skip)) cases=$((cases + inner))
  say "$name" "$((n - skip - bad)) of $n test programs passed, $skip skipped; $inner cases; $((SECONDS - start)) s"
  grep -E '\*\*\*Skipped' "$log" | sed -E 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .*/             skipped: \1/' || true
  # ctest's own word counts too: a failure that was not counted above, or no test at all
  if [ "$status" != 0 ] || [ "$bad" -gt 0 ] || [ "$n" = 0 ]; then
    [ "$bad" = 0 ] && failed=$((failed + 1))
    say "$name" "FAILED ($log)"
    print_failures "$log"
  fi
}

# run_long PRESET PROGRAM [arguments]: one test program for longer than its default
run_long() {
  local preset=$1 program=$2 start=$SECONDS log=$logs/$1-$2-long.log
  shift 2
  if $emulator "$(find "build/$preset/tests" -name "$program" -type f -perm -u+x | head -n 1)" "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    say "$preset" "$program $*: passed; $((SECONDS - start)) s"
    sed -nE '/differences|transitions|operations|seeds|allocations/s/^/             /p' "$log" | tail -n 6
  else
    fail "$preset" "$program $*" "$log"
  fi
}

closing_line() {
  printf '\n%d cases inside the test programs, %d s\n' "$cases" "$SECONDS"
  printf 'tests: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" = 0 ]
}
