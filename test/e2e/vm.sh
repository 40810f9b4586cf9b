#!/usr/bin/env bash
# vm.sh - run a shell script inside a throw-away QEMU guest and exit with its status.
#
#   vm.sh deps [--install]            print (or run, as root) the apt-get line it needs
#   vm.sh kernel NAME                 fetch + unpack a Debian kernel, print its version
#                                     NAME: 6.1 6.1-cloud 6.12 6.12-cloud 7 7-cloud
#                                     or any exact linux-image-<version> suffix
#   vm.sh qemu10                      fetch + unpack QEMU 10 (bookworm-backports) beside the
#                                     system one; afterwards it is used automatically
#   vm.sh qemu                        print the qemu-system command line prefix in use
#   vm.sh rootfs IMG SIZE PKG[,PKG..]  build a bootable Debian 12 ext4 image (mmdebstrap; root)
#   vm.sh run [options] SCRIPT [-- QEMU-ARGS...]
#
# run options
#   -k NAME        kernel (default 6.12)            -m MiB   guest memory (default 1024)
#   -c N           vCPUs (default 2; 1 = slower but see notes)      -t SEC   limit (default 120)
#   -a kvm|tcg     accelerator (default: kvm only if the CPU shows svm/vmx, else tcg)
#   -M "a b c"     extra kernel modules to pack (and load, unless prefixed with '-')
#   -b "x y"       extra host programs to pack with their shared libraries
#   -f SRC[:DEST]  add a file or directory to the guest (repeat)
#   -e VAR=VALUE   environment of the guest script (repeat)
#   -o DIR         collect what the guest leaves under /out into DIR
#   -v SOCK[:Q]    attach a vhost-user-blk socket with Q queues (default 4) (repeat)
#   -F SOCK:TAG    attach a vhost-user-fs (virtiofs) socket
#   -A "ARGS"      extra kernel command line        -I  put an Intel IOMMU in the machine
#   -R IMG         boot into this root file system image (systemd, full Debian) instead of the
#                  initramfs; IMG itself is not written (snapshot)
#   -B             no memory: QEMU-ARGS bring it
#   -q             keep kernel messages off the console
#
# The guest is an initramfs made from this machine's Debian packages (busybox, fio, nvme,
# mkfs, mdadm, nfs, rdma ...) plus the named kernel's modules. SCRIPT is run by bash (or its
# own #! line) with stdout/stderr on this terminal. Exit status: the script's own;
# 124 timed out; 125 guest died (panic, early exit); 126 could not be started.
# Everything is cached under ${XDG_CACHE_HOME:-$HOME/.cache}/vmsh; no root needed after deps.
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
CACHE=${VMSH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vmsh}
APT_PKGS="qemu-system-x86 qemu-utils qemu-system-common seabios ipxe-qemu busybox-static kmod cpio zstd xz-utils python3 ca-certificates
 fio nvme-cli xfsprogs e2fsprogs mdadm dmsetup util-linux iproute2 iputils-ping nfs-common nfs-kernel-server
 rdma-core rdmacm-utils ibverbs-utils ibverbs-providers perftest sg3-utils pciutils strace mmdebstrap fdisk xxd"
PROGS="bash fio nvme mkfs.xfs xfs_repair xfs_io mkfs.ext4 e2fsck mdadm dmsetup blkid lsblk blkdiscard sfdisk
 wipefs losetup blockdev mount umount findmnt fallocate taskset flock stat dd cmp md5sum sha256sum od xxd timeout setpriv
 ip ss bridge ping rdma devlink mount.nfs umount.nfs mount.nfs4 rpc.nfsd rpc.mountd exportfs blkmapd nfsdcld nfsstat rpcbind
 rping ib_send_bw ib_write_bw ib_read_bw ibv_devinfo ibv_rc_pingpong rdma_server rdma_client udaddy
 sg_persist sg_inq lspci setpci strace kmod udevadm chrt"
