# Common to the build tests; each sources this file first. CMakeLists.txt sets in the environment:
#
#   QUIRE_SOURCE    the repository             QUIRE_SO   libquire.so of the build under test
#   QUIRE_BUILD     its build folder           QUIRE_A    libquire.a
#   QUIRE_CC        the build's C compiler     QUIRE_SKIP why this test is no use in this build
#
# shellcheck shell=sh disable=SC2034

# Exit status 77 is "skipped" to ctest.
skip() {
    echo "SKIPPED: $*"
    exit 77
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

need() {
    command -v "$1" > /dev/null 2>&1 || skip "$1 is not installed"
}

# A folder that goes away with the test.
make_scratch() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
}

if [ -n "${QUIRE_SKIP:-}" ]; then
    skip "$QUIRE_SKIP"
fi
