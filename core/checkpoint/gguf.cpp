#include "core/checkpoint/gguf.h"

#include <cstring>
#include <fstream>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "core/base/utf8.h"
#include "core/checkpoint/gguf_contents.h"

namespace promptcached::checkpoint {
namespace {

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// One metadata value, with what it takes to refuse it.
class Reading final {
 public:
  // `wanted` is what the caller takes, for messages: "an integer".
  Reading(const GgufContents& contents, std::string_view key, const GgufValue& value, std::string wanted)
      : contents_(contents), key_(key), value_(value), wanted_(std::move(wanted)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::runtime_error(contents_.path.string() + ": metadata key '" + std::string(key_) + "' " + why);
  }

  [[noreturn]] void refuse_type() const {
    refuse((value_.is_array ? "is an array of " : "is of type ") + std::string(gguf_type_name(value_.type)) + ", not " +
           wanted_);
  }

  std::vector<std::int64_t> integers() const {
    std::vector<std::int64_t> integers;
    integers.reserve(value_.count);
    for_each_number([&](auto element) {
      if constexpr (std::is_integral_v<decltype(element)>) {
        if (!std::in_range<std::int64_t>(element)) {
          refuse("holds " + std::to_string(element) + ", more than a signed 64-bit integer does");
        }
        integers.push_back(static_cast<std::int64_t>(element));
      } else {
        refuse_type();
      }
    });
    return integers;
  }

  template <typename T>
  std::vector<T> numbers() const {
    std::vector<T> numbers;
    numbers.reserve(value_.count);
    for_each_number([&](auto element) { numbers.push_back(static_cast<T>(element)); });
    return numbers;
  }

  std::vector<bool> booleans() const {
    if (value_.type != GgufType::kBool) {
      refuse_type();
    }
    std::vector<bool> booleans;
    booleans.reserve(value_.count);
    for_each<std::uint8_t>([&](std::uint8_t element) { booleans.push_back(element != 0); });
    return booleans;
  }

  std::vector<std::string_view> texts() const {
    if (value_.type != GgufType::kString) {
      refuse_type();
    }
    std::vector<std::string_view> texts;
    texts.reserve(value_.count);
    const std::byte* next = value_.bytes.data();
    for (std::uint64_t i = 0; i < value_.count; ++i) {
      const auto length = load<std::uint64_t>(next);
      const std::string_view text(reinterpret_cast<const char*>(next + sizeof length), length);
      if (!is_valid_utf8(text)) {
        refuse("is not valid UTF-8" + (value_.is_array ? " in element " + std::to_string(i) : std::string()));
      }
      texts.push_back(text);
      next += sizeof length + length;
    }
    return texts;
  }

 private:
  // Calls add(element) with each element, as the C++ type that it is stored as. Booleans are no numbers.
  template <typename Add>
  void for_each_number(const Add& add) const {
    switch (value_.type) {
      case GgufType::kUint8:
        return for_each<std::uint8_t>(add);
      case GgufType::kInt8:
        return for_each<std::int8_t>(add);
      case GgufType::kUint16:
        return for_each<std::uint16_t>(add);
      case GgufType::kInt16:
        return for_each<std::int16_t>(add);
      case GgufType::kUint32:
        return for_each<std::uint32_t>(add);
      case GgufType::kInt32:
        return for_each<std::int32_t>(add);
      case GgufType::kUint64:
        return for_each<std::uint64_t>(add);
      case GgufType::kInt64:
        return for_each<std::int64_t>(add);
      case GgufType::kFloat32:
        return for_each<float>(add);
      case GgufType::kFloat64:
        return for_each<double>(add);
      case GgufType::kBool:
      case GgufType::kString:
        break;
    }
    refuse_type();
  }

  template <typename T, typename Add>
  void for_each(const Add& add) const {
    for (std::uint64_t i = 0; i < value_.count; ++i) {
      add(load<T>(value_.bytes.data() + i * sizeof(T)));
    }
  }

  const GgufContents& contents_;
  std::string_view key_;
  const GgufValue& value_;
  std::string wanted_;
};

std::optional<Reading> find(const GgufContents& contents, std::string_view key, bool is_array, std::string wanted) {
  const auto found = contents.metadata.find(key);
  if (found == contents.metadata.end()) {
    return std::nullopt;
  }
  Reading reading(contents, key, found->second, std::move(wanted));
  if (found->second.is_array != is_array) {
    reading.refuse_type();
  }
  return reading;
}

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  return std::shared_ptr<const GgufFile>(new GgufFile(read_gguf(path)));
}

GgufFile::GgufFile(std::unique_ptr<const GgufContents> contents) : contents_(std::move(contents)) {}

GgufFile::~GgufFile() = default;

const std::filesystem::path& GgufFile::path() const { return contents_->path; }

const StoredTensors& GgufFile::tensors() const { return contents_->tensors; }

bool GgufFile::has(std::string_view key) const { return contents_->metadata.contains(key); }

bool GgufFile::is_array(std::string_view key) const {
  const auto found = contents_->metadata.find(key);
  return found != contents_->metadata.end() && found->second.is_array;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const auto value = find(*contents_, key, false, "an integer");
  return value ? std::optional(value->integers().front()) : std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const auto value = find(*contents_, key, false, "a number");
  return value ? std::optional(value->numbers<double>().front()) : std::nullopt;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const auto value = find(*contents_, key, false, "a boolean");
  return value ? std::optional<bool>(value->booleans().front()) : std::nullopt;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const auto value = find(*contents_, key, false, "a string");
  return value ? std::optional<std::string>(value->texts().front()) : std::nullopt;
}

std::vector<std::string_view> GgufFile::texts(std::string_view key) const {
  const auto value = find(*contents_, key, true, "an array of strings");
  return value ? value->texts() : std::vector<std::string_view>();
}

std::vector<std::int64_t> GgufFile::integers(std::string_view key) const {
  const auto value = find(*contents_, key, true, "an array of integers");
  return value ? value->integers() : std::vector<std::int64_t>();
}

std::vector<float> GgufFile::numbers(std::string_view key) const {
  const auto value = find(*contents_, key, true, "an array of numbers");
  return value ? value->numbers<float>() : std::vector<float>();
}

std::vector<bool> GgufFile::booleans(std::string_view key) const {
  const auto value = find(*contents_, key, true, "an array of booleans");
  return value ? value->booleans() : std::vector<bool>();
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> keys;
  keys.reserve(contents_->metadata.size());
  for (const auto& [key, value] : contents_->metadata) {
    keys.emplace_back(key);
  }
  return keys;
}

bool is_gguf(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string magic(kGgufMagic.size(), '\0');
  return stream.read(magic.data(), static_cast<std::streamsize>(magic.size())) && magic == kGgufMagic;
}

}  // namespace promptcached::checkpoint
