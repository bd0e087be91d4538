#!/bin/sh
# All tests and the benchmark of the GPU, on a machine that may have nothing but a driver.
#
#   tests/cuda/run_gpu.sh pack BUILD_DIR DIR    programs and the libraries they need, into DIR
#   tests/cuda/run_gpu.sh run DIR               runs them there; a summary at the end, 0 when all passed
#   tests/cuda/run_gpu.sh BUILD_DIR             both, on this machine
#
# ROUNDS (10000) of the race test, BENCH (the options of `quire bench gpu`), SCAN=1 (its tables by way and
# CTAs), SANITIZE=1 (cuda_device once more under compute-sanitizer, where it is installed).
set -u

pack() {
    build=$1
    to=$2
    mkdir -p "$to/lib" "$to/libc"
    cp "$build/cli/quire" "$to/"
    for program in "$build"/tests/cuda/cuda_*; do
        [ -f "$program" ] && [ -x "$program" ] && cp "$program" "$to/"
    done
    cp "$0" "$to/run_gpu.sh"
    for program in "$to/quire" "$to"/cuda_*; do
        ldd "$program"
    done | awk '/=> \//{print $3} /^\t\//{print $1}' | sort -u | while read -r library; do
        case $(basename "$library") in
        ld-linux* | libc.so* | libm.so* | libpthread* | libdl.so* | librt.so* | libstdc++* | libgcc_s*) cp -L "$library" "$to/libc/" ;;
        *) cp -L "$library" "$to/lib/" ;;
        esac
    done
    du -sh "$to"
}

# The machine's own C library, or, where that is older than what the programs need, the one they came with.
start() {
    program=$1
    shift
    if [ -n "$loader" ]; then
        "$loader" --library-path "$dir/libc:$LD_LIBRARY_PATH" "$dir/$program" "$@"
    else
        "$dir/$program" "$@"
    fi
}

find_driver() {
    [ -n "${QUIRE_CUDA_LIBRARY:-}" ] && return
    for folder in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/local/nvidia/lib64 /usr/local/nvidia/lib \
        /usr/lib64 /usr/lib/wsl/lib /usr/local/cuda/compat; do
        if [ -e "$folder/libcuda.so.1" ]; then
            QUIRE_CUDA_LIBRARY=$folder/libcuda.so.1
            export QUIRE_CUDA_LIBRARY
            return
        fi
    done
}

sanitize() { # tool, options of cuda_device
    tool=$1
    shift
    echo "---- compute-sanitizer --tool $tool cuda_device $*"
    status=77
    if command -v compute-sanitizer >/dev/null; then
        compute-sanitizer --tool "$tool" --error-exitcode 9 "$dir/cuda_device" --driver gpu "$@" >"$dir/sanitizer.log" 2>&1
        status=$?
        tail -8 "$dir/sanitizer.log"
    fi
    note "compute-sanitizer $tool" $status
}

note() { # name, exit status
    case $2 in
    0) summary="$summary
  passed   $1" ;;
    77) summary="$summary
  SKIPPED  $1" ;;
    *) summary="$summary
  FAILED   $1 ($2)"
        failed=1 ;;
    esac
}

run() {
    dir=$(cd "$1" && pwd)
    summary=
    failed=0
    loader=
    LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    find_driver
    echo "driver: ${QUIRE_CUDA_LIBRARY:-libcuda.so.1}"
    if ! "$dir/quire" --version; then
        loader=$(ls "$dir"/libc/ld-linux*)
    fi
    for program in "$dir"/cuda_*; do
        name=$(basename "$program")
        echo "---- $name"
        start "$name" --driver gpu --rounds "${ROUNDS:-10000}"
        note "$name" $?
    done
    if [ -n "${SANITIZE:-}" ]; then
        PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
        sanitize memcheck
        sanitize racecheck --few # it makes every launch slow
    fi
    echo "---- quire bench gpu ${BENCH:-}"
    # shellcheck disable=SC2086
    start quire bench gpu ${BENCH:-}
    note "quire bench gpu" $?
    if [ -n "${SCAN:-}" ]; then
        echo "---- quire bench gpu --scan"
        start quire bench gpu --scan
        note "quire bench gpu --scan" $?
    fi
    echo "---- summary$summary"
    return $failed
}

case ${1:-} in
pack) pack "$2" "$3" ;;
run) run "$2" ;;
'' | -*) sed -n '2,9s/^# \{0,1\}//p' "$0" ;;
*)
    folder=$(mktemp -d)
    pack "$1" "$folder" && run "$folder"
    status=$?
    rm -rf "$folder"
    exit $status
    ;;
esac
