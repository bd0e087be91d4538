#!/bin/sh
# Writes quire-sys/src/bindings.rs from include/quire.h with bindgen, a package of Debian. --check: compares only.
set -eu
cd "$(dirname "$0")"
out=quire-sys/src/bindings.rs
[ "${1:-}" != --check ] || out=$(mktemp)
bindgen ../../include/quire.h --allowlist-function 'quire_.*' --allowlist-type 'quire_.*' --allowlist-var 'QUIRE_.*' \
    --default-enum-style consts --no-prepend-enum-name --no-doc-comments --no-layout-tests --size_t-is-usize \
    -o "$out" -- -I../../include
[ "${1:-}" = --check ] || exit 0
cmp "$out" quire-sys/src/bindings.rs
rm "$out"
