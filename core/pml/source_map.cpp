#include "core/pml/source_map.h"

#include <algorithm>

namespace promptcached::pml {

SourceMap::SourceMap(std::string_view source) : source_(source) {
  block_starts_.reserve(source.size() / kBlockBytes + 1);
  SourceLocation location{1, 1};
  for (std::size_t offset = 0; offset < source.size(); ++offset) {
    if (offset % kBlockBytes == 0) {
      block_starts_.push_back(location);
    }
    advance(location, offset);
  }
  if (source.size() % kBlockBytes == 0) {
    block_starts_.push_back(location);
  }
}

SourceLocation SourceMap::locate(std::size_t offset) const {
  offset = std::min(offset, source_.size());
  const std::size_t block = offset / kBlockBytes;
  SourceLocation location = block_starts_[block];
  for (std::size_t at = block * kBlockBytes; at < offset; ++at) {
    advance(location, at);
  }
  return location;
}

void SourceMap::advance(SourceLocation& location, std::size_t offset) const {
  const char c = source_[offset];
  const bool carriage_return_alone = c == '\r' && (offset + 1 == source_.size() || source_[offset + 1] != '\n');
  if (c == '\n' || carriage_return_alone) {
    ++location.line;
    location.column = 1;
    return;
  }
  const bool continues_character = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
  if (!continues_character) {
    ++location.column;
  }
}

}  // namespace promptcached::pml
