# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Debian packages that Bantam is built from, and a function that installs what is missing. Sourced, not run.

# What a build of the program and the library needs; tests/run.sh adds its own.
# shellcheck disable=SC2034
BUILD_PACKAGES=(
  cmake ninja-build g++ pkg-config
  libhwy-dev libsentencepiece-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libxxhash-dev
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev
)

# need_packages ASK PACKAGE...: installs the missing ones. With all of them there, it needs neither root nor network.
# ASK=ask asks first and gives up where nobody can answer; ASK=yes installs at once. Returns 1 when some stay missing.
need_packages() {
  local ask=$1 package answer missing=() as_root=()
  shift
  if ! command -v dpkg-query >/dev/null; then
    echo "This system has no dpkg. Needed, by their Debian names: $*" >&2
    echo "Going on as if they were there." >&2
    return 0
  fi
  for package in "$@"; do
    # dpkg -s also knows packages that were removed but left their settings; only this state counts.
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0

  echo "Missing Debian packages: ${missing[*]}" >&2
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "Run as root, then start again:  apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  if [ "$ask" = ask ]; then
    if [ ! -t 0 ]; then
      echo "Install them with --yes, or by hand, as root:  apt-get install ${missing[*]}" >&2
      return 1
    fi
    read -r -p "Install them now with apt-get? [Y/n] " answer
    case "$answer" in
      '' | [Yy]*) ;;
      *) echo "Not installed." >&2; return 1 ;;
    esac
  fi
  "${as_root[@]}" apt-get update -q >&2 || return 1
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null >&2 || return 1
}
