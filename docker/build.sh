#!/usr/bin/env bash
# Build a container image, with docker where a daemon answers, else with buildah.
#
#   docker/build.sh [cpu|cuda] [ARGUMENT...]     arguments go to `docker build` or `buildah build`:
#
#   docker/build.sh                                           promptcached:cpu, the model to be mounted
#   docker/build.sh cpu --build-arg MODEL=smollm2             with the default model in it
#   docker/build.sh cpu --build-arg JOBS=2                    where memory is short (1.5 GB a compile job)
#   docker/build.sh cpu --from-debian                         on base images made here (buildah alone; see docker/debian_base.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

kind=cpu
if [[ ${1:-} == cpu || ${1:-} == cuda ]]; then
  kind=$1
  shift
fi
from_debian=false
arguments=()
for argument in "$@"; do
  if [[ $argument == --from-debian ]]; then from_debian=true; else arguments+=("$argument"); fi
done
tag=${TAG:-promptcached:$kind}
dockerfile=docker/Dockerfile.$kind

if ! $from_debian && command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  say "building $tag with docker"
  docker build --file "$dockerfile" --tag "$tag" "${arguments[@]}" .
elif command -v buildah >/dev/null; then
  if $from_debian; then
    docker/debian_base.sh
    arguments+=(--build-arg DEBIAN=localhost/debian:bookworm --build-arg DEBIAN_SLIM=localhost/debian:bookworm)
  fi
  say "building $tag with buildah"
  # The docker format keeps HEALTHCHECK and SHELL, which OCI's has no place for. BUILDAH_ISOLATION and STORAGE_DRIVER, from the
  # environment, say how where the usual way is not possible (chroot and vfs need no privileges of the kernel).
  buildah build --format docker --layers --file "$dockerfile" --tag "$tag" "${arguments[@]}" .
else
  die "neither a docker daemon nor buildah is at hand.
  Debian, Ubuntu: apt-get install buildah     (needs no daemon)
  or start docker, and see that 'docker info' works for this user"
fi
say "done: $tag"
