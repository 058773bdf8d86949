#!/usr/bin/env bash
# Installs the Debian packages named, where apt-get and the right to use it are at hand.
# Says what is missing and fails otherwise.
set -euo pipefail

missing=()
for package in "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "Please install ${missing[*]}: there is no right here to do so (apt-get install ${missing[*]})" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi
command -v apt-get >/dev/null || { echo "Please install ${missing[*]}: there is no apt-get here" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" apt-get -qq install --yes --no-install-recommends "${missing[@]}" >/dev/null
