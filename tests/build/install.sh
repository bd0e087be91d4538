#!/bin/sh
# Installs the build into an empty folder, and uses it from there as a stranger would: with
# pkg-config against the shared and the static library, and with CMake's find_package.
set -eu
. "$(dirname "$0")/lib.sh"

here=$(cd "$(dirname "$0")" && pwd)
need cmake
need pkg-config
need nm
make_scratch
prefix=$scratch/prefix
cmake --install "$QUIRE_BUILD" --prefix "$prefix" > "$scratch/log" || fail "cmake --install"

# A header that is not installed would be found in the repository only.
for header in "$QUIRE_SOURCE"/include/quire.h "$QUIRE_SOURCE"/include/quire.hpp "$QUIRE_SOURCE"/include/quire/*.h; do
    name=${header#"$QUIRE_SOURCE"/include/}
    cmp -s "$header" "$prefix/include/$name" || fail "$name is not installed"
done

# compile OUT SOURCE OPTIONS-OF-PKG-CONFIG PACKAGE...
compile() {
    out=$1
    source=$2
    options=$3
    shift 3
    # shellcheck disable=SC2046,SC2086
    "$QUIRE_CC" -std=c11 -Wall -Wextra -Werror "$here/consumer/$source" -o "$out" \
        $(pkg-config $options --cflags --libs "$@")
}

# Does the program take the library's functions from a shared library?
borrows() {
    nm -D --undefined-only "$1" | grep -q ' quire_'
}

pc=$(find "$prefix" -name quire.pc)
[ -n "$pc" ] || fail "no quire.pc is installed"
libdir=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
said=$(pkg-config --variable=libdir quire)
[ "$(cd "$said" 2> /dev/null && pwd)" = "$libdir" ] ||
    fail "quire.pc says that the library is in $said, but it was installed under $libdir"

beside=no
if [ -e "$(dirname "$pc")/quire_events.pc" ] && [ -e "$(dirname "$pc")/quire_http.pc" ]; then
    beside=yes
fi
compile "$scratch/shared" main.c "" quire || fail "pkg-config, shared: does not build"
LD_LIBRARY_PATH=$libdir "$scratch/shared" || fail "pkg-config, shared: returned $?"
borrows "$scratch/shared" || fail "pkg-config, shared: did not link the shared library"

if [ $beside = yes ]; then
    compile "$scratch/beside" beside.c "" quire_events quire_http ||
        fail "pkg-config, libraries beside, shared: does not build"
    LD_LIBRARY_PATH=$libdir "$scratch/beside" ||
        fail "pkg-config, libraries beside, shared: returned $?"
fi

# With both libraries there the linker takes the shared one; a static user has only the other.
mkdir "$scratch/hidden"
mv "$libdir"/libquire*.so* "$scratch/hidden"
compile "$scratch/static" main.c --static quire || fail "pkg-config --static: does not build"
"$scratch/static" || fail "pkg-config --static: returned $?"
! borrows "$scratch/static" || fail "pkg-config --static: linked the shared library"
mv "$scratch/hidden"/* "$libdir"

cmake -S "$here/consumer" -B "$scratch/cmake" -G "$QUIRE_GENERATOR" \
    "-DCMAKE_PREFIX_PATH=$prefix" "-DCMAKE_C_COMPILER=$QUIRE_CC" > "$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "find_package(quire)"; }
cmake --build "$scratch/cmake" > "$scratch/log" 2>&1 ||
    { cat "$scratch/log"; fail "quire::quire or quire::quire_static does not build"; }
"$scratch/cmake/with_shared" || fail "quire::quire: returned $?"
borrows "$scratch/cmake/with_shared" || fail "quire::quire is not the shared library"
"$scratch/cmake/with_static" || fail "quire::quire_static: returned $?"
! borrows "$scratch/cmake/with_static" || fail "quire::quire_static is the shared library"
if [ $beside = yes ]; then
    "$scratch/cmake/beside_shared" || fail "quire::quire_events, quire::quire_http: returned $?"
    "$scratch/cmake/beside_static" || fail "their static ones: returned $?"
    ! borrows "$scratch/cmake/beside_static" || fail "their static ones are shared libraries"
fi
echo "install: pkg-config shared and static, CMake shared and static, all run; libraries beside: $beside"
