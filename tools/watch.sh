# Sourced by ./test --long: what looks at a scheduler, for longer and with more programs of others.
# watch_long NAME LINES COMMAND...: passes with 0, is skipped with 77
watch_long() {
  local name=$1 lines=$2 log=$logs/watch-$1.log start=$SECONDS status=0
  shift 2
  "$@" >"$log" 2>&1 || status=$?
  case $status in
    0)
      passed=$((passed + 1))
      say watch "$name: passed; $((SECONDS - start)) s"
      sed -nE "/$lines/s/^/             /p" "$log" | tail -n 4
      ;;
    77)
      skipped=$((skipped + 1))
      say watch "$name: skipped: $(tail -n 1 "$log")"
      ;;
    *) fail watch "$name" "$log" ;;
  esac
}
watch_long prometheus 'samples' python3 tests/obs/prometheus_scrape.py build/release/cli/quire docs/grafana/quire.json
