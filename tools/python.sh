# Sourced by ./test: the Python package. Builds the wheel, installs it into an environment of its own
# and runs python/tests there, without vLLM: what needs it is skipped. Where QUIRE_VLLM_PYTHON names an
# interpreter that has vLLM, the wheel is built for that one, with tests/vllm/shim beside it; the same
# tests then run there too, in lock step with vLLM, and so do those of the shim.
python_home=build/python
python_log=$logs/python.log
python_start=$SECONDS
python_wheel= # its file, once it is built
python_base=${QUIRE_VLLM_PYTHON:-python3}

python_is_new_enough() { "$python_base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

python_version() { "$1" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null; }

# An environment that has the build backend and pytest; PyPI is needed the first time.
make_python_home() {
  "$python_base" -c 'import venv, ensurepip' 2>/dev/null || install_packages python3-venv || return 1
  if [ "$(python_version $python_home/venv/bin/python)" != "$(python_version "$python_base")" ]; then
    rm -rf $python_home/venv $python_home/cmake
    "$python_base" -m venv $python_home/venv || return 1
  fi
  $python_home/venv/bin/python -c 'import scikit_build_core, pytest' 2>/dev/null ||
    $python_home/venv/bin/python -m pip install --quiet --retries 1 'scikit-build-core>=0.10' pytest
}

install_wheel() {
  rm -rf $python_home/dist $python_home/site
  local shim=OFF
  [ -z "${QUIRE_VLLM_PYTHON:-}" ] || shim=ON
  $python_home/venv/bin/python -m pip wheel . --quiet --no-deps --no-build-isolation \
    --wheel-dir $python_home/dist --config-settings=build-dir=$python_home/cmake \
    --config-settings=cmake.define.QUIRE_VLLM_SHIM=$shim || return 1
  python_wheel=$(ls $python_home/dist/*.whl)
  $python_home/venv/bin/python -m pip install --quiet --no-deps --force-reinstall "$python_wheel" &&
    $python_home/venv/bin/python -m pip install --quiet --no-deps --target $python_home/site "$python_wheel"
}

# run_pytest NAME FOLDER COMMAND...: pytest over a folder; counts it as one program with many cases
run_pytest() {
  local name=$1 folder=$2 log=$logs/$1.log start=$SECONDS closing
  shift 2
  if "$@" -q -p no:cacheprovider $folder >"$log" 2>&1; then
    closing=$(grep -E '^[0-9]+ passed' "$log" | tail -n 1)
    passed=$((passed + 1)) cases=$((cases + ${closing%% *}))
    say "$name" "$folder, $(basename "$python_wheel"): ${closing% in *}; $((SECONDS - start)) s"
  else
    fail "$name" "$folder" "$log"
  fi
}

# The drop-in's steps drive the reference engine, where the release build has it.
run_dropin_engine() {
  local steps=build/release/tests/engine/dropin/engine_steps log=$logs/dropin-engine.log start=$SECONDS
  [ -x $steps ] || return 0
  if python3 tests/engine/dropin/test_dropin.py $steps --site $python_home/site >"$log" 2>&1; then
    passed=$((passed + 1))
    say python-vllm "the drop-in drives the reference engine: no bit differs; $((SECONDS - start)) s"
  else
    fail python-vllm "tests/engine/dropin/test_dropin.py" "$log"
  fi
}

if ! python_is_new_enough; then
  skipped=$((skipped + 1))
  say python "skipped: needs Python 3.11 or later"
elif ! make_python_home >"$python_log" 2>&1; then
  skipped=$((skipped + 1))
  say python "skipped: no environment for the wheel; is PyPI within reach? (see $python_log)"
elif ! install_wheel >>"$python_log" 2>&1; then
  fail python "the wheel" "$python_log"
else
  say python "$(basename "$python_wheel") built and installed; $((SECONDS - python_start)) s"
  run_pytest python python/tests $python_home/venv/bin/python -m pytest
  if [ -n "${QUIRE_VLLM_PYTHON:-}" ]; then
    platform=${QUIRE_VLLM_PLATFORM:-}
    folders=$PWD/$python_home/site:$PWD/$python_home/cmake/shim:$PWD/tests/vllm/shim
    with_vllm=(env "PYTHONPATH=$folders${platform:+:$(dirname "$platform")}" "$QUIRE_VLLM_PYTHON" -m pytest
      ${platform:+--platform "$(basename "$platform" .py)"})
    run_pytest python-vllm python/tests "${with_vllm[@]}"
    run_pytest python-shim tests/vllm/shim/tests "${with_vllm[@]}"
    run_dropin_engine
  else
    say python "without vLLM: QUIRE_VLLM_PYTHON names no interpreter that has it"
  fi
fi
