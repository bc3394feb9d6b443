// SourceMap: byte offsets of a document to line and column.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace promptcached::pml {

// Lines end at LF, CRLF or CR. Built in one pass; a lookup walks at most one block, however long the line: a hostile
// document of one line must not make every location cost the whole document.
class SourceMap final {
 public:
  // `source` must outlive the map.
  explicit SourceMap(std::string_view source);

  // Where the character at `offset` stands; offset == size is the end of the document.
  SourceLocation locate(std::size_t offset) const;

 private:
  static constexpr std::size_t kBlockBytes = 256;
  void advance(SourceLocation& location, std::size_t offset) const;

  std::string_view source_;
  std::vector<SourceLocation> block_starts_;
};

}  // namespace promptcached::pml
