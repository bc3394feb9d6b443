#include "core/pml/encoding_passes.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/pml/scaffold_sets.h"

namespace promptcached::pml {
namespace {

// Contextual mode names every module before a union in the pass of each of its members: a product. Real schemas stay
// far below this; a hostile one must not turn a megabyte of PML into gigabytes.
constexpr std::size_t kMostContextRefs = std::size_t{4} << 20;

class PassPlanner final {
 public:
  explicit PassPlanner(Schema& schema) : schema_(schema), reaches_(schema.modules.size()) {}
  Status run();

 private:
  // The first position at which an entry shows something, without and with its placeholders.
  struct Reach {
    std::int32_t text = std::numeric_limits<std::int32_t>::max();
    std::int32_t any = std::numeric_limits<std::int32_t>::max();
  };

  void plan_alone();
  void plan_contextual();
  Status plan_joint();
  void plan_joint_member(Scaffold& scaffold, int number, std::size_t member, const UnionChoices& choices);
  void add_mode_context(const Scaffold& scaffold, std::size_t member, const UnionChoices& choices, EncodingPass& pass);
  int add_pass(EncodingPass pass);
  void join_pass(EntryIndex entry, int pass);
  void add_ref(EncodingPass& pass, EntryIndex entry, std::int32_t limit, bool placeholders);
  void add_ancestors(ModuleIndex index, EncodingPass& pass);
  void add_pass_chain(int chain, std::int32_t limit, EncodingPass& pass);
  bool too_many_refs() const { return considered_refs_ > kMostContextRefs; }

  const Module& module(ModuleIndex index) const { return schema_.modules[static_cast<std::size_t>(index)]; }
  const Module& module_of(EntryIndex entry) const {
    return module(schema_.entries[static_cast<std::size_t>(entry)].module);
  }

