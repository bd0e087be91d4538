# Sourced by ./test --coverage: how much of the library the unit, model and parity tests run. The
# random test of the pool is short, its exploration left out: they repeat the same branches for long.
#
#   build/coverage       gcc -O0 --coverage, file by file; counters atomic, as some tests have threads
#   coverage_rooms       what must reach coverage_least per cent of its branches
#
# Branches of assertions are left out, by the pattern below: that an assertion cannot fail is its
# point. Nothing else is. The numbers are gcovr's; inline functions of headers count where they stand.

coverage_rooms='block group cache sched'
coverage_least=95
coverage_pattern='.*\bqr_assert(_internal|_expensive)?\('

need_gcovr() {
  command -v gcovr >/dev/null 2>&1 || install_packages gcovr && return 0
  python3 -m venv build/gcovr && build/gcovr/bin/pip install --quiet gcovr && PATH=$PWD/build/gcovr/bin:$PATH
}

build_coverage() {
  cmake -S . -B build/coverage -G Ninja -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS='--coverage -O0 -fprofile-update=atomic' -DQUIRE_UNITY=OFF -DQUIRE_WERROR=ON -DQUIRE_BUILD_BENCH=OFF \
    -DQUIRE_BUILD_EXAMPLES=OFF && cmake --build build/coverage
}

# file,lines,lines run,branches,branches taken
count_coverage() {
  gcovr --csv --root . --filter src/ --exclude-branches-by-pattern "$coverage_pattern" \
    build/coverage/CMakeFiles/quire_objects.dir build/coverage/tests |
    awk -F, 'NR > 1 { print $1 "," $2 "," $3 "," $5 "," $6 }' | sort
}

# The table, and a last word: which rooms are short of coverage_least, or nothing.
print_coverage() {
  awk -F, -v wanted=" $coverage_rooms " -v least="$coverage_least" '
    function percent(part, all) { return all == 0 ? 100 : 100 * part / all }
    function row(name, l, lr, b, bt) {
      printf "  %-28s %6d %6.1f %% %8d %6.1f %% %6d\n", name, l, percent(lr, l), b, percent(bt, b), b - bt
    }
    function close_room() {
      if (room == "") return
      row(room, lines, lines_run, branches, taken)
      printf "%s\n", files
      if (index(wanted, " " room " ") && percent(taken, branches) < least) short = short " " room
      seen = seen " " room
    }
    BEGIN { printf "  %-28s %6s %8s %8s %8s %6s\n\n", "", "lines", "run", "branches", "taken", "missed" }
    {
      split($1, path, "/")
      if (path[2] != room) { close_room(); room = path[2]; files = ""; lines = lines_run = branches = taken = 0 }
      lines += $2; lines_run += $3; branches += $4; taken += $5
      files = files sprintf("    %-26s %6d %6.1f %% %8d %6.1f %% %6d\n", path[3], $2, percent($3, $2), $4,
                            percent($5, $4), $4 - $5)
    }
    END {
      close_room()
      n = split(wanted, rooms, " ")
      for (i = 1; i <= n; i++) if (!index(seen " ", " " rooms[i] " ")) short = short " " rooms[i]
      print "short:" short
    }'
}

run_coverage() {
  local log=$logs/coverage-build.log report=$logs/coverage.txt short
  need_gcovr || exit 1
  if ! build_coverage >"$log" 2>&1; then
    fail coverage "build" "$log"
    return
  fi
  find build/coverage -name '*.gcda' -delete # what earlier runs counted
  run_tests coverage -L '^(unit|model|parity)$' -E '^model_(pool|explore)$'
  run_long coverage model_pool --ops 200000
  if ! count_coverage >"$logs/coverage.csv" 2>"$logs/gcovr.log"; then
    fail coverage "gcovr" "$logs/gcovr.log"
    return
  fi
  print_coverage <"$logs/coverage.csv" >"$report"
  short=$(sed -n 's/^short: *//p' "$report")
  sed '/^short:/d' "$report"
  say coverage "branches of assertions (qr_assert, _internal, _expensive) are left out, and nothing else"
  if [ -n "$short" ]; then
    failed=$((failed + 1))
    say coverage "FAILED: below $coverage_least % of the branches: $short"
  else
    say coverage "at least $coverage_least % of the branches of each of: $coverage_rooms"
  fi
}

run_coverage
