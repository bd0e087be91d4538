#!/bin/sh
# The proof on a GPU, on a machine that may have nothing but a driver.
#
#   tests/engine/cuda/run_gpu.sh pack BUILD_DIR DIR    programs and the libraries they need, into DIR
#   tests/engine/cuda/run_gpu.sh run DIR               runs them there; a summary at the end, 0 when all passed
#
# REQUESTS (20000) of the proof, JOBS (12) engines side by side, SANITIZE=1 (the comparison with the processor once
# more under compute-sanitizer, where it is installed). QUIRE_CUDA_LIBRARY: the driver, where it is not found.
set -u

pack() {
    mkdir -p "$2/lib"
    cp "$1/tests/engine/engine_proof" "$1/tests/engine/cuda/engine_cuda_backend" \
        "$1/tests/engine/dropin/engine_steps" "$(dirname "$0")"/../dropin/*.steps "$0" "$2/"
    for program in engine_proof engine_cuda_backend engine_steps; do
        ldd "$2/$program"
    done | awk '/=> \//{print $3}' | grep -vE '/(libc|libm|libpthread|libdl|librt|libgcc_s)\.so' | sort -u |
        xargs -I{} cp -L {} "$2/lib/"
}

find_driver() {
    for folder in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64; do
        [ -n "${QUIRE_CUDA_LIBRARY:-}" ] && return
        [ -e "$folder/libcuda.so.1" ] && export QUIRE_CUDA_LIBRARY="$folder/libcuda.so.1"
    done
}

differ() {
    "$dir/engine_proof" --backend cuda "$@" | grep -E 'differ, tokens +[1-9]'
}

sanitize() {
    command -v compute-sanitizer >/dev/null || return 77
    compute-sanitizer --tool "$1" --error-exitcode 9 "$dir/engine_cuda_backend" 2
}

# note NAME COMMAND...: runs it, and says how long it took.
note() {
    name=$1
    shift
    echo "---- $name"
    start=$(date +%s)
    "$@"
    case $? in
    0) word=passed ;;
    77) word=SKIPPED ;;
    *) word=FAILED && failed=1 ;;
    esac
    summary="$summary
  $word   $name, $(($(date +%s) - start)) s"
}

run() {
    dir=$(cd "$1" && pwd)
    summary=
    failed=0
    export LD_LIBRARY_PATH="$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    find_driver
    note "the same bits as the processor" "$dir/engine_cuda_backend" 100
    note "the proof" "$dir/engine_proof" --backend cuda --requests "${REQUESTS:-20000}" --jobs "${JOBS:-12}"
    for kind in Scheduler AsyncScheduler; do
        note "steps of the drop-in's $kind" "$dir/engine_steps" --backend cuda --replay "$dir/$kind.steps"
    done
    for broken in 1 2 3 4 5 6 7; do
        note "what is broken is found: --break $broken" differ --requests 1500 --jobs "${JOBS:-12}" --break $broken
    done
    if [ -n "${SANITIZE:-}" ]; then
        PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
        for tool in memcheck racecheck initcheck; do
            note "compute-sanitizer $tool" sanitize $tool
        done
    fi
    echo "---- summary$summary"
    return $failed
}

case ${1:-} in
pack) pack "$2" "$3" ;;
run) run "$2" ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" ;;
esac
