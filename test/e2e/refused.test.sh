#!/usr/bin/env bash
# Blocks that a drive refuses to write, of an array that cannot do without it, on a real kernel: one
# member is out, and another answers writes of a few blocks with errors. Those writes fail; every byte
# else is right, the member that was out is filled again, and a scrub finds nothing.
source "$(dirname "$0")/lib.sh"
MEMBER_BYTES=$((64 << 20))
REFUSED_SECTOR=$((8 << 11)) # within the data of the member
for sector in 0 1 2 3 4 5 6 7; do
  printf '[inject-error]\nevent = "write_aio"\niotype = "write"\nerrno = "5"\nsector = "%s"\n' $((REFUSED_SECTOR + sector))
done >"$WORK/refuse"
disks=()
for i in 0 1 2; do
  truncate -s $MEMBER_BYTES "$WORK/m$i.img"
  file="$WORK/m$i.img"; [ $i != 1 ] || file="blkdebug:$WORK/refuse:$file"
  disks+=(-drive "file=$file,if=none,id=m$i,format=raw,cache=unsafe,werror=report" -device "virtio-blk-pci,drive=m$i")
done
"$HERE/vm.sh" run -q -t 600 -c 2 -m 1024 -f "$GARBOARD:/usr/bin/garboard" -f "$TARGET/$PROFILE/power-loss:/usr/bin/power-loss" \
  "$HERE/refused.guest" -- "${disks[@]}" >"$WORK/refused.log" 2>&1 || { cat "$WORK/refused.log"; fail "the guest"; }
grep -hE '^refused:' "$WORK/refused.log" | tr -d '\r'
say "passed"
