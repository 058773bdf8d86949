#!/usr/bin/env bash
# Pins what pyproject.toml asks for, for every supported Python, with hashes and without naming an index.
# UPGRADE=1 takes the newest versions; otherwise pins that still fit are kept.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=.venv-lock
[ -x $tool/bin/uv ] || { "${PYTHON:-python3}" -m venv $tool && $tool/bin/pip install --quiet uv; }

lock() { # lock OUTPUT [MORE...]
  local output=$1
  shift
  $tool/bin/uv pip compile --quiet --universal --python-version 3.10 --all-extras --generate-hashes \
    --no-header --no-annotate ${UPGRADE:+--upgrade} "$@" \
    --output-file "requirements/$output" pyproject.toml >/dev/null
}

lock dev.txt
lock hub5.txt --constraint requirements/hub5.in
