// Fuzz target for GGUF files: a file is refused in one line, or everything in it can be read.
//
// Build with -DPROMPTCACHED_FUZZ=ON and clang, then: build/fuzz_gguf CORPUS tests/fuzz/gguf_corpus
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/gguf.h"
#include "core/checkpoint/gguf_quants.h"
#include "tests/fakes/memory_file.h"

namespace {

using promptcached::checkpoint::GgufFile;
using promptcached::checkpoint::StoredTensor;

void require(bool holds, const std::string& problem) {
  if (!holds) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    std::abort();
  }
}

// Whether the action went well; its refusal, if any, is fit to be shown.
template <typename Action>
bool accepted(const Action& action) {
  try {
    action();
    return true;
  } catch (const std::runtime_error& error) {
    const std::string_view message = error.what();
    require(std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; }),
            "a refusal that is not one line of ASCII");
    return false;
  }
}

// Reads the value as each type that it may have: at least one will do, unless it is text that is not UTF-8 or an
// integer that is too large, which are refused only here.
void read_value(const GgufFile& file, const std::string& key) {
  std::size_t characters = 0;
  if (file.is_array(key)) {
    accepted([&] {
      for (const std::string_view text : file.texts(key)) {
        characters += static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x'));
      }
    });
    accepted([&] { characters += file.integers(key).size(); });
    accepted([&] { characters += file.numbers(key).size(); });
    accepted([&] { characters += file.booleans(key).size(); });
  } else {
    accepted([&] { characters += file.text(key)->size(); });
    accepted([&] { require(file.integer(key).has_value(), "a key without a value"); });
    accepted([&] { require(file.number(key).has_value(), "a key without a value"); });
    accepted([&] { require(file.boolean(key).has_value(), "a key without a value"); });
  }
}

// Whole rows, as the loader reads them.
void expand(const StoredTensor& tensor) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    rows *= tensor.shape[i];
  }
  const std::int64_t columns = tensor.shape.back();
  require(tensor.bytes.size() ==
              promptcached::checkpoint::stored_bytes(tensor.dtype, static_cast<std::size_t>(rows * columns)),
          "a tensor whose bytes disagree with its shape");
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    promptcached::checkpoint::dequantize(tensor, i * columns, columns, row.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const promptcached::fakes::MemoryFile input({reinterpret_cast<const char*>(data), size});
  promptcached::checkpoint::is_gguf(input.path());
  accepted([&] {
    const auto file = GgufFile::open(input.path());
    require(promptcached::checkpoint::is_gguf(input.path()), "a GGUF file that is not known as one");
    for (const std::string& key : file->keys()) {
      read_value(*file, key);
    }
    for (const auto& [name, tensor] : file->tensors().all()) {
      expand(tensor);
    }
  });
  return 0;
}
