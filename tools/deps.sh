# Sourced by ./run and ./test: installs what is missing, by package name, and nothing else.
#   need_packages build | tests
# Where packages may not be installed, says which ones are missing and stops. What only single tests
# use is tried and otherwise left: those tests are then skipped, visibly.

have_header() { echo "#include <$1>" | cc -E -xc - >/dev/null 2>&1; }
can_sanitize_memory() { echo 'int main(void) { return 0; }' | clang -fsanitize=memory -xc - -o /dev/null >/dev/null 2>&1; }

# command or header:package, one a line
wanted_for_build='cc:gcc
stdio.h:libc6-dev
cmake:cmake
ninja:ninja-build
openssl/sha.h:libssl-dev
xxhash.h:libxxhash-dev
jansson.h:libjansson-dev
zstd.h:libzstd-dev
zlib.h:zlib1g-dev
zmq.h:libzmq3-dev
msgpack.h:libmsgpack-dev
microhttpd.h:libmicrohttpd-dev
liburing.h:liburing-dev
curl/curl.h:libcurl4-openssl-dev'

wanted_for_tests='c++:g++
clang:clang
python3:python3
pkg-config:pkg-config
nm:binutils
cmocka.h:libcmocka-dev'

wanted_if_possible='clang-format-14:clang-format-14
clang-tidy-14:clang-tidy-14
promtool:prometheus
redis-server:redis-server'

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

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# install_packages NAME...: 0 when they are there afterwards; says why not
install_packages() {
  local log
  if ! command -v apt-get >/dev/null 2>&1 || ! as_root true 2>/dev/null; then
    echo "missing, and this account may not install packages; please install: $*" >&2
    return 1
  fi
  echo "installing: $*"
  log=$(mktemp)
  as_root apt-get update -qq >"$log" 2>&1 || true
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1; then
    echo "could not install: $*" >&2
    tail -n 5 "$log" >&2
    return 1
  fi
  rm -f "$log"
}

need_packages() {
  local missing wanted=$wanted_for_build
  [ "$1" = tests ] && wanted="$wanted_for_build
$wanted_for_tests"
  missing=$(missing_packages "$wanted" | sort -u | tr '\n' ' ')
  [ -z "${missing// /}" ] || install_packages $missing || exit 1
  [ "$1" = tests ] || return 0
  for missing in $(missing_packages "$wanted_if_possible"); do
    install_packages "$missing" || echo "going on without $missing" >&2
  done
}

# An S3 server from PyPI, for the object store tier; without it that test is skipped, visibly.
need_moto() {
  local home=build/moto/venv
  $home/bin/python -c 'import moto.server, boto3' 2>/dev/null && return 0
  python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3-venv || return 1
  python3 -m venv $home && $home/bin/python -m pip install --quiet --retries 1 'moto[server,s3]' boto3
}

# The run-time library of clang's memory sanitizer has a package of its own, named after its version.
need_memory_sanitizer() {
  local version
  can_sanitize_memory && return 0
  version=$(clang -dumpversion | cut -d. -f1)
  install_packages "libclang-rt-$version-dev" && can_sanitize_memory
}
