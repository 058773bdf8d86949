#!/usr/bin/env bash
# Brings what the tests need from the system, where it is missing and may be installed:
# PostgreSQL, Chromium and a C compiler. What stays missing is named; its tests then skip, or fail in CI.
set -uo pipefail
cd "$(dirname "$0")/.."

need() { # need PACKAGE REASON CHECK...
  local package=$1 reason=$2
  shift 2
  "$@" >/dev/null 2>&1 && return
  echo "Installing $package ($reason) …"
  scripts/apt-install.sh "$package" || echo "Without $package: $reason will not be tested" >&2
}

has_postgres() { command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb'; }

need postgresql "the ledger on PostgreSQL" has_postgres
need chromium "pages in a real browser" test -x /usr/bin/chromium
need gcc "GPU readings against a stand-in driver library" command -v cc
exit 0
