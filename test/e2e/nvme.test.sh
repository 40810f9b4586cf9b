#!/usr/bin/env bash
# NVMe drives by their generic devices, in a guest: nobody else gets at a drive that is in use, by
# whatever name; the engine is killed under load, and a drive pulled under load that compares every
# block; what commands have written, block devices read; and parity agrees in the end. The machine has
# two nodes, with a CPU each, and all drives hang on the second: so does what an engine on both does.
# Without the kernel's multipath: newer QEMU says of every drive that it may have several controllers.
source "$(dirname "$0")/lib.sh"
MEMBER_BYTES=$((48 << 20))
disks=(-m 1024 -device pxb-pcie,id=far,bus=pcie.0,bus_nr=128,numa_node=1)
for i in 0 1; do
  disks+=(-object "memory-backend-memfd,id=n$i,size=512M" -numa "node,nodeid=$i,cpus=$i,memdev=n$i")
done
for i in 0 1 2 3 4; do disks+=(-device "pcie-root-port,id=port$i,bus=far,chassis=$i,slot=$i"); done
for i in 0 1 2 3; do
  truncate -s $MEMBER_BYTES "$WORK/m$i.img"
  disks+=(-drive "file=$WORK/m$i.img,if=none,id=m$i,format=raw,cache=unsafe" -device "nvme,serial=m$i,drive=m$i,bus=port$i")
done
truncate -s $MEMBER_BYTES "$WORK/slow.img"
disks+=(-drive "file=$WORK/slow.img,if=none,id=m4,format=raw,cache=unsafe,throttling.iops-write=3" -device "nvme,serial=m4,drive=m4,bus=port4")
"$HERE/vm.sh" run -q -t 300 -c 2,sockets=2 -B -M nvme -A nvme_core.multipath=N -f "$GARBOARD:/usr/bin/garboard" "$HERE/nvme.guest" -- "${disks[@]}" \
  >"$WORK/nvme.log" 2>&1 || { cat "$WORK/nvme.log"; fail "the guest"; }
grep -hE '^(late|ours|killed|pulled|beside|nodes|times):' "$WORK/nvme.log" | tr -d '\r'
"$CHECK_PARITY" "$WORK"/m?.img || fail "parity"
say "passed"
