#!/usr/bin/env bash
# Two guests on two volumes of one RAID 5 with blocks of 4096 bytes, one with blocks of 512 bytes
# itself, one member lost by command meanwhile; then the volumes are found again, in another folder, by an engine that knows nothing but the drives, with what the
# guests wrote; and a new volume reads as zeroes.
source "$(dirname "$0")/lib.sh"
engine_start
drives 4 256MiB
g array create a --level 5 --block-size 4096 --drives d0,d1,d2,d3 >/dev/null 2>&1
for n in 1 2; do
  g volume create "v$n" --array a --size 128MiB >/dev/null
done
g export vhost v1 --name e1 --socket "$WORK/vh/e1.sock" --queues 2 >/dev/null
g export vhost v2 --name e2 --socket "$WORK/vh/e2.sock" --queues 2 --block-size 4096 >/dev/null
guest_start one "$HERE/two-guests.guest" 240 -c 2 -m 512 -e BLOCK=512 -v "$WORK/vh/e1.sock:2"
guest_start two "$HERE/two-guests.guest" 240 -c 2 -m 512 -e BLOCK=4096 -v "$WORK/vh/e2.sock:2"
guest_says one SAY-ROUND-1 180
guest_says two SAY-ROUND-1 180
say "lose a member"
g array fail a --member 2 --yes >/dev/null
guest_says one SAY-DONE 180
guest_says two SAY-DONE 180
guest_ends one; guest_ends two
say "give it back to the array, rebuild"
g array replace a --member 2 --drive d2 --yes >/dev/null
wait_rebuilt a 120
say "delete a volume; its space reads as zeroes in a new one"
g export remove e1 --yes >/dev/null
g volume delete v1 --yes >/dev/null
g volume create v3 --array a --size 300MiB >/dev/null
g export vhost v3 --name e3 --socket "$WORK/vh/e3.sock" --queues 1 >/dev/null
printf '%s\n' 'cmp -n $((300<<20)) /dev/vda /dev/zero && echo SAY-ZEROES' >"$WORK/zeroes.guest"
guest_start three "$WORK/zeroes.guest" 120 -c 1 -m 512 -v "$WORK/vh/e3.sock:1"
guest_says three SAY-ZEROES 120
guest_ends three
engine_stop
"$CHECK_PARITY" "$WORK"/d0.img "$WORK"/d1.img "$WORK"/d2.img "$WORK"/d3.img || fail "parity"
say "an engine that knows only the drives finds the array and its volumes"
rm -rf "$WORK/state"; mkdir "$WORK/moved"; mv "$WORK"/d[0-3].img "$WORK/moved"
engine_start
g array import a $(printf -- '--search file:%s ' "$WORK"/moved/d[0-3].img) >/dev/null
[ "$(g --output json volume list | json '",".join(sorted(v["name"] for v in d))')" = v2,v3 ] || { g volume list; fail "volumes"; }
g export vhost v2 --name e2 --socket "$WORK/vh/e2.sock" --queues 2 --block-size 4096 >/dev/null
guest_start four "$HERE/two-guests.guest" 120 -c 2 -m 512 -e AGAIN=1 -e BLOCK=4096 -v "$WORK/vh/e2.sock:2"
guest_says four SAY-DONE 120
guest_ends four
engine_stop
say "passed"
