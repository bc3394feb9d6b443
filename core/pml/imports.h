// The imports of a prompt: which modules, with which arguments.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/pml/assembly_plan.h"
#include "core/pml/chunk_encoder.h"
#include "core/pml/document.h"

namespace promptcached::pml {

class ImportResolver final {
 public:
  // Both must outlive the resolver.
  ImportResolver(const Schema& schema, const ChunkEncoder& encoder) : schema_(schema), encoder_(encoder) {}

  // Takes in an import that stands directly in the prompt, with those nested in it; returns its module. Errors:
  // kUnknownModule, kUnknownParameter, kDuplicateImport, kUnionConflict, kArgumentTooLong.
  Result<ModuleIndex> add(const Element& import);

  bool is_imported(ModuleIndex module) const { return imported_.contains(module); }
  // All imported modules, nested ones included, in document order.
  std::vector<ModuleIndex> modules() const;
  const std::vector<NewToken>& arguments() const { return arguments_; }

 private:
  Result<ModuleIndex> add_to(ModuleIndex parent, const Element& import);
  Status claim(ModuleIndex index, const Element& import);
  Status add_arguments(const Module& module, const Element& import);
  const Module& module(ModuleIndex index) const { return schema_.modules[static_cast<std::size_t>(index)]; }

  const Schema& schema_;
  const ChunkEncoder& encoder_;
  std::unordered_map<ModuleIndex, SourceLocation> imported_;
  std::unordered_map<int, ModuleIndex> union_members_;  // by union number
  std::vector<NewToken> arguments_;
};

}  // namespace promptcached::pml
