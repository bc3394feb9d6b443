// Safetensors files, mapped into memory and checked before anything is read from them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "core/checkpoint/stored_tensors.h"

namespace promptcached::checkpoint {

// Bytes of one element, or 0 for a dtype this version does not know.
std::size_t stored_element_bytes(const std::string& dtype);

// All tensors of a model directory: model.safetensors, or the shards that model.safetensors.index.json names. Throws
// std::runtime_error naming the file, and tensor or field, at fault: a file missing, shorter or longer than its header
// says, a range that is out of bounds, overlaps another or disagrees with its shape, a shard without a tensor the index
// promises.
StoredTensors read_safetensors(const std::filesystem::path& directory);

// All tensors of one file; throws as read_safetensors() does.
StoredTensors read_safetensors_file(const std::filesystem::path& path);

}  // namespace promptcached::checkpoint
