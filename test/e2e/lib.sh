# Functions for the end-to-end tests; sourced. A test runs in a folder of its own ($WORK), starts
# its engine with `engine_start`, and stops only what it started.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
PROFILE=${E2E_PROFILE:-release}
GARBOARD=$TARGET/$PROFILE/garboard
CHECK_PARITY=$TARGET/$PROFILE/check-parity
WORK=$(mktemp -d "${TMPDIR:-/tmp}/garboard-e2e.XXXXXX")
export GARBOARD_SOCKET=$WORK/api.sock
ENGINE=
GUESTS=()

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() { say "FAILED: $*"; tail -n 40 "$WORK/engine.log" >&2 || true; exit 1; }
g() { "$GARBOARD" "$@"; }

engine_start() { # waits until the API answers
  "$GARBOARD" serve --state-dir "$WORK/state" --socket "$GARBOARD_SOCKET" --cores "${CORES:-0,1}" >>"$WORK/engine.log" 2>&1 &
  ENGINE=$!
  local tries=0
  until g status >/dev/null 2>&1; do
    kill -0 "$ENGINE" 2>/dev/null || fail "the engine ended: $(tail -n 3 "$WORK/engine.log")"
    tries=$((tries + 1)); [ $tries -lt 300 ] || fail "the engine does not answer"
    sleep 0.1
  done
}
engine_kill() { kill -9 "$ENGINE"; wait "$ENGINE" 2>/dev/null || true; }
engine_stop() { kill -TERM "$ENGINE"; wait "$ENGINE" || fail "the engine did not stop cleanly"; ENGINE=; }
cleanup() {
  local status=$?
  for guest in ${GUESTS[@]+"${GUESTS[@]}"}; do kill "$guest" 2>/dev/null || true; done
  [ -n "$ENGINE" ] && kill -9 "$ENGINE" 2>/dev/null || true
  wait 2>/dev/null || true
  if [ "$status" = 0 ]; then rm -rf "$WORK"; else echo "left for inspection: $WORK"; fi
}
trap cleanup EXIT

drives() { # drives COUNT SIZE: d0.. as new sparse files
  local i; for ((i = 0; i < $1; i++)); do g drive add "file:$WORK/d$i.img,size=$2,create" --name "d$i" >/dev/null; done
}
guest_start() { # guest_start NAME SCRIPT SECONDS VM-ARGS... [-- QEMU-ARGS...]: console in $WORK/NAME.log
  local name=$1 script=$2 seconds=$3 vm=(); shift 3
  while [ $# -gt 0 ] && [ "$1" != -- ]; do vm+=("$1"); shift; done
  "$HERE/vm.sh" run -q -t "$seconds" ${vm[@]+"${vm[@]}"} "$script" "$@" >"$WORK/$name.log" 2>&1 &
  GUESTS+=($!)
  printf -v "guest_$name" %s $!
}
guest_says() { # guest_says NAME TEXT SECONDS: waits for a line of the guest
  local log=$WORK/$1.log pid=guest_$1 left=$(($3 * 5))
  until grep -qs -- "$2" "$log"; do
    kill -0 "${!pid}" 2>/dev/null || { cat "$log"; fail "guest $1 ended before it said: $2"; }
    left=$((left - 1)); [ $left -gt 0 ] || { tail -n 60 "$log"; fail "guest $1 does not say: $2"; }
    sleep 0.2
  done
}
guest_says_more() { # guest_says_more NAME TEXT SECONDS: waits for two more such lines; what the second tells of began after this
  local log=$WORK/$1.log pid=guest_$1 left=$(($3 * 5)) before
  before=$(grep -c -- "$2" "$log" || true)
  until [ "$(grep -c -- "$2" "$log")" -ge $((before + 2)) ]; do
    kill -0 "${!pid}" 2>/dev/null || { cat "$log"; fail "guest $1 ended instead of saying again: $2"; }
    left=$((left - 1)); [ $left -gt 0 ] || { tail -n 60 "$log"; fail "guest $1 does not say again: $2"; }
    sleep 0.2
  done
}
guest_ends() { # guest_ends NAME: its script must end with 0
  local pid=guest_$1
  wait "${!pid}" || { cat "$WORK/$1.log"; fail "guest $1"; }
}
json() { python3 -c 'import json,sys; d=json.load(sys.stdin); print(eval(sys.argv[1], {"d": d}))' "$1"; }
wait_rebuilt() { # wait_rebuilt ARRAY SECONDS
  local left=$2
  until [ "$(g --output json array show "$1" | json 'd["state"]')" = optimal ]; do
    left=$((left - 1)); [ $left -gt 0 ] || { g array show "$1"; g job list; fail "array $1 is not optimal"; }
    sleep 1
  done
}
resyncs() { g --output json job list | json 'sum(j["kind"] == "resync" for j in d)'; }
wait_jobs() { # wait_jobs SECONDS: until no job runs
  local left=$1
  until [ "$(g --output json status | json 'd["jobs_running"]')" = 0 ]; do
    left=$((left - 1)); [ $left -gt 0 ] || { g job list; fail "jobs do not end"; }
    sleep 1
  done
}
