#!/usr/bin/env bash
# A guest that is attached with exactly the arguments that `garboard vm qemu` prints sees the volume, and boots from it: QEMU's
# firmware has smaller rings (128 or 256 descriptors) than the device was given, the system has those, and they come in turns.
source "$(dirname "$0")/lib.sh"
engine_start
drives 4 128MiB
g array create a --level 5 --drives d0,d1,d2,d3 >/dev/null 2>&1
g volume create v --array a --size 64MiB >/dev/null
g export vhost v --queues 2 --queue-size 1024 --serial printed >/dev/null
printed=$(g vm qemu v --memory 512MiB)
say "$printed"
eval "arguments=($printed)"
[ "$(g --output json vm qemu v --memory 512MiB | json '"\n".join(d["arguments"])')" = "$(printf '%s\n' "${arguments[@]}")" ] || fail "JSON says otherwise"
cat >"$WORK/one.guest" <<'GUEST'
set -e
[ "$(cat /sys/block/vda/serial)" = printed ] && [ "$(blockdev --getsize64 /dev/vda)" = $((64 << 20)) ]
[ "$(ls /sys/block/vda/mq | wc -l)" = 2 ]
fio --name=w --filename=/dev/vda --size=32M --bs=16k --rw=randwrite --ioengine=io_uring --direct=1 --iodepth=8 --verify=crc32c --verify_fatal=1 --output-format=terse >/dev/null
dd if=/root/sector of=/dev/vda bs=512 oflag=direct status=none
GUEST
# A boot sector. It says SAY-FIRST on the serial port, notes on the disk that it did, and resets the machine; when it finds that
# note it says SAY-SECOND and ends QEMU with 3, or with 5 when the firmware cannot write.
{
  printf '\x31\xc0\x8e\xd8\x8e\xc0\x8e\xd0\xbc\x00\x7c' # xor ax,ax; mov ds,ax; mov es,ax; mov ss,ax; mov sp,0x7c00
  printf '\xbe\x50\x7c\x80\x3e\x67\x7c\x00\x74\x03\xbe\x5b\x7c' # mov si,FIRST; cmp byte [NOTE],0; je +3; mov si,SECOND
  printf '\xfc\xac\x84\xc0\x74\x06\xba\xf8\x03\xee\xeb\xf5' # cld; 1: lodsb; test al,al; jz 2; mov dx,0x3f8; out dx,al; jmp 1
  printf '\x80\x3e\x67\x7c\x00\x75\x1f\xfe\x06\x67\x7c' # 2: cmp byte [NOTE],0; jne 5; inc byte [NOTE]
  printf '\xb8\x01\x03\xbb\x00\x7c\xb9\x01\x00\xba\x80\x00\xcd\x13' # mov ax,0x301; mov bx,0x7c00; mov cx,1; mov dx,0x80; int 0x13
  printf '\x72\x07\xb0\xfe\xe6\x64\xf4\xeb\xfd' # jc 4; mov al,0xfe; out 0x64,al; 3: hlt; jmp 3
  printf '\xb0\x02\xeb\x02\xb0\x01\xe6\xf4\xeb\xf3' # 4: mov al,2; jmp 6; 5: mov al,1; 6: out 0xf4,al; jmp 3
  printf 'SAY-FIRST\n\0SAY-SECOND\n\0\0' # FIRST, SECOND, NOTE
} >"$WORK/sector"
truncate -s 510 "$WORK/sector"; printf '\x55\xaa' >>"$WORK/sector"
guest_start one "$WORK/one.guest" 120 -B -c 2 -f "$WORK/sector" -- "${arguments[@]}"
guest_ends one
say "boot from it, twice"
read -ra qemu <<<"$("$HERE/vm.sh" qemu)"
status=0
timeout -k 5 120 "${qemu[@]}" -M q35 -accel tcg -nodefaults -display none -no-user-config "${arguments[@]}" \
  -chardev "file,id=serial,path=$WORK/boot.log" -serial chardev:serial -device isa-debug-exit,iobase=0xf4 </dev/null || status=$?
[ $status = 3 ] && [ "$(tr -d '\r' <"$WORK/boot.log")" = $'SAY-FIRST\nSAY-SECOND' ] || { cat "$WORK/boot.log"; fail "it does not boot ($status)"; }
say "the system again, after the firmware"
printf '%s\n' 'cmp -n 103 /root/sector /dev/vda && [ "$(od -An -tu1 -j103 -N1 /dev/vda | tr -d " ")" = 1 ]' >"$WORK/two.guest"
guest_start two "$WORK/two.guest" 120 -B -c 2 -f "$WORK/sector" -- "${arguments[@]}"
guest_ends two
grep -q vhost_queue_not_started "$WORK/engine.log" && fail "a ring was refused"
engine_stop
say "passed"
