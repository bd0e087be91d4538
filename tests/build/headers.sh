#!/bin/sh
# Every public header stands alone, in C11 and in C++11 and C++17, without a warning; and a C++
# program that uses the _INIT macros links and runs.
set -eu
. "$(dirname "$0")/lib.sh"

warnings="-Wall -Wextra -Werror -pedantic"
include=$QUIRE_SOURCE/include
[ -f "$include/quire.h" ] || fail "no include/quire.h"
make_scratch
checked=0

# check COMPILER STANDARD SUFFIX: each header as the only line of a file
check() {
    for header in "$include/quire.h" "$include"/quire/*.h; do
        name=${header#"$include"/}
        # Twice, so that the guard is tested too.
        printf '#include <%s>\n#include <%s>\n' "$name" "$name" > "$scratch/one.$3"
        # shellcheck disable=SC2086
        "$1" "-std=$2" $warnings "-I$include" -fsyntax-only "$scratch/one.$3" ||
            fail "$name does not compile alone: $1 -std=$2"
        checked=$((checked + 1))
    done
}

for cc in "$QUIRE_CC" gcc clang; do
    if command -v "$cc" > /dev/null 2>&1; then
        check "$cc" c11 c
    fi
done

programs=0
for cxx in g++ clang++; do
    command -v "$cxx" > /dev/null 2>&1 || continue
    for standard in c++11 c++17; do
        check "$cxx" "$standard" cpp
        # shellcheck disable=SC2086
        "$cxx" "-std=$standard" $warnings "-I$include" "$(dirname "$0")/headers.cpp" \
            -o "$scratch/program" "$QUIRE_SO" "-Wl,-rpath,$(dirname "$QUIRE_SO")" ||
            fail "the C++ program does not build: $cxx -std=$standard"
        "$scratch/program" || fail "the C++ program returned $?: $cxx -std=$standard"
        programs=$((programs + 1))
    done
done

echo "headers: $checked compilations, $programs C++ programs, 0 warnings"
[ "$programs" -gt 0 ] || skip "the C++ part: neither g++ nor clang++ is installed"
