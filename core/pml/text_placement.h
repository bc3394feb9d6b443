// Where a prompt's own texts stand between what is imported.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/pml/schema.h"

namespace promptcached::pml {

// Keeps track of the positions that a prompt uses, and refuses texts that would run into them.
class TextPlacement final {
 public:
  // Root text is always there. An imported module takes its whole span: its slots, and nested modules that are not
  // imported, too.
  TextPlacement(const Schema& schema, const std::vector<ModuleIndex>& imports);

  // From here on, everything from the schema's length on is taken by the text at the end of the prompt.
  void reserve_end();

  // Where text before the first import starts: after the last root text that ends before the first imported position.
  std::int32_t before_imports() const;

  // Takes `count` positions from `start`. Error kTextDoesNotFit at `location` when something stands in the way.
  Status place(std::int64_t start, std::int64_t count, SourceLocation location);

 private:
  struct Occupant {
    std::int64_t end = 0;
    std::string what;  // for messages
  };

  const Schema& schema_;
  std::int32_t first_imported_ = 0;
  std::map<std::int64_t, Occupant> occupied_;  // by start; never overlapping
};

}  // namespace promptcached::pml
