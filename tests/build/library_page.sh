#!/bin/sh
# The first C program in docs/library.md compiles as it stands, without a warning, and returns 0.
set -eu
. "$(dirname "$0")/lib.sh"

make_scratch
page=$QUIRE_SOURCE/docs/library.md
[ -f "$page" ] || fail "no docs/library.md"
awk '/^```/ { if (on) exit; on = ($0 == "```c"); next } on' "$page" > "$scratch/page.c"
[ -s "$scratch/page.c" ] || fail 'docs/library.md has no ```c program'

"$QUIRE_CC" -std=c11 -Wall -Wextra -Werror "-I$QUIRE_SOURCE/include" "$scratch/page.c" \
    -o "$scratch/page" "$QUIRE_SO" "-Wl,-rpath,$(dirname "$QUIRE_SO")" ||
    fail "the program in docs/library.md does not compile"
"$scratch/page" || fail "the program in docs/library.md returned $?"
echo "library page: $(wc -l < "$scratch/page.c") lines compiled and run"
