# Sourced by ./test --browser: the pages of a replay, of a fleet, and of a running scheduler, in Chromium, driven by Playwright.
[ -d build/release ] || build_preset release
browser_log=$logs/browser.log
browser_start=$SECONDS
browser_python=build/browser/bin/python
if bash tests/viewer/setup.sh >"$browser_log" 2>&1 &&
  $browser_python tests/viewer/test_page.py --maker build/release/tests/viewer/viewer_make_page \
    --quire build/release/cli/quire >>"$browser_log" 2>&1 &&
  $browser_python tests/viewer/test_fleet.py --quire build/release/cli/quire >>"$browser_log" 2>&1 &&
  $browser_python tests/viewer/test_live.py --quire build/release/cli/quire >>"$browser_log" 2>&1; then
  passed=$((passed + 1))
  say browser "$(grep -E '^Ran ' "$browser_log" | tr '\n' ' '); $((SECONDS - browser_start)) s"
else
  fail browser "the pages in Chromium" "$browser_log"
fi
