#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

namespace promptcached::checkpoint {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::size_t kLengthBytes = 8;                // the header's length, at the start of the file
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw std::runtime_error(path.string() + ": " + why);
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& tensor, const std::string& why) {
  refuse(path, "tensor '" + tensor + "': " + why);
}

// A non-negative JSON integer; nothing for anything else.
std::optional<std::uint64_t> as_size(const Json& value) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0)) {
    return std::nullopt;
  }
  return value.get<std::uint64_t>();
}

// Bytes of a tensor of `shape`; nothing when the product overflows.
std::optional<std::uint64_t> checked_bytes(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes) {
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

// The JSON header of a file.
Json read_header(const std::filesystem::path& path, std::span<const std::byte> file, std::uint64_t* header_bytes) {
  if (file.size() < kLengthBytes) {
    refuse(path, "is truncated: " + std::to_string(file.size()) + " bytes cannot hold a safetensors header");
  }
  std::memcpy(header_bytes, file.data(), kLengthBytes);
  if (*header_bytes > kLongestHeader) {
    refuse(path, "is not a safetensors file: its header would be " + std::to_string(*header_bytes) + " bytes long");
  }
  if (*header_bytes > file.size() - kLengthBytes) {
    refuse(path, "is truncated: the header needs " + std::to_string(*header_bytes) + " bytes, the file has " +
                     std::to_string(file.size() - kLengthBytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  Json header = Json::parse(text, text + *header_bytes, nullptr, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    refuse(path, "is not a safetensors file: its header is not a JSON object");
  }
  return header;
}

StoredTensor read_entry(const std::filesystem::path& path, const std::string& name, const Json& entry,
                        std::span<const std::byte> data) {
  StoredTensor tensor;
  tensor.name = name;
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    refuse(path, name, "needs 'dtype', 'shape' and two 'data_offsets'");
  }
  tensor.dtype = entry["dtype"].get<std::string>();
  for (const Json& size : entry["shape"]) {
    const auto value = as_size(size);
    if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse(path, name, "field 'shape' is " + entry["shape"].dump());
    }
    tensor.shape.push_back(static_cast<std::int64_t>(*value));
  }
  const auto begin = as_size(entry["data_offsets"][0]);
  const auto end = as_size(entry["data_offsets"][1]);
  if (!begin || !end || *begin > *end) {
    refuse(path, name, "field 'data_offsets' is " + entry["data_offsets"].dump());
  }
  if (*end > data.size()) {
    refuse(path, name,
           "lies outside the file, which is truncated: it ends at byte " + std::to_string(*end) + " of " +
               std::to_string(data.size()));
  }
  const std::size_t element_bytes = stored_element_bytes(tensor.dtype);
  if (element_bytes != 0 && checked_bytes(tensor.shape, element_bytes) != *end - *begin) {
    refuse(path, name, "'data_offsets' disagree with shape " + entry["shape"].dump() + " of " + tensor.dtype);
  }
  tensor.bytes = data.subspan(*begin, *end - *begin);
  return tensor;
}

// The format allows neither overlaps nor holes, so the tensors tile the data exactly.
void check_tiling(const std::filesystem::path& path, std::span<const std::byte> data,
                  const std::map<std::string, StoredTensor>& tensors) {
  std::vector<const StoredTensor*> ordered;
  ordered.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    ordered.push_back(&tensor);
  }
  std::sort(ordered.begin(), ordered.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* end = data.data();
  for (const StoredTensor* tensor : ordered) {
    if (tensor->bytes.data() < end) {
      refuse(path, tensor->name, "overlaps another tensor");
    }
    if (tensor->bytes.data() > end) {
      refuse(path, tensor->name, "leaves a hole before it");
    }
    end = tensor->bytes.data() + tensor->bytes.size();
  }
  if (end != data.data() + data.size()) {
    refuse(path, "has " + std::to_string(data.data() + data.size() - end) + " bytes that no tensor names");
  }
}

std::map<std::string, StoredTensor> read_file(const std::filesystem::path& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  std::uint64_t header_bytes = 0;
  const Json header = read_header(path, file->bytes(), &header_bytes);
  const std::span<const std::byte> data = file->bytes().subspan(kLengthBytes + header_bytes);
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      continue;
    }
    StoredTensor tensor = read_entry(path, name, entry, data);
    tensor.file = file;
    tensors.emplace(name, std::move(tensor));
  }
  check_tiling(path, data, tensors);
  return tensors;
}

// File name -> the tensors that the index promises in it.
std::map<std::string, std::vector<std::string>> read_index(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const Json index = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (index.is_discarded() || !index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    refuse(path, "field 'weight_map' is missing");
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || std::filesystem::path(name).filename() != name || name == "." || name == "..") {
      refuse(path,
             "field 'weight_map': tensor '" + tensor + "' must name a file of this directory, not " + file.dump());
    }
    shards[name].push_back(tensor);
  }
  return shards;
}

std::map<std::string, StoredTensor> read_shards(const std::filesystem::path& index) {
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, promised] : read_index(index)) {
    const std::filesystem::path path = index.parent_path() / name;
    if (!std::filesystem::exists(path)) {
      refuse(index, "shard '" + name + "' is missing from the directory");
    }
    std::map<std::string, StoredTensor> found = read_file(path);
    for (const std::string& tensor : promised) {
      auto node = found.extract(tensor);
      if (node.empty()) {
        refuse(path, tensor, std::string("is missing, though ") + kIndexFile + " promises it");
      }
      tensors.insert(std::move(node));
    }
  }
  return tensors;
}

}  // namespace

std::size_t stored_element_bytes(const std::string& dtype) {
  static constexpr std::array<std::pair<std::string_view, std::size_t>, 14> kDtypes = {{{"BOOL", 1},
                                                                                        {"U8", 1},
                                                                                        {"I8", 1},
                                                                                        {"F8_E5M2", 1},
                                                                                        {"F8_E4M3", 1},
                                                                                        {"I16", 2},
                                                                                        {"U16", 2},
                                                                                        {"F16", 2},
                                                                                        {"BF16", 2},
                                                                                        {"I32", 4},
                                                                                        {"U32", 4},
                                                                                        {"F32", 4},
                                                                                        {"I64", 8},
                                                                                        {"F64", 8}}};
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) {
      return bytes;
    }
  }
  return 0;
}

StoredTensors read_safetensors_file(const std::filesystem::path& path) { return {path, read_file(path)}; }

StoredTensors read_safetensors(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / kSingleFile)) {
    return read_safetensors_file(directory / kSingleFile);
  }
  const std::filesystem::path index = directory / kIndexFile;
  if (std::filesystem::exists(index)) {
    return {index, read_shards(index)};
  }
  refuse(directory, std::string("holds neither ") + kSingleFile + " nor " + kIndexFile);
}

}  // namespace promptcached::checkpoint
