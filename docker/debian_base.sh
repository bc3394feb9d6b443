#!/usr/bin/env bash
# Make the base image localhost/debian:bookworm from Debian's own archive, with mmdebstrap and buildah: for machines that reach
# a Debian mirror (or a cache of one) but no image registry. Does nothing where the image is there.
#
# APT_SOURCES=FILE: a sources.list to take packages from, in the image too. Default: this machine's own, where it is a bookworm.
set -euo pipefail

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

image=localhost/debian:bookworm
buildah inspect --type image "$image" >/dev/null 2>&1 && exit
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing: apt-get install mmdebstrap"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=()
if [[ -n ${APT_SOURCES:-} ]]; then
  sources=("$APT_SOURCES")
elif grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release; then
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    [[ -s $file ]] && sources+=("$file")
  done
fi
mmdebstrap --variant=minbase --include=ca-certificates bookworm "$work/base.tar" "${sources[@]}"
container=$(buildah from scratch)
buildah add --quiet "$container" "$work/base.tar" / >/dev/null
buildah config --cmd bash "$container"
buildah commit --quiet --format docker --rm "$container" "$image" >/dev/null
printf '%s made\n' "$image" >&2
