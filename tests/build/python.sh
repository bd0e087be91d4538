#!/bin/sh
# python.sh SCRIPT [ARGUMENTS]: runs a Python test, or says that there is no Python to run it.
set -eu
. "$(dirname "$0")/lib.sh"

need python3
exec python3 "$@"