# Loaded at start when present; the rest of the list is packed for modprobe.
MODS_LOAD="configfs sd_mod virtio_pci virtio_blk virtio_net virtio_console virtio_rng"
MODS_PACK="ext4 xfs btrfs fuse virtiofs overlay loop nbd brd null_blk scsi_debug sd_mod virtio_scsi
 md_mod raid0 raid1 raid10 raid456 dm-mod dm-raid dm-log-writes dm-flakey dm-delay dm-integrity dm-thin-pool dm-snapshot
 dm-crypt nvme nvme-tcp nvme-rdma nvme-fabrics nvmet nvmet-tcp nvmet-rdma nvme-loop tls
 rdma_rxe rdma_ucm rdma_cm ib_uverbs ib_umad siw dummy veth bridge e1000 e1000e
 ublk_drv vduse vdpa virtio_vdpa vhost_vdpa vhost_net vhost_scsi target_core_mod target_core_iblock target_core_file
 target_core_user target_core_pscsi iscsi_target_mod iscsi_tcp tcm_loop
 nfs nfsv4 nfsd blocklayoutdriver nfs_layout_flexfiles nfs_layout_nfsv41_files auth_rpcgss sunrpc rpcrdma
 vfio vfio-pci vfio_iommu_type1 virtio-iommu uio uio_pci_generic 9p 9pnet_virtio softdog i6300esb
 crc32_generic crc32-pclmul crct10dif_generic crct10dif-pclmul crc64-rocksoft crc32c_generic crc32c-intel libcrc32c
 gcm ccm ctr xts cbc hmac sha512_generic aesni-intel crc32c_cryptoapi xxhash_generic sha256_generic aesni_intel cryptd
 vmw_vsock_virtio_transport sch_netem ifb af_packet"

die() { echo "vm.sh: $*" >&2; exit 126; }
need() { command -v "$1" >/dev/null || die "missing $1; run: $0 deps --install"; }

mirror() { # the Debian mirror that this machine already uses
  [ -n "${VMSH_MIRROR:-}" ] && { echo "$VMSH_MIRROR"; return; }
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | sed 's:/*$::' | grep -m1 '/debian$' ||
    die "no Debian mirror in this machine's apt sources; set VMSH_MIRROR"
}
aptpriv() { # a private apt configuration: other suites without touching the system's
  local d=$CACHE/apt
  if [ ! -e "$d/ready" ] || [ -n "$(find "$d/ready" -mmin +720 2>/dev/null)" ]; then
    mkdir -p "$d"/{etc,lists/partial,cache/archives/partial}
    : >"$d/status"
    local s k="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    local m; m=$(mirror)
    { for s in bookworm bookworm-backports trixie trixie-backports; do echo "deb $k $m $s main"; done
      echo "deb $k ${m/%debian/debian-security} bookworm-security main"; } >"$d/etc/sources.list"
    _apt get update >"$d/update.log" 2>&1 || { tail -5 "$d/update.log" >&2; die "apt-get update failed"; }
    touch "$d/ready"
  fi
}
_apt() { local c=$1 d=$CACHE/apt; shift
  apt-"$c" -qq -o Dir::State="$d" -o Dir::State::lists="$d/lists" -o Dir::State::status="$d/status" \
    -o Dir::Cache="$d/cache" -o Dir::Etc::sourcelist="$d/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::Etc::main=/dev/null -o Dir::Etc::parts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
    -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none -o APT::Sandbox::User= -o Acquire::Retries=3 "$@"; }

