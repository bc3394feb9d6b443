#include "core/engine/encode_job.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace promptcached::engine {

std::int32_t placeholder_count(const pml::Module& module) {
  std::int32_t count = 0;
  for (const pml::Parameter& parameter : module.parameters) {
    count += parameter.length;
  }
  return count;
}

std::int32_t kept_tokens(const pml::Schema& schema, pml::EntryIndex entry) {
  const pml::ModuleIndex index = schema.entries[static_cast<std::size_t>(entry)].module;
  const pml::Module& module = schema.modules[static_cast<std::size_t>(index)];
  const bool keeps_placeholders = schema.attention == pml::AttentionMode::kContextual;
  return module.token_count() + (keeps_placeholders ? placeholder_count(module) : 0);
}

EncodePart* EncodeJob::find_part(pml::EntryIndex entry) {
  for (std::vector<EncodePart>* parts : {&context, &outputs}) {
    for (EncodePart& part : *parts) {
      if (part.entry == entry) {
        return &part;
      }
    }
  }
  return nullptr;
}

bool EncodeJob::satisfied() {
  return std::all_of(waiters.begin(), waiters.end(), [this](const Waiter& waiter) {
    const EncodePart* const part = find_part(waiter.entry);
    return part != nullptr && part->pin;
  });
}

void EncodeJob::attach(EncodePart& part, kv::ModulePin pin) {
  if (!pin) {
    return;
  }
  const kv::ModuleKv& kv = pin.kv();
  part.text = {kv.data, kv.total_tokens()};
  part.placeholders = part.text;
  part.placeholder_offset = kv.tokens;
  part.pin = std::move(pin);
}

void EncodeJob::list_rows() {
  for (const EncodePart& part : outputs) {
    if (!part.is_new) {
      continue;
    }
    const pml::Module& module = module_of(part.entry);
    std::int32_t offset = 0;
    for (const pml::TokenRun& run : module.text) {
      for (std::size_t i = 0; i < run.tokens.size(); ++i) {
        rows.push_back({run.tokens[i], run.start + static_cast<std::int32_t>(i), part.text, offset++});
      }
    }
    offset = part.placeholder_offset;
    for (const pml::Parameter& parameter : module.parameters) {
      for (std::size_t i = 0; i < parameter.placeholder.size(); ++i) {
        rows.push_back(
            {parameter.placeholder[i], parameter.start + static_cast<std::int32_t>(i), part.placeholders, offset++});
      }
    }
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.position < b.position; });
}

std::vector<PlacedRange> EncodeJob::visible_ranges() const {
  std::vector<PlacedRange> ranges;
  const auto add = [&](const model::KvArray& kv, std::int32_t offset, std::int32_t start, std::int32_t count,
                       std::int32_t limit) {
    count = std::min(count, limit - start);
    if (count > 0) {
      ranges.push_back({kv, offset, count, start});
    }
  };
  const auto add_part = [&](const EncodePart& part, std::int32_t limit, bool placeholders) {
    const pml::Module& module = module_of(part.entry);
    std::int32_t offset = 0;
    for (const pml::TokenRun& run : module.text) {
      const std::int32_t count = static_cast<std::int32_t>(run.tokens.size());
      add(part.text, offset, run.start, count, limit);
      offset += count;
    }
    offset = part.placeholder_offset;
    for (const pml::Parameter& parameter : module.parameters) {
      if (placeholders) {
        add(part.placeholders, offset, parameter.start, parameter.length, limit);
      }
      offset += parameter.length;
    }
  };
  const std::vector<pml::ContextRef>& refs = encoding().context;
  for (std::size_t i = 0; i < context.size(); ++i) {
    add_part(context[i], context[i].limit, refs[i].placeholders);
  }
  constexpr std::int32_t kAll = std::numeric_limits<std::int32_t>::max();
  const std::int32_t next = done_rows < rows.size() ? rows[done_rows].position : kAll;
  for (const EncodePart& part : outputs) {
    add_part(part, part.is_new ? next : kAll, part.is_new || keeps_placeholders());
  }
  return ranges;
}

}  // namespace promptcached::engine
