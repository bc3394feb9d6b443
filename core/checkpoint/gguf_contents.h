// What a GGUF file holds and where: the checked index that GgufFile answers from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/checkpoint/mapped_file.h"
#include "core/checkpoint/stored_tensors.h"

namespace promptcached::checkpoint {

inline constexpr std::string_view kGgufMagic = "GGUF";  // how every such file begins

// The types of metadata values, by their numbers in the file. Arrays are no type of their own here: see GgufValue.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "uint8", "string", …
std::string_view gguf_type_name(GgufType type);

// One metadata value, still encoded: `count` elements one after another, unaligned. A string is its length (8 bytes)
// and its characters, all of them within `bytes`; a boolean is 0 or 1.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // of each element
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;
};

struct GgufContents {
  std::filesystem::path path;
  std::shared_ptr<const MappedFile> file;          // what everything below lies in
  std::map<std::string_view, GgufValue> metadata;  // keys: printable ASCII
  StoredTensors tensors;
};

// Throws as GgufFile::open() does.
std::unique_ptr<const GgufContents> read_gguf(const std::filesystem::path& path);

}  // namespace promptcached::checkpoint
