#!/usr/bin/env bash
# Whether the server keeps to the document it serves, whatever it is sent: schemathesis makes requests of the OpenAPI document, right ones and
# wrong ones, and compares the answers with it. No 5xx, no status, header or body that the document does not name.
#
#   tests/schemathesis.sh [SECONDS] [EXAMPLES]     480 seconds at most, 20 examples of each operation
#
# On loopback, on a temporary SQLite file, with a token of the role admin. Needs Python; installs schemathesis with pip into a virtual
# environment in the target folder, unless SCHEMATHESIS names the program.
set -euo pipefail

seconds=${1:-480}
examples=${2:-20}
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
mainstay=${MAINSTAY:-$target/debug/mainstay}
if [ -z "${MAINSTAY:-}" ]; then
    cargo build --locked --manifest-path "$root/Cargo.toml" --package mainstay-cli
fi

schemathesis=${SCHEMATHESIS:-$target/schemathesis/bin/schemathesis}
if [ ! -x "$schemathesis" ]; then
    python3 -m venv "$target/schemathesis"
    "$target/schemathesis/bin/pip" install --quiet 'schemathesis>=4,<5'
fi

folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi; rm -rf "$folder"' EXIT
cd "$folder"

read_json() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
made=$("$mainstay" token new schemathesis --role admin --json)
token=$(read_json token <<<"$made")
MAINSTAY_TOKENS="schemathesis:admin:$(read_json hash <<<"$made")" "$mainstay" serve --json --quiet --deploy --listen=127.0.0.1:0 \
    --database "sqlite:$folder/schemathesis.db" >served.log &
server=$!
until grep -q '"event":"ready"' served.log; do
    kill -0 "$server" || { echo "the server ended before it was ready" >&2; exit 1; }
    sleep 0.1
done
url=$(grep -m 1 '"event":"listening"' served.log | read_json url)

# One worker: with several, Python 3.11 fails now and then on its own account ("AST constructor recursion depth mismatch").
# Whether data that breaks the document is refused in each case is not asked: what the core checks is more than a schema can say.
checks=status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance
ask() {
    "$schemathesis" run "$url/openapi.json" --header "Authorization: Bearer $token" --request-timeout 90 --workers 1 --continue-on-failure \
        --phases examples,coverage,fuzzing --suppress-health-check all --max-examples "$examples" --max-time "$seconds" "$@"
}
# Health answers with 503 where something is unhealthy, as what is enqueued here and handled by nobody is after a while: no failure of the server's.
ask --checks "not_a_server_error,$checks" --exclude-path /health
ask --checks "$checks" --include-path /health
