# Sourced by ./test --browser: the page of a replay in Chromium, driven by Playwright.
[ -d build/release ] || build_preset release
browser_log=$logs/browser.log
browser_start=$SECONDS
if bash tests/viewer/setup.sh >"$browser_log" 2>&1 && build/browser/bin/python tests/viewer/test_page.py \
  --maker build/release/tests/viewer/viewer_make_page --quire build/release/cli/quire >>"$browser_log" 2>&1; then
  passed=$((passed + 1))
  say browser "$(grep -E '^Ran ' "$browser_log"); $((SECONDS - browser_start)) s"
else
  fail browser "the page in Chromium" "$browser_log"
fi
