#!/bin/sh
# Three lists must be one: what quire.h and all that it includes declare with QUIRE_API, what
# src/api/quire.map names, and what libquire.so exports. And the static library, which hides nothing,
# must keep to the library's prefixes. The same, without a map, for the libraries beside it.
set -eu
. "$(dirname "$0")/lib.sh"

need nm
make_scratch
map=$QUIRE_SOURCE/src/api/quire.map

# Declarations as the compiler sees them, so that comments and macros cannot mislead.
declared_in() {
    for header; do
        echo "#include \"$QUIRE_SOURCE/include/$header\""
    done > "$scratch/all.c"
    "$QUIRE_CC" -E -P "-I$QUIRE_SOURCE/include" "$scratch/all.c" \
        > "$scratch/all.i" || fail "the headers do not compile"
    tr '\n' ' ' < "$scratch/all.i" | grep -o 'visibility("default")))[^(;]*(' |
        sed 's/.*[^A-Za-z0-9_]\([A-Za-z0-9_]*\) *($/\1/' | sort -u
}
declared_in quire.h > "$scratch/declared"

# Type A with its own name as version is the version itself.
exported_by() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}

# Names between "global:" and "local:" of every version.
sed 's/#.*//' "$map" | tr '\n{};' '    ' | sed 's|/\*[^*]*\*/||g' | tr -s ' ' '\n' |
    awk '/^global:$/ { on = 1; next } /^local:$/ { on = 0 } on && NF' > "$scratch/listed.raw"
if grep -q '[*?[]' "$scratch/listed.raw"; then
    fail "quire.map has a pattern ($(grep -m 1 '[*?[]' "$scratch/listed.raw")): name each function"
fi
sort "$scratch/listed.raw" > "$scratch/listed"
[ -z "$(uniq -d "$scratch/listed")" ] || fail "twice in quire.map: $(uniq -d "$scratch/listed")"

exported_by "$QUIRE_SO" > "$scratch/exported"

[ -s "$scratch/declared" ] || fail "no declarations found"
compare() {
    diff "$scratch/$1" "$scratch/$2" > "$scratch/diff" && return
    echo "only $1:"
    sed -n 's/^</   /p' "$scratch/diff"
    echo "only $2:"
    sed -n 's/^>/   /p' "$scratch/diff"
    fail "$1 and $2 differ"
}
# An exported function is a promise. A new one takes the place of another: several getters become
# one struct, and arithmetic stands in the header.
most=130
count=$(wc -l < "$scratch/exported")
[ "$count" -le "$most" ] || fail "libquire exports $count functions; at most $most are allowed"
compare declared listed
compare declared exported
if grep -v '^quire_' "$scratch/exported"; then
    fail "exported without the prefix quire_"
fi

# beside NAME HEADER...: libquire_NAME exports what its headers declare beyond quire.h.
core=$scratch/core
cp "$scratch/declared" "$core"
beside() {
    library=$(dirname "$QUIRE_SO")/src/$1/libquire_$1.so
    [ -e "$library" ] || return 0
    shift
    declared_in "$@" | comm -23 - "$core" > "$scratch/declared"
    exported_by "$library" > "$scratch/exported"
    compare declared exported
}
beside events quire/wire.h quire/events.h
beside http quire/http.h
beside record quire/record.h
beside tier quire/tier.h quire/tier_file.h quire/tier_redis.h quire/tier_object.h \
    quire/tier_peer.h quire/device.h quire/device_cuda.h quire/offload.h quire/slots.h quire/transfer.h \
    quire/worker.h quire/planner.h
cp "$core" "$scratch/exported"

nm -g --defined-only "$QUIRE_A" | awk 'NF == 3 { print $3 }' | sort -u > "$scratch/archive"
if grep -v '^\(quire\|qr\)_' "$scratch/archive"; then
    fail "the static library defines these without the prefix quire_ or qr_"
fi
echo "symbols: $(wc -l < "$scratch/exported") exported, as declared and as listed;" \
    "$(wc -l < "$scratch/archive") in the archive, all with a prefix"
