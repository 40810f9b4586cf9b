#!/usr/bin/env bash
# The main job: a guest does verified I/O over four queues to a RAID 6 served by two reactors, and a
# second guest does on another volume of it, while two members are pulled, replaced and rebuilt, the
# engine is killed and comes back, and the volumes grow. A guest that boots: see boot.test.sh.
source "$(dirname "$0")/lib.sh"
say "engine, eight drives, RAID 6 of six, two volumes, two exports"
engine_start
drives 8 256MiB
g array create a --level 6 --drives d0,d1,d2,d3,d4,d5 >/dev/null 2>&1
g volume create v --array a --size 400MiB >/dev/null
g volume create w --array a --size 128MiB >/dev/null
g export vhost v --name e --socket "$WORK/vh/e.sock" --queues 4 >/dev/null
g export vhost w --name f --socket "$WORK/vh/f.sock" --queues 2 >/dev/null
guest_start one "$HERE/first-guest.guest" 900 -c 4 -m 768 -b xfs_growfs -e GROWN=$((480 << 20)) -v "$WORK/vh/e.sock:4"
guest_start two "$HERE/second-guest.guest" 900 -c 2 -m 512 -b resize2fs -v "$WORK/vh/f.sock:2"
guest_says one SAY-LOAD 120
guest_says two SAY-LOAD 120
guest_says one SAY-ROUND-1 120
say "pull two drives under load"
g drive remove d1 --force --yes >/dev/null 2>&1
g drive remove d4 --force --yes >/dev/null 2>&1
[ "$(g --output json array show a | json 'd["state"]')" = degraded ] || fail "not degraded"
guest_says_more one SAY-ROUND 180
say "replace both"
g array replace a --member 1 --drive d6 --yes >/dev/null
g array replace a --member 4 --drive d7 --yes >/dev/null
wait_rebuilt a 240
guest_says_more one SAY-ROUND 180
say "kill the engine under load"
engine_kill
engine_start
# Nothing is to be resynced, unless the engine says what it doubts: a file system that tells too little.
doubts=0; grep -qE 'begun_(doubted|not_kept|unusable)' "$WORK/engine.log" && doubts=1
[ "$(resyncs)" = $doubts ] || { g job list; fail "a resync after a kill, or none although there are doubts"; }
guest_says_more one SAY-ROUND 240
say "kill it again"
engine_kill
engine_start
guest_says_more one SAY-ROUND 240
say "stop it under load: clean, and nothing to resync"
wait_jobs 240
engine_stop
engine_start
[ "$(resyncs)" = 0 ] || { g job list; fail "a resync after a clean stop"; }
guest_says_more one SAY-ROUND 240
say "grow the volumes, which ends the load"
g volume resize v --size 480MiB >/dev/null
g volume resize w --size 160MiB >/dev/null
guest_says one SAY-DONE 300
guest_says two SAY-DONE 300
guest_ends one; guest_ends two
say "check all parity by code that shares nothing with the planner"
wait_jobs 240
g array list
engine_stop
"$CHECK_PARITY" "$WORK"/d0.img "$WORK"/d6.img "$WORK"/d2.img "$WORK"/d3.img "$WORK"/d7.img "$WORK"/d5.img || fail "parity"
say "passed"
