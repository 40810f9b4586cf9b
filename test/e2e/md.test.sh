#!/usr/bin/env bash
# A second opinion on P, Q and the rotation: Linux md reads our members through an offset, complete
# and with two members missing, and sees what the guest wrote.
source "$(dirname "$0")/lib.sh"
engine_start
drives 5 128MiB
g array create a --level 6 --drives d0,d1,d2,d3,d4 >/dev/null 2>&1
g volume create v --array a --size 64MiB >/dev/null
g export vhost v --name e --socket "$WORK/vh/e.sock" --queues 2 >/dev/null
cat >"$WORK/write.guest" <<'GUEST'
set -e
fio --name=w --filename=/dev/vda --size=64M --bs=4k --rw=randwrite --ioengine=io_uring --direct=1 --iodepth=16 --output-format=terse >/dev/null
fio --name=s --filename=/dev/vda --offset=8M --size=24M --bs=192k --rw=write --ioengine=io_uring --direct=1 --output-format=terse >/dev/null
echo "SUM $(head -c 64M /dev/vda | sha256sum | cut -c1-64)"
GUEST
guest_start one "$WORK/write.guest" 180 -c 2 -m 512 -v "$WORK/vh/e.sock:2"
guest_ends one
sum=$(sed -n 's/.*SUM //p' "$WORK/one.log" | tr -d '\r')
[ ${#sum} = 64 ] || fail "no sum"
engine_stop
read -r offset bytes < <("$CHECK_PARITY" "$WORK"/d?.img | sed -n 's/data at \([0-9]*\) bytes, \([0-9]*\) bytes each/\1 \2/p')
cat >"$WORK/md.guest" <<'GUEST'
modprobe raid456
make() { mdadm --create /dev/md0 --run --level=6 --raid-devices=5 --chunk=64 --layout=left-symmetric --assume-clean \
  --metadata=1.2 --data-offset=${OFFSET}K --size=${SIZE}K --bitmap=none "$@" >/tmp/md.out 2>&1 || { cat /tmp/md.out; exit 1; }; }
look() { echo "$1 $(head -c 64M /dev/md0 | sha256sum | cut -c1-64)"; mdadm --stop /dev/md0 >/dev/null 2>&1; }
make /dev/vd[abcde]; look COMPLETE
make missing /dev/vdb missing /dev/vdd /dev/vde; look DEGRADED
GUEST
members=()
for i in 0 1 2 3 4; do
  members+=(-drive "file=$WORK/d$i.img,if=none,id=m$i,format=raw,snapshot=on" -device "virtio-blk-pci,drive=m$i")
done
"$HERE/vm.sh" run -q -t 180 -c 2 -m 512 -e OFFSET=$((offset / 1024)) -e SIZE=$((bytes / 1024)) "$WORK/md.guest" -- "${members[@]}" >"$WORK/md.log" 2>&1 ||
  { cat "$WORK/md.log"; fail "the guest with md"; }
for how in COMPLETE DEGRADED; do
  grep -q "$how $sum" "$WORK/md.log" || { cat "$WORK/md.log"; fail "md reads otherwise ($how), expected $sum"; }
done
say "md agrees; a damaged byte is found"
printf '\xff\xfe\xfd' | dd of="$WORK/d2.img" bs=1 seek=$((offset + 70000)) conv=notrunc status=none
! "$CHECK_PARITY" "$WORK"/d?.img || fail "the check finds nothing"
say "passed"
