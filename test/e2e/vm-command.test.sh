#!/usr/bin/env bash
# A guest that is attached with exactly the arguments that `garboard vm qemu` prints sees the volume.
source "$(dirname "$0")/lib.sh"
engine_start
drives 4 128MiB
g array create a --level 5 --drives d0,d1,d2,d3 >/dev/null 2>&1
g volume create v --array a --size 64MiB >/dev/null
g export vhost v --queues 2 --serial printed >/dev/null
printed=$(g vm qemu v --memory 512MiB)
say "$printed"
eval "arguments=($printed)"
[ "$(g --output json vm qemu v --memory 512MiB | json '"\n".join(d["arguments"])')" = "$(printf '%s\n' "${arguments[@]}")" ] || fail "JSON says otherwise"
cat >"$WORK/one.guest" <<'GUEST'
set -e
[ "$(cat /sys/block/vda/serial)" = printed ] && [ "$(blockdev --getsize64 /dev/vda)" = $((64 << 20)) ]
[ "$(ls /sys/block/vda/mq | wc -l)" = 2 ]
fio --name=w --filename=/dev/vda --size=32M --bs=16k --rw=randwrite --ioengine=io_uring --direct=1 --iodepth=8 --verify=crc32c --verify_fatal=1 --output-format=terse >/dev/null
GUEST
guest_start one "$WORK/one.guest" 120 -B -c 2 -- "${arguments[@]}"
guest_ends one
engine_stop
say "passed"
