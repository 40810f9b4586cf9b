# Functions for ./check and ./demo; sourced. They bring a Debian machine to where cargo can work.

stop() { echo "$(basename "$0"): $*" >&2; exit 1; }

# packages NAME...: installs those that are missing; asks for nothing when all are there.
packages() {
  local name missing=() as_root=()
  command -v dpkg-query >/dev/null || stop "this is not Debian; install by hand: $*"
  for name in "$@"; do
    case $(dpkg-query --show --showformat='${db:Status-Status}' "$name" 2>/dev/null) in
      installed) ;;
      *) missing+=("$name") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      stop "packages are missing, and neither root nor sudo is here; run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  local install=(${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "${missing[@]}")
  # The lists of packages may be missing or old: then get them, once.
  "${install[@]}" </dev/null >/dev/null 2>&1 && return 0
  ${as_root[@]+"${as_root[@]}"} apt-get -qq update </dev/null || stop "apt-get update failed"
  "${install[@]}" </dev/null >/dev/null || stop "apt-get could not install: ${missing[*]}"
}

# rust: cargo in PATH, from rustup's usual place if need be.
rust() {
  command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  command -v cargo >/dev/null || stop "cargo is missing; install Rust with rustup (https://rustup.rs)"
}
