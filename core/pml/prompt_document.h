// A prompt as written, before it meets its schema.
#pragma once

#include <string>
#include <string_view>

#include "core/pml/assembly_plan.h"
#include "core/pml/document.h"

namespace promptcached::pml {

// `root` is a <prompt>. Its child elements are imports; inside an import there are imports and blank text only.
struct PromptDocument {
  std::string schema;
  bool preserve_space = false;
  Element root;
};

}  // namespace promptcached::pml
