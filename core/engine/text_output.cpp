#include "core/engine/text_output.h"

#include <algorithm>
#include <utility>

namespace promptcached::engine {
namespace {

// Length of the longest suffix of `text` that is a proper prefix of `stop`.
std::size_t overlap(const std::string& text, const std::string& stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.compare(text.size() - length, length, stop, 0, length) == 0) {
      return length;
    }
  }
  return 0;
}

}  // namespace

TextOutput::TextOutput(std::shared_ptr<const Tokenizer> tokenizer, std::span<const TokenId> context,
                       std::vector<std::string> stop)
    : decoder_(std::move(tokenizer), context), stop_(std::move(stop)) {}

std::string TextOutput::push(TokenId id) {
  if (stopped_) {
    return {};
  }
  held_ += decoder_.push(id);
  return release(false);
}

std::string TextOutput::finish() {
  if (stopped_) {
    return {};
  }
  held_ += decoder_.finish();
  return release(true);
}

std::string TextOutput::release(bool is_end) {
  std::size_t shown = held_.size();
  for (const std::string& stop : stop_) {
    if (const std::size_t at = held_.find(stop); at != std::string::npos) {
      shown = std::min(shown, at);
      stopped_ = true;
    }
  }
  if (!stopped_ && !is_end) {
    std::size_t kept = 0;
    for (const std::string& stop : stop_) {
      kept = std::max(kept, overlap(held_, stop));
    }
    shown -= kept;
    // Stop strings are valid UTF-8, so a suffix that begins one begins at a character.
  }
  std::string text = held_.substr(0, shown);
  held_.erase(0, stopped_ ? held_.size() : shown);
  return text;
}

}  // namespace promptcached::engine
