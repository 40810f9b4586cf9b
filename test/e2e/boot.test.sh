#!/usr/bin/env bash
# A guest boots from a volume: a whole Debian with systemd on a RAID 10.
source "$(dirname "$0")/lib.sh"
IMAGE=${XDG_CACHE_HOME:-$HOME/.cache}/vmsh/boot.img
[ -e "$IMAGE" ] || { say "make a root file system"; mkdir -p "$(dirname "$IMAGE")"; "$HERE/vm.sh" rootfs "$IMAGE.part" 900M fio >"$WORK/rootfs.log" 2>&1 || { tail -5 "$WORK/rootfs.log"; fail "rootfs"; }; mv "$IMAGE.part" "$IMAGE"; }
engine_start
drives 4 1GiB
g array create a --level 10 --drives d0,d1,d2,d3 >/dev/null 2>&1
g volume create root --array a --size 900MiB >/dev/null
g export vhost root --name load --socket "$WORK/vh/load.sock" --queues 2 --serial load >/dev/null
say "fill the volume from the image, in a guest"
printf '%s\n' 'set -e; dd if=/dev/vdb of=/dev/vda bs=1M oflag=direct status=none; sync' >"$WORK/fill.guest"
# The image comes second, so that the volume is vda.
guest_start fill "$WORK/fill.guest" 240 -c 2 -m 512 -v "$WORK/vh/load.sock:2" -- -drive "file=$IMAGE,if=none,id=img,format=raw,readonly=on" -device virtio-blk-pci,drive=img
guest_ends fill
g export remove load --yes >/dev/null
g export vhost root --name root --socket "$WORK/vh/root.sock" --queues 2 --serial vmshroot >/dev/null
say "boot from it"
cat >"$WORK/boot.guest" <<'GUEST'
set -e
grep '^/dev/vda / ext4' /proc/mounts
fio --name=b --directory=/root --size=16M --bs=4k --rw=randwrite --ioengine=psync --verify=crc32c --verify_fatal=1 --output-format=terse >/dev/null
echo "BOOTED $(cat /sys/block/vda/serial) $(. /etc/os-release; echo $ID)"
GUEST
guest_start boot "$WORK/boot.guest" 300 -c 2 -m 1024 -A 'vmsh.root=1 systemd.show_status=false systemd.mask=serial-getty@ttyS0.service' -v "$WORK/vh/root.sock:2"
guest_says boot "BOOTED vmshroot debian" 280
guest_ends boot
engine_stop
"$CHECK_PARITY" "$WORK"/d?.img || fail "the mirrors differ"
say "passed"
