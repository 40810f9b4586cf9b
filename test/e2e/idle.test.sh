#!/usr/bin/env bash
# An idle engine with an idle guest attached uses less than 2 % of one core, and the first request
# after the rest is answered.
source "$(dirname "$0")/lib.sh"
engine_start
drives 4 128MiB
g array create a --level 5 --drives d0,d1,d2,d3 >/dev/null 2>&1
g volume create v --array a --size 64MiB >/dev/null
g export vhost v --name e --socket "$WORK/vh/e.sock" --queues 4 >/dev/null
cat >"$WORK/idle.guest" <<'GUEST'
dd if=/dev/zero of=/dev/vda bs=4k count=64 oflag=direct status=none; echo SAY-IDLE
sleep 15
dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct status=none && echo SAY-AWAKE
GUEST
guest_start one "$WORK/idle.guest" 120 -c 4 -m 512 -v "$WORK/vh/e.sock:4"
guest_says one SAY-IDLE 90
ticks() { awk '{print $14 + $15}' "/proc/$ENGINE/stat"; }
sleep 1; before=$(ticks); sleep 10; after=$(ticks)
guest_says one SAY-AWAKE 60
guest_ends one
per_mille=$(((after - before) * 1000 / (10 * $(getconf CLK_TCK))))
say "idle: $((per_mille / 10)).$((per_mille % 10)) % of one core"
[ "$per_mille" -lt 20 ] || fail "an idle engine is busy"
engine_stop
say "passed"
