#!/usr/bin/env bash
# A guest rides through restarts of the engine, killed and stopped in turns, and sees no error and no
# wrong byte. How long it waited at the most is told: QEMU looks for the engine once a second.
# RESTARTS=10 for the whole of it.
source "$(dirname "$0")/lib.sh"
engine_start
drives 4 128MiB
g array create a --level 5 --drives d0,d1,d2,d3 --wait >/dev/null 2>&1
g volume create v --array a --size 64MiB >/dev/null
g export vhost v --name e --socket "$WORK/vh/e.sock" --queues 2 >/dev/null
guest_start one "$HERE/restarts.guest" 900 -c 2 -m 512 -v "$WORK/vh/e.sock:2"
guest_says one SAY-ROUND-1 120
for ((i = 1; i <= ${RESTARTS:-3}; i++)); do
  if ((i % 2)); then engine_kill; else engine_stop; fi
  told=$(wc -l <"$WORK/engine.log")
  engine_start
  doubts() { tail -n +$((told + 1)) "$WORK/engine.log" | grep -qE 'begun_(doubted|not_kept|unusable)'; }
  [ "$(resyncs)" = 0 ] || doubts || fail "a resync after restart $i"
  guest_says_more one SAY-ROUND 120
done
g volume resize v --size 80MiB >/dev/null
guest_says one SAY-DONE 180
guest_ends one
wait_jobs 120
engine_stop
"$CHECK_PARITY" "$WORK"/d{0,1,2,3}.img || fail "parity"
rounds() { sed -n 's/.*SAY-ROUND-[0-9]* longest \([0-9]*\) ms.*/\1/p' "$WORK/one.log" | sort -n; }
say "$((i - 1)) restarts; the longest that a request took: $(rounds | tail -1) ms, in a round without a restart $(rounds | head -1) ms"
say "passed"
