// TextOutput: generated ids to text for one sequence, with stop strings held back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace promptcached::engine {

class TextOutput {
 public:
  // `context`: the prompt's last tokens (core/tokenizer/tokenizer.h, StreamDecoder).
  TextOutput(std::shared_ptr<const Tokenizer> tokenizer, std::span<const TokenId> context,
             std::vector<std::string> stop);

  // The text that may be shown now that `id` has been generated. Text that might become a stop string is held back.
  std::string push(TokenId id);
  // What is left when generation ends.
  std::string finish();
  // A stop string has been met: nothing from it on was or will be given out.
  bool stopped() const { return stopped_; }
  // Some text is held back, so the last token's event may still grow.
  bool pending() const { return !stopped_ && (!held_.empty() || decoder_.pending()); }

 private:
  std::string release(bool is_end);

  StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace promptcached::engine
