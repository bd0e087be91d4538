#!/bin/sh
# The Rust crates build without a warning and without other crates; their tests pass; the engine loop prints what the
# one in C prints; and bindings.rs is what bindgen makes of the headers.
set -eu
. "$(dirname "$0")/lib.sh"

need cargo
make_scratch
cp -r "$QUIRE_SOURCE/bindings/rust" "$scratch/rust"
cd "$scratch/rust"
QUIRE_LIB_DIR=$(dirname "$QUIRE_SO") CARGO_TARGET_DIR=$scratch/target RUSTFLAGS="-D warnings"
LD_LIBRARY_PATH=$QUIRE_LIB_DIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export QUIRE_LIB_DIR CARGO_TARGET_DIR LD_LIBRARY_PATH RUSTFLAGS

cargo test --quiet --offline --workspace > "$scratch/log" 2>&1 || { cat "$scratch/log"; fail "cargo test"; }
passed=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$scratch/log" | awk '{ sum += $1 } END { print sum + 0 }')
[ "$passed" -ge 5 ] || fail "only $passed tests were run"
cargo run --quiet --offline -p quire --example engine > "$scratch/printed" || fail "the example engine"
cmp "$scratch/printed" "$QUIRE_SOURCE/examples/expected/engine.txt" || fail "engine.rs prints something else than engine.c"

made_by=$(sed -n '1s/.*rust-\(bindgen [0-9.]*\).*/\1/p' quire-sys/src/bindings.rs)
if [ "$(bindgen --version 2>/dev/null)" = "$made_by" ]; then
    "$QUIRE_SOURCE/bindings/rust/bindings.sh" --check || fail "bindings.rs is not what the headers say: run bindings/rust/bindings.sh"
    bindings=compared
else
    bindings="not compared: $made_by is not installed"
fi
echo "rust: $passed tests, the engine loop prints what the one in C prints; bindings $bindings"
