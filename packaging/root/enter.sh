#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command inside a root file system: enter.sh ROOT [--bind FOLDER PLACE | --user ID]... -- COMMAND...
# The root gets /dev, /proc, /sys and the host's resolver; what is mounted is gone when the command ends.
set -eu
[ "${1:-}" != --inside ] || {
  shift
  root=$1
  shift
  mount --make-rprivate /
  mount --rbind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  mkdir -p "$root/sys" "$root/etc"
  mount --rbind /sys "$root/sys"
  cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
  user=
  while [ "$1" != -- ]; do
    case $1 in
      --bind)
        mkdir -p "$root$3"
        mount --bind "$2" "$root$3"
        shift 3
        ;;
      --user)
        user=--userspec=$2
        shift 2
        ;;
    esac
  done
  shift
  # shellcheck disable=SC2086 # empty, or one word
  exec chroot $user "$root" /usr/bin/env -i HOME="${ROOT_HOME:-/root}" LANG=C.UTF-8 TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
exec unshare --mount --pid --fork --kill-child "$0" --inside "$@"
