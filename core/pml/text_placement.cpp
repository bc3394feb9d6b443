#include "core/pml/text_placement.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace promptcached::pml {

TextPlacement::TextPlacement(const Schema& schema, const std::vector<ModuleIndex>& imports)
    : schema_(schema), first_imported_(schema.positions) {
  for (const TokenRun& run : schema.modules[kRoot].text) {
    occupied_.emplace(run.start, Occupant{run.end(), "root text"});
  }
  for (const ModuleIndex index : imports) {
    const Module& module = schema.modules[static_cast<std::size_t>(index)];
    first_imported_ = std::min(first_imported_, module.start);
    if (module.end > module.start) {
      occupied_.emplace(module.start, Occupant{module.end, "the module '" + module.path + "'"});
    }
  }
}

void TextPlacement::reserve_end() {
  occupied_.emplace(schema_.positions,
                    Occupant{std::numeric_limits<std::int64_t>::max(), "the text at the end of the prompt"});
}

std::int32_t TextPlacement::before_imports() const {
  std::int32_t start = 0;
  for (const TokenRun& run : schema_.modules[kRoot].text) {
    if (run.end() > first_imported_) {
      break;
    }
    start = run.end();
  }
  return start;
}

Status TextPlacement::place(std::int64_t start, std::int64_t count, SourceLocation location) {
  if (count == 0) {
    return {};
  }
  auto next = occupied_.upper_bound(start);
  if (next != occupied_.begin() && std::prev(next)->second.end > start) {
    --next;
  }
  const std::int64_t free = next == occupied_.end() ? count : std::max<std::int64_t>(0, next->first - start);
  if (count > free) {
    return make_error_at(ErrorCode::kTextDoesNotFit, location,
                         "this text is " + std::to_string(count) + " tokens long, but only " + std::to_string(free) +
                             " positions are free at its place (from position " + std::to_string(start) + ", before " +
                             next->second.what + "): move it to the end of the prompt");
  }
  occupied_.emplace(start, Occupant{start + count, "another text"});
  return {};
}

}  // namespace promptcached::pml
