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
for header in "$QUIRE_SOURCE"/include/quire.h "$QUIRE_SOURCE"/include/quire/*.h; do
    name=${header#"$QUIRE_SOURCE"/include/}
    cmp -s "$header" "$prefix/include/$name" || fail "$name is not installed"
done

# compile OUT OPTIONS-OF-PKG-CONFIG FLAGS...
compile() {
    out=$1
    options=$2
    shift 2
    # shellcheck disable=SC2046,SC2086
    "$QUIRE_CC" -std=c11 -Wall -Wextra -Werror "$here/consumer/main.c" -o "$out" \
        $(pkg-config $options --cflags --libs quire) "$@"
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

compile "$scratch/shared" "" || fail "pkg-config, shared: does not build"
LD_LIBRARY_PATH=$libdir "$scratch/shared" || fail "pkg-config, shared: returned $?"
borrows "$scratch/shared" || fail "pkg-config, shared: did not link the shared library"

# With both libraries there the linker takes the shared one; a static user has only the other.
mkdir "$scratch/hidden"
mv "$libdir"/libquire.so* "$scratch/hidden"
compile "$scratch/static" --static || fail "pkg-config --static: does not build"
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
echo "install: pkg-config shared and static, CMake shared and static, all run"
