#!/bin/sh
# The first C program in README.md compiles as it stands, without a warning, and returns 0.
set -eu
. "$(dirname "$0")/lib.sh"

make_scratch
readme=$QUIRE_SOURCE/README.md
[ -f "$readme" ] || fail "no README.md"
awk '/^```/ { if (on) exit; on = ($0 == "```c"); next } on' "$readme" > "$scratch/readme.c"
[ -s "$scratch/readme.c" ] || fail 'README.md has no ```c program'

"$QUIRE_CC" -std=c11 -Wall -Wextra -Werror "-I$QUIRE_SOURCE/include" "$scratch/readme.c" \
    -o "$scratch/readme" "$QUIRE_SO" "-Wl,-rpath,$(dirname "$QUIRE_SO")" ||
    fail "the program in README.md does not compile"
"$scratch/readme" || fail "the program in README.md returned $?"
echo "readme: $(wc -l < "$scratch/readme.c") lines compiled and run"
