// GgufBuilder: GGUF files made field by field, so that any field can be wrong.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace promptcached::checkpoint {

// A value as the file's bytes.
template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A string as the file has it: length and characters.
inline std::string raw_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()).append(text.data(), text.size());
}

// The numbers of value types.
enum class ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

inline std::string raw_type(ValueType type) { return raw(static_cast<std::uint32_t>(type)); }

// An array as the file has it, after its key and the type "array".
template <typename T>
std::string raw_array(ValueType type, const std::vector<T>& elements) {
  std::string bytes = raw_type(type) + raw<std::uint64_t>(elements.size());
  for (const T& element : elements) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      bytes += raw_text(element);
    } else {
      bytes += raw(element);
    }
  }
  return bytes;
}

// Metadata by key, to be changed before it is built.
struct MetadataValue {
  ValueType type;
  std::string bytes;
};
using Metadata = std::map<std::string, MetadataValue>;

inline MetadataValue u32(std::uint32_t value) { return {ValueType::kU32, raw(value)}; }
inline MetadataValue f32(float value) { return {ValueType::kF32, raw(value)}; }
inline MetadataValue boolean(bool value) { return {ValueType::kBool, raw(value)}; }
inline MetadataValue text(std::string_view value) { return {ValueType::kText, raw_text(value)}; }
inline MetadataValue texts(const std::vector<std::string>& values) {
  return {ValueType::kArray, raw_array(ValueType::kText, values)};
}
inline MetadataValue i32s(const std::vector<std::int32_t>& values) {
  return {ValueType::kArray, raw_array(ValueType::kI32, values)};
}
inline MetadataValue f32s(const std::vector<float>& values) {
  return {ValueType::kArray, raw_array(ValueType::kF32, values)};
}

inline Metadata with(Metadata values, const Metadata& others) {
  for (const auto& [key, value] : others) {
    values.insert_or_assign(key, value);
  }
  return values;
}

inline Metadata without(Metadata values, const std::string& key) {
  values.erase(key);
  return values;
}

class GgufBuilder final {
 public:
  // The header's fields; counts are those of what was added unless given.
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t extra_tensors = 0;
  std::uint64_t extra_metadata = 0;
  std::uint64_t alignment = 32;  // of the tensor data; general.alignment says so to readers

  GgufBuilder& value(std::string_view key, ValueType type, const std::string& bytes) {
    metadata_ += raw_text(key) + raw_type(type) + bytes;
    ++metadata_count_;
    return *this;
  }

  GgufBuilder& values(const Metadata& metadata) {
    for (const auto& [key, each] : metadata) {
      value(key, each.type, each.bytes);
    }
    return *this;
  }

  // A tensor's description: dimensions fastest first, as in the file.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                      std::uint64_t offset) {
    tensors_ += raw_text(name) + raw(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t size : dimensions) {
      tensors_ += raw(size);
    }
    tensors_ += raw(type) + raw(offset);
    ++tensor_count_;
    return *this;
  }

  GgufBuilder& data(std::string bytes) {
    data_ = std::move(bytes);
    return *this;
  }

  std::string build() const {
    std::string file =
        magic + raw(version) + raw(tensor_count_ + extra_tensors) + raw(metadata_count_ + extra_metadata);
    file += metadata_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  std::string metadata_;
  std::string tensors_;
  std::string data_;
  std::uint64_t metadata_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

}  // namespace promptcached::checkpoint
