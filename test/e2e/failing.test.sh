#!/usr/bin/env bash
# Drives that fail as the kernel's device mapper makes them, in a guest: one answers with errors for a
# second and works for a second, in turns; then one takes 400 ms over everything; then 1 MiB of one and
# all of another are bad. Guests of the array see no error and every byte is right, a scrub finds nothing
# afterwards. In another guest a drive answers nobody while the engine starts.
source "$(dirname "$0")/lib.sh"
MEMBER_BYTES=$((64 << 20))
disks=()
for i in 0 1 2 3; do
  disks+=(-drive "file=$WORK/m$i.img,if=none,id=m$i,format=raw,cache=unsafe" -device "virtio-blk-pci,drive=m$i")
done
for level in 6 5 10; do
  say "level $level"
  for i in 0 1 2 3; do truncate -s 0 "$WORK/m$i.img"; truncate -s $MEMBER_BYTES "$WORK/m$i.img"; done
  "$HERE/vm.sh" run -q -t 600 -c 2 -m 1024 -M "dm-mod dm-flakey dm-delay" -f "$GARBOARD:/usr/bin/garboard" \
    -e MEMBER_BYTES=$MEMBER_BYTES -e LEVEL=$level "$HERE/failing.guest" -- "${disks[@]}" >"$WORK/failing.log" 2>&1 ||
    { cat "$WORK/failing.log"; fail "the guest with level $level"; }
  grep -hE '^(flaky|slow|bad):' "$WORK/failing.log" | tr -d '\r'
done
say "a drive that answers nobody"
"$HERE/vm.sh" run -q -t 600 -c 2 -m 1024 -M dm-mod -f "$GARBOARD:/usr/bin/garboard" \
  -e MEMBER_BYTES=$MEMBER_BYTES "$HERE/silent.guest" -- "${disks[@]}" >"$WORK/silent.log" 2>&1 ||
  { cat "$WORK/silent.log"; fail "the guest with a drive that answers nobody"; }
grep -h '^silent:' "$WORK/silent.log" | tr -d '\r'
say "passed"
