// StreamDecoder: decodes a short window of tokens again for each new one and gives out the bytes that came to it.
//
// A token's text depends on what stands before it (the first token of a text loses its leading space), but only on
// whether any text stands there. So a window of the latest tokens serves as well as the whole sequence, as long as it
// holds some text; it is trimmed to stay short whatever the model generates.
#include <array>
#include <utility>

#include "core/tokenizer/tokenizer.h"

namespace promptcached {
namespace {

constexpr std::size_t kLongestWindow = 24;
constexpr std::size_t kTrimmedWindow = 8;

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, std::span<const TokenId> context)
    : tokenizer_(std::move(tokenizer)), window_(context.begin(), context.end()) {
  const std::string text = tokenizer_->decode_bytes(window_);
  window_bytes_ = text.size();
  assembler_.push(text);  // keeps the start of a character that the context ends in; the rest is the prompt's text
}

std::string StreamDecoder::push(TokenId id) {
  window_.push_back(id);
  const std::string text = tokenizer_->decode_bytes(window_);
  if (text.size() <= window_bytes_) {
    // A control token says nothing and changes nothing: the window needs none. Other tokens without text of their own
    // change what follows, as a leading space does that the decoder strips.
    if (!ever_gives_text(id)) {
      window_.pop_back();
    }
    return {};
  }
  std::string delta = assembler_.push(std::string_view(text).substr(window_bytes_));
  pushed_bytes_ = true;
  window_bytes_ = text.size();
  trim_window();
  return delta;
}

std::string StreamDecoder::finish() { return pending() ? assembler_.finish() : std::string(); }

// Twice in a row, a token shows its text even if the decoder strips a space from the first one.
bool StreamDecoder::ever_gives_text(TokenId id) const {
  const std::array<TokenId, 2> twice = {id, id};
  return !tokenizer_->decode_bytes(twice).empty();
}

void StreamDecoder::trim_window() {
  if (window_.size() <= kLongestWindow) {
    return;
  }
  for (std::size_t kept = kTrimmedWindow; kept < window_.size(); kept *= 2) {
    const std::span<const TokenId> tail = std::span(window_).last(kept);
    const std::size_t tail_bytes = tokenizer_->decode_bytes(tail).size();
    if (tail_bytes > 0) {
      window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(kept));
      window_bytes_ = tail_bytes;
      return;
    }
  }
}

}  // namespace promptcached
