#!/usr/bin/env bash
# Gets what the browser tests need: Chromium from the distribution, Playwright from PyPI into
# build/browser. Some 500 MB, so that the ordinary test run does not do it by itself.
set -euo pipefail
cd "$(dirname "$0")/../.."

. tools/deps.sh
browser=$(missing_packages 'chromium:chromium')
[ -z "$browser" ] || install_packages $browser
python3 -c 'import venv, ensurepip' 2>/dev/null || install_packages python3-venv
[ -x build/browser/bin/python ] || python3 -m venv build/browser
build/browser/bin/python -c 'import playwright' 2>/dev/null ||
  build/browser/bin/python -m pip install --quiet 'playwright>=1.40'
build/browser/bin/python -c 'import playwright; print("playwright", playwright.__file__)'
