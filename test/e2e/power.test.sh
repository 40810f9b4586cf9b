#!/usr/bin/env bash
# Power loss on a real kernel: in a guest the engine writes to members over dm-log-writes, and the
# kernel's block tracepoints tell when each write and flush of each member was handed over and
# answered. On the host the power then fails between any two of these events, with any of the
# unflushed writes lost or torn; the program starts on what is left, resyncs, and is judged by the
# oracle; a scrub must find nothing.
#
# POWER_RUNS: "LEVEL:MEMBERS:FAILED:OPTIONS" … (FAILED: the member failed before, lost=N when N others are
# lost with the power each time, or empty; OPTIONS of `array create`); POWER_CUTS: cut points of each;
# POWER_SEED; POWER_PLANTED: a fault of a build with the feature `planted`, which must then be found
# (POWER_RECORDER is that build). POWER_KEEP: a folder for recordings, used again when they are there.
source "$(dirname "$0")/lib.sh"
RUNS=${POWER_RUNS:-5:3: 6:4:1: 5:3::--unwritten-regions}
CUTS=${POWER_CUTS:-40}
SEED=${POWER_SEED:-1}
REQUESTS=${POWER_REQUESTS:-240}
RECORDER=${POWER_RECORDER:-$GARBOARD}
MEMBER_BYTES=$((64 << 20))
FOUND=
POWER_LOSS=${POWER_LOSS:-$TARGET/$PROFILE/power-loss}

record() { # record FOLDER LEVEL MEMBERS FAILED OPTIONS
  local disks=() name
  if [ "$filler" != 0 ]; then
    head -c $((MEMBER_BYTES * $3)) /dev/zero | tr '\0' "\\$(printf %o "$filler")" >"$1/data.img"
  fi
  for name in data log; do
    truncate -s $(((MEMBER_BYTES * ($3 + 1)) * 2)) "$1/$name.img"
    disks+=(-drive "file=$1/$name.img,if=none,id=$name,format=raw,cache=unsafe" -device "virtio-blk-pci,drive=$name,discard=off,write-zeroes=off")
  done
  strip -o "$1/garboard" "$RECORDER" # with what is for debuggers it may be too large for the guest's memory
  "$HERE/vm.sh" run -q -t 900 -c 2 -m 1024 -f "$1/garboard:/usr/bin/garboard" -f "$POWER_LOSS:/usr/bin/power-loss" -o "$1" \
    -e LEVEL="$2" -e MEMBERS="$3" -e FAILED="${4%%lost=*}" -e OPTIONS="$5" -e MEMBER_BYTES=$MEMBER_BYTES -e VOLUME=16MiB -e SEED="$SEED" -e REQUESTS="$REQUESTS" \
    -e GARBOARD_PLANTED="${POWER_PLANTED:-}" "$HERE/power.guest" -- "${disks[@]}" >"$1/guest.log" 2>&1 || { cat "$1/guest.log"; fail "the recording"; }
  grep -h 'recorded:' "$1/guest.log" | tr -d '\r'
  rm "$1/data.img" "$1/garboard"
}
for run in $RUNS; do
  IFS=: read -r level members failed options <<<"$run"
  # Only such arrays do not mind, from the first moment on, what their drives hold.
  filler=0; [[ $options != *unwritten* ]] || filler=165
  what=${failed:+, member $failed failed}; [[ $failed != lost* ]] || what=", $failed with the power"
  folder=${POWER_KEEP:-$WORK}/$level${failed:+-degraded}$options; mkdir -p "$folder"
  say "level $level, $members members$what${options:+, $options}"
  [ -e "$folder/trace" ] || record "$folder" "$level" "$members" "$failed" "$options"
  if "$POWER_LOSS" replay "$folder" "$GARBOARD" "$members" $MEMBER_BYTES $filler "${failed:--}" "$CUTS" "$SEED"; then
    [ -n "${POWER_KEEP:-}" ] || rm -rf "$folder"
  else
    FOUND=1
    [ -n "${POWER_PLANTED:-}" ] || fail "level $level${failed:+ degraded} $options"
  fi
done
[ -z "${POWER_PLANTED:-}" ] || [ -n "$FOUND" ] || fail "nobody sees $POWER_PLANTED"
say "passed"
