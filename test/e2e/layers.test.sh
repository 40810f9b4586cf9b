#!/usr/bin/env bash
# All layers of one volume: drives like its own, an array and a volume on them, the export on the
# host, and files in a guest that has mounted it; on one page, each beside the one below it.
source "$(dirname "$0")/lib.sh"
load="--precondition 1 --range 16MiB --seconds 0.5 --jobs 1 --depth 1,8 --workloads random_read,random_write,write_flush"
engine_start
drives 4 128MiB
g array create a --level 5 --drives d0,d1,d2,d3 >/dev/null 2>&1
g volume create v --array a --size 64MiB >/dev/null
g export vhost v --name e --socket "$WORK/vh/e.sock" --queues 2 >/dev/null
say "drives, an array and a volume by themselves; then the export"
like=(); for i in 0 1 2 3; do truncate -s 128M "$WORK/l$i.img"; like+=(--drive "file:$WORK/l$i.img"); done
g --output json bench "${like[@]}" --level 5 --volume 64MiB --write --yes $load >"$WORK/below.json"
g --output json bench e --yes $load >"$WORK/export.json"
say "files in a guest"
strip -o "$WORK/garboard" "$GARBOARD" # with what is for debuggers it is too large for the guest's memory
guest_start one "$HERE/layers.guest" 180 -c 2 -m 768 -f "$WORK/garboard:/usr/bin/garboard" -e LOAD="$load" -o "$WORK/out" -v "$WORK/vh/e.sock:2"
guest_says one SAY-DONE 150
guest_ends one
say "one page of all"
all=("--with" "$WORK/out/files.json" --with "$WORK/export.json" --with "$WORK/below.json")
g bench "${all[@]}" --html "$WORK/page.html" | sed -n '/^layer by layer/,$p'
g --output json bench "${all[@]}" >"$WORK/all.json"
look() { [ "$(json "$1" <"$WORK/all.json")" = "$2" ] || fail "$1 is not $2, but $(json "$1" <"$WORK/all.json")"; }
look '",".join(l["layer"] for l in d["layers"])' drives,array,volume,export,file_system
look 'sum(l["errors"] for l in d["layers"])' 0
look '[len(l["rungs"]) for l in d["ladders"]]' '[5, 5, 5, 5, 5, 5]'
look 'all(any(r["of_below"] for r in l["rungs"]) for l in d["ladders"])' True
# The guest's device is our volume: by the begin of its uuid.
uuid=$(g --output json volume show v | json 'd["uuid"].replace("-", "")[:20]')
look 'd["layers"][4]["file_system"]["serial"]' "$uuid"
look 'd["layers"][4]["file_system"]["kind"] + d["layers"][4]["file_system"]["source"]' ext4/dev/vda
grep -q '>file system<' "$WORK/page.html" || fail "the page has no layer of files"
engine_stop
say "passed"
