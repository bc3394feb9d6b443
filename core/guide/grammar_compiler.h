// GrammarCompiler: clients' constraints to grammars over one model's tokens.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/guide/constraint.h"
#include "core/guide/grammar.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::guide {

// Thread-safe. What clients may ask for is limited in size, and llguidance limits the work: a compilation takes
// milliseconds as a rule, seconds and more where somebody means harm; then others' new ones wait for it, and are
// refused.
class GrammarCompiler final {
 public:
  // `vocab_size`: width of a row of logits. Costs nothing: the vocabulary is arranged when the first grammar is asked
  // for (half a second for 50,000 tokens).
  GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocab_size,
                  std::vector<std::int32_t> end_tokens);

  // Errors, about `constraint.param`: kInvalidField with what is wrong with it (no valid schema, an unsupported
  // keyword, no valid regex or grammar, too large); kQueueFull, when others' take too long; kInternal.
  Result<std::shared_ptr<const Grammar>> compile(const Constraint& constraint);

 private:
  Status arrange_vocabulary();
  std::shared_ptr<const Grammar> find(const std::string& key);
  void keep(std::string key, std::shared_ptr<const Grammar> grammar);

  std::shared_ptr<const Tokenizer> tokenizer_;
  const std::int32_t vocab_size_;
  std::vector<std::int32_t> end_tokens_;
  std::once_flag arranged_;
  Status arranging_;             // how it went; written once, under arranged_
  VocabularyHandle vocabulary_;  // the same
  std::timed_mutex turn_;        // whose turn it is to compile
  std::mutex mutex_;             // guards what follows: HTTP threads look up at the same time
  std::list<std::pair<std::string, std::shared_ptr<const Grammar>>> recent_;  // by use, the latest first
  std::size_t recent_bytes_ = 0;                                              // of their texts
};

}  // namespace promptcached::guide
