// Grammar: a compiled constraint. Matcher: how far one answer has come in it.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/guide/llg/llg.h"
#include "core/guide/token_mask.h"
#include "core/tokenizer/tokenizer.h"

namespace promptcached::guide {

template <typename Handle, void (*Free)(Handle*)>
struct LlgFree {
  void operator()(Handle* handle) const { Free(handle); }
};
using VocabularyHandle = std::unique_ptr<PcLlgVocabulary, LlgFree<PcLlgVocabulary, pc_llg_vocabulary_free>>;
using GrammarHandle = std::unique_ptr<PcLlgGrammar, LlgFree<PcLlgGrammar, pc_llg_grammar_free>>;
using MatcherHandle = std::unique_ptr<PcLlgMatcher, LlgFree<PcLlgMatcher, pc_llg_matcher_free>>;

// Of one sequence; one thread at a time. Errors of all calls: kInvalidField about the constraint's field, when the
// grammar costs more than one may; kInternal.
class Matcher final {
 public:
  // Writes which tokens may follow what has been accepted: end tokens when the text may end here, and never a token
  // that the tokenizer does not know. Takes microseconds as a rule, 20 ms at most.
  Status write_mask(TokenMask& mask);
  // Goes on behind `token`, which the mask has allowed and which is no end token. True: nothing can follow it.
  Result<bool> accept(TokenId token);

 private:
  friend class Grammar;
  Matcher(MatcherHandle handle, std::string param) : handle_(std::move(handle)), param_(std::move(param)) {}

  MatcherHandle handle_;
  std::string param_;
};

// Immutable; from any thread.
class Grammar final {
 public:
  Grammar(GrammarHandle handle, std::string param) : handle_(std::move(handle)), param_(std::move(param)) {}

  // A matcher at the grammar's beginning. Error: kInternal.
  Result<Matcher> start() const;

 private:
  GrammarHandle handle_;
  std::string param_;
};

}  // namespace promptcached::guide
