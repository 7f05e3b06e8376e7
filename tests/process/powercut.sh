#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Power cuts: three writers save into an image that is mounted; at a random moment they are stopped and the image is copied, which
# is what a disk would hold; the copy is mounted, and must have the newest checkpoint that was said to be saved, whole. The control
# does not wait for its disk, and must lose something.
#
# usage: powercut.sh TEST_SAVES NOSYNC CUTS CONTROL_CUTS [SEED [ext4|xfs|btrfs]]
# Prints "figures cuts N torn N lost N control N of N seed N". Exit 77: this machine lets nobody mount.
test_saves=$1 nosync=$2 cuts=$3 controls=$4 seed=${5:-1} kind=${6:-ext4}
RANDOM=$seed
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-powercut-XXXXXX")
writer=
finish() {
    [ -z "$writer" ] || { kill -KILL -- "-$writer"; wait "$writer"; } 2>/dev/null
    umount "$work/copied" "$work/disk" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/disk" "$work/copied"
command -v "mkfs.$kind" >/dev/null || exit 77
truncate -s "$([ "$kind" = ext4 ] && echo 64M || echo 400M)" "$work/image"
case $kind in ext4) mkfs.ext4 -q -F "$work/image" ;; xfs) mkfs.xfs -q "$work/image" ;; *) mkfs.btrfs -q "$work/image" ;; esac || exit 77
mount -o loop "$work/image" "$work/disk" 2>/dev/null || exit 77
torn=0 lost=0

cut_once() { # $1: library to preload
    rm -rf "$work/disk/saves" "$work/told"
    sync -f "$work/disk"
    LD_PRELOAD=$1 setsid "$test_saves" --write "$work/disk/saves" "$work/told" &
    writer=$!
    for _ in $(seq 600); do [ -s "$work/told" ] && break; sleep 0.05; done
    sleep "0.$((RANDOM % 900 + 100))"
    kill -STOP -- "-$writer"
    sleep 0.02
    told=$(cat "$work/told")
    cp --sparse=always "$work/image" "$work/cut"
    kill -KILL -- "-$writer"
    wait "$writer" 2>/dev/null
    writer=
    mount -o loop"$([ "$kind" = xfs ] && echo ,nouuid)" "$work/cut" "$work/copied" || { echo "torn: the copy cannot be mounted"; torn=$((torn + 1)); return; }
    found=$("$test_saves" --load "$work/copied/saves")
    umount "$work/copied"
    case $found in
    torn*) echo "told $told, $found"; torn=$((torn + 1)) ;;
    *) [ "$found" -ge "$told" ] || { echo "told $told, found $found"; lost=$((lost + 1)); } ;;
    esac
}

for _ in $(seq "$cuts"); do cut_once ""; done
bad_torn=$torn bad_lost=$lost
for _ in $(seq "$controls"); do
    cut_once "$nosync" >/dev/null
    [ $((torn + lost)) -eq $((bad_torn + bad_lost)) ] || [ "$cuts" -gt 20 ] || break # it bites
done
control=$((torn + lost - bad_torn - bad_lost))
echo "figures cuts $cuts torn $bad_torn lost $bad_lost control $control of at most $controls seed $seed on $kind"
[ $((bad_torn + bad_lost)) -eq 0 ] && [ "$control" -gt 0 ]
