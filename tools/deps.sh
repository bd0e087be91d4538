# Sourced by ./run and ./test: installs what is missing, by package name, and nothing else.
#   need_packages build | tests
# Where packages may not be installed, says which ones are missing and stops.

have_header() { echo "#include <$1>" | cc -E -xc - >/dev/null 2>&1; }

# command or header:package, one a line
wanted_for_build='cc:gcc
c++:g++
cmake:cmake
ninja:ninja-build
pkg-config:pkg-config
python3:python3
openssl/sha.h:libssl-dev
xxhash.h:libxxhash-dev'

wanted_for_tests='cmocka.h:libcmocka-dev
clang:clang
clang-format-14:clang-format-14
clang-tidy-14:clang-tidy-14
nm:binutils'

missing_packages() {
  local line what package
  for line in $1; do
    what=${line%%:*}
    package=${line##*:}
    case $what in
      *.h) have_header "$what" || echo "$package" ;;
      *) command -v "$what" >/dev/null 2>&1 || echo "$package" ;;
    esac
  done
}

install_packages() {
  local sudo=
  [ "$(id -u)" = 0 ] || sudo="sudo -n"
  if ! command -v apt-get >/dev/null 2>&1 || ! $sudo true 2>/dev/null; then
    echo "missing, and this account may not install packages; please install: $*" >&2
    exit 1
  fi
  echo "installing: $*"
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get update -qq >/dev/null 2>&1 || true
  if ! $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1; then
    echo "could not install: $*" >&2
    exit 1
  fi
}

need_packages() {
  local missing wanted=$wanted_for_build
  [ "$1" = tests ] && wanted="$wanted_for_build
$wanted_for_tests"
  missing=$(missing_packages "$wanted" | sort -u | tr '\n' ' ')
  [ -z "${missing// /}" ] || install_packages $missing
}
