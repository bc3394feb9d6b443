// Fuzz target for safetensors files: a file is refused, or every byte of every tensor can be read.
//
// Build with -DPROMPTCACHED_FUZZ=ON and clang, then: build/fuzz_safetensors CORPUS tests/fuzz/safetensors_corpus
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "core/checkpoint/safetensors.h"
#include "tests/fakes/memory_file.h"

namespace {

void require(bool holds, const char* problem) {
  if (!holds) {
    std::fprintf(stderr, "%s\n", problem);
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const promptcached::fakes::MemoryFile input({reinterpret_cast<const char*>(data), size});
  try {
    const auto tensors = promptcached::checkpoint::read_safetensors_file(input.path());
    std::size_t bytes = 0;
    std::size_t zeros = 0;
    for (const auto& [name, tensor] : tensors.all()) {
      bytes += tensor.bytes.size();
      zeros += static_cast<std::size_t>(std::count(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0}));
    }
    require(bytes <= size && zeros <= bytes, "tensors that are more than the file");
  } catch (const std::runtime_error&) {
    // Refused.
  }
  return 0;
}
