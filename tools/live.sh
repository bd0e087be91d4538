# Sourced by ./test --live: fresh seeds recorded from vLLM 0.20.0 and replayed through Quire.
if [ -z "${QUIRE_VLLM_PYTHON:-}" ]; then
  setup=${QUIRE_VLLM_SETUP:-../shared/vllm/setup}
  if [ ! -x "$setup" ]; then
    echo "--live needs vLLM 0.20.0: set QUIRE_VLLM_PYTHON to a Python that has it, and QUIRE_VLLM_PLATFORM to" >&2
    echo "a file that lets it run without a GPU; or QUIRE_VLLM_SETUP to a setup script that builds both" >&2
    exit 1
  fi
  echo "building the reference in .deps/vllm (a few minutes, 8 GB) ..."
  bash "$setup" "$PWD/.deps/vllm" >$logs/live-setup.log 2>&1 || { cat $logs/live-setup.log; exit 1; }
  export QUIRE_VLLM_PYTHON=$PWD/.deps/vllm/venv/bin/python
  export QUIRE_VLLM_PLATFORM=${QUIRE_VLLM_PLATFORM:-$(cd "$(dirname "$setup")" && pwd)/host_platform.py}
fi
"$QUIRE_VLLM_PYTHON" -c 'import xxhash' 2>/dev/null || "$QUIRE_VLLM_PYTHON" -m pip install -q xxhash
[ -x build/release/tests/parity/parity_hash ] || build_preset release
# live_part NAME LINES COMMAND...: one comparison, of which these lines are shown
live_part() {
  local log=$logs/live-$1.log lines=$2 name=$1
  shift 2
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    sed -nE "/$lines/s/^/             /p" "$log"
  else
    fail live "$name: differences" "$log"
  fi
}
live_part decisions '^live ' python3 tests/parity/record/live.py build/release
live_part metrics 'differences' python3 tests/obs/live.py build/release
live_part events 'events' python3 tests/events/wire_live.py build/release
