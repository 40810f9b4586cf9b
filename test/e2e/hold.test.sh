#!/usr/bin/env bash
# Members that the array cannot do without are away for some seconds, and requests wait for them.
# The host's file system under all file drives fills up while a guest writes to ext4 on a volume, and
# has room again later; and in a guest of its own, device mapper answers for all members of an array
# with errors under a verified load, and then no more. Nobody sees an error, every byte is right, and
# no member is left out.
source "$(dirname "$0")/lib.sh"
HELD=${HOLD_SECONDS:-4}
array() { g --output json array show a | json "$1"; }
wait_state() { # wait_state STATE SECONDS
  local left=$(($2 * 5))
  until [ "$(array 'd["state"]')" = "$1" ]; do
    left=$((left - 1)); [ $left -gt 0 ] || { g array show a; fail "array a is not $1"; }
    sleep 0.2
  done
}
say "the host's file system is full"
# A mount of its own: the engine lives there, and we look in through /proc.
mkdir "$WORK/drives"
OWN_MOUNTS=(unshare --mount)
"${OWN_MOUNTS[@]}" true 2>/dev/null || OWN_MOUNTS=(unshare --user --map-root-user --mount)
"${OWN_MOUNTS[@]}" true || fail "no mount namespace to be had: run as root, or allow user namespaces"
run_engine() { exec "${OWN_MOUNTS[@]}" sh -c 'mount -t tmpfs -o size=96m none "$1" && shift && exec "$@"' sh "$WORK/drives" "$@"; }
run_engine "$GARBOARD" serve --state-dir "$WORK/state" --socket "$GARBOARD_SOCKET" --cores "${CORES:-0,1}" >>"$WORK/engine.log" 2>&1 &
ENGINE=$!
for ((tries = 0; tries < 300; tries++)); do g status >/dev/null 2>&1 && break; sleep 0.1; done
names=()
for i in 0 1 2; do
  g drive add "file:$WORK/drives/d$i.img,size=128MiB,create" --name "d$i" >/dev/null; names+=("d$i")
done
g array create a --level 5 --drives "$(IFS=,; echo "${names[*]}")" --wait >/dev/null 2>&1
g volume create v --array a --size 128MiB >/dev/null
g export vhost v --name e --socket "$WORK/vh/e.sock" --queues 2 >/dev/null
cat >"$WORK/full.guest" <<'GUEST'
set -e
mkfs.ext4 -q -F /dev/vda
mount /dev/vda /mnt
load() { fio --directory=/mnt --ioengine=io_uring --direct=1 --fsync=16 --verify=crc32c --verify_fatal=1 --output-format=terse "$@" >/tmp/fio.out 2>&1 || { cat /tmp/fio.out; exit 1; }; }
load --name=before --size=4M --bs=16k --rw=randwrite
echo SAY-LOAD
load --name=meanwhile --size=24M --bs=64k --rw=write --iodepth=8
sync
umount /mnt; e2fsck -fn /dev/vda >/dev/null || { echo "ext4 is damaged"; exit 1; }
mount /dev/vda /mnt
load --name=before --size=4M --bs=16k --rw=randwrite --verify_only=1
load --name=meanwhile --size=24M --bs=64k --rw=write --verify_only=1
umount /mnt
if dmesg | grep -iE 'I/O error|blk_update|critical'; then echo "the guest saw errors"; exit 1; fi
echo SAY-DONE
GUEST
guest_start one "$WORK/full.guest" 300 -c 2 -m 512 -v "$WORK/vh/e.sock:2"
guest_says one SAY-LOAD 240
inside=/proc/$ENGINE/root$WORK/drives
dd if=/dev/zero of="$inside/filler" bs=64k status=none 2>/dev/null && fail "there is room without end"
wait_state holding 30
array '[m["cause"] for m in d["hold"]["members"]]' | grep -q 'is full: make room' || fail "the cause is not told"
sleep "$HELD"
grep -q SAY-DONE "$WORK/one.log" && fail "the guest did not need the room"
[ "$(array 'd["state"]')" = holding ] || fail "it does not wait"
say "and has room again"
rm "$inside/filler"
guest_says one SAY-DONE 60
guest_ends one
wait_state optimal 30
grep -q member_excluded "$WORK/engine.log" && fail "a member was left out"
grep -q array_resumes "$WORK/engine.log" || fail "nothing is said of the end"
cp --sparse=always "$inside"/d?.img "$WORK/"
engine_stop
"$CHECK_PARITY" "$WORK"/d?.img || fail "parity"

say "an enclosure blinks"
MEMBER_BYTES=$((64 << 20))
truncate -s $((MEMBER_BYTES * 3)) "$WORK/enclosure.img"
"$HERE/vm.sh" run -q -t 600 -c 2 -m 1024 -M dm-mod -f "$GARBOARD:/usr/bin/garboard" \
  -e MEMBER_BYTES=$MEMBER_BYTES -e HELD="$HELD" "$HERE/blink.guest" -- \
  -drive "file=$WORK/enclosure.img,if=none,id=d,format=raw,cache=unsafe" -device virtio-blk-pci,drive=d >"$WORK/blink.log" 2>&1 ||
  { cat "$WORK/blink.log"; fail "the blink"; }
grep -h '^blinked' "$WORK/blink.log" | tr -d '\r'

say "drives are unplugged, and come back under other device nodes"
disks=()
for i in 0 1 2; do
  truncate -s $MEMBER_BYTES "$WORK/plug$i.img"
  disks+=(-drive "file=$WORK/plug$i.img,if=none,id=p$i,format=raw,cache=unsafe"
    -device "virtio-blk-pci,drive=p$i,serial=m$i,write-cache=off")
done
"$HERE/vm.sh" run -q -t 600 -c 2 -m 1024 -f "$GARBOARD:/usr/bin/garboard" \
  -e HELD="$HELD" "$HERE/replug.guest" -- "${disks[@]}" >"$WORK/replug.log" 2>&1 ||
  { cat "$WORK/replug.log"; fail "the replug"; }
grep -h '^unplugged' "$WORK/replug.log" | tr -d '\r'
say "passed"
