#!/bin/sh
# Every public header stands alone, in C11 and in C++11, without a warning; all of them together compile
# with every compiler here, in C++17 and 20 too; so does every _INIT macro, at file scope and inside a
# function; and a C++ program that uses them links and runs.
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

# inits: a file that uses every _INIT macro of every header
inits() {
    for header in "$include"/quire/*.h; do
        echo "#include <${header#"$include"/}>"
    done
    macros=$(sed -n 's/^#define \(QUIRE_[A-Z_]*_INIT\)\([ \\].*\)*$/\1/p' "$include"/quire/*.h | sort -u)
    for macro in $macros; do
        type=$(echo "${macro%_INIT}" | tr '[:upper:]' '[:lower:]')
        echo "extern $type global_$type; $type global_$type = $macro;"
        echo "void set_$type($type *out); void set_$type($type *out) { $type c = $macro; *out = c; }"
    done
    [ "$(echo "$macros" | wc -l)" -gt 20 ] || fail "the _INIT macros were not found"
}

# cpp17 COMPILER STANDARD: quire.hpp alone, its tests, and the engine loop, which does what the one in C does;
# without exceptions and RTTI
cpp17() {
    more="$warnings -Wshadow -Wconversion -fno-exceptions -fno-rtti -I$include"
    printf '#include <quire.hpp>\n#include <quire.hpp>\n' > "$scratch/one.cpp"
    # shellcheck disable=SC2086
    "$1" "-std=$2" $more -fsyntax-only "$scratch/one.cpp" || fail "quire.hpp does not compile alone: $1 -std=$2"
    for source in "$(dirname "$0")/headers17.cpp" "$QUIRE_SOURCE/examples/engine.cpp"; do
        # shellcheck disable=SC2086
        "$1" "-std=$2" $more "$source" -o "$scratch/program17" "$QUIRE_SO" "-Wl,-rpath,$(dirname "$QUIRE_SO")" ||
            fail "$source does not build: $1 -std=$2"
        "$scratch/program17" > "$scratch/printed" || fail "$source returned $?: $1 -std=$2"
        programs=$((programs + 1))
    done
    cmp "$scratch/printed" "$QUIRE_SOURCE/examples/expected/engine.txt" ||
        fail "engine.cpp prints something else than engine.c: $1 -std=$2"
}

check "$QUIRE_CC" c11 c
for cc in "$QUIRE_CC" gcc clang; do
    if command -v "$cc" > /dev/null 2>&1; then
        inits > "$scratch/inits.c"
        # shellcheck disable=SC2086
        "$cc" -std=c11 $warnings "-I$include" -fsyntax-only "$scratch/inits.c" ||
            fail "an _INIT macro does not compile without a warning: $cc -std=c11"
    fi
done

programs=0
for cxx in g++ clang++; do
    command -v "$cxx" > /dev/null 2>&1 || continue
    [ "$programs" -gt 0 ] || check "$cxx" c++11 cpp
    for standard in c++11 c++17 c++20; do
        inits > "$scratch/inits.cpp"
        # shellcheck disable=SC2086
        "$cxx" "-std=$standard" $warnings "-I$include" -fsyntax-only "$scratch/inits.cpp" ||
            fail "an _INIT macro does not compile without a warning: $cxx -std=$standard"
        # shellcheck disable=SC2086
        "$cxx" "-std=$standard" $warnings "-I$include" "$(dirname "$0")/headers.cpp" \
            -o "$scratch/program" "$QUIRE_SO" "-Wl,-rpath,$(dirname "$QUIRE_SO")" ||
            fail "the C++ program does not build: $cxx -std=$standard"
        "$scratch/program" || fail "the C++ program returned $?: $cxx -std=$standard"
        programs=$((programs + 1))
        [ "$standard" = c++11 ] || cpp17 "$cxx" "$standard"
    done
done

echo "headers: $checked compilations, $programs C++ programs, 0 warnings"
[ "$programs" -gt 0 ] || skip "the C++ part: neither g++ nor clang++ is installed"