  Schema& schema_;
  std::vector<Reach> reaches_;  // by module
  // By pass: its entries that show something at all. In document order, so ordered by start as well: a pass holds at
  // most one member of each union.
  std::vector<std::vector<EntryIndex>> shown_;
  std::size_t considered_refs_ = 0;  // work done, not only what came of it: time is bounded as well as memory
};

Status PassPlanner::run() {
  for (std::size_t i = 0; i < schema_.modules.size(); ++i) {
    const Module& one = schema_.modules[i];
    if (!one.text.empty()) {
      reaches_[i].text = reaches_[i].any = one.text.front().start;
    }
    for (const Parameter& parameter : one.parameters) {
      if (parameter.length > 0) {
        reaches_[i].any = std::min(reaches_[i].any, parameter.start);
        break;
      }
    }
    schema_.entries.push_back({static_cast<ModuleIndex>(i), -1, 0});
  }
  if (schema_.attention == AttentionMode::kContextual) {
    plan_contextual();
  } else {
    plan_alone();
  }
  Status status = plan_joint();
  if (status.ok() && too_many_refs()) {
    return make_error(ErrorCode::kInvalidPml,
                      "the modules of this schema see too many others while they are encoded (more than " +
                          std::to_string(kMostContextRefs) +
                          " pairs): use attention=\"rooted\", fewer unions, or smaller scaffolds");
  }
  return status;
}

int PassPlanner::add_pass(EncodingPass pass) {
  schema_.passes.push_back(std::move(pass));
  shown_.emplace_back();
  return static_cast<int>(schema_.passes.size()) - 1;
}

void PassPlanner::join_pass(EntryIndex entry, int pass) {
  Entry& joining = schema_.entries[static_cast<std::size_t>(entry)];
  joining.pass = pass;
  schema_.passes[static_cast<std::size_t>(pass)].entries.push_back(entry);
  if (reaches_[static_cast<std::size_t>(joining.module)].any != std::numeric_limits<std::int32_t>::max()) {
    shown_[static_cast<std::size_t>(pass)].push_back(entry);
  }
}

// Leaves out what would show nothing, so that equal contexts look equal.
void PassPlanner::add_ref(EncodingPass& pass, EntryIndex entry, std::int32_t limit, bool placeholders) {
  const ModuleIndex index = schema_.entries[static_cast<std::size_t>(entry)].module;
  const Reach& reach = reaches_[static_cast<std::size_t>(index)];
  ++considered_refs_;
  if ((placeholders ? reach.any : reach.text) < limit && !too_many_refs()) {
    pass.context.push_back({entry, limit, placeholders});
  }
}

// Root text and ancestors' text: what is present whenever the module is.
void PassPlanner::add_ancestors(ModuleIndex index, EncodingPass& pass) {
  std::vector<ModuleIndex> ancestors;
  for (ModuleIndex at = module(index).parent; at >= 0; at = module(at).parent) {
    ancestors.push_back(at);
  }
  for (auto ancestor = ancestors.rbegin(); ancestor != ancestors.rend(); ++ancestor) {
    add_ref(pass, *ancestor, module(index).start, false);
  }
}

void PassPlanner::plan_alone() {
  for (std::size_t i = 0; i < schema_.modules.size(); ++i) {
    const auto index = static_cast<ModuleIndex>(i);
    EncodingPass pass;
    // A module without tokens of its own has nothing to encode, and so sees nothing.
    if (schema_.attention == AttentionMode::kRooted && reaches_[i].any != std::numeric_limits<std::int32_t>::max()) {
      add_ancestors(index, pass);
    }
    join_pass(index, add_pass(std::move(pass)));
  }
}

// What stands before `limit` in the pass `chain`, and what that pass sees itself.
void PassPlanner::add_pass_chain(int chain, std::int32_t limit, EncodingPass& pass) {
  const EncodingPass& enclosing = schema_.passes[static_cast<std::size_t>(chain)];
  for (const ContextRef& ref : enclosing.context) {
    if (too_many_refs()) {
      return;
    }
    add_ref(pass, ref.entry, ref.limit, ref.placeholders);
  }
  for (const EntryIndex entry : shown_[static_cast<std::size_t>(chain)]) {
    if (module_of(entry).start >= limit || too_many_refs()) {
      break;
    }
    add_ref(pass, entry, limit, true);
  }
}

// Modules join their parent's pass; a union's member does so only if it is the scaffold. Others begin a pass that sees
// the one they branch from. Parents come first in document order, so their passes exist.
void PassPlanner::plan_contextual() {
  join_pass(kRoot, add_pass({}));
  for (std::size_t i = 1; i < schema_.modules.size(); ++i) {
    const auto index = static_cast<ModuleIndex>(i);
    const int enclosing = schema_.entries[static_cast<std::size_t>(module(index).parent)].pass;
    if (module(index).union_number == 0 || module(index).is_union_default) {
      join_pass(index, enclosing);
      continue;
    }
    EncodingPass pass;
    if (module(index).end > module(index).start) {
      add_pass_chain(enclosing, module(index).start, pass);
    }
    join_pass(index, add_pass(std::move(pass)));
  }
}

Status PassPlanner::plan_joint() {
  for (std::size_t number = 0; number < schema_.scaffolds.size(); ++number) {
    Scaffold& scaffold = schema_.scaffolds[number];
    UnionChoices choices;
    for (std::size_t member = 0; member < scaffold.modules.size() && !too_many_refs(); ++member) {
      choices.choose(schema_, scaffold.modules[member]);
      plan_joint_member(scaffold, static_cast<int>(number), member, choices);
    }
  }
  return {};
}

void PassPlanner::plan_joint_member(Scaffold& scaffold, int number, std::size_t member, const UnionChoices& choices) {
  const ModuleIndex index = scaffold.modules[member];
  const bool contextual = schema_.attention == AttentionMode::kContextual;
  EncodingPass pass;
  if (reaches_[static_cast<std::size_t>(index)].any != std::numeric_limits<std::int32_t>::max()) {
    add_mode_context(scaffold, member, choices, pass);
    for (std::size_t earlier = 0; earlier < member && !too_many_refs(); ++earlier) {
      add_ref(pass, scaffold.entries[earlier], module(index).end, contextual);
    }
    std::ranges::stable_sort(pass.context, {}, [&](const ContextRef& ref) {
      return schema_.entries[static_cast<std::size_t>(ref.entry)].module;
    });
  }
  const auto entry = static_cast<EntryIndex>(schema_.entries.size());
  schema_.entries.push_back({index, number, 0});
  scaffold.entries.push_back(entry);
  join_pass(entry, add_pass(std::move(pass)));
}

// What the mode lets the member see: alone it would be encoded with the rest of its pass, now it sees that rest from
// outside. Where the set has its own encoding of a module, or another member of a union, that takes the place.
void PassPlanner::add_mode_context(const Scaffold& scaffold, std::size_t member, const UnionChoices& choices,
                                   EncodingPass& pass) {
  const ModuleIndex index = scaffold.modules[member];
  EncodingPass alone;
  if (schema_.attention == AttentionMode::kRooted) {
    add_ancestors(index, alone);
  } else if (schema_.attention == AttentionMode::kContextual) {
    add_pass_chain(schema_.entries[static_cast<std::size_t>(index)].pass, module(index).end, alone);
  }
  const auto set_end = scaffold.modules.begin() + static_cast<std::ptrdiff_t>(member) + 1;
  for (const ContextRef& ref : alone.context) {
    const ModuleIndex seen = schema_.entries[static_cast<std::size_t>(ref.entry)].module;
    const bool in_set = std::binary_search(scaffold.modules.begin(), set_end, seen);
    if (!in_set && !choices.excludes(schema_, seen)) {
      add_ref(pass, ref.entry, ref.limit, ref.placeholders);
    }
  }
}

}  // namespace

Status plan_encoding(Schema& schema) { return PassPlanner(schema).run(); }

}  // namespace promptcached::pml