# ---- kernels -------------------------------------------------------------------------
resolve_kernel() { # name -> exact version string of the newest matching image package
  local n=$1 meta suite
  case $n in
    6.1) meta=linux-image-amd64 suite=bookworm-security;;
    6.1-cloud) meta=linux-image-cloud-amd64 suite=bookworm-security;;
    6.12) meta=linux-image-amd64 suite=trixie;;
    6.12-cloud) meta=linux-image-cloud-amd64 suite=trixie;;
    6.12-bpo) meta=linux-image-amd64 suite=bookworm-backports;;
    7) meta=linux-image-amd64 suite=trixie-backports;;
    7-cloud) meta=linux-image-cloud-amd64 suite=trixie-backports;;
    *) echo "$n"; return;;
  esac
  local v; v=$(_apt cache madison "$meta" | awk -F'|' -v s=" $suite/" 'index($3,s){gsub(/ /,"",$2);print $2;exit}')
  [ -n "$v" ] || die "no $meta in $suite"
  _apt cache show "$meta=$v" | sed -n 's/^Depends:.*linux-image-\([0-9][^ ,]*\).*/\1/p' | head -1
}
kernel() {
  local n=$1 v d p
  if [ -e "$CACHE/k/alias-$n" ]; then v=$(cat "$CACHE/k/alias-$n"); else
    aptpriv; v=$(resolve_kernel "$n"); [ -n "$v" ] || die "unknown kernel $n"; fi
  d=$CACHE/k/$v
  if [ ! -e "$d/ok" ]; then
    aptpriv; rm -rf "$d.part"; mkdir -p "$d.part/deb"
    echo "vm.sh: fetching kernel $v" >&2
    for p in image binary modules base; do # 7.x splits the image into several packages
      _apt cache show "linux-$p-$v" >/dev/null 2>&1 || continue
      (cd "$d.part/deb" && _apt get download "linux-$p-$v") >/dev/null || die "download of linux-$p-$v failed"
    done
    for p in "$d.part"/deb/*.deb; do dpkg-deb -x "$p" "$d.part"; done
    rm -rf "$d.part/deb" "$d.part/usr/share"
    if [ -d "$d.part/lib/modules" ]; then mv "$d.part/lib/modules/$v" "$d.part/m"; else mv "$d.part/usr/lib/modules/$v" "$d.part/m"; fi
    (cd "$d.part/m/kernel" && rm -rf sound drivers/{gpu,media,staging,iio,hid,net/wireless})   # half the size
    mkdir -p "$d.part/lib/modules"; mv "$d.part/m" "$d.part/lib/modules/$v"; rm -rf "$d.part/usr"
    local z; z=$(ls "$d.part"/boot/vmlinuz-* "$d.part/lib/modules/$v/vmlinuz" 2>/dev/null | head -1)
    [ -n "$z" ] || die "no vmlinuz in $v"
    elf_of "$z" "$d.part/vmlinux" || cp "$z" "$d.part/vmlinux"   # the ELF boots by PVH: no slow decompression
    [ -e "$d.part/boot/config-$v" ] && mv "$d.part/boot/config-$v" "$d.part/config" || cp "$d.part/lib/modules/$v/config" "$d.part/config"
    rm -rf "$d.part/boot"; depmod -b "$d.part" "$v"; touch "$d.part/ok"
    rm -rf "$d"; mv "$d.part" "$d"
  fi
  echo "$v" >"$CACHE/k/alias-$n"; echo "$v"
}
elf_of() { python3 - "$1" "$2" <<'PY'
import sys, struct, lzma, zlib, subprocess
d = open(sys.argv[1], 'rb').read()
base = ((d[0x1f1] or 4) + 1) * 512
o, n = struct.unpack_from('<II', d, 0x248)
p = d[base + o:base + o + n]
if p[:6] == b'\xfd7zXZ\0': e = lzma.LZMADecompressor().decompress(p)
elif p[:2] == b'\x1f\x8b': e = zlib.decompressobj(31).decompress(p)
elif p[:4] == b'\x28\xb5\x2f\xfd': e = subprocess.run(['zstd', '-dcq'], input=p, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
else: sys.exit(1)
if e[:4] != b'\x7fELF': sys.exit(1)
open(sys.argv[2], 'wb').write(e)
PY
}

# ---- qemu ----------------------------------------------------------------------------
qemu10() {
  local d=$CACHE/qemu10 v p
  [ -e "$d/ok" ] && return
  aptpriv; rm -rf "$d.part"; mkdir -p "$d.part/deb"
  v=$(_apt cache madison qemu-system-x86 | awk -F'|' 'index($3,"bookworm-backports/"){gsub(/ /,"",$2);print $2;exit}')
  [ -n "$v" ] || die "no qemu in bookworm-backports"
  (cd "$d.part/deb" && _apt get download {qemu-system-x86,qemu-system-common,qemu-system-data,qemu-utils}="$v" seabios/bookworm-backports ipxe-qemu/bookworm ) >/dev/null 2>&1 ||
  (cd "$d.part/deb" && _apt get download {qemu-system-x86,qemu-system-common,qemu-system-data,qemu-utils}="$v" seabios ipxe-qemu) >/dev/null || die "qemu download failed"
  for p in "$d.part"/deb/*.deb; do dpkg-deb -x "$p" "$d.part"; done
  rm -rf "$d.part/deb" "$d.part/usr/share/doc"
  ! ldd "$d.part/usr/bin/qemu-system-x86_64" | grep "not found" >&2 || die "qemu10 lacks libraries here"
  touch "$d.part/ok"; rm -rf "$d"; mv "$d.part" "$d"
}
qemu_cmd() {
  local d=$CACHE/qemu10
  if [ -n "${VMSH_QEMU:-}" ]; then echo "$VMSH_QEMU"
  elif [ -e "$d/ok" ]; then
    echo "$d/usr/bin/qemu-system-x86_64 -L $d/usr/share/qemu -L $d/usr/share/seabios -L $d/usr/lib/ipxe/qemu"
  else echo qemu-system-x86_64; fi
}

# ---- initramfs -----------------------------------------------------------------------
add_prog() { # copy one program with its libraries into $ROOT
  local p=$1 t l
  t=$(command -v "$p" 2>/dev/null) || { echo "$p" >>"$ROOT/.missing"; return 0; }
  case $t in */*) t=$(realpath -s "$t");; esac
  case $t in /*) ;; *) return 0;; esac
  mkdir -p "$ROOT/usr/bin"
  cp -L "$t" "$ROOT/usr/bin/${t##*/}"
  { ldd "$t" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r l; do add_file "$l"; done
}
add_file() { # follow the link, keep the name; /lib -> /usr/lib
  local d=$1; case $d in /lib/*|/lib64/*|/bin/*|/sbin/*) d=/usr$d;; esac
  [ -e "$ROOT$d" ] || { mkdir -p "$ROOT${d%/*}"; cp -rL "$1" "$ROOT$d"; }
}
userland() { # -> path of the cached userland cpio
  local key f ROOT b
  key=$( { echo "$PROGS $1"; cat "$0"; for b in $PROGS $1; do f=$(command -v "$b" || true); [ -n "$f" ] && stat -L -c '%n %s %Y' "$f"; done; } | sha256sum | cut -c1-16)
  f=$CACHE/i/user-$key.cpio
  if [ ! -e "$f" ]; then
    ROOT=$CACHE/i/user-$key.$$; rm -rf "$ROOT"
    mkdir -p "$ROOT"/{usr/bin,usr/lib,usr/lib64,etc,proc,sys,dev,tmp,run,root,mnt,out,var/lib/nfs/rpc_pipefs,var/lib/nfs/v4recovery,var/lib/nfs/nfsdcld}
    ln -s usr/bin "$ROOT/bin"; ln -s bin "$ROOT/usr/sbin"; ln -s usr/bin "$ROOT/sbin"
    ln -s usr/lib "$ROOT/lib"; ln -s usr/lib64 "$ROOT/lib64"; ln -s ../run "$ROOT/var/run"
    : >"$ROOT/.missing"
    for b in $PROGS $1; do add_prog "$b"; done
    cp -L "$(command -v busybox)" "$ROOT/usr/bin/busybox"
    for b in $(busybox --list); do [ -e "$ROOT/usr/bin/$b" ] || ln -s busybox "$ROOT/usr/bin/$b"; done
    ln -sf bash "$ROOT/usr/bin/sh"   # busybox sh would prefer its own applets over the real programs
    for b in modprobe insmod rmmod lsmod modinfo depmod; do ln -sf kmod "$ROOT/usr/bin/$b"; done
    [ -e "$ROOT/usr/bin/sg_persist" ] || true
    for b in /etc/libibverbs.d /usr/lib/x86_64-linux-gnu/libibverbs /etc/mke2fs.conf /etc/netconfig /etc/protocols \
             /etc/services /etc/rpc /etc/nvme /usr/lib/x86_64-linux-gnu/fio; do [ -e "$b" ] && add_file "$b"; done
    for b in "$ROOT"/usr/lib/x86_64-linux-gnu/libibverbs/*; do # keep the providers that can work in a guest
      case $b in *librxe*|*libsiw*) { ldd "$b" || true; } | grep -o '/[^ ]*' | while read -r l; do add_file "$l"; done;; *) rm -f "$b";; esac
    done
    for b in "$ROOT"/etc/libibverbs.d/*; do case $b in *rxe*|*siw*) ;; *) rm -f "$b";; esac; done
    for b in libnss_files.so.2 libgcc_s.so.1; do [ -e /lib/x86_64-linux-gnu/$b ] && add_file /lib/x86_64-linux-gnu/$b; done
    rm -rf "$ROOT"/usr/lib/x86_64-linux-gnu/fio/{fio-rados,fio-rbd,fio-rdma,fio-http}.so 2>/dev/null || true
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:n:/:/bin/false\nstatd:x:103:65534:s:/var/lib/nfs:/bin/false\n_rpc:x:104:65534:r:/run:/bin/false\n' >"$ROOT/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$ROOT/etc/group"
    printf 'passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\nrpc: files\n' >"$ROOT/etc/nsswitch.conf"
    printf '127.0.0.1 localhost vmsh\n' >"$ROOT/etc/hosts"; : >"$ROOT/etc/exports"; : >"$ROOT/etc/fstab"; ln -s /proc/mounts "$ROOT/etc/mtab"
    ldconfig -r "$ROOT" 2>/dev/null || true
    guest_init >"$ROOT/init"; chmod 755 "$ROOT/init"
    (cd "$ROOT" && find . | cpio -o -H newc --quiet -R 0:0) >"$f.$$"; mv "$f.$$" "$f"
    [ -s "$ROOT/.missing" ] && echo "vm.sh: not on this machine, left out: $(tr '\n' ' ' <"$ROOT/.missing")" >&2
    rm -rf "$ROOT"
  fi
  echo "$f"
}
modules() { # kernel version, module list -> path of the cached modules cpio
  local v=$1 list=$2 key f R m l
  key=$(echo "$v $list" | sha256sum | cut -c1-16); f=$CACHE/i/mod-$v-$key.cpio
  if [ ! -e "$f" ]; then
    R=$CACHE/i/mod.$$; rm -rf "$R"; mkdir -p "$R/usr/lib/modules/$v"
    for m in $list; do modprobe -d "$CACHE/k/$v" -S "$v" --show-depends "$m" 2>/dev/null || true; done |
      awk '$1=="insmod"{print $2}' | sort -u | while read -r l; do
        m=${l#"$CACHE/k/$v"}; m=$R/usr${m}; mkdir -p "${m%/*}"
        case $l in *.xz) xz -dc "$l" >"${m%.xz}";; *.zst) zstd -dqc "$l" >"${m%.zst}";; *) cp "$l" "$m";; esac
      done
    cp "$CACHE/k/$v/lib/modules/$v"/modules.{builtin,builtin.modinfo,order} "$R/usr/lib/modules/$v/" 2>/dev/null || true
    ln -s usr/lib "$R/lib"; depmod -b "$R" "$v"; rm "$R/lib"
    (cd "$R" && find usr/lib/modules | cpio -o -H newc --quiet -R 0:0) >"$f.$$"; mv "$f.$$" "$f"; rm -rf "$R"
  fi
  echo "$f"
}
guest_init() { cat <<'GI'
#!/bin/busybox sh
export PATH=/usr/bin HOME=/root TERM=dumb LD_LIBRARY_PATH=
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
mkdir -p /run/lock /run/rpcbind /run/mdadm
for f in debugfs:/sys/kernel/debug configfs:/sys/kernel/config tracefs:/sys/kernel/tracing cgroup2:/sys/fs/cgroup; do mount -t ${f%%:*} x ${f#*:} 2>/dev/null; done
ln -s /proc/self/fd /dev/fd; hostname vmsh; ip link set lo up; ulimit -l unlimited; ulimit -n 65536
for c in /sys/devices/system/cpu/cpu[0-9]*/online; do echo 1 >$c 2>/dev/null; done
for m in $(cat /vmsh/load); do modprobe $m 2>/dev/null; done
grep -q ' /sys/kernel/config ' /proc/mounts || mount -t configfs x /sys/kernel/config 2>/dev/null
modprobe -qa $(cat /sys/bus/pci/devices/*/modalias /sys/bus/virtio/devices/*/modalias 2>/dev/null) 2>/dev/null
i=0; ctl=; out=; while [ $i -lt 100 ]; do
  for p in /sys/class/virtio-ports/*; do case "$(cat $p/name 2>/dev/null)" in vmsh.ctl) ctl=/dev/${p##*/};; vmsh.out) out=/dev/${p##*/};; esac; done
  [ -c "$ctl" ] && break; i=$((i+1)); sleep 0.05; done
echo "boot $(cut -d' ' -f1 /proc/uptime) $(uname -r) $(nproc)" >$ctl
chmod 755 /vmsh/script
if grep -q vmsh.root /proc/cmdline; then
  modprobe ext4; mkdir -p /newroot; r=
  for b in /sys/block/vd*; do [ "$(cat $b/serial)" = vmshroot ] && r=/dev/${b##*/}; done
  mount -t ext4 -o noatime $r /newroot || { echo "no root image"; poweroff -f; }
  tr -d - </proc/sys/kernel/random/uuid >/newroot/etc/machine-id   # without one systemd re-enables every service
  mkdir -p /newroot/usr/lib/modules; mount -t tmpfs m /newroot/usr/lib/modules; cp -a /usr/lib/modules/* /newroot/usr/lib/modules/
  cp -a /vmsh /run/vmsh; S=/run/systemd/system; mkdir -p $S/multi-user.target.wants
  printf '%s\n' '#!/bin/bash' 'exec >/dev/ttyS0 2>&1 </dev/null; export HOME=/root; cd /root; mkdir -p /out' '. /run/vmsh/env' \
    "/run/vmsh/script; rc=\$?; [ -n \"\$(ls -A /out)\" ] && tar -C /out -cf $out ." "sync; echo exit \$rc >$ctl; sleep 0.2; systemctl poweroff -ff" >/run/vmsh/go
  printf '%s\n' '[Unit]' 'Description=vmsh' 'After=network.target systemd-logind.service dbus.service' '[Service]' 'Type=simple' 'ExecStart=/bin/bash /run/vmsh/go' >$S/vmsh.service
  ln -s ../vmsh.service $S/multi-user.target.wants/vmsh.service
  for f in sys/kernel/debug sys/kernel/tracing sys/kernel/config sys/fs/cgroup dev/shm dev/pts tmp; do umount -l /$f 2>/dev/null; done
  for f in dev proc sys run; do mkdir -p /newroot/$f; mount --move /$f /newroot/$f; done
  exec switch_root /newroot /sbin/init
fi
[ -e /vmsh/env ] && . /vmsh/env
cd /root
exec 3<&- ; /vmsh/script </dev/null 2>&1; rc=$?
if [ -n "$out" ] && [ -n "$(ls -A /out)" ]; then tar -C /out -cf $out . ; fi
sync; echo "exit $rc" >$ctl; sleep 0.1
poweroff -f
GI
}

rootfs() { # IMG SIZE PKGS: Debian 12 with systemd
  local img=$1 size=$2 pkgs=$3; need mmdebstrap
  local t; t=$(mktemp -d "${TMPDIR:-/tmp}/vmshroot.XXXXXX")
  mmdebstrap --variant=minbase --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --include="systemd-sysv,udev,dbus,kmod,iproute2,iputils-ping${pkgs:+,$pkgs}" \
    --customize-hook='chroot "$1" passwd -d root; : >"$1"/etc/fstab' \
    --customize-hook='chroot "$1" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer man-db.timer systemd-timesyncd.service systemd-networkd-wait-online.service >/dev/null 2>&1' \
    --customize-hook='chroot "$1" systemctl disable corosync pacemaker mdmonitor >/dev/null 2>&1 || true' \
    bookworm "$t/r" "$(mirror)" >&2
  rm -f "$img"; truncate -s "$size" "$img"; mke2fs -q -F -t ext4 -O ^has_journal -m 0 -d "$t/r" "$img"
  rm -rf "$t"
}

# ---- run -----------------------------------------------------------------------------
run() {
  local KN=6.12 MEM=1024 CPUS=2 LIMIT=120 ACC="" XM="" XB="" OUT="" APPEND="" IOMMU="" QUIET="" RIMG="" BARE="" o
  local -a FILES=() ENVS=() VBLK=() VFS=() QX=()
  while getopts k:m:c:t:a:M:b:f:e:o:v:F:A:R:BIq o; do case $o in
    k) KN=$OPTARG;; m) MEM=$OPTARG;; c) CPUS=$OPTARG;; t) LIMIT=$OPTARG;; a) ACC=$OPTARG;; M) XM=$OPTARG;; b) XB=$OPTARG;;
    f) FILES+=("$OPTARG");; e) ENVS+=("$OPTARG");; o) OUT=$OPTARG;; v) VBLK+=("$OPTARG");; F) VFS+=("$OPTARG");;
    A) APPEND=$OPTARG;; R) RIMG=$OPTARG;; B) BARE=1;; I) IOMMU=1;; q) QUIET=quiet;; *) exit 126;; esac; done
  shift $((OPTIND - 1)); [ $# -ge 1 ] || die "no guest script; see the head of this file"
  local SCRIPT=$1; shift; [ "${1:-}" = -- ] && shift; [ -r "$SCRIPT" ] || die "cannot read $SCRIPT"
  for o in cpio busybox modprobe depmod python3 zstd xz; do need "$o"; done
  mkdir -p "$CACHE"/{k,i,apt}
  local Q; Q=$(qemu_cmd); need "${Q%% *}"
  if [ -z "$ACC" ]; then
    # /dev/kvm alone proves nothing: software KVM (PVM) offers it and interprets plain kernels at a crawl
    if [ -w /dev/kvm ] && grep -qwE 'svm|vmx' /proc/cpuinfo; then ACC=kvm; else ACC=tcg; fi
  fi
  local V U MO W
  exec 9>"$CACHE/.lock"; flock 9   # two guests started together build the cache once
  V=$(kernel "$KN"); U=$(userland "$XB")
  local pack="$MODS_LOAD $MODS_PACK" load="$MODS_LOAD"
  for o in $XM; do pack+=" ${o#-}"; case $o in -*) ;; *) load+=" $o";; esac; done
  MO=$(modules "$V" "$pack")
  exec 9>&-
  W=$(mktemp -d "${TMPDIR:-/tmp}/vmsh.XXXXXX"); trap 'rm -rf "$W"' EXIT
  mkdir -p "$W/r/vmsh"; cp "$SCRIPT" "$W/r/vmsh/script"; echo "$load" >"$W/r/vmsh/load"
  head -c2 "$SCRIPT" | grep -q '#!' || { echo '#!/bin/bash'; cat "$SCRIPT"; } >"$W/r/vmsh/script"
  for o in ${ENVS[@]+"${ENVS[@]}"}; do printf 'export %s=%q\n' "${o%%=*}" "${o#*=}"; done >"$W/r/vmsh/env"
  for o in ${FILES[@]+"${FILES[@]}"}; do
    local s=${o%%:*} d=${o#*:}; [ "$d" != "$o" ] || d=/root/${s##*/}
    mkdir -p "$W/r${d%/*}"; cp -rL "$s" "$W/r$d"
  done
  (cd "$W/r" && find . -mindepth 1 | cpio -o -H newc --quiet -R 0:0) >"$W/over.cpio"
  cat "$U" "$MO" "$W/over.cpio" >"$W/initrd"
  [ -n "$RIMG" ] && APPEND+=" vmsh.root=1 systemd.show_status=false systemd.mask=getty@tty1.service systemd.mask=serial-getty@ttyS0.service"
  local -a C
  read -ra C <<<"$Q"
  local mach=q35 cpu=max
  [ -n "$IOMMU" ] && mach=q35,kernel-irqchip=split
  if [ "$ACC" = kvm ]; then C+=(-accel kvm); cpu=host; else C+=(-accel tcg,thread=multi,tb-size=512); fi
  # An emulated guest reads the host's TSC but cannot calibrate it while the host is busy (its clock
  # may then run many times too fast, or the timer check panic): hand it the rate, skip the check.
  # And its CPUs may see code that the kernel patches half done (int3 where none was expected): the
  # kernel comes up on one CPU, init adds the others, when most patching is over.
  local EMULATED=""
  [ "$ACC" = tcg ] && EMULATED="maxcpus=1 no_timer_check tsc=reliable tsc_early_khz=$(awk '/^bogomips/{printf "%d", $3*500; exit}' /proc/cpuinfo)"
  local -a memory=(-m "$MEM" -object "memory-backend-memfd,id=mem,size=${MEM}M,share=on" -machine memory-backend=mem)
  [ -n "$BARE" ] && memory=()
  C+=(-M "$mach" -cpu "$cpu" -smp "$CPUS" ${memory[@]+"${memory[@]}"}
      ${IOMMU:+-device intel-iommu,intremap=on,caching-mode=on}
      -nodefaults -display none -no-reboot -no-user-config -chardev "stdio,id=console,logfile=$W/console" -serial chardev:console
      -kernel "$CACHE/k/$V/vmlinux" -initrd "$W/initrd"
      -append "console=ttyS0 panic=-1 oops=panic nokaslr mitigations=off audit=0 random.trust_cpu=on net.ifnames=0 nowatchdog rcupdate.rcu_cpu_stall_suppress=1 cryptomgr.notests $EMULATED ${IOMMU:+intel_iommu=on iommu=pt} $QUIET $APPEND"
      -device virtio-rng-pci -device virtio-serial-pci
      -chardev "file,id=ctl,path=$W/ctl" -device virtserialport,chardev=ctl,name=vmsh.ctl
      -chardev "file,id=out,path=$W/out" -device virtserialport,chardev=out,name=vmsh.out)
  [ -n "$RIMG" ] && C+=(-drive "file=$RIMG,if=none,id=vmshroot,format=raw,snapshot=on" -device virtio-blk-pci,drive=vmshroot,serial=vmshroot)
  local n=0 q
  for o in ${VBLK[@]+"${VBLK[@]}"}; do
    q=4; case $o in *:[0-9]*) q=${o##*:}; o=${o%:*};; esac
    C+=(-chardev "socket,id=vub$n,path=$o,reconnect=1" -device "vhost-user-blk-pci,chardev=vub$n,num-queues=$q"); n=$((n + 1))
  done
  for o in ${VFS[@]+"${VFS[@]}"}; do
    C+=(-chardev "socket,id=vuf$n,path=${o%:*}" -device "vhost-user-fs-pci,chardev=vuf$n,tag=${o##*:}"); n=$((n + 1))
  done
  C+=("$@")
  [ -n "${VMSH_DEBUG:-}" ] && printf '%q ' "${C[@]}" >&2 && echo >&2
  local rc t0 t1 boots=0; t0=$(date +%s.%N)
  while :; do
    rc=0; timeout --foreground -k 5 "$LIMIT" "${C[@]}" </dev/null || rc=$?
    boots=$((boots + 1))
    # Nothing of the script has run: the emulator's fault, and worth another boot. Anything else is not.
    [ "$ACC" = tcg ] && [ $boots -lt 4 ] && ! grep -qs '^boot ' "$W/ctl" && grep -qsE 'Oops: (int3|double fault)' "$W/console" || break
    echo "vm.sh: the emulator lost an instruction while the kernel came up; booting again" >&2
  done
  t1=$(date +%s.%N)
  [ -n "$OUT" ] && [ -s "$W/out" ] && { mkdir -p "$OUT"; tar -C "$OUT" -xf "$W/out"; }
  local g; g=$(sed -n 's/^exit //p' "$W/ctl" 2>/dev/null | tail -1)
  echo "vm.sh: accel=$ACC kernel=$V wall=$(awk "BEGIN{printf \"%.1f\",$t1-$t0}")s guest-boot=$(sed -n 's/^boot \([^ ]*\).*/\1/p' "$W/ctl" 2>/dev/null)s status=${g:-none} qemu-rc=$rc" >&2
  [ -n "$g" ] && exit "$g"
  [ "$rc" = 124 ] || [ "$rc" = 137 ] && exit 124
  exit 125
}

case ${1:-} in
  deps) l="apt-get install -y --no-install-recommends $(echo $APT_PKGS)"; shift
        if [ "${1:-}" = --install ]; then DEBIAN_FRONTEND=noninteractive $l; else echo "$l"; fi;;
  kernel) mkdir -p "$CACHE"/{k,i,apt}; kernel "${2:-6.12}";;
  qemu10) mkdir -p "$CACHE"; qemu10; qemu_cmd;;
  qemu) qemu_cmd;;
  rootfs) [ $# -ge 3 ] || die "rootfs IMG SIZE PKGS"; rootfs "$2" "$3" "${4:-}";;
  run) shift; run "$@";;
  *) sed -n '2,39p' "$0"; exit 2;;
esac
