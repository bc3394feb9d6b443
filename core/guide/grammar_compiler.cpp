#include "core/guide/grammar_compiler.h"

#include <algorithm>
#include <chrono>

#include "core/guide/llg_call.h"
#include "core/guide/token_bytes.h"

namespace promptcached::guide {
namespace {

// Work grows with the text, in the worst cases by more than its size.
constexpr std::size_t kMaxTextBytes = std::size_t{128} << 10;
// Clients ask for few formats, again and again. A usual one is a megabyte once compiled, the largest ten.
constexpr std::size_t kRecent = 64;
constexpr std::size_t kRecentTextBytes = std::size_t{1} << 20;
// For others' compilations.
constexpr std::chrono::seconds kLongestWait{10};

PcLlgSyntax llg_syntax(Syntax syntax) {
  switch (syntax) {
    case Syntax::kJsonSchema:
      return kPcLlgJsonSchema;
    case Syntax::kRegex:
      return kPcLlgRegex;
    case Syntax::kLark:
      break;
  }
  return kPcLlgLark;
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size,
                                 std::vector<std::int32_t> end_tokens)
    : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)) {}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const Constraint& constraint) {
  if (constraint.text.size() > kMaxTextBytes) {
    return make_error(ErrorCode::kInvalidField,
                      constraint.param + " has " + std::to_string(constraint.text.size()) + " bytes; the most is " +
                          std::to_string(kMaxTextBytes),
                      constraint.param);
  }
  std::call_once(arranged_, [this] { arranging_ = arrange_vocabulary(); });
  if (!arranging_) {
    return arranging_.error();
  }
  // The field belongs to it: a grammar's errors name it.
  std::string key = std::to_string(static_cast<int>(constraint.syntax)) + constraint.param + '\n' + constraint.text;
  if (std::shared_ptr<const Grammar> known = find(key)) {
    return known;
  }
  // One at a time, so that hostile ones take one processor at most, and what is asked for twice is compiled once.
  const std::unique_lock turn(turn_, kLongestWait);
  if (!turn.owns_lock()) {
    return make_error(ErrorCode::kQueueFull, "another request's grammar takes long to compile; try again later");
  }
  if (std::shared_ptr<const Grammar> known = find(key)) {
    return known;
  }
  PcLlgGrammar* raw = nullptr;
  LlgMessage message;
  const PcLlgStatus status = pc_llg_grammar_new(vocabulary_.get(), llg_syntax(constraint.syntax),
                                                constraint.text.data(), constraint.text.size(), &raw, message.out());
  if (status != kPcLlgOk) {
    return llg_error(status, message, constraint.param);
  }
  auto grammar = std::make_shared<const Grammar>(GrammarHandle(raw), constraint.param);
  keep(std::move(key), grammar);
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

Status GrammarCompiler::arrange_vocabulary() {
  // Where the model has more logits than the tokenizer has tokens, the rest is never allowed.
  const std::int32_t count = static_cast<std::int32_t>(std::min<std::int64_t>(vocab_size_, tokenizer_->vocab_size()));
  std::vector<TokenBytes> tokens = token_bytes(*tokenizer_, count);
  std::vector<std::int32_t> ends;
  for (const std::int32_t end : end_tokens_) {
    if (end >= 0 && end < count) {
      ends.push_back(end);
      tokens[static_cast<std::size_t>(end)].is_control = true;  // whatever it spells, it ends the text
    }
  }
  std::vector<PcLlgToken> views;
  views.reserve(tokens.size());
  for (const TokenBytes& token : tokens) {
    views.push_back({token.bytes.data(), token.bytes.size(), token.is_control ? 1 : 0});
  }
  PcLlgVocabulary* raw = nullptr;
  LlgMessage message;
  const PcLlgStatus status =
      pc_llg_vocabulary_new(views.data(), views.size(), ends.data(), ends.size(), &raw, message.out());
  if (status != kPcLlgOk) {
    return llg_error(status, message, {});
  }
  vocabulary_.reset(raw);
  return {};
}

std::shared_ptr<const Grammar> GrammarCompiler::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(recent_.begin(), recent_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found == recent_.end()) {
    return nullptr;
  }
  recent_.splice(recent_.begin(), recent_, found);
  return found->second;
}

void GrammarCompiler::keep(std::string key, std::shared_ptr<const Grammar> grammar) {
  const std::lock_guard lock(mutex_);
  recent_bytes_ += key.size();
  recent_.emplace_front(std::move(key), std::move(grammar));
  while (recent_.size() > kRecent || recent_bytes_ > kRecentTextBytes) {
    recent_bytes_ -= recent_.back().first.size();
    recent_.pop_back();
  }
}

}  // namespace promptcached::guide
