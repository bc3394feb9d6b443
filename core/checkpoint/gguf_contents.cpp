#include "core/checkpoint/gguf_contents.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/checkpoint/gguf_quants.h"

namespace promptcached::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian");

constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kVersionBigEndian = 0x03000000;
constexpr std::uint32_t kArrayType = 9;
constexpr std::size_t kLongestKey = 65535;
constexpr std::size_t kLongestTensorName = 64;
constexpr std::uint32_t kMostDimensions = 4;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kLeastAlignment = 8;
// The shortest possible entries, by which the header's counts are bounded: a key with a value of one byte; a tensor
// with one dimension. Names count for nothing here: that one is empty is a better thing to say.
constexpr std::uint64_t kLeastMetadataBytes = 8 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

// For messages, where the start of a long key will do.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 100;
  return "'" + std::string(text.substr(0, kMost)) + (text.size() > kMost ? "...'" : "'");
}

// What may stand in a message, and so in a log, as it is.
bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Bytes of one element; a string's is the least it takes. Nothing for a number that is no type.
std::optional<std::size_t> least_bytes(std::uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kString:
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
  }
  return std::nullopt;
}

// A place in the file that only moves on, and never past the end.
class Cursor final {
 public:
  Cursor(const std::filesystem::path& path, std::span<const std::byte> file) : path_(path), file_(file) {}

  // Names what is being read, for messages.
  void at(std::string what) { what_ = std::move(what); }
  // The file is at fault, in what is being read: "PATH: WHAT" and `why`.
  [[noreturn]] void refuse(const std::string& why) const {
    throw std::runtime_error(path_.string() + ": " + what_ + why);
  }

  std::size_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }

  std::span<const std::byte> bytes(std::uint64_t count) {
    if (count > remaining()) {
      refuse(" is truncated: it needs " + std::to_string(count) + " more bytes, the file has " +
             std::to_string(remaining()));
    }
    const auto taken = file_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view text() {
    const auto length = number<std::uint64_t>();
    const auto characters = bytes(length);
    return {reinterpret_cast<const char*>(characters.data()), characters.size()};
  }

 private:
  const std::filesystem::path& path_;
  std::span<const std::byte> file_;
  std::size_t position_ = 0;
  std::string what_;
};

// Reads the file once, from its start to the last tensor's description.
class Parser final {
 public:
  explicit Parser(const std::filesystem::path& path)
      : path_(path), file_(std::make_shared<const MappedFile>(path)), cursor_(path, file_->bytes()) {}

