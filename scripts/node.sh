#!/usr/bin/env bash
# Installs the Node packages that package-lock.json pins.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "scripts/node.sh: Node.js 20.19 or newer, with npm, is needed and was not found" >&2
  exit 1
fi
node -e '
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`scripts/node.sh: Node.js 20.19 or newer is needed; this is ${process.versions.node}`);
  process.exit(1);
}'
npm ci --loglevel=error
touch node_modules/.stamp
