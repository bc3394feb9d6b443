#include "core/checkpoint/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <utility>
#include <vector>

namespace promptcached::checkpoint {
namespace {

template <typename Value>
Value required(const GgufFile& file, const std::string& key, std::optional<Value> value) {
  if (!value) {
    refuse_metadata(file, key, "is missing");
  }
  return *std::move(value);
}

}  // namespace

void refuse_metadata(const GgufFile& file, const std::string& key, const std::string& why) {
  throw std::runtime_error(file.path().string() + ": metadata key '" + key + "' " + why);
}

std::string required_text(const GgufFile& file, const std::string& key) { return required(file, key, file.text(key)); }

std::int64_t required_integer(const GgufFile& file, const std::string& key) {
  return required(file, key, uniform_integer(file, key));
}

double required_decimal(const GgufFile& file, const std::string& key) {
  return required(file, key, decimal(file, key));
}

double shortest_decimal(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) {
    return value;  // not a float32
  }
  std::array<char, 64> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), narrow);
  double decimal = value;
  std::from_chars(text.data(), written.ptr, decimal);
  return decimal;
}

std::optional<double> decimal(const GgufFile& file, const std::string& key) {
  const std::optional<double> value = file.number(key);
  return value ? std::optional(shortest_decimal(*value)) : std::nullopt;
}

std::optional<std::int64_t> uniform_integer(const GgufFile& file, const std::string& key) {
  if (!file.has(key)) {
    return std::nullopt;
  }
  if (!file.is_array(key)) {
    return file.integer(key);
  }
  const std::vector<std::int64_t> values = file.integers(key);
  if (values.empty()) {
    refuse_metadata(file, key, "is an empty list");
  }
  if (std::ranges::any_of(values, [&](std::int64_t value) { return value != values.front(); })) {
    refuse_metadata(file, key, "differs between layers, which is not supported");
  }
  return values.front();
}

}  // namespace promptcached::checkpoint