  GgufContents parse() {
    read_header();
    for (std::uint64_t i = 0; i < metadata_count_; ++i) {
      read_metadata(i);
    }
    const std::uint64_t alignment = read_alignment();
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      read_tensor(i);
    }
    place_tensors(alignment);
    return {path_, file_, std::move(metadata_), StoredTensors(path_, std::move(tensors_))};
  }

 private:
  struct Placed {
    std::uint64_t offset;  // in the tensor data
    std::uint64_t bytes;
    StoredTensor* tensor;
  };

  void read_header() {
    cursor_.at("header field 'magic'");
    const auto magic = cursor_.bytes(kGgufMagic.size());
    if (std::memcmp(magic.data(), kGgufMagic.data(), kGgufMagic.size()) != 0) {
      cursor_.refuse(" is not 'GGUF', so this is not a GGUF file");
    }
    cursor_.at("header field 'version'");
    const auto version = cursor_.number<std::uint32_t>();
    if (version == kVersionBigEndian) {
      cursor_.refuse(" says that the file is big-endian, which is not supported");
    }
    if (version != kVersion) {
      cursor_.refuse(" is " + std::to_string(version) + "; only version 3 is supported");
    }
    cursor_.at("header field 'tensor_count'");
    tensor_count_ = cursor_.number<std::uint64_t>();
    check_count(tensor_count_, kLeastTensorBytes);
    cursor_.at("header field 'metadata_kv_count'");
    metadata_count_ = cursor_.number<std::uint64_t>();
    check_count(metadata_count_, kLeastMetadataBytes);
  }

  void check_count(std::uint64_t count, std::uint64_t least_bytes_each) {
    if (count > cursor_.remaining() / least_bytes_each) {
      cursor_.refuse(" is " + std::to_string(count) + ", more than the file's remaining " +
                     std::to_string(cursor_.remaining()) + " bytes can hold");
    }
  }

  // What an entry is called before its name is known. The one before it is named too: when that says of itself what is
  // not so (an array's type or length), the fault shows only here.
  std::string entry(const std::string& kind, std::uint64_t index, std::uint64_t count) const {
    return kind + " " + std::to_string(index + 1) + " of " + std::to_string(count) +
           (previous_.empty() ? "" : " (after " + previous_ + ")");
  }

  std::string_view read_name(std::size_t longest) {
    const std::string_view name = cursor_.text();
    if (name.empty()) {
      cursor_.refuse(" has an empty name");
    }
    if (name.size() > longest) {
      cursor_.refuse(" has a name of " + std::to_string(name.size()) + " bytes; at most " + std::to_string(longest) +
                     " are allowed");
    }
    if (!is_printable_ascii(name)) {
      cursor_.refuse(" has a name that is not printable ASCII");
    }
    return name;
  }

  void read_metadata(std::uint64_t index) {
    cursor_.at(entry("metadata key", index, metadata_count_));
    const std::string_view key = read_name(kLongestKey);
    cursor_.at("metadata key " + in_quotes(key));
    const GgufValue value = read_value();
    if (!metadata_.emplace(key, value).second) {
      cursor_.refuse(" appears twice");
    }
    previous_ = "key " + in_quotes(key);
  }

  GgufValue read_value() {
    GgufValue value;
    auto type = cursor_.number<std::uint32_t>();
    if (type == kArrayType) {
      value.is_array = true;
      type = cursor_.number<std::uint32_t>();
      value.count = cursor_.number<std::uint64_t>();
      if (type == kArrayType) {
        cursor_.refuse(" is an array of arrays, which is not supported");
      }
    }
    const auto bytes = least_bytes(type);
    if (!bytes) {
      cursor_.refuse((value.is_array ? " is an array of unknown value type " : " has unknown value type ") +
                     std::to_string(type));
    }
    if (value.count > cursor_.remaining() / *bytes) {
      cursor_.refuse(" is truncated: " + std::to_string(value.count) + " elements of type " +
                     std::string(gguf_type_name(static_cast<GgufType>(type))) + " do not fit the file's remaining " +
                     std::to_string(cursor_.remaining()) + " bytes");
    }
    value.type = static_cast<GgufType>(type);
    value.bytes = read_elements(value.type, value.count, *bytes);
    return value;
  }

  std::span<const std::byte> read_elements(GgufType type, std::uint64_t count, std::size_t bytes_each) {
    if (type == GgufType::kString) {
      const std::size_t begin = cursor_.position();
      for (std::uint64_t i = 0; i < count; ++i) {
        cursor_.text();
      }
      return file_->bytes().subspan(begin, cursor_.position() - begin);
    }
    const auto elements = cursor_.bytes(count * bytes_each);  // fits, since `count` was checked
    if (type == GgufType::kBool) {
      for (const std::byte element : elements) {
        if (element > std::byte{1}) {
          cursor_.refuse(" holds a boolean that is " + std::to_string(std::to_integer<int>(element)) + ", not 0 or 1");
        }
      }
    }
    return elements;
  }

  // general.alignment: by the format a multiple of 8, by ggml a power of two.
  std::uint64_t read_alignment() {
    const auto found = metadata_.find(kAlignmentKey);
    if (found == metadata_.end()) {
      return kDefaultAlignment;
    }
    cursor_.at("metadata key " + in_quotes(kAlignmentKey));
    const GgufValue& value = found->second;
    if (value.is_array || value.type != GgufType::kUint32) {
      cursor_.refuse(" is not of type uint32");
    }
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, value.bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment < kLeastAlignment) {
      cursor_.refuse(" is " + std::to_string(alignment) + ", which is not a power of two from 8 up");
    }
    return alignment;
  }

  void read_tensor(std::uint64_t index) {
    cursor_.at(entry("tensor", index, tensor_count_));
    const std::string name(read_name(kLongestTensorName));
    cursor_.at("tensor " + in_quotes(name));
    const auto [place, is_new] = tensors_.try_emplace(name);
    if (!is_new) {
      cursor_.refuse(" appears twice");
    }
    StoredTensor& tensor = place->second;
    tensor.name = name;
    tensor.file = file_;
    tensor.shape = read_shape();
    const BlockFormat& format = read_format();
    tensor.dtype = format.name;
    const std::uint64_t bytes = checked_bytes(tensor.shape, format);
    placed_.push_back({cursor_.number<std::uint64_t>(), bytes, &tensor});
    previous_ = "tensor " + in_quotes(name);
  }

  // Slowest dimension first, which is the other way round in the file.
  std::vector<std::int64_t> read_shape() {
    const auto dimensions = cursor_.number<std::uint32_t>();
    if (dimensions == 0 || dimensions > kMostDimensions) {
      cursor_.refuse(" has " + std::to_string(dimensions) + " dimensions; 1 to 4 are supported");
    }
    std::vector<std::int64_t> shape(dimensions);
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto size = cursor_.number<std::uint64_t>();
      if (size == 0 || size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        cursor_.refuse(" has a dimension of " + std::to_string(size));
      }
      shape[dimensions - 1 - i] = static_cast<std::int64_t>(size);
    }
    return shape;
  }

  const BlockFormat& read_format() {
    const auto type = cursor_.number<std::uint32_t>();
    const BlockFormat* format = find_block_format(type);
    if (format == nullptr) {
      std::string known;
      for (const BlockFormat& each : block_formats()) {
        known += (known.empty() ? "" : ", ") + std::string(each.name);
      }
      cursor_.refuse(" has type " + ggml_type_name(type) + ", which is not supported; known: " + known);
    }
    return *format;
  }

  std::uint64_t checked_bytes(const std::vector<std::int64_t>& shape, const BlockFormat& format) {
    const auto row = static_cast<std::uint64_t>(shape.back());
    if (row % format.elements != 0) {
      cursor_.refuse(" has rows of " + std::to_string(row) + " elements, which are not whole blocks of " +
                     std::string(format.name) + " (" + std::to_string(format.elements) + ")");
    }
    std::uint64_t bytes = 0;
    std::uint64_t elements = row;
    bool overflows = __builtin_mul_overflow(row / format.elements, format.bytes, &bytes);
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
      const auto size = static_cast<std::uint64_t>(shape[i]);
      overflows |= __builtin_mul_overflow(bytes, size, &bytes);
      overflows |= __builtin_mul_overflow(elements, size, &elements);
    }
    if (overflows || elements > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      cursor_.refuse(" has dimensions whose product is more than 64 bits hold");
    }
    return bytes;
  }

  void place_tensors(std::uint64_t alignment) {
    if (placed_.empty()) {
      return;
    }
    const std::uint64_t begin = (cursor_.position() + alignment - 1) / alignment * alignment;
    const std::span<const std::byte> file = file_->bytes();
    const auto data = begin < file.size() ? file.subspan(begin) : std::span<const std::byte>();
    for (const Placed& placed : placed_) {
      cursor_.at("tensor " + in_quotes(placed.tensor->name));
      if (placed.offset % alignment != 0) {
        cursor_.refuse(" has offset " + std::to_string(placed.offset) + ", which is not a multiple of the alignment, " +
                       std::to_string(alignment));
      }
      if (placed.offset > data.size() || placed.bytes > data.size() - placed.offset) {
        cursor_.refuse(" lies outside the file, which is truncated: " + std::to_string(placed.bytes) +
                       " bytes at offset " + std::to_string(placed.offset) + " of " + std::to_string(data.size()));
      }
      placed.tensor->bytes = data.subspan(placed.offset, placed.bytes);
    }
    check_overlaps();
  }

  // Room between tensors is allowed: the format pads there, and does not say by how much.
  void check_overlaps() {
    std::sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < placed_.size(); ++i) {
      if (placed_[i].offset - placed_[i - 1].offset < placed_[i - 1].bytes) {
        cursor_.at("tensor " + in_quotes(placed_[i].tensor->name));
        cursor_.refuse(" overlaps tensor " + in_quotes(placed_[i - 1].tensor->name));
      }
    }
  }

  const std::filesystem::path& path_;
  std::shared_ptr<const MappedFile> file_;
  Cursor cursor_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t metadata_count_ = 0;
  std::string previous_;  // the entry read last: "key 'general.name'"
  std::map<std::string_view, GgufValue> metadata_;
  std::map<std::string, StoredTensor> tensors_;
  std::vector<Placed> placed_;
};

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "uint8";
    case GgufType::kInt8:
      return "int8";
    case GgufType::kUint16:
      return "uint16";
    case GgufType::kInt16:
      return "int16";
    case GgufType::kUint32:
      return "uint32";
    case GgufType::kInt32:
      return "int32";
    case GgufType::kFloat32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kUint64:
      return "uint64";
    case GgufType::kInt64:
      return "int64";
    case GgufType::kFloat64:
      return "float64";
  }
  return "unknown";
}

std::unique_ptr<const GgufContents> read_gguf(const std::filesystem::path& path) {
  return std::make_unique<const GgufContents>(Parser(path).parse());
}

}  // namespace promptcached::checkpoint
