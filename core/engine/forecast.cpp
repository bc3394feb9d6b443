#include "core/engine/forecast.h"

#include <algorithm>
#include <cmath>

#include "core/engine/encode_job.h"
#include "core/engine/prefix_cache.h"
#include "core/engine/scheduler.h"
#include "core/engine/sequence.h"
#include "core/engine/step_price.h"

namespace promptcached::engine {
namespace {

std::int32_t tokens_below(const pml::Module& module, const pml::ContextRef& context) {
  std::int32_t tokens = 0;
  for (const pml::TokenRun& run : module.text) {
    tokens += std::clamp(context.limit - run.start, 0, static_cast<std::int32_t>(run.tokens.size()));
  }
  for (const pml::Parameter& parameter : module.parameters) {
    tokens += context.placeholders ? std::clamp(context.limit - parameter.start, 0, parameter.length) : 0;
  }
  return tokens;
}

const pml::Module& module_of(const pml::Schema& schema, pml::EntryIndex entry) {
  const pml::ModuleIndex module = schema.entries[static_cast<std::size_t>(entry)].module;
  return schema.modules[static_cast<std::size_t>(module)];
}

}  // namespace

Forecaster::Forecaster(const kv::ModulePool& pool, const kv::TierMover& tiers, PrefixCache& prefixes,
                       const Scheduler& scheduler, const StepPrice& price)
    : pool_(pool), tiers_(tiers), prefixes_(prefixes), scheduler_(scheduler), price_(price) {}

void Forecaster::Work::add(std::int64_t more, std::int64_t seen) {
  rows += more;
  keys += keys_of(more, seen);
}

Forecast Forecaster::run(Sequence& sequence) {
  const GenerateRequest& request = sequence.request;
  Forecast forecast;
  forecast.usage.prompt_tokens = request.plan.prompt_tokens();
  for (const pml::CachedPart& part : request.plan.cached) {
    const SourceLabel source = place(request, part.entry);
    const std::int32_t tokens = part.token_count();
    forecast.cache.push_back({module_of(*request.version->schema, part.entry).path, source, tokens});
    forecast.usage.cached_tokens += source == SourceLabel::kComputed ? 0 : tokens;
  }
  const PrefixCache::Foreseen prefix = prefixes_.foresee(sequence);
  if (prefix.tokens > 0) {
    forecast.cache.push_back({"#prefix", prefix.source, prefix.tokens});
    forecast.usage.cached_tokens += prefix.tokens;
  }
  load_seconds_ += prefix.load_seconds;
  forecast.usage.new_tokens = forecast.usage.prompt_tokens - forecast.usage.cached_tokens;
  forecast.encode_tokens = encoding_.rows;
  Work own;
  own.add(sequence.own_tokens() - prefix.tokens, request.plan.cached_tokens() + prefix.tokens);
  if (price_.seconds(1, 1, 1) > 0) {
    forecast.timing = timing(own);
  }
  return forecast;
}

// Where a module would come from; what has to happen for it is noted.
SourceLabel Forecaster::place(const GenerateRequest& request, pml::EntryIndex entry) {
  const auto [found, is_new] = places_.emplace(entry, SourceLabel::kComputed);
  if (!is_new) {
    return found->second;
  }
  const pml::Schema& schema = *request.version->schema;
  const kv::ModuleKey& key = request.version->keys[static_cast<std::size_t>(entry)];
  const std::int32_t tokens = kept_tokens(schema, entry);
  if (!request.bypass_cache && (tokens == 0 || pool_.contains(key))) {
    return found->second = SourceLabel::kDevice;
  }
  const auto below =
      request.bypass_cache ? std::nullopt : tiers_.foresee(key, pool_.geometry().bytes(tokens), price_.seconds(tokens));
  if (below.has_value()) {
    load_seconds_ += below->seconds;
    return found->second = source_label(below->tier);
  }
  add_encoding(request, schema.entries[static_cast<std::size_t>(entry)].pass);
  return SourceLabel::kComputed;
}

void Forecaster::add_encoding(const GenerateRequest& request, int pass) {
  if (!passes_.insert(pass).second) {
    return;
  }
  const pml::Schema& schema = *request.version->schema;
  const pml::EncodingPass& encoding = schema.passes[static_cast<std::size_t>(pass)];
  std::int64_t rows = 0;
  std::int64_t seen = 0;
  for (const pml::EntryIndex entry : encoding.entries) {
    if (place(request, entry) == SourceLabel::kComputed) {
      rows += module_of(schema, entry).token_count() + placeholder_count(module_of(schema, entry));
    }
  }
  for (const pml::ContextRef& context : encoding.context) {
    place(request, context.entry);
    seen += tokens_below(module_of(schema, context.entry), context);
  }
  encoding_.add(rows, seen);
}

Timing Forecaster::timing(const Work& own) const {
  const Scheduler::Load before = scheduler_.load();
  const auto room = static_cast<double>(std::max<std::int64_t>(1, scheduler_.max_batch_tokens() - before.decoding));
  // In steps of the usual size, in each of which those that are being answered have their row.
  const auto seconds = [&](const Work& work) {
    const double steps = std::ceil(static_cast<double>(work.rows) / room);
    return price_.seconds(steps, static_cast<double>(work.rows) + steps * static_cast<double>(before.decoding),
                          static_cast<double>(work.keys) + steps * static_cast<double>(before.decoding_keys));
  };
  const double prefill = seconds(own);
  // Prompts before it share their last step with it.
  const double queue = seconds({before.rows + own.rows, before.keys + own.keys}) - prefill;
  const double load = std::max(load_seconds_ / tiers_.threads(), seconds(encoding_));
  Timing timing;
  timing.queue_ms = 1e3 * queue;
  timing.load_ms = 1e3 * load;
  timing.prefill_ms = 1e3 * prefill;
  timing.ttft_ms = 1e3 * (queue + load + prefill);
  return timing;
}

}  // namespace promptcached::engine
